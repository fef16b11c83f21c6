"""Clients against a real service on loopback, for threads and for event loops, and in an
interpreter without other packages."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.net.partner import Line
from tests.notifications.partners import TIME, Partner, Service, answers, service

import milepost_client
import milepost_net as net
from milepost.engine.auth import make_key
from milepost_client import (
    AsyncMessageClient,
    ClientUsageError,
    MessageClient,
    MessageNotAccepted,
    MessageReceipt,
    MessageRefused,
    MessageUnknown,
    RetryPolicy,
)

SOON = RetryPolicy(base=0.001, cap=0.002)


class Both:
    """One of the two clients, with the methods of the first."""

    def __init__(self, kind: str, *arguments: Any, **options: Any) -> None:
        self._kind, self._arguments, self._options = kind, arguments, options

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._kind == "sync":
                with MessageClient(*self._arguments, **self._options) as client:
                    return getattr(client, name)(*arguments, **options)

            async def run() -> Any:
                async with AsyncMessageClient(*self._arguments, **self._options) as client:
                    return await getattr(client, name)(*arguments, **options)

            return asyncio.run(run())

        return call


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def url_of(at: Service) -> str:
    return f"http://127.0.0.1:{at.port}"


def test_a_message_is_handed_over_delivered_and_read_back(kind: str) -> None:
    with Partner(answers(200)) as partner, service() as at:
        client = Both(kind, url_of(at), sender="shop")
        receipt: MessageReceipt = client.send(
            f"{partner.url}a?b=1",
            {"paid": True},
            method="put",
            headers={"X-Colour": "red"},
            correlation_id="c-7",
        )
        assert (receipt.status, receipt.duplicate, receipt.request_id, receipt.sender_id) == (
            "QUEUED",
            False,
            "c-7",
            "shop",
        )
        assert client.read(receipt).status == "QUEUED"
        at.milepost.run(until_idle=0)
        state = client.read(receipt)
        assert (state.delivered, state.ended, state.attempts, state.tries, state.request_id) == (
            True,
            True,
            0,
            1,
            "c-7",
        )
        [request] = partner.requests
        assert (request.line, request.body) == ("PUT /a?b=1 HTTP/1.1", b'{"paid":true}')
        assert {
            "x-colour": "red",
            "x-correlation-id": "c-7",
            "x-message-id": receipt.message_id,
        }.items() <= request.headers.items()


def test_s32_one_correlation_id_from_the_client_to_the_partner_and_the_dead_letter(
    kind: str,
) -> None:
    with Partner(answers(500)) as partner, service(retry={"attempts": 3, "base": 0.001}) as at:
        client = Both(kind, url_of(at), sender="shop")
        receipt = client.send(partner.url, "text", correlation_id="trace-32")
        at.milepost.run(until_idle=1)
        state = client.read(receipt)
        assert (receipt.request_id, state.request_id, state.status, state.failure) == (
            "trace-32",
            "trace-32",
            "MAX_RETRIES_EXCEEDED",
            "HTTP 500 Internal Server Error",
        )
        assert [request.headers["x-correlation-id"] for request in partner.requests] == [
            "trace-32"
        ] * 3
        assert [entry["correlationId"] for entry in state.record["retryHistory"]] == [
            "trace-32"
        ] * 3


def test_the_same_id_and_time_are_one_message_and_another_body_is_a_conflict(kind: str) -> None:
    with service() as at:
        client = Both(kind, url_of(at), sender="shop")
        fixed = {"message_id": "m-1", "timestamp": TIME}
        assert [client.send("https://crm.example/", "a", **fixed).duplicate for _ in range(2)] == [
            False,
            True,
        ]
        with pytest.raises(MessageRefused) as caught:
            client.send("https://crm.example/", "b", **fixed)
        assert (caught.value.code, caught.value.status) == ("IDEMPOTENCY_CONFLICT", 409)
        with pytest.raises(MessageUnknown):
            client.read("m-2#shop#x#y")


def test_what_the_rules_refuse_is_not_sent(kind: str) -> None:
    with Partner(answers(200)) as partner:
        client = Both(kind, partner.url, sender="shop")
        with pytest.raises(MessageRefused, match="targetUrl"):
            client.send("javascript:alert(1)")
        with pytest.raises(MessageRefused, match="bytes"):
            client.send("https://crm.example/", "é" * 131_073)
        for body in (7, b"{}", ("a",), {1, 2}):
            with pytest.raises(MessageRefused, match="body"):
                client.send("https://crm.example/", body)
        with pytest.raises(MessageRefused, match="headers"):
            client.send("https://crm.example/", headers=["X-A: b"])
        with pytest.raises(MessageRefused, match="correlation_id"):
            client.send("https://crm.example/", correlation_id="a b\n")
        assert partner.requests == []


def test_a_message_with_a_large_body_is_read_back(kind: str) -> None:
    body = "\x01" * 262_144
    with service() as at:
        client = Both(kind, url_of(at), sender="shop")
        assert client.read(client.send("http://127.0.0.1:9/", body)).record["body"] == body


def test_a_large_body_arrives_where_the_service_allows_it(kind: str) -> None:
    body = "é" * 400_000
    with (
        Partner(answers(200)) as partner,
        service(largest_body=1_000_000) as at,
        service() as small,
    ):
        Both(kind, url_of(at), sender="shop", largest_body=1_000_000).send(partner.url, body)
        at.milepost.run(until_idle=0)
        assert partner.requests[0].body == body.encode()
        with pytest.raises(MessageRefused) as caught:
            Both(kind, url_of(small), sender="shop", largest_body=1_000_000).send(partner.url, body)
        assert (caught.value.code, caught.value.status) == ("PAYLOAD_TOO_LARGE", 413)


def test_a_key_speaks_for_its_sender_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with service() as at:
        _, key = make_key(
            at.milepost.context,
            "shop",
            ["submit", "read"],
            by="ops",
            reason="a shop",
            attributes={"sender": "shop"},
        )
        target = "https://crm.example/"
        receipt = Both(kind, url_of(at), key=key, sender="shop").send(target)
        with pytest.raises(MessageRefused) as caught:
            Both(kind, url_of(at), key=key).send(target, sender_id="bank")
        assert caught.value.status == 403
        with pytest.raises(MessageRefused) as caught:
            Both(kind, url_of(at), key="").send(target, sender_id="shop")
        assert caught.value.status == 401
        _, submits = make_key(
            at.milepost.context,
            "till",
            ["submit"],
            by="ops",
            reason="a till",
            attributes={"sender": "shop"},
        )
        with pytest.raises(
            MessageRefused, match="may not do this; expected: a key with the scope 'read'"
        ):
            Both(kind, url_of(at), key=submits).read(receipt)
        with pytest.raises(ClientUsageError, match=r"MILEPOST_KEY.*Authorization is not one line"):
            Both(kind, url_of(at), key=f"{key}\n").read(receipt)
        monkeypatch.setenv("MILEPOST_KEY", key)
        assert Both(kind, url_of(at)).read(receipt).status == "QUEUED"


def unlucky(at: Service) -> Any:
    """A proxy before the service that breaks off twice, once after the service has accepted, and
    then answers 503 once."""
    troubles = ["reset", "lost", "503"]

    def script(line: Line) -> None:
        while (request := line.read()) is not None:
            trouble = troubles.pop(0) if troubles else ""
            if trouble == "reset":
                line.reset()
                return
            answer = (
                at.post(
                    request.body, headers={"X-Correlation-ID": request.headers["x-correlation-id"]}
                )
                if trouble != "503"
                else None
            )
            if trouble == "lost":
                line.reset()
                return
            if not (
                line.answer(503, b"<html>", "Retry-After: 0")
                if answer is None
                else line.answer(answer.status, answer.raw)
            ):
                return

    return script


def test_a_lost_answer_is_repeated_and_the_message_is_delivered_once(kind: str) -> None:
    with Partner(answers(200)) as partner, service() as at, Partner(unlucky(at)) as proxy:
        receipt = Both(kind, proxy.url, sender="shop", retry=SOON).send(
            partner.url, "text", correlation_id="c-1"
        )
        assert (receipt.duplicate, receipt.tries) == (True, 4)
        assert len({request.body for request in proxy.requests}) == 1
        at.milepost.run(until_idle=0)
        assert [request.body for request in partner.requests] == [b"text"]


def test_a_service_that_is_away_is_said_after_the_last_try(kind: str) -> None:
    with Partner(answers(200)) as gone:
        url = gone.url
    with pytest.raises(MessageNotAccepted, match="after 3 tries") as caught:
        Both(kind, url, sender="shop", retry=RetryPolicy(attempts=3, base=0.001, cap=0.002)).send(
            "https://crm.example/"
        )
    assert not caught.value.unknown


def test_the_service_may_have_a_path_of_its_own(kind: str) -> None:
    with Partner(answers((503, b""))) as partner:
        client = Both(
            kind, f"{partner.url}milepost/message", sender="shop", retry=RetryPolicy(attempts=1)
        )
        with pytest.raises(MessageNotAccepted):
            client.send("https://crm.example/")
        assert partner.requests[0].line == "POST /milepost/message HTTP/1.1"


@pytest.mark.parametrize(
    "url", ["http://message-sender/?a=1", "message-sender", "http://shop:key@message-sender"]
)
def test_a_url_that_is_none_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ClientUsageError, match="the service's URL") as caught:
        MessageClient(url)
    assert "shop:key" not in str(caught.value)


ALONE = """
import importlib.abc, sys

class OnlyOurs(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        first = name.partition(".")[0]
        if first not in ("milepost_client", "milepost_net") and first not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, OnlyOurs())
import asyncio, json
from milepost_client import AsyncMessageClient, MessageClient, MessageRefused

url, target = sys.argv[1:]
with MessageClient(url, sender="shop") as client:
    receipt = client.send(target, {"by": "thread"}, correlation_id="c-1")
    try:
        client.send("ftp://crm.example/")
    except MessageRefused as refused:
        code = refused.code

async def main():
    async with AsyncMessageClient(url, sender="shop") as client:
        return (await client.read(receipt)).status, (await client.send(target, {"by": "loop"})).status

print(json.dumps([receipt.status, code, *asyncio.run(main())]))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("milepost"))))
"""


def test_it_runs_where_no_other_package_is_installed(tmp_path: Path) -> None:
    sources = os.pathsep.join(
        str(Path(package.__file__ or "").parents[1]) for package in (milepost_client, net)
    )
    with Partner(answers(200)) as partner, service() as at:
        ran = subprocess.run(
            [sys.executable, "-S", "-c", ALONE, url_of(at), partner.url],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": sources}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        said, modules = map(json.loads, ran.stdout.splitlines())
        assert said == ["QUEUED", "VALIDATION_ERROR", "QUEUED", "QUEUED"]
        assert {name.partition(".")[0] for name in modules} == {"milepost_client", "milepost_net"}
        at.milepost.run(until_idle=0)
        assert sorted(request.body for request in partner.requests) == [
            b'{"by":"loop"}',
            b'{"by":"thread"}',
        ]
