"""The embedded ledger: one SQLite file, no services. The row is the queue; row, history and
counters are one transaction."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import LedgerError, RouteChanged
from milepost.core.forecast import LaneCount
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.values.file_modes import PRIVATE, mode_text
from milepost.ledgers.sqlite import claim, documents, find, lane_counts, read, retention, upkeep
from milepost.ledgers.sqlite.admission import Admission
from milepost.ledgers.sqlite.claim import Served, claim_one
from milepost.ledgers.sqlite.claim_on_arrival import Arrivals
from milepost.ledgers.sqlite.errors import ROW_REFUSED, free_bytes
from milepost.ledgers.sqlite.file.liveness import Liveness
from milepost.ledgers.sqlite.file.permissions import is_readable_by_all, mode_of, unwritable
from milepost.ledgers.sqlite.file.store import SqliteFile
from milepost.ledgers.sqlite.forget import forget
from milepost.ledgers.sqlite.quarantine import SqliteQuarantine, count_quarantined
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, one_by_one, write_changes
from milepost.ledgers.sqlite.rows.codec import COLUMNS, LOOK_AT, rows_of
from milepost.ledgers.sqlite.rows.fence import fenced
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ledgers.sqlite.rows.new_items import write_new
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
    add_unknown,
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
        self._names = NameNumbers()
        self._store.on_rollback = self._names.forget
        self._liveness = Liveness(path, self.file_mode)
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
        return self._read(lambda tx: read.known(tx, route, keys))

    def recognise(
        self, route: str, keys: Sequence[str], digests: Sequence[bytes]
    ) -> list[KnownKey | Same | None]:
        return self._read(lambda tx: read.recognised(tx, route, keys, digests))

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        return {}

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        def run(tx: Transaction, alone: bool) -> list[KnownKey | Refused | None]:
            if Admission(tx.connection).outdated(plan.name, plan.version):
                raise RouteChanged(
                    f"route {plan.name!r} was changed in the ledger after this process started; restart it with the new route"
                )
            tx.names.route(tx.connection, plan.name)
            keys = [new_item.change.after.key for new_item in new_items]
            sealed = list(read.seals(tx, plan.name, keys))
            found = read.known(tx, plan.name, sealed) if sealed else []
            known = {one.key: one for one in found if one is not None}
            tally = CounterDeltas()

            def write(fresh: list[NewItem]) -> list[KnownKey | Refused | None]:
                # No look-up before: the write itself shows which keys have a row.
                taken: list[str] = []
                refused: dict[int, Refused] = {}

                def write_new_items(some: list[NewItem]) -> None:
                    taken.extend(
                        some[place].change.after.key for place in write_new(tx, some, tally)
                    )

                if alone:
                    refused = one_by_one(tx, fresh, write_new_items)
                else:
                    write_new_items(fresh)
                there = (
                    dict(zip(taken, read.known(tx, plan.name, taken), strict=True)) if taken else {}
                )
                return [
                    refused.get(place) or there.get(new_item.change.after.key)
                    for place, new_item in enumerate(fresh)
                ]

            answers = add_unknown(new_items, known, write)
            tally.write(tx)
            return answers

        return self._write_rows(run)

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        def run(tx: Transaction) -> list[ClaimResult]:
            admission, tally = Admission(tx.connection), CounterDeltas()
            answers = [
                claim_one(tx, admission, tally, self._served, ask, now, jitter) for ask in asks
            ]
            tally.write(tx)
            return answers

        return self._write(run)

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        def run(tx: Transaction, alone: bool) -> list[Conflict | Refused | None]:
            admission, tally = Admission(tx.connection), CounterDeltas()
            answers = self._apply(tx, admission, changes, versions or {}, tally, {}, alone)
            tally.write(tx)
            return answers

        return self._write_rows(run)

    def apply_and_claim(
        self,
        changes: Sequence[Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ClaimRequest],
        jitter: float,
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        def run(
            tx: Transaction, alone: bool
        ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
            admission, tally = Admission(tx.connection), CounterDeltas()
            arrivals = [Arrivals(tx, admission, ask, now) for ask in asks]
            at_stage = {} if alone else {(each.route, each.stage): each for each in arrivals}
            answers = self._apply(tx, admission, changes, versions, tally, at_stage, alone)
            claims = [each.claim(tally, self._served, jitter) for each in arrivals]
            tally.write(tx)
            return answers, claims

        return self._write_rows(run)

    def _apply(
        self,
        tx: Transaction,
        admission: Admission,
        changes: Sequence[Change],
        versions: Mapping[str, int],
        tally: CounterDeltas,
        arrivals: Mapping[tuple[str, str], Arrivals],
        alone: bool,
    ) -> list[Conflict | Refused | None]:
        """Write the changes in this transaction; `alone`: one by one, because one of them cannot be
        written."""
        if len({change.before.handle for change in changes}) < len(changes):
            # A change may build on an earlier one: each is checked against the row that the earlier
            # ones have left.
            return [
                answer
                for change in changes
                for answer in self._apply(tx, admission, [change], versions, tally, {}, alone)
            ]
        outdated = admission.outdated_of(versions)
        may_be_written = fenced(tx, changes)
        good: list[Change] = []
        places: list[int] = []
        answers: list[Conflict | Refused | None] = [None] * len(changes)
        for index, change in enumerate(may_be_written):
            before = changes[index].before
            if change is None or before.route in outdated:
                current = self._row(tx, before)
                answers[index] = (
                    current
                    if isinstance(current, Refused)
                    else Conflict(current, before.route in outdated)
                )
            else:
                good.append(change)
                places.append(index)
        if alone:

            def write(one: list[Change]) -> None:
                write_changes(tx, one, tally)
                admission.update_breakers(one)

            for place, answer in one_by_one(tx, good, write).items():
                answers[places[place]] = answer
            return answers
        # Breakers first: one that opens here keeps items from being claimed as they arrive.
        admission.update_breakers(good)
        if arrivals:
            for each in arrivals.values():
                each.make_room()
            good = [
                change
                if (stage := arrivals.get((change.after.route, change.after.stage))) is None
                else stage.take(change)
                for change in good
            ]
        write_changes(tx, good, tally)
        return answers

    def _row(self, tx: Transaction, wanted: Row) -> Row | Refused | None:
        """The item's present row; its number alone could be that of a later item."""
        columns = tx.execute(
            f"SELECT {COLUMNS} FROM item WHERE id = ? AND route = ? AND key = ?",
            (wanted.handle, tx.names.routes.get(wanted.route), wanted.key),
        ).fetchone()
        return None if columns is None else rows_of([columns], tx.names)[0]

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
        return self._read(lambda tx: read.get(tx, refs))

    def find(self, query: Query) -> QueryPage:
        return self._read(lambda tx: find.find(tx, query))

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        return self._read(lambda tx: read.history(tx, route, key, payloads=payloads))

    # Feed, counters, documents --------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        return self._read(lambda tx: read.feed(tx, after, limit))

    def last_seq(self) -> int:
        return self._read(
            lambda tx: int(tx.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()[0])
        )

    def counts(self, route: str | None = None) -> list[Count]:
        return self._read(lambda tx: read.counts(tx, route))

    def groups(self, route: str | None = None) -> list[Group]:
        return self._read(lambda tx: read.groups(tx, route))

    def lane_counts(self, route: str, now: int, lists: Collection[str] = ()) -> list[LaneCount]:
        return self._read(
            lambda tx: (
                lane_counts.listed(tx, route, now, lists)
                if lists
                else lane_counts.live(tx, route, now)
            )
        )

    def entered_by(self, route: str, stage: str, until: int) -> int:
        return self._read(lambda tx: lane_counts.entered_by(tx, route, stage, until))

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
        return self._read(lambda tx: read.sealed(tx, route, after, limit))

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        return self._read(lambda tx: read.left_failures(tx, route, prefix, after, limit))

    def take_over(self, *_: Any) -> TransferResult:
        raise LedgerError(
            f"{self.url} cannot take over another ledger's items; a ledger on AWS can: dynamodb://REGION/PREFIX"
        )

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        return self._read(lambda tx: claim.next_due(tx, plans))

    def missing_messages(self, plan: Plan, now: int) -> dict[str, int]:
        """None: the row is the queue."""
        return {}

    def lost_messages(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """None: the row is the queue."""
        return []

    def rename_stage(self, route: str, old: str, new: str) -> None:
        self._write(lambda tx: upkeep.rename_stage(tx, route, old, new))

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        taken: int = self._write(lambda tx: upkeep.reclaim(tx, holders, now)) if holders else 0
        self._liveness.remove_lock_files(list(holders))
        return taken

    def prune(self, asked: PruneCriteria) -> Pruned:
        return retention.prune(self._read, self._write, asked)

    def forget(self, asked: ForgetRequest) -> Forgotten:
        if asked.dry_run:
            return self._read(lambda tx: forget(tx, asked))
        with self._store.overwriting():
            forgotten = self._write(lambda tx: forget(tx, asked))
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

    def _read(self, run: Callable[[Transaction], T]) -> T:
        def refreshed(tx: Transaction) -> T:
            # One transaction, so that names and rows match. A Ctrl-C may come at any place, and
            # must not leave it open.
            try:
                tx.execute("BEGIN")
                tx.names.refresh(tx.connection)
                return run(tx)
            except BaseException:
                tx.names.forget()
                raise
            finally:
                if tx.connection.in_transaction:
                    tx.execute("ROLLBACK")

        return self._store.read(refreshed)

    def _write_rows(self, run: Callable[[Transaction, bool], T]) -> T:
        """Write all rows at once; if one of them cannot be written, write them one by one."""
        try:
            return self._write(lambda tx: run(tx, False))
        except ROW_REFUSED as error:
            # A fault of the write itself would otherwise show only as slowness.
            log.warning(
                "%s: a write failed (%s: %s); its rows are now written one by one",
                self.url,
                type(error).__name__,
                error,
            )
            return self._write(lambda tx: run(tx, True))

    def _write(self, run: Callable[[Transaction], T]) -> T:
        def refreshed(connection: sqlite3.Connection) -> T:
            self._names.refresh(connection)
            return run(Transaction(connection, self._names))

        return self._store.write(refreshed)
