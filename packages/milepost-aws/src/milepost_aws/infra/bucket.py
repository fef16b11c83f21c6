"""The bucket: large inputs and results under `blobs/`, delivered lists under `lists/`, their
reports under `reports/`."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from milepost_aws.infra.parts import Parts

LISTS, REPORTS = "lists/", "reports/"
RESTORABLE_DAYS = 35
"""How far back a table can be restored; the blobs of its rows at that time must still exist."""


def bucket_name(stack: cdk.Stack, prefix: str) -> str:
    return f"{prefix}-milepost-{stack.account}-{stack.region}"


def add_bucket(parts: Parts) -> None:
    """No object in use is removed by age: a blob is removed with its row. Lists and reports are
    removed after a while, and so are deleted versions."""
    parts.bucket = s3.Bucket(
        parts.scope("storage"),
        "bucket",
        bucket_name=parts.bucket_name,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=s3.BucketEncryption.S3_MANAGED if parts.key is None else s3.BucketEncryption.KMS,
        encryption_key=parts.key,
        bucket_key_enabled=None if parts.key is None else True,
        enforce_ssl=True,
        versioned=True,
        removal_policy=RemovalPolicy.RETAIN,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="unfinished-uploads", abort_incomplete_multipart_upload_after=Duration.days(7)
            ),
            s3.LifecycleRule(id="lists", prefix=LISTS, expiration=Duration.days(180)),
            s3.LifecycleRule(id="reports", prefix=REPORTS, expiration=Duration.days(180)),
            s3.LifecycleRule(
                id="removed", noncurrent_version_expiration=Duration.days(RESTORABLE_DAYS + 1)
            ),
        ],
    )


def tell_of_lists(parts: Parts) -> None:
    """A list put under `lists/` triggers the intake. Set on the bucket directly: the CDK's own
    construct adds a function that may change every bucket of the account."""
    intake = parts.functions["lists"]
    permission = lambda_.CfnPermission(
        parts.scope("storage"),
        "lists-permission",
        action="lambda:InvokeFunction",
        function_name=intake.function_arn,
        principal="s3.amazonaws.com",
        source_account=parts.stack.account,
        source_arn=parts.bucket_arn,
    )
    resource = parts.bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)
    rule = s3.CfnBucket.FilterRuleProperty(name="prefix", value=LISTS)
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        lambda_configurations=[
            s3.CfnBucket.LambdaConfigurationProperty(
                event="s3:ObjectCreated:*",
                function=intake.function_arn,
                filter=s3.CfnBucket.NotificationFilterProperty(
                    s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=[rule])
                ),
            )
        ]
    )
    resource.add_resource_dependency(permission)
