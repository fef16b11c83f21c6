"""End of a row: sets its time to live once its lines are in the journal and its seal is written."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from milepost.core.item import Row
from milepost.core.status import FAILED
from milepost.ledgers.aws.names import FAILED_SHARD, due_shard, iso
from milepost.ledgers.aws.requests.client import RowRefused
from milepost.ledgers.aws.store import SEALED_FOR_MS, AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update

log = logging.getLogger(__name__)


def finish(store: AwsStore, ended: Sequence[Row], now: int) -> int:
    """Mark ended rows as finished and return how many were. They are sealed, and all their lines are in the journal. Events are delivered
    from the journal, so no event waits for the row (decision 20)."""
    return sum(store.requests.each([partial(_finish, store, end, now) for end in ended]))


def _finish(store: AwsStore, end: Row, now: int) -> bool:
    layout = store.layout(end.route)
    if layout is None:
        return False
    update = Update(layout, end.key)
    update.equal("version", {"N": str(end.version)})
    update.equal("status", {"S": end.status.value})
    update.set("copied", {"N": str(end.version)})
    update.remove("trail")
    if end.status in FAILED:
        update.set("dueShard", {"S": due_shard(FAILED_SHARD, end.key)})
        update.set("dueAt", {"S": iso(end.entered_at)})
    else:
        for name in ("dueShard", "dueAt"):
            update.remove(name)
    plan = store.plans.get(end.route)
    if plan is not None and plan.route.keep_ms is not None:
        update.set("ttl", {"N": str(-(-max(end.entered_at + plan.route.keep_ms, now + SEALED_FOR_MS) // 1000))})
    try:
        return update.written(store.requests)  # False: an operator has started it again
    except RowRefused as refused:
        # Its index entry stays; the repair scan puts it into quarantine.
        log.error("cannot mark %s/%s as finished: %s", end.route, end.key, refused)
        return False
