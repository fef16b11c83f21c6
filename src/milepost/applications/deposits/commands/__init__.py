"""Commands of deposits, `milepost deposits COMMAND`; the command line alone imports them."""

from __future__ import annotations

from milepost.applications.deposits.commands import acts, run, worklist

__all__ = ["acts", "run", "worklist"]
