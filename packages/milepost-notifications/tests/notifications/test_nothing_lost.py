"""Messages in a SQLite ledger: a crash or a race loses none, and a body of any size arrives whole,
hours later."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.notifications.partners import (
    ROUTE,
    Partner,
    VirtualClock,
    answered_late,
    answers,
    message,
    service,
)

import milepost_net as net
from milepost.runners.logs import JsonLogFormat

SMALLEST = """
applications = ["notifications"]
[notifications]
allow_cidrs = ["127.0.0.0/8"]            # addresses that the guard would refuse
retry = { attempts = 3, base = "1s" }    # the seed's schedule is the default
retention = "30d"                        # the row's time to live
[notifications.destinations.crm]
url = "URL"           # prefix of the target URLs it stands for
signing_secret_env = "CRM_SECRET"        # whsec_…
"""


def test_s13_a_process_that_ends_after_the_store_loses_nothing(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path / 'n.db'}"
    with Partner(answers(200)) as partner:
        sent = message(partner.url)
        with service(ledger) as at:
            assert at.post(sent).status == 200
        with service(ledger) as at:
            assert at.post(sent).body["duplicateDetected"] is True
            at.work()
            assert (at.item(sent)["status"], len(partner.requests)) == ("COMPLETED", 1)


def test_s14_a_worker_that_is_faster_than_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Partner(answers(200)) as partner, service(f"sqlite:///{tmp_path / 'n.db'}") as at:
        sent = answered_late(at, partner, monkeypatch)
        at.work()
        assert (at.item(sent)["status"], len(partner.requests)) == ("COMPLETED", 1)


def test_s28_a_large_body_is_delivered_whole_five_hours_later(tmp_path: Path) -> None:
    clock, body = VirtualClock(), json.dumps({"text": "ä€𝄞" * 100_000}, ensure_ascii=False)
    with (
        Partner(answers(200)) as partner,
        service(f"sqlite:///{tmp_path / 'n.db'}", clock, largest_body=5_000_000) as at,
    ):
        sent = message(partner.url, body=body)
        assert at.post({**sent, "deliverAt": "2033-11-15T03:13:20Z"}).status == 200
        at.work()
        assert partner.requests == []
        clock.advance("5h")
        at.work()
        assert partner.requests[0].body == body.encode()
        clock.advance("31d")
        at.milepost.prune(ROUTE, "30d", by="ann", reason="test")
        assert at.milepost.items(ROUTE) == []


def test_s32_one_correlation_id_everywhere_and_no_secret_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cr3t-of-the-destination")
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(JsonLogFormat())
    with Partner(
        answers((500, b'{"error": "Authorization: Bearer s3cr3t-of-the-destination is wrong"}'))
    ) as partner:
        auth = {"kind": "bearer", "token_env": "CRM_TOKEN"}
        clock = VirtualClock()
        with service(
            f"sqlite:///{tmp_path / 'n.db'}",
            clock,
            destinations={"crm": {"url": partner.url, "auth": auth}},
        ) as at:
            sent = message(partner.url, messageId="with-trace")
            logging.getLogger().addHandler(handler)
            try:
                answer = at.post(sent, headers={"X-Correlation-ID": "trace-32"})
                at.see_through(clock, sent)
            finally:
                logging.getLogger().removeHandler(handler)
            item = at.item(sent)
        assert (
            answer.body["requestId"],
            answer.headers["x-correlation-id"],
            item["correlation_id"],
        ) == ("trace-32",) * 3
        assert {one.headers["x-correlation-id"] for one in partner.requests} == {"trace-32"}
        assert item["status"] == "MAX_RETRIES_EXCEEDED"
        assert {line["correlation_id"] for line in item["history"] if "correlation_id" in line} == {
            "trace-32"
        }
        lines = [json.loads(line) for line in said.getvalue().splitlines()]
        about = [line for line in lines if "with-trace" in json.dumps(line)]
        assert len(about) == 3
        assert {line.get("correlation_id") for line in about} == {"trace-32"}
        for place in (said.getvalue(), json.dumps(item), json.dumps(answer.body)):
            assert "s3cr3t-of-the-destination" not in place


def test_messages_of_a_list_are_checked_when_they_are_delivered() -> None:
    with Partner(answers(200)) as partner, service() as at:
        good = message(partner.url, messageId="good", headers={"X-A": "b"})
        plain = {
            name: value
            for name, value in message(partner.url, messageId="plain").items()
            if name != "body"
        }
        bad = message(partner.url, messageId="bad", headers=["no"])
        assert {receipt.answer for receipt in at.milepost.submit(ROUTE, good, plain, bad)} == {
            "new"
        }
        at.work()
        assert sorted((one.headers["x-message-id"], one.body) for one in partner.requests) == [
            ("good", b'{"paid":true}'),
            ("plain", b""),
        ]
        error = at.item(bad)["error"]
        assert (at.item(bad)["status"], error["category"]) == ("REJECTED", "INVALID_MESSAGE")
        assert error["message"].startswith("Invalid headers: ")


@pytest.mark.parametrize(
    ("own", "error"),
    [
        ({"messageId": 7}, "Invalid messageId: "),
        ({"senderId": 7}, "Invalid senderId: "),
        ({"targetUrl": "ftp://127.0.0.1/"}, "a URL begins with https"),
        ({"targetUrl": 7}, "Invalid targetUrl: "),
        ({"method": "BREW"}, "Invalid method: "),
        ({"method": ["POST"]}, "Invalid method: "),
        ({"headers": {"Authorization": 5}}, "Invalid headers: "),
    ],
)
def test_a_message_of_a_list_with_all_fields_is_checked_too(
    own: dict[str, Any], error: str
) -> None:
    with Partner(answers(200)) as partner, service() as at:
        sent = {**message(partner.url, method="POST", headers={}), "body": "x", **own}
        at.milepost.submit(ROUTE, sent)
        at.work()
        item = at.item(sent)
        assert (item["status"], item["error"]["category"], item["total_attempts"]) == (
            "REJECTED",
            "INVALID_MESSAGE",
            1,
        )
        assert error in item["error"]["message"]
        assert partner.requests == []


def test_a_message_of_a_list_sets_no_header_of_a_delivery() -> None:
    forged = {"webhook-signature": "v1,x", "X-Previous-Outcome": "unknown", "X-A": "b"}
    with Partner(answers(200)) as partner, service() as at:
        at.milepost.submit(ROUTE, message(partner.url, method="post", headers=forged, body="x"))
        at.work()
        [request] = partner.requests
        assert request.line.startswith("POST ")
        assert request.headers["x-a"] == "b"
        assert not {"webhook-signature", "x-previous-outcome"} & set(request.headers)


@contextmanager
def up(folder: Path, **variables: str) -> Iterator[str]:
    """`milepost up` in a process of its own; its address."""
    command = [sys.executable, "-m", "milepost", "up", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables}
    )
    assert process.stderr is not None
    try:
        said = next(line for line in process.stderr if "listening at " in line)
        yield said.partition("listening at ")[2].split()[0].rstrip(";,")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_smallest_configuration_works_as_it_stands(tmp_path: Path) -> None:
    secret = net.new_secret()
    with Partner(answers(200)) as partner, net.Client(allow_cidrs=["127.0.0.0/8"]) as client:
        (tmp_path / "milepost.toml").write_text(SMALLEST.replace("URL", partner.url))
        with up(tmp_path, CRM_SECRET=secret) as url:
            answer = client.request(
                "POST",
                f"{url}/message",
                headers={"Content-Type": "application/json"},
                body=json.dumps(message(f"{partner.url}people")).encode(),
            )
            assert (answer.status, answer.json()["storedMessage"]["status"]) == (200, "QUEUED")
            assert partner.came.wait(60)
        [request] = partner.requests
        assert net.verify(secret, request.headers, request.body) == request.headers["webhook-id"]
