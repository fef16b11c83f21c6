"""`milepost upgrade` on a file."""

from __future__ import annotations


def test_a_file_has_nothing_to_upgrade(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id":"p1"}')
    signed = ("--by", "ops", "--reason", "new version")
    assert shell.ok("upgrade", *signed).out.startswith(
        "This ledger is brought up to date whenever it is opened"
    )
    assert shell.ok("upgrade", *signed, "--json").json == {
        "before": None,
        "after": None,
        "documents": 0,
        "older_processes": [],
        "dry_run": False,
    }
    assert shell("upgrade").code == 2
