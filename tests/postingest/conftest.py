"""Fixtures: what is around a confirmer, on a stand-in for AWS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from confirmer_scene import Scene
from tests.aws import standins


@pytest.fixture(scope="session")
def session() -> Iterator[boto3.session.Session]:
    """boto3's, for an empty account, whatever is in the environment. Shared: what it reads once it need not read again."""
    account = standins.new_account()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", standins.environment(account)["no_proxy"])
        yield boto3.session.Session(aws_access_key_id=account, aws_secret_access_key="none", region_name=standins.REGION)


@pytest.fixture(scope="session")
def outside(ministack: standins.Server, session: boto3.session.Session) -> Iterator[tuple[Any, Any]]:
    """Clients of SQS and DynamoDB, for those who are no confirmers."""
    sqs, dynamodb = (session.client(name, endpoint_url=ministack.url) for name in ("sqs", "dynamodb"))
    yield sqs, dynamodb
    sqs.close()
    dynamodb.close()


@pytest.fixture
def desk(ministack: standins.Server, session: boto3.session.Session, outside: tuple[Any, Any]) -> Iterator[Scene]:
    """A queue, a table and a quarantine of this test's own."""
    scene = Scene(ministack.url, session, outside)
    yield scene
    scene.close()
