"""The embedded ledger: one SQLite file."""

from __future__ import annotations

from milepost.ledgers.sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
