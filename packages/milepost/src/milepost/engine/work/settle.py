"""Settle outcomes, each fenced by its lease: write the batch in one transaction, then resolve each
conflict on its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.claims import is_outcome_of, records
from milepost.core.decide import decide, given_back, late, undecided
from milepost.core.errors import LedgerError, is_shortage
from milepost.core.history import claim_digest
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.routes.plan import Plan
from milepost.engine.apply import count_refused, follow_up
from milepost.engine.context import Context
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.ports.items import ClaimRequest, ClaimResult, Conflict, Refused
from milepost.ports.runner import JobResult

TRIES = 5
log = logging.getLogger(__name__)


class SettleResult(Struct):
    """Result of settling a batch of outcomes."""

    written: int = 0
    refused: int = 0
    """Outcomes that arrived after their lease was lost."""
    undecided: int = 0
    """Outcomes left for a newer process, because this one's route is outdated."""
    claims: list[ClaimResult] = []
    """Results of the claims made in the same step; empty if there were none, or if the outcomes had
    to be written one by one."""


def settle(
    ctx: Context, results: Sequence[JobResult], requests: Sequence[ClaimRequest] = ()
) -> SettleResult:
    """Write the outcomes, and claim more items in the same step. A kept confirmation overrides the
    handler's outcome; an outcome whose lease is lost is refused and noted.

    An outcome that cannot be stored affects only its own item: it becomes a failed attempt.
    """
    answers, claims = _write(ctx, results, requests)
    summary, follow, ended = SettleResult(claims=claims), list[Row](), list[Any]()
    for result, (after, conflict) in zip(results, answers, strict=True):
        if conflict is None:
            summary.written += 1
            if after.total_attempts != result.item.row.total_attempts:
                _log_failed_try(result, after)
            if after.kept:
                follow.append(after)
        elif (
            conflict := _count_refused(ctx, result, result.item.row, conflict, summary)
        ) is not None:
            written = summary.written
            _settle_again(ctx, result, conflict, summary, follow)
            if summary.written == written:
                continue
        if result.item.ticket is not None:
            ended.append(result.item.ticket)
    if ended:
        ctx.ledger.drop_tickets(ended)
    if follow:
        follow_up(ctx, follow)
    ctx.observer.settled(
        results, ctx.clock.now(), summary.written, summary.refused, summary.undecided
    )
    return summary


Answers = list[tuple[Row, Conflict | Refused | None]]


def _write(
    ctx: Context, results: Sequence[JobResult], requests: Sequence[ClaimRequest] = ()
) -> tuple[Answers, list[ClaimResult]]:
    """Decide and write all outcomes at once. If that fails unexpectedly, log the error and write
    each on its own, without claims."""
    if not results:
        return [], []
    try:
        return _decide_and_apply(ctx, results, requests)
    except LedgerError:
        raise
    except Exception as error:
        if is_shortage(error):
            raise
        if len(results) > 1:
            log.exception(
                "cannot write %d outcomes at once; each is now written alone", len(results)
            )
            return [answer for result in results for answer in _write(ctx, [result])[0]], []
        result = results[0]
        log.exception(
            "%s/%s: the outcome at %r cannot be recorded: a failed try is counted",
            result.item.route,
            result.item.key,
            result.item.stage,
        )
        wrong = Retry(
            f"the outcome cannot be recorded: {error}", category="WRONG_ANSWER", unknown=True
        )
        return _decide_and_apply(
            ctx,
            [JobResult(result.item, wrong, result.response_ms, failed_alone=result.failed_alone)],
        )


def _decide_and_apply(
    ctx: Context, results: Sequence[JobResult], requests: Sequence[ClaimRequest] = ()
) -> tuple[Answers, list[ClaimResult]]:
    now, jitter, plans = ctx.clock.now(), ctx.chance.jitter, ctx.plans
    changes = [
        decide(
            result.item if not result.failed_alone else _alone(result.item),
            result.outcome,
            plans[result.item.row.route],
            now,
            0.0 if type(result.outcome) is Done else jitter(),
            by=_author(plans, result.item),
            response_ms=result.response_ms,
        )
        for result in results
    ]
    if requests:
        answers, claims = ctx.ledger.apply_and_claim(
            changes, now, _versions(ctx), requests, jitter()
        )
    else:
        answers, claims = ctx.ledger.apply(changes, now, _versions(ctx)), []
    return list(zip((change.after for change in changes), answers, strict=True)), claims


def _author(plans: Mapping[str, Plan], item: Item) -> str | None:
    """The worker with the program that its handler says it is; None: the worker alone."""
    row = item.row
    stage = plans[row.route].by_name.get(row.stage)
    program = None if stage is None else stage.program
    return None if program is None else f"{row.holder or 'check'} ({program})"


def _versions(ctx: Context) -> dict[str, int]:
    return {name: plan.version for name, plan in ctx.plans.items()}


def _alone(item: Item) -> Item:
    """Mark the item to be run alone until it advances."""
    return Item(replace(item.row, alone=True), item.content)


def _settle_again(
    ctx: Context, result: JobResult, answer: Conflict, summary: SettleResult, follow: list[Row]
) -> None:
    """Settle one outcome that lost a race: while its lease is valid, or if it is that of a check
    without a lease, it is decided again on the current row. A check is valid for the same stage and
    round, if the item is not claimed and has not ended; otherwise it is dropped: nothing was done,
    and the next check looks again."""
    claimed = result.item.row
    for _ in range(TRIES):
        current, now = answer.current, ctx.clock.now()
        if current is None:
            break
        if claimed.lease is None:
            same = (current.stage, current.round, current.pass_no) == (
                claimed.stage,
                claimed.round,
                claimed.pass_no,
            )
            if not same or answer.outdated or current.terminal or current.lease is not None:
                break
            current = replace(current, holder=claimed.holder, claimed_at=claimed.claimed_at)
        elif current.lease != claimed.lease:
            if recorded(ctx, current, claimed.lease):
                summary.written += 1
                return
            noted = ctx.ledger.apply(
                [late(current, result.outcome, now, by=claimed.holder or "", lease=claimed.lease)],
                now,
            )[0]
            if not isinstance(noted, Conflict):
                break
            answer = noted
            continue
        item = Item(
            replace(current, alone=current.alone or result.failed_alone), result.item.content
        )
        versions: dict[str, int] | None = _versions(ctx)
        if answer.outdated:
            change, versions = (
                undecided(current, result.outcome, now, by=claimed.holder or ""),
                None,
            )
        else:
            by, plan = _author(ctx.plans, item), ctx.plans[current.route]
            change = decide(
                item,
                result.outcome,
                plan,
                now,
                ctx.chance.jitter(),
                by=by,
                response_ms=result.response_ms,
            )
        again = ctx.ledger.apply([change], now, versions)[0]
        if again is None:
            if answer.outdated:
                summary.undecided += 1
            else:
                summary.written += 1
                if change.after.total_attempts != current.total_attempts:
                    _log_failed_try(result, change.after)
                follow.append(change.after)
            return
        left = _count_refused(ctx, result, current, again, summary)
        if left is None:
            return
        answer = left
    summary.refused += 1


def _log_failed_try(result: JobResult, after: Row) -> None:
    outcome = result.outcome
    warn_of_failed_try(
        after,
        result.item.stage,
        outcome.traceback if isinstance(outcome, (Retry, Reject)) else None,
    )


def _count_refused(
    ctx: Context, result: JobResult, row: Row, unwritten: Conflict | Refused, summary: SettleResult
) -> Conflict | None:
    """If the storage refused the outcome, count a failed attempt instead. None: settled; otherwise
    the conflict that is left."""
    answer = (
        count_refused(ctx, row, unwritten, result.response_ms)
        if isinstance(unwritten, Refused)
        else unwritten
    )
    if isinstance(answer, Conflict):
        return answer
    if answer is None:
        summary.refused += 1
    else:
        summary.written += 1
        _log_failed_try(result, answer)
    return None


def recorded(ctx: Context, current: Row, lease: str, outcome: Outcome | None = None) -> bool:
    """Whether an outcome of this claim (the given one, if any) was already written, and only the
    ledger's answer was lost. Its history line has the claim's digest; a repeated `NotYet` writes no
    line and is marked on the row."""
    claim = claim_digest(lease)
    if current.settled == claim:
        return outcome is None or isinstance(outcome, NotYet)
    lines = [written.line for written in ctx.ledger.history(current.route, current.key)]
    return any(
        is_outcome_of(line, claim) and (outcome is None or records(line, outcome)) for line in lines
    )


def give_back(ctx: Context, items: Sequence[Item], why: str, *, unknown: bool = False) -> int:
    """Give claims back unfinished, without counting an attempt; returns how many were still
    claimed."""
    # A check without a lease holds nothing: its message returns to the queue.
    rows = [item.row for item in items if item.row.lease is not None]
    tickets = {
        (item.row.route, item.row.key, item.row.lease): item.ticket
        for item in items
        if item.ticket is not None
    }
    given: list[Row] = []
    ended: list[Any] = []
    for _ in range(TRIES):
        if not rows:
            break
        now = ctx.clock.now()
        changes = [given_back(row, now, why=why, unknown=unknown) for row in rows]
        answers = ctx.ledger.apply(changes, now)
        written = [
            change for change, answer in zip(changes, answers, strict=True) if answer is None
        ]
        given += [change.after for change in written]
        ended += [
            tickets.get((change.before.route, change.before.key, change.before.lease))
            for change in written
        ]
        # If only a note was added meanwhile, the lease is still ours.
        rows = [
            answer.current
            for row, answer in zip(rows, answers, strict=True)
            if isinstance(answer, Conflict)
            and answer.current is not None
            and answer.current.lease == row.lease
        ]
    ctx.ledger.drop_tickets([ticket for ticket in ended if ticket is not None])
    follow_up(ctx, given)
    return len(given)
