"""For all tests: under CI, Hypothesis tries the same examples every time; elsewhere it goes on looking for new ones. And the stand-in
for AWS, one per test process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.aws import standins

# No deadline for a single example: on a busy machine it would say more about the machine than about the code.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: one that began last would be waited for by everybody."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standins.Server]:
    server = standins.ministack(tmp_path_factory.mktemp("ministack"))
    server.start()
    yield server
    server.stop()
