"""Errors of commands: one format; a route on a ledger in memory warns that it forgets."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["show", "parcels", "nobody", "--json"], 1, "MilepostError"),
        (["status", "--ledger", "sqlite:///nowhere.db", "--json"], 1, "LedgerError"),
        (["status", "letters", "--json"], 2, "UsageError"),
        (["retry", "parcels", "--json"], 2, "UsageError"),
        (["show", "parcels", "\udcff", "--json"], 2, "UsageError"),
        (["list", "parcels", "--status", "asleep", "--json"], 2, None),
    ],
)
def test_with_json_an_error_is_one_object_on_standard_error(shell, args: list[str], code: int, kind: str | None) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "a"}')
    answer = shell(*args)
    assert answer.code == code
    assert answer.out == ""
    error = json.loads(answer.err)["error"]
    assert error["message"]
    assert kind is None or error["kind"] == kind


def test_a_route_that_forgets_says_so(shell) -> None:
    (shell.folder / "short.py").write_text(
        'import milepost as mp\nshort = mp.Route("short", remember="30d")\nshort.stage("do")(lambda item: mp.Done())\n'
    )
    routes = ["--routes", "short.py", "--ledger", "sqlite:///short.db"]
    shell.ok("submit", "short", "--item", '{"id": "a"}', *routes)
    assert "short remembers a finished key for 30 d only." in shell.ok("routes", *routes).out
    assert shell.ok("routes", "--json", *routes).json["routes"][0]["remembers_s"] == 30 * 86_400


def test_an_ended_item_has_the_time_of_its_end(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "bad", "torn": true}')
    assert shell.ok("show", "parcels", "bad", "--json").json["ended_at"] is None
    shell.ok("work", "--until-idle", "0")
    shown = shell.ok("show", "parcels", "bad", "--json").json
    assert (shown["status"], shown["ended_at"]) == ("REJECTED", shown["history"][-1]["at"])
