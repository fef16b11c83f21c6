"""Log of operator acts (who, what, which items, why), and the selection of items by which an
interrupted act continues.

The line that an act makes in each item's history is another thing: `core.operators` makes it, with
the same name and reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import ActConflict, LedgerReadOnly, UsageError
from milepost.core.future import from_future
from milepost.core.item import Item, Row
from milepost.core.values.difference import FieldDifference
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.core.values.refusal import SAID_BEFORE, Refusal
from milepost.engine.context import Context
from milepost.engine.known_keys import known_keys
from milepost.engine.ledger_pages import query_pages
from milepost.engine.views.items import SIGNED
from milepost.engine.views.queries import count_of_matches
from milepost.ports.documents import ACT, ACT_OF_ROUTE, Act, read_each, read_versioned, update
from milepost.ports.items import Query, Refused

log = logging.getLogger(__name__)

Page = Sequence[tuple[str, Item | Refused | None]]
"""Items with their keys: None where the key has no item, Refused where its row cannot be read."""
BATCH = 1000
SHOWN = 100


class ActReport(Struct):
    """Result of an act; with `dry_run`, the result it would have."""

    id: str
    verb: str
    route: str
    dry_run: bool = False
    matched: int = 0
    done: int = 0
    refused: list[tuple[str, str]] = []
    """The first hundred refused items: (key, reason)."""
    refused_count: int = 0
    known: int = 0
    """Among those: items with a repeated confirmation, which is no failure."""
    skipped: int = 0
    """Items that an earlier run of this act has already handled."""
    left_out: int = 0
    """Items that match, but were changed after the act began, so that it leaves them alone."""
    from_future: int = 0
    """Among those: items that are dated in the future, by a clock that was ahead; the act `redate`
    dates them as of now."""
    retried: int = 0
    """Conflicting writes that were decided again."""
    difference: list[FieldDifference] = []
    """For a replacement: the fields that differ between old and new content."""
    pace_per_s: float | None = None
    """Set if the resender carries the act out at this rate; None if the act is done."""
    finished_at: str | None = None
    """When the act finished; a repeat with its id gets the same answer, with the same time. None:
    nothing was done, or it goes on."""

    @property
    def done_nothing(self) -> bool:
        """Whether items match, and all of them were left out."""
        return self.left_out > 0 and not self.done and not self.skipped

    def leave_out(self, row: Row, now: int) -> None:
        self.left_out += 1
        self.from_future += from_future(row, now)

    def refuse(self, key: str, why: Refusal) -> None:
        self.refused_count += 1
        self.known += why.kind in SAID_BEFORE
        if len(self.refused) < SHOWN:
            self.refused.append((key, why.text))


class Selection(Struct, frozen=True):
    """The items of an act, on one route: keys, or the matches of a query."""

    route: str
    keys: tuple[str, ...] | None = None
    query: Query | None = None
    asked: Mapping[str, Any] | None = None
    """The filter as the caller gave it. Without it the query itself counts as given."""

    @property
    def is_single(self) -> bool:
        """Whether it is one key, or none: then the act has no id of its own in the history."""
        return self.keys is not None and len(self.keys) <= 1

    def to_record(self) -> dict[str, Any]:
        """As stored with the act: a query in full; of keys, their number and digest."""
        if self.keys is not None:
            return {"keys": len(self.keys), "digest": digest_of_keys(self.keys)}
        assert self.query is not None
        return {"query": _query_record(self.query)}

    def asked_record(self) -> dict[str, Any] | None:
        """The filter as given, in the form in which it is stored and compared; None for keys."""
        if self.query is None:
            return None
        asked = _query_record(self.query) if self.asked is None else self.asked
        return dict(msgspec.json.decode(canonical_json(asked)))

    def pages(self, ctx: Context) -> Iterator[Page]:
        """The items with their content, in batches. A query also finds items that have changed
        since the act began (see `engine.acts.bulk`)."""
        if self.keys is not None:
            for start in range(0, len(self.keys), BATCH):
                batch = self.keys[start : start + BATCH]
                items = ctx.ledger.get([(self.route, key) for key in batch])
                yield list(zip(batch, items, strict=True))
            return
        assert self.query is not None
        query = replace(self.query, with_content=True, limit=BATCH, after=None)
        for page in query_pages(ctx.ledger, query):
            yield [
                *((item.key, item) for item in page.items),
                *((refused.key, refused) for refused in page.refused),
            ]

    def expected(self, ctx: Context) -> int | None:
        """Approximate number of items, if the counters can tell."""
        if self.keys is not None:
            return len(self.keys)
        assert self.query is not None
        return count_of_matches(ctx, self.query)


def digest_of_keys(keys: Sequence[str]) -> str:
    """The digest by which a repeat of an act is seen to have the same keys."""
    return sha256("\n".join(keys).encode()).hexdigest()


def _query_record(query: Query) -> dict[str, Any]:
    """The conditions of a query that are set, as stored with an act."""
    conditions = msgspec.to_builtins(replace(query, after=None))
    return {
        name: sorted(value) if isinstance(value, list) else value
        for name, value in conditions.items()
        if value not in (None, [])
    }


def select(
    ctx: Context,
    route: str,
    *,
    keys: Sequence[str] | None = None,
    query: Query | None = None,
    asked: Mapping[str, Any] | None = None,
) -> Selection:
    """Check and build a selection from either keys or a query; `asked`: the filter from which the
    query was made."""
    ctx.plan(route)
    if (keys is None) == (query is None):
        raise UsageError("select items by either keys or a filter")
    if query is not None and query.route != route:
        raise UsageError(f"the filter is for route {query.route!r}, the act for {route!r}")
    if keys is None:
        return Selection(route, None, query, asked)
    return Selection(route, tuple(dict.fromkeys(known_keys(ctx, route, keys))))


def begin(ctx: Context, act: Act, *, dry_run: bool = False) -> Act:
    """Record the act. If its id is already recorded, return that act, so that it continues."""
    if not dry_run and ctx.ledger.write(ACT, act.id, act, expect=0):
        return act
    begun, _ = read_versioned(ctx.ledger, ACT, act.id, Act)
    if begun is None:
        return act
    check_repeat(begun, act)
    return begun


def check_repeat(begun: Act, act: Act) -> None:
    """Raise unless the act asks for the same as the recorded one with its id. Filters are compared
    as they were given: the query that was made of one may contain a time relative to the call, and
    a list name may match more lists by now."""
    check_same(begun, act.verb, act.route)
    same_options = {**begun.filter, "query": None} == {**act.filter, "query": None}
    if not same_options or not _same_filter(begun, act):
        raise ActConflict(
            f"act {act.id!r} is on record with other items or options; leave the id out to start a new act"
        )


def check_same(begun: Act, verb: str, route: str) -> None:
    """Raise unless verb and route are those of the recorded act."""
    for what, then, now in (("verb", begun.verb, verb), ("route", begun.route, route)):
        if then != now:
            raise ActConflict(
                f"act {begun.id!r} is on record with the {what} {then!r}, not {now!r}; leave the id out to start a new act"
            )


def _same_filter(begun: Act, act: Act) -> bool:
    if begun.asked is not None or "query" not in begun.filter:
        return begun.asked == act.asked
    # An earlier version recorded the query alone.
    return "query" in act.filter and _timeless(begun.filter["query"]) == _timeless(
        act.filter["query"]
    )


def _timeless(query: Mapping[str, Any]) -> Query:
    """A recorded query without the conditions that depend on the time of the call."""
    return replace(
        msgspec.convert(query, Query), entered_before=None, changed_before=None, lists=None
    )


def first_answer(act: Act) -> ActReport:
    """The answer of the call that finished the act. Of an act that an earlier version recorded, the
    numbers alone are known."""
    if act.report is not None:
        return msgspec.convert(act.report, ActReport)
    finished_at = iso(act.finished_at)
    return ActReport(
        act.id,
        act.verb,
        act.route,
        matched=act.done + act.refused,
        done=act.done,
        refused_count=act.refused,
        finished_at=finished_at,
    )


def add_progress(ctx: Context, act_id: str, *, done: int, refused: int) -> None:
    """Record the progress of an act: `done` more items, by this call; `refused` items, as far as
    this call has come."""

    def moved(act: Act) -> Act:
        return replace(act, done=act.done + done, refused=refused, moved_at=ctx.clock.now())

    _change_unfinished(ctx, act_id, moved)


def finish_with(ctx: Context, act_id: str, report: ActReport) -> ActReport:
    """Record that the act has finished, with its answer; returns the answer that is on record. If
    another call with the same id has finished it, that is the other one's."""
    now = ctx.clock.now()
    # With the counters the feed follows the rows with a delay: then the last line of the act may
    # have no place yet.
    to_seq = None if "exact counts" in ctx.ledger.missing_capabilities else ctx.ledger.last_seq()
    report.finished_at = iso(now)
    # The difference is content of an item: it stays where the item's content is.
    answer = msgspec.to_builtins(replace(report, difference=[]))

    def finished(act: Act) -> Act:
        return replace(act, moved_at=now, finished_at=now, report=answer, to_seq=to_seq)

    act = _change_unfinished(ctx, act_id, finished)
    return report if act.report == answer else first_answer(act)


def record_single(ctx: Context, act: Act, report: ActReport, key: str) -> None:
    """Record an act on a single item, after it. Its line in the item's history has name and reason,
    but not the id of the act."""
    now = ctx.clock.now()
    about = {**act.filter, "key": key}
    single = replace(
        act,
        filter=about,
        done=report.done,
        refused=report.refused_count,
        expected=1,
        moved_at=now,
        finished_at=now,
    )
    try:
        ctx.ledger.write(ACT, act.id, single, expect=0)
    except LedgerReadOnly as error:
        # A process on AWS may be allowed to change items and not to write this log; the item's
        # history has the act in any case.
        log.warning("act on %s/%s is not in the log of acts: %s", act.route, key, error)


def acts_after(acts: Sequence[Act], after: str | None) -> list[Act]:
    """The acts that follow the one with this id, in their order; all without an id. UsageError if
    there is none with this id."""
    if after is None:
        return list(acts)
    place = next((number for number, act in enumerate(acts) if act.id == after), None)
    if place is None:
        raise UsageError(
            f"there is no act {after!r} among these; give the `next` of the page before, of the same search"
        )
    return list(acts[place + 1 :])


def _change_unfinished(ctx: Context, act_id: str, change: Callable[[Act], Act]) -> Act:
    """Change the record of an act, unless it has finished; returns the record as it then is."""

    def changed(act: Act | None) -> Act:
        if act is None:
            raise UsageError(
                f"there is no act {act_id!r} on record any more; what it has changed is in the items' histories"
            )
        return act if act.finished_at is not None else change(act)

    return update(ctx.ledger, ACT, act_id, Act, changed).after


def selection_of(act: Act, given: Selection) -> Selection:
    """The selection with which an act was begun."""
    recorded = act.filter.get("query")
    if recorded is None:
        return given
    return replace(given, query=msgspec.convert(recorded, Query))


def has_line(ctx: Context, row: Row, act_id: str) -> bool:
    """Whether this act has already written a history line for the item."""
    return any(
        written.line.act == act_id for written in reversed(ctx.ledger.history(row.route, row.key))
    )


def record(
    ctx: Context,
    verb: str,
    route: str,
    by: str,
    reason: str,
    about: dict[str, Any],
    done: int = 1,
    *,
    by_program: bool = False,
) -> None:
    """Record an act that is done at once and changes no item (a pause, a limit, a release).
    `by_program`: the id begins with the route, so that on AWS a worker's role can write such
    records of its own route alone (see `ports.documents.ACT_OF_ROUTE`)."""
    of_route = f"{route}{ACT_OF_ROUTE}{ctx.chance.token()}"
    try:
        act = enter(ctx, verb, route, by, reason, about, of_route if by_program else None)
    except LedgerReadOnly:
        # A handler that pauses in another's name.
        act = enter(ctx, verb, route, by, reason, about, of_route)
    finish(ctx, act, done)


def enter(
    ctx: Context,
    verb: str,
    route: str,
    by: str,
    reason: str,
    about: dict[str, Any],
    act_id: str | None = None,
) -> Act:
    """Record an act before it begins. An interrupted act with this id is continued; if that one has
    finished, the new act gets another id."""
    act = Act(act_id or ctx.chance.token(), verb, route, by, reason, ctx.clock.now(), about)
    if ctx.ledger.write(ACT, act.id, act, expect=0):
        return act
    begun = recorded(ctx, act.id)
    return begun if begun.finished_at is None else enter(ctx, verb, route, by, reason, about)


def finish(ctx: Context, act: Act, done: int) -> None:
    """Record that the act has finished, with the number done."""
    ctx.ledger.write(ACT, act.id, replace(act, done=act.done + done, finished_at=ctx.clock.now()))


def recorded(ctx: Context, act_id: str) -> Act:
    """The recorded act with this id; UsageError if there is none."""
    found, _ = read_versioned(ctx.ledger, ACT, act_id, Act)
    if found is None:
        raise UsageError(f"there is no act {act_id!r} on record; see 'milepost acts'")
    return found


def all_acts(
    ctx: Context, route: str | None = None, verb: str | None = None, by: str | None = None
) -> list[Act]:
    """Recorded acts, latest first, filtered by route, verb and name. An act of a program on behalf
    of a person ("desk for ops") is found by either name."""
    chosen = (
        act
        for act in read_each(ctx.ledger, ACT, Act).values()
        if route in (None, act.route) and verb in (None, act.verb)
    )
    return sorted(
        (act for act in chosen if by in (None, act.by, *act.by.split(" for ", 1))),
        key=lambda act: (-act.started_at, act.id),
    )


def control_in_words(about: Mapping[str, Any], when: Callable[[str], str]) -> str:
    """The scope of a control and what was set there, such as 'parcels/weigh until 18:00, then
    10/s'; `when` writes a time. `about` is an act's, as `act_view` gives it."""
    drains = about.get("drain")
    parts = [
        about.get("until") and f"until {when(about['until'])}",
        drains and drains is not True and f"{'then ' if about.get('until') else 'at '}{drains}",
        about.get("rate"),
        about.get("concurrency") and f"{about['concurrency']} at a time",
        about.get("clear") and "as the route says",
    ]
    said = ", ".join(str(part) for part in parts if part)
    return f"{about['scope']} {said}".rstrip()


def act_view(act: Act) -> dict[str, Any]:
    """One act as JSON. `go_on`: the command that continues an unfinished act. `expected`:
    approximate number of items at its start, if known. `moved_at`: time of its last progress."""
    return {
        "id": act.id,
        "verb": act.verb,
        "route": act.route or None,
        "by": act.by,
        "reason": act.reason,
        "started_at": iso(act.started_at),
        "moved_at": iso(act.moved_at),
        "finished_at": iso(act.finished_at),
        "finished": act.finished_at is not None,
        "expected": act.expected,
        "done": act.done,
        "refused": act.refused,
        "about": _about(act.filter),
        "go_on": None if act.finished_at is not None else _go_on(act),
    }


def _about(filter: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an act, with times as ISO text. Of an act on a single item the key says
    all."""
    if "key" in filter:
        filter = {name: value for name, value in filter.items() if name not in ("keys", "digest")}
    query = {
        name: value for name, value in filter.get("query", {}).items() if name not in _NOT_CHOSEN
    }
    times = {name: iso(value) for name, value in query.items() if name.endswith("_before")}
    return {
        name: query | times if name == "query" else value
        for name, value in filter.items()
        if value is not None
    }


_NOT_CHOSEN = ("route", "with_content", "limit")


def _go_on(act: Act) -> str:
    if act.verb == "prune":
        named = "".join(f"--status {status} " for status in act.filter.get("statuses", ()))
        return f"milepost prune {act.route} --older-than {act.filter['older_than']} {named}{SIGNED}"
    if act.verb == "forget":
        return f"milepost forget {act.route} THE SAME KEY {SIGNED}"
    if act.verb == "redate":
        return f"milepost redate {act.route} --act {act.id} {SIGNED}"
    if act.verb == "adopt":
        return f"milepost adopt {act.route} {'--all' if act.filter['keys'] == 'all' else 'THE SAME KEYS'} {SIGNED}"
    if act.verb == "apply":
        return f"milepost routes apply {act.route} {SIGNED}"
    if act.verb == "back-fill" or "pace" in act.filter:
        return "milepost up"
    if "list" in act.filter:
        return f"milepost submit {act.route} FILE --replace-changed {SIGNED}"
    which = "" if "query" in act.filter else " THE SAME KEYS"
    return f"milepost {act.verb} {act.route}{which} --act {act.id} {SIGNED}"


def signed(by: str, reason: str) -> None:
    """Raise unless an act has a name and a reason."""
    if not (by and by.strip()) or not (reason and reason.strip()):
        raise UsageError("an act needs a name and a reason: your name, and why you do it")
