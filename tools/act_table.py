"""Table of the acts that operators can do in each status, made by the rules themselves."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import Acceptance
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal

BY, WHY = "ann", "a reason"
NOW = 1_800_000_000_000
ACTS: dict[str, Callable[[Item, Plan], Change | Refusal]] = {
    "retry": lambda item, plan: operators.retry(item, plan, NOW, by=BY, why=WHY),
    "skip": lambda item, plan: operators.skip(item, plan, NOW, by=BY, why=WHY),
    "confirm": lambda item, plan: confirm(
        item, item.row.stage, Done(True), plan, NOW, 0.0, by=BY, why=WHY, operator=True
    ),
    "cancel": lambda item, plan: operators.cancel(item, plan, NOW, by=BY, why=WHY),
    "resend": lambda item, plan: operators.resend(item, plan, NOW, by=BY, why=WHY),
    "rerun": lambda item, plan: operators.rerun(item, plan, NOW, by=BY, why=WHY),
    "replace": lambda item, plan: operators.replace(
        item, plan, NOW, content={"id": "P-1", "x": 1}, digest=b"x" * 32, old={}, by=BY, why=WHY
    ),
    "reschedule": lambda item, plan: operators.reschedule(
        item, plan, NOW, not_before=NOW + 60_000, by=BY, why=WHY
    ),
}
"""Each act as an operator would do it without options."""


def act_rows() -> list[tuple[str, ...]]:
    """For each status, whether each act of `ACTS` is possible: tried on an item at a handler stage,
    and on one at an external stage."""
    return [(f"`{status}`", *(_cell(status, act) for act in ACTS.values())) for status in Status]


def _cell(status: Status, act: Callable[[Item, Plan], Change | Refusal]) -> str:
    handler, external = (
        isinstance(act(Item(replace(item.row, status=status), item.content), plan), Change)
        for item, plan in (_item_at_a_stage(external=False), _item_at_a_stage(external=True))
    )
    return {
        (True, True): "yes",
        (False, False): "no",
        (True, False): "handler stage",
        (False, True): "external stage",
    }[handler, external]


def _item_at_a_stage(*, external: bool) -> tuple[Item, Plan]:
    """An item at the first of two stages."""
    route = Route("parcels", key="id")
    for name in ("one", "two"):
        if external:
            route.external(name)
        else:
            route.stage(name)(lambda item: None)
    plan = Plan(route, grace_ms=0, offer_life_ms=0)
    content = {"id": "P-1"}
    accepted = Acceptance(plan, NOW)(
        "P-1", content, correlation_id="c-1", digest=digest_of(content)
    )
    return Item(accepted.after, Content(content, {}, {})), plan
