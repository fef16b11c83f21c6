"""Held rows: rows of paused lanes and of lanes with an open breaker have their own index partition
until `HeldLanes` offers them again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

from msgspec import Struct

from milepost.core.admission.breakers import PROBE_CANDIDATES, probe_order, room_for
from milepost.core.admission.controls import Controls, scope
from milepost.core.admission.rates import CallRate
from milepost.core.due import offered, resent
from milepost.core.item import Row
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.ports.documents import Document, sort_out, update
from milepost.ports.items import Refused
from milepost.ports.runner import Clock
from milepost_aws.ledger.apply import apply
from milepost_aws.ledger.breakers import record_of
from milepost_aws.ledger.names import SHARDS, due_shard
from milepost_aws.ledger.refused_rows import readable
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.documents import HOLDING
from milepost_aws.ledger.tables.keys import Layout, due_query

PORTION = 100
"""Rows of one lane that are offered together."""
RATED_MS = 60_000
"""Lanes with a rate are offered what the rate allows in this time, and again when it is over: their
other rows would only be put off."""
EMPTY_MS = 600_000
"""A lane must be empty for this long before its record is removed: the index may show a row
late."""

log = logging.getLogger(__name__)


def hold(store: AwsStore, layout: Layout, row: Row, now: int) -> None:
    """Move a row to the partition of held rows until its lane is resumed."""
    record_hold(store, row, now)
    update = Update(layout, row.key)
    update.set("dueShard", {"S": partition(row)})
    update.equal("version", {"N": str(row.version)})
    update.equal("lease", None)
    _write(store, update)


def record_hold(store: AwsStore, row: Row, now: int) -> bool:
    """Record that this row's lane may have held rows, so that `HeldLanes` checks it; False: it was
    recorded. A record that was marked as empty is written again, so that it is not removed because
    of the earlier check."""
    name = scope(row.route, row.stage, row.lane)
    lane = {"route": row.route, "stage": row.stage, "lane": row.lane, "since": now}

    def recorded(present: dict[str, Any] | None) -> dict[str, Any]:
        return lane if present is None or "emptyAt" in present else present

    return update(store.control, HOLDING, name, dict[str, Any], recorded, damaged=None).written


class HoldingRecord(Struct, frozen=True, rename="camel"):
    """The record of a lane with held rows."""

    route: str
    stage: str
    lane: str
    since: int | None = None
    empty_at: int | None = None


class _Lane(Struct):
    """A lane that is open again, with its record and the keys of its held rows, read on demand."""

    name: str
    record: Document
    layout: Layout
    stage: Stage
    keys: Iterator[str]
    probes: int | None = None
    """Number of rows that its breaker lets through; None: any number."""
    rated: list[_Allowance] = []
    """What the rates of the lane and of its stage still allow."""
    seen: int = 0
    empty: bool = False

    @property
    def room(self) -> int:
        """Number of rows that may still be offered; at most a portion."""
        most = [
            PORTION,
            *(allowance.left for allowance in self.rated),
            *([] if self.probes is None else [self.probes]),
        ]
        return min(most)

    def take(self, n: int) -> None:
        """Count offered rows."""
        for allowance in self.rated:
            allowance.left -= n
        if self.probes is not None:
            self.probes -= n


class _Allowance(Struct):
    """Number of rows that a rate still allows until a time."""

    left: int
    until: int


class HeldLanes:
    """The lanes with held rows, as one process sees them."""

    def __init__(self, store: AwsStore) -> None:
        self._store = store
        self._closed: set[str] = set()
        """Lanes that were not open at the last look."""
        self._allowances: dict[str, _Allowance] = {}
        """By scope of a rate."""
        self._last = ""
        """The lane that was served last."""

    def reopened(self, now: int) -> bool:
        """Whether a lane that was not open at the last look is open now."""
        closed = self._closed
        lanes = self._open_lanes(now)
        return any(lane.name in closed for lane in lanes)

    def oldest(self, now: int) -> int:
        """Milliseconds since the first row was held, of the lane whose rows have waited longest; 0:
        no rows are held."""
        records, _ = sort_out(self._store.read(HOLDING), HOLDING, HoldingRecord)
        return max(
            (
                now - record.since
                for record, _ in records.values()
                if record.since is not None and record.empty_at is None
            ),
            default=0,
        )

    def resume(self, clock: Clock, in_time: Callable[[], bool] = lambda: True) -> Resumed:
        """Offer the held rows of all lanes that are open again, a portion of each lane in turn,
        while there is time. A lane with a rate gets what the rate allows in a minute; one whose
        breaker is half-open, its probes. A lane's record is removed only when the whole lane was
        found empty twice, `EMPTY_MS` apart."""
        done = 0
        lanes = self._open_lanes(clock.now())
        # A run that ended early is continued with the lanes that it did not reach.
        lanes.sort(key=lambda lane: (lane.name <= self._last, lane.name))
        while lanes:
            for lane in lanes:
                if not in_time():
                    return Resumed(done, ended=False)
                self._last = lane.name
                offered = _resume_some(self._store, lane, clock.now())
                done += offered
                if lane.empty:
                    _note_emptiness(self._store, lane, clock.now())
            lanes = [lane for lane in lanes if not lane.empty and lane.room > 0]
        return Resumed(done)

    def _open_lanes(self, now: int) -> list[_Lane]:
        store, lanes = self._store, []
        controls = Controls(store.holds(now), store.limits(now), {})
        self._closed = set()
        documents = store.read(HOLDING)
        _, damaged = sort_out(documents, HOLDING, HoldingRecord)
        for name, record in documents.items():
            if name in damaged:
                continue  # doctor names it; the daily repair records the lanes of held rows anew
            route, stage_name, lane = (
                str(record.value[field]) for field in ("route", "stage", "lane")
            )
            layout, stage = store.layout(route), store.stage(route, stage_name)
            if layout is None or stage is None:
                continue
            breaker, opened = stage.breaker_of(lane), record_of(store, route, stage, lane, now)
            probes = None if breaker is None else room_for(opened, breaker, now)
            if probes == 0 or controls.held(route, stage_name, lane):
                self._closed.add(name)
                continue
            keys = _held_keys(store, layout, stage_name, lane)
            if probes is not None and stage.party is not None:
                keys = iter(probe_order(opened, stage, list(islice(keys, PROBE_CANDIDATES))))
            rated = [
                self._allowance(of, rate, stage.batch, now)
                for of, rate in controls.rates(route, stage, lane)
            ]
            lanes.append(_Lane(name, record, layout, stage, keys, probes, rated))
        return [lane for lane in lanes if lane.room > 0]

    def _allowance(self, of: str, rate: CallRate, batch: int, now: int) -> _Allowance:
        known = self._allowances.get(of)
        if known is None or not now < known.until <= now + RATED_MS:
            known = _Allowance(ceil(rate.per_second * batch * RATED_MS / 1000), now + RATED_MS)
            self._allowances[of] = known
        return known


class Resumed(Struct, frozen=True):
    """The number of rows that were offered; `ended` is false if open lanes have more and the time
    was over."""

    rows: int
    ended: bool = True


def _held_keys(store: AwsStore, layout: Layout, stage: str, lane: str) -> Iterator[str]:
    for shard in range(SHARDS):
        found = store.requests.query(
            layout.table, **due_query(f"held#{stage}#{lane}#{shard}"), Limit=100
        )
        yield from (layout.key_of(image) for image in found)


def _resume_some(store: AwsStore, lane: _Lane, now: int) -> int:
    """Offer a portion of the rows of one lane; returns their number."""
    wanted = lane.room
    keys = list(islice(lane.keys, wanted))
    lane.seen += len(keys)
    lane.empty = len(keys) < wanted
    rows = []
    for image in store.images(lane.layout.route, keys).values():
        row = readable(store, lane.layout, image)
        # Otherwise the index still shows the old place.
        if row is not None and image.get("dueShard") == {"S": partition(row)}:
            rows.append(row)
    lane.take(len(rows))
    return _offer(store, lane, rows, now)


def _note_emptiness(store: AwsStore, lane: _Lane, now: int) -> None:
    """Remove the record of a lane that was also empty some time ago; otherwise note whether it is
    empty now."""
    since = lane.record.value.get("emptyAt")
    if lane.seen:
        if since is not None:
            _write_record(store, lane, None)
    elif since is None or since > now:
        _write_record(store, lane, now)
    elif now - since >= EMPTY_MS:
        store.control.write(HOLDING, lane.name, None, lane.record.version)


def _write_record(store: AwsStore, lane: _Lane, empty_at: int | None) -> None:
    value = {name: field for name, field in lane.record.value.items() if name != "emptyAt"}
    store.control.write(
        HOLDING,
        lane.name,
        value if empty_at is None else {**value, "emptyAt": empty_at},
        lane.record.version,
    )


def _offer(store: AwsStore, lane: _Lane, rows: Sequence[Row], now: int) -> int:
    """Move the rows back to the index of due rows, and send messages at once for those that are
    due; returns how many are no longer held."""
    due = [row for row in rows if _is_ready(row, lane.stage, now)]
    changes = [
        resent(row, lane.stage, now, by="resender")
        if lane.stage.external
        else offered(row, lane.stage, now)
        for row in due
    ]
    refused = [answer for answer in apply(store, changes, now) if isinstance(answer, Refused)]
    for answer in refused:
        log.error(
            "%s/%s stays held although its lane is open again: %s",
            lane.layout.route,
            answer.key,
            answer.reason,
        )
    later = [row for row in rows if not _is_ready(row, lane.stage, now)]
    store.requests.each([partial(_move_back, store, lane.layout, row) for row in later])
    return len(rows) - len(refused)


def _is_ready(row: Row, stage: Stage, now: int) -> bool:
    ready = row.status in (Status.PENDING, Status.QUEUED) or (row.look_at or now) <= now
    return row.stage == stage.name and not row.terminal and ready and not row.later_than(now)


def _move_back(store: AwsStore, layout: Layout, row: Row) -> None:
    update = Update(layout, row.key)
    update.set("dueShard", {"S": due_shard(row.stage, row.key)})
    update.equal("version", {"N": str(row.version)})
    update.equal("dueShard", {"S": partition(row)})
    _write(store, update)


def partition(row: Row) -> str:
    """The index partition of a held row."""
    return held_partition(row.stage, row.lane, row.key)


def held_partition(stage: str, lane: str, key: str) -> str:
    return f"held#{stage}#{lane}#{due_shard('', key).removeprefix('#')}"


def _write(store: AwsStore, update: Update) -> None:
    try:
        update.written(
            store.requests
        )  # False: the row has changed meanwhile, and is already in the right place
    except RowRefused as refused:
        log.error("a row cannot be moved to or from the partition of held rows: %s", refused)
