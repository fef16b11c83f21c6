"""`milepost backup` and `milepost restore`, as an operator calls them."""

from __future__ import annotations

import json
from typing import Any


def test_backup_and_restore(shell: Any) -> None:
    shell.submit({"id": "A"}, {"id": "B"})
    shell.ok("work", "--until-idle")
    said = shell.ok("backup", "copy.db").out
    assert said.startswith("copy.db: 2 items, 0 seals (")
    assert said.rstrip().endswith("checked.")
    again = shell("backup", "copy.db")
    assert (again.code, "--overwrite" in again.err) == (2, True)
    assert json.loads(shell.ok("backup", "copy.db", "--overwrite", "--json").out)["items"] == 2

    shell.submit({"id": "C"})
    refused = shell("restore", "copy.db")
    assert (refused.code, "--overwrite renames it" in refused.err) == (2, True)
    report = json.loads(shell.ok("restore", "copy.db", "--overwrite", "--json").out)
    assert (report["items"], report["ledger"], report["file"]) == (2, "milepost.db", "copy.db")
    assert shell("show", "parcels", "C").code == 1
    assert "C" in shell.ok("--ledger", report["set_aside"], "list", "parcels").out
    assert "from copy.db: 2 items" in shell.ok("--ledger", "new.db", "restore", "copy.db").out
    assert (
        json.loads(shell.ok("--ledger", "new.db", "show", "parcels", "A", "--json").out)["stage"]
        == "delivered"
    )


def test_what_cannot_be_backed_up_or_restored_says_what_would_do(shell: Any) -> None:
    assert "there is no ledger at milepost.db" in shell("backup", "copy.db").err
    shell.submit({"id": "A"})
    assert (
        "there is no backup none.db; give the file that 'milepost backup' wrote"
        in shell("restore", "none.db").err
    )
    assert (
        "point-in-time recovery"
        in shell("--ledger", "dynamodb://eu-west-2/try", "restore", "copy.db").err
    )
    shell.write("broken.db", "no ledger" * 1000)
    answer = shell("restore", "broken.db", "--overwrite")
    assert (answer.code, "not a SQLite file" in answer.err) == (1, True)
    (shell.folder / "milepost.db-wal").write_bytes(b"left")
    answer = shell("restore", "broken.db", "--overwrite")
    assert (answer.code, "milepost.db-wal exists" in answer.err) == (1, True)
