"""Surroundings of a stand-alone confirmer: a queue, a table with waiting rows and a quarantine
queue. Every request is recorded."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config

import milepost as mp
from milepost_aws.aws_model import Faults
from milepost_postingest.confirmer.rules import ConfirmerSettings
from milepost_postingest.confirmer.service import Confirmer

ASSET, OTHER = "e2715719-c313-4e95-b5e6-f8759dcc6aed", "ca3bb9d5-c5bf-4da8-9ad7-a937f163b006"
BATCH = "TDR_0cae3480-2b84-42a7-b899-dcce25aee98b"
VISIBILITY_S = 600
Image = dict[str, dict[str, Any]]


class Turns(threading.Event):
    """What a confirmer runs until: `pauses` says for how long it wanted to rest. It is set by the
    last of as many as are given."""

    def __init__(self, pauses: int = 1) -> None:
        super().__init__()
        self.pauses: list[float | None] = []
        self._most = pauses

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        if len(self.pauses) >= self._most:
            self.set()
        return self.is_set()


class Scene:
    """One queue, one table. The confirmer's own clients are never tried again by boto3, so that a
    fault is one."""

    def __init__(self, endpoint: str, session: boto3.session.Session) -> None:
        once = Config(retries={"total_max_attempts": 1}, read_timeout=10)
        self.sqs, self.dynamodb = (
            session.client(name, endpoint_url=endpoint) for name in ("sqs", "dynamodb")
        )
        self.own = [
            session.client(name, endpoint_url=endpoint, config=once) for name in ("sqs", "dynamodb")
        ]
        self.calls: list[tuple[str, dict[str, Any]]] = []
        """What the confirmer asked for: operation and parameters."""
        self.faults = Faults()
        for client in self.own:
            client.meta.events.register("provide-client-params", self._note)
            self.faults.attach(client)
        name = f"t{secrets.token_hex(4)}"
        self.table = f"{name}-state"
        self.queue = self.sqs.create_queue(
            QueueName=f"{name}-cc", Attributes={"VisibilityTimeout": str(VISIBILITY_S)}
        )["QueueUrl"]
        self.quarantine = self.sqs.create_queue(QueueName=f"{name}-quarantine")["QueueUrl"]
        self.dynamodb.create_table(
            TableName=self.table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": part, "AttributeType": "S"} for part in ("assetId", "batchId")
            ],
            KeySchema=[
                {"AttributeName": "assetId", "KeyType": "HASH"},
                {"AttributeName": "batchId", "KeyType": "RANGE"},
            ],
        )

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.calls.append((model.name, params))

    def close(self) -> None:
        for client in (*self.own, self.sqs, self.dynamodb):
            client.close()

    def confirmer(
        self, check: Callable[[Any], mp.Outcome], attribute: str = "result_CC", **options: Any
    ) -> Confirmer:
        dialect = "seed" if attribute.startswith("ingested_") else "today"
        sqs, dynamodb = self.own
        own = {
            name: options.pop(name)
            for name in ("max_messages", "quarantine_url", "blobs")
            if name in options
        }
        settings = ConfirmerSettings(self.queue, self.table, attribute, dialect, "ocfl", **own)
        return Confirmer(check, settings, sqs=sqs, dynamodb=dynamodb, **options)

    # Who asks -------------------------------------------------------------------------------------
    @staticmethod
    def key(asset: str = ASSET) -> Image:
        return {"assetId": {"S": asset}, "batchId": {"S": BATCH}}

    def put(self, asset: str = ASSET, **attributes: dict[str, Any]) -> None:
        """A row that waits."""
        self.dynamodb.put_item(
            TableName=self.table, Item={**self.key(asset), "input": {"S": "{}"}, **attributes}
        )

    def send(self, body: Any, **labels: str) -> None:
        attributes = {
            name: {"DataType": "String", "StringValue": value} for name, value in labels.items()
        }
        text = body if isinstance(body, str) else json.dumps(body)
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=text, MessageAttributes=attributes)

    def ask(self, payload: Any, asset: str = ASSET, **more: Any) -> None:
        """As it is asked today: a row that waits, and its message."""
        self.put(asset)
        self.send(
            {
                "assetId": asset,
                "batchId": BATCH,
                "resultAttrName": "result_CC",
                "payload": payload,
                **more,
            }
        )

    def ask_as_in_seed(self, payload: Any, asset: str = ASSET) -> None:
        self.put(asset)
        self.send(payload, key=json.dumps({"assetId": asset, "batchId": BATCH}))

    # What there is --------------------------------------------------------------------------------
    def row(self, asset: str = ASSET) -> Image | None:
        found: Image | None = self.dynamodb.get_item(
            TableName=self.table, Key=self.key(asset), ConsistentRead=True
        ).get("Item")
        return found

    def confirmed(self, attribute: str = "result_CC", asset: str = ASSET) -> Any:
        """The confirmation on a row, read; None if there is none."""
        text = (self.row(asset) or {}).get(attribute, {}).get("S")
        return None if text is None else json.loads(text)

    def made(self, operation: str) -> list[dict[str, Any]]:
        """The confirmer's requests of one kind."""
        return [params for name, params in self.calls if name == operation]

    def hidden_for(self) -> list[int]:
        """For how many seconds messages were hidden, in order."""
        return [params["VisibilityTimeout"] for params in self.made("ChangeMessageVisibility")]

    def left(self) -> tuple[int, int]:
        """How many messages are in the queue: to be seen, and hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)[
            "Attributes"
        ]
        return int(found[names[0]]), int(found[names[1]])

    def aside(self) -> list[dict[str, Any]]:
        messages = self.sqs.receive_message(QueueUrl=self.quarantine, MaxNumberOfMessages=10).get(
            "Messages", []
        )
        return [json.loads(message["Body"]) for message in messages]
