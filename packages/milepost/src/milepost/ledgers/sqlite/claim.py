"""Claims in SQLite: find due items of open lanes, within pauses, rates and lane limits, and write
their leases in one transaction.

The SELECT is in `rows.due_rows`, the UPDATE that writes a lease is `rows.row_groups.CLAIM`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from milepost.core.admission.breakers import PROBE_CANDIDATES
from milepost.core.admission.controls import LaneItems
from milepost.core.admission.lanes import share_out
from milepost.core.change import Change
from milepost.core.due import FRAGILE, fragile, look
from milepost.core.failures import unreadable
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ledgers.sqlite.admission import Admission
from milepost.ledgers.sqlite.quarantine import quarantine_rows
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, write_changes
from milepost.ledgers.sqlite.rows.codec import (
    CODES,
    COLUMNS,
    LIMIT,
    UNREADABLE,
    clock_of,
    items_of,
    json_text,
    rows_of,
    sound_rows,
)
from milepost.ledgers.sqlite.rows.due_rows import live_rows
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ledgers.sqlite.rows.row_groups import CLAIM, CLAIM_GROUP, FEW
from milepost.ports.items import ClaimRequest, ClaimResult, Refused

MANY_LANES = 32
PROCESSING = CODES[Status.PROCESSING]
LOSSES = f"losses + (status = {PROCESSING})"
DUE = live_rows(COLUMNS, "due_at <= :now") + " ORDER BY due_at LIMIT :limit"
SOUND = (
    live_rows(COLUMNS, f"due_at <= :now AND {LOSSES} < {FRAGILE}") + " ORDER BY due_at LIMIT :limit"
)
ONE_FRAGILE = (
    live_rows(COLUMNS, f"due_at <= :now AND {LOSSES} >= {FRAGILE}")
    + " ORDER BY due_at LIMIT min(1, :limit)"
)
ANY_DUE = live_rows("1", "due_at <= :now") + " LIMIT 1"
DUE_NEXT = live_rows("due_at", f"due_at > :now AND due_at < {LIMIT}") + " ORDER BY due_at LIMIT 1"
DUE_FIRST = live_rows("due_at", f"due_at < {LIMIT}") + " ORDER BY due_at LIMIT 1"
# Jumps from each place with live items to the next, so that lanes without live items cost nothing.
LIVE_PLACES = (
    "WITH RECURSIVE live (place) AS (SELECT min(place) FROM item WHERE due_at IS NOT NULL UNION ALL"
    " SELECT (SELECT min(place) FROM item WHERE due_at IS NOT NULL AND place > live.place) FROM live WHERE live.place IS NOT NULL)"
    " SELECT place FROM live WHERE place IS NOT NULL"
)


class Served:
    """Order in which this process last served each place."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._claims = 0

    def last(self, place: int) -> int:
        return self._last.get(place, 0)

    def note(self, place: int) -> None:
        self._claims += 1
        self._last[place] = self._claims


def claim(
    tx: Transaction, served: Served, asks: Sequence[ClaimRequest], now: int, jitter: float
) -> list[ClaimResult]:
    """Answer claim requests, each with what the ones before it have left."""
    admission = Admission(tx.connection)
    tally = CounterDeltas()
    answers = [claim_one(tx, admission, tally, served, ask, now, jitter) for ask in asks]
    tally.write(tx)
    return answers


def claim_one(
    tx: Transaction,
    admission: Admission,
    tally: CounterDeltas,
    served: Served,
    ask: ClaimRequest,
    now: int,
    jitter: float,
) -> ClaimResult:
    """Answer one claim request: the wanted number is shared among the lanes that have due items
    (see `core.admission`)."""
    plan, route = ask.plan, ask.plan.name
    if admission.outdated(route, plan.version):
        return ClaimResult([], outdated=True)
    for lane, calls in ask.spent.items():
        admission.charge(route, plan.by_name[ask.stage], lane, calls, now)
    places = _open(tx.names, admission, route, ask.stage)
    live_places = places
    if len(places) > MANY_LANES:
        live = {place for (place,) in tx.execute(LIVE_PLACES)}
        live_places = [place for place in places if place in live]
    lanes = list(live_places)
    if len(places) > 1:
        lanes = [
            place for place in lanes if tx.execute(ANY_DUE, {"place": place, "now": now}).fetchone()
        ]
        # The lane that was served longest ago comes first, so that none starves another.
        lanes.sort(key=served.last)
    stage_claim = StageClaim(tx, admission, tally, ask, now, jitter)

    def take(place: int, share: int) -> int:
        got = stage_claim.take(place, share)
        if got:
            served.note(place)
        return got

    share_out(stage_claim.left, lanes, stage_claim.in_hand, len(places), take)
    if stage_claim.left > 0:
        stage_claim.waits += [now] if stage_claim.moved else stage_claim.next_due(live_places)
    waits = min(stage_claim.waits, default=None)
    return ClaimResult(
        stage_claim.claimed,
        stage_claim.moved,
        waits,
        fragile=stage_claim.skipped_fragile,
        lost=stage_claim.lost,
        refused=stage_claim.refused,
    )


class StageClaim:
    """The answer to one claim request, made lane by lane."""

    def __init__(
        self,
        tx: Transaction,
        admission: Admission,
        tally: CounterDeltas,
        ask: ClaimRequest,
        now: int,
        jitter: float,
    ) -> None:
        self.tx, self.admission, self.tally = tx, admission, tally
        self.ask, self.now, self.jitter = ask, now, jitter
        self.stage = ask.plan.by_name[ask.stage]
        self.left = min(1, ask.want) if ask.fragile else ask.want
        self.claimed: list[Item] = []
        self.held, self.ahead = LaneItems(ask.held), LaneItems(ask.ahead)
        self.moved = 0
        self.lost = 0
        self.skipped_fragile = False
        self.waits: list[int] = []
        self.refused: list[Refused] = []

    def in_hand(self, place: int) -> int:
        return self.held.by_lane.get(self.tx.names.by_id[place].lane, 0)

    def take(self, place: int, share: int) -> int:
        """Claim up to `share` due items of one lane, within its own limits; returns how many."""
        ask, route, lane = self.ask, self.ask.plan.name, self.tx.names.by_id[place].lane
        free = self.admission.controls.room(
            route, self.stage, lane, ask.batch, self.held, self.ahead
        )
        if free is not None:
            share = min(share, free)
        room, room_at = self.admission.breaker_room(route, self.stage, lane, self.now)
        if room is not None:
            share = min(share, room)
            if room_at is not None and self._due(place):
                self.waits.append(room_at)
        calls, _ = self.admission.calls_left(route, self.stage, lane, self.now)
        limited = calls is not None and calls * ask.batch < share
        if calls is not None and limited:
            share = calls * ask.batch
        got = self._claim(place, share, lane, probes=room is not None) if share > 0 else 0
        if limited and got == share and self._due(place):
            # More is due than the rate allows: ask again when the next call is free.
            _, rate_at = self.admission.calls_left(route, self.stage, lane, self.now)
            self.waits += [] if rate_at is None else [rate_at]
        return got

    def next_due(self, places: list[int]) -> list[int]:
        """The next due time of each of these lanes, not before its breaker lets an item through."""
        found: list[int] = []
        for place in places:
            _, opens_at = self.admission.breaker_room(
                self.ask.plan.name, self.stage, self.tx.names.by_id[place].lane, self.now
            )
            found += [
                max(row[0], opens_at or 0)
                for row in self.tx.execute(DUE_NEXT, {"place": place, "now": self.now})
            ]
        return found

    def _due(self, place: int) -> bool:
        return self.tx.execute(ANY_DUE, {"place": place, "now": self.now}).fetchone() is not None

    def _claim(self, place: int, share: int, lane: str, *, probes: bool) -> int:
        ask, route = self.ask, self.ask.plan.name
        chosen = probes and self.stage.party is not None
        rows, skipped, damaged = _due_rows(
            self.tx, place, self.now, PROBE_CANDIDATES if chosen else share, ask.fragile
        )
        if chosen:
            by_key = {row.key: row for row in rows}
            rows = [
                by_key[key]
                for key in self.admission.probe_order(route, self.stage, lane, list(by_key))[:share]
            ]
        self.skipped_fragile = self.skipped_fragile or skipped
        if damaged:
            self._set_aside(damaged)
        got, moved, lost = self._claim_rows(rows)
        self.claimed += got
        self.left -= len(got)
        self.moved += moved
        self.lost += lost
        if got:
            self.held.add(lane, len(got))
            self.admission.charge(route, self.stage, lane, -(-len(got) // ask.batch), self.now)
            if probes:
                self.admission.note_probes(
                    route, self.stage, lane, [item.key for item in got], self.now, ask.lease.until
                )
        return len(got)

    def _claim_rows(self, rows: list[Row]) -> tuple[list[Item], int, int]:
        """Claim these rows, or advance them without a worker. Returns the claimed items, and the
        numbers of advanced rows and lost leases."""
        ask, now = self.ask, self.now
        silent: list[Change] = []
        written: list[Change] = []
        claimed: list[Item] = []
        damaged: list[tuple[int, Refused]] = []
        for row, item in zip(rows, items_of(self.tx, rows), strict=True):
            if isinstance(item, Refused):
                self.refused.append(item)
                written.append(unreadable(row, self.stage, item.reason, now))
                continue
            try:
                change = look(item, ask.plan, now, self.jitter, ask.lease)
            except UNREADABLE as error:
                damaged.append(
                    (
                        row.handle,
                        Refused(
                            f"it cannot be decided: {type(error).__name__}: {error}", row.key, row
                        ),
                    )
                )
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
            write_changes(self.tx, written, self.tally)
            self.admission.update_breakers(written)
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
                self.tx.execute(CLAIM_GROUP, (*values, json_text(numbers)))
            else:
                self.tx.executemany(CLAIM, [(*values, number) for number in numbers])

    def _set_aside(self, damaged: list[tuple[int, Refused]]) -> None:
        quarantine_rows(
            self.tx.connection, [(number, refused.reason) for number, refused in damaged], self.now
        )
        self.refused += [refused for _, refused in damaged]
        self.moved += len(damaged)


def _open(names: NameNumbers, admission: Admission, route: str, stage: str) -> list[int]:
    controls, lanes = admission.controls, names.lanes.get((route, stage), [])
    if not controls.holds:
        return [place for place, _ in lanes]
    return [place for place, lane in lanes if not controls.held(route, stage, lane)]


def _due_rows(
    tx: Transaction, place: int, now: int, limit: int, want_fragile: bool
) -> tuple[list[Row], bool, list[tuple[int, Refused]]]:
    """Due rows of a place, whether fragile ones were skipped, and the unreadable ones by number.
    Only if fragile rows are due, a second, slower query is needed."""
    bound = {"place": place, "now": now, "limit": limit}
    rows, damaged = _readable(
        tx.execute(ONE_FRAGILE if want_fragile else DUE, bound).fetchall(), tx.names
    )
    if want_fragile or not any(fragile(row) for row in rows):
        return rows, False, damaged
    rows, more = _readable(tx.execute(SOUND, bound).fetchall(), tx.names)
    return rows, True, [*damaged, *more]


def _readable(
    found: list[tuple[Any, ...]], names: NameNumbers
) -> tuple[list[Row], list[tuple[int, Refused]]]:
    try:
        return sound_rows(found, names), []
    except UNREADABLE:
        rows = rows_of(found, names)
        damaged = [
            (columns[0], row)
            for columns, row in zip(found, rows, strict=True)
            if isinstance(row, Refused)
        ]
        return [row for row in rows if isinstance(row, Row)], damaged


def next_due(tx: Transaction, plans: Iterable[Plan]) -> int | None:
    """The earliest due time in the open lanes of handler stages."""
    admission = Admission(tx.connection)
    found: list[int] = []
    for plan in plans:
        for stage in plan.stages:
            for place in _open(tx.names, admission, plan.name, stage.name) if stage.ours else ():
                opens_at = admission.controls.opens_at(plan.name, stage, tx.names.by_id[place].lane)
                found += [max(row[0], opens_at) for row in tx.execute(DUE_FIRST, {"place": place})]
    return min(found, default=None)
