"""Fixtures and settings for all tests: Hypothesis, the model of AWS and the servers that stand in
for AWS.

Hypothesis tries the same examples in every run; `pytest --hypothesis-profile=explore` tries new
ones.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests import standins

from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file.store import SqliteFile
from milepost.ports.ledger import Ledger
from milepost_aws.aws_model import AwsModel
from milepost_testing.clock import VirtualClock

# No time limits: on a busy machine they would say more about the machine than about the code.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")

LAMBDA_LOG: list[logging.Handler] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pictures",
        action="store_true",
        help="keep a picture of every page that a test of the browser has opened",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow tests first: at the end of a run, all other test processes would wait for one that
    started last."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Undo what imports do to the log, and exempt what collection made from garbage collection: it
    lives until the end of the run."""
    # `milepost_aws.lambdas.start` writes the log of its process to stdout as JSON, from INFO on.
    # Its tests ask for that (`lambda_log`).
    log = logging.getLogger("milepost")
    LAMBDA_LOG[:] = log.handlers
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    gc.collect()
    gc.freeze()


@pytest.fixture
def lambda_log() -> Iterator[None]:
    """The log as functions of AWS Lambda have it."""
    log = logging.getLogger("milepost")
    log.handlers[:] = LAMBDA_LOG
    log.setLevel(logging.INFO)
    yield
    log.handlers.clear()
    log.setLevel(logging.NOTSET)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    ledger: Ledger = (
        MemoryLedger()
        if request.param == "memory"
        else SqliteLedger.open(str(tmp_path / "ledger.db"))
    )
    yield ledger
    ledger.close()


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standins.Server]:
    """A server for all of AWS that Milepost uses, shared by the tests of this test process: each
    has an account of its own."""
    server = standins.ministack(tmp_path_factory.mktemp("ministack"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def dynoxide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standins.Server]:
    """A server for DynamoDB, in memory and shared by all tests: use the names that `prefix`
    gives."""
    server = standins.dynoxide(tmp_path_factory.mktemp("dynoxide"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def dynoxide_on_file(tmp_path: Path) -> Iterator[standins.Server]:
    """A server for DynamoDB of this test's own, which it may kill and restart: the data is in a
    file."""
    server = standins.dynoxide(tmp_path, tmp_path / "dynoxide.sqlite")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def quick_botocore() -> Iterator[None]:
    """botocore without the work that the model and the stand-ins do not look at: one loader of
    service descriptions for all sessions, no signatures and no user agent."""
    import botocore.auth
    import botocore.hooks
    import botocore.loaders
    import botocore.session
    import botocore.useragent

    loader = botocore.loaders.create_loader()
    alias = botocore.hooks.EventAliaser(None)._alias_event_name
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", lambda *_: loader)
        patch.setattr(botocore.hooks.EventAliaser, "_alias_event_name", lambda _, name: alias(name))
        patch.setattr(botocore.useragent.UserAgentString, "to_string", lambda _: "test")
        patch.setattr(botocore.auth.SigV4Auth, "canonical_request", lambda *_: "")
        patch.setattr(botocore.auth.SigV4Auth, "headers_to_sign", lambda *_: {})
        patch.setattr(botocore.auth.SigV4Auth, "signature", lambda *_: "none")
        yield


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, quick_botocore: None) -> str:
    """The access key id of an empty account. boto3 finds it in the environment, and nothing else of
    AWS."""
    import boto3

    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    fresh = standins.new_account()
    for name, value in standins.environment(fresh).items():
        monkeypatch.setenv(name, value)
    # boto3 keeps one session, with the credentials that it found first.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    return fresh


@pytest.fixture
def endpoint(request: pytest.FixtureRequest, account: str) -> Iterator[str]:
    """The URL of AWS for an empty account: the model in this process, or ministack for tests marked
    `wire`."""
    if request.node.get_closest_marker("wire") is not None:
        yield request.getfixturevalue("ministack").url
        return
    with AwsModel(standins.REGION).served() as url:
        yield url


@pytest.fixture
def prefix() -> str:
    """A prefix for names that no other test uses."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def client(endpoint: str) -> Iterator[Callable[[str], Any]]:
    """client("dynamodb"): a boto3 client of this test's account."""
    with standins.clients(endpoint) as make:
        yield make


@pytest.fixture(autouse=True)
def no_connection_stays_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the ledgers and the connections to SQLite that a test has opened itself and left open,
    as a process does at its end. (From Python 3.13 on, a connection that is collected while it is
    open is a warning, in whichever test that happens.)"""
    opened: list[SqliteFile | sqlite3.Connection] = []
    begin, connect = SqliteFile.__init__, sqlite3.connect

    def opening(file: SqliteFile, *arguments: Any, **options: Any) -> None:
        begin(file, *arguments, **options)
        opened.append(file)

    def connecting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        if sys._getframe(1).f_globals["__name__"].startswith("tests."):
            opened.append(connection)
        return connection

    monkeypatch.setattr(SqliteFile, "__init__", opening)
    monkeypatch.setattr(sqlite3, "connect", connecting)
    yield
    for resource in opened:
        # (A connection that belongs to another thread is closed by it.)
        with suppress(sqlite3.ProgrammingError):
            resource.close()
