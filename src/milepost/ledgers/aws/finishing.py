"""The end of a row: once everybody has been told its last line it leaves the index, and its table when its time has come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from milepost.core.status import FAILED, Status
from milepost.ledgers.aws.client import ConditionFailed
from milepost.ledgers.aws.keys import Layout
from milepost.ledgers.aws.names import SHARDS, due_shard, iso
from milepost.ledgers.aws.reading import readable
from milepost.ledgers.aws.store import SEALED_FOR_MS, Store
from milepost.ledgers.aws.writing import Update

FAILED_SHARD, ENDED_SHARD = "failed", "ended"


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


def sweep(store: Store, route: str, told_up_to: int, now: int, limit: int = 1000) -> int:
    """Finish the rows that had to wait for somebody to be told."""
    layout = store.layout(route)
    if layout is None:
        return 0
    waiting: list[Ended] = []
    for shard in range(SHARDS):
        for key in store.due(layout, f"{ENDED_SHARD}#{shard}", now, limit - len(waiting)):
            image = store.images(route, [key]).get(key)
            if image is not None and "place" in image:
                row = readable(store, layout, image)
                if row is not None and row.terminal and int(image["place"]["N"]) <= told_up_to:
                    waiting.append(Ended(route, row.key, row.version, int(image["place"]["N"]), row.status, row.entered_at))
    return finish(store, waiting, told_up_to, now)


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
