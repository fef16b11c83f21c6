"""Foreign rows and quarantine of the AWS ledger for operators (see `ports.foreign_rows`)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from milepost.core.routes.plan import Plan
from milepost.ledgers.aws.foreign_rows.aside import put_aside
from milepost.ledgers.aws.quarantine import quarantine
from milepost.ledgers.aws.quarantine.strays import PAGE, adopt_at, stray_of
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.item_rows import is_ours
from milepost.ports.foreign_rows import Adopted, QuarantineEntry, Stray, Strays


class Outsiders:
    """Foreign rows and quarantine of one deployment."""

    def __init__(self, store: AwsStore) -> None:
        self._store = store

    def strays(self, plan: Plan, after: Any = None) -> Strays:
        layout = self._store.know(plan)
        more = {} if after is None else {"ExclusiveStartKey": after}
        answer = self._store.requests.call(
            "dynamodb",
            "scan",
            TableName=layout.table,
            Limit=PAGE,
            ConsistentRead=True,
            FilterExpression="attribute_not_exists(#version)",
            ExpressionAttributeNames={"#version": "version"},
            **more,
        )
        found = [stray_of(self._store, layout, plan, image) for image in answer["Items"]]
        return Strays(int(answer.get("ScannedCount", len(found))), found, answer.get("LastEvaluatedKey"))

    def stray(self, plan: Plan, keys: Sequence[str]) -> list[Stray | None]:
        layout = self._store.know(plan)
        images = self._store.images(plan.name, keys)
        there = {key: stray_of(self._store, layout, plan, image) for key, image in images.items() if not is_ours(image)}
        return [there.get(key) for key in keys]

    def adopt(self, plan: Plan, keys: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
        layout = self._store.know(plan)
        images = self._store.images(plan.name, keys)

        def one(key: str) -> Adopted:
            image = images.get(key)
            if image is None:
                return Adopted(key, False, why="there is no row with this key")
            if is_ours(image):
                return Adopted(key, False, image["queue"]["S"], "it was already adopted")
            return adopt_at(self._store, layout, plan, image, now, by=by, why=why)

        return self._store.requests.each([partial(one, key) for key in keys])

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        for route, key in refs:
            layout, image = self._store.layout(route), self._store.images(route, [key]).get(key)
            if layout is not None and image is not None:
                put_aside(self._store, layout, image, reason, now)

    def set_aside(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        return quarantine.look(self._store, most)

    def replay(self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
        return quarantine.replay(self._store, plans, lambda: random.uniform(-1, 1), ids, now, by=by, why=why)

    def drop(self, ids: Sequence[str]) -> list[str]:
        return quarantine.drop(self._store, ids)
