"""Daily head: one digest a day over all history lines since the last head, delivered to all
subscribers.

A head is itself an item of the route `heads`, with its day as key: its first history line contains
it, so it is delivered like all other events, at least once. One conditional write decides which
head is the last, so that there is one chain of heads however many processes try; a later process
finds the item, or creates it for a process that died in between.

A head covers feed positions. No line is ever inserted before one that could already be read, so a
head covers everything up to its last position; a line that arrives late gets a later position, and
the next head covers it.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from msgspec import Struct

from milepost.core.decide import accept
from milepost.core.errors import LedgerDamaged
from milepost.core.item import digest_of
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.engine.heads.route import ROUTE, STAGE
from milepost.engine.heads.trees import Prover, Sum, add_lines, drop_replaced
from milepost.engine.views.items import each
from milepost.evidence.heads import Head, head_of
from milepost.evidence.signing import Signer
from milepost.ports.documents import HEAD, Document, read_as
from milepost.ports.items import NewItem, Query
from milepost.ports.service import Service

LAST, BEGUN = "last", "begun"
DAY_MS = 86_400_000
EVERY = 60.0
PARTS = 16
"""Parts of a tree built before progress is saved: a few seconds of work."""

log = logging.getLogger(__name__)


def day_of(now: int) -> str:
    """The day, in UTC."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d")


def last_head(ctx: Context) -> Head | None:
    """The head published last."""
    document = ctx.ledger.read_one(HEAD, LAST)
    return None if document is None else document.value


def summed_up_to(ctx: Context) -> int | None:
    """The feed position up to which heads cover everything; None if there are no heads."""
    head = last_head(ctx)
    return None if head is None else int(head["up_to"])


def all_heads(ctx: Context) -> list[Head]:
    """All published heads, oldest first."""
    if last_head(ctx) is None:
        return []
    found: list[Head] = [item.input for item in each(ctx, Query(route=ROUTE, with_content=True))]
    return sorted(found, key=lambda head: str(head["day"]))


def prover(ctx: Context) -> Prover:
    """Prover for all published heads."""
    return Prover(ctx, all_heads(ctx))


class HeadKeeper(Service):
    """Service that publishes the head of each day once the day is over."""

    name = "heads"

    def __init__(self, ctx: Context, signer: Signer | None) -> None:
        self._ctx = ctx
        self._signer = signer

    def turn(self) -> float:
        try:
            more = self.run_once()
        except OSError as error:
            log.error("cannot store the daily head; will retry: %s", error)
            self.stands_still = f"it cannot store the daily head: {error}"
            return EVERY
        self.stands_still = ""
        return 0.0 if more else EVERY

    def run_once(self) -> bool:
        """Do a few seconds of work; returns whether there is more to do. Raises OSError if the blob
        store fails."""
        midnight = self._ctx.clock.now() // DAY_MS * DAY_MS
        step = publish_some(self._ctx, self._signer, day_of(midnight - 1), midnight)
        if step.head is not None:
            log.info(
                "published the head of %s: %s lines, root %s",
                step.head["day"],
                step.head["count"],
                step.head["root"],
            )
        return step.more


class HeadStep(Struct, frozen=True):
    """`head`: the head just published. `more`: lines remain to be covered."""

    head: Head | None = None
    more: bool = False


def publish(ctx: Context, signer: Signer | None, day: str, before: int) -> Head | None:
    """Publish a head of `day` over all lines since the last head and before that time, or finish
    one already begun. None: that day or a later one has a head, nothing was written, or another
    process was first."""
    while (step := publish_some(ctx, signer, day, before)).more:
        pass
    return step.head


def publish_some(ctx: Context, signer: Signer | None, day: str, before: int) -> HeadStep:
    """As `publish`, but only a few seconds of work. Progress is saved in the ledger, so that any
    process can continue."""
    documents = ctx.ledger.read(HEAD)
    document = documents.get(LAST)
    last: Head | None = None if document is None else document.value
    if last is not None:
        _put(ctx, last)
    begun = documents.get(BEGUN)
    so_far = _so_far(begun, 0 if last is None else int(last["up_to"]), day, before)
    if last is not None and last["day"] >= so_far.day:
        return HeadStep()
    found, root = add_lines(ctx, so_far, PARTS)
    if root is None:
        if not ctx.ledger.write(HEAD, BEGUN, found, expect=_version(begun)):
            return HeadStep()  # another process works on it
        drop_replaced(ctx, so_far, found)
        return HeadStep(more=True)
    if not found.count:
        return HeadStep()
    previous = None if last is None else last["digest"]
    head = {
        **head_of(
            found.day, root, found.count, found.after, found.up_to, previous, signer, found.lines
        ),
        "tree": found.tree,
    }
    if not ctx.ledger.write(HEAD, LAST, head, expect=_version(document)):
        return HeadStep()
    drop_replaced(ctx, so_far, found)
    _put(ctx, head)
    return HeadStep(head)


def _so_far(begun: Document | None, after: int, day: str, before: int) -> Sum:
    """The unfinished sum that starts where the last head ends, or a new one."""
    try:
        if begun is not None and (found := read_as(Sum, begun.value)).after == after:
            return found
    except LedgerDamaged as error:
        log.error("the daily head is begun anew: %s", error)
    return Sum(day, before, after, after)


def _version(document: Document | None) -> int:
    return 0 if document is None else document.version


def _put(ctx: Context, head: Head) -> None:
    """Store the head as a completed item; does nothing if it exists."""
    day = head["day"]
    [known] = ctx.ledger.peek(ROUTE, [day])
    if known is not None and known.status in TERMINAL:
        return
    if known is None:
        now = ctx.clock.now()
        # The first line delivers the head, so its stage needs no call.
        plan = ctx.plan(ROUTE)
        at_once = Plan(plan.route, version=plan.version)
        change = accept(
            at_once,
            day,
            head,
            now,
            correlation_id=f"head-{day}",
            digest=digest_of(head),
            by="milepost",
            note=head,
        )
        ctx.ledger.add(plan, [NewItem(change, head)], now)
    confirm_outside(ctx, ROUTE, day, STAGE, Done(True), "milepost")
