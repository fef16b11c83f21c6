"""What `verify --head` answers to whoever has stolen the signing key: three answers, and each fault
in words of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.evidence.evidence_scene import DAY, ROUTE, Scene
from tests.evidence.heads_scene import next_day, turn

from milepost.core.history import decode_line, encode_line, link, origin
from milepost.core.item import digest_of
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.engine.heads.daily import all_heads
from milepost.evidence.files import NewestLine, entry_of, header, write_file
from milepost.evidence.heads import Head, Heads, head_digest
from milepost.evidence.record import evidence, seal_record
from milepost.evidence.signing import Signer
from milepost.evidence.verdict import Verdict
from milepost.evidence.verify import CLOCKS_MS, verify

Record = dict[str, Any]
Entry = dict[str, Any]


class Archive:
    """Two days of assets under signed heads, exported; and a forger with the signing key, who
    writes the file again."""

    def __init__(self, scene: Scene, signer: Signer, folder: Path) -> None:
        self.scene, self.signer, self.folder = scene, signer, folder
        for day in ("a", "b"):
            scene.through(f"{day}1", f"{day}2")
            next_day(scene)
            turn(scene, signer)
        self.heads = [
            {name: value for name, value in head.items() if name != "tree"}
            for head in all_heads(scene.ctx)
        ]
        written = scene.export(folder / "honest.jsonl", signer).read_text().splitlines()
        self.first, *self.entries, _ = map(json.loads, written)

    def entry(self, key: str) -> Entry:
        return next(entry for entry in self.entries if entry["record"]["key"] == key)

    def forge(self, *entries: Entry, first: dict[str, Any] | None = None) -> Path:
        """A file of these records, with their proofs as they are, signed with the stolen key."""
        path = self.folder / "forged.jsonl"
        with path.open("wb") as out:
            signed = (
                entry_of(entry["record"], entry.get("proof"), self.signer) for entry in entries
            )
            write_file(out, first or self.first, signed, self.signer)
        return path

    def verify(self, path: Path, heads: list[Head] | None = None, **options: Any) -> Verdict:
        given = Heads(self.heads if heads is None else heads, self.signer.public)
        return verify(path, self.signer.public, given, **options)


@pytest.fixture
def store(archive: Scene, signer: Signer, tmp_path: Path) -> Archive:
    return Archive(archive, signer, tmp_path)


def changed(
    record: Record,
    change: Callable[[list[dict[str, Any]]], None],
    results: dict[str, Any] | None = None,
) -> Record:
    """The record with other lines, and the chain that fits."""
    lines = [json.loads(text) for text in record["chain"]["lines"]]
    change(lines)
    bodies = [encode_line(decode_line(json.dumps(line).encode())) for line in lines]
    digest = origin(record["route"], record["key"], bytes.fromhex(record["input_digest"]))
    for body in bodies:
        digest = link(digest, body)
    about = (
        record["route"],
        record["key"],
        bytes.fromhex(record["input_digest"]),
        record["correlation_id"],
        digest,
        bodies,
    )
    return evidence(
        *about,
        results
        or {entry["stage"]: entry["output"] for entry in record["stages"] if "output" in entry},
    )


def on_another_volume(record: Record) -> Record:
    """The files on a tape that does not exist."""
    outputs = {entry["stage"]: entry["output"] for entry in record["stages"] if "output" in entry}
    outputs["Scout"] = {path: ["L00000"] for path in outputs["Scout"]}

    def change(lines: list[dict[str, Any]]) -> None:
        lines[-1]["output"] = digest_of(outputs["Scout"]).hex()

    return changed(record, change, outputs)


def test_all_records_under_the_given_heads_are_proved(store: Archive) -> None:
    verdict = store.verify(store.forge(*store.entries))
    assert (verdict.answer, verdict.under_heads, verdict.open) == ("proved", 4, 0)
    assert (
        "that nothing happened later: newest head given: 2033-11-15; later events are not excluded"
        in verdict.not_proved
    )


# A stolen key: what cannot be proved is not said to be --------------------------------------------
def test_a_forged_record_whose_proof_was_dropped_is_named_as_not_proved(store: Archive) -> None:
    forged = {"record": on_another_volume(store.entry("a1")["record"])}
    verdict = store.verify(store.forge(forged, store.entry("a2")))
    assert (verdict.holds, verdict.answer, verdict.under_heads) == (True, "unproved", 1)
    [point] = verdict.unproved
    assert (point.line, point.key) == (2, "a1")
    assert (
        point.what
        == "it has no proof that a head covers it: its proof was removed, or its head is missing"
    )


def test_a_forged_record_with_the_proof_of_the_true_one_contradicts_the_head(
    store: Archive,
) -> None:
    entry = store.entry("a1")
    verdict = store.verify(store.forge({**entry, "record": on_another_volume(entry["record"])}))
    assert (verdict.answer, [difference.field for difference in verdict.differences]) == (
        "contradicted",
        ["proof"],
    )


def test_a_proof_that_names_an_invented_day_is_named_as_not_proved(store: Archive) -> None:
    record = on_another_volume(store.entry("a1")["record"])
    leaf = sha256(b"\x00" + bytes.fromhex(record["chain"]["head"])).hexdigest()
    verdict = store.verify(
        store.forge({"record": record, "proof": {"day": "2033-11-13", "root": leaf, "path": []}})
    )
    assert verdict.answer == "unproved"
    assert [point.what for point in verdict.unproved] == [
        "its proof names the head of 2033-11-13, which was not given"
    ]


def test_a_seal_in_the_place_of_a_record_is_named_as_not_proved(store: Archive) -> None:
    entry = store.entry("a1")
    head, digest = (
        bytes.fromhex(entry["record"]["chain"]["head"]),
        bytes.fromhex(entry["record"]["input_digest"]),
    )
    seal = seal_record(ROUTE, "a1", "COMPLETED", "Scout", digest, 0, head)
    with_proof = store.verify(
        store.forge({"record": seal, "proof": entry["proof"]}), allow_newer=True
    )
    without = store.verify(store.forge({"record": seal}), allow_newer=True)
    assert (with_proof.answer, with_proof.under_heads, without.answer) == (
        "unproved",
        0,
        "unproved",
    )
    assert (
        with_proof.unproved[0].what
        == "its digest is under the head of 2033-11-14, but what it says does not follow from a digest"
    )


def test_a_record_whose_last_lines_were_cut_off_is_not_proved(store: Archive) -> None:
    entry = store.entry("a1")
    cut = changed(entry["record"], lambda lines: lines.pop())
    assert store.verify(store.forge({"record": cut})).answer == "unproved"
    assert (
        store.verify(store.forge({"record": cut, "proof": entry["proof"]})).answer == "contradicted"
    )


def test_only_records_that_are_newer_than_the_newest_head_are_allowed(store: Archive) -> None:
    store.scene.bring("today")
    path = store.scene.export(store.folder / "later.jsonl", store.signer)
    verdict = store.verify(path)
    assert (verdict.answer, [point.key for point in verdict.unproved]) == ("unproved", ["today"])
    assert "no head covers it yet" in verdict.unproved[0].what
    allowed = store.verify(path, allow_newer=True)
    assert (allowed.answer, allowed.newer, allowed.under_heads) == ("proved", 1, 4)
    old = {"record": store.entry("a1")["record"]}
    assert store.verify(store.forge(old), allow_newer=True).answer == "unproved"


def test_a_record_under_a_later_head_than_those_given_is_newer(store: Archive) -> None:
    given = store.heads[:1]
    path = store.forge(*store.entries)
    verdict = store.verify(path, given)
    assert (verdict.answer, sorted(point.key or "" for point in verdict.unproved)) == (
        "unproved",
        ["b1", "b2"],
    )
    assert store.verify(path, given, allow_newer=True).answer == "proved"


# Heads and keys -----------------------------------------------------------------------------------
def bare(head: Head, **fields: Any) -> Head:
    """A head without a signature, perhaps with other fields and the digest that fits."""
    made = {
        name: value for name, value in head.items() if name not in ("signature", "public_key")
    } | fields
    return {**made, "digest": head_digest(made)}


def test_heads_without_a_signature_do_not_prove_whose_they_are(store: Archive) -> None:
    verdict = store.verify(store.forge(*store.entries), [bare(head) for head in store.heads])
    assert (verdict.holds, verdict.answer, verdict.under_heads) == (True, "unproved", 4)
    assert [point.what for point in verdict.unproved] == [
        "whose the heads are is not proved: not signed: 2033-11-14, 2033-11-15"
    ]
    assert (
        verify(store.forge(*store.entries), None, Heads(map(bare, store.heads))).answer == "proved"
    )


def test_a_wrong_signature_of_a_head_is_a_fault(store: Archive) -> None:
    first, second = store.heads
    verdict = store.verify(
        store.forge(*store.entries), [first, {**second, "signature": first["signature"]}]
    )
    assert verdict.answer == "contradicted"
    assert "it was not signed with the given key" in verdict.differences[0].what


def test_gaps_between_heads_and_shifted_places_are_faults(store: Archive) -> None:
    store.scene.through("c1")
    next_day(store.scene)
    turn(store.scene)
    first, second, third = map(bare, all_heads(store.scene.ctx))

    def fault(*heads: Head) -> str:
        return " ".join(what for _, what in Heads(heads).faults)

    assert fault(first, second, third) == ""
    assert "one or more heads between 2033-11-14 and it are missing" in fault(first, third)
    assert "it begins after place" in fault(first, bare(second, after=second["after"] + 1, count=1))
    assert "it does not follow the head of 2033-11-14" in fault(
        first, bare(second, previous="00" * 32)
    )
    assert "they were shifted" in fault(bare(first, up_to=first["count"] - 1))
    assert "they were shifted" in fault(bare(first, count=0))
    assert "there are two different heads of this day" in fault(first, bare(first, root="00" * 32))


# The file as a whole ------------------------------------------------------------------------------
def only_fault(verdict: Verdict) -> tuple[str, str]:
    [difference] = verdict.differences
    return difference.field, difference.what


def test_a_record_that_stands_in_the_file_twice_is_a_fault(store: Archive) -> None:
    field, what = only_fault(
        store.verify(store.forge(store.entry("a1"), store.entry("a2"), store.entry("a1")))
    )
    assert (field, what) == (
        "record",
        "it is the same item as in line 2: a record stands in a file once",
    )


def test_an_earlier_state_of_the_same_item_is_a_fault_too(store: Archive) -> None:
    earlier = {"record": changed(store.entry("a1")["record"], lambda lines: lines.pop())}
    assert only_fault(store.verify(store.forge(store.entry("a1"), earlier)))[0] == "record"


def test_a_record_of_another_route_than_the_headers_is_a_fault(store: Archive) -> None:
    verdict = store.verify(
        store.forge(store.entry("a1"), first={**store.first, "route": "letters"})
    )
    assert only_fault(verdict) == ("route", "it is of the route 'assets'; the file is of 'letters'")


def test_a_file_that_was_made_before_its_content_is_a_fault(store: Archive) -> None:
    last = max(entry["record"]["changed_at"] for entry in store.entries)
    before = {**store.first, "made_at": "2026-11-14T00:00:00.000Z"}
    field, what = only_fault(store.verify(store.forge(*store.entries, first=before)))
    assert (field, last in what, "a file is made after its content" in what) == (
        "made_at",
        True,
        True,
    )
    assert store.verify(store.forge(*store.entries, first={**store.first, "made_at": last})).holds
    assert (
        only_fault(
            store.verify(store.forge(*store.entries, first={**store.first, "made_at": "soon"}))
        )[0]
        == "made_at"
    )


@pytest.mark.parametrize(
    ("back", "holds"), [(CLOCKS_MS - 10_000, True), (CLOCKS_MS + 10_000, False), (400 * DAY, False)]
)
def test_times_that_run_back_further_than_clocks_do_are_a_fault(
    store: Archive, back: int, holds: bool
) -> None:
    def change(lines: list[dict[str, Any]]) -> None:
        lines[-1]["at"] -= back

    verdict = store.verify(store.forge({"record": changed(store.entry("a1")["record"], change)}))
    assert verdict.holds == holds
    if not holds:
        field, what = only_fault(verdict)
        assert field == "chain.lines[2]"
        assert "before the line that it follows; clocks explain 5 min at most" in what


def test_shifted_versions_of_lines_are_a_fault(store: Archive) -> None:
    def change(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            line["version"] += 1

    verdict = store.verify(store.forge({"record": changed(store.entry("a1")["record"], change)}))
    assert verdict.answer == "contradicted"
    assert "line 1 cannot be read, or is another one (it calls itself 2)" in [
        one.what for one in verdict.differences
    ]


# What an export covers ----------------------------------------------------------------------------
def test_an_export_names_the_newest_line_that_it_covers(store: Archive) -> None:
    newest = store.scene.ledger.feed(store.scene.ledger.last_seq() - 1, 1)[0]
    made = header(
        ROUTE,
        iso(newest.line.at) or "",
        "0",
        {},
        None,
        store.signer,
        newest=NewestLine(newest.seq, iso(newest.line.at)),
    )
    verdict = store.verify(store.forge(*store.entries, first=made))
    assert (verdict.holds, verdict.covers) == (
        True,
        {"place": newest.seq, "at": iso(newest.line.at)},
    )
    assert any(
        f"anything written after place {newest.seq} of the ledger" in sentence
        for sentence in verdict.not_proved
    )


def test_an_old_export_cannot_pass_for_the_present(store: Archive) -> None:
    place = store.heads[0]["up_to"]
    made = {
        **store.first,
        "newest": {"place": place, "at": store.entry("a1")["record"]["changed_at"]},
    }
    verdict = store.verify(store.forge(store.entry("a1"), store.entry("a2"), first=made))
    [sentence] = [
        sentence
        for sentence in verdict.not_proved
        if sentence.startswith("anything written after place")
    ]
    assert (
        f"the head of 2033-11-15 goes on to place {store.heads[1]['up_to']}, so it is not the present"
        in sentence
    )
    assert any(
        "it names no newest line" in sentence
        for sentence in store.verify(store.forge(*store.entries)).not_proved
    )


def test_a_newest_line_that_makes_no_sense_is_a_fault(store: Archive) -> None:
    for newest in (
        {"place": "7"},
        7,
        {"place": 7, "at": "soon"},
        {"place": 7, "at": "2040-01-01T00:00:00.000Z"},
    ):
        verdict = store.verify(store.forge(*store.entries, first={**store.first, "newest": newest}))
        assert only_fault(verdict)[0] == "newest", newest


def test_the_canonical_form_is_that_of_the_documentation(store: Archive) -> None:
    record = store.entry("a1")["record"]
    assert (
        canonical_json(record)
        == json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    )
