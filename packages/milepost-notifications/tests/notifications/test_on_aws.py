"""The same messages on the AWS ledger (its model): rows with the seed's attributes, and nothing
lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from tests.notifications.partners import (
    ROUTE,
    Partner,
    Service,
    answered_late,
    answers,
    key_of,
    message,
    service,
    wait_for,
)
from tests.postingest.aws_scene import WallClock
from tests.standins import REGION

from milepost_notifications.operate.collector import figures_of


@pytest.fixture
def place(endpoint: str, prefix: str, tmp_path: Path) -> str:
    return f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"


@pytest.fixture
def table(endpoint: str, prefix: str) -> Any:
    return boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint).Table(
        f"{prefix}-{ROUTE}"
    )


@pytest.fixture
def row(table: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The row of a message, as another program reads it."""

    def read(sent: dict[str, Any]) -> dict[str, Any]:
        parts = key_of(sent).split("#")
        key = {"pk": "#".join(parts[:2]), "sk": "#".join(parts[2:])}
        found: dict[str, Any] = table.get_item(Key=key, ConsistentRead=True)["Item"]
        return found

    return read


@pytest.fixture
def at(place: str) -> Iterator[Service]:
    with service(place, retry={"base": "0.05s", "cap": "0.1s"}) as opened:
        yield opened


def test_rows_have_the_attributes_of_the_seed(
    at: Service, row: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with Partner(answers((500, b"x" * 5000), 503)) as partner:
        sent = message(partner.url)
        answer = at.post(sent, headers={"X-Correlation-ID": "c-1"}).body
        assert (answer["queued"], answer["statusUpdated"], answer["storedMessage"]["status"]) == (
            False,
            False,
            "PENDING",
        )
        new = row(sent)
        wanted = {
            "pk": "m-1#shop", "sk": f"2026-01-31T08:00:00.000Z#{partner.url}", "messageId": "m-1", "senderId": "shop",
            "timestamp": "2026-01-31T08:00:00.000Z", "targetUrl": partner.url, "method": "POST", "status": "PENDING", "attempts": 0,
            "retryHistory": [], "maxRetriesExceeded": False, "maxRetriesExceededAt": None, "nextRetryAt": None, "correlationId": "c-1",
            "createdAt": answer["storedMessage"]["createdAt"],
        }  # fmt: skip
        assert {name: new[name] for name in wanted} == wanted
        at.milepost.run(until_idle=1)
        ended = row(sent)
        same = (
            "pk",
            "sk",
            "messageId",
            "senderId",
            "timestamp",
            "targetUrl",
            "method",
            "createdAt",
            "correlationId",
            "input",
            "inputDigest",
        )
        assert {name: ended[name] for name in same} == {name: new[name] for name in same}
        assert (ended["status"], ended["attempts"], ended["maxRetriesExceeded"]) == (
            "MAX_RETRIES_EXCEEDED",
            3,
            True,
        )
        assert ended["maxRetriesExceededAt"] == ended["lastUpdatedAt"]
        assert [one.keys() for one in ended["retryHistory"]] == [
            {"attemptNumber", "timestamp", "errorCategory", "errorDetails", "responseTime", "httpStatus", "retryDelaySeconds",
             "exponentialDelay", "jitterApplied", "nextRetryTimestamp", "correlationId"}
        ] * 3  # fmt: skip
        assert [(one["attemptNumber"], one["httpStatus"]) for one in ended["retryHistory"]] == [
            (1, 500),
            (2, 503),
            (3, 503),
        ]
        assert ended["retryHistory"][0]["errorDetails"]["message"].startswith("xxx")


def test_attempts_of_a_row_are_those_of_the_record(
    at: Service, row: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with Partner(answers(200, 500, 200)) as partner:
        at_once, later = message(partner.url), message(partner.url, messageId="m-2")
        for sent, attempts, tries in ((at_once, 0, 1), (later, 1, 2)):
            at.post(sent)
            at.milepost.run(until_idle=1)
            stored = row(sent)
            found = at.call(
                "GET", f"/api/v1/notifications/messages/{quote(key_of(sent), safe='')}"
            ).body
            assert (stored["status"], found["status"]) == ("COMPLETED", "COMPLETED")
            assert stored["attempts"] == found["attempts"] == attempts
            assert stored.get("totalAttempts", 0) == found["totalAttempts"] == attempts
            assert (found["tries"], found["totalTries"]) == (tries, tries)


def test_s13_a_message_that_was_stored_and_not_queued_goes_out(
    place: str, row: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with Partner(answers(200)) as partner:
        sent = message(partner.url)
        with service(place) as at:
            at.post(sent)
        # The process has ended: the row is PENDING, and no queue has a message for it.
        assert row(sent)["status"] == "PENDING"
        with service(place) as at:
            assert at.post(sent).body["duplicateDetected"] is True
            at.milepost.run(until_idle=1)
            assert (at.item(sent)["status"], len(partner.requests)) == ("COMPLETED", 1)


def test_s14_a_worker_that_is_faster_than_the_answer(
    at: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Partner(answers(200)) as partner:
        sent = answered_late(at, partner, monkeypatch)
        at.milepost.run(until_idle=1)
        assert (at.item(sent)["status"], len(partner.requests)) == ("COMPLETED", 1)


def large_blobs(folder: Path) -> list[Path]:
    return [
        path
        for path in (folder / "blobs").rglob("*")
        if path.is_file() and path.stat().st_size > 300_000
    ]


def test_s28_a_large_body_is_kept_apart_delivered_whole_and_removed_with_its_row(
    place: str, tmp_path: Path, table: Any, row: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    body = "ä€" * 200_000
    with Partner(answers(200)) as partner, service(place, largest_body=2_000_000) as at:
        sent = message(partner.url, body=body)
        assert at.post(sent).status == 200
        assert len(large_blobs(tmp_path)) == 1
        at.milepost.run(until_idle=1)
        assert partner.requests[0].body == body.encode()
        assert at.item(sent)["status"] == "COMPLETED"
        ended = row(sent)
        assert int(ended["ttl"]) >= 30 * 86_400 + at.milepost.now().timestamp() - 3600
        # What DynamoDB does when the time to live is over.
        table.delete_item(Key={"pk": ended["pk"], "sk": ended["sk"]})
        at.milepost.run(until_idle=1)
        assert large_blobs(tmp_path) == []


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_s28_a_body_that_is_missing_or_damaged_is_a_dead_letter_with_that_reason(
    place: str, tmp_path: Path, damage: str
) -> None:
    clock = WallClock()
    with (
        Partner(answers(503)) as partner,
        service(place, clock, largest_body=2_000_000, retry={"base": "1h", "cap": "1h"}) as at,
    ):
        sent, neighbour = (
            message(partner.url, body="x" * 400_000),
            message(partner.url, messageId="other"),
        )
        at.post(sent)
        at.milepost.run(until_idle=1)
        assert at.item(sent)["status"] == "RETRY_SCHEDULED"
        [large] = large_blobs(tmp_path)
        if damage == "missing":
            large.unlink()
        else:
            large.write_bytes(large.read_bytes().replace(b"xx", b"xy", 1))
        partner.script = answers(200)
        clock.advance("5h")
        at.post(neighbour)
        at.milepost.run(until_idle=1)
        item = at.item(sent)
        assert (item["status"], item["error"]["category"]) == ("REJECTED", "CANNOT_BE_READ")
        assert "blob" in item["error"]["message"]
        assert [one.headers["x-message-id"] for one in partner.requests] == ["m-1", "other"]


def test_s30_an_unreadable_message_is_set_aside_and_its_neighbours_are_delivered(
    at: Service, endpoint: str
) -> None:
    sqs = boto3.client("sqs", region_name=REGION, endpoint_url=endpoint)
    [queue] = [url for url in sqs.list_queues()["QueueUrls"] if url.endswith("deliver")]
    with Partner(answers(200)) as partner:
        sqs.send_message(QueueUrl=queue, MessageBody="no such thing")
        sent = message(partner.url)
        at.post(sent)
        at.milepost.run(until_idle=1)
        assert at.item(sent)["status"] == "COMPLETED"
        [aside], _ = at.ctx.ledger.quarantine.entries(10)
        assert (aside.kind, "no such thing" in str(aside.content)) == ("message", True)
        assert aside.reason


def test_a_row_that_another_program_puts_is_delivered(at: Service, table: Any) -> None:
    with Partner(answers(200)) as partner:
        sent = message(partner.url)
        parts = key_of(sent).split("#")
        content = {"targetUrl": partner.url, "method": "PUT", "body": {"paid": True}}
        table.put_item(
            Item={
                "pk": "#".join(parts[:2]),
                "sk": "#".join(parts[2:]),
                "input": json.dumps(content),
            }
        )
        at.milepost.run(until_idle=1)
        [request] = partner.requests
        assert (request.line, request.body, request.headers["x-message-id"]) == (
            "PUT / HTTP/1.1",
            b'{"paid":true}',
            "m-1",
        )
        assert at.item(sent)["status"] == "COMPLETED"


def test_a_long_url_is_a_digest_in_its_row_and_whole_on_the_wire(at: Service, table: Any) -> None:
    with Partner(answers(200)) as partner:
        path = "long/" * ((1024 - len(partner.url)) // 5)
        url = f"{partner.url}{path}"
        sent = message(url)
        assert at.post(sent).status == 200
        assert at.post(sent).body["duplicateDetected"] is True
        [row] = table.scan()["Items"]
        assert (row["sk"].startswith("2026-01-31T08:00:00.000Z#sha256:"), row["targetUrl"]) == (
            True,
            url,
        )
        at.milepost.run(until_idle=1)
        assert partner.requests[0].target == f"/{path}"


def test_a_destination_is_operated_on_aws(place: str) -> None:
    with (
        Partner(answers(404, 200)) as partner,
        service(place, destinations={"crm": {"url": partner.url}}) as at,
    ):
        api, sent = "/api/v1/notifications", message(partner.url)
        begun = at.call(
            "POST",
            f"{api}/destinations/crm/outage",
            {"until": "1h", "reason": "crm is being moved"},
        )
        assert (begun.status, begun.body["state"]) == (200, "outage")
        assert (
            at.call("POST", f"{api}/destinations/crm/resume", {"reason": "it is back"}).body[
                "paused"
            ]
            is None
        )
        at.post(sent)
        at.milepost.start()
        wait_for(lambda: at.item(sent)["status"] == "REJECTED")
        assert (
            at.call(
                "POST", f"{api}/replay", {"key": key_of(sent), "reason": "they have mended it"}
            ).body["attempts"]
            == 0
        )
        wait_for(lambda: at.item(sent)["status"] == "COMPLETED")
        wait_for(
            lambda: (
                "shop" in figures_of(at.app).senders
                and figures_of(at.app).senders["shop"].delivered == 1
            )
        )
        at.milepost.stop()
        [sender] = at.call("GET", f"{api}/senders").body["senders"]
        assert (sender["accepted"], sender["delivered"], sender["failed"], sender["replayed"]) == (
            1,
            1,
            1,
            1,
        )
        found = at.call("GET", f"{api}/destinations/crm").body
        assert (
            found["state"],
            found["waiting"],
            found["tries"]["succeeded"],
            found["tries"]["failed"],
        ) == ("healthy", 0, 1, 1)
        assert (
            at.call("PUT", f"{api}/destinations/shop", {"url": f"{partner.url}shop/"}).body[
                "registered"
            ]
            == "ledger"
        )
        assert (
            at.call("GET", "/notifications").status
            == at.call("GET", "/notifications/destinations/crm").status
            == 200
        )
