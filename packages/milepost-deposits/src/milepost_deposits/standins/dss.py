"""A stand-in for the DSpace Submission Service: it reads real SQS messages, makes items in DSpace,
and writes result messages.

It validates as the service does, and dies as the service dies. A script says, for each DOI, what
becomes of its next messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any, Literal

from milepost_deposits.standins.dspace import REGISTRY, DSpaceStandIn, StandInItem

Behaviour = Literal[
    "success",  # an item, and the result in today's form
    "success-string",  # the checksum is a bare string, lastModified is in the old style
    "success-review",  # the item waits for review: ItemHandle is null
    "success-bare",  # the result names no file
    "success-empty",  # the item has no file, and the result names none
    "success-other",  # the file in DSpace is not the one that was sent
    "success-twice",  # the result comes twice
    "no-collection",  # E2: DSpace does not know the collection
    "no-metadata",  # E3: the metadata file cannot be read
    "no-item",  # E4: DSpace made no item
    "no-item-made",  # E4: the answer of DSpace was lost, and the item is there
    "no-bundle",  # E5: the item was deleted again
    "no-bundle-left",  # E5: the item could not be deleted
    "no-bitstream",  # E6: the item was deleted again
    "error-old",  # an error result in the form of before 2025
    "error-twice",  # the same error result comes twice
    "refused",  # S1: the message itself is refused; the body is a bare string
    "maybe",  # a ResultType that does not exist
    "no-type",  # a result without a ResultType
    "empty",  # {} as body
    "no-attributes",  # a result without attributes
    "dies",  # N4: the service dies before it has made anything; the message comes again
    "dies-made",  # N3: the service dies after the item was made; the message comes again
    "dies-sent",  # N5: the service dies after it has sent the result; the message comes again
    "skips",  # N6: the message is deleted, and there is no result
]
SYSTEMS = ("DSpace@MIT", "IR-8", "DDC-8")


class ServiceDied(Exception):
    """The service's process ended within a message, which its queue shows again later."""


@dataclass
class DssStandIn:
    """The service: `sqs` is a boto3 client, `queue` its input queue's URL, `outputs` the names of
    the queues that it may answer to. `load` reads a file at a location of a message."""

    sqs: Any
    queue: str
    outputs: Sequence[str]
    dspace: DSpaceStandIn
    load: Callable[[str], bytes]
    form: Literal["old", "dspace8"] = "dspace8"
    """The form of the metadata file that its version reads: since August 2026 it hands the file to
    DSpace as it is."""
    script: dict[str, list[Behaviour]] = field(default_factory=dict)
    """By PackageID, what becomes of its next messages; then "success"."""
    visibility_s: int = 30
    received: list[str] = field(default_factory=list)
    """The PackageID of each message that was read, in order."""

    def run(self) -> bool:
        """Read the queue until it is empty, as one run of the service does. False: the process died
        within a message."""
        while True:
            answer = self.sqs.receive_message(
                QueueUrl=self.queue,
                MaxNumberOfMessages=10,
                VisibilityTimeout=self.visibility_s,
                MessageAttributeNames=["All"],
            )
            messages = answer.get("Messages") or ()
            if not messages:
                return True
            try:
                for message in messages:
                    self._submit(message)
            except ServiceDied:
                return False

    def _submit(self, message: Mapping[str, Any]) -> None:
        labels = {
            name: one["StringValue"]
            for name, one in (message.get("MessageAttributes") or {}).items()
            if "StringValue" in one
        }
        if (
            not {"PackageID", "SubmissionSource", "OutputQueue"} <= labels.keys()
            or labels["OutputQueue"] not in self.outputs
        ):
            raise ServiceDied("invalid attributes")
        package = labels["PackageID"]
        self.received.append(package)
        fault = _fault_of(message["Body"])
        behaviour = "refused" if fault else self._next(package)
        if fault is None and json.loads(message["Body"])["SubmissionSystem"] not in SYSTEMS:
            raise ServiceDied("unknown SubmissionSystem")
        if behaviour == "dies":
            raise ServiceDied("an error that it does not catch")
        if behaviour != "skips":
            bodies = self._answers(behaviour, fault, message)
            if behaviour == "dies-made":
                raise ServiceDied("the list of bitstreams timed out")
            for body in bodies:
                self._send(labels, body, bare=behaviour == "no-attributes")
            if behaviour == "dies-sent":
                raise ServiceDied("the checksum of the result differs")
        self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])

    def _next(self, package: str) -> Behaviour:
        planned = self.script.get(package)
        return planned.pop(0) if planned else "success"

    def _answers(
        self, behaviour: Behaviour, fault: str | None, message: Mapping[str, Any]
    ) -> list[Any]:
        if behaviour == "refused":
            return [fault or "'CollectionHandle' is a required property"]
        body = json.loads(message["Body"])
        if behaviour == "no-collection" or body["CollectionHandle"] not in self.dspace.collections:
            return [_error(f"Did not find any DSpace objects for '{body['CollectionHandle']}'")]
        place = body["MetadataLocation"]
        try:
            content = json.loads(self.load(place))
        except (OSError, ValueError):
            behaviour = "no-metadata"
        if behaviour == "no-metadata":
            return [_error(f"Failed to load metadata from '{place}'")]
        metadata = _read_metadata(content, self.form)
        if metadata is None or not all(map(REGISTRY.fullmatch, metadata)):
            behaviour = "no-item"
        if metadata is None or behaviour in ("no-item", "error-old"):
            return [
                _error(
                    f"Error occurred while creating item from file '{place}'",
                    old=behaviour == "error-old",
                )
            ]
        if behaviour == "error-twice":
            return [_error(f"Error occurred while creating item from file '{place}'")] * 2
        if behaviour in ("maybe", "no-type", "empty"):
            return [
                {"maybe": {"ResultType": "maybe"}, "no-type": {"ItemHandle": "1/2"}, "empty": {}}[
                    behaviour
                ]
            ]
        return self._made(behaviour, body, metadata)

    def _made(
        self, behaviour: Behaviour, body: Mapping[str, Any], metadata: dict[str, Any]
    ) -> list[Any]:
        """The answers after an item was made."""
        item = self.dspace.put(metadata)
        item.searchable_at = self.dspace.clock() + self.dspace.index_lag
        place = body["MetadataLocation"]
        if behaviour == "no-item-made":
            return [_error(f"Error occurred while creating item from file '{place}'")]
        if behaviour in ("no-bundle", "no-bundle-left", "no-bitstream"):
            if behaviour != "no-bundle-left":
                del self.dspace.items[item.uuid]
            what = "bitstream from file" if behaviour == "no-bitstream" else "bundle for item"
            return [_error(f"Error occurred while creating {what} '{item.uuid}'")]
        for file in () if behaviour == "success-empty" else body["Files"]:
            content = (
                b"%PDF-other" if behaviour == "success-other" else self.load(file["FileLocation"])
            )
            item.add_file(file["BitstreamName"], content)
        result = _success(item, behaviour)
        return [result, result] if behaviour == "success-twice" else [result]

    def _send(self, labels: Mapping[str, str], body: Any, *, bare: bool) -> None:
        url = self.sqs.get_queue_url(QueueName=labels["OutputQueue"])["QueueUrl"]
        kept = ("PackageID", "SubmissionSource")
        attributes = (
            {}
            if bare
            else {name: {"DataType": "String", "StringValue": labels[name]} for name in kept}
        )
        self.sqs.send_message(
            QueueUrl=url, MessageBody=json.dumps(body), MessageAttributes=attributes
        )


def _fault_of(text: str) -> str | None:
    """Why the service refuses a message's body; None: it does not."""
    try:
        body = json.loads(text)
    except ValueError:
        return f"Unable to parse submission message body as JSON: {text}"
    for name in ("SubmissionSystem", "MetadataLocation", "Files"):
        if name not in body:
            return f"'{name}' is a required property"
    if "Operation" in body and body["Operation"] not in ("create", "update"):
        return f"{body['Operation']!r} is not one of ['create', 'update']"
    wanted = "ItemHandle" if body.get("Operation") == "update" else "CollectionHandle"
    if wanted not in body:
        return f"'{wanted}' is a required property"
    if any({"BitstreamName", "FileLocation"} - file.keys() for file in body["Files"]):
        return "'BitstreamName' is a required property"
    return None


def _read_metadata(content: Any, form: str) -> dict[str, Any] | None:
    """The metadata of a file as the service's version hands it to DSpace; None: it cannot make any
    of it."""
    if form == "dspace8":
        return content if isinstance(content, dict) else None
    entries = content.get("metadata") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        return None
    metadata: dict[str, Any] = {}
    for entry in entries:
        metadata.setdefault(entry["key"], []).append(
            {"value": entry["value"], "language": entry.get("language")}
        )
    return metadata


def _success(item: StandInItem, behaviour: Behaviour) -> dict[str, Any]:
    files = []
    for file in () if behaviour == "success-bare" else item.files:
        checksum = md5(file.content, usedforsecurity=False).hexdigest()
        said: Any = (
            checksum
            if behaviour == "success-string"
            else {"value": checksum, "checkSumAlgorithm": "MD5"}
        )
        files.append(
            {"BitstreamName": file.name, "BitstreamUUID": file.uuid, "BitstreamChecksum": said}
        )
    return {
        "ResultType": "success",
        "ItemHandle": None if behaviour == "success-review" else item.handle,
        "lastModified": "Thu Sep 09 17:56:39 UTC 2021"
        if behaviour == "success-string"
        else item.last_modified,
        "Bitstreams": files,
    }


def _error(info: str, *, old: bool = False) -> dict[str, Any]:
    if old:
        return {
            "ResultType": "error",
            "ErrorTimestamp": "Thu Sep 09 17:56:39 UTC 2021",
            "ErrorInfo": info,
            "ExceptionMessage": "500 Server Error",
            "ExceptionTraceback": "Traceback (most recent call last):\n  ...",
        }
    return {
        "ResultType": "error",
        "ErrorTimestamp": "2026-03-02 10:11:12",
        "ErrorInfo": info,
        "DSpaceResponse": "N/A",
        "ExceptionTraceback": ["Traceback (most recent call last):", "..."],
    }
