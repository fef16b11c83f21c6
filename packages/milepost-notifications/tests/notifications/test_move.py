"""`milepost move` brings the application's own documents along: destinations, outages, figures and
counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.aws_command_line import SIGNED, AwsCommandLine
from tests.notifications.partners import Partner, Service, answers, message, service
from tests.standins import REGION

from milepost.engine.auth import make_key
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.registry import destination_views

API = "/api/v1/notifications"


def counts(at: Service) -> dict[str, Any]:
    found = figures_of(at.app)
    shop = found.senders["shop"]
    return {
        "accepted": shop.accepted,
        "delivered": shop.delivered,
        "malformed": shop.malformed,
        "starts": sum(shop.starts),
    }


def test_destinations_outages_and_figures_move(
    endpoint: str,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = (
        "sqlite:///n.db",
        f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}",
    )
    with Partner(answers(200)) as partner:
        with service(here) as at:
            at.call(
                "PUT",
                f"{API}/destinations/crm",
                {"url": partner.url, "headers": {"X-Team": "sales"}},
            )
            at.call("PUT", f"{API}/destinations/bank", {"url": "http://127.0.0.1:9/"})
            at.call(
                "POST",
                f"{API}/destinations/bank/outage",
                {"until": "2h", "reason": "the bank is being moved"},
            )
            at.post(message(partner.url, messageId="counted"))
            at.post({"senderId": "shop"})
            at.work()
            at.state.collector.turn(at.app, hold=False)
            assert counts(at) == {"accepted": 1, "delivered": 1, "malformed": 1, "starts": 1}
            at.post(message(partner.url, messageId="not counted yet"))
            at.app.context.ledger.write("application", "other/thing", {"a": 1})
            make_key(at.ctx, "shop", ["submit"], by="ops", reason="a test")
            at.milepost.stop()
        command = AwsCommandLine(tmp_path, capsys, here)
        command.write("milepost.toml", f'ledger = "{here}"\napplications = ["notifications"]\n')
        planned = command.ok("move", "--to", there, "--dry-run", "--json").json
        moved = command.signed("move", "--to", there, "--json").json
        assert "Not moved" not in command.ok("move", "--to", there, *SIGNED).out, "it is done"
        assert moved["finished"], moved["differences"]
        assert planned["documents"] == moved["documents"] >= 5
        assert moved["left"] == ["document other/thing", "API key shop"]
        with service(there) as at:
            assert figures_of(at.app).seq == 2, "the place of the same line there"
            found = {one["name"]: one for one in destination_views(at.app)}
            assert (found["crm"]["registered"], found["bank"]["registered"]) == ("ledger", "ledger")
            assert (found["bank"]["state"], found["bank"]["paused"]["reason"]) == (
                "outage",
                "the bank is being moved",
            )
            at.milepost.run(until_idle=1)
            at.state.collector.turn(at.app)
            assert counts(at) == {"accepted": 2, "delivered": 2, "malformed": 1, "starts": 2}, (
                "each line once"
            )
    assert [one.headers["x-team"] for one in partner.requests] == ["sales", "sales"]
