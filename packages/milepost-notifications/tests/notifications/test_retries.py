"""Retries: which answers are repeated, when, how often, and what the record says of each try."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

import pytest
from tests.notifications.partners import (
    ROUTE,
    Partner,
    VirtualClock,
    answers,
    key_of,
    message,
    service,
)

import milepost as mp
import milepost_net as net
from milepost_notifications.destinations import Destinations
from milepost_notifications.outcomes import error_details, of_response
from milepost_notifications.settings import NotificationsSettings, RetrySettings
from milepost_testing.clock import SeededChance

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)
ELEVEN = {
    "attempt_number", "timestamp", "error_category", "error_details", "response_time", "http_status", "retry_delay_seconds",
    "exponential_delay", "jitter_applied", "next_retry_timestamp", "correlation_id",
}  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_s17_the_retry_ladder(clock: VirtualClock) -> None:
    with (
        Partner(answers((500, b'{"error": "down", "code": 7}'), 503, 200)) as partner,
        service(clock=clock) as at,
    ):
        sent = message(partner.url)
        at.post(sent, headers={"X-Correlation-ID": "c-17"})
        first, second = at.see_through(clock, sent)
        assert 750 <= first <= 1250
        assert 1500 <= second <= 2500
        item, tries = at.item(sent), at.attempts(sent)
        assert (item["status"], item["attempts"] + 1, len(partner.requests)) == ("COMPLETED", 3, 3)
        assert [one.keys() >= ELEVEN for one in tries] == [True, True]
        assert [
            (one["attempt_number"], one["error_category"], one["http_status"]) for one in tries
        ] == [
            (1, "SERVER_ERROR", 500),
            (2, "SERVER_ERROR", 503),
        ]
        assert (tries[0]["error_details"]["message"], tries[0]["error_details"]["code"]) == (
            "down",
            7,
        )
        assert [(one["exponential_delay"], one["correlation_id"]) for one in tries] == [
            (1.0, "c-17"),
            (2.0, "c-17"),
        ]
        assert [one["retry_delay_seconds"] for one in tries] == [first / 1000, second / 1000]
        assert item["results"]["deliver"]["statusCode"] == 200
        assert [one.headers["x-delivery-attempt"] for one in partner.requests] == ["1", "2", "3"]
        assert len({one.headers["webhook-id"] for one in partner.requests}) == 1


def test_s18_three_tries_and_never_a_fourth(clock: VirtualClock) -> None:
    with Partner(answers(500)) as partner, service(clock=clock) as at:
        sent = message(partner.url)
        at.post(sent)
        assert len(at.see_through(clock, sent)) == 2
        item = at.item(sent)
        assert (
            item["status"],
            item["attempts"],
            item["error"]["category"],
            item["error"]["http_status"],
        ) == (
            "MAX_RETRIES_EXCEEDED",
            3,
            "SERVER_ERROR",
            500,
        )
        assert [one["key"] for one in at.milepost.items(ROUTE, statuses=["failed"])] == [
            item["key"]
        ]
        clock.advance("30d")
        at.work()
        assert len(partner.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_s19_a_permanent_refusal_is_sent_once(status: int) -> None:
    with Partner(answers((status, b"no such customer"))) as partner, service() as at:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        item = at.item(sent)
        assert (item["status"], item["error"]["category"], item["error"]["http_status"]) == (
            "REJECTED",
            "CLIENT_ERROR",
            status,
        )
        assert item["error"]["details"]["message"] == "no such customer"
        assert len(partner.requests) == 1


def test_s19_410_also_pauses_the_url_and_keeps_its_backlog(clock: VirtualClock) -> None:
    with Partner(answers(410, 200)) as partner:
        destinations = {"crm": {"url": partner.url, "concurrency": 1}}
        with service(clock=clock, destinations=destinations) as at:
            gone, waiting = message(partner.url, messageId="a"), message(partner.url, messageId="b")
            at.post(gone)
            at.work()
            at.post(waiting)
            at.work()
            assert (at.item(gone)["status"], at.item(waiting)["status"], len(partner.requests)) == (
                "REJECTED",
                "WAITING",
                1,
            )
            [pause] = at.app.pauses(ROUTE)
            assert "410" in pause.reason
            name = pause.scope.rpartition("/")[2]
            for page in (
                "",
                "/destinations/crm",
                f"/destinations/{name}",
                f"/messages/{quote(key_of(waiting), safe='')}",
            ):
                assert (
                    f"milepost notifications resume {name} --by YOU".encode()
                    in at.call("GET", f"/notifications{page}").raw
                )
            at.milepost.resume(ROUTE, "deliver", name, by="ann", reason="they are back")
            at.work()
            assert (at.item(waiting)["status"], at.item(waiting)["attempts"]) == ("COMPLETED", 0)


def test_s19_410_may_be_a_refusal_only() -> None:
    with Partner(answers(410, 200)) as partner, service(gone="reject") as at:
        first, second = message(partner.url, messageId="a"), message(partner.url, messageId="b")
        at.post(first)
        at.work()
        at.post(second)
        at.work()
        assert (at.item(first)["status"], at.item(second)["status"]) == ("REJECTED", "COMPLETED")


@pytest.mark.parametrize("status", [408, 425, 429])
def test_s20_a_transient_refusal_is_sent_again(status: int, clock: VirtualClock) -> None:
    with Partner(answers(status, 200)) as partner, service(clock=clock) as at:
        sent = message(partner.url)
        at.post(sent)
        assert len(at.see_through(clock, sent)) == 1
        assert (at.item(sent)["status"], len(partner.requests)) == ("COMPLETED", 2)


def test_s21_retry_after_is_a_floor(clock: VirtualClock) -> None:
    with (
        Partner(answers((429, b"", "Retry-After: 120"), 200)) as partner,
        service(clock=clock) as at,
    ):
        sent = message(partner.url)
        at.post(sent)
        [wait] = at.see_through(clock, sent)
        assert 120_000 <= wait <= 150_000


def after(*headers: tuple[str, str]) -> Any:
    """The floor, in seconds, that an answer with these headers sets."""
    usual = Destinations(NotificationsSettings()).unregistered
    outcome = of_response(
        net.Response(503, net.HeaderList(headers)), usual, 0, NOW.timestamp()
    ).outcome
    assert isinstance(outcome, mp.Retry)
    return outcome.after


def test_s21_dates_caps_and_garbage_in_retry_after() -> None:
    # A date counts from the answer's own Date, so that our clock does not matter; without one, from
    # our own time.
    date = NOW + timedelta(hours=5)
    said = ("Date", format_datetime(date, usegmt=True))
    assert (
        after(said, ("Retry-After", format_datetime(date + timedelta(seconds=90), usegmt=True)))
        == 90
    )
    assert (
        after(said, ("Retry-After", format_datetime(date - timedelta(seconds=90), usegmt=True)))
        is None
    )
    assert after(("Retry-After", format_datetime(NOW + timedelta(seconds=90), usegmt=True))) == 90
    assert after(("Retry-After", format_datetime(NOW - timedelta(days=1), usegmt=True))) is None
    assert after(("Retry-After", str(10 * 86_400))) == 3600
    assert [after(("Retry-After", text)) for text in ("soon", "-5", "", "1.5e9", "0")] == [None] * 5


def test_what_is_retried_and_what_succeeds_is_a_setting_of_the_destination(
    clock: VirtualClock,
) -> None:
    with Partner(answers(404, 500)) as partner:
        own = {
            "url": partner.url,
            "retry_statuses": [404],
            "success_statuses": ["2xx", 500],
            "retry": {"delays": ["10m"], "jitter": 0},
        }
        with service(clock=clock, destinations={"odd": own}) as at:
            sent = message(partner.url)
            at.post(sent)
            assert at.see_through(clock, sent) == [600_000]
            assert at.item(sent)["status"] == "COMPLETED"


def test_s25_the_settings_of_the_seed_make_its_schedule_and_a_seed_repeats_it() -> None:
    backoff, chances = (
        Destinations(
            NotificationsSettings(retry=RetrySettings(schedule="seed"))
        ).unregistered.retry,
        [SeededChance(7), SeededChance(7)],
    )
    assert (backoff.attempts, backoff.cap) == (3, "60s")
    sequences = [[backoff.delay(n, chance.jitter()).ms for n in range(65)] for chance in chances]
    assert sequences[0] == sequences[1]
    assert all(750 <= ms <= 60_000 for ms in sequences[0])


@pytest.mark.parametrize(
    ("body", "details"),
    [
        (
            b'{"message": "m", "errorCode": "E1", "errors": ["a"]}',
            {"message": "m", "code": "E1", "details": ["a"]},
        ),
        (b'{"error": {"reason": "x"}}', {"message": {"reason": "x"}}),
        (b"x" * 600, {"message": "x" * 500}),
        (b"[1]", {"message": "[1]"}),
        (b"", {}),
        (b"\xff", {"message": "�"}),
    ],
)
def test_error_details_are_those_of_the_seed(body: bytes, details: dict[str, Any]) -> None:
    assert error_details(body) == details
