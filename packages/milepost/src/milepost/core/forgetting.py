"""Forgotten items: the keyed digest that stands for a key, and what stands for the text of an
error, once their content was removed."""

from __future__ import annotations

import hmac

MARK = "\x1f"
"""First character of the name of a forgotten item. No key contains it: a key has no control
characters."""
REMOVED_TEXT = "(content removed)"
"""Stands for a text of a forgotten item, such as the example of a group of errors."""


def forgotten_name(secret: bytes, route: str, key: str) -> str:
    """The name that stands for a forgotten key: a keyed digest, so that a key that comes again is
    recognised, and nobody without the secret can find the key by trying."""
    named = f"{route}\x1f{key}".encode("utf-8", "surrogatepass")
    return MARK + hmac.digest(secret, named, "sha256").hex()


def is_forgotten_name(key: str) -> bool:
    """Whether this stands for a forgotten key."""
    return key.startswith(MARK)


def readable_name(key: str) -> str:
    """The name of a forgotten item in a form for people; other keys as they are."""
    return f"forgotten:{key.removeprefix(MARK)}" if is_forgotten_name(key) else key
