"""Failed items whose rows have left the ledger: what their seals say, and how each is started
again."""

from __future__ import annotations

from itertools import islice
from shlex import quote
from typing import Any

from msgspec import UNSET, Struct

from milepost.core.routes.parsed_input import key_fields
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.core.values.key_text import key_parts
from milepost.core.values.redaction import HIDDEN, redacted
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.context import Context
from milepost.engine.evidence import kept_input
from milepost.engine.ledger_pages import left_failures
from milepost.engine.views.items import SIGNED
from milepost.ports.documents import ACT, Act, read_each
from milepost.ports.items import KnownKey, Query

PAGE = 500
LONGEST_INPUT = 2_000
"""Characters of an input that a command still shows."""
STARTED_AGAIN = FAILED | {Status.CANCELLED}
"""Statuses of ended keys that are accepted again."""


class LeftItems(Struct, frozen=True):
    """Seals of failed items whose rows have left."""

    seals: list[KnownKey] = []
    more: bool = False
    complete: bool = True
    """False: this ledger has not read all its old seals yet, so that there may be more."""


def failed_and_left(ctx: Context, query: Query, limit: int) -> LeftItems:
    """The failed items whose rows have left that match a query; none if the query does not ask for
    failed items."""
    if query.statuses is None or not query.statuses & FAILED:
        return LeftItems()
    seals = list(islice(left_failures(ctx.ledger, query, PAGE), limit + 1))
    complete = ctx.ledger.left_failures(query.route, query.prefix or "", None, 1).complete
    return LeftItems(seals[:limit], len(seals) > limit, complete)


def left_view(route: str, seal: KnownKey) -> dict[str, Any]:
    """One such item as JSON."""
    return {
        "route": route,
        "key": seal.key,
        "stage": seal.stage,
        "status": seal.status.value,
        "ended_at": iso(seal.ended_at),
    }


def way_back(ctx: Context, plan: Plan, seal: KnownKey) -> str:
    """The command that takes a failed or cancelled key in again whose row has left. Content that is
    not known is left as `…`."""
    content = kept_input(ctx, plan.name, seal) if plan.route.evidence else UNSET
    item = _submitted(plan, seal.key, content)
    text = canonical_json(item).decode()
    if item != redacted(item) or len(text) > LONGEST_INPUT:
        text = canonical_json(_submitted(plan, seal.key, UNSET)).decode()
    return f"milepost submit {plan.name} --item {quote(text)} --failed-again {SIGNED}"


def absent(ctx: Context, route: str, key: str) -> Refusal:
    """Why there is no row with this key: it was pruned, or there never was one."""
    known = ctx.ledger.peek(route, [key])[0]
    if known is None:
        return Refusal(RefusalKind.GONE, "there is no item with this key")
    when = "" if known.ended_at is None else f" on {iso(known.ended_at)}"
    ended = f"it has ended ({known.status}{when}) and its row was pruned; only its seal is left"
    plan = ctx.plans.get(route)
    if plan is None or known.status not in STARTED_AGAIN:
        return Refusal(RefusalKind.GONE, ended)
    return Refusal(
        RefusalKind.GONE,
        f"{ended}; to start it again, submit it again: {way_back(ctx, plan, known)}",
    )


def _submitted(plan: Plan, key: str, content: Any) -> dict[str, Any]:
    """The item as it was submitted; `…` stands for content that is not known (UNSET)."""
    fields = key_fields(plan.route.key)
    key_values = dict(zip(fields, key_parts(key) if len(fields) > 1 else [key], strict=False))
    # Of a text that is hidden in the key, the rest is not known.
    key_values |= {
        name: HIDDEN for name in plan.route.key_forms if HIDDEN in key_values.get(name, "")
    }
    if plan.route.carries is not None:
        return {**key_values, plan.route.carries: "…" if content is UNSET else content}
    if isinstance(content, dict):
        return content
    return {**key_values, "…": "…"}


def unexplained(ctx: Context, plan: Plan) -> tuple[int, bool]:
    """How many failed items have left without anybody having decided so, and whether all seals have
    been read. The route names the statuses that may leave; an operator who pruned failed rows has
    left an act."""
    wanted = FAILED - plan.route.keep.keys()
    if not wanted:
        return 0, True
    prunes = [
        act
        for act in read_each(ctx.ledger, ACT, Act).values()
        if act.verb == "prune" and act.route == plan.name
    ]
    failed = left_failures(ctx.ledger, Query(route=plan.name, statuses=wanted), PAGE)
    count = sum(not any(_pruned_by(act, seal) for act in prunes) for seal in failed)
    return count, ctx.ledger.left_failures(plan.name, "", None, 1).complete


def _pruned_by(act: Act, seal: KnownKey) -> bool:
    """Whether this act of an operator removed such rows: of this status, ended before the act."""
    return (
        seal.status.value in act.filter.get("statuses", ())
        and (seal.ended_at or 0) <= act.started_at
    )
