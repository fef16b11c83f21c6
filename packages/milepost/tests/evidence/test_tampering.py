"""What `milepost verify` answers to each kind of tampering with an export of fifty items, and that
it names the item and the fault.

The forger of most rows has stolen the signing key and the ledger: every digest, signature and proof
is made anew, and fits. Only the heads, which others keep, are beyond the forger's reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Answer, Shell
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene
from tests.evidence.heads_scene import next_day, turn
from tests.evidence.test_verify_with_heads import Entry, changed, on_another_volume

from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.redate import redate_rows
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.evidence import all_evidence
from milepost.engine.forget import forget
from milepost.engine.heads.daily import all_heads, prover
from milepost.engine.heads.evidence_lines import entries, first_line
from milepost.engine.intake import submit
from milepost.evidence.files import entry_of, write_file
from milepost.evidence.heads import Head, head_digest
from milepost.evidence.record import chain_links, forgotten_record, seal_record
from milepost.evidence.signing import Signer, make_key, public_text
from milepost.ports.items import Query

Records = list[Entry]


def exported(scene: Scene, signer: Signer) -> tuple[dict[str, Any], Records]:
    """Header and entries of the whole route, as the command writes them."""
    first = first_line(scene.ctx, ROUTE, "0", {}, None, signer)
    records = entries(
        scene.ctx, all_evidence(scene.ctx, Query(route=ROUTE, with_content=True)), signer, []
    )
    return first, list(records)


def heads_of(scene: Scene) -> list[Head]:
    return [
        {name: value for name, value in head.items() if name != "tree"}
        for head in all_heads(scene.ctx)
    ]


def fail_and_begin_again(scene: Scene, *keys: str, lives: int) -> None:
    """Lives that failed and left, one after the other."""
    scene.bring(*keys, damaged=True)
    for _ in range(lives - 1):
        scene.prune()
        scene.clock.advance("1h")
        submit(
            scene.ctx,
            ROUTE,
            [{"id": key, "damaged": True} for key in keys],
            by="ops",
            failed_again="repaired",
        )
        scene.through()


class Archive:
    """Fifty items on three days: some with several lives, one redated, some left; a day's head
    after each, and an export of each evening."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.signer = make_key(folder / "key.pem")
        self.scene = scene = Scene()
        scene.bring("second")
        scene.clock.advance("2d")
        submit(scene.ctx, ROUTE, [{"id": "redated"}])
        scene.clock.set_back("2d")
        assert redate_rows(scene.ctx, ROUTE, **SIGNED).done == 1
        scene.clock.advance("1h")
        scene.through()
        scene.tape("redated")
        scene.through(*(f"a{number:02}" for number in range(20)))
        self.first_evening = self._evening()
        fail_and_begin_again(scene, "twice", lives=2)
        fail_and_begin_again(scene, "often", lives=4)
        scene.tape("second")
        scene.through(*(f"b{number:02}" for number in range(19)))
        self.second_evening = self._evening()
        scene.bring("waiting")
        scene.prune()
        scene.bring("bad", damaged=True)
        act(scene.ctx, select(scene.ctx, ROUTE, keys=["waiting"]), CancelVerb(), **SIGNED)
        self.first, self.entries = self._evening()
        self.heads = heads_of(scene)
        self._write_heads("heads.json", self.heads)

    def _evening(self) -> tuple[dict[str, Any], Records]:
        next_day(self.scene)
        turn(self.scene, self.signer)
        return exported(self.scene, self.signer)

    def _write_heads(self, name: str, heads: list[Head]) -> None:
        self.shell.write(name, "\n".join(json.dumps({"data": {"note": head}}) for head in heads))

    def entry(self, key: str, records: Records | None = None) -> Entry:
        """The latest record of a key."""
        return next(entry for entry in records or self.entries if entry["record"]["key"] == key)

    def proved(self, record: dict[str, Any]) -> Entry:
        """The record with a proof for its last line, made from the trees of the ledger, whichever
        line that is."""
        head = bytes.fromhex(record["chain"]["head"])
        heads = prover(self.scene.ctx)
        places = range(1, self.scene.ledger.last_seq() + 1)
        proof = next(proof for place in places if (proof := heads.proof(place, head)) is not None)
        return {"record": record, "proof": proof}

    def cut(self, key: str) -> Entry:
        """A record without its last line, with all that the ledger can prove of the line before."""
        return self.proved(changed(self.entry(key)["record"], lambda lines: lines.pop()))

    def write(self, first: dict[str, Any], records: Records) -> str:
        """The file that a forger with the signing key makes of these."""
        with (self.shell.folder / "forged.jsonl").open("wb") as out:
            fields = (
                (entry["record"], entry.get("proof"), self.signer, entry.get("covered"))
                for entry in records
            )
            write_file(out, first, (entry_of(*each) for each in fields), self.signer)
        return "forged.jsonl"

    def verify(self, file: str, *options: str, heads: list[Head] | None = None) -> Answer:
        self._write_heads("given.json", self.heads if heads is None else heads)
        return self.shell(
            "verify",
            file,
            "--head",
            "given.json",
            "--public-key",
            public_text(self.signer.public),
            *options,
        )

    def signed_head(self, head: Head, **fields: Any) -> Head:
        """A head with other fields, and the digest and signature that fit."""
        made = {**head, **fields}
        made["digest"] = head_digest(made)
        return {**made, "signature": self.signer.sign("head", made["digest"])}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    store = Archive(tmp_path_factory.mktemp("archive"))
    yield store
    store.scene.ledger.close()


def replaced(records: Records, *others: Entry) -> Records:
    """The entries with others in the place of those with the same key; of several lives, of the
    latest."""
    by_key = {entry["record"]["key"]: entry for entry in others}
    return [by_key.pop(entry["record"]["key"], entry) for entry in records]


def without(records: Records, key: str) -> Records:
    return [entry for entry in records if entry["record"]["key"] != key]


def with_lines(entry: Entry, change: Callable[[list[str]], object]) -> Entry:
    """The entry with other lines in its chain, and nothing else changed."""
    lines = list(entry["record"]["chain"]["lines"])
    change(lines)
    record = {**entry["record"], "chain": {**entry["record"]["chain"], "lines": lines}}
    return {**entry, "record": record}


def test_the_honest_export_is_proved_and_complete(store: Archive) -> None:
    answer = store.verify(store.write(store.first, store.entries), "--complete")
    assert answer.code == 0, answer
    lines = sum(head["lines"][ROUTE] for head in store.heads)
    assert len({entry["record"]["key"] for entry in store.entries}) == 50
    assert (
        f"{len(store.entries)} of {len(store.entries)} records: every line given is under a published head"
        in answer.flat
    )
    assert (
        f"no line of the route up to the head of 2033-11-16 is missing: that head and those before count {lines}, as many as are here"
        in answer.flat
    )
    assert "1 others were written: by a clock that was ahead" in answer.flat


@dataclass(frozen=True)
class Row:
    """One kind of tampering: the file that it makes, the exit code, and what the answer says."""

    what: str
    forge: Callable[[Archive], tuple[dict[str, Any], Records]]
    code: int
    says: tuple[str, ...]
    options: tuple[str, ...] = ()
    heads: Callable[[Archive], list[Head]] = field(default=lambda store: store.heads)


def of(change: Callable[[Archive], Records]) -> Callable[[Archive], tuple[dict[str, Any], Records]]:
    """A file with the honest header and these records."""
    return lambda store: (store.first, change(store))


def header(**fields: Any) -> Callable[[Archive], tuple[dict[str, Any], Records]]:
    """The honest records under a header with these fields."""
    return lambda store: ({**store.first, **fields}, store.entries)


def swapped_lines(store: Archive) -> Records:
    a, b = store.entry("a01"), store.entry("a02")
    a_lines, b_lines = a["record"]["chain"]["lines"], b["record"]["chain"]["lines"]
    return replaced(
        store.entries,
        with_lines(a, lambda lines: lines.__setitem__(slice(None), b_lines)),
        with_lines(b, lambda lines: lines.__setitem__(slice(None), a_lines)),
    )


def another_archive(store: Archive, *keys: str, later: str = "0s") -> Scene:
    """A ledger with a route of the same name and its own head of the first day, or of a later
    one."""
    other = Scene()
    other.clock.advance(later)
    other.through(*keys)
    next_day(other)
    turn(other, store.signer)
    return other


def newer(store: Archive) -> Entry:
    """An invented item that is dated after the newest head."""
    other = Scene()
    other.clock.advance_to(store.scene.clock.now())
    other.through("invented")
    return {"record": exported(other, store.signer)[1][0]["record"]}


def sealed(store: Archive, key: str) -> Entry:
    record = store.entry(key)["record"]
    head = bytes.fromhex(record["chain"]["head"])
    seal = seal_record(
        ROUTE, key, "COMPLETED", "Scout", bytes.fromhex(record["input_digest"]), 0, head
    )
    return {"record": seal, "proof": store.entry(key)["proof"]}


def emptied(store: Archive, key: str) -> Entry:
    record = store.entry(key)["record"]
    head = bytes.fromhex(record["chain"]["head"])
    ended = (record["status"], record["stage"], record["ended_at"])
    removed = forgotten_record(
        ROUTE, key, ended, head, chain_links(record), (0, "ops", "a request")
    )
    return {"record": removed, "proof": store.entry(key)["proof"]}


def named_otherwise(store: Archive) -> Entry:
    """A repeated item under a name that makes the same origin of its chain."""
    record = store.entry("often")["record"]
    return {"record": {**record, "route": "assets\x1foften", "key": ""}}


def first_life_cut(store: Archive) -> Records:
    lives = [entry for entry in store.entries if entry["record"]["key"] == "often"]
    short = store.proved(changed(lives[-1]["record"], lambda lines: lines.pop()))
    return [short if entry is lives[-1] else entry for entry in store.entries]


ROWS = [
    # Lines of a record
    Row("first line cut off", of(lambda s: replaced(s.entries, with_lines(s.entry("a01"), lambda lines: lines.pop(0)))), 1, (", a01, chain.head: the lines lead to",)),
    Row("first line cut off, chain anew", of(lambda s: replaced(s.entries, {"record": changed(s.entry("a01")["record"], lambda lines: lines.pop(0))})), 1, (", a01, chain.lines[0]: line 1 cannot be read, or is another one (it calls itself 2)",)),
    Row("middle line cut out", of(lambda s: replaced(s.entries, with_lines(s.entry("a01"), lambda lines: lines.pop(1)))), 1, (", a01, chain.head: the lines lead to",)),
    Row("middle line cut out, chain anew", of(lambda s: replaced(s.entries, {"record": changed(s.entry("a01")["record"], lambda lines: lines.pop(1))})), 1, (", a01, chain.lines[1]: line 2 cannot be read, or is another one (it calls itself 3)",)),
    Row("last line cut off", of(lambda s: replaced(s.entries, with_lines(s.entry("a01"), lambda lines: lines.pop()))), 1, (", a01, chain.head: the lines lead to",)),
    Row("last line cut off, proof kept", of(lambda s: replaced(s.entries, {"record": s.cut("a01")["record"], "proof": s.entry("a01")["proof"]})), 1, (", a01, proof: it does not lead from the item's last line to its root",)),
    Row("last line cut off, no proof", of(lambda s: replaced(s.entries, {"record": s.cut("a01")["record"]})), 1, ("the file, lines: the heads up to", "1 missing; the last lines of a record were cut off, or a record was left out")),
    Row("last line cut off, proof anew", of(lambda s: replaced(s.entries, s.cut("a01"))), 1, ("the file, lines: the heads up to 2033-11-16 count", "1 missing; the last lines of a record were cut off")),
    Row("last lines of two cut off, proofs anew", of(lambda s: replaced(s.entries, s.cut("a01"), s.cut("b07"))), 1, ("2 missing; the last lines",)),
    Row("last line cut off, newest line of the header set back", lambda s: ({**s.first, "newest": {"place": 1, "at": None}}, replaced(s.entries, s.cut("a01"))), 1, ("1 missing; the last lines",)),
    Row("last line cut off, and called a selection", lambda s: ({**s.first, "choice": {"keys": ["a01"]}}, [s.cut("a01")]), 0, ("that these are the last lines of their items: not known from these files: this is a selection of items",)),
    Row("the same, asked whether it is complete", lambda s: ({**s.first, "choice": {"keys": ["a01"]}}, [s.cut("a01")]), 3, ("that no later line is missing is not known: this is a selection",), ("--complete",)),
    Row("last line of an earlier life cut off, proof anew", of(first_life_cut), 1, (", often, chain.head: life 1 of 4", "the record does not end as line")),
    Row("lines of a record in another order", of(lambda s: replaced(s.entries, with_lines(s.entry("a01"), lambda lines: lines.reverse()))), 1, (", a01, chain.lines[0]: line 1 cannot be read, or is another one",)),
    Row("lines of two items swapped", of(swapped_lines), 1, (", a01, chain.head: the lines lead to", ", a02, chain.head: the lines lead to")),
    Row("a field that no line has", of(lambda s: replaced(s.entries, with_lines(s.entry("a01"), lambda lines: lines.append('{"more":1}')))), 1, (", a01, chain.lines[3]: line 4 cannot be read",)),
    # Items
    Row("a whole item left out", of(lambda s: without(s.entries, "a05")), 1, ("the file, lines: the heads up to 2033-11-16 count", "3 missing", "or a record was left out")),
    Row("a whole item left out, and called a selection", lambda s: ({**s.first, "choice": {"keys": ["all", "others"]}}, without(s.entries, "a05")), 0, ("not known from these files: this is a selection", "anything of the route's other items")),
    Row("an item with all its lives left out", of(lambda s: without(s.entries, "often")), 1, ("or a record was left out",)),
    Row("an earlier life left out", of(lambda s: [entry for entry in s.entries if entry["record"] is not [e for e in s.entries if e["record"]["key"] == "often"][2]["record"]]), 1, (", often, earlier life: life 2 of 4: its record is missing",)),
    Row("an item repeated", of(lambda s: [*s.entries, s.entry("a05")]), 1, (", record: it is the same item as in line",)),
    Row("an item repeated in an earlier state", of(lambda s: [*s.entries, s.cut("a05")]), 1, (", record: it is the same item as in line",)),
    Row("an item repeated under a name with a separator", of(lambda s: [*s.entries, named_otherwise(s)]), 1, ("it has a control character that no name has",)),
    Row("an item repeated with its digest in capitals", of(lambda s: [*s.entries, {"record": {**s.entry("a05")["record"], "input_digest": s.entry("a05")["record"]["input_digest"].upper()}}]), 1, (", a05, input_digest: it is not a digest of 64 hex digits in lower case",)),
    Row("a record replaced by a seal", of(lambda s: replaced(s.entries, sealed(s, "a05"))), 3, (", a05: its digest is under the head of", "what it says does not follow from a digest")),
    Row("a record replaced by one without content", of(lambda s: replaced(s.entries, emptied(s, "a05"))), 3, (", a05: its digest is under the head of",)),
    Row("an invented item", of(lambda s: [*s.entries, exported(another_archive(s, "invented"), s.signer)[1][0] | {"proof": s.entry("a05")["proof"]}]), 1, (", invented, proof: it does not lead",)),
    Row("an invented item without a proof", of(lambda s: [*s.entries, {"record": exported(another_archive(s, "invented"), s.signer)[1][0]["record"]}]), 3, (", invented: it has no proof that a head covers it",)),
    Row("an invented newer item to hide a cut line", of(lambda s: [*replaced(s.entries, s.cut("a01")), newer(s)]), 3, (", invented: it has no proof that a head covers it",)),
    Row("the same, with newer ones allowed", of(lambda s: [*replaced(s.entries, s.cut("a01")), newer(s)]), 3, ("that no line is missing: the heads up to 2033-11-16 count", "are proved to be under them"), ("--allow-newer",)),
    # Files and heads
    Row("records of two exports mixed", lambda s: (s.first, [*without(s.entries, "a05"), s.entry("a05", s.second_evening[1]), s.entry("second", s.first_evening[1])]), 1, (", record: it is the same item as in line",)),
    Row("an earlier state from an earlier export", of(lambda s: replaced(s.entries, s.entry("second", s.first_evening[1]))), 1, ("1 missing; the last lines",)),
    Row("records of another ledger", of(lambda s: [*s.entries, exported(another_archive(s, "other"), s.signer)[1][0]]), 1, (", other, proof: the published head of 2033-11-14 has another root",)),
    Row("an old export with new heads", lambda s: s.second_evening, 0, ("no line of the route up to the head of 2033-11-15 is missing", "what happened since: the heads after 2033-11-15, up to 2033-11-16, count", "more lines of the route")),
    Row("the same, asked whether it is complete", lambda s: s.second_evening, 3, ("it is not the present: the heads after 2033-11-15, up to 2033-11-16, count",), ("--complete",)),
    Row("an old export that says it is new", lambda s: ({**s.second_evening[0], "newest": s.first["newest"], "made_at": s.first["made_at"]}, s.second_evening[1]), 1, ("the file, lines: the heads up to 2033-11-16 count",)),
    Row("a new export with old heads", lambda s: (s.first, s.entries), 3, (", bad: its proof names the head of 2033-11-16, which was not given",), (), lambda s: s.heads[:2]),
    Row("heads of another ledger", lambda s: (s.first, s.entries), 1, (", a05, proof: the published head of 2033-11-14 has another root",), (), lambda s: heads_of(another_archive(s, "other"))),
    Row("heads of another ledger, of other days", lambda s: (s.first, s.entries), 3, (", a05: its proof names the head of 2033-11-14, which was not given",), (), lambda s: heads_of(another_archive(s, "other", later="10d"))),
    Row("a record altered, no proof", of(lambda s: replaced(s.entries, {"record": on_another_volume(s.entry("a05")["record"])})), 3, (", a05: it has no proof that a head covers it: its proof was removed",)),
    Row("a record altered, proof kept", of(lambda s: replaced(s.entries, {**s.entry("a05"), "record": on_another_volume(s.entry("a05")["record"])})), 1, (", a05, proof: it does not lead from the item's last line to its root",)),
    Row("the first head not given", lambda s: (s.first, s.entries), 3, ("its proof names the head of 2033-11-14, which was not given",), (), lambda s: s.heads[1:]),
    Row("a head between not given", lambda s: (s.first, s.entries), 1, ("one or more heads between 2033-11-14 and it are missing",), (), lambda s: [s.heads[0], s.heads[2]]),
    Row("a head that counts fewer lines", lambda s: (s.first, replaced(s.entries, s.cut("bad"))), 1, ("its numbers of lines by route do not add up",), (), lambda s: [*s.heads[:2], s.signed_head(s.heads[2], lines={**s.heads[2]["lines"], ROUTE: s.heads[2]["lines"][ROUTE] - 1})]),
    Row("records in another order", of(lambda s: s.entries[::-1]), 0, ("no line of the route up to the head of 2033-11-16 is missing",)),
    # The header
    Row("another kind of file", header(schema="milepost.evidence-file/2"), 1, ("line 1, schema",)),
    Row("another route", header(route="letters"), 1, (", a05, route: it is of the route 'assets'; the file is of 'letters'",)),
    Row("made before its content", header(made_at="2033-11-14T00:00:00.000Z"), 1, ("line 1, made_at: it says 2033-11-14", "a file is made after its content")),
    Row("a selection called the whole route", lambda s: (s.first, [s.entry("a05")]), 1, ("or a record was left out",)),
    Row("no selection", header(choice=None), 1, ("line 1, choice: the selection of items is missing",)),
    Row("a newest line with more fields", header(newest={"place": 7, "at": None, "more": 1}), 1, ("line 1, newest: it is not a place and a time",)),
    Row("another public key", header(public_key="ed25519:" + "A" * 43 + "="), 1, ("line 1, public_key: it is signed with another key",)),
    Row("a field that no header has", header(more=1), 1, ("line 1, more: a file of evidence has no such field here",)),
    # Fields that no file has
    Row("a field that no record has", of(lambda s: replaced(s.entries, {**s.entry("a05"), "record": {**s.entry("a05")["record"], "more": 1}})), 1, (", a05, more: it does not follow from the lines",)),
    Row("a field that no chain has", of(lambda s: replaced(s.entries, {**s.entry("a05"), "record": {**s.entry("a05")["record"], "chain": {**s.entry("a05")["record"]["chain"], "more": 1}}})), 1, (", a05, chain: it does not follow from the lines",)),
    Row("a field that no proof has", of(lambda s: replaced(s.entries, {**s.entry("a05"), "proof": {**s.entry("a05")["proof"], "more": 1}})), 1, (", a05, proof: it is not a proof",)),
    Row("a covered line beside a proof", of(lambda s: replaced(s.entries, {**s.entry("a05"), "covered": {"lines": 1, "proof": s.entry("a05")["proof"]}})), 1, (", a05, covered: only a record that goes on after the newest head has it",)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row.what for row in ROWS])
def test_each_kind_of_tampering_is_answered_in_its_own_words(store: Archive, row: Row) -> None:
    answer = store.verify(store.write(*row.forge(store)), *row.options, heads=row.heads(store))
    assert answer.code == row.code, answer
    for words in row.says:
        assert words in answer.flat, answer


# Without the key ----------------------------------------------------------------------------------
def honest(store: Archive) -> list[bytes]:
    name = store.write(store.first, store.entries)
    return (store.shell.folder / name).read_bytes().splitlines(keepends=True)


def line_of(store: Archive, key: str) -> int:
    """The line of the honest file in which an item's latest record stands, from 1."""
    return 2 + next(
        place for place, entry in enumerate(store.entries) if entry["record"]["key"] == key
    )


BYTES: dict[str, tuple[Callable[[Archive, list[bytes]], list[bytes]], str]] = {
    "an item left out": (lambda s, lines: [line for line in lines if b'"key":"a05"' not in line], "count: it is 54, but there are 53 records"),
    "an item repeated": (lambda s, lines: [*lines[:2], *lines[1:]], "it is the same item as in line 2"),
    "two records exchanged": (lambda s, lines: [lines[0], lines[2], lines[1], *lines[3:]], "digest: the lines before were changed"),
    "a word changed": (lambda s, lines: [line.replace(b'"key":"a05"', b'"key":"a55"') for line in lines], ", a55, chain.head: the lines lead to"),
    "header left out": (lambda s, lines: lines[1:], "line 1, schema: a file of evidence begins with"),
    "header of another export": (lambda s, lines: [lines[0].replace(b'"choice":{}', b'"choice":{"keys":["a05"]}'), *lines[1:]], "digest: the lines before were changed"),
    "last line left out": (lambda s, lines: lines[:-1], "the last line, with the digest of all others, is missing"),
    "cut within the last record": (lambda s, lines: [*lines[:-2], lines[-2][:200]], "it cannot be read"),
    "cut within the last line": (lambda s, lines: [*lines[:-1], lines[-1][:20]], "it cannot be read"),
    "without the last line end": (lambda s, lines: [*lines[:-1], lines[-1].rstrip()], "it is not in canonical form"),
    "something after the last line": (lambda s, lines: [*lines, b"{}\n"], "there is content after the last line"),
    "two files in one": (lambda s, lines: [*lines, *lines], "there is content after the last line"),
    "names in another order": (lambda s, lines: [b'{"a":1,' + lines[0][1:], *lines[1:]], "line 1, a: a file of evidence has no such field here"),
    "an empty file": (lambda s, lines: [], "the last line, with the digest of all others, is missing"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BYTES)
def test_changed_bytes_are_found_and_named(store: Archive, kind: str) -> None:
    change, says = BYTES[kind]
    body = b"".join(change(store, honest(store)))
    (store.shell.folder / "changed.jsonl").write_bytes(body)
    answer = store.verify("changed.jsonl")
    assert (answer.code, says in answer.flat) == (1, True), answer


def test_a_file_cut_at_any_line_does_not_hold(store: Archive) -> None:
    lines = honest(store)
    for number in (0, 1, 2, line_of(store, "often"), len(lines) - 1):
        (store.shell.folder / "changed.jsonl").write_bytes(b"".join(lines[:number]))
        assert store.verify("changed.jsonl").code == 1, number


# What is not known --------------------------------------------------------------------------------
def test_the_answer_as_json_says_up_to_when_the_file_is_complete(store: Archive) -> None:
    whole = store.verify(store.write(store.first, store.entries), "--json").json
    lines = sum(head["lines"][ROUTE] for head in store.heads)
    assert [
        whole[name] for name in ("answer", "complete_to", "not_complete", "lines", "later_lines")
    ] == [
        "proved",
        "2033-11-16",
        "",
        lines,
        0,
    ]
    old = store.verify(store.write(*store.second_evening), "--json").json
    assert [old[name] for name in ("answer", "complete_to", "later_lines")] == [
        "proved",
        "2033-11-15",
        store.heads[2]["lines"][ROUTE],
    ]
    chosen = store.verify(
        store.write({**store.first, "choice": {"keys": ["a01"]}}, [store.cut("a01")]), "--json"
    ).json
    assert [chosen[name] for name in ("answer", "complete_to")] == ["proved", None]
    assert "this is a selection of items" in chosen["not_complete"]


def test_heads_of_an_earlier_milepost_do_not_tell_whether_lines_are_missing(store: Archive) -> None:
    def uncounted(head: Head, previous: str | None) -> Head:
        bare = {name: value for name, value in head.items() if name not in ("lines", "signature")}
        return store.signed_head({**bare, "schema": "milepost.head/1", "previous": previous})

    first = uncounted(store.heads[0], None)
    second = store.signed_head(store.heads[1], previous=first["digest"])
    heads = [first, second, store.signed_head(store.heads[2], previous=second["digest"])]
    cut = store.write(store.first, replaced(store.entries, store.cut("a01")))
    answer = store.verify(cut, heads=heads)
    assert answer.code == 0, answer
    assert (
        "not known from these files: 1 of the heads, the last of 2033-11-14, do not count the lines of each route"
        in answer.flat
    )
    assert store.verify(cut, "--complete", heads=heads).code == 3


def test_the_first_heads_are_needed_to_know_that_no_line_is_missing(store: Archive) -> None:
    later = [entry for entry in store.entries if entry["proof"]["day"] > "2033-11-14"]
    answer = store.verify(store.write(store.first, later), "--complete", heads=store.heads[1:])
    assert answer.code == 3
    assert (
        "that no later line is missing is not known: the heads before 2033-11-15 were not given"
        in answer.flat
    )


def test_complete_needs_heads(store: Archive) -> None:
    store.write(store.first, store.entries)
    answer = store.shell("verify", "forged.jsonl", "--complete")
    assert (answer.code, "no published head was given (--head)" in answer.flat) == (3, True), answer


def test_items_under_way_are_counted_up_to_the_newest_head(tmp_path: Path) -> None:
    """An archive is never at rest: records that go on after the newest head say how many of their
    lines are under it, and prove it."""
    scene, signer = Scene(), make_key(tmp_path / "key.pem")
    scene.through("a1")
    scene.bring("a2")
    next_day(scene)
    turn(scene, signer)
    scene.tape("a2")
    scene.bring("a3")
    first, records = exported(scene, signer)
    covered = {entry["record"]["key"]: entry.get("covered", {}).get("lines") for entry in records}
    assert covered == {"a1": None, "a2": 2, "a3": None}
    shell = Shell(tmp_path)
    shell.write("heads.json", json.dumps(heads_of(scene)))

    def verified(entries: Records) -> Answer:
        with (tmp_path / "e.jsonl").open("wb") as out:
            fields = (
                (entry["record"], entry.get("proof"), signer, entry.get("covered"))
                for entry in entries
            )
            write_file(out, first, (entry_of(*each) for each in fields), signer)
        return shell("verify", "e.jsonl", "--head", "heads.json", "--allow-newer", "--complete")

    honest = verified(records)
    assert (
        honest.code,
        "no line of the route up to the head of 2033-11-14 is missing" in honest.flat,
    ) == (0, True), honest
    by_key = {entry["record"]["key"]: entry for entry in records}
    fewer = {**by_key["a2"], "covered": {"lines": 1, "proof": by_key["a2"]["covered"]["proof"]}}
    wrong = verified([by_key["a1"], fewer, by_key["a3"]])
    assert (
        wrong.code,
        ", a2, covered: it does not lead from line 1 to its root" in wrong.flat,
    ) == (1, True), wrong
    silent = verified([by_key["a1"], {"record": by_key["a2"]["record"]}, by_key["a3"]])
    assert (silent.code, "that no later line is missing is not known" in silent.flat) == (
        3,
        True,
    ), silent
    scene.ledger.close()


def test_a_forgotten_item_leaves_open_how_many_lines_there_were(tmp_path: Path) -> None:
    scene, signer = Scene(), make_key(tmp_path / "key.pem")
    scene.through("a1", "a2")
    next_day(scene)
    turn(scene, signer)
    forget(scene.ctx, ROUTE, "a1", **SIGNED)
    first, records = exported(scene, signer)
    with (tmp_path / "e.jsonl").open("wb") as out:
        write_file(out, first, records, signer)
    shell = Shell(tmp_path)
    shell.write("heads.json", json.dumps(heads_of(scene)))
    answer = shell("verify", "e.jsonl", "--head", "heads.json", "--complete")
    assert answer.code == 3, answer
    assert ", forgotten:" in answer.flat
    assert (
        "its digest is under the head of 2033-11-14, but what it says does not follow from a digest"
        in answer.flat
    )
    assert (
        "how many lines 1 record had, of which only the seal or digests are left, is not known"
        in answer.flat
    )
    [place] = [place for place, entry in enumerate(records) if "links" in entry["record"]]
    for name, value, says in (
        ("links", records[place]["record"]["links"][:-1], "links: the last digest is not the head"),
        (
            "head",
            "00" * 32,
            "proof: it does not lead from the item's last line to its root for 2033-11-14",
        ),
        ("status", None, ""),
    ):
        altered = {**records[place], "record": {**records[place]["record"], name: value}}
        with (tmp_path / "e.jsonl").open("wb") as out:
            entries_again = [*records[:place], altered, *records[place + 1 :]]
            fields = ((entry["record"], entry.get("proof"), signer) for entry in entries_again)
            write_file(out, first, (entry_of(*each) for each in fields), signer)
        answer = shell("verify", "e.jsonl", "--head", "heads.json")
        assert (answer.code, says in answer.flat) == (1 if says else 3, True), answer
    scene.ledger.close()
