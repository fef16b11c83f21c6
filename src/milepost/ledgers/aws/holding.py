"""Paused lanes: their rows stand apart in the index, so that nobody goes through them again and again; resuming offers them."""

from __future__ import annotations

import logging

from milepost.core.due import offered, resent
from milepost.core.errors import ActRefused
from milepost.core.item import Row
from milepost.core.route import Stage
from milepost.core.status import Status
from milepost.ledgers.aws.applying import apply
from milepost.ledgers.aws.client import ConditionFailed
from milepost.ledgers.aws.keys import Layout
from milepost.ledgers.aws.names import SHARDS, due_shard
from milepost.ledgers.aws.reading import readable
from milepost.ledgers.aws.store import Store
from milepost.ledgers.aws.writing import Update
from milepost.ports.documents import is_held, scope

HOLDING = "holding"
"""Lanes that have, or had, rows standing apart."""
PACE = 1000

log = logging.getLogger(__name__)


def hold(store: Store, layout: Layout, row: Row) -> None:
    """Put a row apart until its lane is resumed."""
    record_hold(store, row)
    update = Update(layout, row.key)
    update.set("dueShard", {"S": partition(row)})
    update.equal("version", {"N": str(row.version)})
    update.equal("lease", None)
    _write(store, update)


def record_hold(store: Store, row: Row) -> bool:
    """Put it on record that there may be rows apart in this one's lane, or nobody would look there; False: it was."""
    name = scope(row.route, row.stage, row.lane)
    if store.control.get(HOLDING, name) is not None:
        return False
    return store.control.write(HOLDING, name, {"route": row.route, "stage": row.stage, "lane": row.lane}, 0)


def resume(store: Store, now: int, most: int = PACE) -> int:
    """Offer what stands apart in lanes that are open again, at most so many at a time. How many were offered."""
    holds, found = store.holds(now), 0
    for name, document in store.control.read(HOLDING).items():
        route, stage_name, lane = (str(document.value[field]) for field in ("route", "stage", "lane"))
        plan, layout = store.plans.get(route), store.layout(route)
        stage = None if plan is None else plan.by_name.get(stage_name)
        if layout is None or stage is None or is_held(holds, route, stage_name, lane):
            continue
        left = False
        for shard in range(SHARDS):
            keys = store.due(layout, f"held#{stage_name}#{lane}#{shard}", 2**62, most - found)
            left = left or bool(keys)
            for image in store.images(route, keys).values():
                row = readable(store, layout, image)
                if row is None:
                    continue
                try:
                    _offer(store, layout, row, stage, now)
                except ActRefused as refused:
                    log.error("it stays apart in a lane that is open again: %s", refused)
                    continue
                found += 1
        if not left:
            store.control.write(HOLDING, name, None, document.version)
    return found


def _offer(store: Store, layout: Layout, row: Row, stage: Stage, now: int) -> None:
    """Back to where what is due is looked for; called at once if its time has come."""
    ready = row.status in (Status.PENDING, Status.QUEUED) or (row.look_at or now) <= now
    if row.stage == stage.name and not row.terminal and ready and not row.later_than(now):
        change = resent(row, stage, now, by="resender") if stage.external else offered(row, stage, now)
        apply(store, [change], now)
        return
    update = Update(layout, row.key)
    update.set("dueShard", {"S": due_shard(row.stage, row.key)})
    update.equal("version", {"N": str(row.version)})
    update.equal("dueShard", {"S": partition(row)})
    _write(store, update)


def partition(row: Row) -> str:
    """Where in the index a row stands apart."""
    return held_at(row.stage, row.lane, row.key)


def held_at(stage: str, lane: str, key: str) -> str:
    return f"held#{stage}#{lane}#{due_shard('', key).removeprefix('#')}"


def _write(store: Store, update: Update) -> None:
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return  # somebody has changed it; then it is where it belongs
