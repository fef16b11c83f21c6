"""The overview as a plain answer: is all well, and what is seen of each route."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests.aws import standins
from tests.http.guarded import Guarded, guarded
from tests.http.page_text import text_of
from tests.http.visitor import Visitor, sample_route

import milepost as mp
from milepost.core.errors import Refused
from milepost.engine import snapshot
from milepost.engine.operate import pause
from milepost.ledgers.aws.names import Names
from milepost.ports.documents import CURSOR, Cursor
from milepost.subscribers import CallSubscriber
from milepost.testing import VirtualClock
from milepost.wiring import Station

SIGNED = {"by": "ops", "reason": "<b>the scale</b> is being mended"}


def late_route() -> mp.Route:
    route = mp.Route("tapes", key="id")
    route.external("taped", overdue="2h")
    return route


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def at(tmp_path: Path, clock: VirtualClock) -> Iterator[Guarded]:
    with guarded(f"sqlite:///{tmp_path}/ledger.db", [sample_route(), sample_route("letters"), late_route()], clock) as opened:
        yield opened


def home(door: Visitor, key: str | None = None) -> str:
    answered = door.call("GET", "/", key=key)
    assert answered.status == 200, answered
    return text_of(answered)


def notices(door: Visitor, key: str | None = None) -> dict[str, str]:
    """What is not well, each with the page that it leads to."""
    page = door.call("GET", "/", key=key).raw.decode()
    strip = page[page.index('class="strip"') : page.index("</section>")]
    return {html.unescape(told): html.unescape(where) for where, told in re.findall(r'<a href="([^"]*)">([^<]*)</a>', strip)}


def test_while_all_is_well_there_is_one_calm_line(at: Guarded) -> None:
    assert "All is well: nothing waits for a worker, nothing is paused." in home(at)
    at.milepost.submit("parcels", {"id": "a"})
    Station(at.ctx, subscribers=[CallSubscriber(lambda event: None, name="catalogue")]).run(until_idle_s=0)
    assert "All is well: nothing waits for a worker, the resender last ran 0 ms ago, nothing is paused, everyone is told." in home(at)


def test_work_that_waits_while_nobody_is_there_is_told_at_once(at: Guarded) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    assert notices(at) == {
        "Nobody is at work, and 1 item waits for a worker.": "/system",
        "No resender has run yet: what has gone quiet is not sent again.": "/system",
    }
    at.work()
    assert notices(at) == {}


def test_work_that_is_paused_waits_for_nobody(at: Guarded) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    pause(at.ctx, "parcels", "weigh", **SIGNED)
    assert "parcels/weigh is paused." in notices(at)
    assert not [told for told in notices(at) if told.startswith("Nobody")]


def test_a_resender_that_went_silent_is_missed_while_something_is_on_the_way(at: Guarded, clock: VirtualClock) -> None:
    at.milepost.submit("parcels", {"id": "a"})
    at.work()
    clock.advance("3h")
    assert notices(at) == {"The resender last ran 3 h ago: what has gone quiet is not sent again.": "/system"}


def test_what_failed_and_what_is_late_is_one_click_away(at: Guarded, clock: VirtualClock) -> None:
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


def test_what_may_be_late_is_said_so(at: Guarded, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are many, they are counted by the hour they came in; the hour that the mark falls into is unsure."""
    monkeypatch.setattr(snapshot, "LOOK", 1)
    at.milepost.submit("tapes", {"id": "t"}, {"id": "u"})
    clock.advance("1h")
    assert "overdue" not in home(at)
    clock.advance("70m")
    assert "some may be overdue" in home(at)
    clock.advance("1h")
    assert "2 overdue" in home(at)


def test_subscribers_that_are_not_told_are_named(at: Guarded) -> None:
    def hear(event: dict[str, str]) -> None:
        raise Refused("no")

    at.milepost.submit("parcels", {"id": "a"})
    Station(at.ctx, subscribers=[CallSubscriber(hear, name="catalogue")]).run(until_idle_s=0)
    assert notices(at) == {"Events of 1 item wait: a subscriber refuses them.": "/events"}
    at.ctx.ledger.write(CURSOR, "topic", Cursor(0, 0, failures=3, error="about another route"))
    assert notices(at)["topic is not told: it failed 3 times."] == "/events"
    assert "about another route" not in home(at)


def test_a_pause_says_who_why_and_since_when_and_can_be_lifted(at: Guarded) -> None:
    pause(at.ctx, "parcels", None, None, **SIGNED)
    pause(at.ctx, "parcels", "weigh", "north/east", **SIGNED)
    text = home(at)
    assert "Paused by ops: <b>the scale</b> is being mended since 2033-11-14T22:13:20.000Z" in text
    assert "Lane north/east is paused by ops" in text
    assert "2 pauses are in force." in text
    page = at.call("GET", "/").raw.decode()
    for path in re.findall(r'data-hold="([^"]*)" data-held="1"', page):
        assert at.call("DELETE", f"/api/v1/routes/{path}?reason=mended").body["resumed"] is True
    assert notices(at) == {}


def test_who_may_only_look_is_offered_nothing_to_do(at: Guarded) -> None:
    at.milepost.submit("parcels", {"id": "a", "weigh": "reject"})
    at.work()
    reader, operator = at.key("read", name="reader"), at.key("read", "operate", name="operator")
    seen, done = (at.call("GET", "/", key=key).raw.decode() for key in (reader, operator))
    assert ("data-hold" in seen, "Retry all" in seen) == (False, False)
    assert ("data-hold" in done, "Retry all" in done) == (True, True)


def test_a_key_for_one_route_sees_nothing_of_another(at: Guarded) -> None:
    at.milepost.submit("letters", {"id": "secret", "weigh": "reject"})
    at.work()
    at.milepost.submit("letters", {"id": "other"})
    pause(at.ctx, "letters", "deliver", **SIGNED)
    key = at.key("read", routes=["parcels"])
    assert notices(at, key) == {}
    assert not [word for word in ("letters", "too heavy", "mended", "tapes") if word in home(at, key)]


def test_how_fast_it_goes_is_watched_by_whoever_looks(at: Guarded, clock: VirtualClock) -> None:
    at.milepost.submit("parcels", *({"id": f"p{n}"} for n in range(30)))
    at.work()
    assert "Nothing has ended in the last 6 hours" in home(at)
    for n in range(4):
        for key in range(n * 5, n * 5 + 5):
            at.milepost.confirm("parcels", f"p{key}", "deliver", {"ok": True}, by="depot")
        clock.advance("1m")
        text = home(at)
    assert "10 are on the way. At the pace of the last 4 min (300 an hour) they are through in about 2 min" in text
    assert "seen since 2033-11-14T22:13:20.000Z" in text
    assert "Ended in the last hour, by minute: 20 through in all" in at.call("GET", "/").raw.decode()


def test_the_route_of_the_heads_is_silent_while_it_is_well(tmp_path: Path) -> None:
    kept = mp.Route("archive", key="id", evidence=True)
    kept.external("taped")
    with guarded(f"sqlite:///{tmp_path}/ledger.db", [kept]) as opened:
        assert "heads" in opened.ctx.plans
        assert "heads" not in home(opened)


def test_on_aws_what_was_set_aside_is_told_to_those_who_see_everything(aws_door: Visitor) -> None:
    assert "nothing is set aside" in home(aws_door)
    place = urlsplit(aws_door.ctx.ledger.url)
    sqs = boto3.client("sqs", region_name=standins.REGION, endpoint_url=parse_qs(place.query)["endpoint"][0])
    url = sqs.get_queue_url(QueueName=Names(place.path.strip("/")).quarantine)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="something")
    assert "nothing is set aside" in home(aws_door)  # asked a moment ago
    aws_door.door.desk.quarantine._asked_at = None
    assert notices(aws_door) == {"Something was set aside because it cannot be used.": "/system"}
