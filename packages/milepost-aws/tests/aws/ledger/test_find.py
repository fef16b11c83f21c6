"""Finding rows: those that share the first part of their key with one query, and pages in the order
of acceptance."""

from __future__ import annotations

from typing import Any

import pytest
from tests.postingest.aws_scene import ASSET, OTHER, opener

from milepost.core.decide import accept
from milepost.core.errors import UsageError
from milepost.core.item import digest_of
from milepost.ports.items import NewItem, Query


def test_all_batches_of_an_asset_stand_together(endpoint: str, prefix: str) -> None:
    with opener(endpoint, prefix) as open_at:
        scene = open_at()
        now = scene.clock.now()
        for key in (f"{ASSET}#one", f"{ASSET}#on%23e", f"{ASSET}#two", f"{OTHER}#one"):
            change = accept(
                scene.plan, key, {"n": 1}, now, correlation_id=key, digest=digest_of({"n": 1})
            )
            scene.ledger.add(scene.plan, [NewItem(change, {"n": 1})], now)
        asked: list[str] = []
        with scene.before_each_call(lambda operation, params: asked.append(operation)):
            together = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#"))
            some = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#on"))
            odd = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#on%23"))
        assert {item.key for item in together.items} == {
            f"{ASSET}#one",
            f"{ASSET}#on%23e",
            f"{ASSET}#two",
        }
        assert {item.key for item in some.items} == {f"{ASSET}#one", f"{ASSET}#on%23e"}
        assert {item.key for item in odd.items} == {f"{ASSET}#on%23e"}
        assert asked == ["query"] * 3
        assert scene.ledger.cost_of(Query(route=scene.route, prefix=f"{ASSET}#")) is None
        assert scene.ledger.cost_of(Query(route=scene.route, prefix=ASSET)) is not None


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_rows_that_come_between_two_pages_end_no_list(
    endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    monkeypatch.setattr("milepost_aws.ledger.find.MOST_ORDERED", 4)
    with opener(endpoint, prefix) as open_at:
        scene = open_at()

        def add(*numbers: int) -> None:
            for number in numbers:
                key, now = f"{ASSET}#{number:03}", scene.clock.now()
                change = accept(
                    scene.plan, key, {"n": 1}, now, correlation_id=key, digest=digest_of({"n": 1})
                )
                scene.ledger.add(scene.plan, [NewItem(change, {"n": 1})], now)
                scene.clock.advance("1s")

        add(1, 2, 3, 4)
        query = Query(route=scene.route, order=order, limit=2)
        page = scene.ledger.find(query)
        assert page.ordered
        add(*range(5, 60))
        found = [item.key for item in page.items]
        if order == "oldest":
            with pytest.raises(UsageError, match="repeat the search"):
                scene.ledger.find(Query(route=scene.route, order=order, limit=2, after=page.next))
            return
        while page.next is not None:
            page = scene.ledger.find(
                Query(route=scene.route, order=order, limit=2, after=page.next)
            )
            found += [item.key for item in page.items]
        assert found == [f"{ASSET}#{number:03}" for number in (4, 3, 2, 1)]
