"""Fixtures for the scenarios on AWS: the postingest route on a ledger, with everything around
it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.postingest.aws_scene import Opener, Postingest, opener


@pytest.fixture
def open_at(endpoint: str, prefix: str) -> Iterator[Opener]:
    with opener(endpoint, prefix) as open_at:
        yield open_at


@pytest.fixture(params=[0, "1h"], ids=["at once", "an hour later"])
def post(endpoint: str, prefix: str, request: pytest.FixtureRequest) -> Iterator[Postingest]:
    """The relay reads a record at once and uses the row that it shows, or an hour later and reads
    the row again."""
    with opener(endpoint, prefix, request.param) as open_at:
        yield open_at()
