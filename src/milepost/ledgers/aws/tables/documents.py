"""Control documents: small named values that processes share, each a row of the control table written conditionally."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from milepost.core.errors import LedgerReadOnly
from milepost.ledgers.aws.names import ResourceNames, fitted_key
from milepost.ledgers.aws.requests.client import Requests, TransactionRefused, expressions, key_condition
from milepost.ledgers.aws.tables.keys import Image
from milepost.ports.documents import BREAKER, Document

LONGEST_NAME = 1024
"""Maximum bytes of a DynamoDB range key."""
FIRST, LAST = "\x00", "\U0010ffff"
"""The lowest character, for a key condition must not be empty; and the highest character: behind every text that begins like the text before it."""
BY_ROUTE = frozenset({BREAKER})
"""Kinds whose documents have the route in their partition key, so that the role of one route's worker cannot write another's. Their names begin
with the route."""
LAYOUT = "layout"
"""Kind of the documents of the routes that the ledger was opened with."""

log = logging.getLogger(__name__)


class Control:
    """The documents of one ledger. Each write puts its own token on the document: if an answer is lost, the request's repeat fails
    its condition, finds that token, and so knows that the first try succeeded.

    A removal first writes its token and removes the version, which makes the document absent for all readers; then it deletes the
    remaining row. A process that dies in between leaves a harmless remainder. One case cannot be recognised: another process wrote
    the document again before the repeat arrived. That is reported as a lost race, or, where no version was expected, written again.

    In 0.1.0 the kinds of `BY_ROUTE` had the kind alone as partition key. Such a document is read until one is written with the route, or
    removed: then a row with the route stays, and says that the old one does not count.

    A document's first version is the microsecond of its creation. It is therefore higher than any version of an earlier document of
    that name, and nothing of the earlier one has to be kept.
    """

    def __init__(self, requests: Requests, names: ResourceNames, first_version: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._requests = requests
        self.names = names
        self._table = names.control
        self._first_version = first_version
        self._unreadable: set[tuple[str, str]] = set()
        """Kinds and routes that this process may not read, each logged once."""

    def read(self, kind: str, routes: Iterable[str] | None = None) -> dict[str, Document]:
        """All documents of a kind, by name. `routes`: of kinds with the route in their key, only those of these routes."""
        images = {image["name"]["S"]: image for image in self._requests.query(self._table, **kind_query(kind))}
        if kind in BY_ROUTE:
            for route in self.read(LAYOUT) if routes is None else routes:
                images |= {image["name"]["S"]: image for image in self._of_route(kind, route)}
        return {_name_in(image): _document(image) for image in images.values() if "version" in image}

    def page_of_names(self, kind: str, prefix: str, after: str | None, limit: int) -> list[str]:
        """The names of a kind's documents that begin with `prefix`, in order, at most `limit`, those behind `after`."""
        first = prefix or FIRST if after is None else fitted_key(after, LONGEST_NAME) + FIRST
        images = self._requests.query(
            self._table, **kind_query(kind, " AND #name BETWEEN :first AND :last", first=first, last=prefix + LAST)
        )
        return [_name_in(image) for image in islice((image for image in images if "version" in image), limit)]

    def _of_route(self, kind: str, route: str) -> list[Image]:
        """The rows of one route; none where this process's role may not read them: the stack has no such route any more, or is older than
        this version."""
        try:
            return list(self._requests.query(self._table, **kind_query(f"{kind}#{route}")))
        except LedgerReadOnly as error:
            if (kind, route) not in self._unreadable:
                log.warning("documents %r of route %r are left out: %s; deploy the present stack", kind, route, error)
                self._unreadable.add((kind, route))
            return []

    def get(self, kind: str, name: str) -> Document | None:
        """One document."""
        image = self._image(_key(kind, name))
        if image is None and kind in BY_ROUTE:
            image = self._image(_key_without_route(kind, name))
        return None if image is None or "version" not in image else _document(image)

    def _image(self, key: Image) -> Image | None:
        found = self._requests.call("dynamodb", "get_item", TableName=self._table, Key=key, ConsistentRead=True)
        image: Image | None = found.get("Item")
        return image

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it) if its version is `expect` (0: absent); False if it is not."""
        written = self._write(kind, name, value, expect, self._first_version())
        if not written and expect and kind in BY_ROUTE and self._is_old(kind, name, expect):
            return self._write(kind, name, value, 0, expect + 1)
        return written

    def _write(self, kind: str, name: str, value: Any, expect: int | None, first: int) -> bool:
        return self._remove(kind, name, expect) if value is None else self._set(kind, name, value, expect, first)

    def _is_old(self, kind: str, name: str, version: int) -> bool:
        """Whether the document exists without the route in its key alone, with this version."""
        if self._image(_key(kind, name)) is not None:
            return False
        old = self._image(_key_without_route(kind, name))
        return old is not None and "version" in old and _document(old).version == version

    def put(self, kind: str, name: str, value: Any, expect: int) -> int | None:
        """Write one document and return its new version; None: its version was not `expect`."""
        first = self._first_version()
        return (expect + 1 if expect else first) if self._set(kind, name, value, expect, first) else None

    def put_with(self, kind: str, name: str, value: Any, expect: int, others: Sequence[dict[str, Any]]) -> int | None:
        """Like `put`, in one transaction with the actions `others`, whose conditions always hold; None: nothing was written."""
        first = self._first_version()
        update, _ = _update(name, value, expect, first)
        action = {"Update": {"TableName": self._table, "Key": _key(kind, name), **update}}
        try:
            self._requests.call("dynamodb", "transact_write_items", TransactItems=[action, *others])
        except TransactionRefused:
            return None
        return expect + 1 if expect else first

    def _set(self, kind: str, name: str, value: Any, expect: int | None, first: int) -> bool:
        """Write one document; `first` is the version of a new document."""
        update, token = _update(name, value, expect, first)
        refused = self._requests.conflict("update_item", TableName=self._table, Key=_key(kind, name), **update)
        return refused is None or refused.get("token") == {"S": token}

    def _remove(self, kind: str, name: str, expect: int | None) -> bool:
        key = _key(kind, name)
        if kind in BY_ROUTE and self._image(_key_without_route(kind, name)) is not None:
            return self._mark_removed(key, expect)
        if expect is None:
            self._requests.call("dynamodb", "delete_item", TableName=self._table, Key=key)
            return True
        if expect == 0:
            return self.get(kind, name) is None
        token = self._mark(key, expect)
        if token is None:
            return False
        # If the condition does not hold, the row is already deleted, or was written again by another process.
        ours = expressions({"token": {"S": token}}, ConditionExpression="#token = :token")
        self._requests.write_if("delete_item", TableName=self._table, Key=key, **ours)
        return True

    def _mark_removed(self, key: Image, expect: int | None) -> bool:
        """Leave a row without a version, which hides the old document."""
        return self._mark(key, expect) is not None

    def _mark(self, key: Image, expect: int | None) -> str | None:
        """Make a document absent for all readers, and return the token of its remaining row; None: its version is not `expect`."""
        token = secrets.token_urlsafe(9)
        values: dict[str, Any] = {"token": {"S": token}}
        condition = {} if expect is None else {"ConditionExpression": "#version = :expect" if expect else "attribute_not_exists(#version)"}
        if expect:
            values["expect"] = {"N": str(expect)}
        update = expressions(values, UpdateExpression="SET #token = :token REMOVE #version, #value", **condition)
        refused = self._requests.conflict("update_item", TableName=self._table, Key=key, **update)
        if refused is not None and ("version" in refused or refused.get("token") != {"S": token}):
            return None
        return token


def _update(name: str, value: Any, expect: int | None, first: int) -> tuple[dict[str, Any], str]:
    """Parameters of the write of one document, and its token; `first` is the version of a new document."""
    token = secrets.token_urlsafe(9)
    values = {
        "value": {"S": msgspec.json.encode(value).decode()},
        "token": {"S": token},
        "none": {"N": str(first - 1)},
        "one": {"N": "1"},
    }
    if expect is None:
        condition = "attribute_not_exists(#token) OR #token <> :token"
    elif expect == 0:
        condition = "attribute_not_exists(#version)"
    else:
        condition = "#version = :expect"
        values["expect"] = {"N": str(expect)}
    change = "SET #value = :value, #token = :token, #version = if_not_exists(#version, :none) + :one"
    if fitted_key(name, LONGEST_NAME) != name:
        # Then the complete name is in an attribute of its own.
        change += ", #named = :named"
        values["named"] = {"S": name}
    return expressions(values, UpdateExpression=change, ConditionExpression=condition), token


def kind_query(kind: str, further: str = "", **values: str) -> dict[str, Any]:
    """Parameters of a query of the control table: the rows of a kind, under a further condition on their names; read consistently."""
    return {**key_condition(f"#kind = :kind{further}", kind=kind, **values), "ConsistentRead": True}


def _key(kind: str, name: str) -> Image:
    return _key_of(f"{kind}#{name.partition('/')[0]}" if kind in BY_ROUTE else kind, name)


def _key_without_route(kind: str, name: str) -> Image:
    return _key_of(kind, name)


def _key_of(partition: str, name: str) -> Image:
    return {"kind": {"S": partition}, "name": {"S": fitted_key(name, LONGEST_NAME)}}


def _name_in(image: Image) -> str:
    name: str = image.get("named", image["name"])["S"]
    return name


def _document(image: Image) -> Document:
    return Document(msgspec.json.decode(image["value"]["S"]), int(image["version"]["N"]))
