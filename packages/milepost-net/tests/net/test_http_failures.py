"""The HTTP client and partners that hang, drip, reset or send invalid HTTP: each call ends and says
how far it got."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.descriptors import no_free_descriptor
from tests.net.partner import (
    OPEN,
    PATIENCE,
    QUICK,
    Line,
    Partner,
    StoppedClock,
    always,
    failure,
    hang,
)

import milepost as mp
import milepost_net as net
from milepost.core.errors import is_shortage
from milepost.core.outcome import outcome_of_exception
from milepost_net import SendState, Timeouts
from milepost_net.connection import Exchange


# Deadlines ----------------------------------------------------------------------------------------
def drip_head(line: Line) -> None:
    line.read()
    line.send(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    while line.send(b".") and not line.closing.wait(0.01):
        pass


def drip_body(line: Line) -> None:
    line.read()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while line.send(b".") and not line.closing.wait(0.01):
        pass


def drip_chunks(line: Line) -> None:
    line.read()
    line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while line.send(b"1\r\n.\r\n") and not line.closing.wait(0.01):
        pass


def endless_1xx(line: Line) -> None:
    line.read()
    while line.send(b"HTTP/1.1 100 Continue\r\n\r\n") and not line.closing.wait(0.01):
        pass


class Arrivals:
    """Counts how often bytes of an answer have come to the client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        received = Exchange.received

        def counted(exchange: Exchange, data: bytes) -> None:
            received(exchange, data)
            self.count += 1

        monkeypatch.setattr(Exchange, "received", counted)

    async def more(self, number: int = 3) -> None:
        wanted = self.count + number
        while self.count < wanted:
            await asyncio.sleep(0)


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    return Arrivals(monkeypatch)


@pytest.mark.parametrize("script", [hang, drip_head, drip_body, drip_chunks, endless_1xx])
def test_the_total_deadline_ends_every_call(
    arrivals: Arrivals, script: Callable[[Line], None]
) -> None:
    async def main(partner: Partner) -> net.NetError:
        clock = StoppedClock(asyncio.get_running_loop())
        async with net.Client(allow_cidrs=OPEN, timeouts=Timeouts(read=20, total=50)) as client:
            call = asyncio.ensure_future(client.request_async("POST", f"{partner.url}s3cret"))
            await asyncio.to_thread(partner.came.wait, PATIENCE)
            if script is not hang:
                for _ in range(3):
                    await arrivals.more()
                    await clock.move(15)
                    assert not call.done(), "45 s, and no silence of 20 s in it"
            await clock.move(50)
            with pytest.raises(net.NoAnswer) as caught:
                await call
            return caught.value

    with Partner(script) as partner:
        error = asyncio.run(main(partner))
    answered = script in (drip_body, drip_chunks)
    assert (error.kind, error.sent) == (
        "timeout",
        SendState.ANSWERED if answered else SendState.MAYBE_SENT,
    )
    assert str(error) == f"127.0.0.1:{partner.port}: no whole answer within 50 s"
    if answered:
        assert error.response is not None
        assert error.response.status == 200
        assert set(error.response.body) == {ord(".")}


def test_a_silence_ends_the_call() -> None:
    async def main(partner: Partner) -> None:
        clock = StoppedClock(asyncio.get_running_loop())
        async with net.Client(allow_cidrs=OPEN, timeouts=Timeouts(read=5, total=50)) as client:
            call = asyncio.ensure_future(client.request_async("POST", partner.url))
            await asyncio.to_thread(partner.came.wait, PATIENCE)
            await clock.move(4.9)
            assert not call.done()
            await clock.move(0.2)
            with pytest.raises(net.NoAnswer, match="silent for 5 s") as caught:
                await call
            assert (caught.value.kind, caught.value.sent) == ("silent", SendState.MAYBE_SENT)

    with Partner(hang) as partner:
        asyncio.run(main(partner))


def test_no_connection_in_time_was_not_sent(client: net.Client) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        try:
            # Until its queue is full the system takes connections in the program's stead.
            for _ in range(8):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(listener.getsockname())
                waiting.append(sock)
            error = failure(
                client,
                f"http://127.0.0.1:{listener.getsockname()[1]}/",
                timeouts=Timeouts(connect=0.3, total=60),
            )
        finally:
            for sock in waiting:
                sock.close()
    assert isinstance(error, net.ConnectFailed)
    assert (error.kind, error.sent) == ("connect-timeout", SendState.NOT_SENT)


def test_a_resolver_that_hangs_is_within_the_deadline_too() -> None:
    async def resolver(host: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    with net.Client(resolver=resolver) as client:
        error = failure(client, "http://partner.example/s3cret", timeouts=QUICK)
        assert (type(error), error.sent) == (net.ConnectFailed, SendState.NOT_SENT)


def test_a_partner_that_does_not_read_is_within_the_deadline(
    client: net.Client, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(b"x" * (30 << 20))
    with Partner(lambda line: line.closing.wait() and None) as partner:
        for body in (b"x" * (30 << 20), net.FileBody(tmp_path / "large")):
            error = failure(
                client, partner.url, "POST", body=body, timeouts=Timeouts(read=0.3, total=60)
            )
            assert (type(error), error.kind, error.sent) == (
                net.NoAnswer,
                "silent",
                SendState.MAYBE_SENT,
            )


@pytest.mark.parametrize("name", ["connect", "read", "total"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_timeout_that_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(net.NetUsageError, match=name):
        Timeouts(**{name: value})


# What goes wrong ----------------------------------------------------------------------------------
def test_nobody_listens(client: net.Client) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = failure(client, f"http://127.0.0.1:{taken.getsockname()[1]}/s3cret")
    assert (type(error), error.kind, error.sent) == (
        net.ConnectFailed,
        "connection-refused",
        SendState.NOT_SENT,
    )


def test_a_name_that_does_not_exist() -> None:
    async def resolver(host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no")

    with net.Client(resolver=resolver) as client:
        error = failure(client, "http://nowhere.example/s3cret")
    assert (type(error), error.kind, error.sent) == (
        net.ConnectFailed,
        "name-not-resolved",
        SendState.NOT_SENT,
    )


def test_the_systems_resolver_is_asked() -> None:
    with Partner(always()) as partner, net.Client(allow_cidrs=OPEN) as client:
        assert client.request("GET", f"http://localhost:{partner.port}/").status == 200


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 200", "cut"),
        (b"HTTP/1.1 200 OK\r\nServer: a", "cut"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfour", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n", "cut"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "malformed"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 30_000, "malformed"),
    ],
)
def test_an_answer_that_is_none_is_told_and_the_next_one_is_read_from_its_own_beginning(
    client: net.Client, said: bytes, kind: str
) -> None:
    def script(line: Line) -> None:
        line.read()
        if line.number == 1:
            line.send(said)
        else:
            line.answer(200, b"good")

    with Partner(script) as partner:
        error = failure(client, f"{partner.url}s3cret", "POST")
        assert error.kind == kind
        assert error.sent is (SendState.MAYBE_SENT if kind == "closed" else SendState.ANSWERED)
        assert (error.response is not None and error.response.status == 200) == (
            b"\r\n\r\n" in said
        )
        assert client.request("POST", partner.url).body == b"good"


def test_a_reset_may_have_been_sent(client: net.Client) -> None:
    with Partner(lambda line: line.read() and line.reset()) as partner:
        error = failure(client, partner.url, "POST", body=b"x")
    assert (type(error), error.sent) == (net.NoAnswer, SendState.MAYBE_SENT)


# Errors as outcomes -------------------------------------------------------------------------------
def test_a_handler_may_let_an_error_through_and_it_says_whether_the_work_may_have_been_done(
    client: net.Client,
) -> None:
    asked: list[str] = []
    route = mp.Route("parcels")

    def verify(item: mp.Item) -> bool:
        asked.append(item.key)
        return True

    @route.stage("send", verify=verify, retry=mp.Backoff(base=0.01, jitter=0))
    def send(item: mp.Item) -> mp.Outcome:
        client.request("POST", partner.url)
        return mp.Done()

    with (
        Partner(lambda line: line.read() and line.reset()) as partner,
        mp.open("memory:", routes=[route]) as system,
    ):
        system.submit("parcels", {"id": "P-1"})
        system.run(until_idle=1)
        shown = system.show("parcels", "P-1")
    assert shown is not None
    assert (shown["status"], asked, len(partner.requests)) == ("COMPLETED", ["P-1"], 1), (
        "the probe ran instead of a second request"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (net.ConnectFailed("no"), (mp.Retry, False, None, None)),
        (net.NoAnswer("no", sent=SendState.MAYBE_SENT), (mp.Retry, True, None, None)),
        (net.AddressRefused("no"), (mp.Reject, None, None, None)),
        (net.InvalidRequest("no"), (mp.Reject, None, None, None)),
        (
            net.AnswerTooLarge(
                "no",
                sent=SendState.ANSWERED,
                response=net.Response(429, net.HeaderList([("Retry-After", "7")])),
            ),
            (mp.Retry, True, 429, 7.0),
        ),
    ],
)
def test_errors_as_outcomes(error: net.NetError, expected: tuple[Any, ...]) -> None:
    outcome = outcome_of_exception(error)
    found = (
        type(outcome),
        getattr(outcome, "unknown", None),
        outcome.http_status,
        getattr(outcome, "after", None),
    )
    assert found == expected


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_an_answer_that_other_readers_accept_is_accepted_and_its_connection_is_not_used_again(
    client: net.Client, answer: bytes
) -> None:
    def script(line: Line) -> None:
        while line.read() is not None:
            line.send(answer)

    with Partner(script) as partner:
        assert [client.request("POST", partner.url, body=b"x").body for _ in range(2)] == [
            b"ok",
            b"ok",
        ]
        assert partner.connections == 2


def test_an_answer_that_ends_within_its_head_is_cut_off_and_says_what_came(
    client: net.Client,
) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(b"HTTP/1.1 201 Created\r\nContent-Len")

    with (
        Partner(script) as partner,
        pytest.raises(
            net.InvalidAnswer, match=r"cut off after its first line, 'HTTP/1\.1 201 Created'"
        ) as caught,
    ):
        client.request("POST", partner.url, body=b"x")
    assert (caught.value.kind, caught.value.sent) == ("cut", SendState.ANSWERED)


def test_without_a_free_file_descriptor_the_failure_is_not_the_partners() -> None:
    with Partner(always()) as partner, net.Client(allow_cidrs=OPEN) as client:
        assert client.request("GET", partner.url).status == 200, "the event loop runs"
        with no_free_descriptor(), pytest.raises(net.ConnectFailed) as failed:
            client.request("GET", "http://127.0.0.1:9/")
    assert is_shortage(failed.value)
    assert isinstance(outcome_of_exception(failed.value), mp.NotYet)
