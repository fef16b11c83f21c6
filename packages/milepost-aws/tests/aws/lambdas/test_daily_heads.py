"""Daily heads on AWS: the resender function publishes them, the topic receives them, and records
are proved by them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.aws.lambdas.deployment import PARCELS, Deploy, Deployment, deployments
from tests.cli.aws_command_line import ROUTES, AwsCommandLine, address

from milepost.blobs.folder import FolderBlobs
from milepost.core.errors import LedgerError
from milepost.engine.evidence import evidence_of
from milepost.engine.heads import daily as heads_module
from milepost.engine.heads import trees
from milepost.engine.heads.daily import DAY_MS, all_heads, prover
from milepost.evidence.heads import head_digest
from milepost_aws.lambdas import resender, start

EVIDENT = PARCELS.replace('key="id"', 'key="id", evidence=True')


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


def through(one: Deployment, *keys: str) -> None:
    one.submit(*keys)
    one.run(lambda: one.all_at("COMPLETED"))
    one.run()


def next_day(one: Deployment) -> None:
    one.clock.advance((DAY_MS - one.clock.now() % DAY_MS) / 1000 + 60)


def told_heads(one: Deployment) -> list[dict[str, Any]]:
    return [
        event["data"]["note"]
        for event in one.events()
        if event["type"] == "milepost.item.accepted" and "/heads" in event["source"]
    ]


def is_proved(one: Deployment, key: str) -> bool:
    ctx = one.opened.ctx
    found = evidence_of(ctx, "parcels", key)
    assert found is not None
    proof = prover(ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"]))
    return proof is not None and proof["root"] in {head["root"] for head in all_heads(ctx)}


def test_the_resender_publishes_one_a_day_and_the_topic_is_told(deploy: Deploy) -> None:
    one, today = deploy(EVIDENT), datetime.now(UTC).date()
    through(one, "a", "b")
    one.resend()
    assert all_heads(one.opened.ctx) == [] or datetime.now(UTC).date() > today, (
        "the day is not over"
    )
    for day in range(2):
        next_day(one)
        assert one.resend()["daily head"] == "up to date"
        one.resend()
        through(one, f"on day {day}")
    first, second = all_heads(one.opened.ctx)
    assert told_heads(one) == [first, second]
    assert (second["previous"], second["after"]) == (head_digest(first), first["up_to"])
    assert is_proved(one, "a")
    assert is_proved(one, "b")
    assert {
        row.row.status
        for row in one.opened.ledger.get([("heads", head["day"]) for head in (first, second)])
        if row
    } == {"COMPLETED"}
    assert one.aside() == []


def test_a_run_sums_up_so_many_lines_and_the_next_goes_on_whoever_makes_it(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "PART", 4)
    monkeypatch.setattr(heads_module, "PARTS", 1)
    monkeypatch.setattr(resender, "SUMS", 2)
    one = deploy(EVIDENT)
    through(one, *"abcdefg")
    lines = one.opened.ledger.last_seq()
    next_day(one)
    runs = 0
    while one.resend()["daily head"] != "up to date":
        runs += 1
        assert all_heads(one.opened.ctx) == []
        start.forget()  # a container of its own
        one.open()
    assert runs == lines // 8
    [head] = all_heads(one.opened.ctx)
    assert (head["count"], head["up_to"]) == (lines, lines)
    assert all(is_proved(one, key) for key in "abcdefg")
    left = [path.name for path in (Path(one.folder) / "blobs" / "heads" / head["day"]).iterdir()]
    assert not [name for name in left if name.startswith("so-far")]


def test_a_bucket_that_takes_nothing_fails_the_run_and_the_head_comes_later(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy(EVIDENT)
    through(one, "a")
    next_day(one)

    def refuse(self: FolderBlobs, name: str, chunks: Iterable[bytes]) -> None:
        raise OSError("access denied")

    with monkeypatch.context() as patch:
        patch.setattr(FolderBlobs, "write", refuse)
        with pytest.raises(
            LedgerError, match="cannot store the daily head; next try in a minute: access denied"
        ):
            one.resend()
    assert all_heads(one.opened.ctx) == []
    one.resend()
    assert len(all_heads(one.opened.ctx)) == 1


def test_a_row_that_somebody_puts_among_the_heads_is_set_aside(deploy: Deploy) -> None:
    one = deploy(EVIDENT)
    through(one, "a")
    one.dynamodb.put_item(
        TableName=f"{one.prefix}-heads",
        Item={"day": {"S": "2020-01-01"}, "input": {"S": '{"day":"2020-01-01"}'}},
    )
    one.run()
    [aside] = one.aside()
    assert "it holds the daily heads" in json.dumps(aside)
    assert one.opened.ledger.history("heads", "2020-01-01") == []


def test_the_command_line_publishes_exports_and_verifies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endpoint: str,
    prefix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    command_line = AwsCommandLine(tmp_path, capsys, address(endpoint, prefix))
    command_line.write("parcels.py", ROUTES.replace('key="id"', 'key="id", evidence=True'))
    command_line.submit({"id": "torn", "torn": True})
    command_line.up()
    refused = command_line("submit", "heads", "--item", '{"day": "2020-01-01"}')
    assert refused.code == 2
    assert "route 'heads' accepts no items: it holds the daily heads" in refused.err
    head = command_line.ok("heads", "publish", "--json").json["head"]
    assert "nothing was changed" in command_line.ok("heads", "publish").out
    command_line.up()
    heads = command_line.ok("heads", "--json")
    assert heads.json == {"heads": [head]}
    command_line.write("heads.json", heads.out)
    command_line.ok("export", "parcels", "--evidence", "--out", "evidence.jsonl")
    verified = command_line.ok("verify", "evidence.jsonl", "--head", "heads.json", "--complete").out
    assert "1 of 1 records: every line given is under a published head" in verified
    assert f"no line of the route up to the head of {head['day']} is missing" in verified
    assert command_line.ok("show", "heads", head["day"], "--json").json["status"] == "COMPLETED"
    assert not [
        finding
        for finding in command_line("doctor", "--json").json["findings"]
        if "heads" in str(finding) and finding["level"] != "ok"
    ]
