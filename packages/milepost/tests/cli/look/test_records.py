"""Recorded lists, acts and histories on the command line; a changed history is detected, and hints
can be run as printed."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

YOU = "--by YOU --reason '…'"


def _say(shell, hint: str):
    """Run a hint as printed."""
    words = shlex.split(hint)
    assert words[0] == "milepost"
    return shell(*words[1:])


@pytest.fixture
def listed(shell):
    """Three lists, two of one name."""
    shell.write("march.txt", "A\nB\nC\n")
    shell.write("april.csv", "id,torn\nD,yes\nE,\n")
    shell.ok("submit", "parcels", "march.txt", "--full", "--by", "ops")
    shell.write("march.txt", "B\nC\nF\n")
    shell.ok("submit", "parcels", "march.txt", "--full")
    shell.ok("submit", "parcels", "april.csv")
    return shell


def _keys(shell, *args: str) -> set[str]:
    return {item["key"] for item in shell.ok("list", "parcels", *args, "--json").json["items"]}


def test_lists_are_shown_the_latest_first(listed) -> None:
    answer = listed.ok("lists", "--json").json
    assert [entry["name"] for entry in answer["lists"]] == ["april.csv", "march.txt", "march.txt"]
    _, later, first = answer["lists"]
    assert (first["by"], first["full"], first["finished"], first["counts"]["new"]) == (
        "ops",
        True,
        True,
        3,
    )
    assert (later["counts"]["in_progress"], later["counts"]["vanished"]) == (2, 1)
    assert not answer["more"]
    shown = listed.ok("lists", "parcels").out
    assert first["id"] in shown
    assert "full: 1 new, 2 in progress, 1 vanished" in shown
    vanished = listed.ok("lists", "parcels", "--vanished", later["id"]).out.split()
    assert len(vanished) == 1
    assert listed.ok("lists", "parcels", "--vanished", later["id"], "--json").json == {
        "vanished": vanished
    }
    assert listed("lists", "--vanished", later["id"]).code == 2
    assert "… and 2 earlier" in listed.ok("lists", "--limit", "1").out
    assert listed("lists", "letters").code == 2


def test_a_ledger_without_lists_or_acts_says_so(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "A"}')
    assert "No list submitted yet" in shell.ok("lists").out
    assert "No acts yet" in shell.ok("acts").out


def test_a_lists_name_stands_for_all_of_that_name_and_its_id_for_one(listed) -> None:
    assert _keys(listed, "--list", "march.txt") == {"A", "B", "C", "F"}
    assert _keys(listed, "--list", "march.txt", "--limit", "2") < {"A", "B", "C", "F"}
    later = listed.ok("lists", "--json").json["lists"][1]["id"]
    assert _keys(listed, "--list", later) == {"F"}
    exported = listed.ok(
        "export", "parcels", "--list", "march.txt", "--format", "csv"
    ).out.splitlines()
    assert len(exported) == 5
    assert listed.signed("cancel", "parcels", "--list", "march.txt", "--json").json["done"] == 4
    assert _keys(listed, "--status", "live") == {"D", "E"}
    unknown = listed("list", "parcels", "--list", "may")
    assert unknown.code == 2
    assert "the latest are: april.csv, march.txt; see 'milepost lists parcels'" in unknown.err


def test_acts_are_shown_with_who_what_and_why(listed) -> None:
    listed.signed("cancel", "parcels", "A", "B", "NOPE")
    listed.signed("pause", "parcels", "weigh")
    listed.signed("prune", "parcels", "--older-than", "0s")
    acts = listed.ok("acts", "--json").json["acts"]
    assert [act["verb"] for act in acts] == ["prune", "pause", "cancel"]
    assert all((act["by"], act["reason"], act["go_on"]) == ("ops", "a test", None) for act in acts)
    assert (acts[2]["done"], acts[2]["refused"], acts[2]["about"]["keys"]) == (2, 1, 3)
    shown = listed.ok("acts", "parcels").out
    assert "cancel parcels  by ops: a test" in shown
    assert "2 cancelled, 1 refused" in shown
    assert "pause parcels/weigh  by ops" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_act_that_was_cut_off_says_how_to_go_on_and_does(listed) -> None:
    report = listed.signed("cancel", "parcels", "--list", "march.txt", "--json").json
    listed.signed("retry", "parcels", "C")
    with sqlite3.connect(listed.folder / "milepost.db") as db:
        db.execute(
            "UPDATE document SET value = replace(value, '\"finished_at\":', '\"was\":') WHERE kind = 'act'"
        )
    db.close()
    [act] = [one for one in listed.ok("acts", "--json").json["acts"] if one["verb"] == "cancel"]
    assert act["go_on"] == f"milepost cancel parcels --act {report['id']} {YOU}"
    shown = listed.ok("acts").out
    assert "not finished" in shown
    assert f"to continue: {act['go_on']}" in shown
    assert _say(listed, act["go_on"]).code == 0
    [act] = [one for one in listed.ok("acts", "--json").json["acts"] if one["verb"] == "cancel"]
    assert act["go_on"] is None


def test_pruning_and_letting_go_of_a_subscriber_are_signed(listed) -> None:
    for args in (("prune", "parcels"), ("subscribers", "forget", "log")):
        refused = listed(*args)
        assert refused.code == 2
        assert "--by NAME and --reason TEXT missing" in refused.err
    assert listed.ok("prune", "parcels", "--dry-run").code == 0
    listed.write("milepost.toml", 'routes = ["parcels.py"]\nsubscribers = ["log"]\n')
    listed.ok("up", "--until-idle", "0.2")
    assert listed.signed("subscribers", "forget", "log").code == 0
    shown = listed.ok("acts").out
    assert "forget log  by ops: a test" in shown


def _told_by_item(out: str) -> dict[str, list[str]]:
    """Event ids by item, in the order told. Only that order is promised: a page of lines is told in
    calls in which no item has two events, so the order between items depends on how many lines were
    there when the page was read."""
    events: dict[str, list[str]] = {}
    for event in map(json.loads, out.splitlines()):
        events.setdefault(event["subject"], []).append(event["id"])
    return events


def test_a_subscriber_is_told_again(listed) -> None:
    listed.write("milepost.toml", 'routes = ["parcels.py"]\nsubscribers = ["log"]\n')
    first = _told_by_item(listed.ok("up", "--until-idle", "0.2").out)
    assert listed("subscribers", "replay", "log", "--since", "1d").code == 2, "it is to be signed"
    assert "give the start" in listed("subscribers", "replay", "log", "--dry-run").err
    preview = listed.ok("subscribers", "replay", "log", "--since", "1d", "--dry-run", "--json").json
    lines = listed.ok("subscribers", "replay", "log", "--after", "0", "--dry-run").out
    assert lines.startswith("log would be sent the events since ")
    assert lines.endswith(f": at most {preview['lines']} lines.\n")
    listed.signed("subscribers", "replay", "log", "--since", preview["since"])
    assert _told_by_item(listed.ok("up", "--until-idle", "0.2").out) == first
    assert f"{preview['lines']} lines to be sent again" in listed.ok("acts").out
    nothing = listed.signed("subscribers", "replay", "log", "--since", "0s").out
    assert nothing == "log has received nothing since then: there is nothing to replay.\n"


def test_hints_can_be_run_as_they_are_printed(shell) -> None:
    shell.submit({"id": "it's A", "torn": True}, {"id": "B", "depot": "far west"})
    shell.ok("work", "--until-idle", "0.2")
    can = [
        text.strip()
        for text in shell.ok("show", "parcels", "it's A").out.splitlines()
        if text.startswith("  milepost ")
    ]
    assert [text.split()[1] for text in can] == ["retry", "skip", "replace"]
    assert _say(shell, can[0]).code == 0
    shell.signed("pause", "parcels", "delivered", "--lane", "far west")
    [pause] = [
        found
        for found in shell.ok("doctor", "--json").json["findings"]
        if found["about"] == "pause"
    ]
    assert f"→ {pause['next']}\n" in shell.ok("doctor").out, "never folded"
    assert _say(shell, pause["next"]).code == 0
    text = (shell.folder / "parcels.py").read_text()
    shell.write("parcels.py", text.replace('stage("weigh"', 'stage("scale"'))
    hint = shell("work", "--until-idle").err.partition("To apply it: ")[2].strip()
    assert hint == f"milepost routes apply parcels --map weigh=STAGE {YOU}"
    assert f"\n  {hint}\n" in shell.ok("routes").out
    applied = _say(shell, hint.replace("STAGE", "scale"))
    assert applied.code == 0
    assert "1 item moves from weigh to scale." in applied.out
    assert "0 items" not in applied.out


def test_the_closing_counts_have_a_fixed_order(shell) -> None:
    shell.submit({"id": "A", "torn": True}, {"id": "B", "busy": True}, {"id": "C"})
    ended = shell.ok("work", "--until-idle", "0.3").err
    assert "1 MAX_RETRIES_EXCEEDED, 1 REJECTED" in ended
    shell.signed("confirm", "parcels", "C", "--stage", "delivered")
    assert (
        "parcels  3 items: 1 COMPLETED, 1 MAX_RETRIES_EXCEEDED, 1 REJECTED"
        in shell.ok("status").out
    )


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{path}/{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def test_no_answer_has_times_as_bare_numbers(listed) -> None:
    listed.write(
        "refuse.py",
        "from milepost import EventRefused\n\ndef office(event):\n    raise EventRefused('no')\n",
    )
    listed.write("milepost.toml", 'routes = ["parcels.py"]\nsubscribers = ["refuse.py:office"]\n')
    listed.ok("up", "--until-idle", "0.3")
    listed.signed("retry", "parcels", "--status", "failed", "--older-than", "0s")
    listed.signed("pause", "parcels", "weigh")
    commands = (
        ("submit", "parcels", "april.csv"), ("status",), ("show", "parcels", "D"), ("list", "parcels"), ("groups",), ("routes",),
        ("lists",), ("acts",), ("subscribers",), ("doctor",), ("watch", "--once"), ("resend",), ("submit", "parcels", "--item", '{"id": "D"}'),
        ("limit", "parcels", "weigh", "--rate", "5/s", "--by", "ops", "--reason", "x"),
        ("retry", "parcels", "--status", "failed", "--dry-run"), ("prune", "parcels", "--dry-run"),
    )  # fmt: skip
    for command in commands:
        answer = listed(*command, "--json").json
        raw = [(path, n) for path, n in _numbers(answer) if n > 1e11]
        assert raw == [], command
    report = listed.ok("submit", "parcels", "april.csv", "--json").json
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", report["at"])
    parked = listed.ok("subscribers", "--json").json["subscribers"][0]["parked"]
    assert parked[0]["since"].endswith("Z")
    assert parked[0]["retry_at"] is None


@pytest.mark.parametrize(
    "body", ["'nothing like a line'", "x'00ff'", "replace(body, 'ops', 'desk')"]
)
def test_a_history_that_was_tampered_with_is_told_and_stops_nobody(shell, body: str) -> None:
    shell.submit({"id": "A", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    shell.signed("retry", "parcels", "A")
    shell.ok("work", "--until-idle", "0.2")
    db = sqlite3.connect(shell.folder / "milepost.db")
    with db:
        third = db.execute("SELECT seq FROM history ORDER BY seq LIMIT 1 OFFSET 2").fetchone()[0]
        db.execute(f"UPDATE history SET body = CAST({body} AS BLOB) WHERE seq = ?", (third,))
    db.close()
    shown = " ".join(shell.ok("show", "parcels", "A").out.split())
    assert "Warning: the history has been changed: the chain is broken at line" in shown
    view = shell.ok("show", "parcels", "A", "--json").json
    assert view["chain"]["broken_at"] == (4 if "replace" in body else 3)
    assert len(view["history"]) == 4
    checked = shell("doctor")
    assert checked.code == 1
    assert "the chain is broken at line" in " ".join(checked.out.split())
    assert "Something is wrong." in checked.out
    if "replace" not in body:
        assert "this line cannot be read" in shown
        assert "1970" not in shown
    shell.ok("export", "parcels", "--history")
