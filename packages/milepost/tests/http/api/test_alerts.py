"""Raised alerts over HTTP, on the system page and on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.http.guarded_server import GuardedServer, guarded_server

import milepost as mp
import milepost.application as mpa
from milepost.cli.commands import cli
from milepost.engine.alerts.watch import AlertWatch
from milepost.subscribers import CallSubscriber
from milepost_testing import VirtualClock, drain


def fail(event: dict[str, object]) -> None:
    raise OSError("no answer")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[GuardedServer]:
    """Two parcels of a lane are refused, of which a rule's watch has heard; its receiver does not
    answer. Letters arrive."""
    routes = [mp.Route(name, key="id") for name in ("parcels", "letters")]
    routes[0].stage("send", lane=lambda content: content["by"])(
        lambda item: mp.Reject("no <street>", category="REFUSED")
    )
    routes[1].stage("send")(lambda item: mp.Done())
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", routes, clock) as made:
        rule = mpa.AlertRule(name="post", to=["log"])
        watch = AlertWatch(made.ctx, rule, [CallSubscriber(fail, name="pager")], "w")
        watch.run_once()
        made.milepost.submit("parcels", {"id": "a", "by": "van 1"}, {"id": "b", "by": "van 1"})
        made.milepost.submit("letters", {"id": "c"})
        drain(made.milepost, clock)
        watch.run_once()
        yield made


def test_raised_alerts_are_listed_for_those_who_see_their_route(at: GuardedServer) -> None:
    [one] = at.call("GET", "/api/v1/alerts").body["alerts"]
    assert (one["rule"], one["kind"], one["title"]) == (
        "post",
        "failures",
        "parcels/send/van 1 fails: REFUSED",
    )
    assert (one["route"], one["stage"], one["lane"], one["cause"], one["count"]) == (
        "parcels",
        "send",
        "van 1",
        "REFUSED",
        2,
    )
    assert (one["text"], one["undelivered"], one["example"] in "ab") == (
        "no <street>",
        ["pager"],
        True,
    )
    assert (
        one["command"]
        == f"milepost list parcels --status failed --lane 'van 1' --group {one['group']}"
    )
    assert at.milepost.alerts() == [one]
    assert at.milepost.alerts("other") == []
    key = at.key("read", routes=["letters"])
    assert at.call("GET", "/api/v1/alerts", key=key).body == {"alerts": []}
    assert at.call("GET", "/api/v1/alerts").status == 401


def test_the_system_page_shows_them(at: GuardedServer) -> None:
    page = at.call("GET", "/system").raw.decode()
    assert "<b>parcels/send/van 1 fails: REFUSED</b>" in page
    assert "2 failed: no &lt;street&gt;" in page
    assert "Not delivered yet to pager." in page
    key = at.key("read", routes=["letters"])
    narrow = at.call("GET", "/system", key=key).raw.decode()
    assert "No alert is raised." in narrow
    assert "van 1" not in narrow


def test_the_command_lists_them(at: GuardedServer, tmp_path: Path) -> None:
    def milepost(*words: str) -> str:
        answer = CliRunner().invoke(
            cli,
            ["--ledger", f"sqlite:///{tmp_path}/ledger.db", "alerts", *words],
            catch_exceptions=False,
        )
        return answer.output

    shown = milepost()
    assert "parcels/send/van 1 fails: REFUSED  since " in shown
    [one] = at.milepost.alerts()
    assert (
        f", 2 failed\n  no <street>\n  not delivered yet to pager\n  to see more: {one['command']}\n"
        in shown
    )
    assert json.loads(milepost("--json"))["alerts"] == at.milepost.alerts()
    assert milepost("letters") == "No alert is raised.\n"
