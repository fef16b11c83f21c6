"""Figures of senders and destinations: exact, bounded, and the same whichever process counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.notifications.partners import Partner, VirtualClock, answers, message, service

import milepost as mp
import milepost.application as mpa
from milepost.core.history import Attempt, encode_line
from milepost_notifications.operate.figures import (
    MOST_DESTINATIONS,
    MOST_SENDERS,
    OTHER,
    Figures,
    Starts,
    count,
    tries_since,
)

API = "/api/v1/notifications"
ROUTE = "notifications"


def samples(text: str, name: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if line.startswith(name + "{"):
            labels, value = line.removeprefix(name).rsplit(" ", 1)
            found[labels] = float(value)
    return found


def test_s34_the_figures_of_a_sender_are_exact() -> None:
    with Partner(answers(200)) as good, Partner(answers(404)) as bad, service() as at:
        for number in range(10):
            at.post(message(good.url, messageId=f"ok-{number}", senderId="s"))
        for number in range(3):
            at.post(message(bad.url, messageId=f"bad-{number}", senderId="s"))
        for wrong in ({"timestamp": "yesterday"}, {"targetUrl": "ftp://x/"}):
            assert at.post({**message(good.url, senderId="s"), **wrong}).status == 400
        at.post(message(good.url, senderId="other"))
        at.post(message(good.url, senderId="other"))
        at.milepost.run(until_idle=0)
        at.state.collector.turn(at.app)
        shown = at.call("GET", "/metrics").raw.decode()
        counts = samples(shown, "milepost_notifications_messages_total")
        of_s = {
            labels.split('outcome="')[1].rstrip('"}'): n
            for labels, n in counts.items()
            if 'sender="s"' in labels
        }
        assert of_s == {
            "accepted": 13,
            "delivered": 10,
            "failed": 3,
            "cancelled": 0,
            "replayed": 0,
            "malformed": 2,
        }
        starts = samples(shown, "milepost_notifications_first_attempt_seconds_count")
        assert starts == {'{sender="s"}': 13, '{sender="other"}': 1}
        assert samples(shown, "milepost_notifications_oldest_due_seconds")
        senders = {one["sender"]: one for one in at.call("GET", f"{API}/senders").body["senders"]}
        assert (senders["s"]["delivered"], senders["other"]["accepted"]) == (10, 1)
        assert senders["s"]["first_try_p95_s"] is not None
        at.state.collector.turn(at.app)
        again = samples(
            at.call("GET", "/metrics").raw.decode(), "milepost_notifications_messages_total"
        )
        assert again == counts, "no line is counted twice"


def test_s34_the_age_of_the_oldest_due_message_is_a_metric() -> None:
    clock = VirtualClock()
    with service(clock=clock, destinations={"crm": {"url": "http://127.0.0.1:9/"}}) as at:
        at.post(message("http://127.0.0.1:9/"))
        clock.advance("90s")
        shown = at.call("GET", "/metrics").raw.decode()
        assert samples(shown, "milepost_notifications_oldest_due_seconds") == {
            '{destination="crm"}': 90
        }
        assert samples(shown, "milepost_notifications_waiting_messages") == {
            '{destination="crm"}': 1
        }


def test_two_processes_count_together_what_one_would(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'milepost.db'}"
    with Partner(answers(200)) as partner, service(url) as first, service(url) as second:
        for number in range(20):
            (first, second)[number % 2].post(message(partner.url, messageId=f"m-{number}"))
        first.post({"messageId": "x"})
        second.post({"messageId": "x", "senderId": "shop"})
        first.milepost.run(until_idle=0)
        for at in (first, second, first, second):
            at.state.collector.turn(at.app)
        found = {one["sender"]: one for one in second.call("GET", f"{API}/senders").body["senders"]}
        assert (
            found["shop"]["accepted"],
            found["shop"]["delivered"],
            found["shop"]["malformed"],
        ) == (20, 20, 1)
        assert found["(unknown)"]["malformed"] == 1


EIGHT = "2026-01-31T08:00:00.000Z"


def line(
    seq: int,
    sender: str,
    target: str,
    reason: str = "accepted",
    *,
    route: str = ROUTE,
    status: str = "QUEUED",
    at: str = EIGHT,
    since: str | None = None,
    attempt: Attempt | None = None,
) -> mp.HistoryEntry:
    began = None if since is None else _ms(since)
    found = mp.Line(
        seq, _ms(at), mp.Reason(reason), "deliver", mp.Status(status), since=began, attempt=attempt
    )
    return mp.HistoryEntry(seq, route, f"m-{seq}#{sender}#t#{target}", "", b"", encode_line(found))


def attempt(**details: Any) -> Attempt:
    return Attempt(1, "SERVER_ERROR", details.pop("message", ""), details)


def test_s34_the_sets_of_names_are_bounded_and_nothing_is_lost() -> None:
    lines = [line(seq, f"s-{seq}", f"http://h-{seq}/") for seq in range(1, 1001)]
    figures = count(
        Figures(),
        lines,
        ROUTE,
        {(f"s-{seq}", f"http://h-{seq}/"): f"h-{seq}:80" for seq in range(1, 1001)},
        Starts(),
    )
    assert (figures.seq, len(figures.senders), len(figures.destinations)) == (
        1000,
        MOST_SENDERS + 1,
        MOST_DESTINATIONS + 1,
    )
    assert figures.senders[OTHER].accepted == 1000 - MOST_SENDERS
    assert sum(one.accepted for one in figures.destinations.values()) == 1000


def test_counting_is_pure_and_leaves_other_routes_alone() -> None:
    before = Figures()
    after = count(
        before,
        [line(7, "s", "http://h/"), line(8, "s", "http://h/", route="parcels")],
        ROUTE,
        {},
        Starts(),
    )
    assert (before.seq, before.senders, after.seq, after.senders["s"].accepted) == (0, {}, 8, 1)


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"message": "no such thing", "statusCode": 404}, "HTTP 404 Not Found: no such thing"),
        ({"message": "HTTP 404 Not Found", "statusCode": 404}, "HTTP 404 Not Found"),
        ({"message": "h:80: no whole answer within 10 s"}, "h:80: no whole answer within 10 s"),
        ({"statusCode": 500}, "HTTP 500 Internal Server Error: SERVER_ERROR"),
        ({"message": "é" * 300}, "é" * 248 + "…"),
        ({"message": "what to do " * 44}, "what to do " * 43 + "what to do"),
    ],
)
def test_the_last_error_begins_with_the_status_that_the_partner_answered(
    details: dict[str, Any], said: str
) -> None:
    failed = line(
        1,
        "s",
        "http://h/",
        "rejected",
        status="REJECTED",
        since=_at(1, 0),
        at=_at(1, 1),
        attempt=attempt(**details),
    )
    assert (
        count(Figures(), [failed], ROUTE, {("s", "http://h/"): "h"}, Starts())
        .destinations["h"]
        .last_error
        == said
    )


def test_tries_have_a_rate_and_percentiles_of_the_last_hour_and_a_day_is_kept() -> None:
    figures, hour = Figures(), 0
    lanes = {("s", "http://h/"): "h"}
    for hour in range(30):
        done = [
            line(
                hour * 10 + n,
                "s",
                "http://h/",
                "completed",
                status="COMPLETED",
                since=_at(hour, 0),
                at=_at(hour, seconds),
            )
            for n, seconds in enumerate((0.02, 0.02, 0.02, 4.0))
        ]
        error = attempt(message="HTTP 503", responseTime=20)
        failed = line(
            hour * 10 + 5,
            "s",
            "http://h/",
            "retry",
            status="RETRY_SCHEDULED",
            since=_at(hour, 0),
            at=_at(hour, 1),
            attempt=error,
        )
        figures = count(figures, [*done, failed], ROUTE, lanes, Starts())
    found = figures.destinations["h"]
    assert len(found.hours) == 24
    tries = tries_since(found, _ms(_at(hour, 5)))
    assert (tries.succeeded, tries.failed, tries.success_rate, tries.p50_s, tries.p95_s) == (
        8,
        2,
        0.8,
        0.025,
        5.0,
    )
    assert (found.last_error, found.last_failure) == ("HTTP 503", _at(hour, 1))
    assert tries_since(found, _ms(_at(hour, 0)) + 7 * 86_400_000).success_rate is None


def _at(hour: int, seconds: float) -> str:
    day, rest = divmod(hour, 24)
    return f"2026-01-{day + 1:02d}T{rest:02d}:00:{seconds:06.3f}Z"


def _ms(text: str) -> int:
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_a_histogram_answers_what_share_is_within() -> None:
    found = mpa.Histogram.empty((1.0, 2.0))
    for value in (0.5, 1.5, 1.5, 9.0):
        found.add(value)
    assert (found.within(0.25), found.within(0.75), found.within(1.0)) == (1.0, 2.0, None)


def test_the_figures_of_a_large_installation_fit_into_their_document() -> None:
    lines: list[mp.HistoryEntry] = []
    lanes: dict[tuple[str, str], str] = {}
    for number in range(2 * MOST_SENDERS):
        lines.append(line(0, f"{'🚚' * 200}{number}", f"https://{number}/"))
    for hour in range(30):
        for number in range(2 * MOST_DESTINATIONS):
            url = f"https://{number}/"
            lanes["shop", url] = lanes[f"sender-{number}", url] = (
                f"{'sub-domain.' * 20}{number}:443"
            )
            failed = attempt(message='\x00\\"🚚' * 100, responseTime=1)
            began, ended = _at(hour, 0), _at(hour, 1)
            lines.append(
                line(
                    hour,
                    "shop",
                    url,
                    "retry",
                    status="RETRY_SCHEDULED",
                    since=began,
                    at=ended,
                    attempt=failed,
                )
            )
            lines.append(
                line(
                    hour,
                    f"sender-{number}",
                    url,
                    "completed",
                    status="COMPLETED",
                    since=began,
                    at=ended,
                )
            )
    found = count(Figures(), lines, ROUTE, lanes, Starts())
    for sender in found.senders.values():
        sender.accepted = sender.delivered = 10**8
        sender.starts = [10**6] * 15
    for destination in found.destinations.values():
        destination.accepted = destination.delivered = 10**8
        for one in destination.hours:
            one.succeeded, one.times = 10**6, [10**5 if n else 0 for n in one.times]
    with service() as at:
        assert at.app.documents.put("figures", msgspec.to_builtins(found))
    assert sum(one.succeeded for one in found.destination(OTHER).hours) > 0, (
        "those beyond are counted together"
    )
