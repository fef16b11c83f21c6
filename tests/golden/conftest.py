"""Golden tests: what is stored and sent, compared with files that were recorded (`pytest tests/golden --golden-update` records anew)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.golden.fixed import fixed
from tests.golden.history import History
from tests.golden.recording import UPDATE, Recorder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(UPDATE, action="store_true", help="record what is stored and sent now, instead of comparing with it")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Recorder:
    """Compares with the recorded files."""
    return Recorder(bool(request.config.getoption(UPDATE, default=False)))


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """The golden history, played once. Tests leave its folder as it is: see `copy`."""
    return History(tmp_path_factory.mktemp("golden"))


@contextmanager
def copied(history: History, folder: Path) -> Iterator[Path]:
    """A copy of the golden ledger, at the moment at which its history ends; the world is fixed meanwhile."""
    shutil.copytree(history.folder, folder)
    with fixed(folder, history.clock, "test"):
        yield folder


@pytest.fixture
def copy(history: History, tmp_path: Path) -> Iterator[Path]:
    """A folder with a copy of the golden ledger, for one test."""
    with copied(history, tmp_path / "copy") as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_copy(history: History, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same, for the tests of a module that leave it as they found it."""
    with copied(history, tmp_path_factory.mktemp("shared") / "copy") as folder:
        yield folder
