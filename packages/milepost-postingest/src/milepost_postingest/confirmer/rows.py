"""Rows that wait for a confirmation: reads a payload that was too large for its message, and writes
the confirmation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import milepost as mp
from milepost.blobs import open_blobs
from milepost_postingest.confirmer.rules import CheckRequest
from milepost_postingest.dialects import as_json

log = logging.getLogger(__name__)

LARGE = 100_000
"""Texts of more bytes than this are stored as blobs, if there is a blob store: a row holds 400 KB
in total."""
ROW_HOLDS = 400_000


class RowGone(mp.MilepostError):
    """The row does not exist (any more), so it waits for nothing."""


class NotWritten(mp.MilepostError):
    """The row does not have the payload yet: the message came before the write that it refers
    to."""


class Rows:
    """The rows of one table. `blobs` is where Milepost stores values that are too large for a row:
    s3://BUCKET/PREFIX or a folder. Leave it out for a table whose other readers do not know such
    references."""

    def __init__(self, dynamodb: Any, table: str, prefix: str, blobs: str | None = None) -> None:
        self.table, self.prefix = table, prefix
        self._dynamodb = dynamodb
        self._blobs = open_blobs(blobs)
        self._keeps = blobs is not None
        self._names_author = True
        self.room = None if self._keeps else LARGE
        """Maximum bytes of one text on a row; None: unlimited, because large texts are stored as
        blobs."""

    def payload(self, asked: CheckRequest) -> Any:
        """The payload to check. Raises RowGone or NotWritten."""
        if asked.payload_at is None:
            return asked.payload
        answer = self._dynamodb.get_item(
            TableName=self.table,
            Key=_key(asked.key),
            ConsistentRead=True,
            ReturnConsumedCapacity="TOTAL",
        )
        _check_answer(answer, "get_item")
        row = answer.get("Item")
        if row is None:
            raise RowGone(f"there is no row {asked.key} in {self.table}")
        return self._value(self._attribute(row, asked))

    def confirm(
        self, asked: CheckRequest, texts: Mapping[str, str], author_attribute: str, author: str
    ) -> None:
        """Set these attributes, if the row exists, and who confirms, if the role may set that.
        Raises RowGone if the row does not exist."""
        values = {name: self._kept(asked, text) for name, text in texts.items()}
        if not (
            self._names_author
            and self._set_if_allowed(asked, {**values, author_attribute: {"S": author}})
        ):
            self._set(asked, values)

    def _set_if_allowed(self, asked: CheckRequest, values: Mapping[str, dict[str, Any]]) -> bool:
        """Set these attributes; False if the role may not, as with a policy from before
        `confirmedBy_<stage>`."""
        try:
            self._set(asked, values)
        except self._dynamodb.exceptions.ClientError as error:
            if error.response.get("Error", {}).get("Code") != "AccessDeniedException":
                raise
            log.warning(
                "the role may not set %s, so it is not recorded who confirms; add that to its policy",
                ", ".join(values),
            )
            self._names_author = False
        return self._names_author

    def note(self, asked: CheckRequest, attribute: str, text: str) -> None:
        """Write on the row what it waits for. Raises RowGone if there is no row."""
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
                ExpressionAttributeValues={
                    f":{number}": value for number, value in enumerate(values.values())
                },
                ReturnConsumedCapacity="TOTAL",
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            raise RowGone(f"there is no row {asked.key} in {self.table}") from None
        _check_answer(answer, "update_item")

    def _attribute(self, row: Mapping[str, dict[str, Any]], asked: CheckRequest) -> dict[str, Any]:
        """The attribute with the payload; or another stage's answer; or the input, at the stage
        without another payload."""
        assert asked.payload_at is not None
        found = row.get(asked.payload_at)
        if found is None and row.get("queue", {}).get("S") == asked.payload_at.removeprefix(
            "payload_"
        ):
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
            raise mp.LedgerError(
                f"the blob {name!r} is damaged: its digest is not the one on its row; restore it from a copy"
            )
        return as_json(data.decode())

    def _kept(self, asked: CheckRequest, text: str) -> dict[str, Any]:
        data = text.encode()
        if len(data) <= LARGE or not self._keeps:
            if len(data) > ROW_HOLDS:
                raise mp.LedgerError(
                    f"the confirmation is {len(data):,} bytes, and a row holds {ROW_HOLDS:,}; if Milepost reads {self.table}, set"
                    " MILEPOST_BLOBS to where it keeps its blobs"
                )
            return {"S": text}
        # The name contains the row's key: the blob is deleted with the row, and no other row may
        # refer to it.
        digest, owner = (
            sha256(data).hexdigest(),
            sha256("\0".join((self.table, *asked.key.values())).encode()).hexdigest(),
        )
        name = f"confirmed/{owner[:32]}/{digest[:32]}"
        self._blobs.write(name, [data])
        return {"M": {"blob": {"S": name}, "sha256": {"S": digest}, "size": {"N": str(len(data))}}}


def _key(key: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"S": part} for name, part in key.items()}


def _check_answer(answer: Mapping[str, Any], operation: str) -> None:
    """Raise if an answer does not come from DynamoDB: boto3 reads the page of a proxy as an empty
    answer. DynamoDB reports what it charged."""
    if "ConsumedCapacity" not in answer:
        raise mp.LedgerError(
            f"the answer to {operation} does not come from DynamoDB; check the proxy (HTTPS_PROXY)"
        )
