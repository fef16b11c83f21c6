"""Upkeep of the AWS ledger: its background services (stream reader, sweeper), and rare operations,
some of which read whole tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Controls, scope
from milepost.core.errors import LedgerBusy, LedgerError, LedgerMissing, RouteChanged
from milepost.core.item import Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.clock import check
from milepost.ports.documents import BREAKER, HOLD, LIMIT, DamagedValue, sort_out
from milepost.ports.items import KnownKey
from milepost.ports.runner import Clock
from milepost.ports.service import Service
from milepost_aws.ledger.claim.paused_lanes import HeldLanes, held_partition
from milepost_aws.ledger.names import (
    MARKED_SHARD,
    QUEUED_SHARD,
    SHARDS,
    ResourceNames,
    due_shard,
    iso,
)
from milepost_aws.ledger.refused_rows import readable
from milepost_aws.ledger.relay import StreamRelay
from milepost_aws.ledger.repair.repair import Repair
from milepost_aws.ledger.requests.client import Requests, expressions
from milepost_aws.ledger.retention import finish
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import HandledBatch, Stream, StreamRecord
from milepost_aws.ledger.tables.conditional_write import Update, place_of
from milepost_aws.ledger.tables.documents import HOLDING
from milepost_aws.ledger.tables.journal import item_name
from milepost_aws.ledger.tables.keys import Image, Layout, due_query
from milepost_aws.ledger.tables.seals import seal_of

POLL_S, STAND_BY_S = 0.2, 5.0
SWEEP_S, LOOK_S, TURN_S = 60.0, 2.0, 5.0
"""How often held rows are offered, and how often it is checked whether a lane is open again; how
long one turn offers rows."""
SETTLED_MS = 600_000
"""Minimum uptime before a process starts the daily repair, so that short commands never do."""
SAMPLE = 100
WAITING = (f"{QUEUED_SHARD}#", f"{MARKED_SHARD}#")

log = logging.getLogger(__name__)


class StreamReader(Service):
    """Reads the streams of all routes and carries out the consequences."""

    name = "stream"
    follows_others = True

    def __init__(
        self,
        store: AwsStore,
        plans: Mapping[str, Plan],
        clock: Clock,
        jitter: Callable[[], float],
        holder: str,
    ) -> None:
        self._store, self._clock = store, clock
        self._relay = StreamRelay(store, plans, jitter)
        self.streams = {
            route: Stream(store.requests, store.control, route, store.names.rows(route), holder)
            for route in plans
        }
        self._ended: list[Row] = []
        """Ended rows that are not finished yet, because AWS had a problem."""
        self._quiet_turns = 0

    def turn(self) -> float:
        done, troubles = 0, list[str]()
        for stream in self.streams.values():
            try:
                done += stream.poll(self._handle, self._clock)
            except (LedgerBusy, LedgerMissing, RouteChanged) as error:
                # The records stay in that stream; the streams of the other routes are still read.
                troubles.append(f"it cannot read the stream of {stream.route}: {error}")
                if not self.stands_still:
                    # Logged once.
                    log.warning(
                        "the relay waits before it reads the stream of %s again: %s",
                        stream.route,
                        error,
                    )
        self.stands_still = "; ".join(troubles)
        self._finish()
        self._quiet_turns = 0 if done or troubles else self._quiet_turns + 1
        return 0.0 if done else STAND_BY_S if troubles else POLL_S

    @property
    def quiet(self) -> bool:
        """True after several turns without records, if no row waits to be finished and no dead
        reader has left a shard unread."""
        return (
            self._quiet_turns > 2
            and not self._ended
            and not any(stream.shards.maybe_unread for stream in self.streams.values())
        )

    def stop(self) -> None:
        """Release the shards to other readers."""
        now = self._clock.now()
        finish(self._store, self._ended, now)
        for stream in self.streams.values():
            stream.shards.leave(now)

    def _handle(self, records: list[StreamRecord]) -> HandledBatch:
        batch = self._relay.carry_out(records, self._clock.now())
        self._ended += batch.ended
        # Before the shard's checkpoint, since no reader sees these records again; if this process
        # dies, the repair finds them.
        with suppress(LedgerError):
            self._finish()
        return HandledBatch(batch.changes, counted=partial(self._relay.remove_blobs, batch))

    def _finish(self) -> None:
        if not self._ended:
            return
        finish(self._store, self._ended, self._clock.now())
        self._ended = []


class Sweeper(Service):
    """Resumes paused lanes, and runs the repair once a day and after a gap in a stream."""

    name = "sweeper"

    def __init__(
        self, store: AwsStore, plans: Mapping[str, Plan], clock: Clock, jitter: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._lanes = HeldLanes(store)
        self._repairs = [Repair(store, plan, jitter) for plan in plans.values()]
        self._sweep_at = self._repair_at = 0
        self._started_at = clock.now()

    def turn(self) -> float:
        self.stands_still = check(self._clock).stops_work
        if self.stands_still:
            return STAND_BY_S
        now = self._clock.now()
        try:
            if _is_over(self._sweep_at, now) or self._lanes.reopened(now):
                ends = now + TURN_S * 1000
                resumed = self._lanes.resume(self._clock, lambda: now <= self._clock.now() < ends)
                self._sweep_at = self._clock.now() + (round(SWEEP_S * 1000) if resumed.ended else 0)
            if _is_over(self._repair_at, self._clock.now()):
                self._repair_at = self._repair()
        except (LedgerBusy, RouteChanged) as error:
            self.stands_still = str(error)
            return STAND_BY_S  # the work is still there at the next turn
        next_at = min(self._sweep_at, self._repair_at)
        return min(LOOK_S, max(0.0, (next_at - self._clock.now()) / 1000))

    def _repair(self) -> int:
        """Run one page of each repair that is due; returns when to call again."""
        next_at = self._clock.now() + round(SWEEP_S * 1000)
        for repair in self._repairs:
            now = self._clock.now()
            settled = now - self._started_at >= SETTLED_MS
            if (settled and repair.due(now)) or repair.urgent():
                progress = repair.step(self._clock)
                if not progress.done and progress.next_at is not None:
                    next_at = min(next_at, progress.next_at)
        return next_at


def _is_over(at: int, now: int) -> bool:
    """Whether a time has come. A time further ahead than it was set is from a clock that was since
    set back."""
    return not now < at <= now + SWEEP_S * 1000


def next_due(store: AwsStore, plans: Iterable[Plan]) -> int | None:
    """Read both ends of each partition: an offered item is ready now, though it is due for a resend
    only much later."""
    holds = set(store.read(HOLD))
    sound, _ = sort_out(store.read(BREAKER), BREAKER, BreakerRecord)
    breakers = {name: record for name, (record, _) in sound.items()}
    controls = Controls(holds, {}, breakers)
    times: list[int] = []
    for plan in plans:
        layout = store.load_route(plan)
        for stage in plan.stages:
            if not stage.ours or plan.name in holds or scope(plan.name, stage.name) in holds:
                continue
            for place in [
                f"{kind}{stage.name}#{shard}" for kind in ("", *WAITING) for shard in range(SHARDS)
            ]:
                for image in store.images(plan.name, _both_ends(store, layout, place)).values():
                    row = readable(store, layout, image)
                    if (
                        row is None
                        or row.terminal
                        or row.stage != stage.name
                        or controls.held(row.route, row.stage, row.lane)
                    ):
                        continue
                    ready = row.status in (Status.PENDING, Status.QUEUED) and row.not_before is None
                    due = row.entered_at if ready else row.due_at or row.updated_at
                    times.append(max(due, controls.opens_at(plan.name, stage, row.lane)))
    return min(times, default=None)


def _both_ends(store: AwsStore, layout: Layout, shard: str) -> set[str]:
    """Keys of the first and last items of a partition; one query finds all of a small partition."""
    keys: set[str] = set()
    for forward in (True, False):
        try:
            page = store.requests.call(
                "dynamodb",
                "query",
                TableName=layout.table,
                **due_query(shard),
                ScanIndexForward=forward,
                Limit=SAMPLE,
            )
        except LedgerMissing:
            break
        keys.update(layout.key_of(image) for image in page["Items"])
        if "LastEvaluatedKey" not in page:
            break
    return keys


def reclaim(store: AwsStore, holders: Sequence[str], now: int) -> int:
    """Make the items claimed by these holders due at once: the resender writes the losses."""
    found = 0
    for route in store.routes() if holders else []:
        layout = store.layout(route)
        if layout is None:
            continue
        for image in store.scan(layout.table):
            if image.get("holder", {}).get("S") not in holders or "lease" not in image:
                continue
            update = Update(layout, layout.key_of(image))
            update.set("dueAt", {"S": iso(now)})
            update.remove("lookAt")
            update.unchanged(image, "lease")
            found += update.written(store.requests)
    return found


def sealed(
    store: AwsStore, route: str, after: str | None, limit: int
) -> tuple[list[KnownKey], str | None]:
    """By a scan of all routes' seals; those whose row still exists are left out."""
    start = None if after is None else {"key": {"S": item_name(route, after)}}
    found: list[KnownKey] = []
    for image in store.requests.scan(store.names.seen, start, ConsistentRead=True):
        if image["route"]["S"] == route:
            found.append(seal_of(image, route))
            if len(found) == limit:
                break
    present = store.images(route, [seal.key for seal in found])
    return [seal for seal in found if seal.key not in present], found[-1].key if len(
        found
    ) == limit else None


def check_there(requests: Requests, prefix: str) -> None:
    """Raise LedgerMissing, with advice, if this ledger does not exist."""
    table = ResourceNames(prefix).control
    try:
        requests.call("dynamodb", "describe_table", TableName=table)
    except LedgerMissing:
        advice = (
            "on a stand-in 'milepost submit' and 'milepost up' make one"
            if requests.endpoint
            else "deploy its stack first (see infra/), and check region, prefix and account"
        )
        where = f"dynamodb://{requests.region}/{prefix}"
        raise LedgerMissing(
            f"there is no ledger at {where}: it has no table {table}; {advice}; --ledger names another"
        ) from None


def describe(store: AwsStore, url: str) -> dict[str, Any]:
    """Facts for `milepost doctor`; unreadable parts are listed as problems, not raised."""
    facts: dict[str, Any] = {"kind": "dynamodb", "url": url, "problems": []}
    try:
        routes = store.routes()
        facts["routes"] = routes
        facts["lines"] = store.journal.last_seq()
        visible, in_flight, _ = store.queues.depth(store.queues.quarantine())
        facts["set_aside"] = visible + in_flight
    except LedgerError as error:
        facts["problems"].append(str(error))
    return facts


# Rename of a stage --------------------------------------------------------------------------------
def rename_stage(store: AwsStore, route: str, old: str, new: str) -> None:
    """One conditional write for every row that names the stage, then seals, counters, pauses and
    limits."""
    layout = store.layout(route)
    if layout is None:
        return
    for image in list(store.requests.scan(layout.table, ConsistentRead=True)):
        # An unreadable row is left as it is; after it is corrected, renaming again includes it.
        while readable(store, layout, image) is not None and not _rename(
            store, layout, image, old, new
        ):
            image = store.images(route, [layout.key_of(image)]).get(layout.key_of(image), {})
    for seal in list(store.requests.scan(store.names.seen, ConsistentRead=True)):
        if seal["route"]["S"] == route and seal["queue"]["S"] == old:
            _rename_seal(store, seal, old, new)
    store.counters.rename(route, old, new)
    for kind in (HOLD, LIMIT, BREAKER):
        for name, document in store.control.read(kind, [route]).items():
            if isinstance(document.value, DamagedValue):
                continue  # doctor names it
            if (name + "/").startswith(f"{route}/{old}/"):
                store.control.write(
                    kind, f"{route}/{new}" + name.removeprefix(f"{route}/{old}"), document.value
                )
                store.control.write(kind, name, None)
    # After the pauses: a process that finds a row in the paused partition must find its lane paused
    # too.
    _rename_holding(store, route, old, new)


def _rename_seal(store: AwsStore, seal: Image, old: str, new: str) -> None:
    """Writes the stage only: the seal may have been rewritten since it was read."""
    stages = {"old": {"S": old}, "new": {"S": new}}
    rename = expressions(
        stages, UpdateExpression="SET #queue = :new", ConditionExpression="#queue = :old"
    )
    store.requests.write_if(
        "update_item", TableName=store.names.seen, Key={"key": seal["key"]}, **rename
    )


def _rename(store: AwsStore, layout: Layout, image: Image, old: str, new: str) -> bool:
    """Rename in one row; False: another process wrote the row in the meantime."""
    key = layout.key_of(image)
    renamed = dict(image)
    for prefix in (layout.prefix, "payload_"):
        if prefix + old in image:
            renamed[prefix + new] = renamed.pop(prefix + old)
    for name, value in renamed.items():
        # A payload that equals a result is stored as a reference to it.
        if name.startswith("payload_") and value == {"M": {"of": {"S": old}}}:
            renamed[name] = {"M": {"of": {"S": new}}}
    if old in image.get("through", {}).get("SS", ()):
        renamed["through"] = {
            "SS": sorted({new if stage == old else stage for stage in image["through"]["SS"]})
        }
    if "kept" in image:
        kept: dict[str, Any] = store.values.decode(image["kept"])
        if old in kept:
            kept = {new if stage == old else stage: outcome for stage, outcome in kept.items()}
            renamed["kept"] = store.values.encode(kept, place_of(layout.route, key))
    if image["queue"]["S"] == old:
        renamed["queue"] = {"S": new}
        if "dueShard" in image and image["dueShard"]["S"] in {
            due_shard(kind + old, key) for kind in ("", *WAITING)
        }:
            renamed["dueShard"] = {"S": due_shard(new, key)}
            if (
                image["status"]["S"] in (Status.PENDING.value, Status.QUEUED.value)
                and "notBefore" not in image
            ):
                # Its message went to the old stage's queue: the resender must send another.
                renamed["dueAt"] = image["enteredAt" if "enteredAt" in image else "lastUpdatedAt"]
                renamed.pop("lookAt", None)
        lane = image.get("lane", {}).get("S", "")
        if image.get("dueShard") == {"S": held_partition(old, lane, key)}:
            renamed["dueShard"] = {"S": held_partition(new, lane, key)}
    update = Update(layout, key)
    update.replace(image, renamed)
    if update.empty:
        return True
    update.unchanged(image, "version", "queue", "lease", "status")
    return update.written(store.requests)


def _rename_holding(store: AwsStore, route: str, old: str, new: str) -> None:
    """Record the paused partitions under the stage's new name, before the old record is removed."""
    for name, document in store.control.read(HOLDING, [route]).items():
        if (
            not isinstance(document.value, DamagedValue)
            and document.value["route"] == route
            and document.value["stage"] == old
        ):
            renamed = {**document.value, "stage": new}
            store.control.write(HOLDING, scope(route, new, renamed["lane"]), renamed)
            store.control.write(HOLDING, name, None)
