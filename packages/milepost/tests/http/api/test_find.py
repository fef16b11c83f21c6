"""Queries over HTTP: filters, pages and counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.http.live_server import HttpAnswer, LiveServer

from milepost.engine.lists.reconcile import submit_list
from milepost.http.api import find

ITEMS = "/api/v1/routes/parcels/items"


def keys(answer: HttpAnswer) -> list[str]:
    assert answer.status == 200, answer
    return [item["key"] for item in answer.body["items"]]


def all_pages(live_server: LiveServer, question: str, limit: int) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = live_server.call("GET", f"{ITEMS}?limit={limit}&{question}{after}")
        assert len(keys(page)) <= limit
        found += keys(page)
        if page.body["next"] is None:
            return found
        after = f"&after={page.body['next']}"


@pytest.fixture(scope="module")
def filled(shared_server: LiveServer) -> LiveServer:
    """25 parcels: every fifth is rejected, the others are at `deliver`."""
    shared_server.milepost.submit(
        "parcels", *({"id": f"p{n:02}", "weigh": "reject" if n % 5 == 0 else ""} for n in range(25))
    )
    shared_server.work()
    return shared_server


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("", set(range(25))),
        ("status=failed", {0, 5, 10, 15, 20}),
        ("status=REJECTED&status=live", set(range(25))),
        ("status=live", set(range(25)) - {0, 5, 10, 15, 20}),
        ("stage=weigh", {0, 5, 10, 15, 20}),
        ("prefix=p1", set(range(10, 20))),
        ("prefix=p1&status=failed", {10, 15}),
        ("older_than=0s", set(range(25))),
        ("older_than=1d", set()),
    ],
)
@pytest.mark.parametrize("limit", [3, 1000])
def test_the_pages_of_a_question_hold_every_item_once(
    filled: LiveServer, question: str, wanted: set[int], limit: int
) -> None:
    found = all_pages(filled, question, limit)
    assert sorted(found) == sorted(f"p{n:02}" for n in wanted)


def test_an_item_looks_as_the_command_line_shows_it(filled: LiveServer) -> None:
    from milepost.engine.views.blocks import UNBLOCKED
    from milepost.engine.views.items import row_view

    [item] = filled.ctx.ledger.get([("parcels", "p01")])
    assert item is not None
    assert filled.call("GET", f"{ITEMS}?prefix=p01").body == {
        "items": [row_view(item, UNBLOCKED)],
        "next": None,
        "more": False,
        "refused": [],
        "ordered": True,
        "left": [],
        "more_left": False,
        "all_left_known": True,
    }


def test_the_items_of_one_kind_of_error_are_found(filled: LiveServer) -> None:
    [group] = filled.ctx.ledger.groups("parcels")
    assert len(all_pages(filled, f"group={group.group}", 2)) == 5


def test_the_items_of_several_lists_of_one_name_are_found_page_by_page(
    live_server: LiveServer, tmp_path: Any
) -> None:
    for name, content in (("x.txt", "a\nb\nc\n"), ("y.txt", "d\ne\n"), ("x.txt", "f\ng\n")):
        (tmp_path / name).write_text(content)
        submit_list(live_server.ctx, "parcels", str(tmp_path / name))
    assert sorted(all_pages(live_server, "list=x.txt", 2)) == ["a", "b", "c", "f", "g"]
    assert sorted(all_pages(live_server, "list=y.txt", 2)) == ["d", "e"]


def test_a_place_is_good_for_its_own_question_alone(filled: LiveServer) -> None:
    place = filled.call("GET", f"{ITEMS}?status=live&limit=3").body["next"]
    assert filled.call("GET", f"{ITEMS}?status=live&limit=5&after={place}").status == 200
    for question in (
        f"status=failed&after={place}",
        f"after={place}",
        "status=live&after=nonsense",
        f"status=live&after={place[:-4]}",
    ):
        answer = filled.call("GET", f"{ITEMS}?limit=3&{question}")
        assert (answer.status, answer.body["field"]) == (400, "after"), question
    other = filled.call("GET", f"/api/v1/routes/letters/items?status=live&after={place}")
    assert other.status == 400


def test_pages_of_items_by_age_are_of_one_moment(live_server: LiveServer) -> None:
    def submitted(*names: str) -> None:
        live_server.milepost.submit("parcels", *({"id": name} for name in names))
        done = live_server.ctx.clock.now()
        while live_server.ctx.clock.now() == done:
            pass

    submitted("0", "1", "2", "3")
    first = live_server.call("GET", f"{ITEMS}?older_than=0s&limit=2")
    submitted("late")
    rest = live_server.call("GET", f"{ITEMS}?older_than=0s&limit=100&after={first.body['next']}")
    assert sorted(keys(first) + keys(rest)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("question", "field", "expected"),
    [
        ("limit=0", "limit", "a whole number from 1 to 1000"),
        ("limit=1001", "limit", "a whole number from 1 to 1000"),
        ("limit=many", "limit", "a whole number from 1 to 1000"),
        ("overdue=perhaps", "overdue", "true or false"),
        (
            "colour=red",
            "colour",
            "status, stage, lane, group, list, prefix, part, older_than, overdue, nearest, oldest_first, scan, limit, after",
        ),
    ],
)
def test_a_wrong_parameter_is_named_with_what_would_be_right(
    shared_server: LiveServer, question: str, field: str, expected: str
) -> None:
    answer = shared_server.call("GET", f"{ITEMS}?{question}")
    assert (answer.status, answer.body["code"], answer.body["field"]) == (400, "wrong-value", field)
    assert answer.body["expected"] == expected


STATUSES = "PENDING, QUEUED, PROCESSING, WAITING, RETRY_SCHEDULED, COMPLETED, MAX_RETRIES_EXCEEDED, REJECTED, CANCELLED, failed, live"


def test_what_nobody_knows_is_named_within_the_filter_of_an_act_too(
    shared_server: LiveServer,
) -> None:
    deed = {"verb": "retry", "filter": {"status": ["failed", "foo"]}, "dry_run": True}
    told = shared_server.call("POST", "/api/v1/routes/parcels/acts", deed).body
    assert (told["field"], told["expected"]) == ("filter.status", STATUSES)


@pytest.mark.parametrize(
    ("question", "field", "expected"),
    [
        # Of two that are wrong, the one that the text is about.
        ("status=gone&stage=nowhere", "stage", "weigh, deliver"),
        ("status=live&status=foo&stage=weigh", "status", STATUSES),
        ("status=live&stage=nowhere", "stage", "weigh, deliver"),
        ("group=none", "group", "a group that GET /api/v1/routes/parcels/groups names"),
        ("list=none", "list", "the name or id of a list that GET /api/v1/lists names"),
        ("older_than=soon", "older_than", "a span, such as 2d"),
    ],
)
def test_what_nobody_knows_is_a_mistake_and_not_an_empty_answer(
    shared_server: LiveServer, question: str, field: str, expected: str
) -> None:
    answer = shared_server.call("GET", f"{ITEMS}?{question}")
    assert (answer.status, answer.body["code"], answer.body["field"]) == (400, "wrong-value", field)
    assert answer.body["expected"] == expected


def test_what_comes_next_is_the_nearest_with_the_reason(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "first"})
    live_server.work()
    live_server.milepost.submit("parcels", {"id": "second"})
    found = live_server.call("GET", f"{ITEMS}?nearest=true").body
    assert [(row["key"], row["why"]) for row in found["items"]] == [
        ("first", "offered; not confirmed yet"),
        ("second", "it waits for a worker"),
    ]
    assert (found["next"], found["more"]) == (None, False)


def test_overdue_items_come_with_the_reason_and_in_one_page(live_server: LiveServer) -> None:
    assert live_server.call("GET", f"{ITEMS}?overdue=true").body == {
        "items": [],
        "next": None,
        "more": False,
        "refused": [],
        "ordered": True,
        "left": [],
        "more_left": False,
        "all_left_known": True,
    }
    assert live_server.call("GET", f"{ITEMS}?overdue=true&after=x").body["field"] == "after"


def test_status_and_counts_say_how_many_are_where(filled: LiveServer) -> None:
    told = filled.call("GET", "/api/v1/status").body["routes"]
    assert told["parcels"]["stages"] == {"weigh": {"REJECTED": 5}, "deliver": {"QUEUED": 20}}
    assert told["letters"]["total"] == 0
    counts = filled.call("GET", "/api/v1/routes/parcels/counts").body
    weigh, deliver = counts["stages"]
    assert (counts["total"], counts["failed"], counts["done"]) == (25, 5, 0)
    assert (weigh["unfinished"], weigh["oldest_s"], weigh["past"]) == (0, None, 20)
    assert (deliver["statuses"], deliver["unfinished"]) == ({"QUEUED": 20}, 20)
    assert 0 <= deliver["p50_s"] <= deliver["p95_s"] <= deliver["oldest_s"]


def test_on_aws_items_are_found_page_by_page_and_what_no_index_serves_is_said(
    aws_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws_server.milepost.submit(
        "parcels", *({"id": f"p{n:02}", "weigh": "reject" if n % 5 == 0 else ""} for n in range(12))
    )
    aws_server.work()
    assert sorted(all_pages(aws_server, "", 5)) == [f"p{n:02}" for n in range(12)]
    assert sorted(all_pages(aws_server, "status=failed", 2)) == ["p00", "p05", "p10"]
    assert aws_server.call("GET", "/api/v1/routes/parcels/counts").body["failed"] == 3
    assert "'deliver'" in aws_server.call("GET", "/api/v1/routes/parcels/story/p01").body["where"]
    monkeypatch.setattr(find, "WARN_ROWS", 5)
    told = aws_server.call("GET", f"{ITEMS}?stage=deliver")
    assert "all 12 rows of parcels are read" in told.headers["milepost-cost"]
    monkeypatch.setattr(find, "CONFIRM_ROWS", 10)
    refused = aws_server.call("GET", f"{ITEMS}?stage=deliver")
    assert (refused.status, refused.body["code"], refused.body["rows"]) == (400, "costly", 12)
    assert len(keys(aws_server.call("GET", f"{ITEMS}?stage=deliver&scan=true"))) == 9
    assert "milepost-cost" not in aws_server.call("GET", f"{ITEMS}?status=failed").headers


def test_on_aws_a_list_is_taken_in_from_a_stream(aws_server: LiveServer) -> None:
    report = aws_server.call(
        "POST",
        ITEMS,
        b'{"id": "a"}\n{"id": "b"}\n',
        headers={"Content-Type": "application/x-ndjson"},
    ).body
    assert report["counts"]["new"] == 2
    assert sorted(all_pages(aws_server, f"list={report['id']}", 1)) == ["a", "b"]
