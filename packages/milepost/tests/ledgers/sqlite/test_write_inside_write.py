"""A function of a route that writes to the ledger while a write calls it: a clear error, and no
process that waits for itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core.due import Lease
from milepost.core.errors import UsageError
from milepost.ports.items import ClaimRequest
from milepost_testing import VirtualClock

HANGS_S = 60.0


def test_a_write_inside_a_write_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    with mp.open(f"sqlite:///{tmp_path}/m.db") as opened:
        ledger = opened.context.ledger
        store = ledger._store  # type: ignore[attr-defined]
        with pytest.raises(
            UsageError,
            match=r"a function of a route \(lane, accepts\) has written to the ledger while it was called",
        ):
            store.write(lambda connection: ledger.write("t", "inner", 1))
        assert ledger.write("t", "next", 1)
        assert set(ledger.read("t")) == {"next"}


def test_a_lane_that_submits_while_a_claim_applies_a_kept_confirmation_does_not_block_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, route, side = VirtualClock(), mp.Route("parcels", key="id"), mp.Route("side", key="id")
    side.external("sent")

    def lane(content: dict[str, Any]) -> str:
        ledger.submit("side", {"id": content["id"]})
        return "north"

    route.stage("weigh", remote=True)
    route.stage("stamp", lane=lane)(lambda item: mp.Done())
    ledger = mp.open(f"sqlite:///{tmp_path}/m.db", routes=[route, side], clock=clock)
    ledger.submit("parcels", {"id": "p1"})
    plan = ledger.context.plans["parcels"]

    def claim(token: str) -> None:
        now = clock.now()
        ledger.context.ledger.claim(
            [ClaimRequest(plan, "weigh", 1, Lease(token, "worker", now + 1000))], now, 0.0
        )

    claim("first")
    ledger.confirm("parcels", "p1", "weigh", by="partner")
    clock.advance("1h")
    thread = threading.Thread(target=claim, args=("second",), daemon=True)
    thread.start()
    thread.join(HANGS_S)
    assert not thread.is_alive()
    story = ledger.show("parcels", "p1")
    assert (story["stage"], story["lane"]) == ("stamp", ""), (
        "as with every lane function that fails"
    )
    assert "let it only compute, and let a handler submit, confirm or act" in caplog.text
    ledger.close()
