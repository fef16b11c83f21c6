"""Which items: keys, or conditions that all must hold. Shared by the commands that look and those that act."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from milepost.core.durations import span_ms
from milepost.core.errors import UsageError
from milepost.core.status import FAILED, LIVE, Status

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.ports.ledger import Query

F = TypeVar("F", bound=Callable[..., Any])

LISTS = 5
WORTH_A_WORD, WORTH_ASKING = 1_000, 100_000
"""Rows that are read because no index serves a filter: from so many on that is said, and above so many it is asked about."""
WORDS = {"failed": FAILED, "live": LIVE}
"""Short words for several statuses."""


class Choice(NamedTuple):
    """What was chosen: a query, and the lists (by id) of which one must have brought an item, if several come into question."""

    query: Query
    lists: frozenset[str] | None = None


_OPTIONS = (
    click.option("--status", "statuses", multiple=True, metavar="STATUS", help="A status, 'failed' or 'live'; may be repeated."),
    click.option("--stage", "stages", multiple=True, metavar="STAGE", help="At this stage; may be repeated."),
    click.option("--lane", metavar="LANE", help="In this lane."),
    click.option("--group", metavar="ID", help="With this kind of error (see 'milepost groups')."),
    click.option(
        "--list", "list_", metavar="NAME", help="Brought by the lists of this name, or the one of this id (see 'milepost lists')."
    ),
    click.option("--older-than", metavar="SPAN", help="At its stage, or ended, for longer than this, such as 2d."),
)


def filters(command: F) -> F:
    """Give a command the options that choose items; they arrive as `statuses, stages, lane, group, list_, older_than`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


yes_option = click.option("--yes", is_flag=True, help="Do not ask, whatever it costs to look for the items.")


def afford(ctx: Context, query: Query, yes: bool, *, quiet: bool = False) -> None:
    """Say what looking for these costs, where it costs anything; ask if it is much. Without a terminal --yes must have been said."""
    cost = ctx.ledger.cost_of(query)
    if cost is None or cost.rows < WORTH_A_WORD:
        return
    price = "" if cost.dollars is None else ", less than a cent" if cost.dollars < 0.01 else f", ${cost.dollars:,.2f}"
    told = f"no index serves this: all {cost.rows:,} rows of {query.route} are read, about {cost.units:,} read units{price}"
    if cost.rows <= WORTH_ASKING or yes:
        if not quiet:
            click.echo(f"milepost: {told}", err=True)
    elif sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"{told}. Go on?", abort=True, err=True)
    else:
        raise UsageError(f"{told}; if that is meant, say --yes ('--status failed' is served by an index)")


def any_given(chosen: dict[str, Any]) -> bool:
    return any(chosen.values())


def choice_of(
    ctx: Context,
    route: str,
    *,
    statuses: Iterable[str] = (),
    stages: Iterable[str] = (),
    lane: str | None = None,
    group: str | None = None,
    list_: str | None = None,
    older_than: str | None = None,
    with_content: bool = False,
) -> Choice:
    """The options as a question to the ledger; a stage, group or list that nobody knows is a mistake, not an empty answer."""
    from milepost.engine.observe import check_route
    from milepost.engine.observe import status as status_of
    from milepost.ports.ledger import Query

    check_route(ctx, route)
    stages = frozenset(stages)
    there = status_of(ctx, route)["routes"][route]["stages"]
    for stage in sorted(stages - set(there)):
        raise UsageError(f"route {route!r} has no stage {stage!r}; its stages are {', '.join(there)}")
    before = None
    if older_than is not None:
        before = ctx.clock.now() - span_ms(older_than, "--older-than")
    if group is not None and not any(known.group == group for known in ctx.ledger.groups(route)):
        raise UsageError(f"there is no error group {group!r} in route {route!r}; see 'milepost groups {route}'")
    ids = None if list_ is None else _list_ids(ctx, route, list_)
    only = None if ids is None or len(ids) > 1 else next(iter(ids))
    query = Query(
        route=route,
        statuses=_statuses(statuses),
        stages=stages or None,
        lane=lane,
        group=group,
        list_id=only,
        entered_before=before,
        with_content=with_content,
    )
    return Choice(query, ids if only is None else None)


def _statuses(words: Iterable[str]) -> frozenset[Status] | None:
    found: set[Status] = set()
    for word in words:
        if word.lower() in WORDS:
            found |= WORDS[word.lower()]
        elif word.upper() in Status.__members__:
            found.add(Status[word.upper()])
        else:
            raise UsageError(f"there is no status {word!r}; there are {', '.join(Status)}, failed and live")
    return frozenset(found) or None


def _list_ids(ctx: Context, route: str, name: str) -> frozenset[str]:
    """The one list of that id, or all of that name."""
    from milepost.engine.observe import lists

    records = lists(ctx, route)
    found = frozenset(record.id for record in records if record.id == name)
    found = found or frozenset(record.id for record in records if record.name == name)
    if found:
        return found
    known = ", ".join(list(dict.fromkeys(record.name for record in reversed(records)))[:LISTS]) or "none"
    raise UsageError(f"route {route!r} was never given a list {name!r}; its latest lists: {known}; see 'milepost lists {route}'")
