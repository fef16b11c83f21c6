"""`status` names failed items whose rows have left the ledger."""

from __future__ import annotations

from tests.cli.conftest import Shell


def test_status_names_failed_items_that_have_left(shell: Shell) -> None:
    shell.submit({"id": "A", "torn": True}, {"id": "B", "torn": True}, {"id": "C"})
    shell.ok("work", "--until-idle", "0.2")
    assert "left the ledger" not in shell.ok("status").out
    assert "left_failed" not in shell.ok("status", "--json").json["routes"]["parcels"]
    assert shell.signed("prune", "parcels", "--older-than", "0s", "--status", "failed").code == 0
    said = shell.ok("status").out
    assert (
        "2 failed items have left the ledger; their seals say so: milepost list parcels --status failed\n"
        in said
    )
    found = shell.ok("status", "--json").json["routes"]["parcels"]["left_failed"]
    assert (found["count"], found["more"], found["known"]) == (2, False, True)
    assert "A" in shell.ok("list", "parcels", "--status", "failed").out
