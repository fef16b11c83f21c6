"""Items: handing them over, and asking for one."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.engine.intake import Receipt
from milepost.engine.observe import show
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.desk import Desk
from milepost.http.problems import trouble

ENDPOINTS = Endpoints()
MANY = 10_000


class Taken(Struct, frozen=True, omit_defaults=True):
    """What became of one item: `new`, `known`, `changed` (known with other content; nothing is overwritten), or `malformed`."""

    key: str
    answer: str
    status: str | None = None
    stage: str = ""
    error: str = ""


class TakenMany(Struct, frozen=True):
    receipts: list[Taken]


@ENDPOINTS.add(
    "POST",
    "/api/v1/routes/{route}/items",
    scope="submit",
    body=dict[str, Any] | list[dict[str, Any]],
    answers={201: Taken, 200: Taken | TakenMany},
    problems=("unknown-route", "conflict", "malformed-item"),
    summary="Hand over an item, or a list of them",
)
async def submit(desk: Desk, call: Call) -> Answer:
    """One object is one item: 201 if it is new, 200 if it is known already, 409 if its key is known with other content.
    A list of at most 10,000 is answered with one receipt each, in the same order. What is answered `new` is on disk."""
    plan = desk.plan(call)
    if isinstance(call.body, list):
        if len(call.body) > MANY:
            raise trouble(
                "wrong-value", f"{len(call.body):,} items are too many for one call", expected=f"at most {MANY:,}, or a list as NDJSON"
            )
        receipts = await desk.submitting.submit_many(plan.name, call.body, call.caller.name)
        return Answer(TakenMany([_taken(receipt) for receipt in receipts]))
    receipt = await desk.submitting.submit(plan.name, call.body, call.caller.name)
    if receipt.answer == "malformed":
        raise trouble("malformed-item", receipt.error)
    if receipt.answer == "changed":
        raise trouble("conflict", receipt.error, key=receipt.key, itemStatus=str(receipt.status), stage=receipt.stage)
    return Answer(_taken(receipt), 201 if receipt.answer == "new" else 200)


def _taken(receipt: Receipt) -> Taken:
    status = None if receipt.status is None else receipt.status.value
    return Taken(receipt.key, receipt.answer, status, receipt.stage, receipt.error)


@ENDPOINTS.add(
    "GET",
    "/api/v1/routes/{route}/items/{key:path}",
    scope="read",
    answers={200: dict[str, Any]},
    problems=("unknown-route", "unknown-item"),
    summary="One item, with its history",
)
def get(desk: Desk, call: Call) -> Answer:
    """Everything about one item: where it is, what it carries, what happened to it. An item whose row has left is told from its seal."""
    plan = desk.plan(call)
    found = show(desk.ctx, plan.name, call.path["key"])
    if found is None:
        raise trouble("unknown-item", f"{plan.name} has no item {call.path['key']!r}", field="key")
    return Answer(found)
