"""`list` and `export` say that an item of a paused lane is paused, not due."""

from __future__ import annotations

import csv
import io

import pytest
from tests.cli.conftest import Shell

BECAUSE = "parcels/delivered/north is paused by ops: a test"


@pytest.fixture
def paused(shell: Shell) -> Shell:
    shell.submit(
        {"id": "N", "depot": "north"}, {"id": "S", "depot": "south"}, {"id": "B", "busy": True}
    )
    shell.ok("work", "--until-idle", "0.2")
    assert shell.signed("pause", "parcels", "--stage", "delivered", "--lane", "north").code == 0
    return shell


def test_the_table_says_paused_and_names_each_pause_once(paused: Shell) -> None:
    said = paused.ok("list", "parcels", "--status", "live").out
    lines = {line.split()[0]: line for line in said.splitlines() if line[:2] in ("N ", "S ")}
    assert lines["N"].rstrip().endswith("paused")
    assert " in 14 d" in lines["S"]
    assert said.splitlines().count(BECAUSE) == 1
    assert BECAUSE in paused.ok("list", "parcels", "--next").flat


def test_json_and_csv_name_the_pause(paused: Shell) -> None:
    items = {item["key"]: item for item in paused.ok("list", "parcels", "--json").json["items"]}
    single = paused.ok("show", "parcels", "N", "--json").json
    for view in (items["N"], single):
        assert (view["blocked"], view["blocked_because"], len(view["pauses"])) == (
            "paused",
            BECAUSE,
            1,
        )
    assert (items["S"]["blocked"], items["B"]["blocked"]) == (None, None)
    rows = csv.DictReader(io.StringIO(paused.ok("export", "parcels", "--format", "csv").out))
    assert {row["key"]: row["blocked_because"] for row in rows} == {"N": BECAUSE, "S": "", "B": ""}


def test_a_failed_attempt_and_a_pause_are_both_shown(shell: Shell) -> None:
    shell.write(
        "parcels.py",
        shell.folder.joinpath("parcels.py").read_text().replace("base=0.05", "base=3600"),
    )
    shell.submit({"id": "B", "busy": True})
    shell.ok("work", "--until-idle", "0.2")
    assert shell.signed("pause", "parcels", "--stage", "weigh").code == 0
    said = shell.ok("list", "parcels").out
    assert "paused; BUSY: the scale is busy" in said
