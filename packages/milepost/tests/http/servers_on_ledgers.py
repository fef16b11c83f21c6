"""Doors over any ledger, with a clock of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from tests import standins
from tests.http.live_server import LiveServer

import milepost as mp
from milepost.http.server.assembly import HttpServer
from milepost.ports.runner import Clock
from milepost_aws.aws_model import AwsModel


@contextmanager
def server_over(ledger: str, route: mp.Route, clock: Clock | None = None) -> Iterator[LiveServer]:
    with mp.open(ledger, routes=[route], clock=clock) as milepost:
        door = HttpServer(milepost.context, "127.0.0.1", 0)
        door.open()
        try:
            yield LiveServer(milepost, door)
        finally:
            door.close()


@contextmanager
def new_aws_ledger(server: standins.Server | None = None) -> Iterator[str]:
    """The address of an empty ledger: on a model of AWS of its own, or in an account of its own on
    a stand-in."""
    with pytest.MonkeyPatch.context() as patch, AwsModel(standins.REGION).served() as model:
        url = model if server is None else server.url
        for name, value in standins.environment(standins.new_account()).items():
            patch.setenv(name, value)
        patch.setattr(boto3, "DEFAULT_SESSION", None)
        yield f"dynamodb://{standins.REGION}/t{secrets.token_hex(4)}?endpoint={url}"
