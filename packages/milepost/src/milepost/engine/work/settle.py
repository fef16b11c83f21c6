"""Settle outcomes, each fenced by its lease: write the batch in one transaction, then resolve each
conflict on its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.claims import is_outcome_of, records
from milepost.core.decide import decide, given_back, late, undecided
from milepost.core.errors import LedgerError, is_shortage
from milepost.core.history import claim_digest
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.routes.plan import Plan
from milepost.engine.apply import count_refused, follow_up
from milepost.engine.conflicts import ItemWrite, retry_on_conflict
from milepost.engine.context import Context
from milepost.engine.failed_tries import warn_of_failed_try
from milepost.ports.handler import program_of
from milepost.ports.items import ClaimRequest, ClaimResult, Conflict, Refused
from milepost.ports.runner import JobResult

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
    for result, (after, answer) in zip(results, answers, strict=True):
        if answer is None:
            summary.written += 1
            if after.total_attempts != result.item.row.total_attempts:
                _log_failed_try(result, after)
            if after.kept:
                follow.append(after)
        elif not _settle_again(ctx, result, answer, summary, follow):
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
    program = None if stage is None else program_of(stage.handler)
    return None if program is None else f"{row.holder or 'check'} ({program})"


def _versions(ctx: Context) -> dict[str, int]:
    return {name: plan.version for name, plan in ctx.plans.items()}


def _alone(item: Item) -> Item:
    """Mark the item to be run alone until it advances."""
    return Item(replace(item.row, alone=True), item.content)


def _settle_again(
    ctx: Context,
    result: JobResult,
    answer: Conflict | Refused,
    summary: SettleResult,
    follow: list[Row],
) -> bool:
    """Settle one outcome that was not written with the others. Returns whether it is recorded now,
    in whatever form: then the ticket of its claim is dropped."""
    if isinstance(answer, Refused):
        conflict = _count_refused(ctx, result, result.item.row, answer, summary)
        if conflict is None:
            return True
    else:
        conflict = answer
    written = summary.written
    write = OutcomeWrite(ctx, result, conflict, summary, follow)
    retry_on_conflict(ctx, [write])
    if not write.settled:
        summary.refused += 1
    return summary.written > written


class OutcomeWrite(ItemWrite):
    """The write of one outcome that lost a race: while its lease is valid, or if it is that of a
    check without a lease, it is decided again on the current row.

    A check is valid for the same stage and round, if the item is not claimed and has not ended;
    otherwise it is dropped: nothing was done, and the next check looks again.
    """

    def __init__(
        self,
        ctx: Context,
        result: JobResult,
        conflict: Conflict,
        summary: SettleResult,
        follow: list[Row],
    ) -> None:
        self.settled = False
        self._ctx = ctx
        self._result = result
        self._claimed = result.item.row
        self._conflict = conflict
        self._current = self._claimed
        """The row that the present decision is about."""
        self._late = False
        """Its lease was lost: what is written is a note of that."""
        self._summary = summary
        self._follow = follow

    def decide(self) -> Change | None:
        current = self._conflict.current
        outdated = self._conflict.outdated
        self._late = False
        if current is None:
            return None
        if self._claimed.lease is None:
            if outdated or not _is_open_for_check(self._claimed, current):
                return None
            current = replace(
                current, holder=self._claimed.holder, claimed_at=self._claimed.claimed_at
            )
        elif current.lease != self._claimed.lease:
            return self._note_late(current, self._claimed.lease)
        self._current = current
        self.checks_version = not outdated
        return self._decide_undecided() if outdated else self._decide_on_current()

    def _note_late(self, current: Row, lease: str) -> Change | None:
        ctx, outcome = self._ctx, self._result.outcome
        if recorded(ctx, current, lease):
            self.settled = True
            self._summary.written += 1
            return None
        self._late = True
        self.checks_version = False
        return late(current, outcome, ctx.clock.now(), by=self._claimed.holder or "", lease=lease)

    def _decide_undecided(self) -> Change:
        return undecided(
            self._current,
            self._result.outcome,
            self._ctx.clock.now(),
            by=self._claimed.holder or "",
        )

    def _decide_on_current(self) -> Change:
        ctx, result, current = self._ctx, self._result, self._current
        alone = current.alone or result.failed_alone
        item = Item(replace(current, alone=alone), result.item.content)
        return decide(
            item,
            result.outcome,
            ctx.plans[current.route],
            ctx.clock.now(),
            ctx.chance.jitter(),
            by=_author(ctx.plans, item),
            response_ms=result.response_ms,
        )

    def written(self, change: Change) -> None:
        if self._late:
            return
        self.settled = True
        if self._conflict.outdated:
            self._summary.undecided += 1
            return
        self._summary.written += 1
        if change.after.total_attempts != self._current.total_attempts:
            _log_failed_try(self._result, change.after)
        self._follow.append(change.after)

    def refused(self, refused: Refused) -> Conflict | None:
        if self._late:
            return None
        conflict = _count_refused(self._ctx, self._result, self._current, refused, self._summary)
        self.settled = conflict is None
        return conflict

    def lost(self, conflict: Conflict) -> bool:
        self._conflict = conflict
        return True


def _is_open_for_check(looked_at: Row, current: Row) -> bool:
    """Whether the item is at the stage and round that a check without a lease has looked at, not
    claimed and not ended."""
    same_stage = (current.stage, current.round, current.pass_no) == (
        looked_at.stage,
        looked_at.round,
        looked_at.pass_no,
    )
    return same_stage and not current.terminal and current.lease is None


def _log_failed_try(result: JobResult, after: Row) -> None:
    outcome = result.outcome
    warn_of_failed_try(
        after,
        result.item.stage,
        outcome.traceback if isinstance(outcome, (Retry, Reject)) else None,
    )


def _count_refused(
    ctx: Context, result: JobResult, row: Row, refused: Refused, summary: SettleResult
) -> Conflict | None:
    """The storage refused the outcome: count a failed attempt instead. None: settled; otherwise the
    conflict that is left."""
    answer = count_refused(ctx, row, refused, result.response_ms)
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
    claims = [ClaimReturn(ctx, item, why, unknown) for item in items if item.row.lease is not None]
    retry_on_conflict(ctx, claims)
    returned = [claim for claim in claims if claim.after is not None]
    tickets = [claim.ticket for claim in returned if claim.ticket is not None]
    ctx.ledger.drop_tickets(tickets)
    follow_up(ctx, [claim.after for claim in returned if claim.after is not None])
    return len(returned)


class ClaimReturn(ItemWrite):
    """The write that gives one claim back. `after`: the row without the claim, once it is
    written."""

    checks_version = False

    def __init__(self, ctx: Context, item: Item, why: str, unknown: bool) -> None:
        self.after: Row | None = None
        self.ticket = item.ticket
        self._ctx = ctx
        self._row = item.row
        self._why = why
        self._unknown = unknown

    def decide(self) -> Change:
        return given_back(self._row, self._ctx.clock.now(), why=self._why, unknown=self._unknown)

    def written(self, change: Change) -> None:
        self.after = change.after

    def refused(self, refused: Refused) -> None:
        """The claim stays until its lease expires."""

    def lost(self, conflict: Conflict) -> bool:
        current = conflict.current
        if current is None or current.lease != self._row.lease:
            return False
        # Only a note was added meanwhile: the claim is still this worker's.
        self._row = current
        return True
