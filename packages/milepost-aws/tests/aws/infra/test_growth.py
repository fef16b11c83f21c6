"""Changes of route files and the resources that change with them; cfn-lint finds nothing."""

from __future__ import annotations

import subprocess
from collections import Counter

from tests.aws.infra.conftest import BIN
from tests.aws.infra.templates import Template


def added(before: Template, after: Template) -> Counter[str]:
    """Kinds of what came; nothing may go or change its id."""
    assert set(before.resources) - set(after.resources) == set()
    return Counter(
        after.resources[id]["Type"] for id in set(after.resources) - set(before.resources)
    )


def changed(before: Template, after: Template) -> set[str]:
    """Kinds of what was there before and is not quite the same."""
    return {
        before.resources[id]["Type"]
        for id in before.resources
        if before.resources[id] != after.resources[id]
    }


def test_an_external_stage_more(templates: dict[str, Template]) -> None:
    before, after = templates["assets"], templates["remote"]
    assert added(before, after) == {
        "AWS::SQS::Queue": 1,
        "AWS::SQS::QueuePolicy": 1,
        "AWS::IAM::ManagedPolicy": 1,
        "AWS::CloudWatch::Alarm": 1,
    }
    # Relay, resender, processes and people may offer it, and the dashboard shows it.
    assert changed(before, after) == {
        "AWS::IAM::Role",
        "AWS::IAM::ManagedPolicy",
        "AWS::CloudWatch::Dashboard",
    }


def test_a_stage_with_a_handler_more(templates: dict[str, Template]) -> None:
    before, after = templates["assets"], templates["check"]
    assert added(before, after) == {
        "AWS::SQS::Queue": 1,
        "AWS::SQS::QueuePolicy": 1,
        "AWS::Lambda::Function": 1,
        "AWS::Lambda::EventSourceMapping": 1,
        "AWS::IAM::Role": 1,
        "AWS::Logs::LogGroup": 1,
        # oldest item, oldest message, missing messages, errors, throttles
        "AWS::CloudWatch::Alarm": 5,
    }
    assert changed(before, after) == {
        "AWS::IAM::Role",
        "AWS::IAM::ManagedPolicy",
        "AWS::CloudWatch::Dashboard",
    }


def test_a_route_more(templates: dict[str, Template]) -> None:
    before, after = templates["assets"], templates["both"]
    found = added(before, after)
    assert (
        found["AWS::DynamoDB::Table"],
        found["AWS::SQS::Queue"],
        found["AWS::Lambda::Function"],
    ) == (1, 3, 2)
    assert "AWS::DynamoDB::Table" not in changed(before, after)
    assert "AWS::SQS::Queue" not in changed(before, after)


def test_evidence_is_a_table_for_the_daily_heads_and_its_stream(
    templates: dict[str, Template],
) -> None:
    before, after = templates["assets"], templates["evidence"]
    assert added(before, after) == {"AWS::DynamoDB::Table": 1, "AWS::Lambda::EventSourceMapping": 1}
    # Relay, resender, processes and people may see to it.
    assert changed(before, after) == {"AWS::IAM::Role", "AWS::IAM::ManagedPolicy"}


def test_cfn_lint_has_nothing_to_say(templates: dict[str, Template]) -> None:
    # The others have nothing that these have not.
    paths = [str(templates[case].path) for case in ("both", "topic", "key")]
    said = subprocess.run([BIN / "cfn-lint", *paths], capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr, said.returncode) == ("", "", 0)
