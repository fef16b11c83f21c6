"""Settle: write outcomes, each fenced by its lease. One batch, one transaction; who lost a race is looked at again alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.claims import is_outcome_of, records
from milepost.core.decide import decide, given_back, late, undecided
from milepost.core.errors import LedgerError
from milepost.core.history import claim_digest
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.engine.apply import count_refused, follow_up
from milepost.engine.context import Context
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.ports.ledger import ClaimRequest, ClaimResult, Conflict, Refused
from milepost.ports.runner import JobResult

TRIES = 5
log = logging.getLogger(__name__)


class SettleResult(Struct):
    """What came of a batch of outcomes."""

    written: int = 0
    refused: int = 0
    """Outcomes that came after their lease was gone."""
    undecided: int = 0
    """Outcomes kept for a newer process to decide, since this one's route is out of date."""
    claims: list[ClaimResult] = []
    """The answers to the asks that went with the outcomes; none: nothing was asked, or the outcomes had to be written one by one."""


def settle(ctx: Context, rans: Sequence[JobResult], asks: Sequence[ClaimRequest] = ()) -> SettleResult:
    """Write what the handlers said, and claim what is asked for in the same step. A kept outside confirmation beats the handler's
    outcome; a lost lease refuses it, and that is noted.

    An outcome that cannot be written, or that the storage cannot take, hits its own item alone: it becomes a counted try.
    """
    answers, claims = _write(ctx, rans, asks)
    summary, follow, ended = SettleResult(claims=claims), list[Row](), list[Any]()
    for ran, (after, conflict) in zip(rans, answers, strict=True):
        if isinstance(conflict, Refused):
            conflict = _count_refused(ctx, ran, ran.item.row, conflict, summary)
        elif conflict is None:
            summary.written += 1
            if after.total_attempts != ran.item.row.total_attempts:
                _log_failed_try(ran, after)
            if after.kept:
                follow.append(after)
        if conflict is not None:
            written = summary.written
            _settle_again(ctx, ran, conflict, summary, follow)
            if summary.written == written:
                continue
        if ran.item.ticket is not None:
            ended.append(ran.item.ticket)
    if ended:
        ctx.ledger.drop_tickets(ended)
    if follow:
        follow_up(ctx, follow)
    ctx.observer.settled(rans, ctx.clock.now(), summary.written, summary.refused, summary.undecided)
    return summary


Answers = list[tuple[Row, Conflict | Refused | None]]


def _write(ctx: Context, rans: Sequence[JobResult], asks: Sequence[ClaimRequest] = ()) -> tuple[Answers, list[ClaimResult]]:
    """Decide and write all at once, or, where one of them cannot be, each by itself, and claim nothing."""
    if not rans:
        return [], []
    try:
        return _decide_and_apply(ctx, rans, asks)
    except LedgerError:
        raise
    except Exception as error:
        if len(rans) > 1:
            return [answer for ran in rans for answer in _write(ctx, [ran])[0]], []
        ran = rans[0]
        wrong = Retry(f"what the handler left behind cannot be recorded: {error}", category="WRONG_ANSWER", unknown=True)
        return _decide_and_apply(ctx, [JobResult(ran.item, wrong, ran.response_ms, failed_alone=ran.failed_alone)])


def _decide_and_apply(ctx: Context, rans: Sequence[JobResult], asks: Sequence[ClaimRequest] = ()) -> tuple[Answers, list[ClaimResult]]:
    now, jitter, plans = ctx.clock.now(), ctx.chance.jitter, ctx.plans
    changes = [
        decide(
            ran.item if not ran.failed_alone else _alone(ran.item),
            ran.outcome,
            plans[ran.item.row.route],
            now,
            0.0 if type(ran.outcome) is Done else jitter(),
            response_ms=ran.response_ms,
        )
        for ran in rans
    ]
    if asks:
        answers, claims = ctx.ledger.apply_and_claim(changes, now, _versions(ctx), asks, jitter())
    else:
        answers, claims = ctx.ledger.apply(changes, now, _versions(ctx)), []
    return list(zip((change.after for change in changes), answers, strict=True)), claims


def _versions(ctx: Context) -> dict[str, int]:
    return {name: plan.version for name, plan in ctx.plans.items()}


def _alone(item: Item) -> Item:
    """From now on the item is given alone, until it advances."""
    return Item(replace(item.row, alone=True), item.content)


def _settle_again(ctx: Context, ran: JobResult, answer: Conflict, summary: SettleResult, follow: list[Row]) -> None:
    """One outcome that lost its race. While its lease holds it is decided again on the row as it is now."""
    held = ran.item.row
    if held.lease is None:
        _look_again(ctx, ran, answer, summary, follow)
        return
    for _ in range(TRIES):
        current = answer.current
        if current is None:
            summary.refused += 1
            return
        now = ctx.clock.now()
        if current.lease != held.lease:
            if recorded(ctx, current, held.lease):
                summary.written += 1
                return
            noted = ctx.ledger.apply([late(current, ran.outcome, now, by=held.holder or "", lease=held.lease)], now)[0]
            if not isinstance(noted, Conflict):
                break
            answer = noted
            continue
        item = Item(replace(current, alone=current.alone or ran.failed_alone), ran.item.content)
        versions: dict[str, int] | None = _versions(ctx)
        if answer.outdated:
            change, versions = undecided(current, ran.outcome, now, by=held.holder or ""), None
        else:
            change = decide(item, ran.outcome, ctx.plans[current.route], now, ctx.chance.jitter(), response_ms=ran.response_ms)
        again = ctx.ledger.apply([change], now, versions)[0]
        if again is None:
            if answer.outdated:
                summary.undecided += 1
            else:
                summary.written += 1
                if change.after.total_attempts != current.total_attempts:
                    _log_failed_try(ran, change.after)
                follow.append(change.after)
            return
        if isinstance(again, Refused):
            counted = _count_refused(ctx, ran, current, again, summary)
            if counted is None:
                return
            again = counted
        answer = again
    summary.refused += 1


def _log_failed_try(ran: JobResult, after: Row) -> None:
    outcome = ran.outcome
    warn_of_failed_try(after, ran.item.stage, outcome.traceback if isinstance(outcome, (Retry, Reject)) else None)


def _count_refused(ctx: Context, ran: JobResult, row: Row, refused: Refused, summary: SettleResult) -> Conflict | None:
    """The storage cannot take this outcome: it is a counted try instead. None: that is settled."""
    answer = count_refused(ctx, row, refused, ran.response_ms)
    if isinstance(answer, Conflict):
        return answer
    if answer is None:
        summary.refused += 1
    else:
        summary.written += 1
        _log_failed_try(ran, answer)
    return None


def _look_again(ctx: Context, ran: JobResult, answer: Conflict, summary: SettleResult, follow: list[Row]) -> None:
    """The outcome of a pure check, which had no lease: it holds for the same stage and round of an item that nobody holds and that
    has not ended. Else it is dropped: nothing was done that would have to be noted, and whoever is next looks again."""
    held = ran.item.row
    for _ in range(TRIES):
        current = answer.current
        if current is None or answer.outdated or current.terminal or current.lease is not None:
            break
        if (current.stage, current.round, current.pass_no) != (held.stage, held.round, held.pass_no):
            break
        now = ctx.clock.now()
        item = Item(replace(current, holder=held.holder, claimed_at=held.claimed_at), ran.item.content)
        change = decide(item, ran.outcome, ctx.plans[current.route], now, ctx.chance.jitter(), response_ms=ran.response_ms)
        again = ctx.ledger.apply([change], now, _versions(ctx))[0]
        if again is None:
            summary.written += 1
            follow.append(change.after)
            return
        if isinstance(again, Refused):
            counted = _count_refused(ctx, ran, item.row, again, summary)
            if counted is None:
                return
            again = counted
        answer = again
    summary.refused += 1


def recorded(ctx: Context, current: Row, lease: str, outcome: Outcome | None = None) -> bool:
    """Was an outcome of the claim with this lease written (this very one, if it is given), and only the answer lost? Its line names
    the claim; a `NotYet` that said nothing new made none, and is known by the row."""
    claim = claim_digest(lease)
    if current.settled == claim:
        return outcome is None or isinstance(outcome, NotYet)
    lines = [written.line for written in ctx.ledger.history(current.route, current.key)]
    return any(is_outcome_of(line, claim) and (outcome is None or records(line, outcome)) for line in lines)


def give_back(ctx: Context, items: Sequence[Item], why: str, *, unknown: bool = False) -> int:
    """Let go of claims that will not be finished here; uncounted. How many were still ours to give back."""
    # Who only looked holds nothing: its message comes again.
    rows = [item.row for item in items if item.row.lease is not None]
    tickets = {(item.row.route, item.row.key, item.row.lease): item.ticket for item in items if item.ticket is not None}
    given: list[Row] = []
    ended: list[Any] = []
    for _ in range(TRIES):
        if not rows:
            break
        now = ctx.clock.now()
        changes = [given_back(row, now, why=why, unknown=unknown) for row in rows]
        answers = ctx.ledger.apply(changes, now)
        written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
        given += [change.after for change in written]
        ended += [tickets.get((change.before.route, change.before.key, change.before.lease)) for change in written]
        # Who was only written a note to meanwhile is still ours to give back.
        rows = [
            answer.current
            for row, answer in zip(rows, answers, strict=True)
            if isinstance(answer, Conflict) and answer.current is not None and answer.current.lease == row.lease
        ]
    ctx.ledger.drop_tickets([ticket for ticket in ended if ticket is not None])
    follow_up(ctx, given)
    return len(given)
