"""Records of evidence as the lines of a file: each with the proof that a published head covers it, where one does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from milepost.core.errors import LedgerDamaged
from milepost.engine.context import Context
from milepost.engine.evidence import Found
from milepost.engine.heads import prover
from milepost.evidence.files import entry_of
from milepost.evidence.signing import Signer


def entries(ctx: Context, evidence: Iterable[Found], signer: Signer | None, doubts: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """A line for each record. What the ledger does not bear out in full comes into `doubts`, by key, with the first reason."""
    heads = prover(ctx)
    for found in evidence:
        faults, proof = found.faults, None
        head = found.record["chain"]["head"] if "chain" in found.record else found.record["head"]
        try:
            proof = heads.proof(found.place, bytes.fromhex(head))
        except LedgerDamaged as error:
            # The record proves by itself all but when it was there.
            faults.append(str(error))
        if faults:
            doubts.append((found.record["key"], faults[0]))
        yield entry_of(found.record, proof, signer)
