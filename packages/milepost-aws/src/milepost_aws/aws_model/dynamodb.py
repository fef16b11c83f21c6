"""Operations of DynamoDB on tables in memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from milepost_aws.aws_model import expressions
from milepost_aws.aws_model.errors import AwsError, invalid, missing_table
from milepost_aws.aws_model.expressions import Parsed, Path, Scope
from milepost_aws.aws_model.stream import StreamModel
from milepost_aws.aws_model.table import Index, Key, Partition, StoredRow, Table
from milepost_aws.aws_model.values import LARGEST_ROW, Image, copy, normal_image, size, sort_key

PAGE_BYTES = 1 << 20
BATCH_GET, BATCH_WRITE, TRANSACTION = 100, 25, 100
BATCH_GET_BYTES = 16 << 20
TOKEN_LIFE_S = 600
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


class Write(NamedTuple):
    """A write whose conditions all hold."""

    table: Table
    key: Key
    before: StoredRow | None
    after: Image | None
    size: int
    named: list[str] | None
    """The attributes that an update names; None: it is no update."""


class DynamoDb:
    """DynamoDB with all its tables. Not thread-safe: the model runs one call at a time."""

    def __init__(
        self, region: str, account: str, clock: Callable[[], float], numbers: Iterator[int]
    ) -> None:
        self.tables: dict[str, Table] = {}
        self._region, self._account, self._clock, self._numbers = region, account, clock, numbers
        self._tokens: dict[str, tuple[float, bytes]] = {}

    def table(self, name: Any) -> Table:
        found = self.tables.get(str(name).rpartition("/")[2])
        if found is None:
            raise missing_table(str(name))
        return found

    def streams(self) -> list[StreamModel]:
        return [table.stream for table in self.tables.values() if table.stream is not None]

    # Tables ---------------------------------------------------------------------------------------
    def create_table(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["TableName"]
        if name in self.tables:
            raise AwsError("ResourceInUseException", f"Table already exists: {name}")
        if not _TABLE_NAME.fullmatch(name):
            raise invalid(
                "TableName must be 3 to 255 letters, digits, hyphens, underscores and dots"
            )
        kinds = {
            one["AttributeName"]: one["AttributeType"] for one in params["AttributeDefinitions"]
        }
        indexes = params.get("GlobalSecondaryIndexes", ())
        used = {
            one["AttributeName"] for schema in (params, *indexes) for one in schema["KeySchema"]
        }
        if used != set(kinds):
            raise invalid(
                "One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of"
                " attributes defined in AttributeDefinitions"
            )
        table = Table(name, _schema(params["KeySchema"]), kinds, self._clock)
        table.options = {"BillingMode": params.get("BillingMode", "PROVISIONED")}
        for index in indexes:
            table.add_index(
                Index(
                    index["IndexName"], _schema(index["KeySchema"]), index["Projection"], table.key
                )
            )
        self.tables[name] = table
        self._stream(table, params.get("StreamSpecification"))
        return {"TableDescription": self._described(table)}

    def update_table(self, params: dict[str, Any]) -> dict[str, Any]:
        table = self.table(params["TableName"])
        table.kinds |= {
            one["AttributeName"]: one["AttributeType"]
            for one in params.get("AttributeDefinitions", ())
        }
        for change in params.get("GlobalSecondaryIndexUpdates", ()):
            if "Create" in change:
                index = change["Create"]
                table.add_index(
                    Index(
                        index["IndexName"],
                        _schema(index["KeySchema"]),
                        index["Projection"],
                        table.key,
                    )
                )
            if "Delete" in change:
                table.index(change["Delete"]["IndexName"])
                del table.indexes[change["Delete"]["IndexName"]]
        self._stream(table, params.get("StreamSpecification"))
        return {"TableDescription": self._described(table)}

    def _stream(self, table: Table, wanted: dict[str, Any] | None) -> None:
        if wanted is None:
            return
        if not wanted["StreamEnabled"]:
            if table.stream is not None:
                table.stream.enabled = False
            return
        if table.stream is not None and table.stream.enabled:
            raise invalid(f"Table already has an enabled stream: TableName: {table.name}")
        at = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S")
        label = f"{at}.{next(self._numbers) % 1000:03d}"
        arn = f"{self._arn(table)}/stream/{label}"
        table.stream = StreamModel(
            table.name,
            arn,
            label,
            wanted["StreamViewType"],
            self._region,
            self._clock,
            self._numbers,
        )

    def describe_table(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"Table": self._described(self.table(params["TableName"]))}

    def delete_table(self, params: dict[str, Any]) -> dict[str, Any]:
        table = self.table(params["TableName"])
        del self.tables[table.name]
        return {"TableDescription": {**self._described(table), "TableStatus": "DELETING"}}

    def list_tables(self, params: dict[str, Any]) -> dict[str, Any]:
        names = sorted(self.tables)
        start = params.get("ExclusiveStartTableName")
        names = [name for name in names if start is None or name > start]
        limit = params.get("Limit", 100)
        more = {"LastEvaluatedTableName": names[limit - 1]} if len(names) > limit else {}
        return {"TableNames": names[:limit], **more}

    def update_time_to_live(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = params["TimeToLiveSpecification"]
        self.table(params["TableName"]).ttl = wanted["AttributeName"] if wanted["Enabled"] else None
        return {"TimeToLiveSpecification": dict(wanted)}

    def describe_time_to_live(self, params: dict[str, Any]) -> dict[str, Any]:
        ttl = self.table(params["TableName"]).ttl
        described = (
            {"TimeToLiveStatus": "DISABLED"}
            if ttl is None
            else {"TimeToLiveStatus": "ENABLED", "AttributeName": ttl}
        )
        return {"TimeToLiveDescription": described}

    def _arn(self, table: Table) -> str:
        return f"arn:aws:dynamodb:{self._region}:{self._account}:table/{table.name}"

    def _described(self, table: Table) -> dict[str, Any]:
        described: dict[str, Any] = {
            "TableName": table.name,
            "TableArn": self._arn(table),
            "TableStatus": "ACTIVE",
            "CreationDateTime": datetime.fromtimestamp(table.created_at, UTC),
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in table.kinds.items()
            ],
            "KeySchema": _shown_schema(table.key),
            "ItemCount": len(table.rows),
            "TableSizeBytes": sum(row.size for row in table.rows.values()),
            "BillingModeSummary": {"BillingMode": table.options.get("BillingMode", "PROVISIONED")},
        }
        if table.indexes:
            described["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": index.name,
                    "IndexArn": f"{self._arn(table)}/index/{index.name}",
                    "IndexStatus": "ACTIVE",
                    "KeySchema": _shown_schema(index.key),
                    "Projection": dict(index.projection),
                    "ItemCount": len(index.rows),
                }
                for index in table.indexes.values()
            ]
        if table.stream is not None:
            described |= {
                "LatestStreamArn": table.stream.arn,
                "LatestStreamLabel": table.stream.label,
            }
            if table.stream.enabled:
                described["StreamSpecification"] = {
                    "StreamEnabled": True,
                    "StreamViewType": table.stream.view,
                }
        return described

    # Single rows ----------------------------------------------------------------------------------
    def get_item(self, params: dict[str, Any]) -> dict[str, Any]:
        table = self.table(params["TableName"])
        key = table.exact_key(normal_image(params["Key"]))
        paths = _projection(params)
        row = table.rows.get(key)
        answer: dict[str, Any] = {} if row is None else {"Item": _shown(row.image, paths)}
        used = _read_units(row.size if row else 0, bool(params.get("ConsistentRead")))
        return answer | _consumed(params, {table.name: (used, {})})

    def put_item(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._single("Put", params)

    def update_item(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._single("Update", params)

    def delete_item(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._single("Delete", params)

    def _single(self, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        write = self._planned(verb, params)
        answer = _returned(params.get("ReturnValues", "NONE"), verb, write)
        used = _write_units(params, [write])
        self._carry_out(write)
        return answer | _consumed(params, used)

    def _planned(self, verb: str, params: dict[str, Any]) -> Write:
        """The write, if its condition holds. Raises ConditionalCheckFailedException, with the row
        if that was requested."""
        table = self.table(params["TableName"])
        put = normal_image(params["Item"]) if verb == "Put" else {}
        key = table.key_of(put) if verb == "Put" else table.exact_key(normal_image(params["Key"]))
        parsed: list[Parsed] = []
        condition = update = None
        if params.get("ConditionExpression") is not None:
            condition = expressions.condition(params["ConditionExpression"])
            parsed.append(condition)
        if verb == "Update" and params.get("UpdateExpression") is not None:
            update = expressions.update(params["UpdateExpression"])
            parsed.append(update)
        scope = _scope(params, parsed)
        before = table.rows.get(key)
        if condition is not None and not condition.test(before.image if before else {}, scope):
            asked = (
                params.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
                and before is not None
            )
            more = {"Item": copy(before.image)} if asked and before is not None else {}
            raise AwsError(
                "ConditionalCheckFailedException", "The conditional request failed", **more
            )
        named: list[str] | None = None
        after: Image | None = put
        if verb in ("Delete", "ConditionCheck"):
            after = None
        elif verb == "Update":
            base = before.image if before else normal_image(params["Key"])
            after, named = (
                expressions.apply(base, update, scope, table.key) if update else (base, [])
            )
        length = 0
        if after is not None:
            table.check_index_keys(after)
            length = size(after)
            if length > LARGEST_ROW:
                raise invalid(
                    "Item size to update has exceeded the maximum allowed size"
                    if verb == "Update"
                    else "Item size has exceeded the maximum allowed size"
                )
        return Write(table, key, before, after, length, named)

    @staticmethod
    def _carry_out(write: Write) -> None:
        write.table.write(write.key, write.after, write.size)

    # Transactions ---------------------------------------------------------------------------------
    def transact_write_items(self, params: dict[str, Any]) -> dict[str, Any]:
        actions = [next(iter(one.items())) for one in params["TransactItems"]]
        if not 0 < len(actions) <= TRANSACTION:
            raise invalid(
                "1 validation error detected: Value at 'transactItems' failed to satisfy constraint:"
                f" Member must have length less than or equal to {TRANSACTION}"
            )
        token = params.get("ClientRequestToken")
        content = sha256(repr(params["TransactItems"]).encode("utf-8", "surrogatepass")).digest()
        if (
            token is not None
            and (known := self._tokens.get(token)) is not None
            and known[0] + TOKEN_LIFE_S > self._clock()
        ):
            if known[1] != content:
                raise AwsError(
                    "IdempotentParameterMismatchException",
                    "The token was used with other parameters",
                )
            return {}
        places = [
            (
                action["TableName"],
                self.table(action["TableName"]).key_of(
                    normal_image(action.get("Item") or action["Key"])
                ),
            )
            for _, action in actions
        ]
        if len(set(places)) != len(places):
            raise invalid("Transaction request cannot include multiple operations on one item")
        writes: list[Write] = []
        checked: list[Write] = []
        reasons: list[dict[str, Any]] = []
        for verb, action in actions:
            try:
                write = self._planned(verb, action)
            except AwsError as error:
                if error.code not in ("ConditionalCheckFailedException", "ValidationException"):
                    raise
                code = (
                    "ValidationError"
                    if error.code == "ValidationException"
                    else "ConditionalCheckFailed"
                )
                reasons.append({"Code": code, "Message": error.message, **error.more})
            else:
                reasons.append({"Code": "None"})
                (checked if verb == "ConditionCheck" else writes).append(write)
        codes = [reason["Code"] for reason in reasons]
        if any(code != "None" for code in codes):
            message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(codes)}]"
            raise AwsError("TransactionCanceledException", message, CancellationReasons=reasons)
        used = _write_units(params, [*writes, *checked], factor=2)
        for write in writes:
            self._carry_out(write)
        if token is not None:
            self._tokens[token] = (self._clock(), content)
        return _consumed(params, used, several=True)

    def transact_get_items(self, params: dict[str, Any]) -> dict[str, Any]:
        answers = []
        used: dict[str, tuple[float, dict[str, float]]] = {}
        for one in params["TransactItems"]:
            get = one["Get"]
            table = self.table(get["TableName"])
            row = table.rows.get(table.exact_key(normal_image(get["Key"])))
            paths = _projection(get)
            answers.append({} if row is None else {"Item": _shown(row.image, paths)})
            _add_units(used, table.name, 2 * _read_units(row.size if row else 0, True), {})
        return {"Responses": answers} | _consumed(params, used, several=True)

    # Batches --------------------------------------------------------------------------------------
    def batch_get_item(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = params["RequestItems"]
        if sum(len(wanted["Keys"]) for wanted in asked.values()) > BATCH_GET:
            raise invalid("Too many items requested for the BatchGetItem call")
        used: dict[str, tuple[float, dict[str, float]]] = {}
        found: dict[str, list[Image]] = {}
        left: dict[str, Any] = {}
        total = 0
        for name, wanted in asked.items():
            table = self.table(name)
            paths = _projection(wanted)
            keys = [(key, table.exact_key(normal_image(key))) for key in wanted["Keys"]]
            if len({place for _, place in keys}) != len(keys):
                raise invalid("Provided list of item keys contains duplicates")
            found[name] = []
            for key, place in keys:
                row = table.rows.get(place)
                total += row.size if row else 0
                if total > BATCH_GET_BYTES:
                    left.setdefault(name, {**wanted, "Keys": []})["Keys"].append(key)
                    continue
                _add_units(
                    used,
                    table.name,
                    _read_units(row.size if row else 0, bool(wanted.get("ConsistentRead"))),
                    {},
                )
                if row is not None:
                    found[name].append(_shown(row.image, paths))
        return {"Responses": found, "UnprocessedKeys": left} | _consumed(params, used, several=True)

    def batch_write_item(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = params["RequestItems"]
        if not 0 < sum(map(len, asked.values())) <= BATCH_WRITE:
            raise invalid("Too many items requested for the BatchWriteItem call")
        writes: list[Write] = []
        for name, wanted in asked.items():
            seen: set[Key] = set()
            for one in wanted:
                put = one.get("PutRequest")
                write = self._planned(
                    "Put" if put else "Delete", {"TableName": name, **(put or one["DeleteRequest"])}
                )
                if write.key in seen:
                    raise invalid("Provided list of item keys contains duplicates")
                seen.add(write.key)
                writes.append(write)
        used = _write_units(params, writes)
        for write in writes:
            self._carry_out(write)
        return {"UnprocessedItems": {}} | _consumed(params, used, several=True)

    # Queries and scans ----------------------------------------------------------------------------
    def query(self, params: dict[str, Any]) -> dict[str, Any]:
        table, index, key = self._source(params)
        condition = expressions.condition(
            params["KeyConditionExpression"], "KeyConditionExpression"
        )
        reader = _Reader(table, index, params, [condition])
        scope = reader.scope
        hashes = [
            scope.values[one.values[0]]
            for one in condition.comparisons or ()
            if scope.path(one.path) == (key[0],) and one.operator == "="
        ]
        named = [str(scope.path(one.path)[0]) for one in condition.comparisons or ()]
        if len(hashes) != 1:
            raise invalid(f"Query condition missed key schema element: {key[0]}")
        if set(named) - set(key) or len(set(named)) != len(named):
            raise invalid("Query key condition not supported")
        for one in condition.comparisons or ():
            name = str(scope.path(one.path)[0])
            if any(table.kinds[name] not in scope.values[value] for value in one.values):
                raise invalid(
                    "One or more parameter values were invalid: Condition parameter type does not match schema type"
                )
            if any(
                content in ("", b"")
                for value in one.values
                for content in scope.values[value].values()
            ):
                raise invalid(
                    "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty"
                    f" {'string' if table.kinds[name] == 'S' else 'binary'} value. Key: {name}"
                )
        where = sort_key(hashes[0])
        partition = (index or table).partitions.get(where) or Partition()
        start = reader.start()
        forward = params.get("ScanIndexForward", True)
        for place in partition.after(start[1] if start else None, forward):
            row_key = place[len(index.key) - 1 :] if index else (where, *place)
            row = (index or table).rows[row_key]
            if condition.test(row.image, scope) and not reader.take(row):
                break
        return reader.answer()

    def scan(self, params: dict[str, Any]) -> dict[str, Any]:
        table, index, _ = self._source(params)
        reader = _Reader(table, index, params, [])
        segments, segment = params.get("TotalSegments", 1), params.get("Segment", 0)
        if not 0 <= segment < segments:
            raise invalid(
                "The Segment parameter is zero-based and must be less than parameter TotalSegments"
            )
        start = reader.start()
        order = sorted((table.scan_order(place), place) for place in (index or table).partitions)
        first = (table.scan_order(start[0]), start[0]) if start else None
        for digest, where in order:
            if int(digest[:8], 16) % segments != segment or (
                first is not None and (digest, where) < first
            ):
                continue
            partition = (index or table).partitions[where]
            for place in partition.after(
                start[1] if start and (digest, where) == first else None, True
            ):
                row_key = place[len(index.key) - 1 :] if index else (where, *place)
                if not reader.take((index or table).rows[row_key]):
                    return reader.answer()
        return reader.answer()

    def _source(self, params: dict[str, Any]) -> tuple[Table, Index | None, tuple[str, ...]]:
        table = self.table(params["TableName"])
        name = params.get("IndexName")
        if name is None:
            return table, None, table.key
        index = table.index(name)
        if params.get("ConsistentRead"):
            raise invalid("Consistent reads are not supported on global secondary indexes")
        return table, index, index.key


class _Reader:
    """One page of a query or scan."""

    def __init__(
        self, table: Table, index: Index | None, params: dict[str, Any], parsed: list[Parsed]
    ) -> None:
        self._table, self._index, self._params = table, index, params
        self._limit = params.get("Limit")
        if self._limit is not None and self._limit < 1:
            raise invalid("Limit must be greater than or equal to 1")
        self._filter = (
            expressions.condition(params["FilterExpression"], "FilterExpression")
            if "FilterExpression" in params
            else None
        )
        projected = (
            expressions.projection(params["ProjectionExpression"])
            if "ProjectionExpression" in params
            else None
        )
        self.scope = _scope(
            params, [*parsed, *(one for one in (self._filter, projected) if one is not None)]
        )
        self._paths = (
            None if projected is None else [self.scope.path(path) for path in projected.paths]
        )
        self._items: list[Image] = []
        self._count = self._scanned = self._bytes = 0
        self._last: Image | None = None

    def start(self) -> tuple[Any, Key] | None:
        """The partition and place after which the page begins."""
        if "ExclusiveStartKey" not in self._params:
            return None
        image = normal_image(self._params["ExclusiveStartKey"])
        wanted = {*self._table.key, *(self._index.key if self._index else ())}
        if set(image) != wanted:
            raise invalid("The provided starting key is invalid")
        key = self._table.key_of(image)
        if self._index is not None:
            return self._index.place(image, key)
        return key[0], key[1:]

    def take(self, row: StoredRow) -> bool:
        """Read one more row; False: the page is full."""
        self._scanned += 1
        self._bytes += row.size
        if self._filter is None or self._filter.test(row.image, self.scope):
            self._count += 1
            if self._params.get("Select") != "COUNT":
                self._items.append(_shown(row.image, self._paths))
        if self._scanned == self._limit or self._bytes >= PAGE_BYTES:
            names = {*self._table.key, *(self._index.key if self._index else ())}
            self._last = {name: row.image[name] for name in names}
            return False
        return True

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"Count": self._count, "ScannedCount": self._scanned}
        if self._params.get("Select") != "COUNT":
            answer["Items"] = self._items
        if self._last is not None:
            answer["LastEvaluatedKey"] = copy(self._last)
        used = _read_units(self._bytes, bool(self._params.get("ConsistentRead")))
        indexes = {self._index.name: used} if self._index else {}
        return answer | _consumed(
            self._params, {self._table.name: (0.0 if self._index else used, indexes)}
        )


# Parameters and answers ---------------------------------------------------------------------------
def _schema(schema: Iterable[dict[str, str]]) -> tuple[str, ...]:
    return tuple(
        one["AttributeName"] for one in sorted(schema, key=lambda one: one["KeyType"] != "HASH")
    )


def _shown_schema(key: tuple[str, ...]) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(key, ("HASH", "RANGE"), strict=False)
    ]


def _scope(params: dict[str, Any], parsed: list[Parsed]) -> Scope:
    names, values = params.get("ExpressionAttributeNames"), params.get("ExpressionAttributeValues")
    if not parsed and (names or values):
        kind = "Names" if names else "Values"
        raise invalid(f"ExpressionAttribute{kind} can only be specified when using expressions")
    scope = Scope(names, values)
    scope.check(parsed)
    return scope


def _projection(params: dict[str, Any]) -> list[Path] | None:
    if "ProjectionExpression" not in params:
        return None
    projected = expressions.projection(params["ProjectionExpression"])
    scope = _scope(params, [projected])
    return [scope.path(path) for path in projected.paths]


def _shown(image: Image, paths: list[Path] | None) -> Image:
    shown: Image = copy(image if paths is None else expressions.project(image, paths))
    return shown


def _returned(wanted: str, verb: str, write: Write) -> dict[str, Any]:
    before, after = write.before.image if write.before else None, write.after
    if wanted == "ALL_OLD" and before is not None:
        return {"Attributes": copy(before)}
    if verb != "Update" or wanted in ("NONE", "ALL_OLD"):
        return {}
    image = (after if wanted.endswith("NEW") else before) or {}
    if wanted.startswith("UPDATED"):
        image = {name: value for name, value in image.items() if name in (write.named or ())}
    return {"Attributes": copy(image)} if image else {}


# Capacity -----------------------------------------------------------------------------------------
Units = dict[str, tuple[float, dict[str, float]]]
"""By table: the units charged for the table itself, and for each of its indexes."""


def _read_units(length: int, consistent: bool) -> float:
    return max(1, math.ceil(length / 4096)) * (1.0 if consistent else 0.5)


def _add_units(used: Units, table: str, units: float, indexes: dict[str, float]) -> None:
    before, shares = used.get(table, (0.0, {}))
    used[table] = (
        before + units,
        {name: shares.get(name, 0.0) + indexes.get(name, 0.0) for name in {**shares, **indexes}},
    )


def _write_units(params: dict[str, Any], writes: list[Write], factor: int = 1) -> Units:
    used: Units = {}
    if params.get("ReturnConsumedCapacity", "NONE") == "NONE":
        return used
    for write in writes:
        longest = max(write.size, write.before.size if write.before else 0)
        indexes = {}
        for index in write.table.indexes.values():
            units = factor * _index_units(index, write)
            if units:
                indexes[index.name] = units
        _add_units(used, write.table.name, factor * max(1, math.ceil(longest / 1024)), indexes)
    return used


def _index_units(index: Index, write: Write) -> float:
    """Units that a write is charged for an index: each entry that is put, removed or changed in
    place is one write of the entry."""
    before = write.before.image if write.before else {}
    after = write.after or {}
    old, new = (index.place(image, write.key) if image else None for image in (before, after))
    shown = [index.shown(image) for image in (before, after)]
    lengths = [max(1, math.ceil(size(image) / 1024)) for image in shown]
    if old is not None and old == new:
        return 0.0 if shown[0] == shown[1] else float(max(lengths))
    return float((lengths[0] if old is not None else 0) + (lengths[1] if new is not None else 0))


def _consumed(params: dict[str, Any], used: Units, *, several: bool = False) -> dict[str, Any]:
    wanted = params.get("ReturnConsumedCapacity", "NONE")
    if wanted == "NONE":
        return {}
    found = []
    for table, (units, indexes) in used.items():
        charged: dict[str, Any] = {
            "TableName": table,
            "CapacityUnits": units + sum(indexes.values()),
        }
        if wanted == "INDEXES":
            charged["Table"] = {"CapacityUnits": units}
            if indexes:
                charged["GlobalSecondaryIndexes"] = {
                    name: {"CapacityUnits": share} for name, share in indexes.items()
                }
        found.append(charged)
    return {"ConsumedCapacity": found if several else found[0]}
