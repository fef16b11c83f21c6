"""The daily head: published once a day, told to everybody, one chain of them; and what is proved with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from evidence_scene import DAY, HEADS, ROUTE, SIGNED, Scene, assets

import milepost as mp
from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import ConfigMistake, UsageError
from milepost.core.evidence import differences
from milepost.core.history import link
from milepost.core.merkle import leaf, root
from milepost.engine import head_trees
from milepost.engine import heads as heads_module
from milepost.engine.context import Context
from milepost.engine.heads import HeadKeeper, all_heads, day_of, prover, publish
from milepost.engine.intake import submit
from milepost.engine.lists import submit_list
from milepost.engine.prune import prune
from milepost.engine.relay import Relay
from milepost.evidence.heads import Heads, head_digest, read_heads
from milepost.evidence.signing import Signer, make_key
from milepost.evidence.verify import verify
from milepost.ports.documents import HEAD, LIST
from milepost.testing import drain
from milepost.testing.clock import VirtualClock
from milepost.wiring import Station

Envelope = dict[str, Any]


class Ear:
    """A subscriber that keeps what it is told."""

    name, batch = "ear", 10

    def __init__(self) -> None:
        self.heard: list[Envelope] = []

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        self.heard += envelopes

    def heads(self) -> list[Envelope]:
        return [envelope for envelope in self.heard if envelope["type"] == "milepost.item.accepted" and "/heads" in envelope["source"]]


def turn(scene: Scene, signer: Signer | None = None) -> None:
    HeadKeeper(scene.ctx, signer).turn()


def next_day(scene: Scene) -> None:
    scene.clock.advance_to((scene.clock.now() // DAY + 1) * DAY)


def test_one_a_day_each_bound_to_the_one_before_and_told_to_everybody(scene: Scene, signer: Signer) -> None:
    ear = Ear()
    for day in range(4):
        scene.through(f"a{day}")
        turn(scene, signer)
        next_day(scene)
        for _ in range(3):
            turn(scene, signer)
    drain(scene.ctx, scene.clock, subscribers=[ear])
    heads = all_heads(scene.ctx)
    assert [head["day"] for head in heads] == ["2023-11-14", "2023-11-15", "2023-11-16", "2023-11-17"]
    assert heads[0]["previous"] is None
    for before, after in pairwise(heads):
        assert (after["previous"], after["after"]) == (head_digest(before), before["up_to"])
    assert [envelope["data"]["note"] for envelope in ear.heads()] == heads
    assert [envelope["subject"] for envelope in ear.heads()] == [head["day"] for head in heads]
    assert Heads(heads, signer.public).faults == []
    assert {item.status for item in (row.row for row in scene.ledger.find(heads_query()).items)} == {"COMPLETED"}


def heads_query() -> Any:
    from milepost.ports.ledger import Query

    return Query(route=HEADS)


def test_a_head_is_the_root_over_exactly_the_lines_of_its_time(scene: Scene) -> None:
    scene.through("a1", "a2")
    lines = scene.ledger.feed(0, 1000)
    next_day(scene)
    scene.bring("late")
    turn(scene)
    [head] = all_heads(scene.ctx)
    assert (head["day"], head["after"], head["up_to"], head["count"]) == ("2023-11-14", 0, lines[-1].seq, len(lines))
    assert head["root"] == root([leaf(link(line.previous, line.body)) for line in lines]).hex()


def test_nothing_written_is_no_head_and_days_without_a_process_are_summed_up_together(scene: Scene) -> None:
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
def test_a_process_that_dies_between_summing_up_and_telling_leaves_one_head(scene: Scene, last: str) -> None:
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
    ear = Ear()
    drain(scene.ctx, scene.clock, subscribers=[ear])
    [head] = all_heads(scene.ctx)
    assert [envelope["data"]["note"] for envelope in ear.heads()] == [head]
    assert prover(scene.ctx).proof(scene.found("a1").place, bytes.fromhex(scene.record("a1")["chain"]["head"])) is not None


def test_a_head_is_told_again_until_it_was_taken(scene: Scene) -> None:
    scene.bring("a1")
    next_day(scene)
    turn(scene)

    class Deaf(Ear):
        def tell(self, envelopes: Sequence[Envelope]) -> None:
            super().tell(envelopes)
            raise Died

    deaf = Deaf()
    Relay(scene.ctx, deaf, "p1").run_once()
    scene.clock.advance("1h")
    ear = Ear()
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
    assert prover(scene.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is not None
    assert len([line for line in scene.ledger.history(HEADS, head["day"]) if line.line.reason == "accepted"]) == 1


def test_whoever_was_slower_has_written_the_very_same_tree(archive: Scene) -> None:
    archive.bring("a1")
    next_day(archive)

    class Overtaken(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if "/roots-" in name:
                turn(archive)

    slow = Context(archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, Overtaken())
    assert publish(slow, None, day_of(archive.clock.now() - DAY), archive.clock.now()) is None
    [head] = all_heads(archive.ctx)
    trees = [{name: body for name, body in ctx.blobs.held.items() if name.startswith("heads/")} for ctx in (slow, archive.ctx)]  # type: ignore[attr-defined]
    assert trees[0] == trees[1]
    assert head["tree"] in trees[0]


def test_every_line_has_its_proof_however_many_parts_a_tree_has(archive: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert proofs.proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is None, "no head covers it yet"
    assert proofs.proof(0, b"") is None


def test_a_full_disk_stops_nobody_and_the_head_comes_later(archive: Scene) -> None:
    archive.bring("a1")
    next_day(archive)

    class Full(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            raise OSError("no space left")

    full = Context(archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, Full())
    assert HeadKeeper(full, None).turn() == heads_module.EVERY
    assert all_heads(archive.ctx) == []
    turn(archive)
    assert len(all_heads(archive.ctx)) == 1


def test_nobody_can_hand_one_over(archive: Scene, tmp_path: Path) -> None:
    path = tmp_path / "heads.txt"
    path.write_text("2023-01-01\n")
    for hand_over in (lambda: submit(archive.ctx, HEADS, [{"day": "2023-01-01"}]), lambda: submit_list(archive.ctx, HEADS, str(path))):
        with pytest.raises(UsageError, match="the daily heads are Milepost's own; 'milepost heads publish' makes one"):
            hand_over()
    assert archive.ledger.peek(HEADS, ["2023-01-01"]) == [None]
    assert archive.ledger.read(LIST) == {}


def test_heads_are_never_let_go_of(archive: Scene) -> None:
    with pytest.raises(UsageError, match="the daily heads stay"):
        prune(archive.ctx, HEADS, 0, **SIGNED)


def test_a_station_publishes_them_and_signs_with_its_key(archive: Scene, signer: Signer) -> None:
    archive.bring("a1")
    next_day(archive)
    station = Station(archive.ctx, signer=signer)
    [keeper] = [role for role in station.roles if role.name == "heads"]
    keeper.turn()
    assert Heads(all_heads(archive.ctx), signer.public).faults == []
    assert len(all_heads(archive.ctx)) == 1
    assert not [role for role in Station(archive.ctx, roles={"worker"}).roles if role.name == "heads"]


def test_a_program_signs_them_with_the_key_that_it_names(tmp_path: Path) -> None:
    signer = make_key(tmp_path / "archive.pem")
    clock = VirtualClock()
    with mp.open(f"sqlite:///{tmp_path}/a.db", [assets()], clock=clock, signing_key=tmp_path / "archive.pem") as program:
        program.submit(ROUTE, {"id": "a1"})
        clock.advance("1d")
        program.run(until_idle=0)
        heads = all_heads(program.context)
    assert len(heads) == 1
    assert Heads(heads, signer.public).faults == []
    with pytest.raises(ConfigMistake, match=r"none\.pem cannot be read"):
        mp.open("memory:", [assets()], signing_key=str(tmp_path / "none.pem"))


# In steps -------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of four lines are a step."""
    monkeypatch.setattr(head_trees, "PART", 4)
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
        assert proofs.proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is not None, key


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
def test_a_sum_that_was_begun_days_ago_is_ended_first_and_the_days_since_come_after_it(archive: Scene) -> None:
    archive.through(*(f"a{number}" for number in range(8)))
    next_day(archive)
    assert step(archive)
    next_day(archive)
    archive.through("b")
    next_day(archive)
    for _ in range(2):
        while step(archive):
            pass
    assert [head["day"] for head in all_heads(archive.ctx)] == ["2023-11-14", "2023-11-16"]
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


# Proved with it -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def told(archive: Scene, signer: Signer) -> list[Envelope]:
    """Two days of events as a subscriber has kept them."""
    ear = Ear()
    for day in ("a", "b"):
        archive.through(f"{day}1", f"{day}2")
        next_day(archive)
        turn(archive, signer)
    drain(archive.ctx, archive.clock, subscribers=[ear])
    return ear.heads()


def kept_at(path: Path, envelopes: Iterable[Envelope]) -> Path:
    path.write_text("".join(json.dumps(envelope) + "\n" for envelope in envelopes), encoding="utf-8")
    return path


def test_records_are_proved_to_end_under_the_heads_that_were_told(
    archive: Scene, told: list[Envelope], signer: Signer, tmp_path: Path
) -> None:
    archive.bring("today")
    path = archive.export(tmp_path / "evidence.jsonl", signer)
    given = Heads(read_heads([kept_at(tmp_path / "events", told)]), signer.public)
    verdict = verify(path, signer.public, given)
    assert (verdict.holds, verdict.records, verdict.under_heads) == (True, 5, 4)
    assert "4 of 5 records end under a published head" in verdict.proved


def test_a_record_that_left_after_its_head_is_proved_under_it_too(archive: Scene, told: list[Envelope], tmp_path: Path) -> None:
    archive.clock.advance("1h")
    archive.bring("newest")
    report = prune(archive.ctx, ROUTE, 0, **SIGNED)
    assert report.items == 4
    assert differences(archive.record("a1")) == []
    verdict = verify(archive.export(tmp_path / "evidence.jsonl"), None, Heads(read_heads([kept_at(tmp_path / "events", told)])))
    assert (verdict.holds, verdict.under_heads) == (True, 4)


def test_a_row_stays_until_a_head_covers_its_lines(archive: Scene) -> None:
    archive.through("a1", "a2", "a3", "a4")
    next_day(archive)
    turn(archive)
    archive.through("c1")
    archive.clock.advance("1h")
    report = prune(archive.ctx, ROUTE, 0, **SIGNED)
    assert report.items == 4
    assert "that no daily head covers yet wait for it" in str(report)
    assert archive.ledger.get([(ROUTE, "c1")]) != [None]
    next_day(archive)
    turn(archive)
    assert prune(archive.ctx, ROUTE, 0, **SIGNED).items == 1


def test_a_ledger_that_was_written_anew_does_not_fit_the_heads_that_were_told(told: list[Envelope], signer: Signer, tmp_path: Path) -> None:
    """Everything else about it is in order: chains, digests, signatures."""
    forged = Scene()
    for day in ("a", "b"):
        forged.through(f"{day}1", f"{day}2")
        next_day(forged)
        turn(forged, signer)
        forged.clock.advance("7s")
    path = forged.export(tmp_path / "evidence.jsonl", signer)
    assert verify(path, signer.public).holds
    verdict = verify(path, signer.public, Heads(read_heads([kept_at(tmp_path / "events", told)]), signer.public))
    assert not verdict.holds
    assert {difference.field for difference in verdict.differences} == {"proof"}


def test_heads_that_were_altered_are_found(told: list[Envelope], signer: Signer, tmp_path: Path) -> None:
    first, second = (envelope["data"]["note"] for envelope in told)
    other = make_key(tmp_path / "other.pem")
    assert Heads([first, second], signer.public).faults == []
    assert "not signed with the key" in Heads([first], other.public).faults[0][1]
    assert "its digest is not" in Heads([{**first, "count": 1}]).faults[0][1]
    forged = {**second, "previous": "00" * 32}
    forged["digest"] = head_digest(forged)
    assert "does not go on from" in Heads([first, forged]).faults[0][1]
    twice = {**first, "count": 1}
    twice["digest"] = head_digest(twice)
    assert "two of this day" in Heads([first, twice]).faults[0][1]
    assert "has no 'root'" in Heads([{"schema": first["schema"], "day": "x"}]).faults[0][1]


def test_a_proof_that_leads_elsewhere_is_found(archive: Scene, told: list[Envelope], tmp_path: Path) -> None:
    from milepost.evidence.files import entry_of, header, write_file

    found = archive.found("a1")
    proof = prover(archive.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"]))
    assert proof is not None
    wrong = [
        {**proof, "path": proof["path"][:-1]},
        {**proof, "root": "00" * 32},
        {**proof, "path": [["up", "00"]]},
        {"day": "2023-11-14"},
        7,
    ]
    for each in wrong:
        path = tmp_path / "evidence.jsonl"
        with path.open("wb") as out:
            write_file(out, header(ROUTE, "", "0", {}, None, None), [entry_of(found.record, each, None)], None)  # type: ignore[arg-type]
        assert [difference.field for difference in verify(path).differences] == ["proof"], each


def test_heads_are_read_in_whatever_envelope_they_came(told: list[Envelope], tmp_path: Path) -> None:
    first, second = (envelope["data"]["note"] for envelope in told)
    forms = {
        "lines": "\n".join(json.dumps(envelope) for envelope in told),
        "list": json.dumps(told),
        "bare": json.dumps([first, second]),
        "in a message": json.dumps([{"Type": "Notification", "Message": json.dumps(envelope)} for envelope in told]),
    }
    for name, text in forms.items():
        path = tmp_path / "events"
        path.write_text(text)
        assert read_heads([path]) == [first, second], name
    for text in ("{}", "not json", '{"a": "milepost.head/1 {"}'):
        path.write_text(text)
        with pytest.raises(UsageError, match="--head"):
            read_heads([path])
    with pytest.raises(UsageError, match="cannot be read"):
        read_heads([tmp_path / "none"])
