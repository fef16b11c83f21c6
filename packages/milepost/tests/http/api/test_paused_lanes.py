"""A pause says how many items it holds back, and near names if it is for a lane without any: at
every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.live_server import LiveServer, running_server
from tests.http.servers_on_ledgers import new_aws_ledger, server_over

import milepost as mp

HOLDS = "/api/v1/routes/orders/holds"
WHY = {"reason": "the partner moves"}


def orders() -> mp.Route:
    route = mp.Route("orders", key="id")
    route.stage("ship", lane=lambda content: content["lane"])(lambda item: mp.Done())
    return route


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LiveServer]:
    with running_server(tmp_path, orders()) as opened:
        for lane, n in (("partner-05", 3), ("partner-50", 2), ("north", 1)):
            opened.milepost.submit(
                "orders", *({"id": f"{lane}-{number}", "lane": lane} for number in range(n))
            )
        yield opened


def test_the_api_counts_what_waits_and_names_near_lanes(at: LiveServer) -> None:
    lane = at.call("PUT", f"{HOLDS}/ship/partner-05", WHY).body
    assert (lane["waiting"], lane["near"]) == (3, [])
    stage = at.call("PUT", f"{HOLDS}/ship", WHY).body
    assert stage["waiting"] == 6
    assert at.call("PUT", HOLDS, WHY).body["waiting"] == 6
    typo = at.call("PUT", f"{HOLDS}/ship/partner-5", WHY).body
    assert (typo["waiting"], sorted(typo["near"])) == (0, ["partner-05", "partner-50"])
    other = at.call("PUT", f"{HOLDS}/ship/zzz", WHY).body
    assert (other["waiting"], other["near"]) == (0, [])
    assert {hold["waiting"] for hold in at.call("GET", HOLDS).body["holds"]} == {None}, (
        "only the call that pauses counts"
    )


def test_python_counts_too(at: LiveServer) -> None:
    signed = {"by": "ops", "reason": "a typo"}
    assert at.milepost.pause("orders", "ship", "north", **signed).waiting == 1
    typo = at.milepost.pause("orders", "ship", "nort", **signed)
    assert (typo.waiting, typo.near) == (0, ["north"])


def test_on_aws_the_number_is_not_known() -> None:
    with new_aws_ledger() as ledger, server_over(ledger, orders()) as at:
        assert at.call("PUT", f"{HOLDS}/ship/north", WHY).body["waiting"] is None
