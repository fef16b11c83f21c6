"""The end of a row: once everybody has been told its last line it leaves the index, and its table when its time has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from milepost.core.status import FAILED, Status
from milepost.ledgers.aws.client import ConditionFailed
from milepost.ledgers.aws.keys import Image, Layout
from milepost.ledgers.aws.names import SHARDS, due_shard, iso
from milepost.ledgers.aws.reading import readable
from milepost.ledgers.aws.store import SEALED_FOR_MS, Store
from milepost.ledgers.aws.writing import Update

FAILED_SHARD, ENDED_SHARD = "failed", "ended"
PORTION = 100
"""How many rows are read, and finished, before the time is looked at again."""


class Ended(Struct, frozen=True):
    """A row that has ended, sealed, all of whose lines are in the journal; `place` is that of its last line."""

    route: str
    key: str
    version: int
    place: int
    status: Status
    at: int


def finish(store: Store, ended: Sequence[Ended], told_up_to: int, now: int) -> int:
    """Mark rows whose last line everybody has been told. The others are put where `sweep` finds them. How many are done."""

    def one(end: Ended) -> bool:
        layout = store.layout(end.route)
        if layout is None:
            return False
        told = end.place <= told_up_to
        update = _told(store, layout, end, now) if told else _untold(layout, end, now)
        try:
            store.requests.call("dynamodb", "update_item", **update.params())
        except ConditionFailed:
            return False  # somebody has sent it on its way again
        return told

    return sum(store.requests.each([partial(one, end) for end in ended]))


def sweep(store: Store, route: str, told_up_to: int, now: int, limit: int = 1000, in_time: Callable[[], bool] = lambda: True) -> int:
    """Finish the rows that had to wait for subscribers to be told, shard by shard while there is time. How many were finished."""
    layout = store.layout(route)
    if layout is None:
        return 0
    done = seen = 0
    for shard in range(SHARDS):
        if seen >= limit or not in_time():
            break
        keys = store.due(layout, f"{ENDED_SHARD}#{shard}", now, limit - seen)
        seen += len(keys)
        for start in range(0, len(keys), PORTION):
            if not in_time():
                break
            images = store.images(route, keys[start : start + PORTION])
            ready = [end for image in images.values() if (end := _ready(store, layout, image, told_up_to)) is not None]
            done += finish(store, ready, told_up_to, now)
    return done


def _ready(store: Store, layout: Layout, image: Image, told_up_to: int) -> Ended | None:
    """The row's end, where all of its lines have been told by now."""
    place = int(image["place"]["N"]) if "place" in image else None
    row = None if place is None or place > told_up_to else readable(store, layout, image)
    if row is None or place is None or not row.terminal:
        return None
    return Ended(layout.route, row.key, row.version, place, row.status, row.entered_at)


def _told(store: Store, layout: Layout, end: Ended, now: int) -> Update:
    update = _update(layout, end)
    update.set("copied", {"N": str(end.version)})
    for name in ("trail", "place"):
        update.remove(name)
    if end.status in FAILED:
        update.set("dueShard", {"S": due_shard(FAILED_SHARD, end.key)})
        update.set("dueAt", {"S": iso(end.at)})
    else:
        for name in ("dueShard", "dueAt"):
            update.remove(name)
    plan = store.plans.get(end.route)
    if plan is not None and plan.route.keep_ms is not None:
        update.set("ttl", {"N": str(-(-max(end.at + plan.route.keep_ms, now + SEALED_FOR_MS) // 1000))})
    return update


def _untold(layout: Layout, end: Ended, now: int) -> Update:
    update = _update(layout, end)
    update.set("dueShard", {"S": due_shard(ENDED_SHARD, end.key)})
    update.set("dueAt", {"S": iso(now)})
    update.set("place", {"N": str(end.place)})
    return update


def _update(layout: Layout, end: Ended) -> Update:
    update = Update(layout, end.key)
    update.equal("version", {"N": str(end.version)})
    update.equal("status", {"S": end.status.value})
    return update
