"""Fixtures for tests of the AWS ledger: an account of its own for every test, and the tables of one ledger."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.ledgers.aws.synchronous_ledger import SynchronousLedger, open_synchronous_ledger
from tests.ledgers.aws.table_scene import Process, Scene, scene_at
from tests.standins import REGION

from milepost.ledgers.aws.tables.documents import Control


@pytest.fixture(autouse=True)
def _own_account(account: str) -> None:
    """Every test has an AWS account of its own."""


@pytest.fixture
def scene(endpoint: str) -> Iterator[Scene]:
    with scene_at(endpoint) as made:
        yield made


@pytest.fixture
def ledger(endpoint: str, prefix: str) -> Iterator[SynchronousLedger]:
    """A ledger whose stream is read at once after every write."""
    opened = open_synchronous_ledger(endpoint, prefix, REGION)
    yield opened
    opened.close()


@pytest.fixture
def process(scene: Scene) -> Process:
    return scene.process()


@pytest.fixture
def control(scene: Scene, process: Process) -> Control:
    return Control(process, scene.names)
