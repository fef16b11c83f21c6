"""Admission in one transaction: pauses, limits, breakers and route versions, read once; token
buckets and breakers, read and written."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping, Sequence

from msgspec import Struct

from milepost.core.admission.breakers import (
    BreakerRecord,
    ask_again_at,
    at_clock,
    breaker_after,
    probe_order,
    room_for,
    transition,
    with_leases,
    with_probes,
)
from milepost.core.admission.controls import Controls, Limit, scope
from milepost.core.admission.rates import (
    CallRate,
    TokenBucket,
    calls_left,
    next_call_at,
    refill,
    spend,
    was_set_back,
)
from milepost.core.change import Change
from milepost.core.errors import LedgerDamaged
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.ledgers.sqlite import documents
from milepost.ledgers.sqlite.rows.codec import CODES, json_text
from milepost.ports.documents import BREAKER, HOLD, LIMIT, ROUTE, read_as

CONTROLS = "SELECT kind, name, value FROM document WHERE kind IN (?, ?, ?, ?)"
LEASES = (
    "SELECT i.key, coalesce(i.look_at, i.due_at) FROM json_each(:keys) AS wanted CROSS JOIN item i ON i.key = wanted.value"
    f" AND i.route = (SELECT id FROM route WHERE name = :route) WHERE i.status = {CODES[Status.PROCESSING]}"
)

log = logging.getLogger(__name__)


UNKNOWN_VERSION = -1
"""In place of the version of a route whose document is damaged: no process has it."""


class VersionNumber(Struct):
    """What is read here of a `RouteVersion`."""

    version: int


class Admission:
    """Pauses, limits, breakers and rates as one transaction sees and changes them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.versions: dict[str, int] = {}
        holds: set[str] = set()
        limits: dict[str, Limit] = {}
        self._breakers: dict[str, BreakerRecord] = {}
        for kind, name, value in connection.execute(CONTROLS, (HOLD, LIMIT, BREAKER, ROUTE)):
            try:
                if kind == LIMIT:
                    limits[name] = read_as(Limit, documents.decoded(kind, name, value))
                elif kind == BREAKER:
                    self._breakers[name] = read_as(
                        BreakerRecord, documents.decoded(kind, name, value)
                    )
                elif kind == ROUTE:
                    self.versions[name] = read_as(
                        VersionNumber, documents.decoded(kind, name, value)
                    ).version
                else:
                    holds.add(name)
            except LedgerDamaged:
                # What an operator limited stays closed, and a route of an unknown version stands
                # by; a breaker is only a hint.
                if kind == LIMIT:
                    holds.add(name)
                elif kind == ROUTE:
                    self.versions[name] = UNKNOWN_VERSION
        self.controls = Controls(holds, limits, self._breakers)

    def outdated(self, route: str, version: int) -> bool:
        return self.versions.get(route, version) != version

    def outdated_of(self, versions: Mapping[str, int]) -> set[str]:
        """The routes among these of which the ledger holds another version."""
        return {route for route, version in versions.items() if self.outdated(route, version)}

    # Rates ----------------------------------------------------------------------------------------
    def calls_left(
        self, route: str, stage: Stage, lane: str, now: int
    ) -> tuple[int | None, int | None]:
        """How many calls the rates allow now (None: any number), and when there will be one
        more."""
        calls: int | None = None
        at: int | None = None
        for name, rate in self.controls.rates(route, stage, lane):
            bucket = self._bucket(name, rate, now)
            left = calls_left(bucket)
            if calls is None or left < calls:
                calls, at = left, next_call_at(bucket, rate)
        return calls, None if at is None else max(at, now + 1)

    def charge(self, route: str, stage: Stage, lane: str, calls: int, now: int) -> None:
        """Spend so many calls of the lane's rate and of its stage's rate."""
        if calls > 0:
            for name, rate in self.controls.rates(route, stage, lane):
                self._write_bucket(name, spend(self._bucket(name, rate, now), rate, calls))

    def _bucket(self, name: str, rate: CallRate, now: int) -> TokenBucket:
        row = self._connection.execute(
            "SELECT tokens, at FROM rate WHERE scope = ?", (name,)
        ).fetchone()
        kept = None if row is None else TokenBucket(row[0], row[1])
        bucket = refill(kept, rate, now)
        if kept is not None and was_set_back(kept, now):
            self._write_bucket(name, bucket)
        return bucket

    def _write_bucket(self, name: str, bucket: TokenBucket) -> None:
        self._connection.execute(
            "INSERT INTO rate (scope, tokens, at) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tokens = excluded.tokens, at = excluded.at",
            (name, bucket.tokens, bucket.at),
        )

    # Breakers -------------------------------------------------------------------------------------
    def breaker_room(
        self, route: str, stage: Stage, lane: str, now: int
    ) -> tuple[int | None, int | None]:
        """How many items the lane's breaker lets through (None: any number), and when to ask again
        where it lets none through."""
        if not self._breakers:
            return None, None
        breaker, name = stage.breaker_of(lane), scope(route, stage.name, lane)
        record = self._breakers.get(name)
        if breaker is None or record is None:
            return None, None
        record = self._present_record(name, record, breaker, route, now)
        return room_for(record, breaker, now), ask_again_at(record, breaker, now)

    def _present_record(
        self, name: str, record: BreakerRecord, breaker: Breaker, route: str, now: int
    ) -> BreakerRecord:
        """The record by the present clock, with the present leases of probes that seem to have
        expired."""
        present = at_clock(record, breaker, now)
        expired = [probe.key for probe in present.probes if probe.until <= now]
        if expired:
            present = with_leases(
                present,
                dict(
                    self._connection.execute(
                        LEASES, {"route": route, "keys": json_text(expired)}
                    ).fetchall()
                ),
            )
        if present is not record:
            self._write(name, present)
        return present

    def probe_order(self, route: str, stage: Stage, lane: str, keys: Sequence[str]) -> list[str]:
        """These items in the order in which the lane's breaker lets them through as probes."""
        return probe_order(self._breakers.get(scope(route, stage.name, lane)), stage, keys)

    def note_probes(
        self, route: str, stage: Stage, lane: str, keys: Sequence[str], now: int, until: int
    ) -> None:
        """Note that these items were claimed while the lane's breaker is half-open: they are its
        probes."""
        breaker, name = stage.breaker_of(lane), scope(route, stage.name, lane)
        record = self._breakers.get(name)
        if breaker is not None and record is not None and not record.closed:
            self._write(name, with_probes(record, breaker, keys, now, until))

    def update_breakers(self, changes: Sequence[Change]) -> None:
        """Update the lanes' breakers for changes written in this transaction; without a recent
        failure this writes nothing."""
        breakers = self._breakers
        for change in changes:
            if change.breaker is None and not breakers:
                continue
            before = change.before
            name = scope(before.route, before.stage, before.lane)
            record = breakers.get(name)
            after = breaker_after(record, change)
            if after is not record:
                self._write(name, after)

    def _write(self, name: str, record: BreakerRecord | None) -> None:
        changed = transition(name, self._breakers.get(name), record)
        if changed is not None:
            log.warning("%s", changed)
        if record is None:
            del self._breakers[name]
        else:
            self._breakers[name] = record
        documents.write(self._connection, BREAKER, name, record, None)
