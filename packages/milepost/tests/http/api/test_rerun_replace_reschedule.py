"""Run again, give other content, set for later, over HTTP and on the page."""

from __future__ import annotations

from typing import Any

from tests.http.live_server import HttpAnswer, LiveServer

NDJSON = {"Content-Type": "application/x-ndjson"}
ITEMS = "/api/v1/routes/parcels/items"


def act(live_server: LiveServer, verb: str, **deed: Any) -> HttpAnswer:
    return live_server.call(
        "POST", "/api/v1/routes/parcels/acts", {"verb": verb, "reason": "fixed", **deed}
    )


def row(live_server: LiveServer, key: str) -> dict[str, Any]:
    found = live_server.milepost.show("parcels", key)
    assert found is not None
    return found


def test_replace_shows_the_difference_and_keeps_the_old_content(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "a", "weigh": "reject", "to": "Oslo"})
    live_server.work()
    new = {"id": "a", "to": "Bergen"}
    preview = act(live_server, "replace", keys=["a"], content=new, dry_run=True, reason="").body
    assert [one["text"] for one in preview["difference"]] == [
        '~ to: "Oslo" → "Bergen"',
        '- weigh: "reject"',
    ]
    assert row(live_server, "a")["input"]["to"] == "Oslo"
    assert act(live_server, "replace", keys=["a"], content=new).body["done"] == 1
    assert (row(live_server, "a")["input"], row(live_server, "a")["status"]) == (new, "QUEUED")
    assert live_server.call("GET", f"{ITEMS}/a").body["replaced"][0]["content"]["to"] == "Oslo"
    assert "Oslo" in live_server.call("GET", "/items/parcels/a").raw.decode()
    assert act(live_server, "replace", keys=["a"]).status == 400
    assert act(live_server, "replace", keys=["a"], content={"to": "Oslo"}).status == 400
    assert act(live_server, "retry", keys=["a"], content=new).status == 400


def test_rerun_and_its_pace(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "a"}, {"id": "b"})
    live_server.work()
    for key in "ab":
        live_server.milepost.confirm("parcels", key, "deliver", by="p")
    assert row(live_server, "a")["status"] == "COMPLETED"
    assert 'data-verb="rerun"' in live_server.call("GET", "/items/parcels/a").raw.decode()
    assert act(live_server, "rerun", keys=["a"], stage="deliver", as_new=True).body["done"] == 1
    assert (row(live_server, "a")["stage"], row(live_server, "a")["pass"]) == ("deliver", 2)
    begun = act(live_server, "rerun", filter={"status": ["COMPLETED"]}, pace="2/s").body
    assert (begun["pace_per_s"], begun["done"]) == (2.0, 0)
    assert live_server.call("GET", f"/api/v1/acts/{begun['id']}").body["finished"] is False
    assert act(live_server, "rerun", filter={"status": ["COMPLETED"]}, pace="often").status == 400


def test_an_item_for_later_is_shown_moved_and_started(live_server: LiveServer) -> None:
    taken = live_server.call("POST", f"{ITEMS}?not_before=2h", {"id": "a"})
    assert (taken.status, taken.body["status"]) == (201, "PENDING")
    assert row(live_server, "a")["not_before"] == row(live_server, "a")["due_at"]
    page = live_server.call("GET", "/items/parcels/a").raw.decode()
    assert "It starts" in page
    assert 'data-verb="reschedule"' in page
    assert (
        act(live_server, "reschedule", keys=["a"], not_before="2999-01-01T00:00:00Z").body["done"]
        == 1
    )
    assert row(live_server, "a")["not_before"] == "2999-01-01T00:00:00.000Z"
    assert act(live_server, "reschedule", keys=["a"], not_before="0s").body["done"] == 1
    assert row(live_server, "a")["status"] == "QUEUED"
    assert act(live_server, "reschedule", keys=["a"]).status == 400
    assert live_server.call("POST", f"{ITEMS}?not_before=whenever", {"id": "b"}).status == 400
    many = live_server.call("POST", f"{ITEMS}?not_before=2h", [{"id": "c"}, {"id": "d"}])
    assert [one["status"] for one in many.body["receipts"]] == ["PENDING", "PENDING"]


def test_a_list_that_replaces_takes_an_operator_and_a_reason(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "a", "n": 1})
    body = b'{"id": "a", "n": 2}\n'
    assert (
        live_server.call("POST", f"{ITEMS}?replace_changed=true", body, headers=NDJSON).status
        == 400
    )
    preview = live_server.call(
        "POST", f"{ITEMS}?replace_changed=true&dry_run=true", body, headers=NDJSON
    ).body
    assert (preview["counts"]["replaced"], preview["changed"][0]["difference"][0]["text"]) == (
        1,
        "~ n: 1 → 2",
    )
    assert row(live_server, "a")["input"]["n"] == 1
    report = live_server.call(
        "POST", f"{ITEMS}?replace_changed=true&reason=fixed", body, headers=NDJSON
    ).body
    assert (report["counts"]["replaced"], row(live_server, "a")["input"]["n"]) == (1, 2)


def test_prune_shows_first_and_takes_named_statuses_alone(live_server: LiveServer) -> None:
    def prune(**asked: Any) -> HttpAnswer:
        return live_server.call(
            "POST", "/api/v1/routes/parcels/prune", {"older_than": "0s", **asked}
        )

    live_server.milepost.submit("parcels", {"id": "a"}, {"id": "b", "weigh": "reject"})
    live_server.work()
    live_server.milepost.confirm("parcels", "a", "deliver", by="p")
    preview = prune(dry_run=True).body
    assert (preview["dry_run"], preview["statuses"], preview["others"]) == (
        True,
        {"COMPLETED": 1},
        {"REJECTED": 1},
    )
    assert live_server.milepost.show("parcels", "a")["sealed"] is False
    assert prune().status == 400
    assert prune(reason="room", older_than="soon").status == 400
    assert prune(reason="room", statuses=["QUEUED"]).status == 400
    assert live_server.call("POST", "/api/v1/routes/nowhere/prune", {"dry_run": True}).status == 404
    assert prune(reason="room", older_than="1d").body["items"] == 0
    assert prune(reason="room").body["statuses"] == {"COMPLETED": 1}
    assert (row(live_server, "a")["sealed"], row(live_server, "b")["status"]) == (True, "REJECTED")
    done = live_server.call("GET", "/api/v1/acts?verb=prune").body["acts"][0]
    assert (done["route"], done["reason"], done["done"]) == ("parcels", "room", 1)


def test_a_failed_key_is_submitted_again_after_its_row_was_pruned(live_server: LiveServer) -> None:
    bad = {"id": "b", "weigh": "reject"}
    live_server.milepost.submit("parcels", bad)
    live_server.work()
    assert (
        live_server.call("POST", f"{ITEMS}?failed_again=true&reason=mended", bad).body["answer"]
        == "known"
    )
    live_server.call(
        "POST",
        "/api/v1/routes/parcels/prune",
        {"older_than": "0s", "statuses": ["failed"], "reason": "room"},
    )
    assert live_server.call("POST", ITEMS, bad).body["answer"] == "known"
    assert live_server.call("POST", f"{ITEMS}?failed_again=true", bad).status == 400
    assert live_server.call("POST", f"{ITEMS}?reason=mended", bad).status == 400
    taken = live_server.call("POST", f"{ITEMS}?failed_again=true&reason=mended", {"id": "b"})
    assert (taken.status, taken.body["answer"]) == (201, "new")
    assert "mended" in str(row(live_server, "b")["history"])
    again = live_server.call(
        "POST", f"{ITEMS}?failed_again=true&reason=mended", [{"id": "b"}, {"id": "c"}]
    )
    assert [one["answer"] for one in again.body["receipts"]] == ["known", "new"]
