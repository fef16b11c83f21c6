"""The command in a process and a folder of its own."""

from __future__ import annotations

from tests.cli.conftest import bare, shell

__all__ = ["bare", "shell"]
