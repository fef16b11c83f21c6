"""The ledgers that a program may open: all three, or the two that are quick to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.servers_on_ledgers import new_aws_ledger


@pytest.fixture(params=["memory", "sqlite", "aws"])
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    # Where a ledger on AWS is told of no bucket, its blobs are in the folder where it is opened.
    monkeypatch.chdir(tmp_path)
    if request.param == "aws":
        server = (
            request.getfixturevalue("ministack")
            if request.node.get_closest_marker("wire")
            else None
        )
        with new_aws_ledger(server) as address:
            yield address
    else:
        yield {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/letters.db"}[request.param]


@pytest.fixture(params=["memory", "sqlite"])
def quick_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/letters.db"}[request.param]
