"""Constructs made so far, for the parts that follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from milepost.core.routes.route import Route, Stage
from milepost_aws.infra.settings import Settings
from milepost_aws.ledger.names import ResourceNames

Place = tuple[str, str]
"""A route's name and a stage's."""


@dataclass
class Parts:
    stack: cdk.Stack
    settings: Settings
    names: ResourceNames
    bucket_name: str
    rows: dict[str, dynamodb.Table] = field(default_factory=dict)
    shared: dict[str, dynamodb.Table] = field(default_factory=dict)
    """history, seen, control"""
    queues: dict[Place, sqs.IQueue] = field(default_factory=dict)
    workers: dict[Place, lambda_.Function] = field(default_factory=dict)
    functions: dict[str, lambda_.Function] = field(default_factory=dict)
    """relay, resender, lists"""
    prefixes: set[str] = field(default_factory=set)
    """Parts of the bucket that policies name."""
    other_prefixes: set[str] = field(default_factory=set)
    """Parts of other buckets that policies name."""
    alarms: list[cloudwatch.Alarm] = field(default_factory=list)
    key: kms.IKey | None = None
    """The customer-managed key; None: AWS's own keys."""
    endpoints_api: apigateway.HttpApi | None = None
    """In front of the accept function, where there is one."""
    quarantine: sqs.Queue = field(init=False)
    events: sns.Topic = field(init=False)
    alarm_topic: sns.ITopic = field(init=False)
    bucket: s3.Bucket = field(init=False)

    @property
    def ledger_url(self) -> str:
        within = self.settings.repair_within_ms
        options = "" if within is None else f"?repair-within={within // 1000}s"
        return f"dynamodb://{self.stack.region}/{self.settings.prefix}{options}"

    @property
    def blobs_url(self) -> str:
        return f"s3://{self.bucket_name}/blobs"

    @property
    def bucket_arn(self) -> str:
        """By name, not by reference: the bucket itself refers to a function whose role names the
        bucket."""
        return f"arn:{self.stack.partition}:s3:::{self.bucket_name}"

    def objects(self, prefix: str) -> str:
        """All objects of the bucket with this name prefix."""
        self.prefixes.add(f"{prefix}/*")
        return f"{self.bucket_arn}/{prefix}/*"

    def others(self, bucket: str, prefix: str) -> str:
        """All objects of an application's bucket with this name prefix."""
        self.other_prefixes.add(f"{bucket}/{prefix}/*")
        return f"arn:{self.stack.partition}:s3:::{bucket}/{prefix}/*"

    def stages(self) -> Iterator[tuple[Route, Stage]]:
        for route in self.settings.routes:
            for stage in route.stages:
                yield route, stage

    def scope(self, name: str) -> Construct:
        """A branch of the construct tree, made on first use."""
        found = self.stack.node.try_find_child(name)
        return Construct(self.stack, name) if found is None else found


def fitted(name: str, longest: int) -> str:
    """The name, or, if it is too long for AWS, its beginning and a digest."""
    return (
        name
        if len(name) <= longest
        else f"{name[: longest - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    )
