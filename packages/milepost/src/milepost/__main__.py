"""Entry point of `python -m milepost`."""

from __future__ import annotations

from milepost.cli import main

main()
