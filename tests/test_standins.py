"""The servers that stand in for AWS do what the other tests rely on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests import standins

pytestmark = [pytest.mark.wire, pytest.mark.usefixtures("account")]

TABLE = {
    "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


def test_every_account_is_empty(
    endpoint: str, client: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    client("dynamodb").create_table(TableName="rows", **TABLE)
    assert client("dynamodb").list_tables()["TableNames"] == ["rows"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", standins.new_account())
    assert client("dynamodb").list_tables()["TableNames"] == []


def test_boto3_itself_uses_the_account(
    account: str, endpoint: str, ministack: standins.Server
) -> None:
    identity = boto3.client("sts", endpoint_url=ministack.url).get_caller_identity()
    assert identity["Account"] == account


def test_no_profile_is_read() -> None:
    assert boto3.session.Session().available_profiles == []
    assert os.environ["AWS_EC2_METADATA_DISABLED"] == "true"


def test_what_was_written_outlives_a_kill(dynoxide_on_file: standins.Server) -> None:
    dynamodb = boto3.client("dynamodb", endpoint_url=dynoxide_on_file.url)
    dynamodb.create_table(TableName="rows", **TABLE)
    dynamodb.put_item(TableName="rows", Item={"key": {"S": "a"}})
    first = dynoxide_on_file.pid
    dynoxide_on_file.kill()
    assert not dynoxide_on_file.answers()
    dynoxide_on_file.restart()
    assert dynoxide_on_file.pid != first
    assert dynamodb.get_item(TableName="rows", Key={"key": {"S": "a"}})["Item"] == {
        "key": {"S": "a"}
    }


def test_dynoxide_in_memory_answers(dynoxide: standins.Server, prefix: str) -> None:
    dynamodb = boto3.client("dynamodb", endpoint_url=dynoxide.url)
    dynamodb.create_table(TableName=prefix, **TABLE)
    # (A list of tables has a hundred at most, and other tests have left theirs.)
    assert dynamodb.describe_table(TableName=prefix)["Table"]["TableStatus"] == "ACTIVE"


def test_a_server_that_does_not_start_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = standins.dynoxide(tmp_path, tmp_path / "no" / "such" / "folder" / "file")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)ended at once with 1; its log:\n.*such"):
        server.start()
    monkeypatch.setattr(standins, "STANDINS", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"run make test"):
        standins.ministack(tmp_path)
