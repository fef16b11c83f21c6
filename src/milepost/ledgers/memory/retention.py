"""Pruning of the memory ledger: ended rows leave, their lines once they are delivered, and seals once they may be forgotten."""

from __future__ import annotations

from collections import Counter

from milepost.ledgers.memory.state import State
from milepost.ports.items import KnownKey
from milepost.ports.retention import Leaving, PruneCriteria, Pruned


def prune(state: State, asked: PruneCriteria) -> Pruned:
    route, limit, ended_before = asked.route, asked.limit, asked.ended_before
    ended = [
        record
        for record in state.records.values()
        if record.row.route == route
        and record.row.terminal
        and record.row.status in asked.statuses
        and record.row.entered_at < ended_before
    ]
    if asked.keep is not None and ended:
        asked.keep([Leaving(record.item(), list(record.lines)) for record in ended[:limit]])
    for record in ended[:limit]:
        row = record.row
        state.seals[row.route, row.key] = KnownKey.of(row, sealed=True)
        state.departed.append(state.records.pop((row.route, row.key)))
    gone = [
        record
        for record in state.departed
        if record.row.route == route
        and record.row.entered_at < ended_before
        and asked.delivered.covers(route, record.row.key, record.lines[-1].seq)
    ]
    for record in gone[:limit]:
        state.departed.remove(record)
        for line in record.lines:
            del state.lines[line.seq]
            state.offered.pop(line.seq, None)
    waiting = {(record.row.route, record.row.key) for record in state.departed}
    old = [
        ref
        for ref, seal in state.seals.items()
        if asked.forget_before is not None and ref[0] == route and (seal.ended_at or 0) < asked.forget_before and ref not in waiting
    ]
    for ref in old[:limit]:
        del state.seals[ref]
    state.writes += 1
    left = Counter(record.row.status for record in ended[:limit])
    more = max(len(ended), len(gone), len(old)) > limit
    return Pruned(len(ended[:limit]), len(old[:limit]), more, len(gone[:limit]), dict(left))
