"""Restore the row of a finished item from its seal and the evidence that was kept.

Needs a ledger that can take over rows and keeps lines when rows are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from milepost.core.errors import LedgerError, MilepostError
from milepost.core.history import decode_line
from milepost.core.item import Content, Item, Row, digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.evidence.records import evidence_of
from milepost.evidence.record import SCHEMA
from milepost.ports.items import KnownKey
from milepost.ports.ledger import Ledger

STARTED_AGAIN = frozenset({Reason.OPERATOR_RETRY, Reason.RERUN, Reason.REPLACED})
"""Reasons after which the item's work may have another work_id."""


def can_restore(ledger: Ledger) -> bool:
    """Whether this ledger can restore rows."""
    return "take over" not in ledger.missing_capabilities


def restore_rows(ctx: Context, plan: Plan, keys: Sequence[str], since: int, *, dry_run: bool = False) -> dict[str, str]:
    """Restore the rows of these keys as they were, if they had finished by `since`; returns why not, for those that cannot be restored.
    Idempotent. With `dry_run` nothing is written."""
    refused: dict[str, str] = {}
    items: list[Item] = []
    for known in ctx.ledger.peek(plan.name, keys):
        if known is None or not known.sealed or known.status is not Status.COMPLETED or (known.ended_at or 0) > since:
            continue
        found = restored_item(ctx, plan, known)
        if isinstance(found, Item):
            items.append(found)
        else:
            refused[known.key] = found
    if items and not dry_run:
        refused |= dict(ctx.ledger.take_over(plan, items, (), (), ctx.clock.now()).refused)
    return refused


def restored_item(ctx: Context, plan: Plan, known: KnownKey) -> Item | str:
    """The item behind a seal, or why it cannot be restored. Everything is verified: the lines must lead to the seal's head, and input and
    results must have the recorded digests."""
    try:
        found = evidence_of(ctx, plan.name, known.key)
    except LedgerError:
        raise
    except MilepostError as error:
        return str(error)
    if found is None or found.record["schema"] != SCHEMA:
        return "its history lines have been pruned"
    if found.faults:
        return f"its record is inconsistent: {found.faults[0]}"
    record = found.record
    # If a stage was done several times, its last output is the item's result.
    last = {entry["stage"]: entry for entry in record["stages"]}
    missing = [stage for stage, entry in last.items() if entry["output_digest"] is not None and "output" not in entry]
    if missing:
        return f"the result of {', '.join(missing)} is no longer recorded"
    if found.input is UNSET or digest_of(found.input) != known.current_digest:
        return "its input is no longer recorded, or is not the submitted one"
    content = found.input
    lines = [decode_line(body.encode()) for body in record["chain"]["lines"]]
    stage = plan.by_name.get(known.stage)
    row = Row(
        plan.name,
        known.key,
        known.stage,
        known.status,
        len(lines),
        known.head,
        lines[0].at,
        lines[-1].at,
        known.ended_at or lines[-1].at,
        record["correlation_id"],
        known.input_digest,
        "" if stage is None or stage.lane is None else stage.lane_of(content),
        list_id=known.list_id,
        # At least as high as before: no line says which retries were made as new work, so all count. A work_id must not be used twice.
        pass_no=1 + sum(line.reason in STARTED_AGAIN for line in lines),
        content_digest=known.content_digest,
        life=lines[0].life,
    )
    return Item(row, Content(content, {}, {stage: entry["output"] for stage, entry in last.items() if "output" in entry}))
