"""Commands that act on items, stages and routes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from milepost.cli.commands import cli
from milepost.engine.acts import outcome


def _key(shell, key: str) -> dict:
    return shell.ok("show", "parcels", key, "--json").json


@pytest.fixture
def failed(shell):
    """A ledger with two failed items, and one that waits at the external stage."""
    shell.submit({"id": "A", "depot": "west"}, {"id": "B", "torn": True}, {"id": "C", "torn": True})
    shell.ok("work", "--until-idle", "0.2")
    return shell


@pytest.mark.parametrize("verb", ["retry", "skip", "cancel", "resend", "confirm"])
def test_every_act_is_signed_and_says_which_items(failed, verb: str) -> None:
    stage = ("--stage", "delivered") if verb == "confirm" else ()
    unsigned = failed(verb, "parcels", "B", *stage)
    assert unsigned.code == 2
    assert "--by NAME and --reason TEXT missing" in unsigned.err
    assert failed(verb, "parcels", "B", *stage, "--by", "ops").code == 2
    if verb != "confirm":
        assert "no items selected" in failed.signed(verb, "parcels").err
        assert failed.signed(verb, "parcels").code == 2
        assert (
            "either keys or filters"
            in failed.signed(verb, "parcels", "B", "--status", "failed").err
        )
    assert failed.signed(verb, "letters", "B", *stage).code == 2


def test_retry_by_key_is_recorded_with_who_and_why(failed) -> None:
    assert failed.signed("retry", "parcels", "B").code == 0
    view = _key(failed, "B")
    assert (view["status"], view["round"], view["attempts"]) == ("QUEUED", 2, 0)
    line = view["history"][-1]
    assert (line["reason"], line["by"], line["why"]) == ("operator-retry", "ops", "a test")


def test_a_bulk_act_is_previewed_has_an_id_and_can_go_on(failed) -> None:
    preview = failed.ok("retry", "parcels", "--status", "failed", "--dry-run")
    assert "would apply to 2 of 2 items. Nothing was changed." in preview.out
    assert _key(failed, "B")["status"] == "REJECTED"
    report = failed.signed("retry", "parcels", "--status", "failed", "--json").json
    assert (report["done"], report["refused_count"]) == (2, 0)
    assert _key(failed, "C")["history"][-1]["act"] == report["id"]
    assert (
        failed.signed(
            "retry", "parcels", "--status", "failed", "--act", report["id"], "--json"
        ).json
        == report
    )
    again = failed.signed("retry", "parcels", "--status", "failed", "--act", report["id"])
    assert (
        f"Act {report['id']} finished at {report['finished_at']}; nothing was changed now. Its result:"
        in again.out
    )
    assert "retry: 2 of 2 items" in again.out
    other = failed.signed("retry", "parcels", "--status", "live", "--act", report["id"])
    assert (other.code, "on record with other items or options" in other.err) == (2, True)
    named = failed(
        "retry", "parcels", "B", "C", "--by", "ops", "--reason", "why", MILEPOST_BY="desk"
    )
    assert named.code == 0
    assert failed("retry", "parcels", "B", "--reason", "why", MILEPOST_BY="desk").code == 0
    assert _key(failed, "B")["history"][-1]["by"] == "desk"


def test_an_act_says_how_many_of_its_items_it_has_counted_and_counts_all_when_asked(
    failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = failed.signed("retry", "parcels", "--status", "failed", "--json").json["id"]
    monkeypatch.setattr(outcome, "PAGE", 1)
    monkeypatch.setattr(outcome, "LOOK_LINES", 1)

    def shown(*options: str) -> Result:
        ledger = f"sqlite:///{failed.folder}/milepost.db"
        return CliRunner().invoke(
            cli, ["--ledger", ledger, "acts", *options], catch_exceptions=False
        )

    first = shown("--id", act).output
    assert "1 in progress (counted 1 of 2 so far)." in first
    assert f"To count all of them: milepost acts --id {act} --all" in first
    whole = shown("--id", act, "--all").output
    assert "0 completed, 0 failed again, 2 in progress." in whole
    assert "To count all" not in whole
    assert json.loads(shown("--id", act, "--all", "--json").output)["outcome"]["counted"] == 2
    wrong = shown("--all")
    assert (wrong.exit_code, "give its --id" in wrong.output) == (2, True)


def test_what_is_refused_says_why_and_fails(failed) -> None:
    for args, why in (
        (("retry", "parcels", "NOPE"), "there is no item with this key"),
        (("resend", "parcels", "B"), "it has already ended (REJECTED): use retry"),
    ):
        answer = failed.signed(*args)
        assert answer.code == 1
        assert why in answer.err
    failed.signed("cancel", "parcels", "B")
    several = failed.signed("cancel", "parcels", "A", "B")
    assert several.code == 1
    assert "cancel: 1 of 2 items" in several.out
    assert "it has already ended (CANCELLED)" in several.out
    nothing = failed.signed("cancel", "parcels", "--status", "waiting")
    assert nothing.code == 0
    assert "No item matches" in nothing.out


def test_confirm_by_hand(failed) -> None:
    assert failed.signed("confirm", "parcels", "A").code == 2
    assert (
        "is not JSON"
        in failed.signed("confirm", "parcels", "A", "--stage", "delivered", "--output", "yes").err
    )
    assert (
        failed.signed("confirm", "parcels", "A", "--stage", "delivered", "--output", "false").code
        == 1
    )
    assert (
        failed.signed(
            "confirm", "parcels", "A", "--stage", "delivered", "--output", '{"at": "the door"}'
        ).code
        == 0
    )
    view = _key(failed, "A")
    assert (view["status"], view["results"]["delivered"]) == ("COMPLETED", {"at": "the door"})
    again = failed.signed("confirm", "parcels", "A", "--stage", "delivered")
    assert again.code == 0
    assert "known: " in again.out + again.err
    told = json.loads(
        failed.signed("confirm", "parcels", "A", "--stage", "delivered", "--json").out
    )
    assert told["refused"] == [["A", "known: the item has completed this stage"]]
    assert (
        failed.signed(
            "confirm", "parcels", "A", "--stage", "delivered", "--failed", "x", "--rejected", "y"
        ).code
        == 2
    )


def test_a_partner_may_also_say_no_and_all_at_a_stage_can_be_confirmed(failed) -> None:
    failed.submit({"id": "D"}, {"id": "E"})
    failed.ok("work", "--until-idle", "0.2")
    assert (
        failed.signed(
            "confirm", "parcels", "D", "--stage", "delivered", "--rejected", "nobody lives there"
        ).code
        == 0
    )
    assert _key(failed, "D")["error"]["message"] == "nobody lives there"
    done = failed.signed("confirm", "parcels", "--stage", "delivered", "--status", "live", "--json")
    assert done.json["done"] == 2
    assert _key(failed, "E")["status"] == "COMPLETED"


def test_skip_send_back_resend_and_cancel(failed) -> None:
    assert failed.signed("skip", "parcels", "B").code == 0
    assert _key(failed, "B")["stage"] == "stamp"
    assert failed.signed("retry", "parcels", "A", "--to", "weigh").code == 0
    view = _key(failed, "A")
    assert (view["stage"], view["pass"]) == ("weigh", 2)
    failed.ok("work", "--until-idle", "0.2")
    assert failed.signed("resend", "parcels", "A").code == 0
    assert _key(failed, "A")["history"][-1]["reason"] == "resent"
    assert failed.signed("cancel", "parcels", "A", "--json").json["done"] == 1
    assert _key(failed, "A")["status"] == "CANCELLED"


def test_resend_alone_runs_the_resender_and_doctor_knows(failed) -> None:
    assert "nothing to do" in failed.ok("resend").out
    assert failed.ok("resend", "--json").json["resent"] == 0
    roles = [
        finding["what"]
        for finding in failed.ok("doctor", "--json").json["findings"]
        if finding["about"] == "role"
    ]
    assert any("resender: last successful run" in what for what in roles)


def test_pause_resume_and_limit(shell) -> None:
    shell.submit({"id": "A"})
    assert shell("pause", "parcels", "weigh").code == 2
    assert "parcels/weigh paused" in shell.signed("pause", "parcels", "weigh").out
    shell.ok("work", "--until-idle", "0.2")
    assert _key(shell, "A")["status"] == "QUEUED"
    assert "parcels/weigh is paused by ops" in shell.ok("show", "parcels", "A").out
    assert shell.signed("pause", "parcels", "--json").json["scope"] == "parcels"
    timed = shell.signed(
        "pause", "parcels", "weigh", "--until", "2h", "--drain", "5/s", "--json"
    ).json
    assert (timed["drain"], timed["until"] > timed["at"]) == ("5/s", True)
    assert "weigh is paused by ops" in shell.ok("show", "parcels", "A").out
    assert ", until " in shell.ok("show", "parcels", "A").out
    assert "--until is 'soon'" in shell.signed("pause", "parcels", "weigh", "--until", "soon").err
    resumed = shell.signed("resume", "parcels", "--stage", "weigh", "--json")
    assert resumed.json == {"scope": "parcels/weigh", "resumed": True, "still_paused": ["parcels"]}
    assert "parcels resumed." in shell.signed("resume", "parcels").out
    twice = shell.signed("resume", "parcels")
    assert twice.code == 1
    assert "parcels was not paused" in twice.err
    assert shell.signed("pause", "parcels", "weigh", "--stage", "stamp").code == 2
    assert shell.signed("pause", "parcels", "odd").code == 2
    assert (
        shell.signed("limit", "parcels", "weigh", "--rate", "5/s", "--concurrency", "2").out
        == "parcels/weigh: rate 5/s, concurrency 2.\n"
    )
    assert shell.signed("limit", "parcels", "weigh", "--clear", "--json").json["rate"] is None
    assert shell.signed("limit", "parcels", "weigh", "--rate", "fast").code == 2
    assert shell.signed("limit", "parcels", "--rate", "5/s").code == 2
    assert shell.signed("limit", "parcels", "weigh").code == 2


def test_routes_and_routes_apply(shell) -> None:
    shell.submit({"id": "A"})
    [view] = shell.ok("routes", "--json").json["routes"]
    assert (view["version"], view["differs"]) == (1, False)
    assert "weigh → stamp → [delivered]" in shell.ok("routes").out
    text = (shell.folder / "parcels.py").read_text()
    shell.write("parcels.py", text.replace('stage("weigh"', 'stage("scale"'))
    refused = shell("work", "--until-idle")
    assert refused.code == 1
    assert "milepost routes apply" in refused.err
    assert "removed 'weigh' (1 item there)" in shell.ok("routes").out
    assert shell.ok("status", "--json").json["routes"]["parcels"]["stages"]["weigh"] == {
        "QUEUED": 1
    }
    unmapped = shell.signed("routes", "apply", "parcels")
    assert unmapped.code == 2
    assert "--map OLD=NEW" in unmapped.err
    assert shell("routes", "apply", "parcels", "--map", "weigh=scale").code == 2
    assert (
        "would be at version 2"
        in shell.ok("routes", "apply", "parcels", "--map", "weigh=scale", "--dry-run").out
    )
    assert shell.signed("routes", "apply", "--map", "weigh").code == 2
    assert shell.signed("routes", "apply", "--map", "weigh=scale", "--json").json["version"] == 2
    shell.ok("work", "--until-idle", "0.2")
    assert _key(shell, "A")["stage"] == "delivered"


def test_prune_keeps_the_seal(failed) -> None:
    kept = failed.ok("prune", "parcels", "--older-than", "0s", "--dry-run", "--json").json
    assert (kept["items"], sum(kept["others"].values())) == (0, 2)
    assert (
        "2 rows would be removed"
        in failed.ok(
            "prune", "parcels", "--older-than", "0s", "--status", "failed", "--dry-run"
        ).out
    )
    assert failed.signed("prune", "parcels", "--older-than", "0s", "--json").json["items"] == 0
    assert (
        failed.signed(
            "prune", "parcels", "--older-than", "0s", "--status", "failed", "--json"
        ).json["items"]
        == 2
    )
    view = _key(failed, "B")
    assert (view["status"], view["sealed"]) == ("REJECTED", True)
    assert "this is from its seal" in " ".join(failed.ok("show", "parcels", "B").out.split())
    assert failed("submit", "parcels", "--item", '{"id": "B", "torn": true}').out.startswith(
        "B: already known"
    )
    refused = failed("submit", "parcels", "--item", '{"id": "B"}', "--failed-again")
    assert refused.code == 2
    assert "--by NAME and --reason TEXT missing" in refused.err
    assert (
        failed.signed("submit", "parcels", "--item", '{"id": "B"}', "--failed-again").out
        == "B: accepted at weigh\n"
    )
    assert failed("prune", "parcels", "--older-than", "soon").code == 2


def test_doctor(failed) -> None:
    report = failed.ok("doctor", "--json").json
    assert report["level"] == "warn"
    assert report["ledger"]["kind"] == "sqlite"
    assert {"level", "about", "what", "next"} == set(report["findings"][0])
    assert "milepost groups parcels" in failed.ok("doctor").out
    text = (failed.folder / "parcels.py").read_text()
    failed.write("parcels.py", text.replace('stage("weigh"', 'stage("scale"'))
    changed = failed("doctor")
    assert changed.code == 1
    assert "the route file differs" in changed.out


def test_subscribers_are_let_go(failed) -> None:
    assert "No subscribers" in failed.ok("subscribers").out
    assert failed.signed("subscribers", "forget", "fax").code == 1
    assert failed.signed("subscribers", "release", "fax").code == 2
    failed.write("milepost.toml", 'routes = ["parcels.py"]\nsubscribers = ["log"]\n')
    failed.ok("up", "--until-idle", "0.2")
    assert "log" in failed.ok("subscribers").out
    assert "0 parked items" in failed.signed("subscribers", "release", "log").out
    assert "Removed" in failed.signed("subscribers", "forget", "log").out


def test_a_pause_says_how_many_items_wait_there(shell) -> None:
    shell.write("lanes.py", LANES)
    shell.write(
        "orders.jsonl", '{"id": "1", "lane": "partner-05"}\n{"id": "2", "lane": "partner-05"}\n'
    )
    shell.ok("--routes", "lanes.py", "submit", "orders", "orders.jsonl")
    lane = shell.signed("--routes", "lanes.py", "pause", "orders", "ship", "--lane", "partner-05")
    assert "2 items wait there." in lane.out
    typo = shell.signed("--routes", "lanes.py", "pause", "orders", "ship", "--lane", "partner-5")
    assert "No item waits there. Lanes with similar names: partner-05." in typo.out


LANES = """import milepost as mp

orders = mp.Route("orders", key="id")


@orders.stage("ship", lane=lambda content: content["lane"])
def ship(item: mp.Item) -> mp.Outcome:
    return mp.Done()
"""
