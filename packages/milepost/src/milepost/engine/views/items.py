"""Views of items, lists and processes as plain values for people and programs. Everything here only
reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.history import Line, line_to_public, origin, verify_chain
from milepost.core.item import Content, Failure, Item, work_id_of
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso, short_span
from milepost.core.values.redaction import redacted
from milepost.engine.breakers import breaker_views
from milepost.engine.context import Context
from milepost.engine.known_keys import known_key
from milepost.engine.ledger_pages import query_pages
from milepost.engine.left_counts import Once, left_counts
from milepost.engine.views.blocks import UNBLOCKED, Blocks, blocks_view, read_blocks
from milepost.engine.views.overdue_counts import overdue_counts
from milepost.ports.documents import (
    LIST,
    PROCESS,
    ROUTE,
    ListRecord,
    Process,
    RouteVersion,
    read_each,
    read_versioned,
)
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query, QueryPage, Refused

log = logging.getLogger(__name__)

SIGNED = "--by YOU --reason '…'"
"""Options that an act needs, for hints."""
ALIVE_MS = 10_000
"""A process writes a heartbeat every two seconds; after this silence it counts as stopped."""


def stage_names(ctx: Context, route: str) -> list[str]:
    """The route's stages in order: from the route file, else from the ledger."""
    plan = ctx.plans.get(route)
    if plan is not None:
        return [stage.name for stage in plan.stages]
    version, _ = read_versioned(ctx.ledger, ROUTE, route, RouteVersion)
    return [] if version is None else [pair[0] for pair in version.shape]


def route_names(ctx: Context) -> list[str]:
    """The configured routes, then those that only the ledger knows."""
    known = list(ctx.plans)
    return known + sorted(
        name for name in read_each(ctx.ledger, ROUTE, RouteVersion) if name not in ctx.plans
    )


def own_route(ctx: Context, route: str) -> bool:
    """Whether this is an internal route of Milepost, to which no items are submitted."""
    plan = ctx.plans.get(route)
    return plan is not None and plan.route.closed is not None


def check_route(ctx: Context, route: str | None) -> None:
    """Raise a UsageError that lists the known routes, if this is not one. None: all routes are
    meant."""
    if route is not None and route not in (names := route_names(ctx)):
        known = ", ".join(names) or "none; give --routes file.py, or set routes in milepost.toml"
        raise UsageError(f"there is no route {route!r}; known routes: {known}")


COUNTED_AFRESH = 1_000
"""Up to this many rows of a route are counted one by one if the counters may lag."""


def status(
    ctx: Context, route: str | None = None, *, afresh: bool = False, once: Once | None = None
) -> dict[str, Any]:
    """Number of items by route, stage and status (see `route_counts`). `left_failed`: failed items
    whose rows have left, by their seals; absent if there are none. `once` caches the latter."""
    found = route_counts(ctx, route, afresh=afresh)
    for name, left in left_counts(ctx, found["routes"], once).items():
        found["routes"][name]["left_failed"] = to_builtins(left)
    return found


def route_counts(ctx: Context, route: str | None = None, *, afresh: bool = False) -> dict[str, Any]:
    """Number of rows by route, stage and status. Includes every stage of every route; zero counts
    are left out. `unknown_stages`: stages of items that the route does not have.

    If the counters may lag (the ledger lacks "exact counts"), `approximate` is true. With `afresh`
    a route of up to 1,000 rows is counted from its rows and is exact; for a larger one whose
    counters lag behind that, `at_least` gives a lower bound.

    `overdue`: by stage, how many items have passed its overdue mark; absent if there are none, or
    the route file is not loaded.
    """
    check_route(ctx, route)
    routes: dict[str, Any] = {}
    for name in route_names(ctx) if route is None else [route]:
        routes[name] = {
            "total": 0,
            "statuses": {},
            "stages": {stage: {} for stage in stage_names(ctx, name)},
            "unknown_stages": [],
        }
    known = {name: tuple(entry["stages"]) for name, entry in routes.items()}
    sums: dict[tuple[str, str, Status], int] = {}
    counts = ctx.ledger.counts(route)
    for count in counts:
        place = (count.route, count.stage, count.status)
        sums[place] = sums.get(place, 0) + count.n
    lagging = (
        _lagging(ctx, routes, sums, afresh)
        if "exact counts" in ctx.ledger.missing_capabilities
        else {}
    )
    for (name, stage, at), n in sorted(
        sums.items(), key=lambda entry: list(Status).index(entry[0][2])
    ):
        if n <= 0:
            continue
        entry = routes.setdefault(
            name, {"total": 0, "statuses": {}, "stages": {}, "unknown_stages": []}
        )
        if (
            known.get(name)
            and stage not in (*known[name], *entry["unknown_stages"])
            and at is not Status.COMPLETED
        ):
            entry["unknown_stages"].append(stage)
        entry["total"] += n
        entry["statuses"][at.value] = entry["statuses"].get(at.value, 0) + n
        stages = entry["stages"].setdefault(stage, {})
        stages[at.value] = n
    for name, note in lagging.items():
        routes[name] |= note
    for name in routes:
        late = {
            stage: one
            for stage, one in overdue_counts(ctx, name, counts, ctx.clock.now()).items()
            if one.most
        }
        if late:
            routes[name]["overdue"] = {
                stage: {"least": one.least, "most": one.most} for stage, one in late.items()
            }
    for one in breaker_views(ctx, route):
        if one.route in routes:
            routes[one.route].setdefault("open_breakers", []).append(to_builtins(one))
    return {"routes": routes}


def _lagging(
    ctx: Context, routes: Iterable[str], sums: dict[tuple[str, str, Status], int], afresh: bool
) -> dict[str, dict[str, Any]]:
    """Accuracy of each route's counts; with `afresh` the counters of small routes are replaced by
    counts of their rows."""
    notes: dict[str, dict[str, Any]] = {}
    for name in routes:
        notes[name] = {"approximate": True}
        places = [place for place in sums if place[0] == name]
        if not afresh or sum(sums[place] for place in places) > COUNTED_AFRESH:
            continue
        page = ctx.ledger.find(Query(route=name, exact=True, limit=COUNTED_AFRESH))
        if page.next is not None:
            notes[name] = {"approximate": True, "at_least": len(page.items)}
            continue
        for place in places:
            del sums[place]
        for item in page.items:
            place = (name, item.row.stage, item.row.status)
            sums[place] = sums.get(place, 0) + 1
        notes[name] = {"approximate": False}
    return notes


CONTENT = (
    "input",
    "payload",
    "results",
    "error",
    "note",
    "kept",
    "handed_over",
    "replaced",
    "history",
)
"""Fields of an item's views that hold what senders, handlers, partners and people have given, and
so perhaps a secret."""


def without_secrets(view: dict[str, Any]) -> dict[str, Any]:
    """A view of an item, for people and for programs that may only read: apparent secrets in its
    content are replaced by `…`."""
    return {name: redacted(value) if name in CONTENT else value for name, value in view.items()}


def show(ctx: Context, route: str, key: str) -> dict[str, Any] | None:
    """Everything about one item, or its seal; None if the key was never seen. With its secrets: see
    `without_secrets`."""
    key = known_key(ctx, route, key)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        [known] = ctx.ledger.peek(route, [key])
        return None if known is None else _sealed(route, known)
    lines = ctx.ledger.history(route, key)
    damaged = item.reason if isinstance(item, Refused) else None
    if isinstance(item, Refused):
        if item.row is None:
            return _damaged(route, key, item, lines)
        item = Item(item.row, Content())
    row = item.row
    broken = chain_broken_at(ctx, item, lines)
    return {
        **row_view(item, read_blocks(ctx, row)),
        "damaged": damaged,
        "input": item.input,
        "payload": item.payload,
        "results": item.results,
        "total_attempts": row.total_attempts,
        "looks": row.looks,
        "losses": row.losses,
        "round": row.round,
        "pass": row.pass_no,
        "work_id": work_id_of(row),
        "version": row.version,
        "overdue_at": iso(row.overdue_at),
        "handed_over": row.handed_over,
        "unknown": row.unknown,
        "note": row.note,
        "kept": row.kept,
        "list_name": list_name(ctx, row.list_id),
        "held_by": row.holder,
        "held_since": iso(row.claimed_at),
        "sealed": False,
        "chain": {"head": row.head.hex(), "verified": broken is None, "broken_at": broken},
        "verified": broken is None,
        "replaced": []
        if row.version == 1
        else earlier_contents(ctx, (written.line for written in lines)),
        "history": [line_to_public(written.line, row.correlation_id) for written in lines],
    }


def row_view(item: Item, blocks: Blocks) -> dict[str, Any]:
    """One item for a table: its row without content. Its fields `blocked` … `breaker` say what
    keeps it from being started."""
    row = item.row
    return {
        "route": row.route,
        "key": row.key,
        "stage": row.stage,
        "status": row.status.value,
        "attempts": row.attempts,
        "lane": row.lane,
        "due_at": iso(row.due_at),
        **blocks_view(blocks),
        "not_before": iso(row.not_before),
        "error": error_view(row.error),
        "correlation_id": row.correlation_id,
        "list": row.list_id,
        "created_at": iso(row.created_at),
        "entered_at": iso(row.entered_at),
        "updated_at": iso(row.updated_at),
        "ended_at": iso(row.entered_at) if row.terminal else None,
    }


def error_view(error: Failure | None) -> dict[str, Any] | None:
    """An item's last error; `group` is the value for `--group`."""
    if error is None:
        return None
    view: dict[str, Any] = {
        "category": error.category,
        "message": error.message,
        "at": iso(error.at),
        "group": error.group,
    }
    if error.details is not None:
        view["details"] = error.details
    if error.http_status is not None:
        view["http_status"] = error.http_status
    return view


def _sealed(route: str, known: KnownKey) -> dict[str, Any]:
    """A key whose row was removed: only its seal is known; of a forgotten item not even the digest
    of its input."""
    absent = (
        "due_at",
        "input",
        "results",
        "error",
        "correlation_id",
        "created_at",
        "held_by",
        "work_id",
        "verified",
    )
    return {
        "route": route,
        "key": known.key,
        "stage": known.stage,
        "status": known.status.value,
        "attempts": 0,
        **dict.fromkeys(absent),
        **blocks_view(UNBLOCKED),
        "list": known.list_id,
        "updated_at": iso(known.ended_at),
        "ended_at": iso(known.ended_at),
        "input_digest": known.input_digest.hex() or None,
        "content_digest": None if known.content_digest is None else known.content_digest.hex(),
        "sealed": True,
        "forgotten": known.forgotten,
        "chain": {"head": known.head.hex(), "verified": None, "broken_at": None},
        "history": [],
    }


def _damaged(
    route: str, key: str, refused: Refused, lines: Sequence[HistoryEntry]
) -> dict[str, Any]:
    """An item whose row cannot be read: only its history is shown."""
    last = lines[-1].line if lines else None
    absent = (
        "due_at",
        "input",
        "results",
        "error",
        "correlation_id",
        "created_at",
        "held_by",
        "work_id",
        "verified",
        "ended_at",
        "list",
    )
    return {
        "route": route,
        "key": key,
        "stage": "" if last is None else last.after_stage,
        "status": (Status.PENDING if last is None else last.status).value,
        "attempts": 0,
        **dict.fromkeys(absent),
        **blocks_view(UNBLOCKED),
        "updated_at": None if last is None else iso(last.at),
        "damaged": refused.reason,
        "sealed": False,
        "chain": {"head": "", "verified": None, "broken_at": None},
        "history": [line_to_public(written.line, written.correlation_id) for written in lines],
    }


def each(ctx: Context, query: Query, limit: int | None = None) -> Iterator[Item]:
    """The matching items, page by page, in constant memory."""

    def readable(page: QueryPage) -> list[Item]:
        for refused in page.refused:
            log.warning(
                "%s/%s skipped, its row cannot be read: %s",
                query.route,
                refused.key,
                refused.reason,
            )
        return page.items

    pages = query_pages(
        ctx.ledger, query if limit is None else replace(query, limit=min(query.limit, limit))
    )
    return islice(chain.from_iterable(map(readable, pages)), limit)


def groups(ctx: Context, route: str | None = None) -> list[dict[str, Any]]:
    """Error groups, the most frequent at present first."""
    check_route(ctx, route)
    found = sorted(
        ctx.ledger.groups(route), key=lambda group: (-group.now, -group.total, group.group)
    )
    return [
        {**to_builtins(group), "first_at": iso(group.first_at), "last_at": iso(group.last_at)}
        for group in found
    ]


def lists(ctx: Context, route: str | None = None) -> list[ListRecord]:
    """The submitted lists, oldest first. One without `keys_blob` was interrupted or is in
    progress."""
    records = (
        record
        for record in read_each(ctx.ledger, LIST, ListRecord).values()
        if route in (None, record.route)
    )
    return sorted(records, key=lambda record: (record.at, record.id))


def list_view(record: ListRecord) -> dict[str, Any]:
    """One list as JSON. An unfinished one was interrupted or is in progress."""
    return {
        "id": record.id,
        "route": record.route,
        "name": record.name,
        "at": iso(record.at),
        "full": record.full,
        "finished": bool(record.keys_blob),
        "by": record.by or None,
        "digest": record.digest or None,
        "counts": record.counts,
    }


def list_name(ctx: Context, list_id: str | None) -> str | None:
    """The name of the list that an item came from, if still recorded."""
    record = None if list_id is None else read_versioned(ctx.ledger, LIST, list_id, ListRecord)[0]
    return None if record is None else record.name


def chain_broken_at(
    ctx: Context, item: Item, lines: list[HistoryEntry] | None = None
) -> int | None:
    """The number of the first history line that fails verification; None if the chain is valid."""
    lines = ctx.ledger.history(item.route, item.key) if lines is None else lines
    links = ((line.previous, line.body) for line in lines)
    broken = verify_chain(
        links, origin(item.route, item.key, item.row.input_digest, item.row.life), item.row.head
    )
    if broken is None:
        return None
    # A changed line shows only where the next one does not match; an unreadable one shows by
    # itself.
    return next(
        (
            number
            for number, written in enumerate(lines, 1)
            if number < broken and unreadable(written.line)
        ),
        broken,
    )


def unreadable(line: Line) -> bool:
    """Whether this line is damaged and cannot be read."""
    return isinstance(line.note, dict) and "unreadable" in line.note and line.version == 0


def chain_fault(broken: int, lines: list[HistoryEntry]) -> str:
    """Description of a chain that breaks at this line."""
    if broken > len(lines):
        return f"the chain is broken after line {broken - 1}: that line was changed, or later ones are missing"
    if unreadable(lines[broken - 1].line):
        return f"the chain is broken at line {broken}: it cannot be read"
    before = "" if broken == 1 else ", or the one before it,"
    return f"the chain is broken at line {broken}: that line{before} was changed, or one is missing"


def live_processes(ctx: Context) -> list[Process]:
    """Running processes, the most recently seen first."""
    now, dead = ctx.clock.now(), set(ctx.ledger.dead_workers())
    recent = (
        process
        for process in processes(ctx)
        if now - process.seen_at <= ALIVE_MS and not process.stopped
    )
    return [process for process in recent if process.holder not in dead]


def processes(ctx: Context) -> list[Process]:
    """All processes of the last week, the most recently seen first."""
    return sorted(
        read_each(ctx.ledger, PROCESS, Process).values(), key=lambda process: -process.seen_at
    )


def counted(n: int, word: str) -> str:
    """Number with noun: '1 item', '2,000 items'."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def clock_time(ms: int, now: int) -> str:
    """A time for people, in local time; with the date only if it is another day."""
    then, today = datetime.fromtimestamp(ms / 1000), datetime.fromtimestamp(now / 1000)
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M")


def when(ms: int, now: int, form: Callable[[int, int], str] = clock_time) -> str:
    """'in 5 min (14:03:12)', or '3 min ago (13:55:01)'."""
    if abs(ms - now) < 1000:
        return f"now ({form(ms, now)})"
    span = short_span(ms - now)
    return f"{f'in {span}' if ms > now else f'{span} ago'} ({form(ms, now)})"


def earlier_contents(ctx: Context, lines: Iterable[Line]) -> list[dict[str, Any]]:
    """The content before each replacement, oldest first, with name, reason and time. `content` is
    absent if its blob cannot be read."""
    found = []
    for line in lines:
        if (
            line.reason is not Reason.REPLACED
            or not isinstance(line.note, dict)
            or "replaced" not in line.note
        ):
            continue
        note = line.note["replaced"]
        entry: dict[str, Any] = {
            "line": line.version,
            "until": iso(line.at),
            "by": line.by,
            "why": line.why,
            "digest": note["digest"],
        }
        if "content" in note:
            entry["content"] = note["content"]
        elif "blob" in note:
            entry["blob"] = note["blob"]
            try:
                entry["content"] = msgspec.json.decode(b"".join(ctx.blobs.read(note["blob"])))
            except (OSError, msgspec.DecodeError):
                pass
        found.append(entry)
    return found
