"""The record of a message in the seed's shape: every field, from acceptance to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.http.page_text import text_of
from tests.net.partner import Line
from tests.notifications.partners import (
    ROUTE,
    Partner,
    Service,
    VirtualClock,
    answers,
    key_of,
    message,
    service,
)
from tests.project import ROOT

import milepost as mp
from milepost_notifications import commands
from milepost_notifications.operate.collector import figures_of

ELEVEN = {
    "attemptNumber", "timestamp", "errorCategory", "errorDetails", "responseTime", "httpStatus", "retryDelaySeconds",
    "exponentialDelay", "jitterApplied", "nextRetryTimestamp", "correlationId",
}  # fmt: skip
FINAL = {
    "totalAttempts", "maxRetries", "lastErrorCategory", "lastHttpStatus", "lastResponseTime", "lastErrorDetails", "targetUrl", "senderId",
    "messageTimestamp", "messageAgeMs", "exhaustedAt", "willMoveToDLQ", "dlqArn",
}  # fmt: skip
RESULT = {
    "success", "retryEligible", "category", "statusCode", "statusText", "responseTime", "errorDetails", "timestamp", "correlationId",
    "httpResponseReceivedAt",
}  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def at(clock: VirtualClock) -> Iterator[Service]:
    with service(clock=clock) as running:
        yield running


def test_the_fields_of_the_dead_letter_queue_are_explained_where_a_reader_looks(
    at: Service,
) -> None:
    described = at.call("GET", "/api/openapi.json").body["paths"][
        "/api/v1/notifications/messages/{key}"
    ]["get"]["description"]
    guide = (ROOT / "docs/guides/notifications.md").read_text(encoding="utf-8")
    for text in (described, guide):
        for field in ("dlqBound", "willMoveToDLQ", "dlqArn"):
            assert f"`{field}`" in text or f".{field}`" in text
    assert "'dlqBound'" in (commands.show.__doc__ or "")


def record(at: Service, sent: dict[str, Any]) -> dict[str, Any]:
    found = at.call("GET", f"/api/v1/notifications/messages/{quote(key_of(sent), safe='')}")
    assert found.status == 200, found
    body: dict[str, Any] = found.body
    return body


def counts_of(found: dict[str, Any]) -> dict[str, int]:
    return {name: found[name] for name in ("attempts", "totalAttempts", "tries", "totalTries")}


def work(at: Service, clock: VirtualClock, times: int = 1) -> None:
    for _ in range(times):
        at.milepost.run(until_idle=0)
        clock.advance("1m")


def test_a_new_message_has_no_try_yet(at: Service) -> None:
    sent = message(
        "http://127.0.0.1:9/hook", headers={"Authorization": "Bearer top-secret", "X-Colour": "red"}
    )
    at.post(sent, headers={"X-Correlation-ID": "c-7"})
    found = record(at, sent)
    assert {
        name: found[name] for name in ("messageId", "senderId", "timestamp", "targetUrl", "method")
    } == {
        "messageId": "m-1",
        "senderId": "shop",
        "timestamp": "2026-01-31T08:00:00.000Z",
        "targetUrl": "http://127.0.0.1:9/hook",
        "method": "POST",
    }
    assert (found["status"], found["attempts"], found["tries"], found["requestId"]) == (
        "QUEUED",
        0,
        0,
        "c-7",
    )
    assert (found["maxRetriesExceeded"], found["maxRetriesExceededAt"], found["retryHistory"]) == (
        False,
        None,
        [],
    )
    nothing = (
        "nextRetryAt",
        "deliveryResult",
        "deliveredAt",
        "finalFailureDetails",
        "finalFailureReason",
        "lastDeliveryAttempt",
    )
    assert [found[name] for name in nothing] == [None] * 6
    assert found["headers"]["X-Colour"] == "red"
    assert "top-secret" not in str(found)


def test_every_try_counts_and_failed_ones_have_all_eleven_fields(
    at: Service, clock: VirtualClock
) -> None:
    with Partner(answers((500, b'{"error": "no disk", "code": "E7"}'), 503, 200)) as partner:
        sent = message(partner.url)
        at.post(sent)
        work(at, clock)
        waiting = record(at, sent)
        assert (waiting["status"], waiting["attempts"], waiting["tries"]) == (
            "RETRY_SCHEDULED",
            1,
            1,
        )
        assert waiting["nextRetryAt"] == waiting["retryHistory"][0]["nextRetryTimestamp"]
        work(at, clock, 2)
    found = record(at, sent)
    assert (found["status"], found["attempts"], found["tries"], len(found["retryHistory"])) == (
        "COMPLETED",
        2,
        3,
        2,
    )
    first, second = found["retryHistory"]
    assert set(first) == set(second) == ELEVEN
    assert (first["attemptNumber"], first["httpStatus"], first["errorCategory"]) == (
        1,
        500,
        "SERVER_ERROR",
    )
    assert (first["errorDetails"]["message"], first["errorDetails"]["code"]) == ("no disk", "E7")
    assert 0.75 <= first["retryDelaySeconds"] <= 1.25
    assert first["exponentialDelay"] == 1
    assert 1.5 <= second["retryDelaySeconds"] <= 2.5
    assert all(entry["correlationId"] == found["requestId"] for entry in (first, second))
    result = found["deliveryResult"]
    assert set(result) == RESULT
    assert (result["success"], result["statusCode"], result["statusText"], result["category"]) == (
        True,
        200,
        "OK",
        "SUCCESS",
    )
    assert (found["nextRetryAt"], found["finalFailureDetails"], found["maxRetriesExceeded"]) == (
        None,
        None,
        False,
    )
    assert found["deliveredAt"] is not None


def test_attempts_of_the_record_are_those_of_the_item_also_after_a_replay(
    at: Service, clock: VirtualClock
) -> None:
    with Partner(answers(*[500] * 3, 500, 200)) as partner:
        sent = message(partner.url)
        at.post(sent)
        work(at, clock, 3)
        at.call(
            "POST",
            "/api/v1/notifications/replay",
            {"key": key_of(sent), "reason": "the partner works again"},
        )
        assert counts_of(record(at, sent)) == {
            "attempts": 0,
            "totalAttempts": 3,
            "tries": 0,
            "totalTries": 3,
        }
        work(at, clock, 2)
    item, found = at.item(sent), record(at, sent)
    assert counts_of(found) == {"attempts": 1, "totalAttempts": 4, "tries": 2, "totalTries": 5}
    assert (item["status"], item["attempts"], item["total_attempts"]) == (
        "COMPLETED",
        found["attempts"],
        found["totalAttempts"],
    )


def test_the_counts_of_a_record_are_explained_where_a_reader_looks(at: Service) -> None:
    described = at.call("GET", "/api/openapi.json").body["paths"][
        "/api/v1/notifications/messages/{key}"
    ]["get"]["description"]
    guide = (ROOT / "docs/guides/notifications.md").read_text(encoding="utf-8")
    for text in (described, guide, commands.show.__doc__ or ""):
        for field in ("attempts", "tries"):
            assert f"`{field}`" in text or f"'{field}'" in text


def test_an_exhausted_message_has_its_final_failure(at: Service, clock: VirtualClock) -> None:
    with Partner(answers(500)) as partner:
        sent = message(partner.url)
        at.post(sent)
        work(at, clock, 4)
        assert len(partner.requests) == 3
    found = record(at, sent)
    assert (found["status"], found["attempts"], len(found["retryHistory"])) == (
        "MAX_RETRIES_EXCEEDED",
        3,
        3,
    )
    assert found["maxRetriesExceeded"] is True
    assert found["maxRetriesExceededAt"] == found["finalFailureDetails"]["exhaustedAt"]
    final = found["finalFailureDetails"]
    assert set(final) == FINAL
    assert (final["totalAttempts"], final["maxRetries"], final["lastHttpStatus"]) == (3, 3, 500)
    assert (final["senderId"], final["messageTimestamp"]) == ("shop", sent["timestamp"])
    assert final["messageAgeMs"] == 120_000
    assert found["deliveryResult"]["success"] is False
    assert found["retryHistory"][-1]["nextRetryTimestamp"] is None


def test_a_refused_message_is_no_exhausted_one_and_a_refused_address_no_try(
    at: Service, clock: VirtualClock
) -> None:
    with Partner(answers(422)) as partner:
        refused, forbidden = message(partner.url), message("http://10.0.0.1/", messageId="m-2")
        at.post(refused)
        at.milepost.submit("notifications", forbidden)
        work(at, clock)
    found, other = record(at, refused), record(at, forbidden)
    assert (found["status"], found["attempts"], found["maxRetriesExceeded"]) == (
        "REJECTED",
        1,
        False,
    )
    assert found["finalFailureDetails"]["lastHttpStatus"] == 422
    assert (other["status"], other["tries"], other["deliveryResult"]["category"]) == (
        "REJECTED",
        0,
        "INVALID_TARGET",
    )
    assert (
        other["attempts"],
        other["totalAttempts"],
        other["finalFailureDetails"]["totalAttempts"],
    ) == (1, 1, 1)
    page = text_of(at.call("GET", f"/notifications/messages/{quote(key_of(forbidden), safe='')}"))
    assert "Tries 0 " in page
    assert "Attempt 1 without a finished request: INVALID_TARGET: 10.0.0.1: " in page


def test_a_message_of_a_list_has_a_record_and_a_page_though_fields_are_missing(at: Service) -> None:
    named = {
        "messageId": "m-1",
        "senderId": "shop",
        "timestamp": "2026-01-31T08:00:00.000Z",
        "targetUrl": "http://127.0.0.1:9/",
    }
    at.milepost.submit("notifications", {**named, "body": {"paid": True}})
    found = record(at, named)
    assert (found["method"], found["headers"], found["body"], found["status"]) == (
        "POST",
        {},
        {"paid": True},
        "QUEUED",
    )
    page = at.call("GET", f"/notifications/messages/{quote(key_of(named), safe='')}")
    assert (page.status, b"POST http://127.0.0.1:9/" in page.raw) == (200, True)


@pytest.mark.parametrize("value", [True, "by phone", 7, ["x"], {"by": "phone"}])
@pytest.mark.parametrize(
    "statuses", [(400,), (200, 400)], ids=["failed", "delivered, and sent again"]
)
def test_a_message_that_an_operator_confirms_has_a_record_and_a_page(
    at: Service, statuses: tuple[int, ...], value: Any
) -> None:
    with Partner(answers(*statuses)) as partner:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        if len(statuses) > 1:
            at.milepost.rerun(ROUTE, key_of(sent), by="ops", reason="it was lost there")
            at.work()
        at.milepost.confirm(
            ROUTE,
            key_of(sent),
            "deliver",
            value,
            by="ops",
            force=True,
            reason="the partner has it by phone",
        )
        found = record(at, sent)
        assert (
            found["status"],
            found["deliveryResult"]["success"],
            found["deliveryResult"]["statusCode"],
        ) == ("COMPLETED", True, None)
        assert (
            at.call("GET", f"/notifications/messages/{quote(key_of(sent), safe='')}").status == 200
        )


def test_a_message_that_an_operator_skips_was_not_delivered(at: Service) -> None:
    with Partner(answers(400)) as partner:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        at.milepost.act(
            "skip", ROUTE, keys=[key_of(sent)], by="ops", reason="nobody needs it any more"
        )
        found = record(at, sent)
        assert (found["status"], found["deliveredAt"], found["deliveryResult"]["statusCode"]) == (
            "COMPLETED",
            None,
            400,
        )


@pytest.mark.parametrize("headers", [["a"], "x", 5, None, {"a": 5}])
def test_a_message_of_a_list_whose_headers_are_none_has_a_record_and_a_page_and_can_be_corrected(
    at: Service, headers: Any
) -> None:
    with Partner(answers(200)) as partner:
        sent = message(partner.url)
        at.milepost.submit(ROUTE, {**sent, "headers": headers})
        at.work()
        assert (record(at, sent)["status"], record(at, sent)["deliveryResult"]["category"]) == (
            "REJECTED",
            "INVALID_MESSAGE",
        )
        assert (
            at.call("GET", f"/notifications/messages/{quote(key_of(sent), safe='')}").status == 200
        )
        again = {"key": key_of(sent), "reason": "corrected", "changes": {"body": "new"}}
        if headers is not None:
            assert at.call("POST", "/api/v1/notifications/replay", again).status == 400, (
                "the headers are as wrong as before"
            )
        assert (
            at.call(
                "POST", "/api/v1/notifications/replay", again | {"changes": {"headers": {}}}
            ).status
            == 200
        )
        at.work()
        assert record(at, sent)["status"] == "COMPLETED"


ODD = [
    {"responseTime": "soon"}, {"responseTime": [1]}, {"statusCode": [1]}, {"statusCode": "404"}, {"message": {"a": 1}}, {"response": 5},
    {"response": {"headers": [1], "body": 7}}, {"response": {"headers": {"a": 5}, "cut": "no"}},
]  # fmt: skip


@pytest.mark.parametrize("facts", ODD)
@pytest.mark.parametrize("outcome", [mp.Reject, mp.Retry, mp.Done])
def test_an_outcome_from_outside_with_odd_facts_is_counted_and_shown(
    at: Service, outcome: Any, facts: dict[str, Any]
) -> None:
    """An operator confirms the message while a worker has it: the answer takes precedence over that
    of the partner."""

    def script(line: Line) -> None:
        while line.read() is not None:
            said = mp.Done(facts) if outcome is mp.Done else outcome("no", details=facts)
            at.milepost.confirm(ROUTE, key_of(sent), "deliver", outcome=said, by="ops")
            line.answer()

    with Partner(script) as partner:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        at.state.collector.turn(at.app)
        [counted] = figures_of(at.app).destinations.values()
        assert sum(one.failed for one in counted.hours) == (outcome is not mp.Done)
        assert record(at, sent)["deliveryResult"]["success"] is (outcome is mp.Done)
        assert (
            at.call("GET", f"/notifications/messages/{quote(key_of(sent), safe='')}").status == 200
        )


def test_a_message_that_is_not_there_is_a_404(at: Service) -> None:
    answer = at.call("GET", "/api/v1/notifications/messages/nope")
    assert (answer.status, answer.body["code"]) == (404, "not-found")
