"""Control documents: small, named values that processes share, each a row of the control table written conditionally."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from milepost.ledgers.aws.names import ResourceNames
from milepost.ledgers.aws.requests.client import ConditionFailed, Requests
from milepost.ledgers.aws.tables.keys import Image
from milepost.ports.ledger import Document

LONGEST_NAME = 1024
"""Bytes that DynamoDB takes in a range key."""

_ATTRIBUTES = {"#version": "version", "#value": "value", "#token": "token"}


def _microseconds() -> int:
    return time.time_ns() // 1000


class Control:
    """The documents of one ledger. Each write leaves a token of its own on the document: when an answer is lost, the request's
    repeat fails its condition and finds that token, so it knows that it was itself.

    A removal leaves its token too, on a document that has no version any more and so is absent for everybody; then that
    remainder is taken away. Whoever dies in between leaves a remainder that harms nobody. The one thing that cannot be
    recognised is a write that somebody else has written over before its repeat came: it is answered like a lost race, and
    where no version was expected it is written again.

    A document's first version is the microsecond in which it was made. So it is higher than any version of a document that was
    removed before, and nothing has to be kept of that one.
    """

    def __init__(self, requests: Requests, names: ResourceNames, first_version: Callable[[], int] = _microseconds) -> None:
        self._requests = requests
        self._table = names.control
        self._first_version = first_version

    def read(self, kind: str) -> dict[str, Document]:
        """All documents of a kind, by name."""
        images = self._requests.query(
            self._table,
            KeyConditionExpression="#kind = :kind",
            ExpressionAttributeNames={"#kind": "kind"},
            ExpressionAttributeValues={":kind": {"S": kind}},
            ConsistentRead=True,
        )
        return {_name_in(image): _document(image) for image in images if "version" in image}

    def get(self, kind: str, name: str) -> Document | None:
        """One document."""
        found = self._requests.call("dynamodb", "get_item", TableName=self._table, Key=_key(kind, name), ConsistentRead=True)
        image = found.get("Item", {})
        return _document(image) if "version" in image else None

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it) if it has the version `expect`, 0 for absent; False: it has not."""
        if value is None:
            return self._remove(kind, name, expect)
        return self._set(kind, name, value, expect, self._first_version())

    def put(self, kind: str, name: str, value: Any, expect: int) -> int | None:
        """Write one document, and say which version it has then; None: it did not have the version `expect`."""
        first = self._first_version()
        return (expect + 1 if expect else first) if self._set(kind, name, value, expect, first) else None

    def _set(self, kind: str, name: str, value: Any, expect: int | None, first: int) -> bool:
        """Write one document; `first` is the version that it begins with if there is none."""
        token = secrets.token_urlsafe(9)
        values = {
            ":value": {"S": msgspec.json.encode(value).decode()},
            ":token": {"S": token},
            ":none": {"N": str(first - 1)},
            ":one": {"N": "1"},
        }
        if expect is None:
            condition = "attribute_not_exists(#token) OR #token <> :token"
        elif expect == 0:
            condition = "attribute_not_exists(#version)"
        else:
            condition = "#version = :expect"
            values[":expect"] = {"N": str(expect)}
        change = "SET #value = :value, #token = :token, #version = if_not_exists(#version, :none) + :one"
        attributes = _ATTRIBUTES
        if _key(kind, name)["name"]["S"] != name:
            change += ", #named = :named"
            values[":named"] = {"S": name}
            attributes = {**_ATTRIBUTES, "#named": "named"}
        refused = self._update(kind, name, change, condition, attributes, values)
        return refused is None or refused.get("token") == {"S": token}

    def _remove(self, kind: str, name: str, expect: int | None) -> bool:
        key = _key(kind, name)
        if expect is None:
            self._requests.call("dynamodb", "delete_item", TableName=self._table, Key=key)
            return True
        if expect == 0:
            return self.get(kind, name) is None
        token = {"S": secrets.token_urlsafe(9)}
        values = {":token": token, ":expect": {"N": str(expect)}}
        refused = self._update(kind, name, "SET #token = :token REMOVE #version, #value", "#version = :expect", _ATTRIBUTES, values)
        if refused is not None and ("version" in refused or refused.get("token") != token):
            return False
        try:
            self._requests.call(
                "dynamodb",
                "delete_item",
                TableName=self._table,
                Key=key,
                ConditionExpression="#token = :token",
                ExpressionAttributeNames={"#token": "token"},
                ExpressionAttributeValues={":token": token},
            )
        except ConditionFailed:
            pass  # it is gone already, or somebody has written it anew
        return True

    def _update(
        self, kind: str, name: str, change: str, condition: str, attributes: dict[str, str], values: dict[str, Any]
    ) -> Image | None:
        """None: written. Else what stands there, empty if nothing does."""
        try:
            self._requests.call(
                "dynamodb",
                "update_item",
                TableName=self._table,
                Key=_key(kind, name),
                UpdateExpression=change,
                ConditionExpression=condition,
                ExpressionAttributeNames={
                    placeholder: attribute for placeholder, attribute in attributes.items() if placeholder in change + condition
                },
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as refused:
            return refused.image or {}
        return None


def _key(kind: str, name: str) -> Image:
    data = name.encode()
    if len(data) > LONGEST_NAME:
        # The whole name then stands in an attribute of its own.
        name = f"{data[: LONGEST_NAME - 70].decode(errors='ignore')}#{sha256(data).hexdigest()}"
    return {"kind": {"S": kind}, "name": {"S": name}}


def _name_in(image: Image) -> str:
    name: str = image.get("named", image["name"])["S"]
    return name


def _document(image: Image) -> Document:
    return Document(msgspec.json.decode(image["value"]["S"]), int(image["version"]["N"]))
