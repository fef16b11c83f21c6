"""Lines of an evidence file: each record with the proof that a published head covers it, if one
does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from milepost.core.errors import LedgerDamaged
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.evidence import FoundRecord
from milepost.engine.heads.daily import prover
from milepost.engine.heads.trees import Prover
from milepost.engine.views.queries import key_fields
from milepost.evidence.files import NewestLine, entry_of, header
from milepost.evidence.record import chain_links, without_secrets
from milepost.evidence.signing import Signer


def first_line(
    ctx: Context,
    route: str,
    version: str,
    choice: dict[str, Any],
    view: str | None = None,
    signer: Signer | None = None,
    *,
    sees_all: bool = True,
) -> dict[str, Any]:
    """Header of an evidence file. `version` is Milepost's; `choice` the filters of the export,
    empty for all items of the route. It names the newest line of the ledger, unless the caller does
    not see all routes: that line may be of another one."""
    plan = ctx.plans.get(route)
    media = (
        {}
        if plan is None
        else {stage.name: stage.medium for stage in plan.stages if stage.medium is not None}
    )
    fields = () if plan is None else key_fields(ctx, route)
    newest = _newest_line(ctx) if sees_all else None
    made_at = iso(ctx.clock.now()) or ""
    follow_up = (
        None if plan is None or plan.route.follow_up is None else plan.route.follow_up.target.name
    )
    return header(
        route,
        made_at,
        version,
        choice,
        view,
        signer,
        key_fields=fields,
        media=media,
        newest=newest,
        follow_up=follow_up,
    )


def _newest_line(ctx: Context) -> NewestLine:
    place = ctx.ledger.last_seq()
    written = ctx.ledger.feed(place - 1, 1) if place else []
    return NewestLine(place, iso(written[0].line.at) if written else None)


def entries(
    ctx: Context,
    evidence: Iterable[FoundRecord],
    signer: Signer | None,
    doubts: list[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    """One entry per record, without outputs that hold secrets. Records that the ledger contradicts
    are added to `doubts` as (key, first reason)."""
    heads = prover(ctx)
    for found in evidence:
        faults, proof, covered = found.faults, None, None
        head = found.record["chain"]["head"] if "chain" in found.record else found.record["head"]
        try:
            proof = heads.proof(found.place, bytes.fromhex(head))
            if proof is None and not faults:
                covered = _covered(heads, found)
        except LedgerDamaged as error:
            # Without the proof the record still proves everything but its time.
            faults.append(str(error))
        if faults:
            doubts.append((found.record["key"], faults[0]))
        yield entry_of(without_secrets(found.record), proof, signer, covered)


def _covered(heads: Prover, found: FoundRecord) -> dict[str, Any] | None:
    """How many lines of a record are under heads, though its last one is not, with the proof for
    the last of these; None: none, or their places are not known."""
    number = heads.covered(found.places)
    if not number or "chain" not in found.record:
        return None
    links = chain_links(found.record)
    if number > len(links):
        return None
    proof = heads.proof(found.places[number - 1], links[number - 1])
    return None if proof is None else {"lines": number, "proof": proof}
