"""A day of many lines is summed up in steps, each of which any process can make."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.evidence.evidence_scene import ROUTE, Scene
from tests.evidence.heads_scene import next_day

from milepost.blobs.memory import MemoryBlobs
from milepost.core.history import link
from milepost.engine.context import Context
from milepost.engine.heads import daily as heads_module
from milepost.engine.heads import trees
from milepost.engine.heads.daily import HeadKeeper, all_heads, prover
from milepost.engine.intake import submit
from milepost.evidence.heads import Heads
from milepost.evidence.merkle import leaf, root
from milepost.ports.documents import HEAD


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of four lines are a step."""
    monkeypatch.setattr(trees, "PART", 4)
    monkeypatch.setattr(heads_module, "PARTS", 2)


def step(scene: Scene, seed: int = 3) -> bool:
    """A step of some process; is there more?"""
    return HeadKeeper(scene.beside(seed), None).run_once()


def so_far(scene: Scene) -> list[str]:
    return [name for name in held(scene.ctx) if "so-far" in name]


def held(ctx: Context) -> dict[str, bytes]:
    return ctx.blobs.held  # type: ignore[attr-defined, no-any-return]


def check_proved(scene: Scene, *keys: str) -> None:
    proofs = prover(scene.ctx)
    for key in keys:
        found = scene.found(key)
        assert (
            proofs.proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is not None
        ), key


@pytest.mark.usefixtures("small")
def test_any_process_goes_on_with_a_sum_that_another_has_begun(archive: Scene) -> None:
    keys = [f"a{number}" for number in range(8)]
    archive.through(*keys)
    lines = archive.ledger.feed(0, 1000)
    next_day(archive)
    steps = 0
    while step(archive, steps):
        steps += 1
        assert all_heads(archive.ctx) == []
        assert len(so_far(archive)) == 1
        archive.clock.advance("1h")
        submit(archive.ctx, ROUTE, [{"id": f"later-{steps}"}])
    assert steps == len(lines) // 8
    [head] = all_heads(archive.ctx)
    assert head["root"] == root([leaf(link(line.previous, line.body)) for line in lines]).hex()
    assert (head["count"], head["up_to"]) == (len(lines), lines[-1].seq)
    check_proved(archive, *keys)
    assert so_far(archive) == []


@pytest.mark.usefixtures("small")
def test_a_sum_whose_record_is_damaged_is_begun_anew(archive: Scene) -> None:
    archive.through(*(f"a{number}" for number in range(8)))
    next_day(archive)
    assert step(archive)
    archive.ledger.write(HEAD, heads_module.BEGUN, {"day": 1})
    while step(archive):
        assert all_heads(archive.ctx) == []
    [head] = all_heads(archive.ctx)
    assert head["count"] == head["up_to"]
    check_proved(archive, "a0", "a7")


@pytest.mark.usefixtures("small")
def test_a_sum_that_was_begun_days_ago_is_ended_first_and_the_days_since_come_after_it(
    archive: Scene,
) -> None:
    archive.through(*(f"a{number}" for number in range(8)))
    next_day(archive)
    assert step(archive)
    next_day(archive)
    archive.through("b")
    next_day(archive)
    for _ in range(2):
        while step(archive):
            pass
    assert [head["day"] for head in all_heads(archive.ctx)] == ["2033-11-14", "2033-11-16"]
    assert Heads(all_heads(archive.ctx)).faults == []
    check_proved(archive, "a0", "a7", "b")


@pytest.mark.usefixtures("small")
def test_what_was_summed_up_so_far_and_is_lost_is_summed_up_again(archive: Scene) -> None:
    archive.through(*(f"a{number}" for number in range(8)))
    count = len(archive.ledger.feed(0, 1000))
    next_day(archive)
    assert step(archive)
    for name in so_far(archive):
        archive.ctx.blobs.remove(name)
    while step(archive):
        pass
    [head] = all_heads(archive.ctx)
    assert head["count"] == count
    check_proved(archive, "a0", "a7")


@pytest.mark.usefixtures("small")
def test_of_two_who_go_on_at_once_one_stands_by(archive: Scene) -> None:
    archive.through(*(f"a{number}" for number in range(8)))
    next_day(archive)
    assert step(archive)

    class Overtaken(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if "so-far" in name:
                assert step(archive)

    slow = Overtaken()
    slow.held.update(held(archive.ctx))
    late = Context(archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, slow)
    assert not HeadKeeper(late, None).run_once()
    while step(archive):
        pass
    assert len(all_heads(archive.ctx)) == 1
    check_proved(archive, "a0", "a7")
