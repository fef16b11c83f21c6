"""The overview as the server renders it: health, and the figures of each route."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests import standins
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer, sample_route
from tests.http.page_text import text_of
from tests.http.remote_workers import images

import milepost as mp
from milepost.core.errors import EventRefused
from milepost.engine.acts.controls import pause, resume
from milepost.engine.health.doctor import doctor
from milepost.engine.views import overdue_counts
from milepost.http.dashboard.pages import overview
from milepost.http.dashboard.pages.overview import failed_by_group
from milepost.ports.documents import CURSOR, Cursor
from milepost.ports.feed import Group
from milepost.station import Station
from milepost.subscribers import CallSubscriber
from milepost_aws.ledger.names import ResourceNames
from milepost_testing import VirtualClock

SIGNED = {"by": "ops", "reason": "<b>the scale</b> is being mended"}


def late_route() -> mp.Route:
    route = mp.Route("tapes", key="id")
    route.external("taped", overdue="2h", lane=lambda content: content.get("depot", ""))
    return route


def stones() -> mp.Route:
    """What is tried twice, a day apart, lane by lane."""
    route = mp.Route("stones", key="id")

    @route.stage(
        "weigh",
        retry=mp.Backoff(attempts=2, base="1d"),
        lane=lambda content: content.get("lane", ""),
    )
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Reject("too heavy") if item.input.get("reject") else mp.Retry("the scale is away")

    return route


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[GuardedServer]:
    routes = [sample_route(), sample_route("letters"), late_route(), stones(), images()]
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", routes, clock) as opened:
        yield opened


def home(live_server: LiveServer, key: str | None = None) -> str:
    answered = live_server.call("GET", "/", key=key)
    assert answered.status == 200, answered
    return text_of(answered)


def notices(live_server: LiveServer, key: str | None = None) -> dict[str, str]:
    """What is not well, each with the page that it leads to."""
    page = live_server.call("GET", "/", key=key).raw.decode()
    strip = page[page.index('class="strip"') : page.index("</section>")]
    return {
        html.unescape(told): html.unescape(where)
        for where, told in re.findall(r'<a href="([^"]*)">([^<]*)</a>', strip)
    }


def test_while_all_is_well_there_is_one_calm_line(at: GuardedServer) -> None:
    assert (
        "All is well: no item waits for a worker, nothing is paused, the quarantine is empty."
        in home(at)
    )
    at.milepost.submit("parcels", {"id": "a"})
    Station(at.ctx, subscribers=[CallSubscriber(lambda event: None, name="catalogue")]).run(
        until_idle_s=0
    )
    assert (
        "All is well: no item waits for a worker, the resender last ran 0 ms ago, nothing is paused, the quarantine is empty, all subscribers are up to date."
        in home(at)
    )


def test_work_that_waits_while_nobody_is_there_is_told_at_once(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    assert notices(at) == {
        "No process is running, and 1 item waits for a worker.": "/system",
        "No resender has run yet: items whose due time has passed are not sent again.": "/system",
    }
    at.work()
    assert notices(at) == {}


def test_work_that_is_paused_waits_for_nobody(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    pause(at.ctx, "parcels", "weigh", **SIGNED)
    assert "parcels/weigh is paused." in notices(at)
    assert not [told for told in notices(at) if told.startswith("Nobody")]


def test_work_that_nobody_takes_up_is_told_as_the_doctor_tells_it(
    at: GuardedServer, clock: VirtualClock
) -> None:
    """Workers of our own are there, and yet nobody comes for what is remote."""
    at.milepost.submit("images", {"id": "a"}, {"id": "b"})
    assert "remote" in home(at)
    clock.advance("6m")
    at.work()
    assert notices(at) == {}, "it was asked for a moment ago"
    at.ticks.now += 60
    told = "Work at images/resize has been due for 6 min and no worker has claimed it; it waits for a worker (remote)."
    where = "/items/images?stage=resize&nearest=true"
    assert notices(at) == {told: where}
    assert [one.what for one in doctor(at.ctx).findings if one.about == "late"] == [
        f"{told[0].lower()}{told[1:-1]}"
    ]
    assert " a resize " in text_of(at.call("GET", where))
    pause(at.ctx, "images", "resize", **SIGNED)
    assert told not in notices(at)
    resume(at.ctx, "images", "resize", **SIGNED)
    assert told in notices(at)
    assert notices(at, at.key("read", routes=["parcels"])) == {}


def test_late_work_of_our_own_is_told_and_what_a_paused_lane_holds_is_not(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("stones", {"id": "n", "lane": "north"}, {"id": "s", "lane": "south"})
    pause(at.ctx, "stones", "weigh", "south", **SIGNED)
    clock.advance("9m")
    told = "Work at stones/weigh has been due for 9 min and no worker has claimed it."
    assert told in notices(at)
    pause(at.ctx, "stones", "weigh", "north", **SIGNED)
    at.ticks.now += 60
    assert told not in notices(at)


def test_a_resender_that_went_silent_is_missed_while_something_is_on_the_way(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    at.work()
    clock.advance("3h")
    assert notices(at) == {
        "The resender last ran 3 h ago: items whose due time has passed are not sent again.": "/system"
    }


def test_what_failed_and_what_is_late_is_one_click_away(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("parcels", {"id": "a", "weigh": "reject"}, {"id": "b", "weigh": "reject"})
    at.milepost.submit("tapes", {"id": "t"})
    clock.advance("5h")
    at.work()
    assert notices(at) == {
        "2 items of parcels failed.": "/items/parcels?status=failed",
        "1 item of tapes is overdue.": "/items/tapes?overdue=true",
    }
    assert "1 overdue" in home(at)
    for where in notices(at).values():
        assert at.call("GET", where).status == 200


def test_overdue_items_are_counted_exactly_however_many_there_are(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("tapes", *({"id": f"t{n}"} for n in range(250)))
    clock.advance("1h")
    assert "0 overdue" in home(at)
    clock.advance(3_599_999)
    assert "0 overdue" in home(at)
    clock.advance(1)
    assert "250 overdue" in home(at)
    assert "250 items of tapes are overdue." in notices(at)


def test_a_ledger_that_counts_by_the_hour_says_how_many_may_be_overdue(
    at: GuardedServer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at.ctx.ledger, "entered_by", lambda *asked: None)
    monkeypatch.setattr(overdue_counts, "PROBED", 1)
    at.milepost.submit("tapes", {"id": "t"}, {"id": "u"})
    clock.advance("1h")
    assert "0 overdue" in home(at)
    clock.advance("50m")
    assert "up to 2 overdue" in home(at)
    assert "by the counters as of" in " ".join(notices(at))
    clock.advance("90m")
    assert " 2 overdue" in home(at)


def test_subscribers_that_are_not_told_are_named(at: GuardedServer) -> None:
    def hear(event: dict[str, str]) -> None:
        raise EventRefused("no")

    at.milepost.submit("parcels", {"id": "a"})
    Station(at.ctx, subscribers=[CallSubscriber(hear, name="catalogue")]).run(until_idle_s=0)
    assert notices(at) == {"Events of 1 item wait: a subscriber refuses them.": "/events"}
    at.ctx.ledger.write(CURSOR, "topic", Cursor(0, 0, failures=3, error="about another route"))
    assert notices(at)["topic receives no events: it failed 3 times."] == "/events"
    assert "about another route" not in home(at)


def test_a_pause_says_who_why_and_since_when_and_can_be_lifted(at: GuardedServer) -> None:
    pause(at.ctx, "parcels", None, None, **SIGNED)
    pause(at.ctx, "parcels", "weigh", "north/east", **SIGNED)
    text = home(at)
    assert "Paused by ops: <b>the scale</b> is being mended since 2033-11-14T22:13:20.000Z" in text
    assert "Lane north/east is paused by ops" in text
    assert "2 pauses are in force." in text
    page = at.call("GET", "/").raw.decode()
    for path in re.findall(r'data-hold="([^"]*)" data-paused="1"', page):
        assert at.call("DELETE", f"/api/v1/routes/{path}?reason=mended").body["resumed"] is True
    assert notices(at) == {}


def test_who_may_only_look_is_offered_nothing_to_do(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "a", "weigh": "reject"})
    at.work()
    reader, operator = at.key("read", name="reader"), at.key("read", "operate", name="operator")
    seen, done = (at.call("GET", "/", key=key).raw.decode() for key in (reader, operator))
    assert ("data-hold" in seen, "Retry all" in seen) == (False, False)
    assert ("data-hold" in done, "Retry all" in done) == (True, True)


def test_a_key_for_one_route_sees_nothing_of_another(at: GuardedServer) -> None:
    at.milepost.submit("letters", {"id": "secret", "weigh": "reject"})
    at.work()
    at.milepost.submit("letters", {"id": "other"})
    pause(at.ctx, "letters", "deliver", **SIGNED)
    key = at.key("read", routes=["parcels"])
    assert notices(at, key) == {}
    assert not [
        word for word in ("letters", "too heavy", "mended", "tapes") if word in home(at, key)
    ]


def test_how_fast_it_goes_is_watched_by_whoever_looks(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("parcels", *({"id": f"p{n}"} for n in range(30)))
    at.work()
    assert "30 wait for a partner at deliver. Nothing else is in progress." in home(at)
    for n in range(4):
        for key in range(n * 5, n * 5 + 5):
            at.milepost.confirm("parcels", f"p{key}", "deliver", {"ok": True}, by="depot")
        clock.advance("1m")
        text = home(at)
    assert "10 wait for a partner at deliver. Nothing else is in progress." in text
    assert "by minute since 2033-11-14T22:13:20.000Z" in text
    assert (
        "Ended in the last hour, by minute: 20 completed in all" in at.call("GET", "/").raw.decode()
    )


def test_charts_are_drawn_in_the_zone_that_the_browser_names(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "a", "weigh": "reject"})
    at.work()

    def chart(zone: str) -> str:
        return at.call("GET", "/", headers={"Cookie": f"milepost-zone={zone}"}).raw.decode()

    assert "22:00 to 23:00 UTC: 0 completed, 1 failed" in home(at)
    assert "17:00 to 18:00 EST: 0 completed, 1 failed" in chart("America%2FNew_York")
    assert "22:00 to 23:00 UTC: 0 completed, 1 failed" in chart("..%2Fetc%2Fpasswd")


def causes_of(
    live_server: LiveServer, route: str
) -> dict[str, tuple[list[str], dict[str, Any] | None]]:
    """By cause: how many have failed, have it now and ever had it; and what Retry all is for, where
    it is offered."""
    page = live_server.call("GET", "/").raw.decode()
    part = page[page.index(f'data-live="route-{route}"') :]
    rows = re.findall(r"<tr data-name=.*?</tr>", part[: part.index("</section>")], re.S)
    found = {}
    for row in rows:
        cells = [text_of_markup(cell) for cell in re.findall(r"<td.*?</td>", row, re.S)]
        offered = re.search(r'data-retry="([^"]*)"', row)
        found[cells[5]] = (
            cells[2:5],
            None if offered is None else json.loads(html.unescape(offered[1])),
        )
    return found


def text_of_markup(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def act(live_server: LiveServer, verb: str, **which: Any) -> None:
    """Done to exactly one stone."""
    said = {"verb": verb, "reason": "the scale is back", **which}
    assert live_server.call("POST", "/api/v1/routes/stones/acts", said).body["done"] == 1


def test_a_cause_counts_what_has_failed_and_only_that_is_retried(
    at: GuardedServer, clock: VirtualClock
) -> None:
    at.milepost.submit("stones", {"id": "failed"}, {"id": "gone"})
    at.work()
    assert causes_of(at, "stones") == {"the scale is away": (["0", "2", "2"], None)}
    act(at, "cancel", keys=["gone"])
    clock.advance("2d")
    at.milepost.submit("stones", {"id": "again"}, {"id": "heavy", "reject": True})
    at.work()
    found = causes_of(at, "stones")
    assert {cause: told for cause, (told, _) in found.items()} == {
        "the scale is away": ["1", "3", "4"],
        "too heavy": ["1", "1", "1"],
    }
    for cause, key in (("the scale is away", "failed"), ("too heavy", "heavy")):
        act(at, "retry", filter=found[cause][1])
        assert at.milepost.show("stones", key)["status"] in ("PENDING", "QUEUED")  # type: ignore[index]
    assert [at.milepost.show("stones", key)["status"] for key in ("again", "gone")] == [
        "RETRY_SCHEDULED",
        "CANCELLED",
    ]  # type: ignore[index]
    assert causes_of(at, "stones")["the scale is away"] == (["0", "2", "4"], None)


def test_where_counting_the_failed_of_a_cause_would_cost_it_says_at_most(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def group(name: str, now: int, stage: str = "weigh") -> Group:
        return Group("stones", stage, name, "ERROR", name, now, now, 0, 0)

    groups = [group("a", 5), group("b", 3), group("c", 2, "wrap"), group("d", 4, "clear")]
    assert failed_by_group({"weigh": 4, "wrap": 1}, groups) == {
        ("weigh", "a"): (1, 4),
        ("weigh", "b"): (0, 3),
        ("wrap", "c"): (1, 1),
        ("clear", "d"): (0, 0),
    }
    assert set(failed_by_group({"weigh": 8}, groups[:2]).values()) == {(5, 5), (3, 3)}
    at.milepost.submit(
        "stones", {"id": "a", "reject": True}, {"id": "b", "reject": True}, {"id": "c"}
    )
    at.work()
    act(at, "cancel", keys=["c"])
    assert {told[0] for told, _ in causes_of(at, "stones").values()} == {"2", "0"}
    monkeypatch.setattr(overview, "FAILED_ROWS", 1)
    assert {told[0] for told, _ in causes_of(at, "stones").values()} == {"up to 2", "up to 1"}


def test_the_page_says_how_many_causes_it_leaves_out(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.milepost.submit("stones", {"id": "a", "reject": True}, {"id": "b"})
    at.work()
    assert "with fewer failures" not in home(at)
    monkeypatch.setattr(overview, "CAUSES", 1)
    assert len(causes_of(at, "stones")) == 1
    assert "1 more with fewer failures: milepost groups stones lists all." in home(at)


def test_a_stage_keeps_its_slots_whatever_moves(at: GuardedServer) -> None:
    def slots() -> list[str]:
        page = at.call("GET", "/").raw.decode()
        return re.findall(
            r'<(?:li|section|dl|dd|p|table)\b(?: class="[^"]*")?(?: data-name="[^"]*")?',
            page[page.index('data-live="route-parcels') :],
        )

    at.milepost.submit("parcels", {"id": "a", "weigh": "reject"})
    at.work()
    before = slots()
    at.milepost.submit("parcels", {"id": "b"}, {"id": "c"})
    assert slots() == before
    at.work()
    assert slots() == before


def test_the_number_of_items_leads_to_them(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    assert re.search(
        r'<a class="" href="/items/parcels"><b>1</b> item</a>', at.call("GET", "/").raw.decode()
    )


def test_the_route_of_the_heads_is_silent_while_it_is_well(tmp_path: Path) -> None:
    kept = mp.Route("archive", key="id", evidence=True)
    kept.external("taped")
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", [kept]) as opened:
        assert "heads" in opened.ctx.plans
        assert "heads" not in home(opened)


def test_on_aws_what_was_set_aside_is_told_to_those_who_see_everything(
    aws_server: LiveServer,
) -> None:
    assert "the quarantine is empty" in home(aws_server)
    place = urlsplit(aws_server.ctx.ledger.url)
    sqs = boto3.client(
        "sqs", region_name=standins.REGION, endpoint_url=parse_qs(place.query)["endpoint"][0]
    )
    url = sqs.get_queue_url(QueueName=ResourceNames(place.path.strip("/")).quarantine)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="something")
    assert "the quarantine is empty" in home(aws_server)  # asked a moment ago
    aws_server.opened.state.ttl_cache._kept.clear()
    assert notices(aws_server) == {"The quarantine has entries.": "/system"}
