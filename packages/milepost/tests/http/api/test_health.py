"""Alive and ready: the part that is not is named, quickly and without secrets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.http.guarded_server import guarded_server
from tests.http.live_server import LiveServer
from tests.polling import wait_until

from milepost.core.errors import LedgerReadOnly
from milepost.engine import presence
from milepost.http.state import state
from milepost.ports.documents import ROUTE, RouteVersion, read_as
from milepost.station import Station


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "KEEP_S", 0.0)
    # How quick a busy machine is says nothing here.
    monkeypatch.setattr(state, "PATIENCE_S", 30.0)


@pytest.fixture
def busy(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """A door beside a station at work."""
    monkeypatch.setattr(presence, "EVERY_MS", 50)
    station = Station(live_server.ctx)
    thread = threading.Thread(target=station.run)
    thread.start()
    wait_until(lambda: live_server.call("GET", "/readyz").status == 200)
    try:
        yield live_server
    finally:
        station.stop()
        thread.join()


def missing(live_server: LiveServer) -> list[str]:
    answer = live_server.call("GET", "/readyz")
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.body["code"] == "not-ready"
    return [part["part"] for part in answer.body["parts"]]


class Instead:
    """A ledger of which one verb does something else."""

    def __init__(self, inner: Any, **verbs: Any) -> None:
        self._inner = inner
        vars(self).update(verbs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_server_is_alive_and_not_ready_before_anybody_works(live_server: LiveServer) -> None:
    alive = live_server.call("GET", "/healthz")
    assert (alive.status, alive.body) == (200, {"status": "alive"})
    assert missing(live_server) == ["station", "resender"]


def test_a_server_is_ready_while_a_station_runs_and_not_after(busy: LiveServer) -> None:
    assert busy.call("GET", "/readyz").body == {"status": "ready"}
    assert busy.call("HEAD", "/readyz").status == 200


def test_a_station_that_has_stopped_is_missed(live_server: LiveServer) -> None:
    live_server.work()
    assert missing(live_server) == ["station"]


def test_a_ledger_that_does_not_answer_makes_the_server_not_ready_and_leaves_it_alive(
    busy: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, go_on, asked = busy.ctx.ledger, threading.Event(), []

    def write(kind: str, *given: Any, **more: Any) -> Any:
        if kind == "probe":
            asked.append(kind)
            go_on.wait(30)
        return real.write(kind, *given, **more)

    monkeypatch.setattr(state, "PATIENCE_S", 0.05)
    monkeypatch.setattr(busy.ctx, "ledger", Instead(real, write=write))
    assert missing(busy) == missing(busy) == ["ledger"]
    # Whoever asks again does not ask the ledger again: its threads are not used up.
    assert asked == ["probe"]
    assert busy.call("GET", "/healthz").status == 200
    go_on.set()
    wait_until(lambda: busy.call("GET", "/readyz").status == 200)


def test_a_ledger_that_cannot_be_written_to_is_named_without_saying_where_it_is(
    busy: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = busy.ctx.ledger

    def write(kind: str, *given: Any, **more: Any) -> Any:
        if kind == "probe":
            raise LedgerReadOnly("/srv/hidden/ledger.db is read-only")
        return real.write(kind, *given, **more)

    monkeypatch.setattr(busy.ctx, "ledger", Instead(real, write=write))
    answer = busy.call("GET", "/readyz")
    assert answer.body["parts"] == [
        {"part": "ledger", "why": "it cannot be written to; see the log and 'milepost doctor'"}
    ]
    assert b"hidden" not in answer.raw


def test_a_route_that_has_changed_elsewhere_makes_the_server_not_ready(busy: LiveServer) -> None:
    document = busy.ctx.ledger.read(ROUTE)["parcels"]
    newer = msgspec.structs.replace(read_as(RouteVersion, document.value), version=2)
    busy.ctx.ledger.write(ROUTE, "parcels", msgspec.to_builtins(newer))
    answer = busy.call("GET", "/readyz")
    assert [part["part"] for part in answer.body["parts"]] == ["routes"]
    assert b"parcels" not in answer.raw


def test_health_is_open_to_those_without_a_key_and_figures_are_not(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as live_server:
        live_server.key("read")
        statuses = {
            path: live_server.call("GET", path).status
            for path in ("/healthz", "/readyz", "/metrics")
        }
        assert statuses == {"/healthz": 200, "/readyz": 503, "/metrics": 401}


def test_on_aws_whoever_ran_lately_counts_as_at_work(aws_server: LiveServer) -> None:
    assert missing(aws_server) == ["station", "resender"]
    aws_server.work()
    assert aws_server.call("GET", "/readyz").status == 200
