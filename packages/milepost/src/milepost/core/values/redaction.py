"""Redaction: removes passwords, keys and tokens from stored errors, from logs, and from what people
and readers see of an item."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from milepost_net.hidden_urls import HIDDEN, hidden_url, is_token, url_in_key, url_pieces

__all__ = [
    "HIDDEN",
    "hidden_url",
    "hidden_urls",
    "hide_fields",
    "is_secret",
    "redacted",
    "redacted_text",
    "restored",
    "secrets_of_url",
    "url_in_key",
]

_SECRET = (
    r"pass(?:word|wd|phrase)|secret|api[_-]?key|access[_-]?key|private[_-]?key|authorization|cookie"
)
_WORD = r"token|credentials?"
_SENTENCE = r"an?|the|this|its?|is|no|not|name|give"
"""Words that begin a sentence about a secret, and are none: "password: the variable is not set"."""
_NAME = re.compile(rf"(?:^|[^a-z])(?:{_SECRET}|{_WORD})$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEXT = re.compile(
    # A word that names a secret, then its value. "token: expired" is a sentence, so there the value
    # must follow more closely.
    rf"(?P<name>(?:{_SECRET})[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic)\s+)?(?!(?:{_SENTENCE})\s)|(?:{_WORD})(?:[\"']\s*:\s*[\"']?|=))[^\s\"',;&)}}\]]+"
    r"|(?P<scheme>\b(?:bearer\s+|basic\s+(?!(?-i:[A-Z]?[a-z]+)(?![\w.~+/=-]))))[\w.~+/-]{8,}=*"
    r"|(?P<user>://[^\s/:@]*:)[^\s/@]+(?=@)"
    r"|\bmp_[0-9a-f]{12}_[\w-]+",
    re.IGNORECASE,
)
_HINTS = (
    "pass",
    "secret",
    "key",
    "authorization",
    "cookie",
    "token",
    "credential",
    "bearer",
    "basic",
    "mp_",
    "@",
)
"""A text without any of these contains no secret; a fast check that covers most errors."""


_URL = re.compile(r"https?://[^\s#\"'<>]+", re.IGNORECASE)
"""A URL within a text, without its fragment: in the text of a key, '#' separates the parts."""
SHORT = 64
"""Texts up to this length, such as the values of headers, come again and again: the last ones are
cached."""


_named: set[str] = set()
"""Further names of fields that hold secrets, in small letters, as settings give them."""


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether a field of this name holds a secret ("api_key", "X-Auth-Token", "clientSecret"). A
    path, such as of a file, names none."""
    return name.lower() in _named or (
        "/" not in name and _NAME.search(_CAMEL.sub("_", name)) is not None
    )


def hide_fields(names: Iterable[str]) -> None:
    """In this process, fields with these names hold secrets too, in any case of letters."""
    _named.update(name.lower() for name in names)
    is_secret.cache_clear()


def redacted(value: Any) -> Any:
    """The same value with secrets removed at any depth: fields with secrets' names, and text that
    looks like a secret."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, dict):
        return {
            name: HIDDEN if isinstance(name, str) and is_secret(name) and held else redacted(held)
            for name, held in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(entry) for entry in value]
    return value


def hidden_urls(text: str) -> str:
    """The same text, with what may be secret in its URLs hidden, as `hidden_url` does."""
    return _URL.sub(lambda match: hidden_url(match[0]), text) if "://" in text else text


def secrets_of_url(url: str) -> list[str]:
    """The texts in a URL that are likely secrets: those that `hidden_url` hides, without values
    that look like usual words."""
    secrets, before = list[str](), ""
    for text, secret in url_pieces(url):
        usual = before.endswith("=") and not is_token(text) and not is_secret(before.strip("?&="))
        if secret and not usual and text not in ("", HIDDEN):
            secrets.append(text)
        before = text
    return secrets


def restored(given: Any, stored: Any) -> Any:
    """The given value with the stored one's secrets at the places where it has what `redacted`
    shows in their stead: a person who edits what is shown, and gives it back, changes nothing that
    was hidden."""
    return _restored(given, redacted(stored), stored)


def _restored(given: Any, shown: Any, stored: Any) -> Any:
    if isinstance(given, dict) and isinstance(shown, dict):
        return {
            name: _restored(value, shown[name], stored[name]) if name in shown else value
            for name, value in given.items()
        }
    if isinstance(given, list) and isinstance(shown, list) and len(given) == len(shown):
        return [_restored(*entries) for entries in zip(given, shown, stored, strict=True)]
    return stored if given == shown and shown != stored else given


def redacted_text(text: str) -> str:
    """The same text without values that follow a secret's name, passwords in URLs, and Milepost's
    own keys."""
    return _redacted_short(text) if len(text) <= SHORT else _redacted(text)


def _redacted(text: str) -> str:
    if not any(map(text.lower().__contains__, _HINTS)):
        return text
    return _TEXT.sub(
        lambda found: (found["name"] or found["scheme"] or found["user"] or "") + HIDDEN, text
    )


_redacted_short = lru_cache(4096)(_redacted)
