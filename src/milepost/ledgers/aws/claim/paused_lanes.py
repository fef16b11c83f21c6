"""Held rows: rows of paused lanes and of lanes with an open breaker have their own index partition until `resume` offers them again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from milepost.core.admission.breakers import PROBE_CANDIDATES, probe_order, room_for
from milepost.core.admission.controls import is_held, scope
from milepost.core.due import offered, resent
from milepost.core.item import Row
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.ledgers.aws.apply import apply
from milepost.ledgers.aws.breakers import record_of
from milepost.ledgers.aws.names import SHARDS, due_shard
from milepost.ledgers.aws.refused_rows import readable
from milepost.ledgers.aws.requests.client import RowRefused
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.keys import Layout, due_query
from milepost.ports.documents import Document
from milepost.ports.items import Refused

HOLDING = "holding"
"""Kind of control documents: lanes that have, or had, held rows."""
PACE = 1000
"""Maximum rows that are offered in one run, over all lanes."""
EMPTY_MS = 600_000
"""A lane must be empty for this long before its record is removed: the index may show a row late."""

log = logging.getLogger(__name__)


def hold(store: AwsStore, layout: Layout, row: Row) -> None:
    """Move a row to the partition of held rows until its lane is resumed."""
    record_hold(store, row)
    update = Update(layout, row.key)
    update.set("dueShard", {"S": partition(row)})
    update.equal("version", {"N": str(row.version)})
    update.equal("lease", None)
    _write(store, update)


def record_hold(store: AwsStore, row: Row) -> bool:
    """Record that this row's lane may have held rows, so that `resume` checks it; False: it was recorded. A record that was marked as
    empty is written again, so that it is not removed because of the earlier check."""
    name = scope(row.route, row.stage, row.lane)
    lane = {"route": row.route, "stage": row.stage, "lane": row.lane}
    while True:
        held = store.control.get(HOLDING, name)
        if held is not None and "emptyAt" not in held.value:
            return False
        if store.control.write(HOLDING, name, lane, 0 if held is None else held.version):
            return True


class _Lane(Struct):
    """A lane that is open again, with its record and the keys of its held rows, read on demand."""

    name: str
    record: Document
    layout: Layout
    stage: Stage
    keys: Iterator[str]
    most: int | None = None
    """Number of rows that its breaker lets through; None: any number."""
    seen: int = 0
    ended: bool = False


def resume(store: AwsStore, now: int, most: int = PACE) -> int:
    """Offer the held rows of lanes that are open again, at most so many at a time, shared among the lanes. Returns the number of offered
    rows. A lane's record is removed only when the whole lane was found empty twice, `EMPTY_MS` apart."""
    lanes, done = _open_lanes(store, now), 0
    while lanes and done < most:
        share = max(1, (most - done) // len(lanes))
        for lane in lanes:
            done += _resume_some(store, lane, now, min(share, most - done, most if lane.most is None else lane.most))
            if lane.most is not None:
                lane.ended = True
            elif lane.ended:
                _note_emptiness(store, lane, now)
        lanes = [lane for lane in lanes if not lane.ended]
    return done


def _open_lanes(store: AwsStore, now: int) -> list[_Lane]:
    holds, lanes = store.holds(now), []
    for name, record in store.control.read(HOLDING).items():
        route, stage_name, lane = (str(record.value[field]) for field in ("route", "stage", "lane"))
        layout, stage = store.layout(route), store.stage(route, stage_name)
        if layout is None or stage is None or is_held(holds, route, stage_name, lane):
            continue
        breaker, opened = stage.breaker_of(lane), record_of(store, route, stage, lane, now)
        room = None if breaker is None else room_for(opened, breaker, now)
        keys = _held_keys(store, layout, stage_name, lane)
        if room is not None and stage.party is not None:
            keys = iter(probe_order(opened, stage, list(islice(keys, PROBE_CANDIDATES if room else 0))))
        if room != 0:
            lanes.append(_Lane(name, record, layout, stage, keys, room))
    return lanes


def _held_keys(store: AwsStore, layout: Layout, stage: str, lane: str) -> Iterator[str]:
    for shard in range(SHARDS):
        found = store.requests.query(layout.table, **due_query(f"held#{stage}#{lane}#{shard}"), Limit=100)
        yield from (layout.key_of(image) for image in found)


def _resume_some(store: AwsStore, lane: _Lane, now: int, share: int) -> int:
    """Offer rows of one lane, until so many have been offered or the lane is empty."""
    done = 0
    while done < share:
        keys = list(islice(lane.keys, min(100, share - done)))
        lane.seen += len(keys)
        if not keys:
            lane.ended = True
            break
        for image in store.images(lane.layout.route, keys).values():
            row = readable(store, lane.layout, image)
            if row is None or image.get("dueShard") != {"S": partition(row)}:
                continue  # the index still shows the old place
            refused = _offer(store, lane.layout, row, lane.stage, now)
            if refused is not None:
                log.error("%s/%s stays held although its lane is open again: %s", row.route, row.key, refused.reason)
                continue
            done += 1
    return done


def _note_emptiness(store: AwsStore, lane: _Lane, now: int) -> None:
    """Remove the record of a lane that was also empty some time ago; otherwise note whether it is empty now."""
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
    store.control.write(HOLDING, lane.name, value if empty_at is None else {**value, "emptyAt": empty_at}, lane.record.version)


def _offer(store: AwsStore, layout: Layout, row: Row, stage: Stage, now: int) -> Refused | None:
    """Move the row back to the index of due rows, and send a message at once if it is due."""
    ready = row.status in (Status.PENDING, Status.QUEUED) or (row.look_at or now) <= now
    if row.stage == stage.name and not row.terminal and ready and not row.later_than(now):
        change = resent(row, stage, now, by="resender") if stage.external else offered(row, stage, now)
        answer = apply(store, [change], now)[0]
        return answer if isinstance(answer, Refused) else None
    update = Update(layout, row.key)
    update.set("dueShard", {"S": due_shard(row.stage, row.key)})
    update.equal("version", {"N": str(row.version)})
    update.equal("dueShard", {"S": partition(row)})
    _write(store, update)
    return None


def partition(row: Row) -> str:
    """The index partition of a held row."""
    return held_partition(row.stage, row.lane, row.key)


def held_partition(stage: str, lane: str, key: str) -> str:
    return f"held#{stage}#{lane}#{due_shard('', key).removeprefix('#')}"


def _write(store: AwsStore, update: Update) -> None:
    try:
        update.written(store.requests)  # False: the row has changed meanwhile, and is already in the right place
    except RowRefused as refused:
        log.error("a row cannot be moved to or from the partition of held rows: %s", refused)
