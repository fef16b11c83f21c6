"""Redate over HTTP and on the pages: items that a clock that was ahead has dated in the future."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import HttpAnswer
from tests.http.page_text import text_of

from milepost.engine.act_log import begin
from milepost.ports.documents import Act
from milepost_testing.clock import VirtualClock

REDATE = "/api/v1/routes/parcels/redate"
WHY = {"reason": "the time server is back"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[GuardedServer]:
    """`a`, `b` and `c` were submitted while the clock was three days ahead, `now` at the true
    time."""
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as opened:
        clock.advance("3d")
        opened.milepost.submit("parcels", {"id": "a"}, {"id": "b"}, {"id": "c"})
        clock.set_back("3d")
        opened.milepost.submit("parcels", {"id": "now"})
        yield opened


def redate(at: GuardedServer, **body: Any) -> HttpAnswer:
    return at.call("POST", REDATE, body)


def last_line(at: GuardedServer, key: str) -> dict[str, Any]:
    line: dict[str, Any] = at.call("GET", f"/api/v1/routes/parcels/items/{key}").body["history"][-1]
    return line


def test_a_dry_run_counts_and_changes_nothing(at: GuardedServer) -> None:
    report = redate(at, dry_run=True)
    assert (report.status, report.body["matched"], report.body["done"], report.body["dry_run"]) == (
        200,
        3,
        3,
        True,
    )
    assert at.call("GET", "/api/v1/acts").body["acts"] == []
    assert last_line(at, "a")["reason"] == "accepted"


def test_redate_is_on_record_with_who_and_why(at: GuardedServer) -> None:
    assert redate(at).status == 400, "an act needs a reason"
    report = redate(at, **WHY, **{"for": "the night shift"})
    assert (report.status, report.body["verb"], report.body["matched"], report.body["done"]) == (
        200,
        "redate",
        3,
        3,
    )
    line = last_line(at, "a")
    assert (line["reason"], line["why"], line["act"]) == ("noted", WHY["reason"], report.body["id"])
    assert line["by"].endswith("for the night shift")
    [act] = at.call("GET", "/api/v1/acts").body["acts"]
    assert (act["id"], act["verb"], act["done"], act["finished"]) == (
        report.body["id"],
        "redate",
        3,
        True,
    )
    assert redate(at, **WHY).body["matched"] == 0


def test_a_repeat_with_its_id_gets_the_first_answer_and_another_act_is_refused(
    at: GuardedServer,
) -> None:
    first = redate(at, id="clock", **WHY)
    assert first.body["done"] == 3
    assert redate(at, id="clock", **WHY).body == first.body
    other_route = at.call("POST", "/api/v1/routes/letters/redate", {"id": "clock", **WHY})
    assert (other_route.status, other_route.body["code"]) == (409, "conflict")
    other_verb = at.call(
        "POST",
        "/api/v1/routes/parcels/acts",
        {"verb": "cancel", "keys": ["a"], "id": "clock", **WHY},
    )
    assert (other_verb.status, other_verb.body["code"]) == (409, "conflict")
    assert (
        at.call(
            "POST",
            "/api/v1/routes/parcels/acts",
            {"verb": "cancel", "keys": ["a"], "id": "other", **WHY},
        ).status
        == 200
    )
    assert (redate(at, id="other", **WHY).status, redate(at, id="other", **WHY).body["code"]) == (
        409,
        "conflict",
    )


def test_an_act_that_was_cut_off_is_continued_by_its_id(
    at: GuardedServer, clock: VirtualClock
) -> None:
    begin(
        at.ctx,
        Act(
            "cut", "redate", "parcels", "ops", "why", clock.now(), {}, done=2, moved_at=clock.now()
        ),
    )
    [act] = at.call("GET", "/api/v1/acts").body["acts"]
    assert act["go_on"].startswith("milepost redate parcels --act cut ")
    report = at.call("POST", "/api/v1/routes/parcels/acts/cut/go-on", WHY).body
    assert (report["id"], report["done"], report["skipped"], report["matched"]) == ("cut", 3, 2, 5)
    done = at.call("GET", "/api/v1/acts/cut").body
    assert (done["finished"], done["done"]) == (True, 5)


def test_it_needs_the_scope_operate_and_the_route(at: GuardedServer) -> None:
    for scopes, routes in ((["read"], None), (["operate"], ["letters"])):
        key = at.key(*scopes, name=f"key-{scopes[0]}", routes=routes)
        assert at.call("POST", REDATE, WHY, key=key).status in (403, 404)
    assert (
        at.call("POST", REDATE, {"dry_run": True}, key=at.key("operate", name="ops")).body["done"]
        == 3
    )


def test_overview_and_system_page_name_them_until_they_are_redated(at: GuardedServer) -> None:
    headline = "3 items of parcels are dated in the future."
    home = at.call("GET", "/")
    assert headline in text_of(home)
    assert 'href="/system#future"' in home.raw.decode()
    page = at.call("GET", "/system")
    assert headline in text_of(page)
    assert 'data-redate="parcels"' in page.raw.decode()
    assert redate(at, **WHY).body["done"] == 3
    assert headline not in text_of(at.call("GET", "/")), "at once, although the count is cached"
    assert "Dated in the future" not in text_of(at.call("GET", "/system"))
    acts = text_of(at.call("GET", "/acts"))
    assert "items dated in the future" in acts
    assert "3 dated as of now" in acts


def test_a_reader_sees_the_command_and_no_button(at: GuardedServer) -> None:
    page = at.call("GET", "/system", key=at.key("read"))
    assert "milepost redate parcels dates them as of now." in text_of(page)
    assert "data-redate" not in page.raw.decode()
