"""A small archive for tests of evidence: assets are checked, put on tape by a partner, and
pruned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import milepost as mp
from milepost.composition import open_context
from milepost.core.item import Row
from milepost.core.status import TERMINAL
from milepost.core.values.durations import iso
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.engine.evidence import FoundRecord, all_evidence, evidence_of
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.heads.route import heads_route
from milepost.engine.intake import submit
from milepost.engine.retention import PruneReport, prune
from milepost.evidence.files import entry_of, header, write_file
from milepost.evidence.signing import Signer
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger
from milepost_testing import drain
from milepost_testing.clock import SeededChance, VirtualClock

ROUTE = "assets"
DAY = 86_400_000
SIGNED: dict[str, str] = {"by": "ops", "reason": "a test"}


def assets(*, evidence: bool = True) -> mp.Route:
    route = mp.Route(ROUTE, key="id", evidence=evidence)

    @route.stage("CC", retry=mp.Backoff(attempts=1))
    def check(item: mp.Item) -> mp.Outcome:
        if item.input.get("damaged"):
            return mp.Reject("its digest differs", category="DAMAGED")
        paths = [f"{item.key}/v1/content/été & <{number}>.tif" for number in range(2)]
        return mp.Done(
            {
                "filePaths": paths,
                "digests": {path: f"sha512:{n:0128x}" for n, path in enumerate(paths)},
                "bytes": 7,
            }
        )

    route.external("Scout", resend_after="14d")
    return route


class Scene:
    """One process's view of a ledger that keeps evidence."""

    def __init__(
        self, url: str = "memory:", *, evidence: bool = True, clock: VirtualClock | None = None
    ) -> None:
        self.clock = clock or VirtualClock()
        self.ctx = open_context(
            url, [assets(evidence=evidence)], clock=self.clock, chance=SeededChance(1)
        )

    @property
    def ledger(self) -> Ledger:
        return self.ctx.ledger

    def beside(self, seed: int = 2) -> Context:
        """Another process on the same ledger, with the same place for blobs."""
        return Context(self.ledger, self.ctx.plans, self.clock, SeededChance(seed), self.ctx.blobs)

    def bring(self, *keys: str, **content: Any) -> None:
        """To the tape's stage, or, if damaged, to its end."""
        submit(self.ctx, ROUTE, [{"id": key, **content} for key in keys])
        drain(self.ctx, self.clock)

    def tape(self, *keys: str) -> None:
        """The tape library says where the files are: through."""
        for key in keys:
            [item] = self.ledger.get([(ROUTE, key)])
            assert item is not None
            volumes = {path: ["V1", f"V{key}"] for path in item.results["CC"]["filePaths"]}
            answer = confirm_outside(
                self.ctx, ROUTE, key, "Scout", mp.Done(volumes), "tape library"
            )
            assert isinstance(answer, Row), answer
        drain(self.ctx, self.clock)

    def through(self, *keys: str) -> None:
        self.bring(*keys)
        self.tape(*keys)

    def prune(self) -> PruneReport:
        """Let go of everything that has ended; the item of the newest line would stay, so another
        has it."""
        self.clock.advance("1h")
        self.bring(f"newest-{self.clock.now()}")
        return prune(self.ctx, ROUTE, 0, statuses=TERMINAL, **SIGNED)

    def record(self, key: str) -> dict[str, Any]:
        return self.found(key).record

    def found(self, key: str) -> FoundRecord:
        found = evidence_of(self.ctx, ROUTE, key)
        assert found is not None
        return found

    def export(self, path: Path, signer: Signer | None = None, *, view: str | None = None) -> Path:
        """The evidence of everything, without the command line."""
        from milepost.engine.heads.daily import prover

        heads = prover(self.ctx)
        entries = (
            entry_of(
                found.record,
                heads.proof(
                    found.place, bytes.fromhex(found.record.get("chain", found.record)["head"])
                ),
                signer,
            )
            for found in all_evidence(self.ctx, Query(route=ROUTE, with_content=True))
        )
        with path.open("wb") as out:
            write_file(
                out,
                header(ROUTE, iso(self.clock.now()) or "", "0", {}, view, signer),
                entries,
                signer,
            )
        return path


__all__ = ["DAY", "HEADS", "ROUTE", "SIGNED", "Scene", "assets", "heads_route"]
