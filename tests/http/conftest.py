"""A door that is open, over SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.http.guarded_server import Guarded, guarded
from tests.http.live_server import Answered, Visitor, visiting
from tests.http.servers_on_ledgers import new_aws_ledger

from milepost.testing.clock import VirtualClock


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Visitor]:
    """A running server with the routes `parcels` and `letters` (see `sample_route`)."""
    with visiting(tmp_path) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def shared_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """The same, for tests of a module that leave it as they found it."""
    with visiting(tmp_path_factory.mktemp("door")) as visitor:
        yield visitor


@pytest.fixture
def aws_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitor]:
    """The same over a ledger on a model of AWS."""
    # Where the ledger is told of no bucket, its blobs are in the folder where it is opened.
    monkeypatch.chdir(tmp_path)
    with new_aws_ledger() as address, visiting(tmp_path, ledger=address) as visitor:
        yield visitor


@pytest.fixture
def call(door: Visitor) -> Callable[..., Answered]:
    """`call(method, path, body, key=…, headers=…)`"""
    return door.call


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a ledger that is not there yet."""
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def at(url: str, clock: VirtualClock) -> Iterator[Guarded]:
    """A door that knows keys, with that clock; `parcels` has the item `a`."""
    with guarded(url, clock=clock) as opened:
        opened.milepost.submit("parcels", {"id": "a"})
        yield opened
