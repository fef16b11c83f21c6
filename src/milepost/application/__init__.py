"""Applications: what one declares, its settings, what its parts are given, and how it joins a ledger."""

from __future__ import annotations


def is_name(spec: str) -> bool:
    """Is this the name of an application, rather than a file or a module? (Here, since `milepost --help` asks, and imports nothing else.)"""
    return ":" not in spec and not spec.endswith(".py")
