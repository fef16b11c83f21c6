"""Fixtures for tests of the stand-alone confirmer."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from tests import standins
from tests.postingest.confirmer.confirmer_scene import Scene


@pytest.fixture(scope="session")
def session() -> Iterator[boto3.session.Session]:
    """boto3's, for an empty account, whatever is in the environment. Shared: what it reads once it
    need not read again."""
    account = standins.new_account()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", standins.environment(account)["no_proxy"])
        yield boto3.session.Session(
            aws_access_key_id=account, aws_secret_access_key="none", region_name=standins.REGION
        )


@pytest.fixture
def scene(endpoint: str, session: boto3.session.Session) -> Iterator[Scene]:
    """A queue, a table and a quarantine of this test's own."""
    scene = Scene(endpoint, session)
    yield scene
    scene.close()
