"""Subscribers over HTTP: their positions, release, replay and removal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer

from milepost.core.errors import EventRefused
from milepost.core.events import Envelope
from milepost.engine.act_log import all_acts
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.parked_events import parked_for
from milepost.ports.documents import PARKED, Parked
from milepost_testing.clock import VirtualClock

OFFICE = "/api/v1/subscribers/office"
WHY = {"reason": "they lost a day"}


class Office:
    """A subscriber that never takes what it is told not to."""

    name, batch = "office", 10

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.refuses: tuple[str, ...] = ()
        self.away = False

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        if self.away:
            return [ConnectionError(f"no {envelope['subject']}") for envelope in envelopes]
        answers = [
            EventRefused(f"no {envelope['subject']}")
            if envelope["subject"] in self.refuses
            else None
            for envelope in envelopes
        ]
        self.heard += [
            envelope["id"]
            for envelope, error in zip(envelopes, answers, strict=True)
            if error is None
        ]
        return answers


class Told:
    """A door, and an office that has been told of a parcel and a letter, a day apart, and has
    refused `odd` of each."""

    def __init__(self, at: GuardedServer, clock: VirtualClock) -> None:
        self.at, self.clock, self.office = at, clock, Office()
        self.relay = EventRelay(at.ctx, self.office, "p1")
        self.office.refuses = ("odd",)
        for route in ("parcels", "letters"):
            at.milepost.submit(route, {"id": "fine"}, {"id": "odd"})
            clock.advance("1d")
        self.relay.run_once()

    def subscriber(self, key: str | None = None) -> dict[str, Any]:
        [found] = self.at.call("GET", "/api/v1/subscribers", key=key).body["subscribers"]
        return dict(found)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    clock = VirtualClock()
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=clock) as at:
        yield Told(at, clock)


def test_everybody_who_is_told_is_shown_with_what_they_do_not_take(told: Told) -> None:
    told.at.milepost.submit("parcels", {"id": "new"})
    found = told.subscriber()
    assert (found["name"], found["behind"], found["failures"], found["error"], found["silent"]) == (
        "office",
        1,
        0,
        None,
        False,
    )
    assert found["retry_at"] is None
    assert [(one["route"], one["key"], one["error"]) for one in found["parked"]] == [
        ("letters", "odd", "EventRefused: no odd"),
        ("parcels", "odd", "EventRefused: no odd"),
    ]


def test_parked_items_come_page_by_page_and_the_view_of_a_subscriber_is_bounded(told: Told) -> None:
    for number in range(150):
        parked = Parked("office", "parcels", f"k{number:03}", 1, number, 1, 0, "EventRefused: 404")
        told.at.ctx.ledger.write(PARKED, f"office/parcels/k{number:03}", parked)
    shown = told.subscriber()
    assert (len(shown["parked"]), shown["parked_count"]) == (100, 152)
    keys: list[str] = []
    after = ""
    while True:
        page = told.at.call("GET", f"{OFFICE}/parked?limit=60{after}").body
        keys += [f"{one['route']}/{one['key']}" for one in page["parked"]]
        assert page["count"] == 152
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert keys == [
        "letters/odd",
        *(f"parcels/k{number:03}" for number in range(150)),
        "parcels/odd",
    ]
    assert told.at.call("GET", "/api/v1/subscribers/none/parked").status == 404


def test_what_is_parked_is_tried_again(told: Told) -> None:
    told.office.refuses = ()
    one = told.at.call(
        "POST",
        f"{OFFICE}/release",
        {"reason": "mended", "route": "parcels", "key": "odd", "for": "the night shift"},
    )
    assert one.body == {"subscriber": "office", "released": 1}
    told.relay.run_once()
    assert [one["route"] for one in told.subscriber()["parked"]] == ["letters"]
    assert told.at.call("POST", f"{OFFICE}/release", {"reason": "mended"}).body["released"] == 1
    told.relay.run_once()
    assert told.subscriber()["parked"] == []
    assert [act.by for act in all_acts(told.at.ctx, "parcels")] == ["local for the night shift"]


def test_a_day_is_told_again_after_a_preview_says_how_much_that_is(told: Told) -> None:
    heard = list(told.office.heard)
    preview = told.at.call("POST", f"{OFFICE}/replay", {"since": "36h", "dry_run": True}).body
    assert (preview["lines"], preview["dry_run"], preview["pruned"]) == (2, True, 0)
    assert told.relay.run_once().delivered == 0
    done = told.at.call("POST", f"{OFFICE}/replay", {"since": preview["since"], **WHY}).body
    assert done == {**preview, "dry_run": False}
    assert told.subscriber()["behind"] == 2
    told.relay.run_once()
    assert told.office.heard == [*heard, "letters/fine/1/accepted"]
    told.clock.advance("1s")
    assert told.at.call("POST", f"{OFFICE}/replay", {"after": 0, **WHY}).body["lines"] == 4
    told.relay.run_once()
    assert told.office.heard[-2:] == heard
    [act, _] = told.at.call("GET", "/api/v1/acts?verb=replay&by=local").body["acts"]
    assert (act["about"]["subscriber"], act["about"]["after"], act["reason"]) == (
        "office",
        0,
        "they lost a day",
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"since": "1d"}, "reason"),
        ({"since": "1d", "reason": " "}, "reason"),
        (WHY, "since"),
        ({"since": "1d", "after": 1, **WHY}, "since"),
        ({"since": "yesterday", **WHY}, "since"),
        ({"after": 5, **WHY}, "after"),
        ({"after": -1, **WHY}, "after"),
    ],
)
def test_a_start_that_cannot_be_meant_changes_nothing(
    told: Told, body: dict[str, Any], field: str
) -> None:
    answered = told.at.call("POST", f"{OFFICE}/replay", body)
    assert (answered.status, answered.body["code"], answered.body["field"]) == (
        400,
        "wrong-value",
        field,
    )
    assert told.subscriber()["behind"] == 0


def test_who_is_let_go_of_is_told_no_more(told: Told) -> None:
    assert told.at.call("POST", f"{OFFICE}/forget", {"reason": "they have moved"}).body == {
        "subscriber": "office",
        "forgotten": True,
    }
    assert told.at.call("GET", "/api/v1/subscribers").body == {"subscribers": []}
    assert parked_for(told.at.ctx, "office") == {}
    for act in ("release", "replay", "forget"):
        answered = told.at.call("POST", f"{OFFICE}/{act}", {"reason": "x"})
        assert (answered.status, answered.body["code"]) == (404, "unknown-subscriber"), act


def test_a_key_that_reads_changes_nothing_and_only_an_admin_lets_go(told: Told) -> None:
    reader, operator = told.at.key("read", name="reader"), told.at.key("operate", name="operator")
    for act in ("release", "replay", "forget"):
        assert (
            told.at.call("POST", f"{OFFICE}/{act}", {"reason": "x"}, key=reader).body["code"]
            == "not-allowed"
        ), act
    assert (
        told.at.call("POST", f"{OFFICE}/forget", {"reason": "x"}, key=operator).body["code"]
        == "not-allowed"
    )
    assert (
        told.at.call("POST", f"{OFFICE}/release", {"reason": "x"}, key=operator).body["released"]
        == 2
    )
    assert (
        told.at.call(
            "POST", f"{OFFICE}/forget", {"reason": "x"}, key=told.at.key("admin", name="admin")
        ).status
        == 200
    )


def test_a_key_for_one_route_sees_and_releases_nothing_of_another(told: Told) -> None:
    key = told.at.key("admin", routes=["parcels"])
    assert [one["route"] for one in told.subscriber(key)["parked"]] == ["parcels"]

    def release(**which: str) -> tuple[int, str]:
        answered = told.at.call("POST", f"{OFFICE}/release", {"reason": "x", **which}, key=key)
        return answered.status, answered.body.get("code", "")

    assert release() == (403, "not-allowed")
    assert (
        release(route="letters")
        == release(route="letters", key="odd")
        == release(route="nowhere")
        == (404, "unknown-route")
    )
    assert release(key="odd") == (400, "wrong-value")
    assert release(route="parcels") == (200, "")
    waiting = {
        ref: parked.retry_at for ref, (parked, _) in parked_for(told.at.ctx, "office").items()
    }
    assert (waiting["letters", "odd"], waiting["parcels", "odd"]) == (0, told.clock.now())
    for act, body in (("replay", {"after": 0, **WHY}), ("forget", WHY)):
        answered = told.at.call("POST", f"{OFFICE}/{act}", body, key=key)
        assert (answered.status, answered.body["code"]) == (403, "not-allowed")
    assert told.subscriber(key)["behind"] is None


def test_what_a_subscriber_says_of_another_route_is_not_shown_to_a_key_for_one(told: Told) -> None:
    told.office.away = True
    told.at.milepost.submit("letters", *({"id": f"secret-{n}"} for n in range(5)))
    told.relay.run_once()
    key = told.at.key("read", routes=["parcels"])
    assert "secret" not in str(told.subscriber(key))
    assert (told.subscriber(key)["failures"], told.subscriber(key)["retry_at"] is None) == (
        1,
        False,
    )
    assert "secret-0" in told.subscriber(told.at.key("read", name="reader"))["error"]


def test_on_aws_the_journal_is_told_again(aws_server: LiveServer) -> None:
    began = aws_server.ctx.clock.now()
    aws_server.milepost.submit("parcels", {"id": "a"}, {"id": "b"})
    aws_server.work()
    office = Office()
    relay = EventRelay(aws_server.ctx, office, "p1")
    relay.run_once()
    heard = list(office.heard)
    assert "parcels/b/1/accepted" in heard
    answered = aws_server.call("POST", f"{OFFICE}/replay", {"after": 1, **WHY}).body
    newest = aws_server.ctx.ledger.last_seq()
    assert (answered["lines"], answered["after"], answered["was"]) == (newest - 1, 1, newest)
    relay.run_once()
    assert office.heard == [*heard, *heard[1:]]
    ago = f"{(aws_server.ctx.clock.now() - began) // 1000 + 60}s"
    assert (
        aws_server.call("POST", f"{OFFICE}/replay", {"since": ago, "dry_run": True}).body["lines"]
        == newest
    )
    assert aws_server.call("GET", "/api/v1/subscribers").body["subscribers"][0]["behind"] == 0
