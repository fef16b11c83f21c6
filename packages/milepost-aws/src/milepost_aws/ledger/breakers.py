"""Circuit breakers on AWS: one control document for each lane with recent failures, written
conditionally.

Each process caches the documents for a few seconds (`StoreSettings.fresh_ms`), as it does with
pauses: a breaker that another process has opened takes effect here with that delay. Probes are
counted by a conditional write, so there are never too many. A failure is counted after its row was
written: if the process dies in between, it is not counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from milepost.core.admission.breakers import (
    BreakerRecord,
    after_silence,
    at_clock,
    breaker_after,
    ends_claim,
    probe_order,
    room_for,
    transition,
    with_leases,
    with_probes,
)
from milepost.core.admission.controls import scope
from milepost.core.change import Change
from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.ports.documents import BREAKER, read_as, update
from milepost_aws.ledger.refused_rows import readable
from milepost_aws.ledger.store import AwsStore

log = logging.getLogger(__name__)


def record_of(
    store: AwsStore, route: str, stage: Stage, lane: str, now: int
) -> BreakerRecord | None:
    """The lane's open breaker by the present clock, at most `fresh_ms` old; None: it is closed, or
    the lane has none."""
    breaker = stage.breaker_of(lane)
    if breaker is None:
        return None
    name = scope(route, stage.name, lane)
    document = store.documents(BREAKER, now).get(name)
    try:
        record = None if document is None else read_as(BreakerRecord, document.value)
    except LedgerDamaged:
        return None  # a breaker is a hint: it opens anew
    if record is None or record.closed:
        return None
    if at_clock(record, breaker, now) is not record:
        record = _change(
            store, name, lambda held: None if held is None else at_clock(held, breaker, now)
        )
    return None if record is None or record.closed else record


def take_probes(
    store: AwsStore, route: str, stage: Stage, lane: str, keys: Sequence[str], now: int, until: int
) -> list[str]:
    """Take probe slots of the lane's half-open breaker for these items; returns the keys that got
    one."""
    breaker, name = stage.breaker_of(lane), scope(route, stage.name, lane)
    assert breaker is not None, "it has a record that is open"
    taken: list[str] = []

    def let_through(record: BreakerRecord | None) -> BreakerRecord | None:
        nonlocal taken
        if record is None or record.closed:
            taken = list(keys)
            return record
        record = _with_leases(store, route, record, now)
        room = room_for(record, breaker, now)
        taken = list(keys) if room is None else probe_order(record, stage, keys)[:room]
        return with_probes(record, breaker, taken, now, until) if taken else record

    _change(store, name, let_through)
    return taken


def release_probes(store: AwsStore, route: str, stage: str, lane: str, keys: Sequence[str]) -> None:
    """Free the slots of probes that were not claimed after all."""

    def without(record: BreakerRecord | None) -> BreakerRecord | None:
        for key in keys if record is not None else ():
            assert record is not None
            record = after_silence(record, key)
        return record

    _change(store, scope(route, stage, lane), without)


def update_breakers(store: AwsStore, changes: Sequence[Change], now: int) -> None:
    """Update the lanes' breakers after changes were written; without a recent failure in the lane
    this writes nothing. Never raises: the rows are written, and a breaker that misses a failure
    only opens a little later."""
    for change in changes:
        before = change.before
        stage = store.stage(before.route, before.stage)
        if stage is None or stage.breaker_of(before.lane) is None or not ends_claim(change):
            continue
        name = scope(before.route, before.stage, before.lane)
        try:
            if change.breaker is not None or name in store.documents(BREAKER, now):
                _change(store, name, lambda record, change=change: breaker_after(record, change))  # type: ignore[misc]
        except LedgerError as error:
            log.warning("the breaker of %s could not be updated: %s", name, error)


def _with_leases(store: AwsStore, route: str, record: BreakerRecord, now: int) -> BreakerRecord:
    """The record with the present leases of probes that seem to have expired: workers may have
    extended them."""
    over = [probe.key for probe in record.probes if probe.until <= now]
    layout = store.layout(route) if over else None
    if layout is None:
        return record
    rows = (readable(store, layout, image) for image in store.images(route, over).values())
    return with_leases(
        record,
        {
            row.key: row.look_at or 0
            for row in rows
            if row is not None and row.status is Status.PROCESSING
        },
    )


def _change(
    store: AwsStore, name: str, decide: Callable[[BreakerRecord | None], BreakerRecord | None]
) -> BreakerRecord | None:
    """Write the record that `decide` makes of the present one, if it differs. After a lost race,
    decide again on the new record."""
    # What is written now replaces a damaged record.
    changing = update(store.control, BREAKER, name, BreakerRecord, decide, damaged=None)
    if changing.written:
        store.forget(BREAKER)
        text = transition(name, changing.before, changing.after)
        if text is not None:
            log.warning("%s", text)
    return changing.after
