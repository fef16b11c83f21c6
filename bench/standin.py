"""The stand-in for AWS that the figures are counted on: ministack, a process of its own, and an
empty account for each run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """ministack, as the tests start it, for as long as this lasts; its address."""
    from tests import standins

    server = standins.ministack(folder)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def account(number: str) -> Iterator[None]:
    """Every client that is made within belongs to this account, and nothing is found of whoever
    runs this."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": number,
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "no_proxy": "127.0.0.1",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def client(service: str, endpoint: str, region: str) -> Any:
    """A plain boto3 client, as an outsider has it."""
    from boto3.session import Session

    return Session(region_name=region).client(service, endpoint_url=endpoint)
