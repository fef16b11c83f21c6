"""Daily heads: published once a day to every subscriber, in one chain, and usable as proof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from tests.evidence.evidence_scene import DAY, HEADS, ROUTE, SIGNED, Scene, assets
from tests.evidence.heads_scene import Envelope, RecordingSubscriber, next_day, turn

import milepost as mp
from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import ConfigMistake, UsageError
from milepost.core.history import link
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.heads import daily as heads_module
from milepost.engine.heads import trees as head_trees
from milepost.engine.heads.daily import HeadKeeper, all_heads, day_of, prover, publish
from milepost.engine.intake import submit
from milepost.engine.lists.reconcile import submit_list
from milepost.engine.retention import prune
from milepost.evidence.heads import Heads, head_digest
from milepost.evidence.merkle import leaf, root
from milepost.evidence.signing import Signer, make_key
from milepost.ports.documents import HEAD, LIST
from milepost.station import Role, Station
from milepost_testing import drain
from milepost_testing.clock import VirtualClock


def test_one_a_day_each_bound_to_the_one_before_and_told_to_everybody(
    scene: Scene, signer: Signer
) -> None:
    ear = RecordingSubscriber()
    for day in range(4):
        scene.through(f"a{day}")
        turn(scene, signer)
        next_day(scene)
        for _ in range(3):
            turn(scene, signer)
    drain(scene.ctx, scene.clock, subscribers=[ear])
    heads = all_heads(scene.ctx)
    assert [head["day"] for head in heads] == [
        "2033-11-14",
        "2033-11-15",
        "2033-11-16",
        "2033-11-17",
    ]
    assert heads[0]["previous"] is None
    for before, after in pairwise(heads):
        assert (after["previous"], after["after"]) == (head_digest(before), before["up_to"])
    assert [envelope["data"]["note"] for envelope in ear.heads()] == heads
    assert [envelope["subject"] for envelope in ear.heads()] == [head["day"] for head in heads]
    assert Heads(heads, signer.public).faults == []
    assert {
        item.status for item in (row.row for row in scene.ledger.find(heads_query()).items)
    } == {"COMPLETED"}


def heads_query() -> Any:
    from milepost.ports.items import Query

    return Query(route=HEADS)


def test_a_head_is_the_root_over_exactly_the_lines_of_its_time(scene: Scene) -> None:
    scene.through("a1", "a2")
    lines = scene.ledger.feed(0, 1000)
    next_day(scene)
    scene.bring("late")
    turn(scene)
    [head] = all_heads(scene.ctx)
    assert (head["day"], head["after"], head["up_to"], head["count"]) == (
        "2033-11-14",
        0,
        lines[-1].seq,
        len(lines),
    )
    assert head["root"] == root([leaf(link(line.previous, line.body)) for line in lines]).hex()


def test_nothing_written_is_no_head_and_days_without_a_process_are_summed_up_together(
    scene: Scene,
) -> None:
    turn(scene)
    next_day(scene)
    turn(scene)
    assert all_heads(scene.ctx) == []
    scene.bring("a1")
    scene.clock.advance("9d")
    turn(scene)
    [head] = all_heads(scene.ctx)
    assert head["day"] == day_of(scene.clock.now() - DAY)


class Died(Exception):
    """The process died here."""


class Mortal:
    """A ledger on which one verb is the last."""

    def __init__(self, ledger: Any, last: str) -> None:
        self._ledger, self._last = ledger, last

    def __getattr__(self, verb: str) -> Any:
        if verb == self._last:
            raise Died
        return getattr(self._ledger, verb)


@pytest.mark.parametrize("last", ["write", "add"])
def test_a_process_that_dies_between_summing_up_and_telling_leaves_one_head(
    scene: Scene, last: str
) -> None:
    scene.through("a1")
    next_day(scene)
    mortal = scene.beside(7)
    mortal.ledger = Mortal(scene.ledger, last)  # type: ignore[assignment]
    with pytest.raises(Died):
        HeadKeeper(mortal, None).turn()
    assert all_heads(scene.ctx) == []
    scene.clock.advance("2h")
    scene.bring("later")
    turn(scene)
    ear = RecordingSubscriber()
    drain(scene.ctx, scene.clock, subscribers=[ear])
    [head] = all_heads(scene.ctx)
    assert [envelope["data"]["note"] for envelope in ear.heads()] == [head]
    assert (
        prover(scene.ctx).proof(
            scene.found("a1").place, bytes.fromhex(scene.record("a1")["chain"]["head"])
        )
        is not None
    )


def test_a_head_is_told_again_until_it_was_taken(scene: Scene) -> None:
    scene.bring("a1")
    next_day(scene)
    turn(scene)

    class Deaf(RecordingSubscriber):
        def tell(self, envelopes: Sequence[Envelope]) -> None:
            super().tell(envelopes)
            raise Died

    deaf = Deaf()
    EventRelay(scene.ctx, deaf, "p1").run_once()
    scene.clock.advance("1h")
    ear = RecordingSubscriber()
    drain(scene.ctx, scene.clock, subscribers=[ear])
    assert deaf.heads()
    assert [envelope["id"] for envelope in ear.heads()] == [deaf.heads()[0]["id"]]


def test_processes_that_sum_up_at_once_publish_one_head_between_them(scene: Scene) -> None:
    scene.through("a1", "a2")
    next_day(scene)
    processes = [scene.beside(seed) for seed in range(10, 16)]
    together = Barrier(len(processes))

    def one(ctx: Context) -> None:
        together.wait()
        HeadKeeper(ctx, None).turn()

    threads = [Thread(target=one, args=(ctx,)) for ctx in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [head] = all_heads(scene.ctx)
    assert scene.ledger.read(HEAD)["last"].version == 1
    found = scene.found("a2")
    assert (
        prover(scene.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"]))
        is not None
    )
    assert (
        len(
            [
                line
                for line in scene.ledger.history(HEADS, head["day"])
                if line.line.reason == "accepted"
            ]
        )
        == 1
    )


def test_whoever_was_slower_has_written_the_very_same_tree(archive: Scene) -> None:
    archive.bring("a1")
    next_day(archive)

    class Overtaken(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if "/roots-" in name:
                turn(archive)

    slow = Context(
        archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, Overtaken()
    )
    assert publish(slow, None, day_of(archive.clock.now() - DAY), archive.clock.now()) is None
    [head] = all_heads(archive.ctx)
    trees = [
        {name: body for name, body in ctx.blobs.held.items() if name.startswith("heads/")}
        for ctx in (slow, archive.ctx)
    ]  # type: ignore[attr-defined]
    assert trees[0] == trees[1]
    assert head["tree"] in trees[0]


def test_every_line_has_its_proof_however_many_parts_a_tree_has(
    archive: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_trees, "PART", 4)
    monkeypatch.setattr(head_trees, "HELD", 2)
    archive.through(*(f"a{number}" for number in range(7)))
    next_day(archive)
    turn(archive)
    archive.through("b")
    next_day(archive)
    turn(archive)
    published = {head["day"]: head["root"] for head in all_heads(archive.ctx)}
    proofs = prover(archive.ctx)
    for key in ("b", *(f"a{number}" for number in range(7))):
        found = archive.found(key)
        digest = bytes.fromhex(found.record["chain"]["head"])
        proof = proofs.proof(found.place, digest)
        assert proof is not None
        assert proof["root"] == published[proof["day"]]
        assert proofs.proof(found.place, b"\0" * 32) is None
    archive.bring("c")
    found = archive.found("c")
    assert proofs.proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is None, (
        "no head covers it yet"
    )
    assert proofs.proof(0, b"") is None


def test_a_full_disk_stops_nobody_and_the_head_comes_later(archive: Scene) -> None:
    archive.bring("a1")
    next_day(archive)

    class Full(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            raise OSError("no space left")

    full = Context(
        archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, Full()
    )
    role = Role(HeadKeeper(full, None), archive.clock, lambda: False)
    assert role.turn() == heads_module.EVERY
    assert role.standing_still is not None
    assert role.standing_still.why == "it cannot store the daily head: no space left"
    assert not role.last_good_run, "no successful run, for the doctor"
    assert all_heads(archive.ctx) == []
    turn(archive)
    assert len(all_heads(archive.ctx)) == 1


def test_nobody_can_hand_one_over(archive: Scene, tmp_path: Path) -> None:
    path = tmp_path / "heads.txt"
    path.write_text("2023-01-01\n")
    for hand_over in (
        lambda: submit(archive.ctx, HEADS, [{"day": "2023-01-01"}]),
        lambda: submit_list(archive.ctx, HEADS, str(path)),
    ):
        with pytest.raises(
            UsageError, match="it holds the daily heads; 'milepost heads publish' creates one"
        ):
            hand_over()
    assert archive.ledger.peek(HEADS, ["2023-01-01"]) == [None]
    assert archive.ledger.read(LIST) == {}


def test_heads_are_never_let_go_of(archive: Scene) -> None:
    with pytest.raises(UsageError, match="the daily heads cannot be pruned"):
        prune(archive.ctx, HEADS, 0, **SIGNED)


def test_a_station_publishes_them_and_signs_with_its_key(archive: Scene, signer: Signer) -> None:
    archive.bring("a1")
    next_day(archive)
    station = Station(archive.ctx, signer=signer)
    [keeper] = [role for role in station.roles if role.name == "heads"]
    keeper.turn()
    assert Heads(all_heads(archive.ctx), signer.public).faults == []
    assert len(all_heads(archive.ctx)) == 1
    assert not [
        role for role in Station(archive.ctx, roles={"worker"}).roles if role.name == "heads"
    ]


def test_a_program_signs_them_with_the_key_that_it_names(tmp_path: Path) -> None:
    signer = make_key(tmp_path / "archive.pem")
    clock = VirtualClock()
    with mp.open(
        f"sqlite:///{tmp_path}/a.db", [assets()], clock=clock, signing_key=tmp_path / "archive.pem"
    ) as program:
        program.submit(ROUTE, {"id": "a1"})
        clock.advance("1d")
        program.run(until_idle=0)
        heads = all_heads(program.context)
    assert len(heads) == 1
    assert Heads(heads, signer.public).faults == []
    with pytest.raises(ConfigMistake, match=r"cannot read the signing key .*none\.pem"):
        mp.open("memory:", [assets()], signing_key=str(tmp_path / "none.pem"))


def test_a_line_from_a_clock_that_was_ahead_ends_no_heads(scene: Scene) -> None:
    scene.bring("a1")
    scene.clock.advance("400d")
    submit(scene.ctx, ROUTE, [{"id": "ahead"}])
    scene.clock.set_back("400d")
    submit(scene.ctx, ROUTE, [{"id": "a2"}])
    lines = scene.ledger.last_seq()
    next_day(scene)
    turn(scene)
    [head] = all_heads(scene.ctx)
    assert (head["day"], head["count"]) == ("2033-11-14", lines)
