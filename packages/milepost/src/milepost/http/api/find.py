"""Search over HTTP: a page of the items that match, and counts of items by stage and status."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import fields, replace

from milepost.core.errors import UsageError
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence import OnVolume, files_on
from milepost.engine.left_counts import LeftCount, left_counts
from milepost.engine.left_items import LeftItems, failed_and_left, left_view
from milepost.engine.views.blocks import BlockedLanes
from milepost.engine.views.item_filter import ItemFilter, query_of
from milepost.engine.views.items import row_view, stage_names, status
from milepost.engine.views.late_items import late_item_view, nearest, overdue
from milepost.engine.views.page_tokens import (
    WRONG_TOKEN,
    PageToken,
    find_page,
    make_token,
    read_token,
)
from milepost.engine.views.queries import CONFIRM_ROWS, WARN_ROWS, WORDS, cost_text
from milepost.engine.views.snapshot import snapshots
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState
from milepost.ports.items import Query

READS = 50
"""Maximum ledger queries for one page: a filter with few matches must not occupy a thread for
long."""


class Chosen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter of items, by the parameters of `GET …/items`. All conditions must hold."""

    statuses: list[str] = field(default=[], name="status")
    stages: list[str] = field(default=[], name="stage")
    lane: str | None = None
    group: str | None = None
    list_: str | None = field(default=None, name="list")
    prefix: str | None = None
    parts: list[str] = field(default=[], name="part")
    older_than: str | None = None

    def item_filter(self) -> ItemFilter:
        return ItemFilter(
            statuses=tuple(self.statuses),
            stages=tuple(self.stages),
            lane=self.lane,
            group=self.group,
            list_=self.list_,
            prefix=self.prefix,
            parts=tuple(self.parts),
            older_than=self.older_than,
        )


class ItemsQuery(Chosen, frozen=True, kw_only=True):
    """A filter of items. All conditions must hold."""

    overdue: bool = False
    nearest: bool = False
    oldest_first: bool = False
    scan: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: str | None = None


def choice_of(ctx: Context, route: str, chosen: Chosen, within: str = "") -> Query:
    """`chosen` as a query of the ledger; raises a problem that names a condition that is invalid
    there. `within`: the field of the call that holds the conditions."""
    item_filter = chosen.item_filter()
    try:
        return query_of(ctx, route, item_filter)
    except UsageError as error:
        for condition in fields(Chosen):
            value = getattr(item_filter, condition.name)
            try:
                query_of(ctx, route, ItemFilter(**{condition.name: value}))
            except UsageError as fault:
                if str(fault) == str(error):
                    field = condition.encode_name
                    raise problem_error(
                        "wrong-value",
                        str(error),
                        field=within + field,
                        expected=_expected(ctx, route, field),
                    ) from None
        raise


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
    """A page of items, each as `milepost list --json` shows it: `blocked` (`paused`, `breaker
    open`) and `blocked_because` say what keeps it from being started. Give `next` as `after` to
    continue; null: this was the last page. A page may be short, or empty, even if there are more.
    `refused`: items of this page whose rows are damaged."""

    items: list[dict[str, Any]]
    next: str | None
    more: bool
    refused: list[DamagedItem] = []
    ordered: bool = True
    """False: more items match than this ledger can put in order of time; they come in its own
    order."""
    left: list[dict[str, Any]] = []
    """On the last page: failed items that match and whose rows have left the ledger, from their
    seals."""
    more_left: bool = False
    all_left_known: bool = True
    """False: the ledger has not read all its old seals yet, so that there may be more in `left`."""


@endpoint(
    "GET",
    "/api/v1/routes/{route}/items",
    scope="read",
    query=ItemsQuery,
    answers={200: ItemPage},
    problems=("costly",),
    summary="Items of a route, by status, stage, lane, error, list, age, part of the key or how it begins",
)
def find(state: ServerState, call: Call) -> Answer:
    """`status` is a status, `failed` or `live`, and like `stage` may be repeated; `list` is a
    list's name or id; `part` is `FIELD=VALUE`, a part of a key of several fields (`batchId=B-7`),
    and may be repeated; the item that was accepted last comes first, or with `oldest_first=true`
    the first; `older_than` is a span such as `2d`; `overdue=true` selects overdue items, the
    longest overdue first, and `nearest=true` those closest to completion, each with the reason why
    it waits (both answer with one page: use a larger `limit`). If no index of the ledger serves the
    query and the table is large, add `scan=true` to read all of it."""
    plan, wanted = state.plan(call), call.query
    query = choice_of(state.ctx, plan.name, wanted)
    # Without a filter every row that is read is shown: reading ends with the page, not with the
    # table.
    whole = query == Query(route=plan.name) and not (wanted.overdue or wanted.nearest)
    headers = {} if whole else afford(state.ctx, query, wanted.scan)
    if wanted.overdue or wanted.nearest:
        if wanted.after is not None:
            raise problem_error(
                "wrong-value",
                "overdue and nearest items are answered in one page",
                field="after",
                expected="a larger limit instead",
            )
        now, ask = state.ctx.clock.now(), overdue if wanted.overdue else nearest
        asked, more = ask(state.ctx, query, wanted.limit)
        return Answer(
            ItemPage([late_item_view(one, now) for one in asked], None, more), headers=headers
        )
    search = (plan.name, replace(wanted, after=None, limit=1, scan=False, oldest_first=False))
    try:
        found = find_page(
            state.ctx, query, search, oldest_first=wanted.oldest_first, after=wanted.after, limit=wanted.limit, reads=READS
        )  # fmt: skip
    except UsageError as error:
        raise _wrong_cursor(str(error)) from None
    damaged = [DamagedItem(refused.key, refused.reason) for refused in found.refused]
    lanes = BlockedLanes(state.ctx, plan.name)
    items = [row_view(item, lanes.of(item.row)) for item in found.items]
    left = (
        LeftItems() if found.next is not None else failed_and_left(state.ctx, query, wanted.limit)
    )
    seals = [left_view(plan.name, seal) for seal in left.seals]
    answer = ItemPage(
        items,
        found.next,
        found.next is not None,
        damaged,
        found.ordered,
        seals,
        left.more,
        left.complete,
    )
    return Answer(answer, headers=headers)


def _wrong_cursor(text: str) -> ProblemError:
    return problem_error("wrong-value", text, field="after", expected="the `next` of a page")


def afford(ctx: Context, query: Query, scan: bool, *, way: str = "scan=true") -> dict[str, str]:
    """Raise a problem if the query is expensive and the caller did not allow a scan; otherwise a
    header with the cost, if there is one. `way`: how the caller allows the scan."""
    cost = ctx.ledger.cost_of(query)
    if cost is None or cost.rows < WARN_ROWS:
        return {}
    text = cost_text(query.route, cost)
    if cost.rows > CONFIRM_ROWS and not scan:
        price = {} if cost.dollars is None else {"dollars": cost.dollars}
        raise problem_error(
            "costly",
            text,
            field="scan",
            expected=f"{way}, to read them all",
            rows=cost.rows,
            units=cost.units,
            **price,
        )
    return {"Milepost-Cost": text}


class VolumeWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scan: bool = False
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: str | None = None


class VolumeItems(Struct, frozen=True):
    """Items with files on the volume. Give `next` as `after` to continue; null: this was the last
    page. A page may be short, or empty, even if there are more."""

    items: list[OnVolume]
    next: str | None


@endpoint(
    "GET",
    "/api/v1/routes/{route}/volumes/{volume:path}",
    scope="read",
    query=VolumeWanted,
    answers={200: VolumeItems},
    problems=("costly",),
    summary="Items with files on a storage volume, such as a tape",
)
def volume_items(state: ServerState, call: Call) -> Answer:
    """Taken from the results of the stages. Every item of the route is read, some at a time:
    continue with `next` until it is null. Items whose rows have left are not included; `milepost
    volume` reads their kept evidence too."""
    plan, wanted, volume = state.plan(call), call.query, call.path["volume"]
    search = (plan.name, "volume", volume)
    begun = PageToken("", None) if wanted.after is None else read_token(search, wanted.after)
    if begun is None:
        raise _wrong_cursor(WRONG_TOKEN)
    query = Query(route=plan.name, with_content=True, after=begun.place, limit=wanted.limit)
    headers = afford(state.ctx, query, wanted.scan)
    page = state.ctx.ledger.find(query)
    found = [
        OnVolume(item.key, item.row.status.value, files)
        for item in page.items
        if (files := files_on(item.results, volume))
    ]
    following = None if page.next is None else make_token(search, page.next)
    return Answer(VolumeItems(found, following), headers=headers)


class Routes(Struct, frozen=True):
    """By route: `total`, `statuses`, and `stages` with the number of items by status."""

    routes: dict[str, dict[str, Any]]


@endpoint(
    "GET",
    "/api/v1/status",
    scope="read",
    summary="Counts of items by stage and status, in all routes",
)
def all_status(state: ServerState, call: Call) -> Routes:
    """As `milepost status --json`, for the routes that the caller sees. Counts of zero are left
    out. `left_failed`, of a route that has any: failed items whose rows have left the ledger, as of
    `as_of`; `GET …/items?status=failed` lists their seals."""
    found = status(state.ctx, once=state.ttl_cache.once)["routes"]
    return Routes({name: counted for name, counted in found.items() if call.caller.sees(name)})


class StageCounts(Struct, frozen=True):
    """A stage: items by status, how many have passed it, and for how long the unfinished ones have
    been there. `overdue`: items past its overdue mark, at least; null: it has none. `overdue_most`:
    at most; another number than `overdue` only where the ledger counts by the hour (AWS)."""

    stage: str
    statuses: dict[str, int]
    unfinished: int
    past: int
    p50_s: float | None
    p95_s: float | None
    oldest_s: float | None
    paused: bool
    overdue: int | None = None
    overdue_most: int | None = None


class Counts(Struct, frozen=True):
    route: str
    at: str | None
    total: int
    done: int
    failed: int
    cancelled: int
    stages: list[StageCounts]
    paused: bool
    left_failed: LeftCount | None = None
    """Failed items whose rows have left the ledger, as of a moment; null: there are none."""


@endpoint(
    "GET",
    "/api/v1/routes/{route}/counts",
    scope="read",
    summary="How many items are at each stage, and for how long",
)
def counts(state: ServerState, call: Call) -> Counts:
    """From counters of the ledger, so the call is cheap for any number of items. `p50_s` and
    `p95_s`: percentiles of the time, in seconds, that unfinished items have been at the stage."""
    route = state.plan(call).name
    seen = snapshots(state.ctx, route=route)[route]
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
            None if stage.overdue is None else stage.overdue.least,
            None if stage.overdue is None else stage.overdue.most,
        )
        for stage in seen.stages
    ]
    left = left_counts(state.ctx, [route], state.ttl_cache.once).get(route)
    return Counts(
        seen.route,
        iso(seen.at),
        seen.total,
        seen.done,
        seen.failed,
        seen.cancelled,
        stages,
        seen.paused,
        left,
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
