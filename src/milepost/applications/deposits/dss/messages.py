"""Messages to the DSpace Submission Service: attributes and body, to the letter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from milepost.applications.deposits.deposit import Deposit
from milepost.applications.deposits.settings import DssSettings


@dataclass(frozen=True)
class SubmitMessage:
    """An SQS message that asks the service to create one item."""

    attributes: dict[str, dict[str, str]]
    body: str


def submit_message(deposit: Deposit, dss: DssSettings, collection: str) -> SubmitMessage:
    """The message for a deposit. It has no `Operation`: the service then creates an item."""
    labels = {"PackageID": deposit.doi, "SubmissionSource": dss.source, "OutputQueue": queue_name(dss.results)}
    body = {
        "SubmissionSystem": dss.system,
        "CollectionHandle": collection,
        "MetadataLocation": deposit.metadata.place,
        "Files": [
            {"BitstreamName": deposit.content.bitstream, "FileLocation": deposit.content.place, "BitstreamDescription": None},
        ],
    }
    return SubmitMessage({name: {"DataType": "String", "StringValue": value} for name, value in labels.items()}, json.dumps(body))


def queue_name(queue: str) -> str:
    """The name of a queue that is given by name or by URL: the service finds its output queues by name."""
    return queue.rstrip("/").rpartition("/")[2]


def queue_url(sqs: Any, queue: str) -> str:
    """The URL of a queue that is given by name or by URL."""
    if "://" in queue:
        return queue
    answer: str = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    return answer
