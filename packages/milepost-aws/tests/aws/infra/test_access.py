"""Least privilege: control documents by kind, history by route, blobs by prefix; the same for
processes and people."""

from __future__ import annotations

import json
import subprocess
from fnmatch import fnmatchcase
from typing import Any

from tests.aws.infra.conftest import BIN, ROOT
from tests.aws.infra.templates import KEY, Template, listed, plain, write_case

NOTHING = {
    "Condition": {
        "Null": {"dynamodb:LeadingKeys": "false"},
        "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": []},
    }
}
SECRETS = {"key", "session"}
PEOPLE = {"process", "operator", "viewer"}


def leading(statement: dict[str, Any]) -> set[str]:
    condition = statement["Condition"]
    # All of none is true: a request must name keys at all.
    assert condition["Null"] == {"dynamodb:LeadingKeys": "false"}
    (asked,) = (
        value for operator, value in condition.items() if operator.startswith("ForAllValues:")
    )
    return set(listed(asked["dynamodb:LeadingKeys"]))


def functions(template: Template) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        name: template.statements(name)
        for name in template.named("Lambda::Function", "FunctionName")
    }


def people(template: Template) -> dict[str, dict[str, dict[str, Any]]]:
    """By name without the prefix: statements by id."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, policy in template.named("IAM::ManagedPolicy", "ManagedPolicyName").items():
        if name.startswith("test-milepost-"):
            may = found.setdefault(
                name.removeprefix("test-milepost-").removesuffix("-messages"), {}
            )
            for one in policy["PolicyDocument"]["Statement"]:
                may[one["Sid"]] = {
                    **one,
                    "Action": listed(one["Action"]),
                    "Resource": listed(one["Resource"]),
                }
    return found


def test_every_statement_on_the_control_table_names_the_kinds_of_documents(
    template: Template,
) -> None:
    control = template.id_of("DynamoDB::Table", "TableName", "test-control")
    for who, may in {**functions(template), **people(template)}.items():
        for sid, statement in may.items():
            if control in statement["Resource"] and statement["Action"] != [
                "dynamodb:DescribeTable"
            ]:
                assert leading(statement), f"{who}: {sid}"
                assert "dynamodb:Scan" not in statement["Action"]


def test_no_function_writes_api_keys_and_sessions_and_only_accept_reads_them(
    template: Template,
) -> None:
    for who, may in functions(template).items():
        assert who == "test-accept" or not SECRETS & leading(may["ControlRead"]), who
        assert not SECRETS & leading(may["ControlWrite"]), who


ADMITS = {"breaker#deposits", "bucket#deposits", "holding#deposits"}
"""What the worker of a route writes to admit items."""


def test_a_worker_writes_heartbeats_rates_and_held_lanes_of_its_own_route_alone(
    both: Template,
) -> None:
    may = both.statements("test-deposits-metadata")
    assert leading(may["ControlWrite"]) == {"aside#deposits", "process", *ADMITS}
    assert not {kind for kind in leading(may["ControlRead"]) if kind.endswith("#assets")}
    assert leading(may["History"]) == {"deposits/*"}
    assert not {action for one in may.values() for action in one["Action"]} & {
        "dynamodb:BatchWriteItem",
        "s3:DeleteObject",
    }


def test_a_worker_whose_handler_pauses_its_lane_writes_no_pause_of_another_route(
    both: Template,
) -> None:
    may = both.statements("test-deposits-content")
    assert leading(may["ControlWrite"]) == {
        "act#deposits",
        "aside#deposits",
        "hold#deposits",
        "process",
        *ADMITS,
    }


def test_before_the_upgrade_of_an_older_deployment_its_workers_write_what_its_tables_need(
    templates: dict[str, Template],
) -> None:
    may = templates["older"].statements("test-deposits-content")
    assert leading(may["ControlWrite"]) == {
        *("act#deposits", "aside#deposits", "hold#deposits", "process", *ADMITS),
        *("act", "bucket", "hold", "holding"),
    }


def test_every_function_and_person_reads_the_pauses_and_rates_of_its_routes_and_the_format_of_the_tables(
    template: Template,
) -> None:
    routes = {
        name.removeprefix("test-") for name in template.named("DynamoDB::Table", "TableName")
    } - {"control", "history", "seen"}
    for who, may in {**functions(template), **people(template)}.items():
        reads = leading(may["ControlRead"])
        assert {"format", "hold", "bucket", "holding"} <= reads, who
        own = {kind.partition("#")[2] for kind in reads if kind.startswith("hold#")}
        assert own, who
        assert own <= routes, who
        assert own == {kind.partition("#")[2] for kind in reads if kind.startswith("bucket#")}, who


def test_the_relay_writes_no_pauses_and_no_record_of_acts(both: Template) -> None:
    written = leading(both.statements("test-relay")["ControlWrite"])
    assert not {kind for kind in written if kind.partition("#")[0] in ("hold", "act")}


def test_only_the_roles_that_open_a_new_ledger_and_people_write_the_format_of_the_tables(
    both: Template,
) -> None:
    writing = {
        who
        for who, may in {**functions(both), **people(both)}.items()
        if "format" in leading(may.get("ControlWrite", NOTHING))
    }
    assert writing >= {"operator", "process"}
    assert not [who for who in writing if who.startswith(("test-deposits-", "test-assets-"))]


def test_a_worker_writes_blobs_of_its_own_route_alone(both: Template) -> None:
    may = both.statements("test-deposits-metadata")
    bucket = "arn:AWS::Partition:s3:::test-milepost-AWS::AccountId-AWS::Region"
    assert may["BlobsWrite"]["Resource"] == [f"{bucket}/blobs/deposits/*"]
    assert set(may["BlobsRead"]["Resource"]) == {
        f"{bucket}/blobs/{name}/*" for name in ("deposits", "history/deposits", "confirmed")
    }


def test_only_operators_remove_evidence(template: Template) -> None:
    """With `milepost forget`."""
    for who, may in {**functions(template), **people(template)}.items():
        for statement in () if who == "operator" else may.values():
            if "s3:DeleteObject" in statement["Action"]:
                for place in statement["Resource"]:
                    if place.startswith(
                        (
                            "arn:AWS::Partition:s3:::desk-files/",
                            "arn:AWS::Partition:s3:::wiley-stage/",
                        )
                    ):
                        continue  # not the stack's bucket: one that the application declares
                    key = place.partition("AWS::Region/")[2]
                    assert key, f"{who} may remove {place}"
                    assert not fnmatchcase("blobs/evidence/ab/abc", key), (
                        f"{who} may remove {place}"
                    )


def test_the_journal_and_the_counters_are_written_by_relay_resender_and_processes_alone(
    both: Template,
) -> None:
    writing = {
        who for who, may in functions(both).items() if "journal" in leading(may["ControlWrite"])
    }
    assert writing == {"test-relay", "test-resender"}
    may = people(both)
    assert set(may) == PEOPLE
    assert "journal" in leading(may["process"]["ControlWrite"])
    written = leading(may["operator"]["ControlWrite"])
    assert not {
        kind for kind in written if kind == "journal" or kind.startswith(("count", "group#"))
    }
    assert written >= {"act", "hold", "limit", "key", "route", "forget"}
    assert may["operator"]["Forget"]["Action"] == ["dynamodb:UpdateItem"]


def test_every_role_that_looks_up_seals_reads_the_secret_of_forgotten_keys(both: Template) -> None:
    seen = both.id_of("DynamoDB::Table", "TableName", "test-seen")
    for who, may in {**functions(both), **people(both)}.items():
        looks_up = any(seen in statement["Resource"] for statement in may.values())
        assert ("forget" in leading(may["ControlRead"])) == looks_up, who


def test_a_viewer_writes_nothing_and_sees_no_secrets(both: Template) -> None:
    may = people(both)["viewer"]
    assert not SECRETS & leading(may["ControlRead"])
    verbs = {
        action.partition(":")[2] for statement in may.values() for action in statement["Action"]
    }
    assert {
        verb
        for verb in verbs
        if not verb.startswith(("Get", "List", "Query", "Scan", "Describe", "BatchGet"))
    } == set()


def test_policies_fit_into_what_iam_takes(both: Template) -> None:
    """6,144 characters for a managed policy, 10,240 for those of a role."""
    arns = {}
    for kind, service, name in (
        ("DynamoDB::Table", "dynamodb", "TableName"),
        ("SQS::Queue", "sqs", "QueueName"),
        ("SNS::Topic", "sns", "TopicName"),
    ):
        for id, properties in both.of(kind).items():
            arns[id] = (
                f"arn:aws:{service}:ap-southeast-2:123456789012:{'table/' if service == 'dynamodb' else ''}{properties[name]}"
            )

    def size(document: dict[str, Any]) -> int:
        text = json.dumps(plain(document), separators=(",", ":"))
        for id, arn in arns.items():
            text = text.replace(f"{id}.StreamArn", f"{arn}/stream/2026-11-14T00:13:19.450").replace(
                id, arn
            )
        return len(text)

    for id, resource in both.resources.items():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            assert size(resource["Properties"]["PolicyDocument"]) < 6144, id
        elif resource["Type"] == "AWS::IAM::Role" and "Policies" in resource["Properties"]:
            assert (
                sum(size(policy["PolicyDocument"]) for policy in resource["Properties"]["Policies"])
                < 10_240
            ), id


def test_relay_and_resender_keep_their_share_of_concurrent_functions(
    both: Template, templates: dict[str, Template]
) -> None:
    reserved = {
        name: one["ReservedConcurrentExecutions"]
        for name, one in both.named("Lambda::Function", "FunctionName").items()
        if "ReservedConcurrentExecutions" in one
    }
    assert reserved == {"test-relay": 32, "test-resender": 5}
    without = templates["key"].named("Lambda::Function", "FunctionName").values()
    assert not [one for one in without if "ReservedConcurrentExecutions" in one]


def test_a_key_of_ones_own_encrypts_everything_and_everyone_may_use_it(
    templates: dict[str, Template],
) -> None:
    template = templates["key"]
    ((key, properties),) = template.of("KMS::Key").items()
    assert properties["EnableKeyRotation"] is True
    assert template.resources[key]["DeletionPolicy"] == "Retain"
    services = {
        listed(one["Principal"].get("Service", "")).pop()
        for one in properties["KeyPolicy"]["Statement"]
    }
    assert {"cloudwatch.amazonaws.com", "logs.AWS::Region.amazonaws.com"} <= services
    for table in template.of("DynamoDB::Table").values():
        assert table["SSESpecification"] == {
            "SSEEnabled": True,
            "KMSMasterKeyId": key,
            "SSEType": "KMS",
        }
    assert {queue["KmsMasterKeyId"] for queue in template.of("SQS::Queue").values()} == {key}
    assert {topic["KmsMasterKeyId"] for topic in template.of("SNS::Topic").values()} == {key}
    assert {group["KmsKeyId"] for group in template.of("Logs::LogGroup").values()} == {key}
    for who, may in {**functions(template), **people(template)}.items():
        assert may["Key"]["Resource"] == [key], who
        assert "kms:Decrypt" in may["Key"]["Action"]
    confirmer = template.named("IAM::ManagedPolicy", "ManagedPolicyName")[
        "test-assets-CC-confirmer"
    ]
    assert [
        one["Resource"] for one in confirmer["PolicyDocument"]["Statement"] if one["Sid"] == "Key"
    ] == [key]


def test_a_key_that_is_there_already_is_used_and_none_is_made(
    templates: dict[str, Template],
) -> None:
    template = templates["given"]
    assert not template.of("KMS::Key")
    assert {queue["KmsMasterKeyId"] for queue in template.of("SQS::Queue").values()} == {KEY}
    assert {tuple(may["Key"]["Resource"]) for may in functions(template).values()} == {(KEY,)}


def test_without_a_key_of_ones_own_nobody_needs_kms(both: Template) -> None:
    assert "kms:" not in both.path.read_text()


DRIVER = """
import json, sys
from milepost_aws.infra import nag
from milepost_aws.infra.app import main
del nag.REASONS["AwsSolutions-S1"]
main(json.load(sys.stdin))
"""


def test_a_finding_of_cdk_nag_that_nobody_has_given_a_reason_for_stops_the_synthesis(
    tmp_path: Any,
) -> None:
    asked = write_case(tmp_path, "assets")
    made = subprocess.run(
        [BIN / "python", "-c", DRIVER],
        input=json.dumps(asked),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode != 0
    assert "AwsSolutions-S1" in made.stdout + made.stderr


def test_functions_that_place_items_in_lanes_read_what_an_application_keeps(
    templates: dict[str, Template],
) -> None:
    """Such as destinations that were added at run time: a lane function may ask for them."""
    with_one, without = (functions(templates[case]) for case in ("application", "both"))
    for name in ("test-relay", "test-resender", "test-lists"):
        assert "application" in leading(with_one[name]["ControlRead"]), name
        assert "application" not in leading(with_one[name]["ControlWrite"]), name
        assert "application" not in leading(without[name]["ControlRead"]), name
