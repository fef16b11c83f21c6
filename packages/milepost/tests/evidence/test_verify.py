"""Offline verification of an evidence file: every alteration is found."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene

from milepost.core.errors import MilepostError, UsageError
from milepost.core.values.json import canonical_json
from milepost.engine.acts.redate import redate_rows
from milepost.evidence.files import BESIDE, entry_of, header, records_in, write_file
from milepost.evidence.signing import Signer, fingerprint, make_key
from milepost.evidence.verdict import KEPT
from milepost.evidence.verify import verify
from milepost.evidence.views import VIEWS

ALTERATIONS = 100


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Path:
    """Four items: two that have left, one on its way, one that failed."""
    scene = Scene()
    scene.through("a1", "a2")
    scene.prune()
    scene.bring("bad", damaged=True)
    return scene.export(tmp_path_factory.mktemp("whole") / "evidence.jsonl", signer)


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory, whole: Path) -> Path:
    path = tmp_path_factory.mktemp("unsigned") / "evidence.jsonl"
    with path.open("wb") as out:
        write_file(
            out,
            header(ROUTE, "2034-01-01T00:00:00.000Z", "0", {}, None, None),
            (entry_of(record, None, None) for record in records_in(whole)),
            None,
        )
    return path


def test_a_whole_file_holds_and_says_whose_signature_it_bears(whole: Path, signer: Signer) -> None:
    verdict = verify(whole, signer.public)
    assert (verdict.holds, verdict.records, verdict.seals, verdict.signed_by) == (
        True,
        4,
        0,
        fingerprint(signer.public),
    )
    assert any("4 of 4 records: the chain is complete" in sentence for sentence in verdict.proved)
    assert any("signed with the key that was given" in sentence for sentence in verdict.proved)
    assert any("that the reported results are true" in sentence for sentence in verdict.not_proved)


def test_without_the_key_it_says_that_nobody_knows_whose_it_is(whole: Path, unsigned: Path) -> None:
    signed = verify(whole)
    assert signed.holds
    assert any("whose key that is" in sentence for sentence in signed.not_proved)
    bare = verify(unsigned)
    assert (bare.holds, bare.signed_by) == (True, None)
    assert any("who wrote this" in sentence for sentence in bare.not_proved)


def test_another_key_or_no_signature_at_all_does_not_hold(
    whole: Path, unsigned: Path, tmp_path: Path, signer: Signer
) -> None:
    other = make_key(tmp_path / "other.pem")
    fields = [difference.field for difference in verify(whole, other.public).differences]
    assert fields == ["public_key", *["signature"] * 5]
    fields = [difference.field for difference in verify(unsigned, signer.public).differences]
    assert fields == ["public_key", *["signature"] * 5]


def test_one_record_can_be_handed_on_alone(whole: Path, tmp_path: Path, signer: Signer) -> None:
    alone = tmp_path / "one.jsonl"
    line = next(
        line for line in whole.read_bytes().splitlines(keepends=True) if b"tape library" in line
    )
    alone.write_bytes(line)
    verdict = verify(alone, signer.public)
    assert (verdict.holds, verdict.records) == (True, 1)
    assert any("handed on by itself" in sentence for sentence in verdict.not_proved)
    assert any(
        "nothing here is signed, or no key was given" in sentence
        for sentence in verify(alone).not_proved
    )
    alone.write_bytes(line.replace(b"tape library", b"nobody at all"))
    assert not verify(alone).holds


# Alterations --------------------------------------------------------------------------------------
Alter = Callable[[random.Random, list[bytes]], list[bytes]]


def flip(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    body = bytearray(b"".join(lines))
    at = dice.randrange(len(body))
    body[at] ^= 1 << dice.randrange(8)
    return [bytes(body)]


def cut(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    body = b"".join(lines)
    start = dice.randrange(len(body))
    return [body[:start] + body[min(len(body), start + dice.randint(1, 400)) :]]


def remove(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    at = dice.randrange(len(lines))
    return lines[:at] + lines[at + 1 :]


def repeat(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    at = dice.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def swap(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    a, b = dice.sample(range(len(lines)), 2)
    lines[a], lines[b] = lines[b], lines[a]
    return lines


def change(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    """Some value anywhere becomes another, and the line is written as it should be."""
    at = dice.randrange(len(lines))
    value = msgspec.json.decode(lines[at])
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        for name, each in (
            inner.items()
            if isinstance(inner, dict)
            else enumerate(inner)
            if isinstance(inner, list)
            else ()
        ):
            places.append((inner, name))
            walk(each)

    walk(value)
    inner, name = dice.choice(places)
    inner[name] = (
        dice.choice([None, "", "x", 7, [], {}, True])
        if not isinstance(inner[name], str)
        else inner[name] + "x"
    )
    return [*lines[:at], canonical_json(value) + b"\n", *lines[at + 1 :]]


def exchange_signatures(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    a, b = dice.sample(range(1, len(lines)), 2)
    one, other = msgspec.json.decode(lines[a]), msgspec.json.decode(lines[b])
    one["signature"], other["signature"] = other["signature"], one["signature"]
    lines[a], lines[b] = canonical_json(one) + b"\n", canonical_json(other) + b"\n"
    return lines


def rewrite(dice: random.Random, lines: list[bytes]) -> list[bytes]:
    """As by one who knows the format and not the key: a record changed, and every digest made
    anew."""
    from hashlib import sha256

    at = dice.randrange(1, len(lines) - 1)
    entry, end = msgspec.json.decode(lines[at]), msgspec.json.decode(lines[-1])
    entry["record"]["correlation_id"] = "another"
    entry["digest"] = sha256(canonical_json(entry["record"])).hexdigest()
    lines[at] = canonical_json(entry) + b"\n"
    end["digest"] = sha256(b"".join(lines[:-1])).hexdigest()
    return [*lines[:-1], canonical_json(end) + b"\n"]


KINDS: list[Alter] = [flip, cut, remove, repeat, swap, change, exchange_signatures, rewrite]


@pytest.mark.parametrize("keyed", [True, False], ids=["with the key", "without"])
def test_each_of_a_hundred_alterations_is_found(
    whole: Path, tmp_path: Path, signer: Signer, keyed: bool
) -> None:
    dice = random.Random(20231114)
    original = whole.read_bytes()
    altered = tmp_path / "altered.jsonl"
    for number in range(ALTERATIONS):
        kind = KINDS[number % len(KINDS)]
        body = b"".join(kind(dice, original.splitlines(keepends=True)))
        if body == original:  # an exchange of equals
            continue
        altered.write_bytes(body)
        verdict = verify(altered, signer.public if keyed else None)
        assert not verdict.holds, (number, kind.__name__)
        assert verdict.differences[0].what


def test_an_unsigned_file_shows_every_alteration_but_one_that_was_made_with_all_digests(
    unsigned: Path, tmp_path: Path
) -> None:
    dice = random.Random(7)
    original = unsigned.read_bytes()
    altered = tmp_path / "altered.jsonl"
    for number in range(60):
        kind = [flip, cut, remove, repeat, swap, change][number % 6]
        altered.write_bytes(b"".join(kind(dice, original.splitlines(keepends=True))))
        assert altered.read_bytes() == original or not verify(altered).holds, (
            number,
            kind.__name__,
        )
    altered.write_bytes(b"".join(rewrite(dice, original.splitlines(keepends=True))))
    assert verify(altered).holds, "that is what signatures are for, and verify says so"


def test_each_difference_is_named_with_line_item_and_field(whole: Path, tmp_path: Path) -> None:
    lines = whole.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"status":"', b'"status":"X', 1)
    altered = tmp_path / "altered.jsonl"
    altered.write_bytes(b"".join(lines))
    key = json.loads(lines[1])["record"]["key"]
    found = [
        (difference.line, difference.key, difference.field)
        for difference in verify(altered).differences
    ]
    assert (2, key, "status") in found
    assert (2, key, "digest") in found
    assert (6, None, "digest") in found


def test_of_very_many_differences_the_first_are_named_and_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "junk.jsonl"
    path.write_bytes(b"{}\n" * 500)
    verdict = verify(path)
    assert verdict.found > 500
    assert len(verdict.differences) == KEPT


NONE = {
    "nothing": b"",
    "half a line": b"{",
    "an empty object": b"{}\n",
    "no text": b"{\xff}\n",
    "an empty record": b'{"record":{}}\n',
    "no record": b'{"record":null}\n',
    "a header alone": b'{"schema":"milepost.evidence-file/1"}\n',
    "depths": b'{"a":' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", NONE.values(), ids=NONE.keys())
def test_what_is_no_evidence_does_not_hold(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(body)
    assert not verify(path).holds


def test_a_file_that_is_not_there_is_an_error_and_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(MilepostError, match="cannot read"):
        verify(tmp_path / "none")
    (tmp_path / "alone.csv").write_text("route,key\n")
    with pytest.raises(UsageError, match="is not beside it"):
        verify(tmp_path / "alone.csv")


# Views --------------------------------------------------------------------------------------------
@pytest.fixture(params=["csv", "premis"])
def view(request: pytest.FixtureRequest, tmp_path: Path, whole: Path, signer: Signer) -> Path:
    path = tmp_path / f"evidence.{request.param}"
    beside = path.with_name(path.name + BESIDE)
    with beside.open("wb") as out:
        first = header(ROUTE, "2034-01-01T00:00:00.000Z", "0", {}, request.param, signer)
        write_file(
            out, first, (entry_of(record, None, signer) for record in records_in(whole)), signer
        )
    path.write_text(
        "".join(VIEWS[request.param](lambda: records_in(beside), first)), encoding="utf-8"
    )
    return path


def test_a_view_holds_if_it_says_what_the_records_say(view: Path, signer: Signer) -> None:
    verdict = verify(view, signer.public)
    assert (verdict.holds, verdict.records) == (True, 4)
    assert any("no more and no less" in sentence for sentence in verdict.proved)


def test_a_view_that_was_altered_does_not_hold(view: Path) -> None:
    dice = random.Random(3)
    original = view.read_bytes()
    for kind in (flip, cut, remove, repeat, swap) * 6:
        view.write_bytes(b"".join(kind(dice, original.splitlines(keepends=True))))
        if view.read_bytes() == original:
            continue
        try:
            assert not verify(view).holds, kind.__name__
        except UsageError:
            pytest.fail("the evidence stands beside it")
    view.write_bytes(original)
    beside = view.with_name(view.name + BESIDE)
    beside.write_bytes(beside.read_bytes().replace(b"tape library", b"nobody at all"))
    assert not verify(view).holds


def test_evidence_that_was_not_written_for_a_view_proves_none(view: Path, whole: Path) -> None:
    view.with_name(view.name + BESIDE).write_bytes(whole.read_bytes())
    assert [difference.field for difference in verify(view).differences] == ["view"]


def test_an_item_that_was_dated_in_the_future_and_redated_is_no_contradiction(
    tmp_path: Path,
) -> None:
    archive = Scene()
    archive.clock.advance("3d")
    archive.bring("a1")
    archive.clock.set_back("3d")
    assert verify(archive.export(tmp_path / "before.jsonl")).found, (
        "the file is made before its content"
    )
    assert redate_rows(archive.ctx, ROUTE, **SIGNED).done == 1
    archive.clock.advance("1h")
    archive.tape("a1")
    verdict = verify(archive.export(tmp_path / "after.jsonl"))
    assert (verdict.holds, verdict.redated) == (True, 1)
    assert (
        "when the lines before 1 others were written: by a clock that was ahead, as those say"
        in verdict.not_proved
    )
