"""Hidden parts of URLs: what may be a secret in a URL, the URL without it, and the URL as a part of
a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256

HIDDEN = "…"
"""What stands in place of a secret."""

_URL_PARTS = re.compile(
    r"(?P<scheme>https?://)(?:(?P<user>[^/?#]*)@)?(?P<host>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#(?P<fragment>.*))?\Z",
    re.IGNORECASE | re.DOTALL,
)
LONG_SEGMENT = 20
"""Characters of a path segment that is taken for a secret whatever it holds."""
SHORT_SEGMENT = 6
"""The same for one of letters and digits, and for the last one on a host of webhooks, such as
hooks.zapier.com."""
_WEBHOOK_HOST = re.compile(r"(?:^|\.)(?:web)?hooks?\.", re.IGNORECASE)
URL_DIGEST = 16
"""Hex digits of a URL's digest in a key."""
_URL_IN_KEY = re.compile(rf"~[0-9a-f]{{{URL_DIGEST}}}\Z")


def hidden_url(url: str) -> str:
    """The same URL, with what may be secret in it hidden: user and password, all values of its
    query, its fragment, and segments of its path that look like a token, as in the URLs of
    webhooks. A URL in the form of `url_in_key` stays as it is."""
    return url if _is_url_in_key(url) else _hidden(url)


@lru_cache(4096)
def url_in_key(url: str) -> str:
    """The URL as a part of an item's key: the URL itself; or, if something in it is hidden, its
    hidden form with a digest of the whole URL, so that two URLs are two parts. A URL in this form
    stays as it is."""
    hidden = hidden_url(url)
    return (
        url
        if hidden == url
        else f"{hidden}~{sha256(url.encode(errors='replace')).hexdigest()[:URL_DIGEST]}"
    )


def _is_url_in_key(url: str) -> bool:
    """Whether the URL has the form of `url_in_key`. No valid URL has it: valid ones are ASCII."""
    hidden, digests = _URL_IN_KEY.subn("", url)
    return digests == 1 and HIDDEN in hidden and _hidden(hidden) == hidden


def _hidden(url: str) -> str:
    return "".join(HIDDEN if secret else text for text, secret in url_pieces(url))


def url_pieces(url: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a URL in order, each with whether it may be a secret. What is no URL is one
    piece, and no secret."""
    parts = _URL_PARTS.match(url)
    if parts is None:
        yield url, False
        return
    yield parts["scheme"], False
    if parts["user"] is not None:
        yield parts["user"], True
        yield "@", False
    yield parts["host"], False
    yield from _path_pieces(parts["path"], _WEBHOOK_HOST.search(parts["host"]) is not None)
    if parts["query"] is not None:
        yield from _query_pieces(parts["query"])
    if parts["fragment"] is not None:
        yield "#", False
        yield parts["fragment"], True


def _path_pieces(path: str, of_webhooks: bool) -> Iterator[tuple[str, bool]]:
    segments = path.split("/")
    last = max((place for place, segment in enumerate(segments) if segment), default=-1)
    for place, segment in enumerate(segments):
        if place:
            yield "/", False
        name, equals, value = segment.partition("=")
        if is_token(segment) or (of_webhooks and place == last and len(segment) >= SHORT_SEGMENT):
            yield segment, True
        elif equals:
            yield f"{name}=", False
            yield value, True
        else:
            yield segment, False


def _query_pieces(query: str) -> Iterator[tuple[str, bool]]:
    """Of a query all values are secrets, and what has no name."""
    for place, pair in enumerate(query.split("&")):
        name, equals, value = pair.partition("=")
        before = "&" if place else "?"
        yield f"{before}{name}=" if equals else before, False
        yield value if equals else pair, True


def is_token(segment: str) -> bool:
    mixed = any(map(str.isdigit, segment)) and any(map(str.isalpha, segment))
    return len(segment) >= LONG_SEGMENT or (len(segment) >= SHORT_SEGMENT and mixed)
