"""The ledgers that evidence is kept on, and a key to sign with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.evidence.evidence_scene import Scene

from milepost.evidence.signing import Signer, make_key


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.db")
    yield scene
    scene.ledger.close()


@pytest.fixture
def archive() -> Iterator[Scene]:
    """In memory: for what does not depend on the ledger."""
    scene = Scene()
    yield scene
    scene.ledger.close()


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return make_key(tmp_path_factory.mktemp("keys") / "key.pem")
