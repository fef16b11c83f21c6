"""Proofs by daily heads, and forgeries that they reveal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene
from tests.evidence.heads_scene import Envelope, RecordingSubscriber, next_day, turn

from milepost.core.errors import UsageError
from milepost.engine.heads.daily import last_head, prover
from milepost.engine.retention import prune
from milepost.evidence.heads import Heads, head_digest, read_heads
from milepost.evidence.record import differences
from milepost.evidence.signing import Signer, make_key
from milepost.evidence.verify import verify
from milepost_testing import drain


@pytest.fixture
def told(archive: Scene, signer: Signer) -> list[Envelope]:
    """Two days of events as a subscriber has kept them."""
    ear = RecordingSubscriber()
    for day in ("a", "b"):
        archive.through(f"{day}1", f"{day}2")
        next_day(archive)
        turn(archive, signer)
    drain(archive.ctx, archive.clock, subscribers=[ear])
    return ear.heads()


def kept_at(path: Path, envelopes: Iterable[Envelope]) -> Path:
    path.write_text(
        "".join(json.dumps(envelope) + "\n" for envelope in envelopes), encoding="utf-8"
    )
    return path


def test_records_are_proved_to_end_under_the_heads_that_were_told(
    archive: Scene, told: list[Envelope], signer: Signer, tmp_path: Path
) -> None:
    archive.bring("today")
    path = archive.export(tmp_path / "evidence.jsonl", signer)
    given = Heads(read_heads([kept_at(tmp_path / "events", told)]), signer.public)
    verdict = verify(path, signer.public, given)
    assert (verdict.holds, verdict.records, verdict.under_heads) == (True, 5, 4)
    assert "4 of 5 records: every line given is under a published head" in verdict.proved


def test_a_record_that_left_after_its_head_is_proved_under_it_too(
    archive: Scene, told: list[Envelope], tmp_path: Path
) -> None:
    archive.clock.advance("1h")
    archive.bring("newest")
    report = prune(archive.ctx, ROUTE, 0, **SIGNED)
    assert report.items == 4
    assert differences(archive.record("a1")) == []
    verdict = verify(
        archive.export(tmp_path / "evidence.jsonl"),
        None,
        Heads(read_heads([kept_at(tmp_path / "events", told)])),
    )
    assert (verdict.holds, verdict.under_heads) == (True, 4)


def test_lines_stay_until_a_head_covers_them(archive: Scene) -> None:
    archive.through("a1", "a2", "a3", "a4")
    next_day(archive)
    turn(archive)
    archive.through("c1")
    archive.clock.advance("1h")
    report = prune(archive.ctx, ROUTE, 0, **SIGNED)
    assert report.items == 5
    assert "stay until a daily head covers them" in str(report)
    assert archive.ledger.get([(ROUTE, "c1")]) == [None]
    assert archive.ledger.history(ROUTE, "a1") == []
    lines = archive.ledger.history(ROUTE, "c1")
    assert lines
    next_day(archive)
    turn(archive)
    assert int(last_head(archive.ctx)["up_to"]) >= lines[-1].seq  # type: ignore[index]
    prune(archive.ctx, ROUTE, 0, **SIGNED)
    assert archive.ledger.history(ROUTE, "c1") == []


def test_a_ledger_that_was_written_anew_does_not_fit_the_heads_that_were_told(
    told: list[Envelope], signer: Signer, tmp_path: Path
) -> None:
    """Everything else about it is in order: chains, digests, signatures."""
    forged = Scene()
    for day in ("a", "b"):
        forged.through(f"{day}1", f"{day}2")
        next_day(forged)
        turn(forged, signer)
        forged.clock.advance("7s")
    path = forged.export(tmp_path / "evidence.jsonl", signer)
    assert verify(path, signer.public).holds
    verdict = verify(
        path, signer.public, Heads(read_heads([kept_at(tmp_path / "events", told)]), signer.public)
    )
    assert not verdict.holds
    assert {difference.field for difference in verdict.differences} == {"proof"}


def test_heads_that_were_altered_are_found(
    told: list[Envelope], signer: Signer, tmp_path: Path
) -> None:
    first, second = (envelope["data"]["note"] for envelope in told)
    other = make_key(tmp_path / "other.pem")
    assert Heads([first, second], signer.public).faults == []
    assert "not signed with the given key" in Heads([first], other.public).faults[0][1]
    assert "its digest does not match" in Heads([{**first, "count": 1}]).faults[0][1]
    forged = {**second, "previous": "00" * 32}
    forged["digest"] = head_digest(forged)
    assert "does not follow the head of" in Heads([first, forged]).faults[0][1]
    twice = {**first, "count": 1}
    twice["digest"] = head_digest(twice)
    assert "two different heads of this day" in Heads([first, twice]).faults[0][1]
    assert "has no 'root'" in Heads([{"schema": first["schema"], "day": "x"}]).faults[0][1]


def test_a_proof_that_leads_elsewhere_is_found(
    archive: Scene, told: list[Envelope], tmp_path: Path
) -> None:
    from milepost.evidence.files import entry_of, header, write_file

    found = archive.found("a1")
    proof = prover(archive.ctx).proof(found.place, bytes.fromhex(found.record["chain"]["head"]))
    assert proof is not None
    wrong = [
        {**proof, "path": proof["path"][:-1]},
        {**proof, "root": "00" * 32},
        {**proof, "path": [["up", "00"]]},
        {"day": "2033-11-14"},
        7,
    ]
    for each in wrong:
        path = tmp_path / "evidence.jsonl"
        with path.open("wb") as out:
            write_file(
                out,
                header(ROUTE, "2034-01-01T00:00:00.000Z", "0", {}, None, None),
                [entry_of(found.record, each, None)],
                None,
            )  # type: ignore[arg-type]
        assert [difference.field for difference in verify(path).differences] == ["proof"], each


def test_heads_are_read_in_whatever_envelope_they_came(
    told: list[Envelope], tmp_path: Path
) -> None:
    first, second = (envelope["data"]["note"] for envelope in told)
    forms = {
        "lines": "\n".join(json.dumps(envelope) for envelope in told),
        "list": json.dumps(told),
        "bare": json.dumps([first, second]),
        "in a message": json.dumps(
            [{"Type": "Notification", "Message": json.dumps(envelope)} for envelope in told]
        ),
    }
    for name, text in forms.items():
        path = tmp_path / "events"
        path.write_text(text)
        assert read_heads([path]) == [first, second], name
    for text in ("{}", "not json", '{"a": "milepost.head/1 {"}'):
        path.write_text(text)
        with pytest.raises(UsageError, match="--head"):
            read_heads([path])
    with pytest.raises(UsageError, match="cannot read"):
        read_heads([tmp_path / "none"])
