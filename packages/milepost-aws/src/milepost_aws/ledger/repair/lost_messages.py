"""Lost SQS messages: find the items whose message is gone, so that the resender sends another.

1. A message is lost when a queue is purged, or a message is moved, expires or is deleted by
   mistake. Its row stays QUEUED.
2. Each QUEUED row has an offer life (`StoreSettings.offer_life_ms`). When it is over, the row's
   index entry is due.
3. The resender (`engine.resend`) asks for lost messages. SQS cannot be asked for a single message,
   so `LostMessages` compares numbers: the messages in the stage's queue with its rows in the due
   index (`missing_messages`).
4. For as many rows as messages are missing, the resender applies a change that sends a new message
   (`apply`, `offers`). A backlog whose messages exist is not sent again.
5. A message that is not lost after all only comes twice: the claim of the second one fails its
   condition and deletes it.

A message that a worker received and did not settle is not lost: SQS delivers it again. A message
that was never sent, because its stream record was lost, is sent by the repair scan (`repair`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice

from msgspec import Struct

from milepost.core.admission.controls import is_held
from milepost.core.errors import LedgerError
from milepost.core.item import Content, Item
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost_aws.ledger.names import MARKED_SHARD, QUEUED_SHARD, SHARDS, iso
from milepost_aws.ledger.refused_rows import readable
from milepost_aws.ledger.requests.queues import LONGEST_DELAY_S
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.keys import Layout, due_query

CHECK_MS = 60_000
"""Interval between comparisons of a queue with its rows; SQS takes about as long to update its
counts."""
FOREVER = iso(2**62)
log = logging.getLogger(__name__)


class _Comparison(Struct):
    """Result of comparing a stage's queue with its rows: how many rows need a new message. `find`
    counts it down."""

    at: int
    missing: int


class LostMessages:
    """Compares queues with rows, each at most once a minute, and returns as many rows as messages
    are missing. Every stage run by our workers has its own queue."""

    def __init__(self, store: AwsStore) -> None:
        self._store = store
        self._found: dict[tuple[str, str], _Comparison] = {}

    def missing(self, plan: Plan, now: int) -> dict[str, int]:
        """Missing messages by stage, counted now."""
        layout = self._store.load_route(plan)
        counted = {
            stage.name: self._compare(layout, stage.name, now)
            for stage in plan.stages
            if not stage.external
        }
        return {stage: n for stage, n in counted.items() if n}

    def find(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """Rows that need a new message; at most as many as were missing at the last comparison."""
        layout = self._store.load_route(plan)
        items: list[Item] = []
        for stage in plan.stages:
            if stage.external:
                continue
            found = self._found.get((plan.name, stage.name))
            if found is None or not 0 <= now - found.at < CHECK_MS:
                found = self._found[plan.name, stage.name] = _Comparison(
                    now, self._compare_if_possible(layout, stage.name, now)
                )
            if found.missing:
                here = list(
                    islice(
                        self._stale_rows(layout, stage.name, now),
                        min(limit - len(items), found.missing),
                    )
                )
                found.missing = found.missing - len(here) if here else 0
                items += here
        return items

    def _compare_if_possible(self, layout: Layout, stage: str, now: int) -> int:
        """`_compare`; a queue that cannot be read now delays neither other stages nor other
        routes."""
        try:
            return self._compare(layout, stage, now)
        except LedgerError as error:
            log.error(
                "cannot check whether messages of %s/%s are lost: %s", layout.route, stage, error
            )
            return 0

    def _compare(self, layout: Layout, stage: str, now: int) -> int:
        """How many rows past their offer life have no message. The queue is read only if there are
        such rows."""
        # For a row with an overdue mark, only the row shows whether its offer life is over: count
        # all of them.
        marked = self._count(layout, f"{MARKED_SHARD}#{stage}", FOREVER)
        stale = marked + self._count(layout, f"{QUEUED_SHARD}#{stage}", iso(now))
        if not stale:
            return 0
        queued = marked + self._count(layout, f"{QUEUED_SHARD}#{stage}", FOREVER)
        others = self._count(layout, stage, iso(now + LONGEST_DELAY_S * 1000))
        depth = self._store.queues.depth(self._store.queues.url(layout.route, stage))
        return min(stale, missing_messages(queued, others, *depth))

    def _count(self, layout: Layout, partition: str, before: str) -> int:
        """Number of rows in a partition up to a time, in all shards; from the index alone."""
        requests = self._store.requests
        return sum(
            requests.each(
                [
                    partial(requests.count, layout.table, **due_query(f"{partition}#{n}", before))
                    for n in range(SHARDS)
                ]
            )
        )

    def _stale_rows(self, layout: Layout, stage: str, now: int) -> Iterator[Item]:
        """Rows past their offer life that are not paused, page by page; the oldest first in each
        shard."""
        store = self._store
        holds = store.holds(now)
        kinds = ((QUEUED_SHARD, iso(now)), (MARKED_SHARD, FOREVER))
        for shard, before in [
            (f"{kind}#{stage}#{n}", before) for kind, before in kinds for n in range(SHARDS)
        ]:
            entries = store.requests.query(layout.table, **due_query(shard, before), Limit=100)
            while keys := [layout.key_of(entry) for entry in islice(entries, 100)]:
                for image in store.images(layout.route, keys).values():
                    row = readable(store, layout, image)
                    if (
                        row is None
                        or row.status is not Status.QUEUED
                        or row.stage != stage
                        or (row.look_at or 0) > now
                    ):
                        continue  # the index is out of date, or its offer life is not over
                    if not is_held(holds, row.route, row.stage, row.lane):
                        yield Item(row, Content())


TOLERANCE = 50
"""SQS counts are approximate: beside a backlog, a difference below one in so many is not treated as
a loss yet."""


def missing_messages(queued: int, others: int, visible: int, in_flight: int, delayed: int) -> int:
    """How many of a stage's `queued` items have no message, as far as the counts show.

    `others` are items of the same queue that may have a message too: those claimed, and those due
    for a look soon. Two conditions must both hold: more items are queued than messages are visible,
    and there are more items than messages altogether. So a backlog whose messages are in the queue
    is never sent again, however old it is. Since each new message counts, at most the missing
    number is sent.
    """
    missing = min(queued - visible, queued + others - visible - in_flight - delayed)
    return max(0, missing) if missing * TOLERANCE > visible else 0
