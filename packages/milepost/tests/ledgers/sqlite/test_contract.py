"""The SQLite ledger keeps the contract, across threads, handles and processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.ledger import Ledger
from milepost_testing.contract import LedgerContract

SIGN_ON_AND_DIE = """
import os, sys
from milepost.ledgers.sqlite import SqliteLedger
ledger = SqliteLedger.open(sys.argv[1])
ledger.sign_on(sys.argv[2])
os._exit(9)
"""


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "milepost.db"

    @pytest.fixture
    def opened(self) -> Iterator[list[SqliteLedger]]:
        """Every handle that a test opens, closed afterwards."""
        handles: list[SqliteLedger] = []
        yield handles
        for handle in handles:
            handle.close()

    @pytest.fixture
    def ledger(self, path: Path, opened: list[SqliteLedger]) -> Ledger:
        self.path_used, self.opened_here = path, opened
        return self._open()

    def another(self, ledger: Ledger) -> Ledger:
        return self._open()

    def _open(self) -> SqliteLedger:
        handle = SqliteLedger.open(str(self.path_used))
        self.opened_here.append(handle)
        return handle

    def make_departed(self, ledger: Ledger, holder: str) -> None:
        """A real process that signs on and is gone without signing off."""
        done = subprocess.run(
            [sys.executable, "-c", SIGN_ON_AND_DIE, str(self.path_used), holder],
            check=False,
            timeout=60,
        )
        assert done.returncode == 9

    def damage(self, ledger: Ledger, route: str, key: str, what: str) -> None:
        connection = sqlite3.connect(self.path_used)
        if what == "content":
            connection.execute(
                "UPDATE content SET body = x'7b' WHERE item = (SELECT id FROM item WHERE key = ?)",
                (key,),
            )
        else:
            connection.execute("UPDATE item SET rest = x'7b' WHERE key = ?", (key,))
        connection.commit()
        connection.close()

    def refused_size(self, ledger: Ledger) -> int:
        assert isinstance(ledger, SqliteLedger)
        ledger._store._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        return 60_000

    def traces(self, ledger: Ledger, text: str) -> list[str]:
        """The files that hold it, in any page, also in one that is free, and in the log."""
        files = sorted(self.path_used.parent.glob(f"{self.path_used.name}*"))
        return [
            file.name for file in files if file.is_file() and text.encode() in file.read_bytes()
        ]
