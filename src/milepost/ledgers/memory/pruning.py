"""Rows that have ended leave, with their lines; their seals stay until they are to be forgotten."""

from __future__ import annotations

from milepost.ledgers.memory.state import State
from milepost.ports.ledger import Keep, Known, Leaving, Pruned


def prune(state: State, route: str, ended_before: int, forget_before: int | None, up_to_seq: int, limit: int, keep: Keep | None) -> Pruned:
    ended = [
        record
        for record in state.records.values()
        if record.row.route == route and record.row.terminal and record.row.entered_at < ended_before and record.lines[-1].seq <= up_to_seq
    ]
    if keep is not None and ended:
        keep([Leaving(record.item(), list(record.lines)) for record in ended[:limit]])
    for record in ended[:limit]:
        row = record.row
        seal = Known(row.key, row.status, row.input_digest, row.stage, row.list_id, True, row.entered_at, row.head, row.content_digest)
        state.seals[row.route, row.key] = seal
        del state.records[row.route, row.key]
        for line in record.lines:
            del state.lines[line.seq]
            state.offered.pop(line.seq, None)
    old = [] if forget_before is None else [ref for ref, seal in state.seals.items() if ref[0] == route and _ended(seal) < forget_before]
    for ref in old[:limit]:
        del state.seals[ref]
    state.writes += 1
    return Pruned(len(ended[:limit]), len(old[:limit]), len(ended) > limit or len(old) > limit)


def _ended(seal: Known) -> int:
    return seal.ended_at or 0
