"""Recheck: checks at intervals whether every file of a completed asset is still where its stages
found it, and is still the same.

Each completed asset has one item on a separate route, whose input holds what each stage had
confirmed. While everything is there, the item waits for its next check; if something is missing or
damaged, it is rejected, and subscribers get that event. After the repair an operator retries it,
and the schedule continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import milepost as mp
import milepost.application as mpa
from milepost_postingest.comparison import Comparison, compared
from milepost_postingest.program import program_of

GONE, DAMAGED = "GONE", "DAMAGED"
STAGE = "recheck"
FOUND = "stages"
"""Field of a recheck's result: what was found at stages where it differs from what they had
confirmed."""

Check = Callable[..., mp.Outcome]
"""A worker's check of a payload; `absent` makes the outcome for missing files."""


def add_recheck(
    route: mp.Route, checks: Mapping[str, Check], every: str | timedelta, retry: mp.Backoff
) -> None:
    """Check every completed asset again after `every`, and from then on at that interval, on a
    separate route."""
    if not checks:
        raise mp.ConfigMistake(
            "recheck needs a stage that Milepost checks by itself: give a queue the worker 'ocfl' or 'scoutam'"
        )
    interval = timedelta(milliseconds=mpa.span_ms(every, "recheck"))
    route.then(
        recheck_route(f"{route.name}-recheck", checks, interval, retry),
        partial(recheck_input, interval, list(checks)),
    )


def recheck_route(
    name: str, checks: Mapping[str, Check], every: timedelta, retry: mp.Backoff
) -> mp.Route:
    """The route of the rechecks of one kind of asset. `checks` are by stage, in the order of the
    stages."""
    route = mp.Route(name, key=("assetId", "batchId"), not_before="notBefore", skips=False)
    route.stage(
        STAGE,
        checks=mp.Checks(every="1h", up_to="1d", overdue=every + timedelta(days=30)),
        retry=retry,
    )(Recheck(checks, every))
    return route


def recheck_input(
    every: timedelta, stages: list[str], item: mp.Item, completed_at: datetime
) -> dict[str, Any]:
    """Input of a recheck, from a completed asset: its identifiers, the payload of each stage, what
    each stage confirmed, and the time of the first check."""
    asset, batch = item.key_parts
    return {
        "assetId": asset,
        "batchId": batch,
        "notBefore": (completed_at + every).isoformat(),
        "payloads": {stage: _payload_of(item, stage) for stage in stages},
        "confirmed": {stage: item.results[stage] for stage in stages if stage in item.results},
    }


def _payload_of(item: mp.Item, stage: str) -> Any:
    """The payload that the stage was given: its own, or the asset's input if it had none."""
    payload = item.payload_of(stage)
    return item.input if payload is None else payload


class Recheck:
    """The handler of the recheck stage: runs each stage's own check on the payload of that stage,
    and compares what it finds with what the stage had confirmed."""

    program = program_of("recheck")

    def __init__(self, checks: Mapping[str, Check], every: timedelta) -> None:
        self._checks = dict(checks)
        self._every = every

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting of a check is missing or wrong."""
        for check in self._checks.values():
            ready = getattr(check, "ready", None)
            if callable(ready):
                ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        earlier = item.results.get(STAGE, {}).get(FOUND, {})
        confirmed = {**item.input.get("confirmed", {}), **earlier}
        changed = dict(earlier)
        comparisons: list[str] = []
        for stage, check in self._checks.items():
            outcome = check(item.input["payloads"].get(stage), absent=partial(gone, stage))
            if not isinstance(outcome, mp.Done):
                return outcome
            comparison = compared(confirmed.get(stage), outcome.output)
            if comparison.missing or comparison.other:
                return _failed(stage, comparison)
            if comparison.moved:
                changed[stage] = comparison.volumes
            comparisons.append(f"{stage}: {comparison}")
        note = f"every file was there{_on_date(item)}; {'; '.join(comparisons)}"
        output = {FOUND: changed} if changed != earlier else None
        return mp.Checked(output, after=self._every.total_seconds(), note=note)


def _on_date(item: mp.Item) -> str:
    """The date of this check by the ledger's clock."""
    claimed_at = mpa.iso(item.row.claimed_at)
    return "" if claimed_at is None else f" on {claimed_at[:10]}"


def _failed(stage: str, comparison: Comparison) -> mp.Outcome:
    """The outcome if the stage finds something else than it had confirmed."""
    if comparison.missing:
        return gone(stage, comparison.missing_text)
    return mp.Reject(
        f"{stage} had confirmed other content: {comparison.other_text}; restore it, then retry this item",
        category=DAMAGED,
        details={"stage": stage, "files": comparison.other[:10]},
    )


def gone(stage: str, what: str) -> mp.Outcome:
    """The outcome if something that a stage had confirmed is missing."""
    return mp.Reject(
        f"{stage} had confirmed it; now it is gone or incomplete: {what.removesuffix(' yet')}; restore it, then retry this item",
        category=GONE,
    )
