"""The daily head: once a day everything written since the last one is summed up, and that is told to everybody.

A head is itself an item, of the route `heads`, with its day as the key: its first line carries it, so that it is told like
everything else and at least once. Which head is the last is decided by one conditional write, so that there is one chain of them
however many processes try; whoever comes later finds the item, or puts it there for one that died in between.

A head covers places in the feed. No line ever comes to stand before one that could be read already, so what a head has summed up stays
all there is up to its last place; a line that is copied out late has a later place, and the next head covers it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from msgspec import Struct

from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.engine.heads.route import ROUTE, STAGE
from milepost.engine.heads.trees import Prover, Sum, go_on, let_go
from milepost.engine.views.items import each
from milepost.evidence.heads import Head, head_of
from milepost.evidence.signing import Signer
from milepost.ports.documents import HEAD, read_as
from milepost.ports.ledger import Document, NewItem, Query

LAST, BEGUN = "last", "begun"
DAY_MS = 86_400_000
EVERY = 60.0
PARTS = 16
"""How many parts of a tree are made before that is written down: a few seconds' work."""

log = logging.getLogger(__name__)


def day_of(now: int) -> str:
    """The day, in UTC."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d")


def last_head(ctx: Context) -> Head | None:
    document = ctx.ledger.read_one(HEAD, LAST)
    return None if document is None else document.value


def summed_up_to(ctx: Context) -> int | None:
    """The place in the feed up to which heads cover everything; None: there are no heads here."""
    head = last_head(ctx)
    return None if head is None else int(head["up_to"])


def all_heads(ctx: Context) -> list[Head]:
    """Every head that was published, oldest first."""
    if last_head(ctx) is None:
        return []
    found: list[Head] = [item.input for item in each(ctx, Query(route=ROUTE, with_content=True))]
    return sorted(found, key=lambda head: str(head["day"]))


def prover(ctx: Context) -> Prover:
    """Proves what the heads that were published cover."""
    return Prover(ctx, all_heads(ctx))


class HeadKeeper:
    """Publishes the head of each day once the day is over."""

    name = "heads"

    def __init__(self, ctx: Context, signer: Signer | None) -> None:
        self._ctx = ctx
        self._signer = signer

    def turn(self) -> float:
        try:
            return 0.0 if self.run_once() else EVERY
        except OSError as error:
            log.error("the daily head cannot be kept, and is tried again in a while: %s", error)
            return EVERY

    def run_once(self) -> bool:
        """A few seconds' work, if there is any. Is there more to do at once? Raises OSError if the blob store takes nothing."""
        midnight = self._ctx.clock.now() // DAY_MS * DAY_MS
        step = publish_some(self._ctx, self._signer, day_of(midnight - 1), midnight)
        if step.head is not None:
            log.info("the head of %s is published: %s lines, root %s", step.head["day"], step.head["count"], step.head["root"])
        return step.more


class HeadStep(Struct, frozen=True):
    """`head`: the one that was published. `more`: lines are left to be summed up for it."""

    head: Head | None = None
    more: bool = False


def publish(ctx: Context, signer: Signer | None, day: str, before: int) -> Head | None:
    """Sum up what was written since the last head and before that moment, and publish it as the head of `day`; if a sum has been begun
    already, it is that one which is brought to its end. None: there is a head of that day or a later one, nothing was written, or
    somebody else was quicker."""
    while (step := publish_some(ctx, signer, day, before)).more:
        pass
    return step.head


def publish_some(ctx: Context, signer: Signer | None, day: str, before: int) -> HeadStep:
    """As `publish`, as far as a few seconds go. How far that is stands in the ledger: anybody can go on from there."""
    documents = ctx.ledger.read(HEAD)
    held = documents.get(LAST)
    last: Head | None = None if held is None else held.value
    if last is not None:
        _put(ctx, last)
    begun = documents.get(BEGUN)
    so_far = _so_far(begun, 0 if last is None else int(last["up_to"]), day, before)
    if last is not None and last["day"] >= so_far.day:
        return HeadStep()
    summed = go_on(ctx, so_far, PARTS)
    if not summed.done:
        if not ctx.ledger.write(HEAD, BEGUN, summed.sum, expect=_version(begun)):
            return HeadStep()  # somebody else is at it
        let_go(ctx, so_far, summed.sum)
        return HeadStep(more=True)
    if not summed.sum.count:
        return HeadStep()
    found = summed.sum
    previous = None if last is None else last["digest"]
    head = {**head_of(found.day, summed.root, found.count, found.after, found.up_to, previous, signer), "tree": found.tree}
    if not ctx.ledger.write(HEAD, LAST, head, expect=_version(held)):
        return HeadStep()
    let_go(ctx, so_far, found)
    _put(ctx, head)
    return HeadStep(head)


def _so_far(begun: Document | None, after: int, day: str, before: int) -> Sum:
    """The sum that was begun where the last head ends, or a new one."""
    if begun is not None and (found := read_as(Sum, begun.value)).after == after:
        return found
    return Sum(day, before, after, after)


def _version(document: Document | None) -> int:
    return 0 if document is None else document.version


def _put(ctx: Context, head: Head) -> None:
    """The head as an item that has come to its end; if it has, nothing happens."""
    day = head["day"]
    [known] = ctx.ledger.peek(ROUTE, [day])
    if known is not None and known.status in TERMINAL:
        return
    if known is None:
        now = ctx.clock.now()
        # Told with this very line: its stage need not be called for it.
        plan = ctx.plan(ROUTE)
        at_once = Plan(plan.route, version=plan.version)
        change = accept(at_once, day, head, now, correlation_id=f"head-{day}", digest=digest_of(head), by="milepost", note=head)
        ctx.ledger.add(plan, [NewItem(change, head)], now)
    confirm_outside(ctx, ROUTE, day, STAGE, Done(True), "milepost")
