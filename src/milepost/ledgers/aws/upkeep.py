"""Upkeep of the AWS ledger: rare operations that may read whole tables; those that cost much say so first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Controls, scope
from milepost.core.errors import LedgerError, LedgerMissing
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ledgers.aws.journal.lines import item_name
from milepost.ledgers.aws.names import MARKED_SHARD, QUEUED_SHARD, SHARDS, ResourceNames, iso
from milepost.ledgers.aws.requests.client import ConditionFailed, Requests
from milepost.ledgers.aws.store import AwsStore, seal_of
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ledgers.aws.tables.readable_rows import readable
from milepost.ports.documents import BREAKER, HOLD, read_as
from milepost.ports.items import KnownKey

SAMPLE = 100

log = logging.getLogger(__name__)


def next_due(store: AwsStore, plans: Iterable[Plan]) -> int | None:
    """Looks at both ends of each partition: an offered item is ready now, though it is due for a resend only much later."""
    holds = set(store.control.read(HOLD))
    breakers = {name: read_as(BreakerRecord, document.value) for name, document in store.control.read(BREAKER).items()}
    controls = Controls(holds, {}, breakers)
    times: list[int] = []
    for plan in plans:
        layout = store.know(plan)
        for stage in plan.stages:
            if not stage.ours or plan.name in holds or scope(plan.name, stage.name) in holds:
                continue
            places = [f"{kind}{stage.name}#{shard}" for kind in ("", f"{QUEUED_SHARD}#", f"{MARKED_SHARD}#") for shard in range(SHARDS)]
            for place in places:
                keys = {key for forward in (True, False) for key in _some(store, layout, place, forward)}
                for image in store.images(plan.name, keys).values():
                    row = readable(store, layout, image)
                    if row is None or row.terminal or row.stage != stage.name or controls.held(row.route, row.stage, row.lane):
                        continue
                    ready = row.status in (Status.PENDING, Status.QUEUED) and row.not_before is None
                    due = row.entered_at if ready else row.due_at or row.updated_at
                    times.append(max(due, controls.opens_at(plan.name, stage, row.lane)))
    return min(times, default=None)


def _some(store: AwsStore, layout: Layout, shard: str, forward: bool) -> list[str]:
    try:
        page = store.requests.call(
            "dynamodb",
            "query",
            TableName=layout.table,
            IndexName="due",
            KeyConditionExpression="#shard = :shard",
            ExpressionAttributeNames={"#shard": "dueShard"},
            ExpressionAttributeValues={":shard": {"S": shard}},
            ScanIndexForward=forward,
            Limit=SAMPLE,
        )
    except LedgerMissing:
        return []
    return [layout.key_of(image) for image in page["Items"]]


def reclaim(store: AwsStore, holders: Sequence[str], now: int) -> int:
    """Make the items claimed by these holders due at once: the resender writes the losses."""
    found = 0
    for route in store.routes() if holders else []:
        layout = store.layout(route)
        for image in _scan(store, layout.table if layout else None):
            if layout is None or image.get("holder", {}).get("S") not in holders or "lease" not in image:
                continue
            update = Update(layout, layout.key_of(image))
            update.set("dueAt", {"S": iso(now)})
            update.remove("lookAt")
            update.equal("lease", image["lease"])
            found += _written(store, update)
    return found


def sealed(store: AwsStore, route: str, after: str | None, limit: int) -> tuple[list[KnownKey], str | None]:
    """By a scan of all routes' seals; those whose row still exists are left out."""
    more = {} if after is None else {"ExclusiveStartKey": {"key": {"S": item_name(route, after)}}}
    found: list[KnownKey] = []
    for image in store.requests.scan(store.names.seen, ConsistentRead=True, **more):
        if image["route"]["S"] == route:
            found.append(seal_of(image, route))
            if len(found) == limit:
                break
    present = store.images(route, [seal.key for seal in found])
    return [seal for seal in found if seal.key not in present], found[-1].key if len(found) == limit else None


def _scan(store: AwsStore, table: str | None) -> Iterable[Image]:
    if table is None:
        return
    try:
        yield from store.requests.scan(table, ConsistentRead=True)
    except LedgerMissing:
        return


def _written(store: AwsStore, update: Update) -> bool:
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return False
    return True


def check_there(requests: Requests, prefix: str) -> None:
    """Raise LedgerMissing, with advice, if this ledger does not exist."""
    table = ResourceNames(prefix).control
    try:
        requests.call("dynamodb", "describe_table", TableName=table)
    except LedgerMissing:
        cure = (
            "on a stand-in 'milepost submit' and 'milepost up' make one"
            if requests.endpoint
            else "deploy its stack first (see infra/), and check region, prefix and account"
        )
        where = f"dynamodb://{requests.region}/{prefix}"
        raise LedgerMissing(f"there is no ledger at {where}: it has no table {table}; {cure}; --ledger names another") from None


def describe(store: AwsStore, url: str) -> dict[str, Any]:
    """Facts for `milepost doctor`; unreadable parts are listed as problems, not raised."""
    facts: dict[str, Any] = {"kind": "dynamodb", "url": url, "problems": []}
    try:
        routes = store.routes()
        facts["routes"] = routes
        facts["lines"] = store.journal.last_seq()
        visible, in_flight, _ = store.queues.depth(store.queues.quarantine())
        facts["set aside"] = visible + in_flight
        if visible + in_flight:
            facts["problems"].append(f"{visible + in_flight:,} messages, rows or records are set aside in {store.names.quarantine}")
    except LedgerError as error:
        facts["problems"].append(str(error))
    return facts
