"""For all tests: Hypothesis tries the same examples every time, unless it is told to look for new ones
(`pytest --hypothesis-profile=explore`). And the stand-in for AWS, one per test process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.aws import standins

from milepost.testing.aws_model import AwsModel

# No time limits: on a busy machine they would say more about the machine than about the code.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", action="store_true", help="keep a picture of every page that a test of the browser has opened")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: one that began last would be waited for by everybody."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What is there by now stays to the end: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standins.Server]:
    server = standins.ministack(tmp_path_factory.mktemp("ministack"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where boto3 finds an empty account: the model in this process, or, for tests marked as `wire`, ministack."""
    if request.node.get_closest_marker("wire") is not None:
        yield request.getfixturevalue("ministack").url
        return
    with AwsModel(standins.REGION).served() as url:
        yield url
