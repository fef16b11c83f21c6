"""Keys of several fields as one text: the parts escaped, with a separator between them."""

from __future__ import annotations

from collections.abc import Iterable

SEPARATOR = "#"


def joined_key(parts: Iterable[str]) -> str:
    """The key of these parts."""
    return SEPARATOR.join(map(escape_part, parts))


def key_parts(key: str) -> list[str]:
    """The parts of a key of several fields, unescaped."""
    parts = key.split(SEPARATOR)
    return [unescape_part(part) for part in parts] if "%" in key else parts


def escape_part(text: str) -> str:
    """A key part, escaped."""
    return text.replace("%", "%25").replace(SEPARATOR, "%23")


def unescape_part(text: str) -> str:
    """A key part as submitted."""
    return text.replace("%23", SEPARATOR).replace("%25", "%")
