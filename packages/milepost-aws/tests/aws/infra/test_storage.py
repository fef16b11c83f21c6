"""Tables, queues, topics and the bucket."""

from __future__ import annotations

from tests.aws.infra.templates import EMAIL, TOPIC, Template

RETENTION = 14 * 86_400


def keys(table: dict) -> list[tuple[str, str, str]]:
    kinds = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
    return [
        (one["AttributeName"], one["KeyType"], kinds[one["AttributeName"]])
        for one in table["KeySchema"]
    ]


def test_every_table_can_be_restored_and_not_be_lost(template: Template) -> None:
    for id, table in template.of("DynamoDB::Table").items():
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["DeletionProtectionEnabled"] is True
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        assert (
            template.resources[id]["DeletionPolicy"]
            == template.resources[id]["UpdateReplacePolicy"]
            == "Retain"
        )


def test_a_table_of_rows(both: Template) -> None:
    tables = both.named("DynamoDB::Table", "TableName")
    assert set(tables) == {
        "test-assets",
        "test-deposits",
        "test-history",
        "test-seen",
        "test-control",
    }
    assert keys(tables["test-assets"]) == [("assetId", "HASH", "S"), ("batchId", "RANGE", "S")]
    assert keys(tables["test-deposits"]) == [("doi", "HASH", "S")]
    for name in ("test-assets", "test-deposits"):
        assert tables[name]["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
        assert tables[name]["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
        (index,) = tables[name]["GlobalSecondaryIndexes"]
        assert index["IndexName"] == "due"
        assert [one["AttributeName"] for one in index["KeySchema"]] == ["dueShard", "dueAt"]
        assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}


def test_tables_that_all_routes_share(both: Template) -> None:
    tables = both.named("DynamoDB::Table", "TableName")
    assert keys(tables["test-history"]) == [("item", "HASH", "S"), ("version", "RANGE", "N")]
    assert keys(tables["test-seen"]) == [("key", "HASH", "S")]
    assert keys(tables["test-control"]) == [("kind", "HASH", "S"), ("name", "RANGE", "S")]
    assert not any(
        "StreamSpecification" in tables[f"test-{name}"] for name in ("history", "seen", "control")
    )


def test_every_queue_keeps_messages_for_two_weeks_and_encrypted(template: Template) -> None:
    queues = template.of("SQS::Queue")
    for queue in queues.values():
        assert queue["MessageRetentionPeriod"] == RETENTION
        # With a key of one's own it is that key's: which one is tested with what may use it.
        assert queue.get("SqsManagedSseEnabled") is True or queue["KmsMasterKeyId"]
    guarded = {
        policy["Queues"][0]: policy["PolicyDocument"]["Statement"]
        for policy in template.of("SQS::QueuePolicy").values()
    }
    assert set(guarded) == set(queues)
    for (statement,) in guarded.values():
        assert statement["Effect"] == "Deny"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_a_queue_per_stage_but_for_the_partner_who_has_one(both: Template) -> None:
    assert set(both.named("SQS::Queue", "QueueName")) == {
        "test-assets-CC", "test-assets-Scout", "test-deposits-metadata", "test-deposits-content", "test-deposits-submit", "test-quarantine",
    }  # fmt: skip


def test_alarms_reach_the_address(assets: Template) -> None:
    topic = assets.id_of("SNS::Topic", "TopicName", "test-alarms")
    (subscription,) = assets.of("SNS::Subscription").values()
    assert subscription == {"Endpoint": EMAIL, "Protocol": "email", "TopicArn": topic}


def test_a_topic_lets_the_alarms_of_its_account_in(assets: Template) -> None:
    topic = assets.id_of("SNS::Topic", "TopicName", "test-alarms")
    (policy,) = (one for one in assets.of("SNS::TopicPolicy").values() if one["Topics"] == [topic])
    (allowed,) = (one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Allow")
    assert (allowed["Action"], allowed["Principal"]) == (
        "sns:Publish",
        {"Service": "cloudwatch.amazonaws.com"},
    )
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": "AWS::AccountId"}}


def test_a_topic_of_ones_own_is_used_instead(templates: dict[str, Template]) -> None:
    template = templates["topic"]
    assert set(template.named("SNS::Topic", "TopicName")) == {"test-events"}
    assert all(
        alarm["AlarmActions"] == [TOPIC] for alarm in template.of("CloudWatch::Alarm").values()
    )


def test_the_bucket_is_closed_and_kept(template: Template) -> None:
    ((id, bucket),) = template.of("S3::Bucket").items()
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert template.resources[id]["DeletionPolicy"] == "Retain"
    (policy,) = template.of("S3::BucketPolicy").values()
    assert policy["PolicyDocument"]["Statement"][0]["Condition"] == {
        "Bool": {"aws:SecureTransport": "false"}
    }


def test_nothing_in_use_leaves_the_bucket_by_age_but_lists(template: Template) -> None:
    (bucket,) = template.of("S3::Bucket").values()
    rules = bucket["LifecycleConfiguration"]["Rules"]
    assert [rule["Prefix"] for rule in rules if "ExpirationInDays" in rule] == [
        "lists/",
        "reports/",
    ]
    # A restored table finds the blobs of its time: versions outlive the 35 days of point-in-time
    # recovery.
    assert [
        rule["NoncurrentVersionExpiration"]
        for rule in rules
        if "NoncurrentVersionExpiration" in rule
    ] == [{"NoncurrentDays": 36}]
    assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)


def test_a_list_that_arrives_calls_the_intake(template: Template) -> None:
    ((id, bucket),) = template.of("S3::Bucket").items()
    (told,) = bucket["NotificationConfiguration"]["LambdaConfigurations"]
    intake = template.id_of("Lambda::Function", "FunctionName", "test-lists")
    assert told["Function"] == intake
    assert told["Filter"]["S3Key"]["Rules"] == [{"Name": "prefix", "Value": "lists/"}]
    permissions = template.of("Lambda::Permission").items()
    ((permission_id, permission),) = [
        (name, one) for name, one in permissions if one["Principal"] == "s3.amazonaws.com"
    ]
    assert (permission["FunctionName"], permission["SourceAccount"]) == (intake, "AWS::AccountId")
    assert template.resources[id]["DependsOn"] == [permission_id]
