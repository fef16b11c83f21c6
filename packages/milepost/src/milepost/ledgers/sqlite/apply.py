"""Apply: write changes whose precondition still holds; the others are conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milepost.core.change import Change
from milepost.core.item import Row
from milepost.ledgers.sqlite.admission import Admission
from milepost.ledgers.sqlite.claim import Served
from milepost.ledgers.sqlite.claim_on_arrival import Arrivals
from milepost.ledgers.sqlite.errors import RowRefused
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, row_savepoint, write_changes
from milepost.ledgers.sqlite.rows.codec import COLUMNS, rows_of
from milepost.ledgers.sqlite.rows.fence import fenced
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.items import ClaimRequest, ClaimResult, Conflict, Refused

Answers = list[Conflict | Refused | None]


def apply(tx: Transaction, changes: Sequence[Change], versions: Mapping[str, int]) -> Answers:
    """Write these changes together. If one of them cannot be written, this raises
    `ROW_REFUSED`."""
    tally = CounterDeltas()
    answers = _apply(tx, Admission(tx.connection), changes, versions, tally, {})
    tally.write(tx)
    return answers


def apply_each(tx: Transaction, changes: Sequence[Change], versions: Mapping[str, int]) -> Answers:
    """Write these changes one by one: those that cannot be written are refused."""
    tally = CounterDeltas()
    answers = _apply_each(tx, changes, versions, tally)
    tally.write(tx)
    return answers


def apply_and_claim(
    tx: Transaction,
    changes: Sequence[Change],
    now: int,
    versions: Mapping[str, int],
    asks: Sequence[ClaimRequest],
    served: Served,
    jitter: float,
) -> tuple[Answers, list[ClaimResult]]:
    """`apply`, and the answers to claim requests: items that the changes bring to their stages are
    claimed as they arrive."""
    admission = Admission(tx.connection)
    tally = CounterDeltas()
    arrivals = [Arrivals(tx, admission, ask, now) for ask in asks]
    at_stage = {(each.route, each.stage): each for each in arrivals}
    answers = _apply(tx, admission, changes, versions, tally, at_stage)
    claims = [each.claim(tally, served, jitter) for each in arrivals]
    tally.write(tx)
    return answers, claims


def apply_each_and_claim(
    tx: Transaction,
    changes: Sequence[Change],
    now: int,
    versions: Mapping[str, int],
    asks: Sequence[ClaimRequest],
    served: Served,
    jitter: float,
) -> tuple[Answers, list[ClaimResult]]:
    """`apply_each`, and then the answers to claim requests."""
    tally = CounterDeltas()
    answers = _apply_each(tx, changes, versions, tally)
    admission = Admission(tx.connection)
    claims = [Arrivals(tx, admission, ask, now).claim(tally, served, jitter) for ask in asks]
    tally.write(tx)
    return answers, claims


def _apply_each(
    tx: Transaction,
    changes: Sequence[Change],
    versions: Mapping[str, int],
    tally: CounterDeltas,
) -> Answers:
    answers: Answers = []
    for change in changes:
        try:
            with row_savepoint(tx):
                # Read anew each time: breakers that a refused change has moved are moved back.
                admission = Admission(tx.connection)
                answers += _apply(tx, admission, [change], versions, tally, {})
        except RowRefused as refusal:
            answers.append(Refused(str(refusal)))
    return answers


def _apply(
    tx: Transaction,
    admission: Admission,
    changes: Sequence[Change],
    versions: Mapping[str, int],
    tally: CounterDeltas,
    arrivals: Mapping[tuple[str, str], Arrivals],
) -> Answers:
    if len({change.before.handle for change in changes}) < len(changes):
        # A change may build on an earlier one: each is checked against the row that the earlier
        # ones have left.
        return [
            answer
            for change in changes
            for answer in _apply(tx, admission, [change], versions, tally, {})
        ]
    outdated = admission.outdated_of(versions)
    answers: Answers = []
    good: list[Change] = []
    for change, passed in zip(changes, fenced(tx, changes), strict=True):
        before = change.before
        if passed is None or before.route in outdated:
            answers.append(_conflict(tx, before, before.route in outdated))
        else:
            answers.append(None)
            good.append(passed)
    # Breakers first: one that opens here keeps items from being claimed as they arrive.
    admission.update_breakers(good)
    if arrivals:
        good = _claimed_on_arrival(good, arrivals)
    write_changes(tx, good, tally)
    return answers


def _claimed_on_arrival(
    changes: Sequence[Change], arrivals: Mapping[tuple[str, str], Arrivals]
) -> list[Change]:
    """These changes, with those items claimed that they bring to a stage that has room."""
    for stage in arrivals.values():
        stage.make_room()
    arrived: list[Change] = []
    for change in changes:
        reached = arrivals.get((change.after.route, change.after.stage))
        arrived.append(change if reached is None else reached.take(change))
    return arrived


def _conflict(tx: Transaction, wanted: Row, outdated: bool) -> Conflict | Refused:
    """The answer for a change that may not be written, with the item's present row."""
    # Its number alone could be that of a later item.
    columns = tx.execute(
        f"SELECT {COLUMNS} FROM item WHERE id = ? AND route = ? AND key = ?",
        (wanted.handle, tx.names.routes.get(wanted.route), wanted.key),
    ).fetchone()
    current = None if columns is None else rows_of([columns], tx.names)[0]
    return current if isinstance(current, Refused) else Conflict(current, outdated)
