"""Seals on AWS: an older end never takes the place of a newer one, and lines whose row has left are
found by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at

from milepost.core.operators import retry
from milepost.core.outcome import Done, Reject
from milepost.core.status import TERMINAL
from milepost.ports.retention import DeliveredLines, LeftFailures, PruneCriteria
from milepost_aws.ledger.left_failures import LEFT, NOTED
from milepost_aws.ledger.repair.repair import Repair
from milepost_aws.ledger.retention import seal_for, write_seals
from milepost_aws.ledger.tables.journal import Journal


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def rejected(scene: Scene, why: str) -> Any:
    scene.settle(scene.take("a"), Reject(why))
    scene.follow()
    return scene.row("a")


def test_a_late_writer_does_not_put_an_older_seal_over_a_newer_one(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    first = rejected(scene, "no")
    scene.clock.advance("1h")
    assert scene.apply(retry(scene.item("a"), scene.plan, scene.now, by="ops")) is None
    scene.follow()
    second = rejected(scene, "no again")
    assert first.head != second.head
    write_seals(scene.store, [seal_for(scene.store, first, 2)], scene.now)
    assert scene.store.seals("parcels", ["a"])["a"].head == second.head
    write_seals(scene.store, [seal_for(scene.store, second, 4)], scene.now)
    assert scene.store.seals("parcels", ["a"])["a"].head == second.head


def test_failed_items_that_left_before_there_were_notes_are_known_after_a_repair(
    scene: Scene,
) -> None:
    for key in ("a", "b"):
        scene.add(key)
        scene.follow()
        scene.settle(scene.take(key), Reject("no") if key == "a" else Done())
        scene.follow()
    scene.clock.advance("1d")
    scene.aws.prune(PruneCriteria("parcels", TERMINAL, scene.now, None, DeliveredLines(0), 100))
    control = scene.store.control
    control.write(LEFT + "parcels", "a", None)
    control.write(NOTED, "parcels", None)
    upgraded = scene.open(scene.process)
    upgraded.prepare(scene.plan)
    assert upgraded.left_failures("parcels", "", None, 10) == LeftFailures([], complete=False)
    repair = Repair(upgraded.store, scene.plan, lambda: 0.0)
    assert repair.due(scene.now)
    scene.run(repair)
    left = upgraded.left_failures("parcels", "", None, 10)
    assert ([seal.key for seal in left.seals], left.complete) == (["a"], True)
    assert not repair.due(scene.now)


def test_lines_are_found_by_the_next_prune_where_one_died_after_the_row(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.add("a")
    scene.follow()
    rejected(scene, "no")
    scene.clock.advance("1d")

    def dies(*_: Any) -> None:
        raise RuntimeError("the process died here")

    def prune() -> Any:
        return scene.aws.prune(
            PruneCriteria(
                "parcels",
                TERMINAL,
                scene.now,
                None,
                DeliveredLines(scene.store.journal.last_seq()),
                100,
            )
        )

    with monkeypatch.context() as dying:
        dying.setattr(Journal, "remove", dies)
        with pytest.raises(RuntimeError, match="died here"):
            prune()
    assert scene.aws.get([("parcels", "a")]) == [None]
    assert scene.aws.history("parcels", "a")
    pruned = prune()
    assert (pruned.items, pruned.lines) == (0, 1)
    assert scene.aws.history("parcels", "a") == []
    assert prune().lines == 0
