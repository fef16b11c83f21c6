"""The server: slow, malformed and deaf clients, unknown paths and methods."""

from __future__ import annotations

import json
import logging
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.http.live_server import LiveServer

from milepost.core.errors import ConfigMistake
from milepost.http.server import application
from milepost.http.server.assembly import make_asgi_app
from milepost.http.server.listener import LARGEST_HEAD, ConnectionTimeouts, Server

ITEMS = "/api/v1/routes/parcels/items"
POST = f"POST {ITEMS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


class Hasty(ConnectionTimeouts):
    head_s = reader_s = 0.1


class Brief(ConnectionTimeouts):
    linger_s = 0.1


@contextmanager
def serving(live_server: LiveServer, patience: type[ConnectionTimeouts]) -> Iterator[int]:
    server = Server(make_asgi_app(live_server.opened.state), "127.0.0.1", 0, patience)
    server.start()
    yield server.port
    server.stop()


@pytest.fixture(scope="module")
def hasty(shared_server: LiveServer) -> Iterator[int]:
    """The port of a server that waits for a tenth of a second for heads, and for readers."""
    with serving(shared_server, Hasty) as port:
        yield port


@pytest.fixture
def brief(shared_server: LiveServer) -> Iterator[int]:
    """The port of a server that waits for a tenth of a second for the rest of what it has
    answered."""
    with serving(shared_server, Brief) as port:
        yield port


def said(port: int, *parts: bytes) -> bytes:
    """All that is answered, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def in_time(port: int, *parts: bytes) -> bytes:
    """The same of a hasty server. That nothing is answered means that we were too slow for it to
    begin: once more."""
    for _ in range(100):
        with suppress(ConnectionError):
            if answer := said(port, *parts):
                return answer
    raise AssertionError("never quick enough")


def code_of(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return str(json.loads(body)["code"])


def test_a_connection_that_says_nothing_is_closed(hasty: int) -> None:
    assert said(hasty) == b""


def test_a_head_that_does_not_end_is_not_waited_for(hasty: int) -> None:
    answer = in_time(hasty, b"GET /api/v1/status HTTP/1.1\r\nHost: loc")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert code_of(answer) == "too-slow"


def test_the_time_for_a_head_runs_from_its_first_byte(hasty: int) -> None:
    """A byte now and then gains nothing: the server ends it while the client still sends."""

    def dripped() -> bytes:
        with socket.create_connection(("127.0.0.1", hasty), timeout=30) as connection:
            connection.settimeout(0.02)
            connection.sendall(b"GET /api/v1/status HTTP/1.1\r\n")
            while True:
                connection.sendall(b"X-Slow: 1\r\n")
                with suppress(TimeoutError):
                    return connection.recv(65536)

    answer = b""
    while (
        not answer
    ):  # a server that has closed without a word had not heard the first byte in its time
        with suppress(ConnectionError):
            answer = dripped()
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_head_without_end_is_too_large(shared_server: LiveServer) -> None:
    """The answer may be lost on the way, for the client has sent more than was read; but the
    connection ends."""
    sent, answer = 0, b""
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        connection.settimeout(1.0)
        with suppress(ConnectionError):
            while not answer and sent < 200 * LARGEST_HEAD:
                with suppress(TimeoutError):  # the way is full, since nobody reads any more
                    connection.sendall(b"x" * 8192)
                sent += 8192
                if select.select([connection], [], [], 0.01)[0]:
                    answer = connection.recv(65536)
                    break
    assert sent < 200 * LARGEST_HEAD
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        POST + b"Content-Length: x\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(shared_server: LiveServer, nonsense: bytes) -> None:
    answer = said(shared_server.port, nonsense)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert code_of(answer) == "malformed"


def test_a_body_that_does_not_come_is_not_waited_for(
    shared_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SLOWEST_S", 0.05)
    with socket.create_connection(("127.0.0.1", shared_server.port), timeout=30) as connection:
        connection.sendall(POST + b'Content-Length: 100\r\n\r\n{"id"')
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
    assert shared_server.milepost.status()["routes"]["parcels"]["total"] == 0


def test_the_rest_of_a_request_that_was_answered_is_not_waited_for(brief: int) -> None:
    """It is too large by what it says, so that it is answered before it is here; a byte now and
    then gains nothing."""
    with socket.create_connection(("127.0.0.1", brief), timeout=30) as connection:
        connection.sendall(POST + b'Content-Length: 10000000\r\n\r\n{"id"')
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        connection.settimeout(0.02)
        with pytest.raises(ConnectionError):
            for _ in range(500):
                connection.sendall(b" ")
                with suppress(TimeoutError):
                    connection.recv(65536)


def test_a_connection_serves_several_calls_and_line_ends_between_them(
    shared_server: LiveServer,
) -> None:
    get = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = get.replace(b"Host", b"Connection: close\r\nHost")
    answer = said(shared_server.port, get, b"\r\n", get + last)
    assert answer.count(b"HTTP/1.1 200 ") == 3


def test_a_client_that_does_not_read_is_let_go(hasty: int) -> None:
    """It asks for more than the way can hold and takes nothing of it: its answers pile up until the
    server has had enough."""
    with socket.socket() as connection, select.epoll() as ended:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hasty))
        ended.register(connection, select.EPOLLHUP | select.EPOLLRDHUP)
        connection.sendall(b"GET /api/docs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
        assert ended.poll(30)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api",
        "/api/v1",
        "/api/v2/status",
        "/api/v1/routes/parcels",
        "/api/v1/status/",
        "//",
        "/%00",
    ],
)
def test_a_path_that_is_not_there_is_not_found(shared_server: LiveServer, path: str) -> None:
    answer = shared_server.call("GET", path)
    assert (answer.status, answer.body["code"]) == (404, "unknown-path")


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "OPTIONS", "TRACE"])
def test_a_method_that_is_not_possible_says_which_are(
    shared_server: LiveServer, method: str
) -> None:
    answer = shared_server.call(method, ITEMS)
    assert (answer.status, answer.body["code"], answer.headers["allow"]) == (
        405,
        "wrong-method",
        "GET, HEAD, POST",
    )


def test_head_answers_as_get_does_without_a_body(shared_server: LiveServer) -> None:
    head, get = shared_server.call("HEAD", ITEMS), shared_server.call("GET", ITEMS)
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]
    assert shared_server.call("HEAD", "/nothing").status == 404


def test_an_address_that_is_taken_is_refused(shared_server: LiveServer) -> None:
    with pytest.raises(ConfigMistake, match="give another address with --listen"):
        Server(None, "127.0.0.1", shared_server.port)


def test_a_failure_of_our_own_is_logged_and_says_nothing_of_it_outside(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(live_server.ctx.ledger, "find", broken)
    with caplog.at_level(logging.ERROR):
        answer = live_server.call("GET", ITEMS)
    assert (answer.status, answer.body["code"]) == (500, "failed")
    assert b"secret" not in answer.raw
    assert "a secret" in caplog.text


def test_no_answer_is_held_back_for_the_clients_acknowledgement() -> None:
    """asyncio switches Nagle's algorithm off only where it sees that a socket is TCP's."""
    server = Server(None, "127.0.0.1", 0)
    try:
        assert server._socket.proto == socket.IPPROTO_TCP
    finally:
        server._socket.close()
