"""cdk-nag: every template is checked against the AwsSolutions pack when it is written. A finding is
an error unless it is listed here."""

from __future__ import annotations

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from milepost_aws.infra.stack import MilepostStack

REASONS = {
    "AwsSolutions-SQS3": (
        "No dead-letter queues: the ledger knows what became of every item, the resender sends a lost message again, and what cannot be"
        " understood goes to the quarantine queue."
    ),
    "AwsSolutions-S1": (
        "Access logs would need a second bucket with a policy of its own. All access is by the roles and policies of this stack; an account"
        " that wants a record of it has CloudTrail's data events."
    ),
    "AwsSolutions-L1": (
        "The functions' packages are compiled for one Python (infra.settings.PYTHON), on which the tests run; it is raised by hand."
    ),
    "AwsSolutions-APIG4": (
        "Callers are recognised by the accept function itself, by the API keys of Milepost: who may submit is the same on every ledger. It"
        " refuses every call while there is no key."
    ),
    "AwsSolutions-IAM5[Resource::*]": (
        "AWS knows no narrower resource for xray:PutTraceSegments, xray:PutTelemetryRecords and dynamodb:ListStreams; a test holds that"
        " nothing else is allowed on it."
    ),
}
IDENTITIES = "Which address mail comes from is a setting of the application; SES sends only from identities that the account has verified."
PREFIX = "Objects are named after items, lists or digests: a prefix of the bucket is the narrowest resource that there is."


def check(app: cdk.App, stack: MilepostStack) -> None:
    """Check the app's template, and acknowledge intended findings, each with its reason."""
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    known = cdk.Validations.of(stack)
    for rule, reason in REASONS.items():
        known.acknowledge(cdk.Acknowledgment(id=f"AwsSolutions::{rule}", reason=reason))
    bucket = f"arn:<AWS::Partition>:s3:::{stack.parts.settings.prefix}-milepost-<AWS::AccountId>-<AWS::Region>"
    for prefix in sorted(stack.parts.prefixes):
        known.acknowledge(
            cdk.Acknowledgment(
                id=f"AwsSolutions::AwsSolutions-IAM5[Resource::{bucket}/{prefix}]", reason=PREFIX
            )
        )
    for place in sorted(stack.parts.other_prefixes):
        known.acknowledge(
            cdk.Acknowledgment(
                id=f"AwsSolutions::AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::{place}]",
                reason=PREFIX,
            )
        )
    identities = "arn:<AWS::Partition>:ses:<AWS::Region>:<AWS::AccountId>:identity/*"
    known.acknowledge(
        cdk.Acknowledgment(
            id=f"AwsSolutions::AwsSolutions-IAM5[Resource::{identities}]", reason=IDENTITIES
        )
    )
