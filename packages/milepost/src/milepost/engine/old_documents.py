"""Old documents: which records of acts and processes leave, by age and by number. Their upkeep
removes them; recent ones always stay."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.core.status import FAILED
from milepost.engine.context import Context
from milepost.ports.documents import ACT, Act, Process, read_each_versioned

DAY_MS = 86_400_000
ACT_AGE_MS, ACTS = 400 * DAY_MS, 5_000
"""A finished act leaves after this time, or when there are so many later ones."""
RECENT_MS = 7 * DAY_MS
"""An act that ended within this time stays whatever their number: a request with its id must get
the first answer."""
PROCESS_AGE_MS, PROCESSES = 7 * DAY_MS, 500
"""A process that is not heard of leaves after this time, and one that has stopped also when there
are so many later ones."""
AT_ONCE = 500


def old_acts(acts: Mapping[str, Act], now: int) -> list[str]:
    """The ids of the finished acts that may leave, the oldest first. An act that has not finished
    stays: it can be continued. So does the latest that pruned failed items of a route: by it their
    seals are explained (see `left_items.unexplained`)."""
    explaining = _explaining(acts)
    finished = sorted(
        (act.finished_at, act_id)
        for act_id, act in acts.items()
        if act.finished_at is not None and act_id not in explaining
    )
    surplus = max(0, len(finished) - ACTS)
    return [
        act_id
        for place, (finished_at, act_id) in enumerate(finished)
        if finished_at < now - ACT_AGE_MS or (place < surplus and finished_at < now - RECENT_MS)
    ]


def _explaining(acts: Mapping[str, Act]) -> set[str]:
    """The ids of the latest acts that pruned failed items, by route and status."""
    latest: dict[tuple[str, str], str] = {}
    for act_id, act in sorted(acts.items(), key=lambda entry: entry[1].started_at):
        if act.verb == "prune":
            latest.update(
                {
                    (act.route, status): act_id
                    for status in act.filter.get("statuses", ())
                    if status in FAILED
                }
            )
    return set(latest.values())


def old_processes(processes: Mapping[str, Process], now: int) -> list[str]:
    """The names of the processes whose documents may leave, the oldest first."""
    by_age = sorted(processes.items(), key=lambda entry: (entry[1].seen_at, entry[0]))
    surplus = max(0, len(by_age) - PROCESSES)
    return [
        name
        for place, (name, process) in enumerate(by_age)
        if process.seen_at < now - PROCESS_AGE_MS or (place < surplus and process.stopped)
    ]


def remove_old_acts(ctx: Context) -> bool:
    """Remove some old acts; returns whether there are more."""
    acts = read_each_versioned(ctx.ledger, ACT, Act)
    old = old_acts({act_id: act for act_id, (act, _) in acts.items()}, ctx.clock.now())
    for act_id in old[:AT_ONCE]:
        ctx.ledger.write(ACT, act_id, None, acts[act_id][1])
    return len(old) > AT_ONCE
