"""Claiming: due items of open lanes, within pauses, rates and lane limits, in one transaction."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from milepost.core.change import Change
from milepost.core.due import FRAGILE, fragile, look
from milepost.core.failures import unreadable
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.core.values.durations import rate_per_second
from milepost.ledgers.sqlite.quarantine import put_aside
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, write_changes
from milepost.ledgers.sqlite.rows.codec import CODES, COLUMNS, UNREADABLE, clock_of, decode, items_of, json_text, row_of, rows_of
from milepost.ledgers.sqlite.rows.due_rows import live_rows
from milepost.ledgers.sqlite.rows.like_rows import CLAIM, CLAIM_LIKE, FEW
from milepost.ledgers.sqlite.rows.names import NameNumbers
from milepost.ports.documents import HOLD, LIMIT, ROUTE, Limit, is_held, read_as, scope
from milepost.ports.ledger import ClaimRequest, ClaimResult, Refused

BURST_SECONDS = 0.1
MANY_LANES = 32
PROCESSING = CODES[Status.PROCESSING]
LOSSES = f"losses + (status = {PROCESSING})"
DUE = live_rows(COLUMNS, "due_at <= ?2") + " ORDER BY due_at LIMIT ?3"
SOUND = live_rows(COLUMNS, f"due_at <= ?2 AND {LOSSES} < {FRAGILE}") + " ORDER BY due_at LIMIT ?3"
ONE_FRAGILE = live_rows(COLUMNS, f"due_at <= ?2 AND {LOSSES} >= {FRAGILE}") + " ORDER BY due_at LIMIT min(1, ?3)"
ANY_DUE = live_rows("1", "due_at <= ?2") + " LIMIT 1"
DUE_NEXT = live_rows("due_at", "due_at > ?2") + " ORDER BY due_at LIMIT 1"
DUE_FIRST = live_rows("due_at", "due_at IS NOT NULL") + " ORDER BY due_at LIMIT 1"
# From each place with live items straight to the next: lanes that have none any more cost nothing.
LIVE_PLACES = (
    "WITH RECURSIVE live (place) AS (SELECT min(place) FROM item WHERE due_at IS NOT NULL UNION ALL"
    " SELECT (SELECT min(place) FROM item WHERE due_at IS NOT NULL AND place > live.place) FROM live WHERE live.place IS NOT NULL)"
    " SELECT place FROM live WHERE place IS NOT NULL"
)


class Rules:
    """The pauses, limits and route versions in force, read once per transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.holds: set[str] = set()
        self.limits: dict[str, Limit] = {}
        self.versions: dict[str, int] = {}
        for kind, name, value in connection.execute("SELECT kind, name, value FROM document WHERE kind IN (?, ?, ?)", (HOLD, LIMIT, ROUTE)):
            if kind == HOLD:
                self.holds.add(name)
            elif kind == LIMIT:
                self.limits[name] = read_as(Limit, decode(value))
            else:
                self.versions[name] = decode(value)["version"]

    def outdated(self, route: str, version: int) -> bool:
        return self.versions.get(route, version) != version

    def outdated_of(self, versions: Mapping[str, int]) -> set[str]:
        """The routes among these of which the ledger holds another version."""
        return {route for route, version in versions.items() if self.outdated(route, version)}

    def held(self, route: str, stage: str, lane: str) -> bool:
        return bool(self.holds) and is_held(self.holds, route, stage, lane)

    def rates(self, stage: Stage, route: str, lane: str) -> Iterator[tuple[str, float]]:
        """The scopes whose rate applies here, with calls per second."""
        whole = scope(route, stage.name)
        limit = self.limits.get(whole)
        if limit is not None and limit.rate is not None:
            yield whole, rate_per_second(limit.rate, "rate")
        elif stage.rate is not None:
            yield whole, stage.rate
        part = scope(route, stage.name, lane)
        limit = self.limits.get(part)
        own = stage.lanes.get(lane)
        if limit is not None and limit.rate is not None:
            yield part, rate_per_second(limit.rate, "rate")
        elif own is not None and own.rate is not None:
            yield part, rate_per_second(own.rate, "rate")

    def cap(self, stage: Stage, route: str, lane: str) -> int | None:
        """How many calls this lane may have in hand in one process."""
        limit = self.limits.get(scope(route, stage.name, lane))
        if limit is not None and limit.concurrency is not None:
            return limit.concurrency
        own = stage.lanes.get(lane)
        return None if own is None else own.concurrency


class Served:
    """When each place was last served by this process, in claims."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._claims = 0

    def last(self, place: int) -> int:
        return self._last.get(place, 0)

    def note(self, place: int) -> None:
        self._claims += 1
        self._last[place] = self._claims


def claim_one(
    connection: sqlite3.Connection,
    names: NameNumbers,
    rules: Rules,
    tally: CounterDeltas,
    served: Served,
    ask: ClaimRequest,
    now: int,
    jitter: float,
) -> ClaimResult:
    """Answer one stage's wish: the wanted number is shared out among the lanes that have due work."""
    plan, route = ask.plan, ask.plan.name
    if rules.outdated(route, plan.version):
        return ClaimResult([], outdated=True)
    for lane, calls in ask.spent.items():
        for name, rate in rules.rates(plan.by_name[ask.stage], route, lane):
            _charge(connection, name, rate, calls, now)
    places = _open(names, rules, route, ask.stage)
    lived_in = places
    if len(places) > MANY_LANES:
        live = {place for (place,) in connection.execute(LIVE_PLACES)}
        lived_in = [place for place in places if place in live]
    lanes = list(lived_in)
    if len(places) > 1:
        lanes = [place for place in lanes if connection.execute(ANY_DUE, (place, now)).fetchone()]
        # The lane that was served longest ago comes first, so that none starves another.
        lanes.sort(key=served.last)
    hunt = Hunt(connection, names, rules, tally, ask, now, jitter)
    while lanes and hunt.left > 0:
        # All lanes are filled to one level, what they have in hand counted in. Where there are others that only have no work
        # just now, no lane is given everything: theirs may come any moment.
        level = -(-(hunt.left + sum(hunt.in_hand(place) for place in lanes)) // max(len(lanes), min(2, len(places))))
        more = []
        for place in lanes:
            share = min(hunt.left, level - hunt.in_hand(place))
            got = hunt.take(place, share) if share > 0 else 0
            if got:
                served.note(place)
            if 0 < got == share:
                more.append(place)
        # What some lanes had no use for is shared out among the others.
        lanes = more
    if hunt.left > 0:
        hunt.waits += [now] if hunt.moved else _next_due(connection, lived_in, now)
    waits = min(hunt.waits, default=None)
    return ClaimResult(hunt.claimed, hunt.moved, waits, fragile=hunt.passed_over, lost=hunt.lost, refused=hunt.refused)


class Hunt:
    """One ask being answered, lane by lane."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        names: NameNumbers,
        rules: Rules,
        tally: CounterDeltas,
        ask: ClaimRequest,
        now: int,
        jitter: float,
    ) -> None:
        self.connection, self.names, self.rules, self.tally = connection, names, rules, tally
        self.ask, self.now, self.jitter = ask, now, jitter
        self.stage = ask.plan.by_name[ask.stage]
        self.left = min(1, ask.want) if ask.fragile else ask.want
        self.claimed: list[Item] = []
        self.held = dict(ask.held)
        self.moved = 0
        self.lost = 0
        self.passed_over = False
        self.waits: list[int] = []
        self.refused: list[Refused] = []

    def in_hand(self, place: int) -> int:
        return self.held.get(self.names.by_id[place].lane, 0)

    def take(self, place: int, share: int) -> int:
        """Claim up to `share` due items of one lane, within its own limits; how many were got."""
        ask, route, lane = self.ask, self.ask.plan.name, self.names.by_id[place].lane
        cap = self.rules.cap(self.stage, route, lane)
        if cap is not None:
            share = min(share, cap * ask.batch - self.held.get(lane, 0))
        calls, _ = _calls_left(self.connection, self.rules, self.stage, route, lane, self.now)
        limited = calls is not None and calls * ask.batch < share
        if calls is not None and limited:
            share = calls * ask.batch
        got = self._claim(place, share, lane) if share > 0 else 0
        if limited and got == share and self.connection.execute(ANY_DUE, (place, self.now)).fetchone():
            # More is due than the rate allows: worth asking again when the next call is free.
            _, rate_at = _calls_left(self.connection, self.rules, self.stage, route, lane, self.now)
            self.waits += [] if rate_at is None else [rate_at]
        return got

    def _claim(self, place: int, share: int, lane: str) -> int:
        ask, route = self.ask, self.ask.plan.name
        rows, skipped, damaged = _due_rows(self.connection, self.names, place, self.now, share, ask.fragile)
        self.passed_over = self.passed_over or skipped
        if damaged:
            self._set_aside(damaged)
        got, moved, lost = self._claim_rows(rows)
        self.claimed += got
        self.left -= len(got)
        self.moved += moved
        self.lost += lost
        if got:
            self.held[lane] = self.held.get(lane, 0) + len(got)
            for name, rate in self.rules.rates(self.stage, route, lane):
                _charge(self.connection, name, rate, -(-len(got) // ask.batch), self.now)
        return len(got)

    def _claim_rows(self, rows: list[Row]) -> tuple[list[Item], int, int]:
        """Claim these rows, or move them on without a worker: what was claimed, how many were moved on, how many leases were lost."""
        ask, now = self.ask, self.now
        silent: list[Change] = []
        written: list[Change] = []
        claimed: list[Item] = []
        damaged: list[tuple[int, Refused]] = []
        for row, item in zip(rows, items_of(self.connection, rows, self.names), strict=True):
            if isinstance(item, Refused):
                self.refused.append(item)
                written.append(unreadable(row, self.stage, item.reason, now))
                continue
            try:
                change = look(item, ask.plan, now, self.jitter, ask.lease)
            except UNREADABLE as error:
                damaged.append((row.handle, Refused(f"it cannot be decided: {type(error).__name__}: {error}", row.key, row)))
                continue
            if change is None:
                continue
            after = change.after
            if after.lease == ask.lease.token:
                claimed.append(Item(after, item.content))
                (written if change.body else silent).append(change)
            else:
                written.append(change)
        if damaged:
            self._set_aside(damaged)
        if silent:
            self._write_claims([change.after for change in silent])
            self.tally.add(silent)
        if written:
            write_changes(self.connection, self.names, written, self.tally)
        # Only a written change can be of a lost lease: a loss makes a line.
        lost = sum(change.after.losses > change.before.losses for change in written)
        return claimed, len(rows) - len(claimed), lost

    def _write_claims(self, rows: list[Row]) -> None:
        """Write plain claims: six columns each, and no line."""
        lease = self.ask.lease
        clocks: dict[tuple[int | None, int | None], list[Any]] = {}
        for row in rows:
            clocks.setdefault(clock_of(row), []).append(row.handle)
        for clock, numbers in clocks.items():
            values = (PROCESSING, *clock, lease.token, lease.holder, self.now)
            if len(numbers) > FEW:
                self.connection.execute(CLAIM_LIKE, (*values, json_text(numbers)))
            else:
                self.connection.executemany(CLAIM, [(*values, number) for number in numbers])

    def _set_aside(self, damaged: list[tuple[int, Refused]]) -> None:
        put_aside(self.connection, [(number, refused.reason) for number, refused in damaged], self.now)
        self.refused += [refused for _, refused in damaged]
        self.moved += len(damaged)


def _open(names: NameNumbers, rules: Rules, route: str, stage: str) -> list[int]:
    return [place for place, lane in names.lanes.get((route, stage), ()) if not rules.held(route, stage, lane)]


def _next_due(connection: sqlite3.Connection, places: list[int], now: int) -> list[int]:
    """When each of these lanes has something due next, if ever."""
    return [row[0] for place in places for row in connection.execute(DUE_NEXT, (place, now))]


def _due_rows(
    connection: sqlite3.Connection, names: NameNumbers, place: int, now: int, limit: int, want_fragile: bool
) -> tuple[list[Row], bool, list[tuple[int, Refused]]]:
    """The rows to look at, whether fragile ones were passed over, and those that cannot be read, by number. Only where fragile ones
    turn up is a second, slower look needed."""
    rows, damaged = _readable(connection.execute(ONE_FRAGILE if want_fragile else DUE, (place, now, limit)).fetchall(), names)
    if want_fragile or not any(fragile(row) for row in rows):
        return rows, False, damaged
    rows, more = _readable(connection.execute(SOUND, (place, now, limit)).fetchall(), names)
    return rows, True, [*damaged, *more]


def _readable(found: list[tuple[Any, ...]], names: NameNumbers) -> tuple[list[Row], list[tuple[int, Refused]]]:
    try:
        return [row_of(columns, names) for columns in found], []
    except UNREADABLE:
        rows = rows_of(found, names)
        damaged = [(columns[0], row) for columns, row in zip(found, rows, strict=True) if isinstance(row, Refused)]
        return [row for row in rows if isinstance(row, Row)], damaged


def next_due(connection: sqlite3.Connection, names: NameNumbers, plans: Iterable[Plan]) -> int | None:
    """The earliest due time in the open lanes of handler stages."""
    rules = Rules(connection)
    found: list[int] = [
        row[0]
        for plan in plans
        for stage in plan.stages
        if stage.ours
        for place in _open(names, rules, plan.name, stage.name)
        for row in connection.execute(DUE_FIRST, (place,))
    ]
    return min(found, default=None)


def _used_until(connection: sqlite3.Connection, name: str, latest: float) -> float:
    """Up to when the rate is used up. A clock that was set back must not block a stage for long: what is more than 10 s past
    `latest` is written back as that."""
    row = connection.execute("SELECT used_until FROM rate WHERE scope = ?", (name,)).fetchone()
    used = float(row[0]) if row else 0.0
    if used > latest + 10_000.0:
        used = latest + 10_000.0
        connection.execute("UPDATE rate SET used_until = ? WHERE scope = ?", (used, name))
    return used


def _calls_left(
    connection: sqlite3.Connection, rules: Rules, stage: Stage, route: str, lane: str, now: int
) -> tuple[int | None, int | None]:
    """How many calls the rates allow now (None: any number), and when there will be one more."""
    calls: int | None = None
    at: int | None = None
    for name, rate in rules.rates(stage, route, lane):
        spacing = 1000.0 / rate
        window = max(1.0, rate * BURST_SECONDS) * spacing
        used = max(_used_until(connection, name, now + window), float(now))
        left = max(0, int((now + window - used) / spacing + 1e-9))
        if calls is None or left < calls:
            calls, at = left, math.ceil(used + spacing - window)
    return calls, None if at is None else max(at, now + 1)


def _charge(connection: sqlite3.Connection, name: str, rate: float, calls: int, now: int) -> None:
    if calls <= 0:
        return
    until = max(_used_until(connection, name, float(now)), float(now)) + calls * 1000.0 / rate
    connection.execute(
        "INSERT INTO rate (scope, used_until) VALUES (?, ?) ON CONFLICT DO UPDATE SET used_until = excluded.used_until", (name, until)
    )
