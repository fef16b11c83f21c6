"""Rename of a stage in the memory ledger: changes everything that names it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from milepost.ledgers.memory.state import State, decode_content, encode
from milepost.ports.documents import BREAKER, HOLD, LIMIT


def rename_stage(state: State, route: str, old: str, new: str) -> None:
    """Rename it in items with their content and waiting outcomes, error groups, seals, pauses and limits."""
    state.writes += 1
    for record in state.records.values():
        row = record.row
        if row.route != route:
            continue
        content = decode_content(record.content)
        content.payloads, content.results = _renamed(content.payloads, old, new), _renamed(content.results, old, new)
        record.content = encode(content)
        record.row = replace(row, stage=new if row.stage == old else row.stage, kept=_renamed(row.kept, old, new))
    for at in [at for at in state.groups if at[:2] == (route, old)]:
        seen = state.groups.pop(at)
        there = state.groups.setdefault((route, new, at[2]), seen)
        if there is not seen:
            there.total += seen.total
            there.first_at, there.last_at = min(there.first_at, seen.first_at), max(there.last_at, seen.last_at)
    for ref, seal in state.seals.items():
        if (ref[0], seal.stage) == (route, old):
            state.seals[ref] = replace(seal, stage=new)
    for kind in (HOLD, LIMIT, BREAKER):
        documents = state.documents.get(kind, {})
        for name in [name for name in documents if (name + "/").startswith(f"{route}/{old}/")]:
            state.put_document(kind, f"{route}/{new}" + name.removeprefix(f"{route}/{old}"), state.remove_document(kind, name))


def _renamed(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in values.items()}
