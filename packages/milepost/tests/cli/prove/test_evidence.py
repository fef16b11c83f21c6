"""Evidence on the command line: export by an operator, verification by a third party."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import ROUTES, Answer, Shell


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with three parcels: one under way, one that failed, and one that failed, was
    cancelled and has left."""
    shell = Shell(tmp_path_factory.mktemp("shell"))
    shell.write("parcels.py", ROUTES.replace('key="id"', 'key="id", evidence=True'))
    shell.write("milepost.toml", 'routes = ["parcels.py"]\n')
    shell.submit({"id": "gone", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    shell.submit({"id": "A"}, {"id": "B", "torn": True})
    shell.ok("prune", "parcels", "--older-than", "0s", "--by", "ops", "--reason", "a test")
    shell.ok("work", "--until-idle", "0.2")
    assert shell.ok("signing-key", "key.pem", "--json").json["fingerprint"].startswith("sha256:")
    return shell


def public(shell: Shell) -> str:
    from milepost.evidence.signing import public_text, read_signer

    return public_text(read_signer(shell.folder / "key.pem").public)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_is_exported_and_signed_is_verified_with_the_public_key(shell: Shell) -> None:
    report = shell.ok("export", "parcels", "--sign", "key.pem", "-o", "e.jsonl", "--json").json
    assert (report["records"], report["file"], report["doubts"]) == (3, "e.jsonl", [])
    first, *records, last = lines(shell.folder / "e.jsonl")
    assert sorted(entry["record"]["key"] for entry in records) == ["A", "B", "gone"]  # type: ignore[index]
    assert (first["route"], last["count"], last["digest"]) == ("parcels", 3, report["digest"])
    verdict = shell.ok("verify", "e.jsonl", "--public-key", public(shell), "--json").json
    assert (verdict["holds"], verdict["records"], verdict["signed_by"]) == (
        True,
        3,
        report["signed_by"],
    )
    told = shell.ok("verify", "e.jsonl").out
    assert told.startswith("e.jsonl holds: 3 records.\nIt is the whole route 'parcels', as of ")
    assert "Proved:\n  - 3 of 3 records" in told
    assert "whose key that is" in told


def test_verify_names_each_record_with_its_stages_volumes_and_head(shell: Shell) -> None:
    shell.submit({"id": "V"})
    shell.ok("work", "--until-idle", "0.2")
    at = shell.ok("show", "parcels", "V", "--json").json["stage"]
    volumes = '{"p/1.tif": ["T1", "T2"], "p/2.tif": ["T1"]}'
    shell.ok(
        "confirm",
        "parcels",
        "V",
        "--stage",
        at,
        "--by",
        "tape library",
        "--reason",
        "on tape",
        "--output",
        volumes,
    )
    shell.ok("export", "parcels", "V", "A", "--evidence", "-o", "v.jsonl")
    found = shell.ok("verify", "v.jsonl", "--json").json
    assert (found["whole"], found["choice"]) == (False, {"keys": ["V", "A"]})
    first, second = found["items"]
    assert (first["key"], first["holds"], first["sealed"], second["key"]) == ("V", True, False, "A")
    stage = next(one for one in first["stages"] if one["stage"] == at)
    assert (stage["how"], stage["by"], stage["files"], stage["volumes"]) == (
        "confirmed",
        "tape library",
        2,
        ["T1", "T2"],
    )
    assert stage["at"].endswith("Z")
    told = shell.ok("verify", "v.jsonl").out
    assert "It is a selection from route 'parcels'" in told
    assert "anything of the route's other items" in told
    assert f"  {at}: confirmed {stage['at']} by tape library, 2 files on T1, T2" in told


def test_verify_names_twenty_records_or_all(shell: Shell, tmp_path: Path) -> None:
    from milepost.evidence.files import entry_of, header, write_file
    from milepost.evidence.record import seal_record

    seals = [
        seal_record("parcels", f"V-{n}", "COMPLETED", "weigh", b"d" * 32, 0, b"h" * 32)
        for n in range(23)
    ]
    first = header("parcels", "2033-01-01T00:00:00.000Z", "0", {}, None, None)
    with (tmp_path / "many.jsonl").open("wb") as out:
        write_file(out, first, (entry_of(seal, None, None) for seal in seals), None)
    many = str(tmp_path / "many.jsonl")
    few = shell.ok("verify", many).out
    assert (few.count("\nV-"), "… and 3 more; --all prints them" in few) == (20, True)
    assert ("\n" + shell.ok("verify", many, "--all").out).count("\nV-") == 23
    assert len(shell.ok("verify", many, "--json").json["items"]) == 23


def test_an_export_to_premis_of_nothing_is_refused(shell: Shell) -> None:
    refused(
        shell("export", "parcels", "--format", "premis", "--lane", "nowhere", "-o", "none.xml"),
        1,
        "nothing was written",
    )
    assert not list(shell.folder.glob("*none.xml*"))


def test_what_was_altered_is_named_and_the_exit_code_says_so(shell: Shell) -> None:
    shell.ok("export", "parcels", "B", "--evidence", "-o", "b.jsonl")
    path = shell.folder / "b.jsonl"
    path.write_text(path.read_text().replace('"status":"REJECTED"', '"status":"COMPLETED"'))
    answer = shell("verify", "b.jsonl")
    assert answer.code == 1
    assert "does NOT hold" in answer.out
    assert "line 2, B, status: it does not follow from the lines" in answer.out
    found = shell("verify", "b.jsonl", "--json").json
    assert (found["holds"], found["proved"]) == (False, [])
    assert {
        "line": 2,
        "field": "status",
        "what": "it does not follow from the lines",
        "key": "B",
    } in found["differences"]


def test_csv_and_premis_stand_beside_the_evidence_they_are_made_from(shell: Shell) -> None:
    for form in ("csv", "premis"):
        name = f"e.{form}"
        shell.ok("export", "parcels", "--format", form, "--sign", "key.pem", "--out", name)
        assert (shell.folder / f"{name}.evidence.jsonl").exists()
        assert "no more and no less" in shell.ok("verify", name, "--public-key", public(shell)).out
        body = (shell.folder / name).read_text()
        (shell.folder / name).write_text(body.replace("torn", "worn"))
        assert shell("verify", name).code == 1


def test_conditions_choose_among_rows_and_those_that_have_left(shell: Shell) -> None:
    shell.ok("export", "parcels", "--evidence", "--status", "failed", "-o", "f.jsonl")
    entries = lines(shell.folder / "f.jsonl")[1:-1]
    assert sorted(entry["record"]["key"] for entry in entries) == ["B", "gone"]  # type: ignore[index]
    written = shell.ok("export", "parcels", "gone", "--evidence")
    assert json.loads(written.out.splitlines()[1])["record"]["status"] == "REJECTED"
    assert "1 record, not signed" in written.err


def test_a_head_is_published_by_hand_and_proves_what_it_covers(shell: Shell) -> None:
    assert "No head published yet" in shell.ok("heads").out
    shell.write("milepost.toml", 'routes = ["parcels.py"]\nsigning_key = "key.pem"\n')
    head = shell.ok("heads", "publish", "--json").json["head"]
    shell.write("milepost.toml", 'routes = ["parcels.py"]\n')
    assert (head["count"] > 0, head["public_key"]) == (True, public(shell))
    assert head["root"] in shell.ok("heads").out
    assert shell.ok("heads", "--json").json == {"heads": [head]}
    assert "nothing was changed" in shell.ok("heads", "publish").out
    assert "heads" not in shell.ok("status").out
    assert shell.ok("status", "--json").json["routes"]["heads"]["total"] == 1
    shell.write("events.json", json.dumps({"data": {"note": head}}))
    shell.ok("export", "parcels", "A", "B", "--evidence", "-o", "h.jsonl")
    assert (
        "2 of 2 records: every line given is under a published head"
        in shell.ok("verify", "h.jsonl", "--head", "events.json").out
    )


def refused(answer: Answer, code: int, said: str) -> None:
    assert answer.code == code, answer
    assert said in answer.err, answer


def test_what_cannot_be_done_is_said_with_what_can(shell: Shell) -> None:
    refused(
        shell("export", "parcels", "never", "--evidence"),
        1,
        "has never had an item with the key 'never'",
    )
    refused(shell("export", "parcels", "never"), 1, "use --evidence")
    refused(shell("export", "parcels", "A", "--status", "failed"), 2, "give either keys or filters")
    refused(shell("export", "parcels", "--format", "premis"), 2, "premis needs --out FILE")
    refused(shell("export", "parcels", "--evidence", "--history"), 2, "evidence includes it")
    refused(shell("export", "parcels", "--json"), 2, "--json prints a summary")
    refused(shell("export", "parcels", "--sign", "none.pem"), 2, "milepost signing-key none.pem")
    refused(shell("signing-key", "key.pem"), 1, "not overwritten")
    refused(shell("verify", "none.jsonl"), 1, "cannot read none.jsonl")
    refused(shell("verify", "parcels.py"), 2, "is a view, and its evidence file")
    refused(shell("verify", "parcels.py", "--public-key", "ed25519:x"), 2, "--public-key")


def test_export_of_keys_gives_items_as_they_stand(shell: Shell) -> None:
    assert [
        json.loads(line)["key"] for line in shell.ok("export", "parcels", "B", "A").out.splitlines()
    ] == ["B", "A"]


def test_a_damaged_ledger_is_exported_as_it_is_and_said_to_be_so(
    shell: Shell, tmp_path: Path
) -> None:
    shell = Shell(Path(shutil.copytree(shell.folder, tmp_path / "own")))
    shell.ok("heads", "publish")
    shutil.copy(shell.folder / "milepost.db", shell.folder / "copy.db")
    with sqlite3.connect(shell.folder / "copy.db") as connection:
        connection.execute(
            "UPDATE history SET body = CAST(replace(CAST(body AS TEXT), 'torn', 'worn') AS BLOB)"
        )
    connection.close()
    answer = shell(
        "export", "parcels", "A", "B", "--evidence", "-o", "d.jsonl", "--ledger", "copy.db"
    )
    assert answer.code == 1
    assert "B: chain.head: the lines lead to" in answer.err, answer
    assert "2 records not fully supported by the ledger" in answer.err, (
        "and the copy has no trees of heads"
    )
    assert "line 3, B, chain.head" in shell("verify", "d.jsonl").out


def test_verify_answers_with_three_exit_codes(shell: Shell) -> None:
    shell.ok("heads", "publish")
    [published] = shell.ok("heads", "--json").json["heads"]
    head = {
        name: value for name, value in published.items() if name not in ("signature", "public_key")
    }
    shell.write("events.json", json.dumps({"data": {"note": head}}))
    shell.ok("export", "parcels", "A", "B", "--evidence", "--sign", "key.pem", "-o", "h.jsonl")
    key = public(shell)
    assert shell("verify", "h.jsonl", "--head", "events.json").code == 0
    assert "newest head given:" in shell.ok("verify", "h.jsonl", "--head", "events.json").flat
    both = shell("verify", "h.jsonl", "--head", "events.json", "--public-key", key)
    assert (both.code, "proves nothing" in both.flat) == (3, False)
    assert "h.jsonl holds: 2 records, but 1 point not proved by what was given." in both.out
    assert f"whose the heads are is not proved: not signed: {head['day']}" in both.out
    shell.ok("submit", "parcels", "--item", '{"id": "later"}')
    shell.ok("export", "parcels", "A", "later", "--evidence", "--sign", "key.pem", "-o", "l.jsonl")
    later = shell("verify", "l.jsonl", "--head", "events.json")
    assert (later.code, "line 3, later: it has no proof that a head covers it" in later.out) == (
        3,
        True,
    )
    assert (
        shell("verify", "l.jsonl", "--head", "events.json", "--json").json["answer"] == "unproved"
    )
    assert shell("verify", "l.jsonl", "--head", "events.json", "--allow-newer").code == 0
    wrong = {**head, "count": head["count"] + 1}
    shell.write("wrong.json", json.dumps({"data": {"note": wrong}}))
    assert shell("verify", "h.jsonl", "--head", "wrong.json").code == 1
