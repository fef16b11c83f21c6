"""Keys of several fields as one text: the parts escaped, with a separator between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

SEPARATOR = "#"


def joined_key(parts: Iterable[str]) -> str:
    """The key of these parts."""
    return SEPARATOR.join(map(escape_part, parts))


def key_parts(key: str) -> list[str]:
    """The parts of a key of several fields, unescaped."""
    parts = key.split(SEPARATOR)
    return [unescape_part(part) for part in parts] if "%" in key else parts


def formed_key(key: str, fields: Sequence[str], forms: Mapping[str, Callable[[str], str]]) -> str:
    """The key of these fields, with the parts of those that have a form in that form. A key that
    has other fields stays as it is."""
    parts = key_parts(key)
    if len(parts) != len(fields):
        return key
    return joined_key(
        forms[field](part) if field in forms else part
        for field, part in zip(fields, parts, strict=True)
    )


def escape_part(text: str) -> str:
    """A key part, escaped."""
    return text.replace("%", "%25").replace(SEPARATOR, "%23")


def unescape_part(text: str) -> str:
    """A key part as submitted."""
    return text.replace("%23", SEPARATOR).replace("%25", "%")
