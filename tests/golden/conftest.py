"""Golden tests: what is stored and sent, compared with files that were recorded (`pytest
tests/golden --golden-update` records anew)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.golden.fixed import fixed
from tests.golden.history import History
from tests.golden.recording import UPDATE, Recorder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        UPDATE,
        action="store_true",
        help="record what is stored and sent now, instead of comparing with it",
    )


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Recorder:
    """Compares with the recorded files."""
    return Recorder(bool(request.config.getoption(UPDATE, default=False)))


@contextmanager
def new_folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has such a place: this is about formats, not
    about disks."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="golden-", dir=memory if memory.is_dir() else None
    ) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def history() -> Iterator[History]:
    """The golden history, played once. Tests leave its folder as it is: see `copy`."""
    with new_folder() as folder:
        yield History(folder)


@contextmanager
def copied(history: History) -> Iterator[Path]:
    """A copy of the golden ledger, at the moment at which its history ends; the world is fixed
    meanwhile."""
    with new_folder() as folder:
        shutil.copytree(history.folder, folder, dirs_exist_ok=True)
        with fixed(folder, history.clock, "test"):
            yield folder


@pytest.fixture
def copy(history: History) -> Iterator[Path]:
    """A folder with a copy of the golden ledger, for one test."""
    with copied(history) as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_copy(history: History) -> Iterator[Path]:
    """The same, for the tests of a module that leave it as they found it."""
    with copied(history) as folder:
        yield folder
