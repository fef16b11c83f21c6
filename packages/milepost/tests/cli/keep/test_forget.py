"""`milepost forget` from the command line."""

from __future__ import annotations


def test_forget_removes_the_content_and_lists_what_stays(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "Jane-Roe", "torn": true}')
    shell.ok("work", "--until-idle")
    refused = shell("forget", "parcels", "Jane-Roe")
    assert (refused.code, "--by NAME and --reason TEXT missing" in refused.flat) == (2, True)
    preview = shell.ok("forget", "parcels", "Jane-Roe", "--dry-run")
    assert "content would be removed" in preview.out
    done = shell.signed("forget", "parcels", "Jane-Roe")
    assert done.code == 0
    assert "parcels/Jane-Roe (REJECTED): content removed, with that of 2 history lines." in done.out
    assert "It is known as forgotten:" in done.out
    assert "What stays:" in done.out
    for phrase in (
        "backups of ",
        "what was exported, printed or logged before",
        "sqlite3 FILE VACUUM",
    ):
        assert phrase in done.out
    shown = shell.ok("show", "parcels", "Jane-Roe").flat
    assert "Its content was removed by 'milepost forget'" in shown
    assert (
        "already known, REJECTED"
        in shell.ok("submit", "parcels", "--item", '{"id": "Jane-Roe"}').out
    )
    assert (
        "its content had been removed before" in shell.signed("forget", "parcels", "Jane-Roe").out
    )
    acts = shell.ok("acts", "--json")
    assert [act["verb"] for act in acts.json["acts"]] == ["forget", "forget"]
    assert "Jane-Roe" not in acts.out
    assert "torn" not in shell.ok("groups").out


def test_forget_refuses_a_live_item(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "P-1"}')
    refused = shell.signed("forget", "parcels", "P-1")
    assert refused.code == 1
    assert (
        "parcels/P-1: it has not ended (QUEUED): a worker or a partner may still need its content; cancel it first"
        in refused.flat
    )
    assert shell.signed("forget", "parcels", "P-9").code != 0
