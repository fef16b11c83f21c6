"""The API for messages: list, cancel, replay one and many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.http.live_server import HttpAnswer
from tests.net.partner import Line
from tests.notifications.partners import (
    Partner,
    Service,
    VirtualClock,
    answers,
    key_of,
    message,
    service,
    wait_for,
)

from milepost.engine.auth import make_key
from milepost.ports.upkeep import ScanCost
from milepost_notifications.operate import dead_letters

API = "/api/v1/notifications"
SIGNED = {"by": "ops", "reason": "a test"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def at(clock: VirtualClock) -> Iterator[Service]:
    with service(clock=clock, retry={"attempts": 1}, breaker={"failures": 10_000}) as running:
        yield running


def listed(at: Service, *, key: str | None = None, **query: Any) -> list[str]:
    found = at.call("GET", f"{API}/messages?{urlencode(query, doseq=True)}", key=key)
    assert found.status == 200, found
    return sorted(one["messageId"] for one in found.body["messages"])


def shown(at: Service, sent: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = at.call("GET", f"{API}/messages/{quote(key_of(sent), safe='')}").body
    return body


def replay(at: Service, **body: Any) -> HttpAnswer:
    return at.call("POST", f"{API}/replays", body)


def test_messages_are_listed_by_sender_destination_status_and_time(
    at: Service, clock: VirtualClock
) -> None:
    with Partner(answers(200)) as good, Partner(answers(404)) as bad:
        at.post(message(good.url, messageId="a"))
        at.post(message(bad.url, messageId="b", senderId="billing"))
        clock.advance("1h")
        later = f"{at.milepost.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        at.post(message(good.url, messageId="c"))
        at.milepost.run(until_idle=0)
        assert listed(at) == ["a", "b", "c"]
        assert listed(at, sender="billing") == ["b"]
        assert listed(at, destination=f"billing@127.0.0.1:{bad.port}") == ["b"]
        assert listed(at, status="failed") == ["b"]
        assert listed(at, status=["COMPLETED", "REJECTED"]) == ["a", "b", "c"]
        assert listed(at, **{"from": later}) == ["c"]
        assert listed(at, before=later, sender="shop") == ["a"]
        assert listed(at, messageId="c") == ["c"]
        assert listed(at, **{"from": "30m"}) == ["c"], "half an hour ago"
        page = at.call("GET", f"{API}/messages?limit=2").body
        assert ([one["messageId"] for one in page["messages"]], page["more"]) == (["c", "b"], True)
        rest = at.call("GET", f"{API}/messages?limit=2&after={page['next']}").body
        assert ([one["messageId"] for one in rest["messages"]], rest["more"], rest["next"]) == (
            ["a"],
            False,
            None,
        )
        oldest = at.call("GET", f"{API}/messages?limit=1&oldest_first=true").body
        assert [one["messageId"] for one in oldest["messages"]] == ["a"]
        wrong = at.call("GET", f"{API}/messages?limit=2&sender=shop&after={page['next']}")
        assert (wrong.status, "belongs to another search" in wrong.body["detail"]) == (400, True)
        wrong = at.call("GET", f"{API}/messages?from=8:00&zone=Mars")
        assert (wrong.status, "zone is 'Mars'" in wrong.body["detail"]) == (400, True)


def test_a_sender_sees_its_own_messages_alone(at: Service) -> None:
    mine, theirs = (
        message("http://127.0.0.1:9/"),
        message("http://127.0.0.1:9/", senderId="billing", messageId="m-2"),
    )
    at.post(mine)
    at.post(theirs)
    shop = make_key(at.ctx, "shop", ["submit", "read"], attributes={"sender": "shop"}, **SIGNED)[1]
    assert listed(at, key=shop) == listed(at, key=shop, sender="billing") == ["m-1"]
    assert at.call("GET", f"{API}/messages/{quote(key_of(mine), safe='')}", key=shop).status == 200
    assert (
        at.call("GET", f"{API}/messages/{quote(key_of(theirs), safe='')}", key=shop).status == 404
    )
    assert (
        at.call("POST", f"{API}/cancel", {"key": key_of(theirs), "reason": "x"}, key=shop).status
        == 404
    )
    assert (
        at.call("POST", f"{API}/cancel", {"key": key_of(mine), "reason": "x"}, key=shop).body[
            "status"
        ]
        == "CANCELLED"
    )
    assert (
        at.call("POST", f"{API}/replay", {"key": key_of(mine), "reason": "x"}, key=shop).status
        == 403
    )


def test_a_message_is_cancelled_only_before_its_first_try(at: Service) -> None:
    with Partner(answers(200)) as partner:
        waiting = message(partner.url, deliverAt="2199-01-01T00:00:00Z")
        alike = message(f"{partner.url}more", deliverAt="2199-01-01T00:00:00Z")
        sent = message(partner.url, messageId="m-2")
        for one in (waiting, alike, sent):
            assert at.post(one).status == 200
        at.milepost.run(until_idle=0)
        assert (
            at.call("POST", f"{API}/cancel", {"key": key_of(waiting), "reason": "a mistake"}).body[
                "status"
            ]
            == "CANCELLED"
        )
        assert shown(at, alike)["status"] == "PENDING", (
            "a key that begins with another one's is another message"
        )
        late = at.call("POST", f"{API}/cancel", {"key": key_of(sent), "reason": "a mistake"})
        assert (
            late.status,
            late.body["code"],
            "no longer be cancelled" in late.body["detail"],
        ) == (409, "refused", True)
        assert at.call("POST", f"{API}/cancel", {"key": "nope", "reason": "x"}).status == 404


def test_a_message_that_a_worker_claims_meanwhile_is_not_cancelled(
    at: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def answered_late(line: Line) -> None:
        while line.read() is not None and refused.wait(60):
            line.answer(200)

    with Partner(answered_late) as partner:
        sent = message(partner.url)
        at.post(sent)
        apply = at.ctx.ledger.apply

        def after_a_claim(*arguments: Any) -> Any:
            monkeypatch.setattr(at.ctx.ledger, "apply", apply)
            at.milepost.start()
            assert partner.came.wait(60)
            return apply(*arguments)

        monkeypatch.setattr(at.ctx.ledger, "apply", after_a_claim)
        late = at.call("POST", f"{API}/cancel", {"key": key_of(sent), "reason": "a mistake"})
        refused.set()
        wait_for(lambda: bool(shown(at, sent)["status"] in ("COMPLETED", "CANCELLED")))
        at.milepost.stop()
        assert (late.status, late.body["code"]) == (409, "refused")
        assert (shown(at, sent)["status"], len(partner.requests)) == ("COMPLETED", 1)


def test_a_message_whose_worker_stopped_during_its_first_try_is_not_cancelled(at: Service) -> None:
    with Partner(lambda line: line.read() and line.closing.wait() and None) as partner:
        sent = message(partner.url)
        at.post(sent)
        at.milepost.start()
        assert partner.came.wait(60)
        at.milepost.stop(grace=0)
        assert shown(at, sent)["status"] == "QUEUED"
        late = at.call("POST", f"{API}/cancel", {"key": key_of(sent), "reason": "a mistake"})
        assert (late.status, late.body["code"]) == (409, "refused")


def test_a_message_is_replayed_with_a_new_series_and_its_history_kept(at: Service) -> None:
    with Partner(answers(404, 200)) as partner:
        sent = message(partner.url)
        at.post(sent)
        at.milepost.run(until_idle=0)
        assert shown(at, sent)["status"] == "REJECTED"
        again = at.call(
            "POST", f"{API}/replay", {"key": key_of(sent), "reason": "the partner is mended"}
        )
        assert (again.status, again.body["status"], again.body["attempts"]) == (200, "QUEUED", 0)
        waits = at.call("POST", f"{API}/replay", {"key": key_of(sent), "reason": "again"})
        assert (waits.status, waits.body["code"]) == (409, "refused")
        at.milepost.run(until_idle=0)
        found = shown(at, sent)
        assert (
            found["status"],
            found["attempts"],
            found["totalAttempts"],
            len(found["retryHistory"]),
        ) == ("COMPLETED", 0, 1, 1)
        assert (found["tries"], found["totalTries"]) == (1, 2)
        ids = [request.headers["webhook-id"] for request in partner.requests]
        assert ids[0] == ids[1], "the same work"
        assert (
            at.call("POST", f"{API}/replay", {"key": key_of(sent), "reason": "once more"}).body[
                "status"
            ]
            == "QUEUED"
        )


def test_a_replay_may_change_the_content_and_nothing_else(at: Service) -> None:
    with Partner(answers(400, 200)) as partner:
        sent = message(partner.url, body={"paid": "yes"})
        at.post(sent)
        at.milepost.run(until_idle=0)
        changed = {"body": {"paid": True}, "headers": {"X-Fixed": "1"}}
        answer = at.call(
            "POST",
            f"{API}/replay",
            {"key": key_of(sent), "reason": "a typing mistake", "changes": changed},
        )
        assert (answer.status, answer.body["body"]) == (200, '{"paid":true}')
        at.milepost.run(until_idle=0)
        assert [request.body for request in partner.requests] == [
            b'{"paid":"yes"}',
            b'{"paid":true}',
        ]
        assert partner.requests[1].headers["x-fixed"] == "1"
        wrong = at.call(
            "POST",
            f"{API}/replay",
            {"key": key_of(sent), "reason": "x", "changes": {"targetUrl": "http://a/"}},
        )
        assert (wrong.status, "send a new message" in wrong.body["detail"]) == (400, True)
        bad = at.call(
            "POST",
            f"{API}/replay",
            {"key": key_of(sent), "reason": "x", "changes": {"headers": {"a b": "1"}}},
        )
        assert (bad.status, "Invalid headers" in bad.body["detail"]) == (400, True)


def test_after_a_replay_with_another_body_the_sender_may_repeat_its_own_message(
    at: Service,
) -> None:
    with Partner(answers(404, 200)) as partner:
        sent = message(partner.url, body={"v": 1})
        at.post(sent)
        at.milepost.run(until_idle=0)
        assert (
            at.call(
                "POST",
                f"{API}/replay",
                {"key": key_of(sent), "reason": "x", "changes": {"body": {"v": 2}}},
            ).status
            == 200
        )
        for body in ({"v": 1}, {"v": 2}):
            again = at.post({**sent, "body": body})
            assert (again.status, again.body["duplicateDetected"]) == (200, True), (
                "what was sent first, and what is sent now"
            )
        other = at.post({**sent, "body": {"v": 3}})
        assert (other.status, other.body["error"]) == (409, "IDEMPOTENCY_CONFLICT")
        at.milepost.run(until_idle=0)
        assert [request.body for request in partner.requests] == [b'{"v":1}', b'{"v":2}']


def test_s29_dead_letters_are_replayed_in_bulk_after_a_preview_and_not_twice(
    at: Service, clock: VirtualClock
) -> None:
    gate = {"status": 503}

    def script(line: Any) -> None:
        while line.read() is not None and line.answer(gate["status"]):
            pass

    with Partner(script) as partner:
        for number in range(250):
            at.milepost.submit("notifications", content(partner.url, f"old-{number}"))
        clock.advance("1h")
        begin = f"{at.milepost.now():%Y-%m-%dT%H:%M:%S.%fZ}"
        for number in range(250):
            at.milepost.submit("notifications", content(partner.url, f"new-{number}"))
        at.milepost.submit("notifications", content(partner.url, "other", sender="billing"))
        at.milepost.run(until_idle=0)
        window = {"sender": "shop", "from": begin}
        preview = replay(at, dry_run=True, **window).body
        assert (preview["matched"], preview["replayed"], preview["senders"]) == (
            250,
            0,
            {"shop": 250},
        )
        everything = replay(at, dry_run=True).body
        assert (everything["matched"], everything["senders"]) == (501, {"shop": 500, "billing": 1})
        assert replay(at, **window).status == 400, "a replay needs a reason"
        gate["status"] = 200
        done = replay(at, reason="it is up again", **window).body
        assert (done["matched"], done["replayed"], done["refused"]) == (250, 250, 0)
        assert replay(at, reason="again", **window).body["matched"] == 0
        seen = len(partner.requests)
        at.milepost.run(until_idle=0)
        assert len(partner.requests) - seen == 250
    assert at.milepost.status()["routes"]["notifications"]["statuses"] == {
        "COMPLETED": 250,
        "MAX_RETRIES_EXCEEDED": 251,
    }
    one = at.milepost.show("notifications", key_of(message(partner.url, messageId="new-0")))
    assert one is not None
    assert [line["reason"] for line in one["history"]] == [
        "accepted",
        "exhausted",
        "operator-retry",
        "completed",
    ]


def test_s29_a_paced_replay_is_sent_no_faster(at: Service, clock: VirtualClock) -> None:
    with Partner(answers(404)) as partner:
        for number in range(5):
            at.milepost.submit("notifications", content(partner.url, f"m-{number}"))
        at.milepost.run(until_idle=0)
        assert replay(at, reason="slowly", pace="1/s").body["replayed"] == 5
        at.milepost.start()
        for expected in range(6, 11):
            wait_for(lambda wanted=expected: len(partner.requests) >= wanted)
            assert len(partner.requests) == expected, (
                "the clock stands still, so that no other may start"
            )
            clock.advance("1s")
        at.milepost.stop()


def test_dead_letters_are_grouped_by_cause_and_the_pipelines_faults_stand_apart(
    at: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*given: object) -> None:
        raise RuntimeError("a defect in the handler")

    with Partner(answers(404, 404, 410)) as partner:
        for number in range(2):
            at.post(message(partner.url, messageId=f"m-{number}"))
            at.milepost.run(until_idle=0)
        at.milepost.submit("notifications", content(partner.url, "broken"))
        monkeypatch.setattr(at.state.deliverer, "_request", defect)
        at.milepost.run(until_idle=0)
    found = at.call("GET", f"{API}/dead-letters").body
    assert found["total"] == 3
    [refused] = found["partner"]
    assert (refused["category"], refused["messages"], refused["fault"]) == (
        "CLIENT_ERROR",
        2,
        "partner",
    )
    [fault] = found["pipeline"]
    assert (fault["messages"], fault["fault"]) == (1, "pipeline")
    assert listed(at, status="failed", cause=refused["cause"]) == ["m-0", "m-1"]
    assert replay(at, dry_run=True, cause=fault["cause"]).body["matched"] == 1


def test_dead_letters_with_different_statuses_have_different_causes(at: Service) -> None:
    with Partner(answers(404, 422)) as partner:
        for number in range(2):
            at.post(message(partner.url, messageId=f"m-{number}"))
            at.work()
    found = at.call("GET", f"{API}/dead-letters").body["partner"]
    assert {(one["sample"], one["messages"]) for one in found} == {
        ("HTTP 404 Not Found", 1),
        ("HTTP 422 Unprocessable Entity", 1),
    }


def test_dead_letters_with_the_same_error_are_grouped_by_destination(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Partner(answers(404)) as crm, Partner(answers(404)) as bank:
        with service(
            clock=clock, destinations={"crm": {"url": crm.url}, "bank": {"url": bank.url}}
        ) as at:
            for number, target in enumerate([crm.url, crm.url, bank.url]):
                at.post(message(target, messageId=f"m-{number}"))
            at.work()
            found = at.call("GET", f"{API}/dead-letters").body
            groups = {
                (one["destination"], one["sample"], one["messages"]) for one in found["partner"]
            }
            assert groups == {("crm", "HTTP 404 Not Found", 2), ("bank", "HTTP 404 Not Found", 1)}
            page = at.call("GET", "/notifications/dead-letters").raw.decode()
            for one in found["partner"]:
                chosen = {"destination": one["destination"], "cause": one["cause"]}
                assert replay(at, dry_run=True, **chosen).body["destinations"] == {
                    one["destination"]: one["messages"]
                }
                assert (
                    f"/notifications/replay?destination={one['destination']}&amp;cause={one['cause']}"
                    in page
                )
            monkeypatch.setattr(dead_letters, "MOST_READ", 2)
            many = at.call("GET", f"{API}/dead-letters").body
            assert [(one["destination"], one["messages"]) for one in many["partner"]] == [(None, 3)]
            assert (many["total"], many["exact"]) == (3, False)
            assert b"3</b> messages were not delivered" in at.call("GET", "/notifications").raw


def test_the_key_of_a_sender_sees_no_error_text_of_dead_letters(at: Service) -> None:
    with Partner(answers(404)) as partner:
        at.post(message(partner.url, senderId="billing"))
        at.work()
    shop = make_key(at.ctx, "shop", ["read"], attributes={"sender": "shop"}, **SIGNED)[1]
    [found] = at.call("GET", f"{API}/dead-letters", key=shop).body["partner"]
    assert (found["messages"], found["sample"]) == (1, "")


def test_messages_that_are_tried_again_are_no_dead_letters(clock: VirtualClock) -> None:
    with (
        Partner(answers(503)) as partner,
        service(clock=clock, retry={"attempts": 2, "base": "1m"}) as at,
    ):
        dead = message(partner.url, messageId="dead")
        at.post(dead)
        at.see_through(clock, dead)
        for number in range(2):
            at.post(message(partner.url, messageId=f"live-{number}"))
        at.work()
        assert at.milepost.status()["routes"]["notifications"]["statuses"] == {
            "MAX_RETRIES_EXCEEDED": 1,
            "RETRY_SCHEDULED": 2,
        }
        found = at.call("GET", f"{API}/dead-letters").body
        assert (found["total"], [one["messages"] for one in found["partner"]], found["exact"]) == (
            1,
            [1],
            True,
        )


def content(target: str, message_id: str, sender: str = "shop") -> dict[str, Any]:
    return {
        "messageId": message_id,
        "timestamp": "2026-01-31T08:00:00.000Z",
        "senderId": sender,
        "targetUrl": target,
        "method": "POST",
        "headers": {},
        "body": None,
    }


def test_a_list_that_no_index_serves_is_refused_unless_it_is_asked_for(
    at: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.post(message("http://127.0.0.1:9/"))
    monkeypatch.setattr(at.ctx.ledger, "cost_of", lambda query: ScanCost(5_000, 5_000, None))
    refused = at.call("GET", f"{API}/messages?sender=shop")
    assert (refused.status, refused.body["code"]) == (400, "costly")
    assert listed(at, sender="shop", scan="true") == ["m-1"]
    page = at.call("GET", "/notifications/messages?sender=shop")
    assert (page.status, b"No index of this ledger serves this list" in page.raw) == (200, True)


def test_the_list_and_the_record_say_that_a_message_is_paused(at: Service) -> None:
    """With the pause, and with the state of an open breaker; without the breaker's last failure,
    which may be about another sender's message."""
    with Partner(answers(200)) as partner:
        assert at.post(message(partner.url, messageId="a")).status == 200
        key = at.call("GET", f"{API}/messages").body["messages"][0]["key"]
        lane = at.milepost.show("notifications", key)["lane"]
        at.app.pause("notifications", "deliver", lane, by="anna", reason="they move house")
        [listed_message] = at.call("GET", f"{API}/messages").body["messages"]
        record = at.call("GET", f"{API}/messages/{quote(key, safe='')}").body
        for view in (listed_message, record):
            assert (view["blocked"], view["breaker"]) == ("paused", None)
            assert [(pause["by"], pause["reason"]) for pause in view["pauses"]] == [
                ("anna", "they move house")
            ]
        page = at.call("GET", "/notifications/messages").raw.decode()
        assert '<span class="tag warn" title="they move house">paused</span>' in page
