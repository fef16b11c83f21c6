"""Counting requests where boto3 makes them: who made which, about which table, and what DynamoDB
says that it cost."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Any

from botocore import xform_name

from milepost_aws.ledger.names import ResourceNames

_KINDS = {
    "journal": "journal",
    "counted": "counters",
    "shard": "checkpoints",
    "poller": "checkpoints",
    "gap": "checkpoints",
    "cursor": "cursors",
    "key": "keys",
}
_WRITES = {"put_item", "update_item", "delete_item", "batch_write_item"}
_READS = {"get_item", "batch_get_item", "query", "scan"}


class Call:
    """One request, as it can be made again; `span` is what was being done when it was made."""

    __slots__ = ("operation", "params", "service", "span", "what")

    def __init__(
        self, service: str, operation: str, params: dict[str, Any], what: str, span: str
    ) -> None:
        self.service, self.operation, self.params, self.what, self.span = (
            service,
            operation,
            params,
            what,
            span,
        )


class Meter:
    """Watches clients. `calls` are counted by (who, what, operation), `keys` (of batch reads) by
    (who, what), `units` by (who, what, "read" | "write"); `what` is "rows", "due" (their index),
    "history", "seen", or what a control document is for."""

    def __init__(self, names: ResourceNames, route: str, *, keep: bool = False) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.keys: Counter[tuple[str, str]] = Counter()
        self.units: Counter[tuple[str, str, str]] = Counter()
        self.refused = 0
        self.kept: list[Call] = []
        self.span = ""
        """What is being done: kept calls are marked with it."""
        self._tables = {
            names.rows(route): "rows",
            names.history: "history",
            names.seen: "seen",
            names.control: "control",
        }
        self._keep = keep
        self._lock = Lock()

    def watch(self, client: Any, who: str) -> Any:
        service = client.meta.service_model.service_name

        def before(
            params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any
        ) -> dict[str, Any]:
            operation = xform_name(model.name)
            what, keys = self._about(params)
            call = Call(service, operation, params, what, self.span)
            context["metered"] = call
            with self._lock:
                self.calls[who, what, operation] += 1
                if keys:
                    self.keys[who, what] += keys
                if self._keep:
                    self.kept.append(call)
            if service == "dynamodb" and operation in _WRITES | _READS:
                return {**params, "ReturnConsumedCapacity": "INDEXES"}
            return params

        def after(
            http_response: Any, parsed: dict[str, Any], context: dict[str, Any], **_: Any
        ) -> None:
            call: Call = context["metered"]
            with self._lock:
                self.refused += http_response.status_code >= 400
                if call.operation == "receive_message" and not parsed.get("Messages"):
                    # How often an empty queue is asked says nothing about an item.
                    self.calls[who, call.what, call.operation] -= 1
                self._charge(who, call, parsed.get("ConsumedCapacity"))

        client.meta.events.register(f"provide-client-params.{service}", before)
        client.meta.events.register(f"after-call.{service}", after)
        return client

    def total(self, *what: str, who: str | None = None, kind: str = "write") -> float:
        """Units, of all or of one."""
        return sum(
            n
            for (one, about, which), n in self.units.items()
            if about in what and which == kind and who in (None, one)
        )

    def made(self, *what: str, who: str | None = None, operations: set[str] | None = None) -> int:
        """Requests, of all or of one, of these operations or of all that write."""
        wanted = operations or _WRITES
        return sum(
            n
            for (one, about, operation), n in self.calls.items()
            if about in what and operation in wanted and who in (None, one)
        )

    def by(self, who: str) -> int:
        """All requests of one."""
        return sum(n for (one, _, _), n in self.calls.items() if one == who)

    def _about(self, params: dict[str, Any]) -> tuple[str, int]:
        if "RequestItems" in params:
            ((table, wanted),) = params["RequestItems"].items()
            return self._tables.get(table, table), len(wanted["Keys"]) if isinstance(
                wanted, dict
            ) else 0
        table = self._tables.get(params.get("TableName", ""), "")
        if table != "control":
            return table, 0
        asked = {"kind": params.get("ExpressionAttributeValues", {}).get(":kind", {})}
        kind = (params.get("Key") or params.get("Item") or asked).get("kind", {}).get("S", "")
        return _KINDS.get(
            kind, "counters" if kind.startswith(("count#", "group#")) else "control"
        ), 0

    def _charge(self, who: str, call: Call, consumed: Any) -> None:
        kind = "write" if call.operation in _WRITES else "read"
        for told in consumed if isinstance(consumed, list) else [consumed] if consumed else []:
            indexes = {
                **told.get("GlobalSecondaryIndexes", {}),
                **told.get("LocalSecondaryIndexes", {}),
            }
            for index, part in indexes.items():
                self.units[who, index, kind] += part["CapacityUnits"]
            self.units[who, call.what, kind] += told.get("CapacityUnits", 0) - sum(
                part["CapacityUnits"] for part in indexes.values()
            )
