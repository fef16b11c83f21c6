"""Acts over HTTP: on items, with name and reason, their records, pauses and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.http.guarded_server import guarded_server
from tests.http.live_server import HttpAnswer, LiveServer
from tests.http.page_text import text_of

import milepost as mp
from milepost.engine.act_log import begin
from milepost.ports.documents import Act

ACTS = "/api/v1/routes/parcels/acts"
HOLDS = "/api/v1/routes/parcels/holds"
LIMITS = "/api/v1/routes/parcels/limits"
FAILED = {"status": ["failed"]}


@pytest.fixture
def failed(live_server: LiveServer) -> LiveServer:
    """Three that were rejected at `weigh`, and one that waits at `deliver`."""
    live_server.milepost.submit(
        "parcels", *({"id": key, "weigh": "reject"} for key in "abc"), {"id": "fine"}
    )
    live_server.work()
    return live_server


def act(live_server: LiveServer, verb: str, **deed: Any) -> HttpAnswer:
    return live_server.call("POST", ACTS, {"verb": verb, "reason": "fixed", **deed})


def row(live_server: LiveServer, key: str) -> dict[str, Any]:
    found = live_server.milepost.show("parcels", key)
    assert found is not None
    return found


# Acts on items ------------------------------------------------------------------------------------
def test_an_act_by_filter_is_reported_and_recorded_with_who_and_why(failed: LiveServer) -> None:
    report = act(failed, "retry", filter=FAILED, **{"for": "the night shift"})
    assert (report.status, report.body["matched"], report.body["done"], report.body["refused"]) == (
        200,
        3,
        3,
        [],
    )
    line = row(failed, "a")["history"][-1]
    assert (line["reason"], line["by"], line["why"]) == (
        "operator-retry",
        "local for the night shift",
        "fixed",
    )
    [on_record] = failed.call("GET", "/api/v1/acts?route=parcels").body["acts"]
    assert (on_record["id"], on_record["verb"], on_record["done"]) == (
        report.body["id"],
        "retry",
        3,
    )
    assert (on_record["by"], on_record["reason"], line["act"]) == (
        "local for the night shift",
        "fixed",
        on_record["id"],
    )


def test_a_preview_changes_nothing_and_needs_no_reason(failed: LiveServer) -> None:
    report = act(failed, "retry", filter=FAILED, reason="", dry_run=True)
    assert (report.status, report.body["done"], report.body["dry_run"]) == (200, 3, True)
    assert row(failed, "a")["status"] == "REJECTED"
    assert failed.call("GET", "/api/v1/acts").body == {"acts": [], "more": False, "next": None}


def test_each_item_is_done_or_refused_by_itself(failed: LiveServer) -> None:
    assert act(failed, "cancel", keys=["a"]).body["done"] == 1
    report = act(failed, "cancel", keys=["fine", "a", "nobody"]).body
    assert (report["matched"], report["done"], report["refused_count"]) == (3, 1, 2)
    assert dict(report["refused"]) == {
        "a": "it has already ended (CANCELLED)",
        "nobody": "there is no item with this key",
    }
    assert row(failed, "fine")["status"] == "CANCELLED"


def test_every_verb_does_what_the_command_of_its_name_does(failed: LiveServer) -> None:
    assert act(failed, "skip", keys=["a"]).body["done"] == 1
    assert (row(failed, "a")["stage"], row(failed, "a")["history"][-1]["reason"]) == (
        "deliver",
        "skipped",
    )
    assert act(failed, "resend", keys=["fine"]).body["done"] == 1
    assert row(failed, "fine")["history"][-1]["reason"] == "resent"
    work_id = row(failed, "b")["work_id"]
    assert act(failed, "retry", keys=["b"], as_new=True).body["done"] == 1
    assert row(failed, "b")["work_id"] != work_id
    assert (
        act(
            failed,
            "confirm",
            keys=["fine"],
            stage="deliver",
            outcome={"type": "done", "output": "signed"},
        ).body["done"]
        == 1
    )
    assert (row(failed, "fine")["status"], row(failed, "fine")["results"]["deliver"]) == (
        "COMPLETED",
        "signed",
    )


def test_what_was_said_before_is_named_among_the_refused(failed: LiveServer) -> None:
    for _ in range(2):
        report = act(failed, "confirm", keys=["fine"], stage="deliver").body
    assert report["refused"] == [["fine", "known: the item has completed this stage"]]


def test_an_act_that_was_cut_off_is_gone_on_with(failed: LiveServer) -> None:
    query = {"route": "parcels", "statuses": ["REJECTED"]}
    begin(
        failed.ctx,
        Act(
            "cut-off",
            "retry",
            "parcels",
            "ops",
            "fixed",
            failed.ctx.clock.now() + 1,
            {"query": query},
        ),
    )
    assert failed.call("POST", f"{ACTS}/cut-off/go-on", {"dry_run": True}).body["done"] == 3
    report = failed.call("POST", f"{ACTS}/cut-off/go-on", {"reason": "the network is back"}).body
    assert (report["id"], report["verb"], report["done"]) == ("cut-off", "retry", 3)
    unknown = failed.call("POST", f"{ACTS}/nope/go-on", {"reason": "x"})
    assert (unknown.status, unknown.body["code"]) == (404, "unknown-act")
    elsewhere = failed.call("POST", "/api/v1/routes/letters/acts/cut-off/go-on", {"reason": "x"})
    assert elsewhere.status == 404


def test_the_same_call_with_its_id_gets_the_first_answer(failed: LiveServer) -> None:
    first = act(failed, "retry", keys=["a", "b"], id="night-1")
    failed.work()
    again = act(failed, "retry", keys=["a", "b"], id="night-1")
    assert (again.status, again.body) == (200, first.body)
    assert (first.body["done"], row(failed, "a")["round"]) == (2, 2)


def test_an_id_with_another_filter_is_a_conflict_and_changes_nothing(failed: LiveServer) -> None:
    failed.milepost.submit("parcels", {"id": "z", "weigh": "retry"})
    failed.work()
    groups = [
        group["group"]
        for group in failed.call("GET", "/api/v1/routes/parcels/groups").body["groups"]
    ]
    first = act(failed, "retry", filter={"group": groups[0]}, id="same")
    failed.work()
    other = act(failed, "retry", filter={"group": groups[1]}, id="same")
    assert (other.status, other.body["code"]) == (409, "conflict")
    assert "act 'same' is on record with other items or options" in other.body["detail"]
    assert act(failed, "retry", filter={"group": groups[0]}, id="same").body == first.body
    assert (first.body["matched"], first.body["done"]) == (3, 3)
    assert [row(failed, key)["round"] for key in "az"] == [2, 1]
    for others in ({"keys": ["a"]}, {"filter": {"group": groups[0]}, "as_new": True}):
        assert act(failed, "retry", id="same", **others).status == 409
    assert act(failed, "cancel", filter={"group": groups[0]}, id="same").status == 409


def test_the_filter_of_an_act_is_the_same_at_each_door(failed: LiveServer) -> None:
    """A filter by age means another time at each call; what was asked stays the same."""
    chosen = {"status": ["REJECTED", "CANCELLED"], "older_than": "0s"}
    first = act(failed, "retry", filter=chosen, id="same").body
    turned = {"older_than": "0s", "status": ["CANCELLED", "REJECTED", "CANCELLED"]}
    assert act(failed, "retry", filter=turned, id="same").body == first
    failed.milepost.act(
        "cancel", "parcels", statuses=["live"], by="ops", reason="moved", act_id="from-python"
    )
    assert (
        act(failed, "cancel", filter={"status": ["live"]}, id="from-python").body["finished_at"]
        is not None
    )
    with pytest.raises(mp.UsageError, match="on record with other items"):
        failed.milepost.act(
            "cancel", "parcels", statuses=["failed"], by="ops", reason="moved", act_id="from-python"
        )


def test_an_act_is_followed_by_its_id_while_it_is_under_way(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.engine.act_log.BATCH", 2)
    live_server.milepost.submit("parcels", *({"id": f"k{n}"} for n in range(5)))
    seen: list[dict[str, Any]] = []
    apply = live_server.ctx.ledger.apply

    def looking(*args: Any, **more: Any) -> Any:
        seen.append(live_server.call("GET", "/api/v1/acts/night-2").body)
        return apply(*args, **more)

    monkeypatch.setattr(live_server.ctx.ledger, "apply", looking)
    act(live_server, "cancel", filter={"status": ["live"]}, id="night-2")
    seen.append(live_server.call("GET", "/api/v1/acts/night-2").body)
    assert [(one["done"], one["expected"], one["finished"]) for one in seen] == [
        (0, 5, False),
        (2, 5, False),
        (4, 5, False),
        (5, 5, True),
    ]


def test_how_many_are_expected_is_said_only_where_it_is_known(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", *({"id": key} for key in ("a-1", "a-2", "b-1")))
    for name, chosen, known in (("one", {"prefix": "a-"}, None), ("two", {"status": ["live"]}, 1)):
        act(live_server, "cancel", filter=chosen, id=name)
        assert live_server.call("GET", f"/api/v1/acts/{name}").body["expected"] == known


def test_acts_are_found_by_verb_and_by_whoever_acted(failed: LiveServer) -> None:
    act(failed, "retry", keys=["a", "b"], id="one", **{"for": "the night shift"})
    act(failed, "cancel", keys=["a", "b"], id="two")

    def found(question: str) -> list[str]:
        return [one["id"] for one in failed.call("GET", f"/api/v1/acts?{question}").body["acts"]]

    assert (found("verb=retry"), found("by=the+night+shift"), sorted(found("by=local"))) == (
        ["one"],
        ["one"],
        ["one", "two"],
    )
    assert (found("verb=retry&by=nobody"), found("verb=skip")) == ([], [])


def test_acts_come_in_pages_to_the_first(failed: LiveServer) -> None:
    """Acts on single items are among them."""
    for key in ("a", "b", "c"):
        act(failed, "retry", keys=[key])
    act(failed, "cancel", keys=["a", "b"], id="both")
    found, after = [], ""
    while True:
        page = failed.call("GET", f"/api/v1/acts?limit=1{after}").body
        found += [(one["verb"], one["about"].get("key"), one["done"]) for one in page["acts"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert sorted(found, key=str) == [
        ("cancel", None, 2),
        ("retry", "a", 1),
        ("retry", "b", 1),
        ("retry", "c", 1),
    ]
    wrong = failed.call("GET", "/api/v1/acts?after=nope")
    assert (wrong.status, wrong.body["field"]) == (400, "after")


def test_an_act_says_what_became_of_its_items(failed: LiveServer) -> None:
    act(failed, "retry", filter=FAILED, id="night-3")
    assert failed.call("GET", "/api/v1/acts/night-3").body["outcome"] == {
        "completed": 0, "failed": 0, "cancelled": 0, "in_progress": 3, "unknown": 0, "counted": 3, "total": 3, "next": None,
    }  # fmt: skip
    failed.work()
    outcome = failed.call("GET", "/api/v1/acts/night-3").body["outcome"]
    assert (outcome["completed"], outcome["failed"], outcome["in_progress"]) == (0, 3, 0)
    page = text_of(failed.call("GET", "/acts/night-3"))
    assert "3 restarted: 0 completed, 3 failed again , as they are now." in page
    wrong = failed.call("GET", "/api/v1/acts/night-3?after=nope")
    assert (wrong.status, wrong.body["field"]) == (400, "after")
    single = act(failed, "retry", keys=["a"]).body["id"]
    assert "1 restarted: 0 completed, 0 failed again, 1 in progress" in text_of(
        failed.call("GET", f"/acts/{single}")
    )
    pause = failed.call("PUT", f"{HOLDS}/weigh", {"reason": "away"})
    assert pause.status == 200
    [paused] = failed.call("GET", "/api/v1/acts?verb=pause").body["acts"]
    assert failed.call("GET", f"/api/v1/acts/{paused['id']}").body["outcome"] is None


def test_an_act_that_is_unknown_or_of_another_route_is_not_there(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as at:
        begin(
            at.ctx,
            Act("letters-1", "retry", "letters", "ops", "fixed", at.ctx.clock.now(), {"keys": 2}),
        )
        key = at.key("read", routes=["parcels"])
        for asked, given in (
            ("letters-1", key),
            ("nope", key),
            ("nope", at.key("read", name="reader")),
        ):
            answered = at.call("GET", f"/api/v1/acts/{asked}", key=given)
            assert (answered.status, answered.body["code"]) == (404, "unknown-act")
            assert answered.body["detail"] == f"there is no act '{asked}'"


@pytest.mark.parametrize(
    ("deed", "field"),
    [
        ({"verb": "retry", "filter": FAILED, "reason": " "}, "reason"),
        ({"verb": "retry", "reason": "x"}, "keys"),
        ({"verb": "retry", "reason": "x", "keys": ["a"], "filter": FAILED}, "keys"),
        ({"verb": "retry", "reason": "x", "filter": {}}, "filter"),
        ({"verb": "retry", "reason": "x", "filter": {"colour": "red"}}, "filter.colour"),
        ({"verb": "burn", "reason": "x", "keys": ["a"]}, "verb"),
        ({"verb": "skip", "reason": "x", "keys": ["a"], "stage": "deliver"}, None),
        ({"verb": "retry", "reason": "x", "keys": ["a"], "for": ""}, "for"),
    ],
)
def test_a_deed_that_cannot_be_meant_changes_nothing(
    shared_server: LiveServer, deed: dict[str, Any], field: str | None
) -> None:
    shared_server.milepost.submit("parcels", {"id": "a"})
    answered = shared_server.call("POST", ACTS, deed)
    assert (answered.status, answered.body["code"]) == (400, "wrong-value"), answered
    assert answered.body.get("field") == field
    assert len(row(shared_server, "a")["history"]) == 1


# Pauses and limits --------------------------------------------------------------------------------
def test_a_paused_stage_is_left_alone_until_it_is_resumed(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "a"})
    paused = live_server.call(
        "PUT", f"{HOLDS}/weigh", {"reason": "the scale is away", "for": "the day shift"}
    ).body
    assert (paused["scope"], paused["paused"], paused["by"]) == (
        "parcels/weigh",
        True,
        "local for the day shift",
    )
    assert live_server.call("PUT", f"{HOLDS}/weigh", {"reason": "again"}).body == paused, (
        "it stays as it is"
    )
    assert live_server.call("GET", HOLDS).body == {"holds": [{**paused, "waiting": None}]}
    live_server.work()
    assert row(live_server, "a")["stage"] == "weigh"
    resumed = live_server.call("DELETE", f"{HOLDS}/weigh?reason=it+is+back").body
    assert resumed == {"scope": "parcels/weigh", "resumed": True, "still_paused": []}
    assert live_server.call("DELETE", f"{HOLDS}/weigh?reason=it+is+back").body["resumed"] is False
    live_server.work()
    assert row(live_server, "a")["stage"] == "deliver"


def test_a_pause_says_when_it_ends_and_how_fast_the_backlog_goes(live_server: LiveServer) -> None:
    paused = live_server.call(
        "PUT", f"{HOLDS}/weigh", {"reason": "away", "until": "2h", "drain": "5/s"}
    ).body
    assert (paused["drain"], paused["until"] > paused["at"]) == ("5/s", True)
    assert live_server.call("GET", HOLDS).body == {"holds": [{**paused, "waiting": None}]}
    live_server.milepost.submit("parcels", {"id": "a"})
    wrong = live_server.call("PUT", f"{HOLDS}/weigh", {"reason": "away", "until": "soon"})
    assert (wrong.status, "until is 'soon'" in wrong.body["detail"]) == (400, True)
    assert (
        live_server.call("DELETE", f"{HOLDS}/weigh?reason=back&drain=2%2Fs").body["resumed"] is True
    )
    assert [one["rate"] for one in live_server.call("GET", LIMITS).body["limits"]] == ["2/s"]


def test_routes_and_lanes_are_paused_each_by_itself(live_server: LiveServer) -> None:
    scopes = {HOLDS: "parcels", f"{HOLDS}/weigh/north%2Feast": "parcels/weigh/north/east"}
    for path, scope in scopes.items():
        assert live_server.call("PUT", path, {"reason": "x"}).body["scope"] == scope
    assert live_server.call("GET", "/api/v1/routes/letters/holds").body == {"holds": []}
    assert live_server.call("DELETE", f"{HOLDS}?reason=x").body["still_paused"] == [
        "parcels/weigh/north/east"
    ]
    assert (
        live_server.call("DELETE", f"{HOLDS}/weigh/north%2Feast?reason=x").body["resumed"] is True
    )


def test_limits_are_set_shown_and_taken_off(live_server: LiveServer) -> None:
    live_server.call("PUT", f"{LIMITS}/weigh", {"rate": "50/s", "reason": "a slow scale"})
    limited = live_server.call(
        "PUT", f"{LIMITS}/weigh", {"concurrency": 2, "reason": "two scales"}
    ).body
    assert (limited["scope"], limited["rate"], limited["concurrency"], limited["by"]) == (
        "parcels/weigh",
        "50/s",
        2,
        "local",
    )
    lane = live_server.call("PUT", f"{LIMITS}/weigh/north", {"rate": 1, "reason": "x"}).body
    assert live_server.call("GET", LIMITS).body == {"limits": [limited, lane]}
    assert live_server.call("DELETE", f"{LIMITS}/weigh?reason=x").body["rate"] is None
    live_server.call("DELETE", f"{LIMITS}/weigh/north?reason=x")
    assert live_server.call("GET", LIMITS).body == {"limits": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("PUT", f"{HOLDS}/nope", {"reason": "x"}, 404, "unknown-stage"),
        ("PUT", f"{HOLDS}/weigh", {"reason": " "}, 400, "wrong-value"),
        ("DELETE", f"{HOLDS}/weigh", None, 400, "wrong-value"),
        ("PUT", f"{LIMITS}/weigh", {"reason": "x"}, 400, "wrong-value"),
        ("PUT", f"{LIMITS}/weigh", {"reason": "x", "rate": "often"}, 400, "wrong-value"),
        ("PUT", f"{LIMITS}/deliver", {"reason": "x", "rate": 1}, 400, "wrong-value"),
        ("PUT", f"{LIMITS}/weigh", {"reason": "x", "concurrency": 0}, 400, "wrong-value"),
        ("GET", "/api/v1/routes/nope/holds", None, 404, "unknown-route"),
    ],
)
def test_a_wrong_pause_or_limit_is_refused(
    shared_server: LiveServer, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answered = shared_server.call(method, path, body)
    assert (answered.status, answered.body["code"]) == (status, code), answered
    assert (
        shared_server.call("GET", HOLDS).body["holds"]
        == shared_server.call("GET", LIMITS).body["limits"]
        == []
    )


def test_acts_pauses_and_limits_work_on_aws(aws_server: LiveServer) -> None:
    aws_server.milepost.submit("parcels", {"id": "a"}, {"id": "b"})
    assert act(aws_server, "cancel", filter={"stage": ["weigh"]}).body["done"] == 2
    assert row(aws_server, "a")["status"] == "CANCELLED"
    assert aws_server.call("GET", "/api/v1/acts").body["acts"][0]["done"] == 2
    aws_server.call("PUT", f"{HOLDS}/weigh", {"reason": "x"})
    aws_server.call("PUT", f"{LIMITS}/weigh", {"rate": "5/s", "reason": "x"})
    assert [one["scope"] for one in aws_server.call("GET", HOLDS).body["holds"]] == [
        "parcels/weigh"
    ]
    assert [one["rate"] for one in aws_server.call("GET", LIMITS).body["limits"]] == ["5/s"]


def test_a_field_that_nobody_knows_and_one_that_is_missing_are_named_with_those_there_are(
    live_server: LiveServer,
) -> None:
    unknown = live_server.call(
        "PUT", "/api/v1/routes/parcels/holds/weigh", {"reason": "x", "by": "ops"}
    )
    missing = live_server.call("PUT", "/api/v1/routes/parcels/holds/weigh", {"for": "ops"})
    for answered, field in ((unknown, "by"), (missing, "reason")):
        assert answered.status == 400
        assert (answered.body["code"], answered.body["field"], answered.body["expected"]) == (
            "wrong-value",
            field,
            "reason, until, drain, for",
        )
