"""`python -m milepost` is the command line."""

from __future__ import annotations

from milepost.cli import main

main()
