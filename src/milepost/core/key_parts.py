"""Key parts: the fields that make up a key of several fields, such as an asset's id and its batch.

Such a key is its parts joined by '#'; a '#' or '%' inside a part is escaped, so that a key can be taken apart again.
"""

from __future__ import annotations

from msgspec import Struct

SEPARATOR = "#"


class KeyPart(Struct, frozen=True, array_like=True):
    """A condition on one part of a key: at `position` (from 0) it must be `text`, as it is written in the key."""

    position: int
    text: str

    def matches(self, key: str) -> bool:
        parts = key.split(SEPARATOR)
        return self.position < len(parts) and parts[self.position] == self.text


def escape_part(text: str) -> str:
    """A part as it is written in a key."""
    return text.replace("%", "%25").replace(SEPARATOR, "%23")


def unescape_part(text: str) -> str:
    """A part as it was handed over."""
    return text.replace("%23", SEPARATOR).replace("%25", "%")
