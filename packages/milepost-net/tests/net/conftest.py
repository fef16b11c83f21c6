"""A client that may call partners on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.net.partner import OPEN

import milepost_net as net


@pytest.fixture
def client() -> Iterator[net.Client]:
    with net.Client(allow_cidrs=OPEN) as client:
        yield client
