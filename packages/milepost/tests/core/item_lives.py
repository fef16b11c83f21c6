"""Random lives of items made by the pure rules, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import accept, decide, given_back, late, undecided
from milepost.core.due import Lease, look
from milepost.core.item import Content, Item, Row, digest_of
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal

START = 1_700_000_000_000
LEASE = 60_000


def handler(item: Item) -> Outcome:
    return Done()


def make_plan(**timing: int) -> Plan:
    """Three stages: ours, ours with an overdue mark, somebody else's."""
    route = Route("parcels")
    route.stage(
        "weigh",
        retry=Backoff(attempts=3, base=1, factor=2, cap=60, jitter=0.25),
        lane=lambda content: content["lane"],
    )(handler)
    route.stage(
        "stamp", checks=Checks(every="10s", up_to="1m", overdue="1h"), retry=Backoff(attempts=2)
    )(handler)
    route.external("delivered", resend_after="1d", overdue="2d")
    return Plan(route, **timing)


def new_item(plan: Plan, now: int = START, key: str = "p1") -> Item:
    content = {"id": key, "lane": "north"}
    change = accept(plan, key, content, now, correlation_id="c-1", digest=digest_of(content))
    return Item(change.after, Content(content))


def after(item: Item, change: Change) -> Item:
    """The item as a ledger would hold it once the change is written."""
    assert change.before == item.row
    content = Content(item.content.input, dict(item.content.payloads), dict(item.content.results))
    for put in change.puts:
        if put.kind == "input":
            content.input = put.value
        else:
            (content.payloads if put.kind == "payload" else content.results)[put.stage] = put.value
    return Item(change.after, content)


def claimed(item: Item, plan: Plan, now: int = START, token: str = "t") -> Item:
    change = look(item, plan, now, 0.0, Lease(token, "worker", now + LEASE))
    assert change is not None
    assert change.after.status is Status.PROCESSING
    return after(item, change)


def settled(item: Item, outcome: Outcome, plan: Plan, now: int = START) -> Item:
    return after(item, decide(item, outcome, plan, now, 0.0))


def at_stage(stage: str, plan: Plan, now: int = START) -> Item:
    """An item that has just come to a stage, with a result of each stage before."""
    item = new_item(plan, now)
    while item.stage != stage:
        item = settled(claimed(item, plan, now), Done({"by": item.stage}), plan, now)
    return item


spans = st.sampled_from([None, 0, 5, "1h"])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Done, st.sampled_from([None, True, {"n": 1}, [1]])),
    st.builds(NotYet, spans, st.sampled_from([None, "no lorry"])),
    st.builds(HandedOver, st.sampled_from([0, "30s", "2d"]), st.none()),
    st.builds(Retry, st.sampled_from(["busy", "scale 7 is busy"]), spans, unknown=st.booleans()),
    st.builds(Reject, st.just("no such parcel")),
)
jitters = st.floats(-1, 1)
STEPS = (
    "claim",
    "look",
    "settle",
    "back",
    "undecided",
    "late",
    "confirm",
    "retry",
    "send-back",
    "skip",
    "cancel",
    "resend",
    "rerun",
    "replace",
    "reschedule",
    "advance",
)


def take_step(
    data: st.DataObject, item: Item, plan: Plan, now: int
) -> tuple[str, Change | Refusal | None]:
    """One thing that may happen to the item now, drawn by chance."""
    row: Row = item.row
    step = data.draw(st.sampled_from(STEPS), label="step")
    who: dict[str, Any] = {"by": "ops", "why": "test"}
    jitter = (
        data.draw(jitters, label="jitter")
        if step in ("claim", "look", "settle", "confirm")
        else 0.0
    )
    held = row.status is Status.PROCESSING and row.lease is not None
    if step in ("claim", "look"):
        if row.due_at is None or row.due_at > now:
            return step, None
        lease = Lease(f"t{row.version}-{now}", "worker", now + LEASE) if step == "claim" else None
        return step, look(item, plan, now, jitter, lease)
    if step == "settle":
        return step, decide(
            item, data.draw(outcomes, label="outcome"), plan, now, jitter
        ) if held else None
    if step == "back":
        return step, given_back(row, now, why="shutdown") if held else None
    if step == "undecided":
        return step, undecided(
            row, data.draw(outcomes, label="outcome"), now, by="old"
        ) if held else None
    if step == "late":
        return step, late(row, data.draw(outcomes, label="outcome"), now, by="slow")
    if step == "confirm":
        stage = data.draw(st.sampled_from([stage.name for stage in plan.stages]), label="stage")
        return step, confirm(
            item, stage, data.draw(outcomes, label="outcome"), plan, now, jitter, by="partner"
        )
    if step == "send-back":
        return step, operators.retry(item, plan, now, stage=plan.first.name, **who)
    if step == "rerun":
        stage = data.draw(
            st.sampled_from([None, *(stage.name for stage in plan.stages)]), label="stage"
        )
        return step, operators.rerun(
            item, plan, now, stage=stage, as_new=data.draw(st.booleans(), label="as new"), **who
        )
    if step == "replace":
        content = {**item.input, "n": data.draw(st.integers(0, 2), label="n")}
        how = {
            "here": data.draw(st.booleans(), label="here"),
            "rerun": data.draw(st.booleans(), label="rerun"),
        }
        return step, operators.replace(
            item,
            plan,
            now,
            content=content,
            digest=digest_of(content),
            old={"content": item.input},
            **how,
            **who,
        )
    if step == "reschedule":
        later = now + data.draw(
            st.sampled_from([-1, 0, 1000, 3_600_000, 86_400_000]), label="later"
        )
        return step, operators.reschedule(item, plan, now, not_before=later, **who)
    if step == "advance":
        return step, None
    return step, getattr(operators, step)(item, plan, now, **who)


def walk(data: st.DataObject, plan: Plan, steps: int = 25) -> list[tuple[str, Change, Item]]:
    """A whole life: (what happened, the change, the item before it), oldest first. Time moves
    between the steps."""
    item, now, lived = new_item(plan), START, []
    for _ in range(steps):
        now += data.draw(
            st.sampled_from([0, 1, 1000, 30_000, 61_000, 3_600_000, 86_400_000]), label="pause"
        )
        step, change = take_step(data, item, plan, now)
        if isinstance(change, Change):
            lived.append((step, change, item))
            item = after(item, change)
    return lived
