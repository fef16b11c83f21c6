"""Headers of requests and answers. Those of a request are checked, so that no value can end a line
and begin another header."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from milepost_net.errors import InvalidRequest

LARGEST_HEAD = 65_536
OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the client sets by itself: they describe the connection and the body's framing, not
the request."""
PASSED_ON = frozenset({"accept", "accept-language", "range", "user-agent"})
"""Headers that go along when a redirect leads to another origin; all others may be credentials."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}\Z")
_VALUE = re.compile(r"[\t\x20-\x7e]*\Z")


class HeaderList:
    """The headers of an answer, in their order. Names are compared without case."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a header."""
        wanted = name.lower()
        return next((value for found, value in self._pairs if found.lower() == wanted), default)

    def get_all(self, name: str) -> list[str]:
        """Every value of a header that may come more than once, such as Set-Cookie."""
        wanted = name.lower()
        return [value for found, value in self._pairs if found.lower() == wanted]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        # Values may be secrets.
        return f"<HeaderList {', '.join(name for name, _ in self._pairs)}>"


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A request's headers, each name once; raises InvalidRequest that names the header and never
    its value."""
    header_lines(headers)
    return dict(headers)


def header_lines(headers: Mapping[str, str]) -> tuple[str, set[str]]:
    """A request's headers, checked, as lines of its head; and their names in lower case."""
    names: set[str] = set()
    lines: list[str] = []
    for name, value in headers.items():
        lower = checked_name(name)
        # The first two tests are those of the pattern, without tabs, in a quarter of its time.
        if not isinstance(value, str) or not (
            (value.isascii() and value.isprintable()) or _VALUE.match(value)
        ):
            raise InvalidRequest(
                f"the value of the header {name} is not one line of ASCII text",
                kind="invalid-header",
            )
        if lower in names:
            raise InvalidRequest(f"the header {name} is given twice", kind="invalid-header")
        names.add(lower)
        lines.append(f"{name}: {value}\r\n")
    text = "".join(lines)
    if len(text) > LARGEST_HEAD:
        raise InvalidRequest(
            f"the headers are larger than {LARGEST_HEAD:,} bytes", kind="invalid-header"
        )
    return text, names


@lru_cache(1024)
def checked_name(name: str) -> str:
    """A header's name in lower case; raises InvalidRequest if a request cannot have it. Most
    requests have the names of those before."""
    if not isinstance(name, str) or not TOKEN.match(name):
        raise InvalidRequest(
            f"the header name {str(name)[:80]!r} is not made of letters, digits and '-'",
            kind="invalid-header",
        )
    lower = name.lower()
    if lower in OURS:
        raise InvalidRequest(
            f"the header {name} is set by the client that sends the request; leave it out",
            kind="invalid-header",
        )
    return lower


@lru_cache(1024)
def _all_different(names: tuple[str, ...]) -> bool:
    """Whether no two names differ in case alone. Most requests have the names of those before."""
    return len(set(map(str.lower, names))) == len(names)


def merged_headers(*layers: Mapping[str, str]) -> dict[str, str]:
    """Headers of several layers, of which a later one replaces those of an earlier one, whatever
    the case of their names."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer)
    if _all_different(tuple(merged)):
        return merged
    found: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for name, value in layer.items():
            found[name.lower()] = (name, value)
    return dict(found.values())
