"""Functions, their triggers and their permissions."""

from __future__ import annotations

import json

from tests.aws.infra.templates import Template, listed, statements

from milepost_aws.infra.settings import PYTHON


def test_a_worker_for_each_stage_with_a_handler(both: Template, assets: Template) -> None:
    shared = {"test-relay", "test-resender", "test-lists"}
    assert set(assets.named("Lambda::Function", "FunctionName")) == shared
    assert set(both.named("Lambda::Function", "FunctionName")) == shared | {
        "test-deposits-metadata",
        "test-deposits-content",
    }


def test_every_function(template: Template) -> None:
    groups = template.of("Logs::LogGroup")
    for name, function in template.named("Lambda::Function", "FunctionName").items():
        assert (function["Runtime"], function["Architectures"]) == (f"python{PYTHON}", ["arm64"])
        group = groups[function["LoggingConfig"]["LogGroup"]]
        group.pop("KmsKeyId", None)
        assert group == {"LogGroupName": f"/aws/lambda/{name}", "RetentionInDays": 90}
        variables = function["Environment"]["Variables"]
        assert variables["MILEPOST_LEDGER"].partition("?")[0] == "dynamodb://AWS::Region/test"
        assert variables["MILEPOST_TOPIC"] == template.id_of(
            "SNS::Topic", "TopicName", "test-events"
        )
        assert variables["MILEPOST_BLOBS"] == "s3://test-milepost-AWS::AccountId-AWS::Region/blobs"
        # It would become a dimension of every metric, which no alarm would then find.
        assert "POWERTOOLS_SERVICE_NAME" not in variables


def test_what_is_compiled_for_the_functions_python_goes_along(assets: Template) -> None:
    packed = {path.name for path in assets.folder.rglob("*.pyc")}
    assert packed == {f"worker.cpython-{PYTHON.replace('.', '')}.pyc"}


def test_which_handler_and_which_stage(both: Template) -> None:
    functions = both.named("Lambda::Function", "FunctionName")
    assert {name: one["Handler"] for name, one in functions.items()} == {
        "test-relay": "milepost_aws.lambdas.relay.handler",
        "test-resender": "milepost_aws.lambdas.resender.handler",
        "test-lists": "milepost_aws.lambdas.lists.handler",
        "test-deposits-metadata": "milepost_aws.lambdas.worker.handler",
        "test-deposits-content": "milepost_aws.lambdas.worker.handler",
    }
    worker = functions["test-deposits-metadata"]["Environment"]["Variables"]
    assert worker["MILEPOST_STAGE"] == "deposits/metadata"
    assert worker["MILEPOST_ROUTES"] == "routes/assets.py,routes/deposits.py"
    assert "MILEPOST_STAGE" not in functions["test-relay"]["Environment"]["Variables"]


def test_functions_know_the_applications_of_the_stack(templates: dict[str, Template]) -> None:
    found = templates["application"]
    variables = found.named("Lambda::Function", "FunctionName")["test-resender"]["Environment"][
        "Variables"
    ]
    assert (variables["MILEPOST_APPLICATIONS"], variables["MILEPOST_ROUTES"]) == (
        "routes/desk.py",
        "",
    )
    assert variables["DESK_PASSWORD"] == "{{resolve:secretsmanager:desk/password:SecretString}}"
    assert "test-desk" in found.named("DynamoDB::Table", "TableName")
    others = templates["assets"].named("Lambda::Function", "FunctionName")
    assert "MILEPOST_APPLICATIONS" not in others["test-resender"]["Environment"]["Variables"]
    assert "test-services" not in others


def test_each_service_of_an_application_has_a_schedule(templates: dict[str, Template]) -> None:
    found = templates["application"]
    function = found.named("Lambda::Function", "FunctionName")["test-services"]
    assert function["Handler"] == "milepost_aws.lambdas.services.handler"
    schedule = found.named("Scheduler::Schedule", "Name")["test-desk-poll"]
    assert schedule["ScheduleExpression"] == "rate(5 minutes)"
    assert json.loads(schedule["Target"]["Input"]) == {"service": "desk-poll"}
    watch = found.named("Scheduler::Schedule", "Name")["test-desk-alerts"]
    assert (watch["ScheduleExpression"], json.loads(watch["Target"]["Input"])) == (
        "rate(1 minute)",
        {"service": "desk-alerts"},
    )
    assert schedule["Target"]["Arn"] == found.id_of(
        "Lambda::Function", "FunctionName", "test-services"
    )


def test_endpoints_that_submit_items_are_served_by_api_gateway(
    templates: dict[str, Template],
) -> None:
    found = templates["application"]
    function = found.named("Lambda::Function", "FunctionName")["test-accept"]
    assert function["Handler"] == "milepost_aws.lambdas.accept.handler"
    assert set(found.named("ApiGatewayV2::Route", "RouteKey")) == {"ANY /ask"}, (
        "and none that is for people"
    )
    [stage] = found.of("ApiGatewayV2::Stage").values()
    assert (stage["StageName"], stage["AutoDeploy"]) == ("$default", True)
    assert "$context.requestId" in stage["AccessLogSettings"]["Format"]
    assert "test-endpoints-server-errors" in found.named("CloudWatch::Alarm", "AlarmName")
    assert not templates["assets"].of("ApiGatewayV2::Api")


def test_a_queue_calls_its_worker(both: Template) -> None:
    functions, queues = both.of("Lambda::Function"), both.of("SQS::Queue")
    called = {
        queues[mapping["EventSourceArn"]]["QueueName"]: (
            functions[mapping["FunctionName"]]["FunctionName"],
            mapping,
        )
        for mapping in both.of("Lambda::EventSourceMapping").values()
        if mapping["EventSourceArn"] in queues
    }
    assert {queue: function for queue, (function, _) in called.items()} == {
        "test-deposits-metadata": "test-deposits-metadata",
        "test-deposits-content": "test-deposits-content",
    }
    metadata, content = called["test-deposits-metadata"][1], called["test-deposits-content"][1]
    assert (
        metadata["FunctionResponseTypes"]
        == content["FunctionResponseTypes"]
        == ["ReportBatchItemFailures"]
    )
    assert (metadata["BatchSize"], metadata["ScalingConfig"]) == (10, {"MaximumConcurrency": 4})
    assert (content["BatchSize"], content["MaximumBatchingWindowInSeconds"]) == (50, 5)


def test_a_message_stays_hidden_for_more_than_six_runs(templates: dict[str, Template]) -> None:
    checked = []
    for template in templates.values():
        functions, queues = template.of("Lambda::Function"), template.of("SQS::Queue")
        for mapping in template.of("Lambda::EventSourceMapping").values():
            if queue := queues.get(mapping["EventSourceArn"]):
                run = (
                    functions[mapping["FunctionName"]]["Timeout"]
                    + mapping.get("MaximumBatchingWindowInSeconds", 0) / 6
                )
                assert queue["VisibilityTimeout"] > 6 * run
                checked.append(queue["QueueName"])
    assert {
        "test-assets-check",
        "test-deposits-content",
        "test-deposits-metadata",
        "test-deposits-submit",
    } <= set(checked)


def test_a_stream_calls_the_relay(both: Template) -> None:
    relay = both.id_of("Lambda::Function", "FunctionName", "test-relay")
    tables = {
        f"{both.id_of('DynamoDB::Table', 'TableName', name)}.StreamArn"
        for name in ("test-assets", "test-deposits")
    }
    mappings = [
        one
        for one in both.of("Lambda::EventSourceMapping").values()
        if one["FunctionName"] == relay
    ]
    assert {one["EventSourceArn"] for one in mappings} == tables
    for mapping in mappings:
        del mapping["EventSourceArn"], mapping["FunctionName"]
        assert mapping == {
            "BatchSize": 100,
            "BisectBatchOnFunctionError": True,
            "DestinationConfig": {
                "OnFailure": {
                    "Destination": both.id_of("SQS::Queue", "QueueName", "test-quarantine")
                }
            },
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
            "MaximumRecordAgeInSeconds": 23 * 3600,
            "MaximumRetryAttempts": 1000,
            "ParallelizationFactor": 4,
            "StartingPosition": "TRIM_HORIZON",
        }


def test_every_schedule_may_call_what_it_calls(template: Template) -> None:
    schedules = template.named("Scheduler::Schedule", "Name")
    roles = template.of("IAM::Role")
    for name, schedule in schedules.items():
        function = "test-resender" if name in ("test-resend", "test-repair") else "test-services"
        called = template.id_of("Lambda::Function", "FunctionName", function)
        assert schedule["Target"]["Arn"] == called
        role = roles[schedule["Target"]["RoleArn"]]
        (trusted,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert trusted["Principal"] == {"Service": "scheduler.amazonaws.com"}
        (call,) = statements(role).values()
        assert (call["Action"], call["Resource"]) == (["lambda:InvokeFunction"], [called])
    assert len({schedule["Target"]["RoleArn"] for schedule in schedules.values()}) == len(schedules)
    assert schedules["test-resend"]["ScheduleExpression"] == "rate(1 minute)"
    assert schedules["test-repair"]["ScheduleExpression"].startswith("cron(")
    assert json.loads(schedules["test-repair"]["Target"]["Input"]) == {"repair": True}
    assert json.loads(schedules["test-resend"]["Target"]["Input"]) == {}


def test_every_function_is_traced_and_may_say_so(template: Template) -> None:
    for name, function in template.named("Lambda::Function", "FunctionName").items():
        assert function["TracingConfig"] == {"Mode": "Active"}
        may = template.statements(name)
        assert may["Traces"]["Action"] == ["xray:PutTraceSegments", "xray:PutTelemetryRecords"]
        assert [
            action for one in may.values() for action in one["Action"] if action.startswith("xray:")
        ] == may["Traces"]["Action"]


def test_no_role_may_do_everything(template: Template) -> None:
    everywhere = []
    for role in template.of("IAM::Role").values():
        assert not role.get("ManagedPolicyArns")
        for statement in statements(role).values():
            assert not [action for action in statement["Action"] if "*" in action]
            if "*" in statement["Resource"]:
                everywhere += statement["Action"]
    # AWS knows no narrower resource for these.
    assert set(everywhere) == {
        "dynamodb:ListStreams",
        "xray:PutTraceSegments",
        "xray:PutTelemetryRecords",
    }
    assert everywhere.count("dynamodb:ListStreams") == 1
    assert not template.of("IAM::Policy")


def test_a_worker_reaches_its_own_route_and_queue_alone(both: Template) -> None:
    may = both.statements("test-deposits-metadata")
    assert may["Rows"]["Resource"] == [both.id_of("DynamoDB::Table", "TableName", "test-deposits")]
    assert set(may["Rows"]["Action"]) == {
        "dynamodb:GetItem",
        "dynamodb:BatchGetItem",
        "dynamodb:UpdateItem",
    }
    assert may["OwnQueue"]["Resource"] == [
        both.id_of("SQS::Queue", "QueueName", "test-deposits-metadata")
    ]
    assert "Events" not in may
    assert "Offers" not in may


def test_relay_and_resender_offer_every_stage(both: Template) -> None:
    made = {
        both.id_of("SQS::Queue", "QueueName", name)
        for name in both.named("SQS::Queue", "QueueName")
        if name != "test-quarantine"
    }
    theirs = "arn:AWS::Partition:sqs:eu-west-2:123456789012:their-queue"
    for function in ("test-relay", "test-resender"):
        may = both.statements(function)
        assert set(may["Offers"]["Resource"]) == made | {theirs}
        assert may["Events"]["Resource"] == [both.id_of("SNS::Topic", "TopicName", "test-events")]
    assert "Streams" in both.statements("test-relay")
    assert "Streams" not in both.statements("test-resender")


def test_the_resender_finds_by_the_index(both: Template) -> None:
    may = both.statements("test-resender")
    tables = [
        both.id_of("DynamoDB::Table", "TableName", name)
        for name in ("test-assets", "test-deposits")
    ]
    assert may["Due"]["Action"] == ["dynamodb:Query"]
    assert may["Due"]["Resource"] == [f"{table}/index/due" for table in tables]
    assert "dynamodb:Scan" in may["Rows"]["Action"]


def test_the_resender_alone_makes_daily_heads(templates: dict[str, Template]) -> None:
    template = templates["evidence"]
    heads = template.id_of("DynamoDB::Table", "TableName", "test-heads")
    may = template.statements("test-resender")
    assert (may["Heads"]["Action"], may["Heads"]["Resource"]) == (["dynamodb:PutItem"], [heads])
    assert f"{heads}/index/due" in may["Due"]["Resource"]
    for function in ("test-relay", "test-lists"):
        putting = [
            one["Resource"]
            for one in template.statements(function).values()
            if "dynamodb:PutItem" in one["Action"]
        ]
        assert not [resources for resources in putting if heads in resources]
    assert heads in template.statements("test-relay")["Rows"]["Resource"]
    assert f"{heads}.StreamArn" in template.statements("test-relay")["Streams"]["Resource"]
    assert not [name for name in template.named("SQS::Queue", "QueueName") if "heads" in name]


def test_the_resender_may_bring_rows_back_where_their_evidence_is_kept(
    templates: dict[str, Template], both: Template
) -> None:
    template = templates["evidence"]
    may = template.statements("test-resender")
    rows = [
        template.id_of("DynamoDB::Table", "TableName", name)
        for name in template.named("DynamoDB::Table", "TableName")
    ]
    assert may["Back"]["Action"] == ["dynamodb:PutItem"]
    assert set(may["Back"]["Resource"]) < set(rows)
    assert (may["Seals"]["Action"], may["Seals"]["Resource"]) == (
        ["dynamodb:Scan"],
        [template.id_of("DynamoDB::Table", "TableName", "test-seen")],
    )
    assert "Back" not in both.statements("test-resender")


def test_a_list_that_fails_is_set_aside(template: Template) -> None:
    (config,) = template.of("Lambda::EventInvokeConfig").values()
    quarantine = template.id_of("SQS::Queue", "QueueName", "test-quarantine")
    assert config["FunctionName"] == template.id_of(
        "Lambda::Function", "FunctionName", "test-lists"
    )
    assert config["DestinationConfig"]["OnFailure"]["Destination"] == quarantine
    assert template.statements("test-lists")["Quarantine"]["Resource"] == [quarantine]


def test_a_confirmer_may_read_its_row_write_its_confirmation_and_set_aside_and_nothing_else(
    both: Template,
) -> None:
    policies = both.named("IAM::ManagedPolicy", "ManagedPolicyName")
    assert {name for name in policies if name.endswith("-confirmer")} == {
        "test-assets-CC-confirmer",
        "test-assets-Scout-confirmer",
        "test-deposits-submit-confirmer",
        "test-deposits-theirs-confirmer",
    }
    by_id = {
        one["Sid"]: one
        for one in policies["test-assets-CC-confirmer"]["PolicyDocument"]["Statement"]
    }
    assert by_id["Confirm"] == {
        "Sid": "Confirm",
        "Effect": "Allow",
        "Action": "dynamodb:UpdateItem",
        "Resource": both.id_of("DynamoDB::Table", "TableName", "test-assets"),
        "Condition": {
            "ForAllValues:StringEquals": {
                "dynamodb:Attributes": [
                    "assetId",
                    "batchId",
                    "ingested_CC",
                    "confirmedBy_CC",
                    "waiting_CC",
                    "input",
                ]
            },
            "Null": {"dynamodb:Attributes": "false"},
            "StringEqualsIfExists": {
                "dynamodb:ReturnValues": ["NONE", "UPDATED_OLD", "UPDATED_NEW"]
            },
        },
    }
    assert by_id["ReadPayload"] == {
        "Sid": "ReadPayload",
        "Effect": "Allow",
        "Action": "dynamodb:GetItem",
        "Resource": both.id_of("DynamoDB::Table", "TableName", "test-assets"),
    }
    assert by_id["SetAside"] == {
        "Sid": "SetAside",
        "Effect": "Allow",
        "Action": "sqs:SendMessage",
        "Resource": both.id_of("SQS::Queue", "QueueName", "test-quarantine"),
    }
    assert set(by_id) == {"TakeOffers", "Confirm", "ReadPayload", "SetAside"}
    assert by_id["TakeOffers"]["Resource"] == both.id_of(
        "SQS::Queue", "QueueName", "test-assets-CC"
    )
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage"} <= set(by_id["TakeOffers"]["Action"])
    assert "attribute_exists(assetId)" in policies["test-assets-CC-confirmer"]["Description"]


def test_a_confirmer_of_todays_names_and_one_with_a_queue(both: Template) -> None:
    policies = both.named("IAM::ManagedPolicy", "ManagedPolicyName")
    (submit,) = (
        one
        for one in policies["test-deposits-submit-confirmer"]["PolicyDocument"]["Statement"]
        if one["Sid"] == "Confirm"
    )
    assert submit["Condition"]["ForAllValues:StringEquals"] == {
        "dynamodb:Attributes": [
            "doi",
            "result_submit",
            "confirmedBy_submit",
            "waiting_submit",
            "input",
        ]
    }
    theirs = policies["test-deposits-theirs-confirmer"]["PolicyDocument"]["Statement"]
    assert [one["Action"] for one in listed(theirs)] == [
        "dynamodb:UpdateItem",
        "dynamodb:GetItem",
        "sqs:SendMessage",
    ]


def test_services_may_use_what_their_application_declares(templates: dict[str, Template]) -> None:
    found = templates["application"]
    allowed = found.statements("test-services")
    assert allowed["PartnersQueues"]["Resource"] == [
        "arn:AWS::Partition:sqs:us-east-1:123456789012:their-input"
    ]
    assert "sqs:SendMessage" in allowed["PartnersQueues"]["Action"]
    assert allowed["PartnersAnswers"]["Resource"] == [
        "arn:AWS::Partition:sqs:AWS::Region:AWS::AccountId:our-results"
    ]
    assert "sqs:DeleteMessage" in allowed["PartnersAnswers"]["Action"]
    assert allowed["AppObjects"]["Resource"] == ["arn:AWS::Partition:s3:::desk-files/in/box/*"]
    assert allowed["AppBuckets"]["Resource"] == ["arn:AWS::Partition:s3:::desk-files"]
    assert allowed["Topics"]["Resource"] == ["arn:aws:sns:eu-west-2:123456789012:ops"], (
        "the receiver of its alerts"
    )
    assert allowed["Mail"]["Resource"] == [
        "arn:AWS::Partition:ses:AWS::Region:AWS::AccountId:identity/*"
    ]
    assert "dynamodb:UpdateItem" in allowed["Rows"]["Action"], "a service applies answers"
    for other in ("test-relay", "test-resender", "test-lists"):
        assert "PartnersQueues" not in found.statements(other)


def test_deposits_on_aws(templates: dict[str, Template]) -> None:
    """The application as it is: a function for each stage and the queues of the submission
    service."""
    found = templates["deposits"]
    functions = found.named("Lambda::Function", "FunctionName")
    assert {
        "test-deposits-metadata",
        "test-deposits-content",
        "test-deposits-submit",
        "test-services",
    } <= functions.keys()
    assert (
        functions["test-deposits-submit"]["Environment"]["Variables"]["MILEPOST_DEPOSITS_MODE"]
        == "continuous"
    )
    schedules = found.named("Scheduler::Schedule", "Name")
    assert {
        "test-deposits-inbox",
        "test-deposits-results",
        "test-deposits-late-deposits",
    } <= schedules.keys()
    for function in ("test-deposits-submit", "test-services"):
        allowed = found.statements(function)
        assert allowed["PartnersQueues"]["Resource"] == [
            "arn:AWS::Partition:sqs:AWS::Region:AWS::AccountId:dss-input"
        ]
        assert allowed["PartnersAnswers"]["Resource"] == [
            "arn:AWS::Partition:sqs:AWS::Region:AWS::AccountId:dss-output"
        ]
        assert allowed["AppObjects"]["Resource"] == [
            f"arn:AWS::Partition:s3:::wiley-stage/{place}/*" for place in ("inbox", "files")
        ]


def test_limits_of_the_relay_and_the_tables_are_settings(templates: dict[str, Template]) -> None:
    template = templates["topic"]
    relay = template.named("Lambda::Function", "FunctionName")["test-relay"]
    assert relay["ReservedConcurrentExecutions"] == 40
    [mapping] = [
        one
        for one in template.of("Lambda::EventSourceMapping").values()
        if "stream" in str(one["EventSourceArn"]).lower()
    ]
    assert mapping["MaximumBatchingWindowInSeconds"] == 2
    rows = template.named("DynamoDB::Table", "TableName")["test-assets"]
    warm = {"ReadUnitsPerSecond": 30_000, "WriteUnitsPerSecond": 10_000}
    assert (rows["WarmThroughput"], rows["GlobalSecondaryIndexes"][0]["WarmThroughput"]) == (
        warm,
        warm,
    )
    assert "/test?repair-within=43200s" in json.dumps(relay["Environment"])
    others = templates["assets"].named("DynamoDB::Table", "TableName").values()
    assert not [one for one in others if "WarmThroughput" in one]
