"""The rows that wait for a confirmation: what a payload too large for its message is, and the one write that confirms."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import milepost as mp
from milepost.applications.postingest.confirmer.rules import CheckRequest
from milepost.applications.postingest.dialects import as_json
from milepost.blobs import open_blobs

LARGE = 100_000
"""Bytes of one text above which it is kept as a blob, where there is a place for them: a row holds 400 KB, with all that it has."""
ROW_HOLDS = 400_000


class RowGone(mp.MilepostError):
    """There is no such row (any more): whatever it waited for, it does not wait now."""


class NotWritten(mp.MilepostError):
    """The row does not say yet what it is to be checked for: the message came before the write that it is about."""


class Rows:
    """The rows of one table. `blobs` is where Milepost keeps what is too large for a row: s3://BUCKET/PREFIX or a folder. Leave it
    out for a table that others read, who know nothing of such references."""

    def __init__(self, dynamodb: Any, table: str, prefix: str, blobs: str | None = None) -> None:
        self.table, self.prefix = table, prefix
        self._dynamodb = dynamodb
        self._blobs = open_blobs(blobs)
        self._keeps = blobs is not None
        self.room = None if self._keeps else LARGE
        """The most bytes that one text on a row is to have; None: any, what is large is kept as a blob."""

    def payload(self, asked: CheckRequest) -> Any:
        """What is to be checked. Raises Gone or NotWritten."""
        if asked.payload_at is None:
            return asked.payload
        answer = self._dynamodb.get_item(TableName=self.table, Key=_key(asked.key), ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
        _check_answer(answer, "get_item")
        row = answer.get("Item")
        if row is None:
            raise RowGone(f"there is no row {asked.key} in {self.table}")
        return self._value(self._attribute(row, asked))

    def confirm(self, asked: CheckRequest, texts: Mapping[str, str]) -> None:
        """Set these attributes, if the row is there. Raises Gone if it is not."""
        self._set(asked, {name: self._kept(asked, text) for name, text in texts.items()})

    def note(self, asked: CheckRequest, attribute: str, text: str) -> None:
        """Say on the row what is waited for, if it is there. Raises Gone if it is not."""
        self._set(asked, {attribute: {"S": text}})

    def _set(self, asked: CheckRequest, values: Mapping[str, dict[str, Any]]) -> None:
        names = {f"#{number}": name for number, name in enumerate(values)}
        try:
            answer = self._dynamodb.update_item(
                TableName=self.table,
                Key=_key(asked.key),
                UpdateExpression="SET " + ", ".join(f"{short} = :{short[1:]}" for short in names),
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={**names, "#key": next(iter(asked.key))},
                ExpressionAttributeValues={f":{number}": value for number, value in enumerate(values.values())},
                ReturnConsumedCapacity="TOTAL",
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            raise RowGone(f"there is no row {asked.key} in {self.table}") from None
        _check_answer(answer, "update_item")

    def _attribute(self, row: Mapping[str, dict[str, Any]], asked: CheckRequest) -> dict[str, Any]:
        """The payload's own attribute; or another stage's answer, which it may be; or the input, at the stage that has no other."""
        assert asked.payload_at is not None
        found = row.get(asked.payload_at)
        if found is None and row.get("queue", {}).get("S") == asked.payload_at.removeprefix("payload_"):
            found = row.get("input")
        of = None if found is None else found.get("M", {}).get("of")
        if of is not None:
            found = row.get(self.prefix + of["S"])
        if found is None:
            raise NotWritten(f"its row has no {asked.payload_at!r} yet")
        return found

    def _value(self, attribute: dict[str, Any]) -> Any:
        if "S" in attribute:
            return as_json(attribute["S"])
        reference = attribute.get("M", {})
        if "blob" not in reference:
            from boto3.dynamodb.types import TypeDeserializer

            return TypeDeserializer().deserialize(attribute)
        name = reference["blob"]["S"]
        data = b"".join(self._blobs.read(name))
        if sha256(data).hexdigest() != reference["sha256"]["S"]:
            raise mp.LedgerError(f"the blob {name!r} is not what its row says it is: its digest differs; restore it from a copy")
        return as_json(data.decode())

    def _kept(self, asked: CheckRequest, text: str) -> dict[str, Any]:
        data = text.encode()
        if len(data) <= LARGE or not self._keeps:
            if len(data) > ROW_HOLDS:
                raise mp.LedgerError(
                    f"the confirmation is {len(data):,} bytes, and a row holds {ROW_HOLDS:,}; if it is Milepost that reads {self.table}, set"
                    " MILEPOST_BLOBS to where it keeps its blobs"
                )
            return {"S": text}
        # Named after the row too: it goes when the row goes, and nobody else may refer to it.
        digest, owner = sha256(data).hexdigest(), sha256("\0".join((self.table, *asked.key.values())).encode()).hexdigest()
        name = f"confirmed/{owner[:32]}/{digest[:32]}"
        self._blobs.write(name, [data])
        return {"M": {"blob": {"S": name}, "sha256": {"S": digest}, "size": {"N": str(len(data))}}}


def _key(key: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"S": part} for name, part in key.items()}


def _check_answer(answer: Mapping[str, Any], operation: str) -> None:
    """boto3 takes a page from some proxy for an empty answer. DynamoDB itself says what it charged."""
    if "ConsumedCapacity" not in answer:
        raise mp.LedgerError(f"what was answered to {operation} does not come from DynamoDB; look at what stands between (HTTPS_PROXY)")
