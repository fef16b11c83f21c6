"""Control documents: small named values that processes share, each a row of the control table
written conditionally."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from milepost.core.errors import RESTORE, LedgerReadOnly, LedgerTooNew
from milepost.ports.documents import (
    ACT,
    ACT_OF_ROUTE,
    BREAKER,
    HOLD,
    DamagedValue,
    Document,
    update,
)
from milepost_aws.ledger.names import ResourceNames, fitted_key
from milepost_aws.ledger.requests.client import (
    Requests,
    TransactionRefused,
    expressions,
    key_condition,
)
from milepost_aws.ledger.tables.keys import Image

LONGEST_NAME = 1024
"""Maximum bytes of a DynamoDB range key."""
FIRST, LAST = "\x00", "\U0010ffff"
"""The lowest character, for a key condition must not be empty; and the highest character: behind
every text that begins like the text before it."""
LAYOUT = "layout"
"""Kind of the documents of the routes that the ledger was opened with."""
BUCKET = "bucket"
"""Kind of the token buckets, one for each scope with a rate: all processes share them."""
HOLDING = "holding"
"""Kind of the records of lanes that have, or had, held rows."""
BY_ROUTE = {BREAKER: 1, HOLD: 2, BUCKET: 2, HOLDING: 2, ACT: 2}
"""Kinds whose documents have the route in their partition key, so that the role of one route's
worker cannot write another's, with the format of the tables from which they have it. Their names
begin with the route; acts of programs alone do so, and the others have no route."""
SEPARATORS = {ACT: ACT_OF_ROUTE}
"""What follows the route in a name, where it is not "/"."""
FORMAT, TABLES = "format", "tables"
"""Kind and name of the document that holds the number of the tables' format. Without it the number
is 1."""
KNOWN_FORMAT = 2
"""The newest format that this version knows. A new ledger begins with it."""
FRESH_S = 5.0
"""Maximum age of the number that a process goes by."""

log = logging.getLogger(__name__)


class Control:
    """The documents of one ledger. Each write puts its own token on the document: if an answer is
    lost, the request's repeat fails its condition, finds that token, and so knows that the first
    try succeeded.

    A removal first writes its token and removes the version, which makes the document absent for
    all readers; then it deletes the remaining row. A process that dies in between leaves a harmless
    remainder. One case cannot be recognised: another process wrote the document again before the
    repeat arrived. That is reported as a lost race, or, where no version was expected, written
    again.

    A kind of `BY_ROUTE` has the kind alone as partition key until the tables have the format from
    which it has the route in it. That number is raised by an operator (`raise_format`), because an
    earlier version of Milepost reads the kind alone. A document without the route is read, whatever
    the format, until one is written with the route, or removed: then a row with the route stays,
    and says that the old one does not count.

    A document's first version is the microsecond of its creation. It is therefore higher than any
    version of an earlier document of that name, and nothing of the earlier one has to be kept.
    """

    def __init__(
        self,
        requests: Requests,
        names: ResourceNames,
        first_version: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._requests = requests
        self.names = names
        self._table = names.control
        self._first_version = first_version
        self._unreadable: set[tuple[str, str]] = set()
        """Kinds and routes that this process may not read, each logged once."""
        self._routes: frozenset[str] = frozenset()
        """Routes that the ledger is known to have."""
        self._format = 1
        self._format_read_at: float | None = None

    # Format ---------------------------------------------------------------------------------------
    def format(self) -> int:
        """The number of the tables' format, at most `FRESH_S` old; LedgerTooNew if this version
        does not know it."""
        now = self._requests.clock()
        if self._format_read_at is None or not 0 <= now - self._format_read_at < FRESH_S:
            self._format = self._read_format()
            self._format_read_at = now
        if self._format > KNOWN_FORMAT:
            raise LedgerTooNew(
                f"the tables of this ledger have format {self._format}, and this Milepost knows formats up to {KNOWN_FORMAT}; install the newer version"
            )
        return self._format

    def _read_format(self) -> int:
        try:
            document = self.read_one(FORMAT, TABLES)
        except LedgerReadOnly:
            return 1  # the stack is older than the formats; deploying a newer one comes before the number is raised
        return 1 if document is None else int(document.value["number"])

    def begin_format(self) -> None:
        """Give a new ledger the newest format, before its first route is recorded."""
        self.write(FORMAT, TABLES, {"number": KNOWN_FORMAT}, expect=0)
        self._format_read_at = None

    def raise_format(self) -> int:
        """Raise the number to the newest format, then give the documents of earlier formats their
        keys; returns how many. Processes may be at work, and a repeat continues: a document changes
        its key in one transaction."""
        self._format_read_at = None
        if self.format() < KNOWN_FORMAT:
            update(self, FORMAT, TABLES, dict[str, int], _raised)
            self._format_read_at = None
            self.format()
        moved = [
            self._bring_over(kind, image)
            for kind in BY_ROUTE
            for image in self._without_route(kind)
        ]
        return sum(moved)

    def old_documents(self) -> int:
        """The number of documents whose keys are of an earlier format than the newest."""
        return sum("version" in image for kind in BY_ROUTE for image in self._without_route(kind))

    def _without_route(self, kind: str) -> list[Image]:
        """Rows of a kind that should have the route in their key, and do not."""
        images = self._requests.query(self._table, **kind_query(kind))
        return [image for image in images if self._is_of_route(kind, _name_in(image))]

    def _is_of_route(self, kind: str, name: str) -> bool:
        """Whether the name begins with a route of the ledger."""
        route = _route_in(kind, name)
        if route is None:
            return False
        if route not in self._routes:
            self._routes = frozenset(self.read(LAYOUT))
        return route in self._routes

    def _bring_over(self, kind: str, image: Image) -> bool:
        """Give one document the key with its route. False: it does not count any more, and its row
        is deleted; or another process was first."""
        name = _name_in(image)
        old, new = _key_without_route(kind, name), _key_with_route(kind, name)
        while image:
            moves = "version" in image and self._image(new) is None
            unchanged = {"token": image["token"]} if "token" in image else {}
            condition = "#token = :token" if unchanged else "attribute_not_exists(#token)"
            delete = {
                "TableName": self._table,
                "Key": old,
                **expressions(unchanged, ConditionExpression=condition),
            }
            put = {
                "TableName": self._table,
                "Item": {**image, **new},
                **expressions(ConditionExpression="attribute_not_exists(#kind)"),
            }
            actions = [{"Delete": delete}, *([{"Put": put}] if moves else [])]
            with suppress(TransactionRefused):
                self._requests.call("dynamodb", "transact_write_items", TransactItems=actions)
                return moves
            image = self._image(old) or {}
        return False

    def _has_route(self, kind: str) -> bool:
        """Whether documents of this kind have the route in their key by now."""
        return kind in BY_ROUTE and (BY_ROUTE[kind] == 1 or BY_ROUTE[kind] <= self.format())

    def _key(self, kind: str, name: str) -> Image:
        with_route = (
            _may_have_route(kind, name)
            and self._has_route(kind)
            and (kind != ACT or self._is_of_route(kind, name))
        )
        return _key_with_route(kind, name) if with_route else _key_without_route(kind, name)

    # Documents ------------------------------------------------------------------------------------
    def read(self, kind: str, routes: Iterable[str] | None = None) -> dict[str, Document]:
        """All documents of a kind, by name. `routes`: of kinds with the route in their key, only
        those of these routes."""
        images = {
            image["name"]["S"]: image
            for image in self._requests.query(self._table, **kind_query(kind))
        }
        if kind in BY_ROUTE:
            for route in self.read(LAYOUT) if routes is None else routes:
                images |= {
                    image["name"]["S"]: image
                    for image in self._of_route(kind, route, strict=routes is not None)
                }
        return {
            _name_in(image): _document(image) for image in images.values() if "version" in image
        }

    def page_of_names(self, kind: str, prefix: str, after: str | None, limit: int) -> list[str]:
        """The names of a kind's documents that begin with `prefix`, in order, at most `limit`,
        those behind `after`."""
        first = prefix or FIRST if after is None else fitted_key(after, LONGEST_NAME) + FIRST
        images = self._requests.query(
            self._table,
            **kind_query(
                kind, " AND #name BETWEEN :first AND :last", first=first, last=prefix + LAST
            ),
        )
        return [
            _name_in(image)
            for image in islice((image for image in images if "version" in image), limit)
        ]

    def _of_route(self, kind: str, route: str, *, strict: bool) -> list[Image]:
        """The rows of one route; none where this process's role may not read them: the stack has no
        such route any more, or is older than this version. `strict`: it must be able to read them
        if the tables have the format by which pauses and rates have the route."""
        try:
            return list(self._requests.query(self._table, **kind_query(f"{kind}#{route}")))
        except LedgerReadOnly as error:
            if strict and BY_ROUTE[kind] > 1 and self._has_route(kind):
                raise
            self._leave_out(kind, route, error)
            return []

    def _leave_out(self, kind: str, route: str, error: LedgerReadOnly) -> None:
        if (kind, route) not in self._unreadable:
            log.warning(
                "documents %r of route %r are left out: %s; deploy the present stack",
                kind,
                route,
                error,
            )
            self._unreadable.add((kind, route))

    def read_one(self, kind: str, name: str) -> Document | None:
        """One document."""
        image = self._image_with_route(kind, name) if _may_have_route(kind, name) else None
        if image is None:
            image = self._image(_key_without_route(kind, name))
        return None if image is None or "version" not in image else _document(image)

    def _image_with_route(self, kind: str, name: str) -> Image | None:
        if (kind, _route_in(kind, name)) in self._unreadable and not self._has_route(kind):
            return None
        try:
            return self._image(_key_with_route(kind, name))
        except LedgerReadOnly as error:
            if self._has_route(kind):
                raise
            self._leave_out(kind, str(_route_in(kind, name)), error)
            return None

    def _image(self, key: Image) -> Image | None:
        found = self._requests.call(
            "dynamodb", "get_item", TableName=self._table, Key=key, ConsistentRead=True
        )
        image: Image | None = found.get("Item")
        return image

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it) if its version is `expect` (0: absent); False if it
        is not."""
        by_route = _may_have_route(kind, name)
        if by_route and not self._has_route(kind):
            return self._write_without_route(kind, name, value, expect)
        written = self._write(kind, name, value, expect, self._first_version())
        if not written and expect and by_route and self._is_old(kind, name, expect):
            return self._write(kind, name, value, 0, expect + 1)
        return written

    def _write_without_route(self, kind: str, name: str, value: Any, expect: int | None) -> bool:
        """Write a document as processes of an earlier version read it. If that fails, the format
        may have been raised just now."""
        try:
            written = self._write(kind, name, value, expect, self._first_version())
        except LedgerReadOnly as error:
            self._format_read_at = None
            if self._has_route(kind):
                return self.write(kind, name, value, expect)
            raise LedgerReadOnly(
                f"{error}; the tables have format {self._format}: run 'milepost upgrade', or deploy the stack with --tables-format {self._format}"
            ) from error
        if not written:
            self._format_read_at = None
        return written

    def _write(self, kind: str, name: str, value: Any, expect: int | None, first: int) -> bool:
        return (
            self._remove(kind, name, expect)
            if value is None
            else self._set(kind, name, value, expect, first)
        )

    def _is_old(self, kind: str, name: str, version: int) -> bool:
        """Whether the document exists without the route in its key alone, with this version."""
        if self._image(self._key(kind, name)) is not None:
            return False
        old = self._image(_key_without_route(kind, name))
        return old is not None and "version" in old and _document(old).version == version

    def put(self, kind: str, name: str, value: Any, expect: int) -> int | None:
        """Write one document and return its new version; None: its version was not `expect`."""
        first = self._first_version()
        return (
            (expect + 1 if expect else first)
            if self._set(kind, name, value, expect, first)
            else None
        )

    def put_with(
        self, kind: str, name: str, value: Any, expect: int, others: Sequence[dict[str, Any]]
    ) -> int | None:
        """Like `put`, in one transaction with the actions `others`, whose conditions always hold;
        None: nothing was written."""
        first = self._first_version()
        update, _ = _update(name, value, expect, first)
        action = {"Update": {"TableName": self._table, "Key": self._key(kind, name), **update}}
        try:
            self._requests.call("dynamodb", "transact_write_items", TransactItems=[action, *others])
        except TransactionRefused:
            return None
        return expect + 1 if expect else first

    def _set(self, kind: str, name: str, value: Any, expect: int | None, first: int) -> bool:
        """Write one document; `first` is the version of a new document."""
        update, token = _update(name, value, expect, first)
        refused = self._requests.conflict(
            "update_item", TableName=self._table, Key=self._key(kind, name), **update
        )
        return refused is None or refused.get("token") == {"S": token}

    def _remove(self, kind: str, name: str, expect: int | None) -> bool:
        key = self._key(kind, name)
        if (
            key != _key_without_route(kind, name)
            and self._image(_key_without_route(kind, name)) is not None
        ):
            return self._mark_removed(key, expect)
        if expect is None:
            self._requests.call("dynamodb", "delete_item", TableName=self._table, Key=key)
            return True
        if expect == 0:
            return self.read_one(kind, name) is None
        token = self._mark(key, expect)
        if token is None:
            return False
        # If the condition does not hold, the row is already deleted, or was written again by
        # another process.
        ours = expressions({"token": {"S": token}}, ConditionExpression="#token = :token")
        self._requests.write_if("delete_item", TableName=self._table, Key=key, **ours)
        return True

    def _mark_removed(self, key: Image, expect: int | None) -> bool:
        """Leave a row without a version, which hides the old document."""
        return self._mark(key, expect) is not None

    def _mark(self, key: Image, expect: int | None) -> str | None:
        """Make a document absent for all readers, and return the token of its remaining row; None:
        its version is not `expect`."""
        token = secrets.token_urlsafe(9)
        values: dict[str, Any] = {"token": {"S": token}}
        condition = (
            {}
            if expect is None
            else {
                "ConditionExpression": "#version = :expect"
                if expect
                else "attribute_not_exists(#version)"
            }
        )
        if expect:
            values["expect"] = {"N": str(expect)}
        update = expressions(
            values, UpdateExpression="SET #token = :token REMOVE #version, #value", **condition
        )
        refused = self._requests.conflict("update_item", TableName=self._table, Key=key, **update)
        if refused is not None and ("version" in refused or refused.get("token") != {"S": token}):
            return None
        return token


def _raised(tables: dict[str, int] | None) -> dict[str, int]:
    """The document of the tables' format, with the newest number at least."""
    number = 1 if tables is None else tables["number"]
    return {"number": max(number, KNOWN_FORMAT)}


def _update(name: str, value: Any, expect: int | None, first: int) -> tuple[dict[str, Any], str]:
    """Parameters of the write of one document, and its token; `first` is the version of a new
    document."""
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
    change = (
        "SET #value = :value, #token = :token, #version = if_not_exists(#version, :none) + :one"
    )
    if fitted_key(name, LONGEST_NAME) != name:
        # Then the complete name is in an attribute of its own.
        change += ", #named = :named"
        values["named"] = {"S": name}
    return expressions(values, UpdateExpression=change, ConditionExpression=condition), token


def kind_query(kind: str, further: str = "", **values: str) -> dict[str, Any]:
    """Parameters of a query of the control table: the rows of a kind, under a further condition on
    their names; read consistently."""
    return {**key_condition(f"#kind = :kind{further}", kind=kind, **values), "ConsistentRead": True}


def _route_in(kind: str, name: str) -> str | None:
    """The route with which a name begins; None: it names none."""
    route, separator, _ = name.partition(SEPARATORS.get(kind, "/"))
    return None if kind in SEPARATORS and not separator else route


def _may_have_route(kind: str, name: str) -> bool:
    return kind in BY_ROUTE and _route_in(kind, name) is not None


def _key_with_route(kind: str, name: str) -> Image:
    return _key_of(f"{kind}#{_route_in(kind, name)}", name)


def _key_without_route(kind: str, name: str) -> Image:
    return _key_of(kind, name)


def _key_of(partition: str, name: str) -> Image:
    return {"kind": {"S": partition}, "name": {"S": fitted_key(name, LONGEST_NAME)}}


def _name_in(image: Image) -> str:
    name: str = image.get("named", image["name"])["S"]
    return name


def _document(image: Image) -> Document:
    version = int(image["version"]["N"])
    try:
        return Document(msgspec.json.decode(image["value"]["S"]), version)
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        row = (
            f"the row kind={image['kind']['S']!r}, name={image['name']['S']!r} of the control table"
        )
        return Document(DamagedValue(f"{row} is damaged: {error!r}; {RESTORE}"), version)
