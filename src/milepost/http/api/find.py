"""Search over HTTP: a page of the items that match, and counts of items by stage and status."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.item import Item
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence.volumes import OnVolume, all_items, files_on
from milepost.engine.views.items import row_view, stage_names, status
from milepost.engine.views.late_items import late_item_view, nearest, overdue
from milepost.engine.views.queries import CONFIRM_ROWS, WARN_ROWS, WORDS, choose, cost_text
from milepost.engine.views.snapshot import Snapshot, snapshots
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState
from milepost.ports.items import Query

ENDPOINTS = Endpoints()
READS = 50
"""Maximum ledger queries for one page: a filter with few matches must not occupy a thread for long."""


class Chosen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter of items, by the parameters of `GET …/items`. All conditions must hold."""

    status: list[str] = []
    stage: list[str] = []
    lane: str | None = None
    group: str | None = None
    list_: str | None = field(default=None, name="list")
    prefix: str | None = None
    part: list[str] = []
    older_than: str | None = None

    def choice(self, ctx: Context, route: str) -> Query:
        """The same as a query of the ledger."""
        return choose(ctx, route, **self.words())

    def words(self) -> dict[str, Any]:
        """The conditions by the names that `choose` has for them."""
        values = {"statuses": self.status, "stages": self.stage, "lane": self.lane, "group": self.group, "list_": self.list_}
        return {**values, "older_than": self.older_than, "prefix": self.prefix, "parts": self.part}


class ItemsQuery(Chosen, frozen=True, kw_only=True):
    """A filter of items. All conditions must hold."""

    overdue: bool = False
    nearest: bool = False
    scan: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: str | None = None


def choice_of(ctx: Context, route: str, chosen: Chosen, within: str = "") -> Query:
    """`chosen` as a query of the ledger; raises a problem that names a condition that is invalid there. `within`: the field of the call
    that holds the conditions."""
    try:
        return chosen.choice(ctx, route)
    except UsageError as error:
        for name, value in chosen.words().items():
            if _means_nothing(ctx, route, name, value):
                field = _FIELDS.get(name, name)
                raise problem_error("wrong-value", str(error), field=within + field, expected=_expected(ctx, route, field)) from None
        raise


_FIELDS = {"statuses": "status", "stages": "stage", "list_": "list", "parts": "part"}


def _means_nothing(ctx: Context, route: str, name: str, value: Any) -> bool:
    try:
        choose(ctx, route, **{name: value})
    except UsageError:
        return True
    return False


def _expected(ctx: Context, route: str, field: str) -> str | None:
    if field == "status":
        return ", ".join([*Status, *WORDS])
    if field == "stage":
        return ", ".join(stage_names(ctx, route))
    expected = {
        "group": f"a group that GET /api/v1/routes/{route}/groups names",
        "list": "the name or id of a list that GET /api/v1/lists names",
        "part": "FIELD=VALUE, with a field of the route's key",
    }
    return expected.get(field, "a span, such as 2d")


class DamagedItem(Struct, frozen=True):
    """An item whose row cannot be read, and why: `GET …/items/{key}` shows the readable rest."""

    key: str
    reason: str


class ItemPage(Struct, frozen=True):
    """A page of items, each as `milepost list --json` shows it. Give `next` as `after` to continue; null: this was the last page.
    A page may be short, or empty, even if there are more. `refused`: items of this page whose rows are damaged."""

    items: list[dict[str, Any]]
    next: str | None
    more: bool
    refused: list[DamagedItem] = []


class PageCursor(Struct, frozen=True):
    """The place where a page ended, and the query that it belongs to: it is refused with another query."""

    check: str
    place: Any
    before: int | None = None


@ENDPOINTS.add(
    "GET",
    "/api/v1/routes/{route}/items",
    scope="read",
    query=ItemsQuery,
    answers={200: ItemPage},
    problems=("unknown-route", "costly"),
    summary="Items of a route, by status, stage, lane, error, list, age, part of the key or how it begins",
)
def find(state: ServerState, call: Call) -> Answer:
    """`status` is a status, `failed` or `live`, and like `stage` may be repeated; `list` is a list's name or id; `part` is `FIELD=VALUE`, a
    part of a key of several fields (`batchId=B-7`), and may be repeated; `older_than` is a span such as `2d`; `overdue=true` selects
    overdue items, the longest overdue first, and `nearest=true` those closest to completion, each with the reason why it waits (both
    answer with one page: use a larger `limit`). If no index of the ledger serves the query and the table is large, add `scan=true` to read
    all of it."""
    plan, wanted = state.plan(call), call.query
    query = choice_of(state.ctx, plan.name, wanted)
    # Without a filter every row that is read is shown: reading ends with the page, not with the table.
    whole = query == Query(route=plan.name) and not (wanted.overdue or wanted.nearest)
    headers = {} if whole else afford(state.ctx, query, wanted.scan)
    if wanted.overdue or wanted.nearest:
        if wanted.after is not None:
            raise problem_error(
                "wrong-value", "overdue and nearest items are answered in one page", field="after", expected="a larger limit instead"
            )
        now, ask = state.ctx.clock.now(), overdue if wanted.overdue else nearest
        asked, more = ask(state.ctx, query, wanted.limit)
        return Answer(ItemPage([late_item_view(one, now) for one in asked], None, more), headers=headers)
    begun = None if wanted.after is None else open_cursor(plan.name, wanted, wanted.after)
    if begun is not None:
        query = replace(query, after=begun.place, entered_before=begun.before)
    items, damaged, place = _page(state.ctx, query, wanted.limit)
    following = None if place is None else make_cursor(plan.name, wanted, place, query.entered_before)
    return Answer(ItemPage([row_view(item) for item in items], following, following is not None, damaged), headers=headers)


def _page(ctx: Context, query: Query, limit: int) -> tuple[list[Item], list[DamagedItem], Any]:
    """At most so many items, the damaged ones among them, and the place to continue."""
    found: list[Item] = []
    damaged: list[DamagedItem] = []
    for _ in range(READS):
        page = ctx.ledger.find(replace(query, limit=limit - len(found)))
        found += page.items
        damaged += [DamagedItem(refused.key, refused.reason) for refused in page.refused]
        query = replace(query, after=page.next)
        if page.next is None or len(found) == limit:
            break
    return found, damaged, query.after


def afford(ctx: Context, query: Query, scan: bool, *, way: str = "scan=true") -> dict[str, str]:
    """Raise a problem if the query is expensive and the caller did not allow a scan; otherwise a header with the cost, if there is one.
    `way`: how the caller allows the scan."""
    cost = ctx.ledger.cost_of(query)
    if cost is None or cost.rows < WARN_ROWS:
        return {}
    text = cost_text(query.route, cost)
    if cost.rows > CONFIRM_ROWS and not scan:
        price = {} if cost.dollars is None else {"dollars": cost.dollars}
        raise problem_error("costly", text, field="scan", expected=f"{way}, to read them all", rows=cost.rows, units=cost.units, **price)
    return {"Milepost-Cost": text}


def make_cursor(route: str, wanted: ItemsQuery, place: Any, before: int | None) -> str:
    """A place in the answer to this query, as opaque text."""
    cursor = PageCursor(_check(route, wanted, place, before), place, before)
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def open_cursor(route: str, wanted: ItemsQuery, text: str) -> PageCursor:
    """The place; raises a problem if it belongs to another query, or was changed."""
    refused = problem_error(
        "wrong-value", "the cursor is invalid, or belongs to another query", field="after", expected="the `next` of a page"
    )
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=PageCursor)
    except (ValueError, RecursionError):
        raise refused from None
    if cursor.check != _check(route, wanted, cursor.place, cursor.before):
        raise refused
    return cursor


def _check(route: str, wanted: ItemsQuery, place: Any, before: int | None) -> str:
    question = replace(wanted, after=None, limit=1, scan=False)
    return sha256(msgspec.json.encode((route, question, place, before), order="sorted")).hexdigest()[:16]


class VolumeWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scan: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: str | None = None


class VolumeItems(Struct, frozen=True):
    """Items with files on the volume. Give `next` as `after` to continue; null: this was the last page. A page may be short, or empty,
    even if there are more."""

    items: list[OnVolume]
    next: str | None


@ENDPOINTS.add(
    "GET",
    "/api/v1/routes/{route}/volumes/{volume:path}",
    scope="read",
    query=VolumeWanted,
    answers={200: VolumeItems},
    problems=("unknown-route", "costly"),
    summary="Items with files on a storage volume, such as a tape",
)
def volume_items(state: ServerState, call: Call) -> Answer:
    """Taken from the results of the stages. Every item of the route is read, some at a time: continue with `next` until it is null. Items
    whose rows have left are not included; `milepost volume` reads their kept evidence too."""
    plan, wanted, volume = state.plan(call), call.query, call.path["volume"]
    question = ItemsQuery(prefix=f"volume {volume}")
    begun = None if wanted.after is None else open_cursor(plan.name, question, wanted.after)
    query = replace(all_items(plan.name), after=None if begun is None else begun.place, limit=wanted.limit)
    headers = afford(state.ctx, query, wanted.scan)
    page = state.ctx.ledger.find(query)
    found = [OnVolume(item.key, item.row.status.value, files) for item in page.items if (files := files_on(item.results, volume))]
    following = None if page.next is None else make_cursor(plan.name, question, page.next, None)
    return Answer(VolumeItems(found, following), headers=headers)


class Routes(Struct, frozen=True):
    """By route: `total`, `statuses`, and `stages` with the number of items by status."""

    routes: dict[str, dict[str, Any]]


@ENDPOINTS.add("GET", "/api/v1/status", scope="read", answers={200: Routes}, summary="Counts of items by stage and status, in all routes")
def all_status(state: ServerState, call: Call) -> Answer:
    """As `milepost status --json`, for the routes that the caller sees. Counts of zero are left out."""
    found = status(state.ctx)["routes"]
    return Answer(Routes({name: counted for name, counted in found.items() if call.caller.sees(name)}))


class StageCounts(Struct, frozen=True):
    """A stage: items by status, how many have passed it, and for how long the unfinished ones have been there."""

    stage: str
    statuses: dict[str, int]
    unfinished: int
    past: int
    p50_s: float | None
    p95_s: float | None
    oldest_s: float | None
    paused: bool


class Counts(Struct, frozen=True):
    route: str
    at: str | None
    total: int
    done: int
    failed: int
    cancelled: int
    stages: list[StageCounts]
    paused: bool


@ENDPOINTS.add(
    "GET",
    "/api/v1/routes/{route}/counts",
    scope="read",
    answers={200: Counts},
    problems=("unknown-route",),
    summary="How many items are at each stage, and for how long",
)
def counts(state: ServerState, call: Call) -> Answer:
    """From counters of the ledger, so the call is cheap for any number of items. `p50_s` and `p95_s`: percentiles of the time, in
    seconds, that unfinished items have been at the stage."""
    plan = state.plan(call)
    return Answer(_counts(snapshots(state.ctx, route=plan.name)[plan.name]))


def _counts(seen: Snapshot) -> Counts:
    stages = [
        StageCounts(
            stage.name,
            {word.value: n for word, n in stage.counts.items()},
            stage.among(*LIVE),
            stage.past,
            _seconds(stage.p50_ms),
            _seconds(stage.p95_ms),
            _seconds(stage.oldest_ms),
            stage.paused,
        )
        for stage in seen.stages
    ]
    return Counts(seen.route, iso(seen.at), seen.total, seen.done, seen.failed, seen.cancelled, stages, seen.paused)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
