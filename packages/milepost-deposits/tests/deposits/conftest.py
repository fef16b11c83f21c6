"""Stand-ins for Crossref and the publisher, one of each for the tests of a process, and a scene
that asks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.deposits_scene import DepositsScene

from milepost_deposits.fetch import metadata as metadata_stage
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

MakeScene = Callable[..., DepositsScene]


@pytest.fixture(autouse=True)
def no_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between the first requests to Crossref, before it has stated its limit: the tests of
    the pace have clocks of their own."""
    monkeypatch.setattr(metadata_stage, "GAP_S", 0.0)


@pytest.fixture(scope="session")
def served_crossref() -> Iterator[CrossrefStandIn]:
    with CrossrefStandIn() as standin:
        yield standin


@pytest.fixture(scope="session")
def served_publisher() -> Iterator[PublisherStandIn]:
    with PublisherStandIn() as standin:
        yield standin


@pytest.fixture
def crossref(served_crossref: CrossrefStandIn) -> CrossrefStandIn:
    """Crossref with no record, a high limit and no fault."""
    served_crossref.mend()
    served_crossref.records.clear()
    served_crossref.requests.clear()
    served_crossref.polite.clear()
    served_crossref.everything, served_crossref.limit, served_crossref.enforced = (
        False,
        10_000,
        False,
    )
    return served_crossref


@pytest.fixture
def publisher(served_publisher: PublisherStandIn) -> PublisherStandIn:
    """A publisher with no PDF and no fault."""
    served_publisher.mend()
    served_publisher.answers.clear()
    served_publisher.requests.clear()
    served_publisher.everything = False
    return served_publisher


@pytest.fixture(params=["memory", "sqlite"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/milepost.db"


@pytest.fixture
def make_scene(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> Iterator[MakeScene]:
    """Makes scenes whose partners are the stand-ins."""
    with ExitStack() as stack:

        def make(ledger: str = "memory:", **settings: Any) -> DepositsScene:
            given = {"crossref": crossref.url, "content": publisher.template} | settings
            return stack.enter_context(DepositsScene(tmp_path, ledger, **given))

        yield make
