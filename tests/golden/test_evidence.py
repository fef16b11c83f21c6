"""Evidence: exported files, daily heads, the shapes of control documents, and how ids and digests
are made."""

from __future__ import annotations

import json
from pathlib import Path

from tests.golden import internals
from tests.golden.history import LEDGER, milepost
from tests.golden.masks import masked, steady
from tests.golden.recording import Recorder


def test_an_exported_file_is_as_recorded_and_holds(copy: Path, golden: Recorder) -> None:
    answer = milepost("export", "parcels", "--evidence", "--out", "evidence.jsonl", "--json")
    assert answer.code == 0, answer.err
    lines = [
        masked(json.loads(line))
        for line in Path("evidence.jsonl").read_text(encoding="utf-8").split("\n")
        if line
    ]
    golden.json("evidence/header.json", lines[0])
    golden.json("evidence/footer.json", lines[-1])
    golden.json(
        "evidence/records.json", sorted(lines[1:-1], key=lambda line: str(line["record"]["key"]))
    )
    golden.json("evidence/export.json", masked(answer.json))
    verdict = milepost("verify", "evidence.jsonl", "--json")
    assert verdict.code == 0, verdict.out
    golden.json("evidence/verify.json", _sorted(masked(verdict.json)))
    golden.text("prose/evidence/verify.txt", steady(milepost("verify", "evidence.jsonl").out))


def _sorted(verdict: dict[str, object]) -> dict[str, object]:
    items = verdict["items"]
    assert isinstance(items, list)
    return {**verdict, "items": sorted(items, key=lambda item: str(item["key"]))}


def test_premis_and_csv_are_as_recorded(copy: Path, golden: Recorder) -> None:
    for form in ("premis", "csv"):
        answer = milepost(
            "export",
            "parcels",
            "done",
            "gone",
            "--evidence",
            "--format",
            form,
            "--out",
            f"out.{form}",
        )
        assert answer.code == 0, answer.err
        golden.text(
            f"evidence/export.{'xml' if form == 'premis' else form}",
            steady(Path(f"out.{form}").read_text(encoding="utf-8")),
        )


def test_daily_heads_are_as_recorded(copy: Path, golden: Recorder) -> None:
    golden.json("evidence/heads.json", masked(milepost("heads", "--json").json))


def test_daily_heads_count_every_line_of_an_item_whatever_happened_to_it(copy: Path) -> None:
    """The golden ledger has an item for each verb and each reason of a line."""
    Path("heads.json").write_text(milepost("heads", "--json").out, encoding="utf-8")
    milepost("export", "parcels", "--evidence", "--out", "evidence.jsonl")
    answer = milepost(
        "verify", "evidence.jsonl", "--head", "heads.json", "--allow-newer", "--complete", "--json"
    )
    assert (answer.code, answer.json["complete_to"], answer.json["later_lines"]) == (
        0,
        "2033-11-18",
        0,
    ), answer.out


def test_blobs_of_rows_that_have_left_are_as_recorded(copy: Path, golden: Recorder) -> None:
    folder = copy / f"{LEDGER.partition(':///')[2]}-blobs" / "evidence"
    kept = [
        json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("*") if path.is_file()
    ]
    for record in kept:
        record["place"] = "SEQ"
    golden.json(
        "evidence/kept.json", sorted(masked(kept), key=lambda one: str(one["record"]["key"]))
    )


def test_control_documents_have_the_recorded_shapes(golden: Recorder) -> None:
    """Each kind of document with its fields; the golden ledger's own are in
    `sqlite/rows/document.json`."""
    golden.json("evidence/documents.json", internals.document_shapes())


def test_ids_and_digests_are_made_as_recorded(golden: Recorder) -> None:
    golden.json("evidence/digests.json", internals.digests())
