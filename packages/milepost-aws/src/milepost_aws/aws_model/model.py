"""Model of AWS in this process: DynamoDB with streams and lagging indexes, SQS, SNS and S3, for
tests without a network."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from milepost_aws.aws_model.bucket import S3, BucketModel
from milepost_aws.aws_model.client import make_client
from milepost_aws.aws_model.dynamodb import DynamoDb
from milepost_aws.aws_model.queue import QueueModel, Sqs
from milepost_aws.aws_model.stream import DynamoDbStreams
from milepost_aws.aws_model.table import Table
from milepost_aws.aws_model.topic import Sns, TopicModel

_served: dict[str, AwsModel] = {}
_addresses = itertools.count(1)


class AwsModel:
    """One account in one region, empty at first; thread-safe, within one process.

    It makes boto3 clients as a boto3 session does, so the ledger can use it as one:
    `Requests(region, session=model)`. Within `served()` boto3 itself makes clients of the model,
    for the URL that the context manager returns.

    `clock` returns the time in seconds. With a clock of your own nothing waits: a long poll of an
    empty queue is answered at once.
    """

    def __init__(
        self,
        region: str = "eu-central-1",
        *,
        account: str = "000000000000",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.region, self.account = region, account
        self.url = f"http://model-{next(_addresses)}.aws"
        self.clock = clock
        self._changed = threading.Condition(threading.RLock())
        numbers = itertools.count(1)
        self.dynamodb = DynamoDb(region, account, clock, numbers)
        self.sqs = Sqs(region, account, self.url, clock, self._changed, waits=clock is time.time)
        self.sns = Sns(region, account, self.sqs, self._changed.notify_all)
        self.s3 = S3(clock)
        self._services: dict[str, Any] = {
            "dynamodb": self.dynamodb,
            "dynamodbstreams": DynamoDbStreams(self.dynamodb.streams),
            "sqs": self.sqs,
            "sns": self.sns,
            "s3": self.s3,
        }

    def client(self, service: str, *, config: Any = None, **_: Any) -> Any:
        """A boto3 client of one of the services; other arguments of boto3 have no effect."""
        if service not in self._services:
            raise NotImplementedError(
                f"the model has no {service}; it has {', '.join(sorted(self._services))}"
            )
        return make_client(service, self.region, self.url, self._answer, config, self.clock)

    def _answer(self, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        act = getattr(self._services[service], operation, None)
        if act is None:
            raise NotImplementedError(f"the model does not know {operation} of {service}")
        with self._changed:
            answer: dict[str, Any] = act(params)
        return answer

    # What a test can look at and change -----------------------------------------------------------
    def table(self, name: str) -> Table:
        """A table, with `indexes` that can be held or lag, and a `stream` that can be held, split
        and trimmed."""
        return self.dynamodb.table(name)

    def queue(self, name: str) -> QueueModel:
        return self.sqs.queue(name)

    def topic(self, arn: str) -> TopicModel:
        return self.sns.topic(arn)

    def bucket(self, name: str) -> BucketModel:
        return self.s3.bucket(name)

    def expire(self) -> int:
        """Remove every row whose time to live is over. Returns their number."""
        with self._changed:
            return sum(table.expire(self.clock()) for table in self.dynamodb.tables.values())

    @contextmanager
    def served(self) -> Iterator[str]:
        """The URL at which boto3, in this process, reaches this model: pass it as `endpoint_url`,
        or as AWS_ENDPOINT_URL in the environment."""
        _patch_boto3()
        _served[self.url] = self
        try:
            yield self.url
        finally:
            del _served[self.url]


def _patch_boto3() -> None:
    """From now on boto3's sessions make clients of the model for the URL of a model, and clients of
    AWS for all others."""
    import boto3
    from boto3.session import Session

    if getattr(Session.client, "knows_models", False):
        return
    session_client, module_client = Session.client, boto3.client

    def client(self: Session, service_name: str, *args: Any, **options: Any) -> Any:
        model = _served.get(options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL", ""))
        return (
            session_client(self, service_name, *args, **options)
            if model is None
            else model.client(service_name, config=options.get("config"))
        )

    def client_of_module(service_name: str, *args: Any, **options: Any) -> Any:
        model = _served.get(options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL", ""))
        return (
            module_client(service_name, *args, **options)
            if model is None
            else model.client(service_name, config=options.get("config"))
        )

    client.knows_models = True  # type: ignore[attr-defined]
    Session.client = client
    boto3.client = client_of_module
