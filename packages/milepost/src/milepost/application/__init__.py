"""Applications: their declaration, settings, context, and installation on a ledger."""

from __future__ import annotations


def is_name(spec: str) -> bool:
    """Whether this is the name of an application, and not a file or a module. (It is here because
    `milepost --help` calls it, and must import nothing else.)"""
    return ":" not in spec and not spec.endswith(".py")
