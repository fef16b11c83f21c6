"""The embedded ledger: one SQLite file, no services. The row is the queue; row, history and
counters are one transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import LedgerError
from milepost.core.forecast import LaneCount
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.values.file_modes import PRIVATE, mode_text
from milepost.ledgers.sqlite import (
    apply,
    claim,
    documents,
    find,
    intake,
    lane_counts,
    read,
    retention,
    upkeep,
)
from milepost.ledgers.sqlite.claim import Served
from milepost.ledgers.sqlite.errors import ROW_REFUSED, free_bytes
from milepost.ledgers.sqlite.file.liveness import Liveness
from milepost.ledgers.sqlite.file.permissions import is_readable_by_all, mode_of, unwritable
from milepost.ledgers.sqlite.file.store import SqliteFile
from milepost.ledgers.sqlite.forget import forget
from milepost.ledgers.sqlite.quarantine import SqliteQuarantine, count_quarantined
from milepost.ledgers.sqlite.rows.codec import LOOK_AT
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.documents import Document
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import (
    ClaimRequest,
    ClaimResult,
    Conflict,
    KnownKey,
    NewItem,
    Query,
    QueryPage,
    Refused,
    Same,
    Timing,
)
from milepost.ports.retention import ForgetRequest, Forgotten, LeftFailures, PruneCriteria, Pruned
from milepost.ports.service import Service
from milepost.ports.upkeep import BackupReport, Progress, TransferResult

T = TypeVar("T")
REBUILD = "stop all processes, then: sqlite3 FILE VACUUM"
log = logging.getLogger(__name__)


class SqliteLedger:
    """See `ports.ledger.Ledger` for the promises of each operation."""

    timing = Timing(0, 0)
    missing_capabilities = frozenset({"take over"})
    work_queues, row_expiry = False, False
    known_format = 0
    foreign_rows = None

    def __init__(self, path: str, mode: int | None = None) -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self._mode = mode
        self._store = SqliteFile(path, PRIVATE if mode is None else mode)
        self.file_mode: int = mode or mode_of(path) or PRIVATE
        """The mode of new files beside the ledger file: as a setting says, else that of the ledger
        file."""
        self._liveness = Liveness(path, self.file_mode)
        self._read, self._write = self._store.read, self._store.write
        self._served = Served()
        self.quarantine = SqliteQuarantine(self._read, self._write)

    @classmethod
    def open(cls, path: str, mode: int | None = None) -> SqliteLedger:
        """The ledger in this file; created if it does not exist, readable for its owner alone.
        `mode`: other permissions of new files."""
        return cls(str(path), mode)

    def prepare(self, plan: Plan) -> Plan:
        """The plan in the epoch of this file. Rows of all routes are in one place, and nothing is
        sent."""
        return plan.at_epoch(self._read(lambda tx: tx.names.epoch))

    # Items ----------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        return self._read(read.known, route, keys)

    def recognise(
        self, route: str, keys: Sequence[str], digests: Sequence[bytes]
    ) -> list[KnownKey | Same | None]:
        return self._read(read.recognised, route, keys, digests)

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        return {}

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        try:
            return self._write(intake.add, plan, new_items)
        except ROW_REFUSED as error:
            self._warn_of(error)
        return self._write(intake.add_each, plan, new_items)

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        return self._write(claim.claim, self._served, asks, now, jitter)

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        try:
            return self._write(apply.apply, changes, versions or {})
        except ROW_REFUSED as error:
            self._warn_of(error)
        return self._write(apply.apply_each, changes, versions or {})

    def apply_and_claim(
        self,
        changes: Sequence[Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ClaimRequest],
        jitter: float,
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        step = (changes, now, versions, asks, self._served, jitter)
        try:
            return self._write(apply.apply_and_claim, *step)
        except ROW_REFUSED as error:
            self._warn_of(error)
        return self._write(apply.apply_each_and_claim, *step)

    def _warn_of(self, error: Exception) -> None:
        """Log why rows are written one by one: a fault of the write itself would otherwise show
        only as slowness."""
        log.warning(
            "%s: a write failed (%s: %s); its rows are now written one by one",
            self.url,
            type(error).__name__,
            error,
        )

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        """No-op: the row is the queue."""

    def extend(
        self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()
    ) -> list[bool]:
        def run(tx: Transaction) -> list[bool]:
            answers = []
            for row in rows:
                changed = tx.execute(
                    f"UPDATE item SET {LOOK_AT} WHERE id = :id AND lease = :lease",
                    {"at": until, "id": row.handle, "lease": row.lease},
                ).rowcount
                answers.append(changed == 1)
            return answers

        return self._write(run)

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        return self._read(read.get, refs)

    def find(self, query: Query) -> QueryPage:
        return self._read(find.find, query)

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        return self._read(read.history, route, key, payloads=payloads)

    # Feed, counters, documents --------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        return self._read(read.feed, after, limit)

    def last_seq(self) -> int:
        return self._read(
            lambda tx: int(tx.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()[0])
        )

    def counts(self, route: str | None = None) -> list[Count]:
        return self._read(read.counts, route)

    def groups(self, route: str | None = None) -> list[Group]:
        return self._read(read.groups, route)

    def lane_counts(self, route: str, now: int, lists: Collection[str] = ()) -> list[LaneCount]:
        return self._read(
            lambda tx: (
                lane_counts.listed(tx, route, now, lists)
                if lists
                else lane_counts.live(tx, route, now)
            )
        )

    def entered_by(self, route: str, stage: str, until: int) -> int:
        return self._read(lane_counts.entered_by, route, stage, until)

    def read(self, kind: str) -> dict[str, Document]:
        return self._read(lambda tx: documents.read(tx.connection, kind))

    def read_one(self, kind: str, name: str) -> Document | None:
        return self._read(lambda tx: documents.read_one(tx.connection, kind, name))

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        return self._write(lambda tx: documents.write(tx.connection, kind, name, value, expect))

    # Upkeep ---------------------------------------------------------------------------------------
    def cost_of(self, query: Query) -> None:
        """None: reading is free here."""

    def sealed(
        self, route: str, after: str | None, limit: int
    ) -> tuple[list[KnownKey], str | None]:
        return self._read(read.sealed, route, after, limit)

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        return self._read(read.left_failures, route, prefix, after, limit)

    def take_over(self, *_: Any) -> TransferResult:
        raise LedgerError(
            f"{self.url} cannot take over another ledger's items; a ledger on AWS can: dynamodb://REGION/PREFIX"
        )

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        return self._read(claim.next_due, plans)

    def missing_messages(self, plan: Plan, now: int) -> dict[str, int]:
        """None: the row is the queue."""
        return {}

    def lost_messages(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """None: the row is the queue."""
        return []

    def rename_stage(self, route: str, old: str, new: str) -> None:
        self._write(upkeep.rename_stage, route, old, new)

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        taken: int = self._write(upkeep.reclaim, holders, now) if holders else 0
        self._liveness.remove_lock_files(list(holders))
        return taken

    def prune(self, asked: PruneCriteria) -> Pruned:
        return retention.prune(self._read, self._write, asked)

    def forget(self, asked: ForgetRequest) -> Forgotten:
        if asked.dry_run:
            return self._read(forget, asked)
        with self._store.overwriting():
            forgotten = self._write(forget, asked)
        if forgotten.refused:
            return forgotten
        remains = [
            f"backups of {self.path}",
            f"space in {self.path} that was freed before, until the file is rebuilt ({REBUILD})",
        ]
        if not self._store.empty_log():
            remains.append(f"{self.path}-wal, until no other process reads an older state")
        return replace(forgotten, remains=tuple(remains))

    def sign_on(self, holder: str) -> None:
        self._liveness.sign_on(holder)

    def sign_off(self, holder: str) -> None:
        self._liveness.sign_off(holder)

    def dead_workers(self) -> list[str]:
        self._store.crowded = self._liveness.neighbours() > 0
        return self._liveness.dead_workers()

    def change_counter(self) -> int:
        return self._store.change_counter()

    def clock(self) -> None:
        """None: all processes of a file run on this machine."""

    def services(self, *_: Any) -> list[tuple[str, Service]]:
        """None: all consequences are part of the write."""
        return []

    def counted_future(self, route: str) -> None:
        """None: a search finds them."""

    def format(self) -> None:
        """None: there is nothing that an operator raises."""

    def raise_format(self) -> int:
        return 0

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        from milepost.ledgers.sqlite.file.backup import back_up

        mode = PRIVATE if self._mode is None else self._mode
        return back_up(self.path, target, overwrite=overwrite, on_progress=on_progress, mode=mode)

    def describe(self) -> dict[str, Any]:
        sizes = self._store.size()
        facts = self._read(
            lambda tx: {
                "schema": tx.execute("PRAGMA user_version").fetchone()[0],
                "sqlite": sqlite3.sqlite_version,
                "set_aside": count_quarantined(tx.connection),
                "sound": tx.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
                if sizes["file"] < 200_000_000
                else None,
            }
        )
        return {
            "kind": "sqlite",
            "path": self.path,
            "bytes": sizes["file"],
            "log_bytes": sizes["log"],
            "free_bytes": free_bytes(self.path),
            "mode": mode_text(mode_of(self.path) or 0),
            "readable_by_all": is_readable_by_all(self.path),
            "unwritable": unwritable(self.path),
            **facts,
            "problems": [],
        }

    def idle_upkeep(self) -> None:
        """Move the log into the file while idle."""
        self._store.checkpoint()

    def close(self) -> None:
        self._liveness.close()
        self._store.close()
