"""Work that follows from a row's present state; the same for the relay (stream record) and the repair (scan)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from milepost.core.change import Author, Change, change
from milepost.core.confirmations import confirm
from milepost.core.decide import decide, without
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, outcome_from_builtins
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.ledgers.aws.journal.lines import JournalEntry
from milepost.ledgers.aws.store import AwsStore, Sealing
from milepost.ledgers.aws.tables.item_rows import copied_of, correlation_of, life_of, links_of, offered_by
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ports.items import KnownKey

OUTSIDE = Author("outside")


def plan_with_offers(store: AwsStore, plan: Plan) -> Plan:
    """The plan for decisions of the relay and the repair: an item that reaches an external stage is offered in the same write."""
    store.load_route(plan)
    own = Plan(plan.route, grace_ms=store.settings.grace_ms, external_grace_ms=0, version=plan.version)
    return own.with_offer_lives({stage.name: stage.offer_life_ms for stage in plan.stages})


def uncopied(store: AwsStore, layout: Layout, key: str, image: Image) -> list[JournalEntry]:
    """The row's lines that are not in the history table yet, oldest first."""
    links = [link for link in links_of(image, store.values) if link.version > copied_of(image)]
    if not links:
        return []
    correlation_id = correlation_of(image, key)
    # With the payload that a line offered: its events are built from the line alone.
    life = life_of(image)
    offered = offered_by(links, image, layout, store.values)
    return [
        JournalEntry(layout.route, key, correlation_id, link.version, link.previous, link.body, offered.get(link.version, UNSET), life)
        for link in links
    ]


def confirmed_change(item: Item, plan: Plan, now: int, jitter: Callable[[], float]) -> Change | None:
    """The change for confirmations found on the row; None: there is nothing to do.

    A confirmation of the row's stage is applied, unless a worker has claimed the item: then it takes precedence when the worker
    settles. A confirmation of the stage at which the item failed still moves it. It does not move a cancelled item, since it may be
    older than the cancellation. A confirmation of an earlier stage came too late and is noted."""
    row = item.row
    here = plan.position.get(row.stage)
    if here is None:
        return None  # `routes apply` moves it
    if row.status is Status.COMPLETED:
        here = len(plan.stages)
    elif row.status in FAILED and row.stage in row.kept:
        moved = confirm(item, row.stage, outcome_from_builtins(row.kept[row.stage]), plan, now, jitter(), by=OUTSIDE.by or "")
        return moved if isinstance(moved, Change) else None
    elif row.stage in row.kept and not row.terminal and row.status is not Status.PROCESSING:
        return decide(item, Done(), plan, now, jitter())
    for stage, outcome in row.kept.items():
        if plan.position.get(stage, here) < here:
            note = {"for": stage, "differs": outcome}
            return change(row, Reason.NOTED, now, row.status, {"kept": without(row.kept, stage)}, OUTSIDE, note=note)
    return None


def seal_for(store: AwsStore, row: Row, place: int | None = None) -> Sealing:
    """The seal of an ended row; `place` is the journal place of its last line, which is looked up if it is not given."""
    if place is None and (lines := store.journal.history(row.route, row.key, row.life)):
        place = lines[-1].seq
    return Sealing(row.route, KnownKey.of(row, sealed=True), place, row.version, row.created_at)
