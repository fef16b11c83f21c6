"""A door that is open, over SQLite."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from tests.aws import standins
from tests.http.visitor import Answered, Visitor, visiting


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
def aws_ledger(ministack: standins.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty ledger on AWS."""
    return _new_ledger(ministack, monkeypatch)


@pytest.fixture(scope="module")
def shared_aws_ledger(ministack: standins.Server) -> Iterator[str]:
    """The address of one that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        yield _new_ledger(ministack, patch)


def _new_ledger(ministack: standins.Server, patch: pytest.MonkeyPatch) -> str:
    for name, value in standins.environment(standins.new_account()).items():
        patch.setenv(name, value)
    patch.setattr(boto3, "DEFAULT_SESSION", None)
    return f"dynamodb://{standins.REGION}/t{secrets.token_hex(4)}?endpoint={ministack.url}"


@pytest.fixture
def aws_door(aws_ledger: str, tmp_path: Path) -> Iterator[Visitor]:
    """The same as `door` over a ledger on AWS."""
    with visiting(tmp_path, ledger=aws_ledger) as visitor:
        yield visitor


@pytest.fixture
def call(door: Visitor) -> Callable[..., Answered]:
    """`call(method, path, body, key=…, headers=…)`"""
    return door.call
