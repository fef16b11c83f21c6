"""Follow-up items: submit an item to another route for each item that completes.

It is a subscriber with its own cursor, so nothing is missed: a repeated event finds the key known,
and an event whose follow-up item cannot be submitted is parked with the reason and retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from milepost.core.errors import EventRefused
from milepost.core.events import Envelope, Event, SubscriberEvent
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import NOTES, Status
from milepost.engine.context import Context
from milepost.engine.intake import submit

PREFIX = "follow-up-"
"""Beginning of the name of each such subscriber; the route's name follows."""


class FollowUps:
    """Subscriber that submits the follow-up items of one route."""

    batch = 500

    def __init__(self, ctx: Context, plan: Plan) -> None:
        assert plan.route.follow_up is not None
        self.name = f"{PREFIX}{plan.name}"
        self._ctx = ctx
        self._route = plan.name
        self._follow_up = plan.route.follow_up

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        completed = [
            place for place, envelope in enumerate(envelopes) if self._completes(envelope.event)
        ]
        answers: list[Exception | None] = [None] * len(envelopes)
        items = self._ctx.ledger.get(
            [(self._route, envelopes[place].event.key) for place in completed]
        )
        made = []
        for place, item in zip(completed, items, strict=True):
            if not isinstance(item, Item):
                answers[place] = EventRefused(
                    f"the row of {self._route}/{envelopes[place].event.key} has been removed or is damaged"
                )
                continue
            content = self._follow_up.make_input(
                item, datetime.fromtimestamp(envelopes[place].event.at / 1000, UTC)
            )
            if content is not None:
                made.append((place, content))
        receipts = submit(
            self._ctx, self._follow_up.target.name, [content for _, content in made], by=self.name
        )
        for (place, _), receipt in zip(made, receipts, strict=True):
            if receipt.answer == "malformed":
                answers[place] = EventRefused(f"the follow-up item was refused: {receipt.error}")
        return answers

    def _completes(self, event: SubscriberEvent) -> bool:
        if not isinstance(event, Event):
            return False
        line = event.line
        return (
            event.route == self._route
            and line.status is Status.COMPLETED
            and line.reason not in NOTES
            and event.kind != "offered"
        )


def follow_up_routes(routes: Sequence[Route]) -> list[Route]:
    """The routes that receive follow-up items of these routes, or of such routes, and are not among
    them."""
    names, found = {route.name for route in routes}, list(routes)
    for route in found:
        if route.follow_up is not None and route.follow_up.target.name not in names:
            names.add(route.follow_up.target.name)
            found.append(route.follow_up.target)
    return found[len(routes) :]


def follow_ups(ctx: Context, plans: Mapping[str, Plan]) -> list[FollowUps]:
    """The subscribers that submit follow-up items for these routes."""
    return [FollowUps(ctx, plan) for plan in plans.values() if plan.route.follow_up is not None]
