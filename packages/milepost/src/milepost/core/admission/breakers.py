"""Circuit breaker of a lane: closed, open after failures in a row, then half-open for a set number
of probes. Time is passed in.

A breaker is closed where it has no record, or one that only counts failures. The ledger keeps the
record, so all processes share it; a lane without recent failures has none and costs no write. While
the breaker is open, the lane's items wait and are not claimed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.rates import SET_BACK_MS
from milepost.core.change import Change
from milepost.core.claims import by_kept
from milepost.core.failures import CANNOT_BE_READ
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.route import Stage
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso

ERROR_LIMIT = 300
"""Characters that are kept of the failure that opened a breaker."""
MOST_PARTIES = 32
"""Parties of failures that a record keeps apart."""
PROBE_CANDIDATES = 1_000
"""Due items of a lane among which a probe is chosen."""
_ANSWERED = frozenset(
    {
        Reason.ADVANCED,
        Reason.COMPLETED,
        Reason.NOT_YET,
        Reason.CHECKED,
        Reason.HANDED_OVER,
        Reason.REJECTED,
    }
)
"""Outcomes of a worker that show that the stage's partner answers. That it rejects one item says
nothing against the partner."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Probe(Struct, frozen=True):
    """An item that was let through a half-open breaker. Its slot is free again when its lease has
    run out."""

    key: str
    since: int
    until: int


class BreakerRecord(Struct, frozen=True, omit_defaults=True):
    """The ledger's record of one lane's breaker."""

    failures: list[int] = []
    """Times of the latest failed tries, while the breaker is closed."""
    error: str = ""
    """The latest failure."""
    opened_at: int | None = None
    """Since when it is open or half-open; None: it is closed."""
    retry_at: int = 0
    """When the cooldown ends."""
    probes: list[Probe] = []
    passed: int = 0
    """Number of probes that have succeeded."""
    needed: int = 1
    """Number of probes that must succeed, as declared by the stage when the latest was let
    through."""
    trips: int = 0
    """How often it has opened since it was closed last."""
    parties: list[str] = []
    """Digests of the parties of the latest counted failures, the last one last."""
    lost_worker: str = ""
    """The worker whose loss was counted last."""
    lost_at: int = 0
    """When that was: the items that it had claimed until then count as one failure."""

    @property
    def closed(self) -> bool:
        return self.opened_at is None

    def state(self, now: int) -> BreakerState:
        if self.closed:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.retry_at else BreakerState.HALF_OPEN

    def probe_of(self, key: str) -> Probe | None:
        return next((probe for probe in self.probes if probe.key == key), None)


def ends_claim(change: Change) -> bool:
    """Whether the change ends the claim of its item, which may say something about the partner of
    the item's lane."""
    before, after = change.before, change.after
    kept = (
        after.claimed_at == before.claimed_at
        and after.lease == before.lease
        and after.stage == before.stage
    )
    return change.breaker is not None or (before.claimed_at is not None and not kept)


def breaker_after(record: BreakerRecord | None, change: Change) -> BreakerRecord | None:
    """The record of the lane's breaker after this change; the same object: nothing has changed,
    None: none is to be kept."""
    key, line = change.before.key, change.line
    attempt = None if line is None else line.attempt
    if change.breaker is not None:
        now = change.after.updated_at
        if attempt is None:
            lost_by, claimed_at = change.before.holder or "", change.before.claimed_at or 0
            return after_loss(record, change.breaker, key, lost_by, claimed_at, now, change.party)
        return after_failure(
            record, change.breaker, key, f"{attempt.category}: {attempt.message}", now, change.party
        )
    if record is None or not ends_claim(change):
        return record
    if not change.asked:
        answered = False
    elif line is None:
        answered = change.after.status is Status.WAITING and not change.after.unknown
    else:
        unreadable = attempt is not None and attempt.category == CANNOT_BE_READ
        cannot_tell = line.reason is Reason.NOT_YET and change.after.unknown
        answered = (
            line.reason in _ANSWERED and not by_kept(line) and not unreadable and not cannot_tell
        )
    # Else the claim says nothing about the partner: the item was given back, cancelled, or
    # confirmed from outside, or the handler could not tell.
    return after_success(record, key) if answered else after_silence(record, key)


def after_loss(
    record: BreakerRecord | None,
    breaker: Breaker,
    key: str,
    worker: str,
    claimed_at: int,
    now: int,
    party: str = "",
) -> BreakerRecord:
    """The record after a worker was lost with an item. That is one failure for all items that it
    held then: it may have been killed, and that says little about the partner."""
    if record is not None and record.lost_worker == worker and claimed_at <= record.lost_at:
        return record
    failed = after_failure(record, breaker, key, f"the worker {worker} was lost", now, party)
    return failed if failed is record else replace(failed, lost_worker=worker, lost_at=now)


def after_failure(
    record: BreakerRecord | None, breaker: Breaker, key: str, error: str, now: int, party: str = ""
) -> BreakerRecord:
    """The record after a failed try of an item. While the breaker is open, only the failure of a
    probe counts: a try that began before it opened says nothing new."""
    record = record or BreakerRecord()
    error = error[:ERROR_LIMIT]
    if party and (record.closed or record.probe_of(key) is not None):
        record = replace(
            record,
            parties=[*(one for one in record.parties if one != party), party][-MOST_PARTIES:],
        )
    if record.closed:
        begin = now - breaker.within_ms
        failures = [*(at for at in record.failures if begin < at <= now + SET_BACK_MS), now][
            -breaker.failures :
        ]
        if len(failures) < breaker.failures:
            return replace(record, failures=failures, error=error)
        return replace(
            record,
            failures=[],
            error=error,
            opened_at=now,
            retry_at=now + breaker.cooldown_ms,
            trips=1,
        )
    if record.probe_of(key) is None:
        return record
    return replace(
        record,
        error=error,
        retry_at=now + breaker.cooldown_ms,
        probes=[],
        passed=0,
        trips=record.trips + 1,
    )


def after_success(record: BreakerRecord, key: str) -> BreakerRecord | None:
    """The record after a try that did not fail; None: the breaker is closed and nothing is to be
    kept."""
    if record.closed:
        return None
    if record.probe_of(key) is None:
        return record
    passed = record.passed + 1
    return (
        None
        if passed >= record.needed
        else replace(record, probes=_without(record, key), passed=passed)
    )


def after_silence(record: BreakerRecord, key: str) -> BreakerRecord:
    """The record after a claim that ended without saying anything about the partner: a probe's slot
    is free again."""
    return record if record.probe_of(key) is None else replace(record, probes=_without(record, key))


def room_for(record: BreakerRecord | None, breaker: Breaker, now: int) -> int | None:
    """Number of items of the lane that the breaker lets through now; None: any number."""
    if record is None or record.closed:
        return None
    if now < record.retry_at:
        return 0
    under_way = sum(now < probe.until for probe in record.probes)
    return max(0, breaker.probes - record.passed - under_way)


def ask_again_at(record: BreakerRecord, breaker: Breaker, now: int) -> int | None:
    """The time at which to ask the breaker again, because it may let an item through then; None: it
    does now."""
    room = room_for(record, breaker, now)
    if room is None or room > 0:
        return None
    return (
        record.retry_at
        if now < record.retry_at
        else min(probe.until for probe in record.probes if now < probe.until)
    )


def with_probes(
    record: BreakerRecord, breaker: Breaker, keys: Sequence[str], now: int, until: int
) -> BreakerRecord:
    """The record after these items were let through, each under a lease until then. Probes whose
    lease has run out are forgotten."""
    others = [probe for probe in record.probes if now < probe.until and probe.key not in keys]
    return replace(
        record, probes=[*others, *(Probe(key, now, until) for key in keys)], needed=breaker.probes
    )


def probe_order(record: BreakerRecord | None, stage: Stage, keys: Sequence[str]) -> list[str]:
    """These items in the order in which they are let through as probes: first those of a party that
    has not failed of late, then those whose party failed longest ago; otherwise as given."""
    if record is None or not record.parties or stage.party is None:
        return list(keys)
    failed = {party: number for number, party in enumerate(record.parties, 1)}
    return sorted(keys, key=lambda key: failed.get(stage.party_of(key), 0))


def with_leases(record: BreakerRecord, leases: Mapping[str, int]) -> BreakerRecord:
    """The record with the present lease ends of probes that are still under way: their workers may
    have extended the leases."""
    if not any(leases.get(probe.key, 0) > probe.until for probe in record.probes):
        return record
    return replace(
        record,
        probes=[
            replace(probe, until=max(probe.until, leases.get(probe.key, 0)))
            for probe in record.probes
        ],
    )


def at_clock(record: BreakerRecord, breaker: Breaker, now: int) -> BreakerRecord:
    """Correct the times of a record if the clock was set back: no cooldown and no lease may last
    longer than it was set to. Store the result, or the wait would start anew at every look."""
    if record.closed:
        return record
    if record.retry_at > now + breaker.cooldown_ms + SET_BACK_MS:
        record = replace(
            record, opened_at=min(record.opened_at or now, now), retry_at=now + breaker.cooldown_ms
        )
    if any(probe.since > now + SET_BACK_MS for probe in record.probes):
        probes = [
            probe
            if probe.since <= now + SET_BACK_MS
            else Probe(probe.key, now, now + probe.until - probe.since)
            for probe in record.probes
        ]
        record = replace(record, probes=probes)
    return record


def transition(name: str, before: BreakerRecord | None, after: BreakerRecord | None) -> str | None:
    """A log message if the breaker has opened or closed; else None."""
    was_open, is_open = (
        before is not None and not before.closed,
        after is not None and not after.closed,
    )
    if after is not None and is_open and not was_open:
        failures = 1 + (0 if before is None else len(before.failures))
        many = "a failure" if failures == 1 else f"{failures} failures in a row"
        return f"the breaker of {name} has opened after {many}; nothing is started until {iso(after.retry_at)}; the last failure: {after.error}"
    return f"the breaker of {name} has closed" if was_open and not is_open else None


def _without(record: BreakerRecord, key: str) -> list[Probe]:
    return [probe for probe in record.probes if probe.key != key]
