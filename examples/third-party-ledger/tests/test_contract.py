"""The mirrored ledger keeps every promise of the contract, and its file has every line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost import ports
from milepost_testing.contract import LedgerContract

SIGN_ON_AND_DIE = """
import os, sys
from milepost import ports
ledger, blobs = ports.open_ledger(sys.argv[1])
ledger.sign_on(sys.argv[2])
os._exit(9)
"""
LARGEST = 50_000


class TestMirroredLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Iterator[ports.Ledger]:
        self.path = tmp_path / "parcels.db"
        self.handles: list[ports.Ledger] = []
        yield self.another()
        for handle in self.handles:
            handle.close()

    def another(self, ledger: ports.Ledger | None = None) -> ports.Ledger:
        """A handle on the ledger, opened by its URL: the entry point must be installed."""
        handle, _ = ports.open_ledger(self.url)
        self.handles.append(handle)
        return handle

    @property
    def url(self) -> str:
        return f"mirrored:///{self.path}"

    def make_departed(self, ledger: ports.Ledger, holder: str) -> None:
        """A process that signs on and ends without signing off."""
        done = subprocess.run([sys.executable, "-c", SIGN_ON_AND_DIE, self.url, holder], timeout=60)
        assert done.returncode == 9

    def damage(self, ledger: ports.Ledger, route: str, key: str, what: str) -> None:
        statements = {
            "content": "UPDATE content SET body = x'7b' WHERE item = (SELECT id FROM item WHERE key = ?)",
            "row": "UPDATE item SET rest = x'7b' WHERE key = ?",
        }
        with sqlite3.connect(self.path) as connection:
            connection.execute(statements[what], (key,))
        connection.close()

    def refused_size(self, ledger: ports.Ledger) -> int:
        """From now on the file refuses values above a limit."""
        connection = sqlite3.connect(self.path)
        for table in ("item", "history"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for event in ("INSERT", "UPDATE"):
                too_large = " OR ".join(f"length(NEW.{name}) > {LARGEST}" for name in columns)
                connection.execute(
                    f"CREATE TRIGGER refuse_{event}_{table} BEFORE {event} ON {table}"
                    f" WHEN {too_large} BEGIN SELECT RAISE(ABORT, 'too large'); END"
                )
        connection.commit()
        connection.close()
        return LARGEST + 10_000

    def traces(self, ledger: ports.Ledger, text: str) -> list[str]:
        """The files that hold it, the mirror among them."""
        files = [file for file in self.path.parent.glob("parcels.db*") if file.is_file()]
        return [file.name for file in files if text.encode() in file.read_bytes()]
