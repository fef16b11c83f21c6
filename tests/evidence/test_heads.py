"""The daily head: published once a day, told to everybody, one chain of them; and what is proved with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from evidence_scene import DAY, HEADS, ROUTE, SIGNED, Scene

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import UsageError
from milepost.core.evidence import differences
from milepost.core.history import link
from milepost.core.merkle import leaf, root
from milepost.engine import heads as heads_module
from milepost.engine.context import Context
from milepost.engine.heads import HeadKeeper, Prover, all_heads, day_of, publish
from milepost.engine.intake import submit
from milepost.engine.prune import prune
from milepost.engine.relay import Relay
from milepost.evidence.heads import Heads, head_digest, read_heads
from milepost.evidence.signing import Signer, make_key
from milepost.evidence.verify import verify
from milepost.ports.documents import HEAD
from milepost.testing import drain
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
    assert Prover(scene.ctx).proof(scene.found("a1").place, bytes.fromhex(scene.record("a1")["chain"]["head"])) is not None


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
    assert Prover(scene.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is not None
    assert len([line for line in scene.ledger.history(HEADS, head["day"]) if line.line.reason == "accepted"]) == 1


def test_whoever_was_slower_leaves_no_tree_behind(archive: Scene) -> None:
    archive.bring("a1")
    next_day(archive)

    class Overtaken(MemoryBlobs):
        def write(self, name: str, chunks: Iterable[bytes]) -> None:
            super().write(name, chunks)
            if name.endswith("/roots"):
                turn(archive)

    slow = Context(archive.ledger, archive.ctx.plans, archive.clock, archive.beside().chance, Overtaken())
    assert publish(slow, None, day_of(archive.clock.now() - DAY), archive.clock.now()) is None
    assert slow.blobs.held == {}  # type: ignore[attr-defined]
    assert len(all_heads(archive.ctx)) == 1


def test_every_line_has_its_proof_however_many_parts_a_tree_has(archive: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "PART", 4)
    monkeypatch.setattr(heads_module, "HELD", 2)
    archive.through(*(f"a{number}" for number in range(7)))
    next_day(archive)
    turn(archive)
    archive.through("b")
    next_day(archive)
    turn(archive)
    published = {head["day"]: head["root"] for head in all_heads(archive.ctx)}
    prover = Prover(archive.ctx)
    for key in ("b", *(f"a{number}" for number in range(7))):
        found = archive.found(key)
        digest = bytes.fromhex(found.record["chain"]["head"])
        proof = prover.proof(found.place, digest)
        assert proof is not None
        assert proof["root"] == published[proof["day"]]
        assert prover.proof(found.place, b"\0" * 32) is None
    archive.bring("c")
    found = archive.found("c")
    assert prover.proof(found.place, bytes.fromhex(found.record["chain"]["head"])) is None, "no head covers it yet"
    assert prover.proof(0, b"") is None


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


def test_what_somebody_hands_over_to_their_route_is_no_head(archive: Scene) -> None:
    submit(archive.ctx, HEADS, [{"day": "2023-01-01"}])
    next_day(archive)
    turn(archive)
    assert [head["day"] for head in all_heads(archive.ctx)] == ["2023-11-14"]


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
    proof = Prover(archive.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"]))
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
