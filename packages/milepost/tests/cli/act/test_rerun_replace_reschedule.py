"""Run again, give other content, set for later, from the command line."""

from __future__ import annotations

import json


def _key(shell, key: str) -> dict:
    return shell.ok("show", "parcels", key, "--json").json


def test_replace_shows_the_difference_and_starts_again(shell) -> None:
    shell.submit({"id": "B", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    new = json.dumps({"id": "B", "depot": "west"})
    preview = shell.ok("replace", "parcels", "B", "--item", new, "--dry-run").out
    assert '+ depot: "west"' in preview
    assert "- torn: true" in preview
    assert "Nothing was changed" in preview
    assert shell("replace", "parcels", "B", "--item", new).code == 2
    shell.write("new.json", new)
    assert shell.signed("replace", "parcels", "B", "--file", "new.json").code == 0
    view = _key(shell, "B")
    assert (view["status"], view["pass"], view["replaced"][0]["content"]) == (
        "QUEUED",
        2,
        {"id": "B", "torn": True},
    )
    assert "content replaced" in shell.ok("show", "parcels", "B").out
    assert "known" in shell.ok("submit", "parcels", "--item", new).out
    again = shell.signed("replace", "parcels", "B", "--item", new)
    assert (again.code, "has this content already" in again.err) == (1, True)
    assert "is not JSON" in shell.signed("replace", "parcels", "B", "--item", "{").err


def test_a_list_replaces_what_has_changed_when_it_is_signed(shell) -> None:
    shell.submit({"id": "A", "n": 1})
    shell.write("new.jsonl", json.dumps({"id": "A", "n": 2}))
    preview = shell.ok("submit", "parcels", "new.jsonl", "--replace-changed", "--dry-run").out
    assert "line 1: A: would be replaced [~ n: 1 → 2]" in preview
    assert shell("submit", "parcels", "new.jsonl", "--replace-changed").code == 2
    assert shell("submit", "parcels", "new.jsonl", "--reason", "why").code == 2
    report = shell.signed("submit", "parcels", "new.jsonl", "--replace-changed", "--json").json
    assert (report["counts"]["replaced"], _key(shell, "A")["input"]["n"]) == (1, 2)
    assert shell.ok("acts", "parcels", "--json").json["acts"][0]["verb"] == "replace"


def test_an_item_for_later_is_listed_moved_and_run_again(shell) -> None:
    assert (
        "; starts not before 20"
        in shell.ok("submit", "parcels", "--item", '{"id": "A", "depot": "west"}', "--at", "2h").out
    )
    shell.ok("work", "--until-idle", "0.2")
    assert _key(shell, "A")["status"] == "PENDING"
    told = shell.ok("show", "parcels", "A").out
    assert "It starts in 2 h" in told
    assert "milepost reschedule parcels A --at TIME" in told
    assert "in 2 h" in shell.ok("list", "parcels").out
    assert (
        "--at is 'tomorrow'" in shell.signed("reschedule", "parcels", "A", "--at", "tomorrow").err
    )
    assert shell.signed("reschedule", "parcels", "A", "--at", "now").code == 0
    shell.ok("work", "--until-idle", "0.2")
    assert shell.signed("confirm", "parcels", "A", "--stage", "delivered").code == 0
    assert _key(shell, "A")["status"] == "COMPLETED"
    assert (
        "would run again"
        in shell.ok("rerun", "parcels", "--stage", "delivered", "--pace", "10/s", "--dry-run").out
    )
    assert shell.signed("rerun", "parcels", "A", "--from", "delivered").code == 0
    assert (_key(shell, "A")["stage"], _key(shell, "A")["round"]) == ("delivered", 2)
    assert "only a COMPLETED item can be run again" in shell.signed("rerun", "parcels", "A").err


def test_a_reschedule_by_a_span_is_repeated_with_its_id(shell) -> None:
    for key in ("A", "B"):
        shell.submit({"id": key})
    command = ("reschedule", "parcels", "A", "B", "--at", "2h", "--act", "later")
    first = shell.signed(*command, "--json")
    assert (first.code, first.json["done"]) == (0, 2)
    assert shell.signed(*command, "--json").json == first.json
