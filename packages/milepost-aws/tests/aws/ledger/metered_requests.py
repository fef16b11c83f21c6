"""Requests that add up the capacity that DynamoDB says they have consumed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from milepost_aws.ledger.requests.client import Requests, RetryBudget

WRITES = {"put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items"}
METERED = {*WRITES, "get_item", "query", "scan", "batch_get_item", "transact_get_items"}


class MeteredRequests(Requests):
    """With `measure`, `units` has DynamoDB's consumed capacity by (table, "read" | "write"); an
    index's share is under "table/index"."""

    def __init__(self, region: str, endpoint: str, **options: Any) -> None:
        super().__init__(region, endpoint, **options)
        self.measure = False
        self.units: Counter[tuple[str, str]] = Counter()

    def attempt(
        self, budget: RetryBudget, service: str, operation: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        if operation in METERED and self.measure:
            params = {"ReturnConsumedCapacity": "INDEXES", **params}
        answer = super().attempt(budget, service, operation, params)
        if "ConsumedCapacity" in answer:
            self._meter(operation, answer["ConsumedCapacity"])
        return answer

    def _meter(self, operation: str, consumed: Any) -> None:
        kind = "write" if operation in WRITES else "read"
        with self._lock:
            for usage in consumed if isinstance(consumed, list) else [consumed]:
                table = usage.get("TableName", "")
                indexes = {
                    **usage.get("GlobalSecondaryIndexes", {}),
                    **usage.get("LocalSecondaryIndexes", {}),
                }
                for index, part in indexes.items():
                    self.units[f"{table}/{index}", kind] += part["CapacityUnits"]
                # The total includes the indexes.
                self.units[table, kind] += usage.get("CapacityUnits", 0) - sum(
                    part["CapacityUnits"] for part in indexes.values()
                )
