"""Fixtures of the tests on AWS: stand-ins, one of each per test process, and an empty account for every test."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.auth
import botocore.hooks
import botocore.loaders
import botocore.session
import botocore.useragent
import pytest
import standins
from postingest_scene import Opener, Postingest, opener
from table_scene import Process, Scene, scene_at

from milepost.ledgers.aws.tables.documents import Control


@pytest.fixture(scope="session", autouse=True)
def thrift() -> Iterator[None]:
    """boto3 reads AWS's descriptions of its services anew for every session, and every test has one: here they share them, and the
    names of its events. And it spells out with every request who asks, and signs it, which takes a good part of its time: the
    stand-ins read nothing of that but the access key id."""
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


@pytest.fixture(scope="session")
def dynoxide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standins.Server]:
    """In memory and shared by all tests: use the names that `prefix` gives."""
    server = standins.dynoxide(tmp_path_factory.mktemp("dynoxide"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def dynoxide_on_file(tmp_path: Path) -> Iterator[standins.Server]:
    """This test's own, which it may kill and restart; what was written is there again afterwards."""
    server = standins.dynoxide(tmp_path, tmp_path / "dynoxide.sqlite")
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> str:
    """The access key id that boto3 finds everywhere in this test; nothing else of AWS is left in the environment."""
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
def prefix() -> str:
    """For names that no other test uses."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def client(endpoint: str) -> Iterator[Callable[[str], Any]]:
    """client("dynamodb"): a boto3 client of this test's account on ministack."""
    with standins.clients(endpoint) as make:
        yield make


# The tables of `table_scene`, for the modules that have no scene of their own ---------------------------------------------
@pytest.fixture
def scene(endpoint: str) -> Iterator[Scene]:
    with scene_at(endpoint) as made:
        yield made


@pytest.fixture
def process(scene: Scene) -> Process:
    return scene.process()


@pytest.fixture
def control(scene: Scene, process: Process) -> Control:
    return Control(process, scene.names)


# The postingest document's surroundings, for the modules that want no other -----------------------------------------------
@pytest.fixture
def open_at(endpoint: str, prefix: str) -> Iterator[Opener]:
    with opener(endpoint, prefix) as open_at:
        yield open_at


@pytest.fixture(params=[0, "1h"], ids=["at once", "an hour later"])
def post(endpoint: str, prefix: str, request: pytest.FixtureRequest) -> Iterator[Postingest]:
    """The relay reads a record when it is made, and goes by what it shows; or long after, and reads the row again."""
    with opener(endpoint, prefix, request.param) as open_at:
        yield open_at()
