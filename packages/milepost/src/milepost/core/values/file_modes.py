"""Permissions of the files that Milepost makes: private to their owner, unless a setting says
otherwise."""

from __future__ import annotations

import re

from milepost.core.errors import ConfigMistake

PRIVATE = 0o600
READ_AND_WRITE = 0o666
READ_BY_ALL = 0o004
_OCTAL = re.compile(r"0?[0-7]{3}")


def read_mode(text: str, where: str = "mode") -> int:
    """The permissions that a setting such as "0660" gives; ConfigMistake says what would be
    right."""
    mode = int(text, 8) if _OCTAL.fullmatch(text) else 0
    if mode & PRIVATE != PRIVATE or mode & ~READ_AND_WRITE:
        raise ConfigMistake(
            f'{where} is {text!r}; write octal text such as "0600", "0640" or "0660": the owner reads and writes, and no file is executable'
        )
    return mode


def folder_mode(mode: int) -> int:
    """The permissions of a folder for files of this mode: who may read them may enter it."""
    return mode | (mode & 0o444) >> 2


def mode_text(mode: int) -> str:
    return f"{mode:04o}"
