"""Fixtures: running servers on SQLite and on AWS, with and without keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import HttpAnswer, LiveServer, running_server
from tests.http.servers_on_ledgers import new_aws_ledger

from milepost_testing.clock import VirtualClock


@pytest.fixture
def live_server(tmp_path: Path) -> Iterator[LiveServer]:
    """A running server with the routes `parcels` and `letters` (see `sample_route`)."""
    with running_server(tmp_path) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The same, for tests of a module that leave it as they found it."""
    with running_server(tmp_path_factory.mktemp("door")) as visitor:
        yield visitor


@pytest.fixture
def aws_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    """The same over a ledger on a model of AWS."""
    # Where the ledger is told of no bucket, its blobs are in the folder where it is opened.
    monkeypatch.chdir(tmp_path)
    with new_aws_ledger() as address, running_server(tmp_path, ledger=address) as visitor:
        yield visitor


@pytest.fixture
def call(live_server: LiveServer) -> Callable[..., HttpAnswer]:
    """`call(method, path, body, key=…, headers=…)`"""
    return live_server.call


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a ledger that is not there yet."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def at(url: str, clock: VirtualClock) -> Iterator[GuardedServer]:
    """A door that knows keys, with that clock; `parcels` has the item `a`."""
    with guarded_server(url, clock=clock) as opened:
        opened.milepost.submit("parcels", {"id": "a"})
        yield opened
