"""The HTTP client: what is sent, what comes back, and which connection it uses."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.net.partner import LARGE, OPEN, PATIENCE, QUICK, Line, Partner, always, failure

import milepost_net as net
from milepost_net import SendState, Timeouts
from milepost_net.connection import Exchange, HttpConnection


# What is sent and what comes back -----------------------------------------------------------------
def test_a_request_arrives_as_it_was_given(client: net.Client) -> None:
    with Partner(
        always(201, b'{"a": 1}', "X-Is: this", "Set-Cookie: a=1", "Set-Cookie: b=2")
    ) as partner:
        answer = client.request(
            "POST",
            f"{partner.url}a/b?c=d&e",
            headers={"X-One": "1", "Accept": "text/csv"},
            body=b"\x00body\xff",
        )
    assert (answer.status, answer.ok, answer.body, answer.size, answer.json()) == (
        201,
        True,
        b'{"a": 1}',
        8,
        {"a": 1},
    )
    assert (
        answer.headers.get("x-is"),
        answer.headers.get_all("set-cookie"),
        "x-no" in answer.headers,
    ) == ("this", ["a=1", "b=2"], False)
    [request] = partner.requests
    assert (request.line, request.body) == ("POST /a/b?c=d&e HTTP/1.1", b"\x00body\xff")
    assert request.headers["host"] == f"127.0.0.1:{partner.port}"
    assert (
        request.headers["x-one"],
        request.headers["accept"],
        request.headers["content-length"],
    ) == ("1", "text/csv", "6")
    assert request.headers["user-agent"] == "milepost"
    assert "a=1" not in repr(answer.headers)


@pytest.mark.parametrize(
    ("method", "length"),
    [
        ("GET", None),
        ("DELETE", None),
        ("POST", "0"),
        ("PUT", "0"),
        ("PATCH", "0"),
        ("OPTIONS", None),
    ],
)
def test_a_request_without_a_body_says_so_where_one_is_usual(
    client: net.Client, method: str, length: str | None
) -> None:
    with Partner(always(200, b"")) as partner:
        assert client.request(method, partner.url).status == 200
    assert partner.requests[0].line.startswith(f"{method} ")
    assert partner.requests[0].headers.get("content-length") == length


def test_an_answer_to_head_has_no_body(client: net.Client) -> None:
    with Partner(
        lambda line: (
            [
                line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
                for _ in iter(line.read, None)
            ]
            and None
        )
    ) as partner:
        for _ in range(3):
            assert client.request("HEAD", partner.url).headers.get("Content-Length") == "9"
        assert partner.connections == 1


def test_an_answer_in_chunks_and_one_until_the_close(client: net.Client) -> None:
    def script(line: Line) -> None:
        line.read()
        line.send(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        line.read()
        line.send(b"HTTP/1.1 200 OK\r\n\r\nto the end")

    with Partner(script) as partner:
        assert client.request("GET", partner.url).body == b"hello"
        assert client.request("GET", partner.url).body == b"to the end"
        assert partner.connections == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"headers": {"X": "a\r\nY: b"}}, "value of the header X"),
        ({"headers": {"X": "a\nb"}}, "value of the header X"),
        ({"headers": {"X": "ü"}}, "value of the header X"),
        ({"headers": {"X": "\x00"}}, "value of the header X"),
        ({"headers": {"X": 7}}, "value of the header X"),
        ({"headers": {"X Y": "a"}}, "header name 'X Y'"),
        ({"headers": {"X\r\nY": "a"}}, "header name"),
        ({"headers": {"": "a"}}, "header name"),
        ({"headers": {"Host": "elsewhere"}}, "Host is set by the client"),
        ({"headers": {"content-length": "1"}}, "content-length is set by the client"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "set by the client"),
        ({"headers": {"Connection": "close"}}, "set by the client"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "given twice"),
        ({"headers": {f"X-{number}": "a" * 9_000 for number in range(9)}}, "larger than"),
        (
            {"body": net.FileBody(__file__, content_type="a\r\nX: y")},
            "value of the header Content-Type",
        ),
        ({"body": "text"}, "body is str"),
        ({"method": "get"}, "method 'get'"),
        ({"method": "GET / HTTP/1.1\r\nX: y\r\n\r\n"}, "method"),
        ({"method": "CONNECT"}, "method"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(
    client: net.Client, options: dict[str, Any], said: str
) -> None:
    with Partner(always()) as partner:
        error = failure(client, partner.url, options.pop("method", "POST"), **options)
        assert isinstance(error, net.InvalidRequest)
        assert isinstance(error, net.NetUsageError)
        assert said in str(error)
        assert error.sent is SendState.NOT_SENT
        assert partner.connections == 0


# Pools --------------------------------------------------------------------------------------------
def test_a_connection_is_kept_and_used_again(client: net.Client) -> None:
    with Partner(always()) as partner:
        for _ in range(20):
            assert client.request("POST", partner.url, body=b"x").body == b"ok"
        assert partner.connections == 1


def test_after_a_close_the_next_call_connects_anew(client: net.Client) -> None:
    with Partner(always()) as partner:
        client.request("GET", partner.url)
        client.close()
        client.request("GET", partner.url)
        assert partner.connections == 2


def test_no_thread_is_left_when_every_client_is_closed() -> None:
    before = set(threading.enumerate())
    with Partner(always()) as partner:
        with net.Client(allow_cidrs=OPEN) as one, net.Client(allow_cidrs=OPEN) as other:
            one.request("GET", partner.url)
            other.request("GET", partner.url)
            assert (
                len([thread for thread in threading.enumerate() if thread.name == "milepost-net"])
                == 1
            )
    assert set(threading.enumerate()) <= before


def test_no_more_connections_are_made_than_allowed() -> None:
    """Eight threads, two connections: a gate in the partner shows that two requests come at once,
    and never a third."""
    both, lock = threading.Barrier(2), threading.Lock()
    now, most = 0, 0

    def script(line: Line) -> None:
        nonlocal now, most
        while line.read() is not None:
            with lock:
                now += 1
                most = max(most, now)
            both.wait(PATIENCE)
            with lock:
                now -= 1
            line.answer()

    with (
        Partner(script) as partner,
        net.Client(allow_cidrs=OPEN, connections=2) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        assert {
            answer.status
            for answer in threads.map(lambda _: client.request("GET", partner.url), range(8))
        } == {200}
        assert (partner.connections, most) == (2, 2)


def test_a_call_that_gets_no_connection_in_time_was_not_sent() -> None:
    def script(line: Line) -> None:
        line.read()
        line.closing.wait()

    with (
        Partner(script) as partner,
        net.Client(allow_cidrs=OPEN, connections=1) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        hanging = threads.submit(client.request, "GET", partner.url)
        assert partner.came.wait(PATIENCE)
        error = failure(client, partner.url, timeouts=QUICK)
        assert (error.kind, error.sent) == ("no-connection-free", SendState.NOT_SENT)
        client.close()
        with pytest.raises(net.CallStopped):
            hanging.result()


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_a_kept_connection_that_the_partner_has_closed_is_no_trouble(
    client: net.Client, method: str
) -> None:
    def script(line: Line) -> None:
        if line.read() is not None:
            line.answer()

    with Partner(script) as partner:
        for _ in range(5):
            assert client.request(method, partner.url).status == 200


def test_a_connection_in_steady_use_that_the_partner_has_just_closed_is_not_used_again() -> None:
    """A partner may close a connection after some answers, without a word. The system knows that
    before the event loop does, which is busy here with something else, so it is asked: the partner
    may have acted on a request that is lost."""
    closed = threading.Event()

    def script(line: Line) -> None:
        for _ in range(3):
            line.read()
            line.answer()
        line.sock.close()
        closed.set()

    async def main(url: str) -> None:
        async with net.Client(allow_cidrs=OPEN) as client:
            for _ in range(3):
                await client.request_async("POST", url)
            assert closed.wait(PATIENCE)
            assert (await client.request_async("POST", url)).status == 200

    with Partner(script) as partner:
        asyncio.run(main(partner.url))
        assert (partner.connections, len(partner.requests)) == (2, 4)


def second_request_is_cut(line: Line) -> None:
    """Answers one request on a connection, takes the next one and closes without a word."""
    line.read()
    line.answer()
    line.read()
    line.reset()


def test_a_post_on_a_connection_that_was_cut_is_sent_again_only_where_the_caller_allows_it(
    client: net.Client,
) -> None:
    """The partner has read the second request before it cut the connection: it may have acted on
    it."""
    with Partner(second_request_is_cut) as partner:
        assert client.request("POST", partner.url).status == 200
        error = failure(client, partner.url, "POST")
        assert isinstance(error, net.NoAnswer)
        assert (error.kind, error.sent, len(partner.requests)) == (
            "closed",
            SendState.MAYBE_SENT,
            2,
        )
        assert client.request("POST", partner.url).status == 200
        assert client.request("POST", partner.url, repeatable=True).status == 200
        assert len(partner.requests) == 5, "the fourth was taken twice"


def test_a_repeat_that_cannot_connect_still_says_that_the_first_may_have_arrived() -> None:
    def script(line: Line) -> None:
        line.read()
        line.answer()
        line.read()
        names.append("10.0.0.1")
        line.reset()

    names = ["127.0.0.1"]

    async def resolver(host: str) -> list[str]:
        return names[-1:]

    with Partner(script) as partner, net.Client(allow_cidrs=OPEN, resolver=resolver) as client:
        url = f"http://partner.example:{partner.port}/"
        client.request("GET", url)
        error = failure(client, url)
    assert isinstance(error, net.AddressRefused)
    assert error.sent is SendState.MAYBE_SENT


def test_data_that_was_not_asked_for_is_never_taken_for_an_answer(client: net.Client) -> None:
    seen, gone = threading.Event(), threading.Event()

    def script(line: Line) -> None:
        line.read()
        line.answer(200, b"true")
        if line.number == 1:
            seen.wait(PATIENCE)
            line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
            assert line.read() is None
            gone.set()

    with Partner(script) as partner:
        assert client.request("GET", partner.url).body == b"true"
        seen.set()
        assert gone.wait(PATIENCE), "the client has closed the connection"
        assert client.request("GET", partner.url).body == b"true"
        assert partner.connections == 2


def test_two_answers_to_one_request_end_the_connection(client: net.Client) -> None:
    def script(line: Line) -> None:
        while line.read() is not None:
            line.send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
            )

    with Partner(script) as partner:
        assert [client.request("GET", partner.url).body for _ in range(3)] == [b"ok"] * 3
        assert partner.connections == 3


class _Wire(asyncio.Transport):
    """A connection's end that takes what is written, and nothing more."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def test_bytes_that_come_before_the_call_has_seen_its_answer_end_the_connection_too() -> None:
    async def main() -> None:
        connection = HttpConnection(lambda connection: None)
        connection.connection_made(_Wire())
        loop = asyncio.get_running_loop()
        exchange = Exchange(
            connection,
            net.parse_url("http://partner.example/"),
            "GET",
            Timeouts(),
            loop.time() + 60,
            1000,
            None,
            loop,
        )
        call = asyncio.ensure_future(exchange.run(b"GET / HTTP/1.1\r\n\r\n", b""))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
        assert (await call).body == b"ok"
        assert not exchange.reusable

    asyncio.run(main())


def test_a_post_is_not_sent_on_a_connection_that_the_loop_does_not_yet_know_to_be_closed() -> None:
    closed = threading.Event()

    def script(line: Line) -> None:
        line.read()
        line.answer()
        if line.number == 1:
            line.sock.close()
            closed.set()

    async def main(partner: Partner) -> None:
        async with net.Client(allow_cidrs=OPEN) as client:
            await client.request_async("POST", partner.url)
            assert closed.wait(PATIENCE)  # the loop stands still meanwhile
            assert (await client.request_async("POST", partner.url)).status == 200
            assert partner.connections == 2

    with Partner(script) as partner:
        asyncio.run(main(partner))


def test_a_partner_that_keeps_connections_for_a_moment_only_is_believed(client: net.Client) -> None:
    with Partner(always(200, b"", "Keep-Alive: timeout=1, max=5")) as partner:
        client.request("GET", partner.url)
        client.request("GET", partner.url)
        assert partner.connections == 2


def test_a_connection_with_an_unsent_part_of_a_request_is_not_used_again(
    client: net.Client,
) -> None:
    def script(line: Line) -> None:
        if line.number == 1:
            line.sock.recv(1_000)
            line.answer(413, b"too large")
            line.closing.wait()
        elif line.read() is not None:
            line.answer(200, b"good")

    with Partner(script) as partner:
        assert client.request("POST", partner.url, body=LARGE).status == 413
        assert client.request("POST", partner.url, body=b"x").body == b"good"
        assert partner.connections == 2
