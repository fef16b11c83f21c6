"""Finding the rows that share the first part of their key: one query, no scan."""

from __future__ import annotations

from tests.applications.postingest.aws_scene import ASSET, OTHER, opener

from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.ports.items import NewItem, Query


def test_all_batches_of_an_asset_stand_together(endpoint: str, prefix: str) -> None:
    with opener(endpoint, prefix) as open_at:
        scene = open_at()
        now = scene.clock.now()
        for key in (f"{ASSET}#one", f"{ASSET}#on%23e", f"{ASSET}#two", f"{OTHER}#one"):
            change = accept(scene.plan, key, {"n": 1}, now, correlation_id=key, digest=digest_of({"n": 1}))
            scene.ledger.add(scene.plan, [NewItem(change, {"n": 1})], now)
        asked: list[str] = []
        with scene.before_each_call(lambda operation, params: asked.append(operation)):
            together = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#"))
            some = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#on"))
            odd = scene.ledger.find(Query(route=scene.route, prefix=f"{ASSET}#on%23"))
        assert {item.key for item in together.items} == {f"{ASSET}#one", f"{ASSET}#on%23e", f"{ASSET}#two"}
        assert {item.key for item in some.items} == {f"{ASSET}#one", f"{ASSET}#on%23e"}
        assert {item.key for item in odd.items} == {f"{ASSET}#on%23e"}
        assert asked == ["query"] * 3
        assert scene.ledger.cost_of(Query(route=scene.route, prefix=f"{ASSET}#")) is None
        assert scene.ledger.cost_of(Query(route=scene.route, prefix=ASSET)) is not None
