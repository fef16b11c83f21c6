"""Versions of routes: the ledger stores each route's version and stages, and a change needs an
explicit `routes apply`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import RouteChanged, UsageError
from milepost.core.item import Item, Row
from milepost.core.operators import move
from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.engine.act_log import enter, finish, signed
from milepost.engine.apply import Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.ledger_pages import query_pages
from milepost.engine.routes.backfill import (
    Preview,
    back_fill_decision,
    begin,
    finished_before,
    preview,
    refuse_second,
    rename,
    view,
)
from milepost.engine.views.items import SIGNED, counted
from milepost.ports.documents import (
    ROUTE,
    RouteVersion,
    read_versioned,
    sort_out,
    update,
)
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger

PAGE = 1000
EXAMPLES = 3
"""Example keys of stranded items per stage."""
MOVABLE = frozenset(Status) - {Status.COMPLETED}
FINISHED = "*"
"""Key in `RouteVersion.moves` for finished items; its value is the stage to which they are sent."""
RENAMED = "="
"""Prefix of a stage in `RouteVersion.moves`: the stage is renamed, and its items do not enter it
again."""


class RouteDifference(Struct, frozen=True):
    """Difference between a plan's stages and the ledger's, and the items that it affects.

    `items` counts per stage what would be stranded: unfinished, failed and cancelled items at
    stages that are removed or change their kind.
    """

    route: str
    version: int
    """The ledger's version; 0 if it does not know the route."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[tuple[str, str, str], ...] = ()
    """Stages whose kind changes: (name, was, is)."""
    reordered: bool = False
    kinds: dict[str, str] = {}
    """Kind of each of the ledger's stages."""
    items: dict[str, int] = {}
    examples: dict[str, tuple[str, ...]] = {}
    """Example keys by stage, where rows were read."""

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.changed or self.reordered)

    def __str__(self) -> str:
        parts = [f"added {name!r}" for name in self.added]
        parts += [f"removed {name!r}{self._items(name)}" for name in self.removed]
        parts += [
            f"{name!r} was {was}, is {now}{self._items(name)}" for name, was, now in self.changed
        ]
        parts += ["the order of stages has changed"] if self.reordered else []
        return "; ".join(parts) or "no difference"

    def _items(self, name: str) -> str:
        n = self.items.get(name, 0)
        return f" ({counted(n, 'item')} there)" if n else ""

    @property
    def cure(self) -> str:
        """The command that puts the plan's stages into force."""
        maps = "".join(f"--map {stage}=STAGE " for stage in self.removed if self.items.get(stage))
        return f"milepost routes apply {self.route} {maps}{SIGNED}"


def register(ledger: Ledger, plan: Plan, now: int, by: str) -> Plan:
    """The plan at the ledger's version; an unknown route becomes version 1.

    Raises RouteChanged if the ledger has other stages under this name.
    """

    def registered(stored: RouteVersion | None) -> RouteVersion:
        if stored is None:
            return RouteVersion(1, plan.digest, list(map(list, plan.shape)), now, by)
        if stored.digest != plan.digest:
            difference = compare(ledger, plan)
            raise RouteChanged(
                f"route {plan.name!r} differs from the ledger's version {stored.version}: {difference}. To apply it: {difference.cure}"
            )
        return stored

    return plan.at_version(update(ledger, ROUTE, plan.name, RouteVersion, registered).after.version)


def compare(ledger: Ledger, plan: Plan, census: Census | None = None) -> RouteDifference:
    """Difference between the plan and the ledger's version. Items are counted by the counters,
    which may lag, or by the given census."""
    stored, _ = read_versioned(ledger, ROUTE, plan.name, RouteVersion)
    if stored is None:
        return RouteDifference(plan.name, 0, added=tuple(plan.by_name))
    was, now = {pair[0]: pair[1] for pair in stored.shape}, dict(plan.shape)
    removed = tuple(name for name in was if name not in now)
    changed = tuple(
        (name, was[name], now[name]) for name in now if name in was and was[name] != now[name]
    )
    concerned = {*removed, *(name for name, _, _ in changed)}
    census = census or by_counters(ledger, plan.name)
    return RouteDifference(
        plan.name,
        stored.version,
        added=tuple(name for name in now if name not in was),
        removed=removed,
        changed=changed,
        reordered=[name for name in was if name in now] != [name for name in now if name in was],
        kinds=was,
        items=census.at(
            lambda stage, status: stage in concerned and status is not Status.COMPLETED
        ),
        examples={stage: census.keys[stage] for stage in concerned if stage in census.keys},
    )


def outdated(ctx: Context) -> list[str]:
    """Routes of which the ledger has another version than this process, which therefore stands
    by."""
    stored, damaged = sort_out(ctx.ledger.read(ROUTE), ROUTE, RouteVersion)
    return [
        name
        for name, plan in ctx.plans.items()
        if name in damaged or (name in stored and stored[name][0].version != plan.version)
    ]


def standing_by(ctx: Context) -> str:
    """Why this process does nothing for some of its routes; empty: it has the ledger's version of
    each."""
    old = outdated(ctx)
    return (
        f"the ledger holds a newer version of {', '.join(old)}; restart it with the present route file"
        if old
        else ""
    )


def route_view(ctx: Context, name: str) -> dict[str, Any]:
    """One route as JSON. `cure`: the command that puts a changed file into force."""
    stored, _ = read_versioned(ctx.ledger, ROUTE, name, RouteVersion)
    plan = ctx.plans.get(name)
    difference = None if plan is None else compare(ctx.ledger, plan)
    if difference is None:
        text = "not given"
    elif stored is None:
        text = "not in the ledger yet"
    else:
        text = "the same" if difference.same else str(difference)
    return {
        "route": name,
        "version": None if stored is None else stored.version,
        "digest": None if stored is None else stored.digest,
        "at": None if stored is None else iso(stored.at),
        "by": None if stored is None else stored.by,
        "stages": [
            list(pair)
            for pair in (
                stored.shape if stored is not None else plan.shape if plan is not None else []
            )
        ],
        "remembers_s": None
        if plan is None or plan.route.remember_ms is None
        else plan.route.remember_ms / 1000,
        "differs": bool(difference is not None and stored is not None and not difference.same),
        "difference": text,
        "cure": None
        if difference is None or stored is None or difference.same
        else difference.cure,
        "back_fill": view(ctx, name),
    }


class Applied(Struct, frozen=True):
    """Result of applying a route. `left` counts, by stage, unfinished items still at removed
    stages."""

    version: int
    difference: RouteDifference
    moves: dict[str, str | None] = {}
    moved: int = 0
    renamed: dict[str, int] = {}
    """Items at renamed stages, by old name; they do not move."""
    back_filled: int = 0
    left: dict[str, int] = {}
    back_fill: Preview | None = None
    """Back-fill that a dry run previews or the resender will carry out."""


def apply_route(
    ctx: Context,
    plan: Plan,
    *,
    mapping: dict[str, str | None],
    by: str,
    reason: str,
    dry_run: bool = False,
    back_fill: str | None = None,
    pace: float | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Applied:
    """Put the plan's stages into force, and move the route's items accordingly.

    `mapping`: where the items of each removed stage go: to a stage of the plan (a rename if that
    stage is new and of the same kind), or None to cancel them. `back_fill`: an added stage to which
    finished items are sent, at once or, with a `pace` (items per second), by the resender. The
    context uses the plan from then on. The version is raised first, so that older processes stand
    by. Pending moves are stored with it, and the same call continues them after a crash.
    """
    if not dry_run:
        signed(by, reason)
    ledger = ctx.ledger
    decide = partial(_decide, ctx, plan, mapping=mapping, by=by, back_fill=back_fill, pace=pace)
    if dry_run:
        stored, _ = read_versioned(ledger, ROUTE, plan.name, RouteVersion)
        return _previewed(ledger, plan, decide(stored))
    decision: _Decision | None = None

    def decided(present: RouteVersion | None) -> RouteVersion:
        nonlocal decision
        decision = decide(present)
        return decision.target

    applying = update(ledger, ROUTE, plan.name, RouteVersion, decided)
    assert decision is not None
    difference = decision.difference
    renamed = decision.renamed
    target = decision.target
    moves = target.moves
    plan = ctx.take(plan.at_version(target.version))
    if applying.before is None or not (applying.written or moves):
        return Applied(target.version, difference)
    act = enter(
        ctx,
        "apply",
        plan.name,
        by,
        reason,
        {"version": target.version, "moves": moves},
        f"{plan.name}-v{target.version}",
    )
    moved, sent_on = _carry_out(
        ctx, plan, target, {"by": by, "why": reason, "act": act.id}, on_progress or (lambda n: None)
    )
    left = stranded(exact_census(ledger, plan, gone=moves), plan)
    _settle_moves(
        ledger, plan.name, target, {stage: to for stage, to in moves.items() if stage in left}
    )
    if not left:
        finish(ctx, act, moved + sent_on + sum(renamed.values()))
    to = moves.get(FINISHED)
    paced = (
        None
        if to is None or target.pace is None
        else preview(ledger, plan, to, target.pace, with_seals=False)
    )
    return Applied(target.version, difference, moves, moved, renamed, sent_on, left, paced)


class _Decision(Struct, frozen=True):
    """What applying a route comes to, as the ledger's version is now."""

    difference: RouteDifference
    target: RouteVersion
    """The version to be stored, with the moves that are to be carried out."""
    renamed: dict[str, int] = {}
    left: dict[str, int] = {}
    """Unfinished items at stages that the plan does not have, before the moves."""


def _decide(
    ctx: Context,
    plan: Plan,
    stored: RouteVersion | None,
    *,
    mapping: dict[str, str | None],
    by: str,
    back_fill: str | None,
    pace: float | None,
) -> _Decision:
    """Decide on the version to be stored in place of the present one; UsageError if that is not
    possible."""
    ledger = ctx.ledger
    census = exact_census(ledger, plan)
    difference = compare(ledger, plan, census)
    now = ctx.clock.now()
    shape = list(map(list, plan.shape))
    if stored is None:
        return _Decision(difference, RouteVersion(1, plan.digest, shape, now, by))
    begun, begun_pace = (stored.moves, stored.pace) if difference.same else ({}, None)
    moves = _moves(difference, plan, mapping, back_fill, begun, census)
    if moves.get(FINISHED) is not None and FINISHED not in begun:
        refuse_second(ledger, plan.name)
    at_pace = pace or begun_pace
    if difference.same:
        target = replace(stored, moves=moves, pace=at_pace)
    else:
        target = RouteVersion(stored.version + 1, plan.digest, shape, now, by, moves, at_pace)
    return _Decision(difference, target, _renamed_items(census, moves), stranded(census, plan))


def _previewed(ledger: Ledger, plan: Plan, decision: _Decision) -> Applied:
    """What a decision would come to."""
    target = decision.target
    to = target.moves.get(FINISHED)
    coming = None if to is None else preview(ledger, plan, to, target.pace, with_seals=True)
    return Applied(
        target.version,
        decision.difference,
        target.moves,
        renamed=decision.renamed,
        left=decision.left,
        back_fill=coming,
    )


class Census(Struct):
    """Number of items by stage and status, and example keys per stage where rows were read."""

    n: Counter[tuple[str, Status]]
    keys: dict[str, tuple[str, ...]] = {}

    def at(self, which: Callable[[str, Status], bool]) -> dict[str, int]:
        """Number of matching items by stage."""
        sums: Counter[str] = Counter()
        for (stage, status), n in self.n.items():
            if n > 0 and which(stage, status):
                sums[stage] += n
        return dict(sums)


def by_counters(ledger: Ledger, route: str) -> Census:
    """Census from the ledger's counters."""
    sums: Counter[tuple[str, Status]] = Counter()
    for count in ledger.counts(route):
        sums[count.stage, count.status] += count.n
    return Census(sums)


def exact_census(ledger: Ledger, plan: Plan, gone: Collection[str] = ()) -> Census:
    """Census for `routes apply`: exact, with example keys, for every stage that the plan lacks,
    that changes its kind, or that is in `gone`. If counters may lag and there is such a stage, all
    rows are read."""
    stored, _ = read_versioned(ledger, ROUTE, plan.name, RouteVersion)
    census = by_counters(ledger, plan.name)
    kinds = dict(plan.shape)
    was = (
        {}
        if stored is None
        else {pair[0]: pair[1] for pair in stored.shape} | dict.fromkeys(stored.moves, "")
    )
    known = {*was, *gone, *(stage for stage, _ in census.n)} - {FINISHED}
    concerned = frozenset(
        stage
        for stage in known
        if kinds.get(stage) is None or kinds[stage] != was.get(stage, kinds[stage])
    )
    if not concerned:
        return census
    if "exact counts" not in ledger.missing_capabilities:
        stages = {stage for stage, _ in census.n} & concerned
        return Census(
            census.n,
            {
                stage: tuple(item.key for item in _found(ledger, plan.name, {stage}, EXAMPLES))
                for stage in stages
            },
        )
    # Finished items are at no stage; for them the counters suffice.
    n = Counter(
        {
            place: count
            for place, count in census.n.items()
            if place[0] not in concerned or place[1] not in MOVABLE
        }
    )
    keys: dict[str, tuple[str, ...]] = {}
    for item in _found(ledger, plan.name, concerned):
        n[item.row.stage, item.row.status] += 1
        keys[item.row.stage] = (*keys.get(item.row.stage, ()), item.key)[:EXAMPLES]
    return Census(n, keys)


def _found(
    ledger: Ledger, route: str, stages: Collection[str], most: int | None = None
) -> Iterator[Item]:
    """Items at these stages that would be stranded: all, or `most` of them."""
    query = Query(
        route=route, stages=frozenset(stages), statuses=MOVABLE, exact=True, limit=most or PAGE
    )
    return islice((item for page in query_pages(ledger, query) for item in page.items), most)


def stranded(census: Census, plan: Plan) -> dict[str, int]:
    """Unfinished items at stages that the plan does not have, by stage."""
    return census.at(lambda stage, status: stage not in plan.by_name and status in LIVE)


def _renamed_items(census: Census, moves: dict[str, str | None]) -> dict[str, int]:
    """Items at renamed stages, by old name."""
    return census.at(lambda stage, status: (moves.get(stage) or "").startswith(RENAMED))


def _moves(
    difference: RouteDifference,
    plan: Plan,
    mapping: dict[str, str | None],
    back_fill: str | None,
    begun: dict[str, str | None],
    census: Census,
) -> dict[str, str | None]:
    """Where items of each stage move; UsageError if a removed stage with items has no
    destination."""
    strays = stranded(census, plan)
    items = strays | {
        stage: n for stage, n in difference.items.items() if stage in difference.removed
    }
    gone = {*difference.removed, *strays, *(stage for stage in begun if stage not in plan.by_name)}
    for stage, to in mapping.items():
        if stage not in gone:
            raise UsageError(
                f"{stage!r} is not a removed stage of route {plan.name!r}; removed: {', '.join(sorted(gone)) or 'none'}"
            )
        if to is not None and to not in plan.by_name:
            raise UsageError(
                f"{stage!r} cannot move to {to!r}; stages of route {plan.name!r} are {', '.join(plan.by_name)}"
            )
    open_ends = [stage for stage in items if stage not in mapping and stage not in begun]
    if open_ends:
        counts = ", ".join(
            f"{items[stage]:,} at {stage!r}{_named(census.keys.get(stage, ()), items[stage])}"
            for stage in open_ends
        )
        raise UsageError(
            f"route {plan.name!r} has items at removed stages: {counts}. Give a destination for each (--map OLD=NEW), or cancel them (--map OLD=)"
        )
    if (
        back_fill is not None
        and back_fill not in difference.added
        and begun.get(FINISHED) != back_fill
    ):
        added = ", ".join(difference.added) or "none"
        raise UsageError(f"finished items can only be sent to an added stage; added: {added}")
    moves = dict(begun)
    kinds = dict(plan.shape)
    for stage, to in mapping.items():
        same_work = to in difference.added and difference.kinds.get(stage) == kinds[to]
        moves[stage] = f"{RENAMED}{to}" if same_work else to
    moves |= {name: name for name, _, _ in difference.changed}
    if back_fill is not None:
        moves[FINISHED] = back_fill
    return moves


def _named(keys: tuple[str, ...], n: int) -> str:
    return f" ({', '.join(keys)}{', …' if n > len(keys) else ''})" if keys else ""


def _carry_out(
    ctx: Context,
    plan: Plan,
    target: RouteVersion,
    author: dict[str, str],
    on_progress: Callable[[int], None],
) -> tuple[int, int]:
    """Carry out `target.moves`; returns the numbers of items moved and sent."""
    moved = sent_on = 0
    for stage, to in target.moves.items():
        if to is not None and to.startswith(RENAMED):
            ctx.ledger.rename_stage(plan.name, stage, to.removeprefix(RENAMED))
            rename(ctx.ledger, plan.name, stage, to.removeprefix(RENAMED))
        elif stage == FINISHED:
            assert to is not None
            if target.pace is not None:
                begin(ctx, plan, to, target.pace, target.at, by=author["by"], reason=author["why"])
                continue
            sending = back_fill_decision(ctx, plan, to, target.at, author)
            sent_on = _sweep(
                ctx, finished_before(plan.name, target.at), sending, moved, on_progress
            )
        else:
            query = Query(route=plan.name, stages=frozenset({stage}), statuses=MOVABLE)
            if stage == to:
                # Only its kind has changed: offer waiting items again; items that a worker holds
                # are decided when it is done.
                query = replace(
                    query, statuses=LIVE - {Status.PROCESSING}, changed_before=target.at + 1
                )
            moved += _sweep(ctx, query, _mover(ctx, plan, to, author), moved, on_progress)
    return moved, sent_on


def _mover(ctx: Context, plan: Plan, to: str | None, author: dict[str, str]) -> Decision:
    return lambda item: move(item, plan, to, ctx.clock.now(), **author)


def _sweep(
    ctx: Context, query: Query, decision: Decision, before: int, on_progress: Callable[[int], None]
) -> int:
    """Apply a decision to all matching items, page by page; returns the number written."""
    done = 0
    for page in query_pages(ctx.ledger, replace(query, with_content=True, limit=PAGE)):
        done += sum(
            isinstance(answer, Row)
            for answer in apply_all(ctx, [(item, decision) for item in page.items])
        )
        on_progress(before + done)
    return done


def _settle_moves(
    ledger: Ledger, route: str, target: RouteVersion, again: dict[str, str | None]
) -> None:
    """Store the remaining moves (none, or `again`), unless the route has changed again."""

    def settled(stored: RouteVersion | None) -> RouteVersion | None:
        if stored is None or stored.version != target.version or stored.moves == again:
            return stored
        return replace(stored, moves=again, pace=None)

    update(ledger, ROUTE, route, RouteVersion, settled)
