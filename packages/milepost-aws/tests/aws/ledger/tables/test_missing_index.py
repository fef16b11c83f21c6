"""A table made by hand without the index of due rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.aws_command_line import AwsCommandLine, address

from milepost_aws.ledger.names import ResourceNames


def test_a_table_without_its_index_is_told_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endpoint: str,
    prefix: str,
    client: Callable[[str], Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    table = ResourceNames(prefix).rows("parcels")
    client("dynamodb").create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    command_line = AwsCommandLine(tmp_path, capsys, address(endpoint, prefix))
    answer = command_line("up", "--until-idle", "0.3")
    assert answer.code == 1
    assert f"dynamodb query of {table} in {endpoint}: the table has no index 'due'" in answer.flat
    assert "a global secondary index of dueShard and dueAt" in answer.flat
    assert "ValidationException" not in answer.flat
