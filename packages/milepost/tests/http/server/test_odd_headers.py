"""Ambiguous request headers, and bytes after the body: refused, or read in the one safe way."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer

from milepost.http.server.listener import LARGEST_HEAD

BODY = b'{"id": "z"}'
CHUNKS = b"b\r\n" + BODY + b"\r\n0\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
"""What comes behind it on the same connection. It must be read as a call of its own, or not at
all."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder: Path = tmp_path_factory.mktemp("odd-heads")
    with guarded_server(f"sqlite:///{folder}/ledger.db") as opened:
        yield opened


def statuses(live_server: LiveServer, *parts: bytes) -> list[int]:
    """Of all answers on one connection, until the server closes it."""
    with socket.create_connection(("127.0.0.1", live_server.port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        with suppress(ConnectionResetError):  # it has closed, and there was more to read
            while piece := connection.recv(65536):
                answer += piece
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", answer)]


def post(*headers: bytes, host: bytes = b"localhost") -> bytes:
    head = (
        b"POST /api/v1/routes/parcels/items HTTP/1.1",
        b"Host: " + host,
        b"Content-Type: application/json",
        *headers,
    )
    return b"\r\n".join(head) + b"\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        post(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        post(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
        post(b"Content-Length: 5", b"Content-Length: 11"),
        post(b"Content-Length: +11"),
        post(b"Content-Length : 11"),
        post(b"Transfer-Encoding: xchunked"),
        post(b"Transfer-Encoding: chunked, identity"),
        post(b"Transfer-Encoding : chunked"),
        post(b"Content-Length: 11", b"X: a", b" folded"),
        post(b"Content-Length: 11", b"X: a\x00b"),
    ],
)
def test_a_body_whose_end_is_not_plain_is_refused_with_all_that_follows(
    at: GuardedServer, head: bytes
) -> None:
    assert statuses(at, head + CHUNKS + b"\r\n" + LAST) == [400]


def test_a_body_that_was_packed_on_the_way_is_not_taken_for_what_is_in_it(
    at: GuardedServer,
) -> None:
    assert statuses(at, post(b"Transfer-Encoding: gzip, chunked") + CHUNKS + b"\r\n" + LAST) == [
        415,
        200,
    ]


def test_nothing_behind_a_body_counts_as_part_of_its_head(at: GuardedServer) -> None:
    call = post(b"Transfer-Encoding: chunked") + CHUNKS
    assert statuses(at, call + b"\r\n" + LAST)[0] in (200, 201)
    for behind in (
        b"Authorization: Bearer mp_wrong",
        b"Host: elsewhere",
        b"X-Forwarded-For: 10.0.0.1",
        b"Origin: http://elsewhere",
    ):
        assert statuses(at, call + behind + b"\r\n\r\n" + LAST) == [200, 200], behind


def test_a_key_behind_a_body_opens_nothing(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as at:
        key = at.key("submit").encode()
        call = post(b"Transfer-Encoding: chunked") + CHUNKS
        assert statuses(at, call + b"Authorization: Bearer " + key + b"\r\n\r\n" + LAST) == [
            401,
            200,
        ]


def head_of(size: int, *, in_the_address: bool = False) -> bytes:
    """A whole head of exactly so many bytes."""
    start, rest = b"GET /healthz?", b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "
    blank = size - len(start) - len(rest) - 4
    return (
        start + b"a" * blank + rest + b"\r\n\r\n"
        if in_the_address
        else start + rest + b"a" * blank + b"\r\n\r\n"
    )


@pytest.mark.parametrize("in_the_address", [False, True])
@pytest.mark.parametrize("over", [1, 4_000])
def test_a_head_is_measured_to_the_byte_though_it_comes_at_once(
    at: GuardedServer, over: int, in_the_address: bool
) -> None:
    refused = statuses(at, head_of(LARGEST_HEAD + over, in_the_address=in_the_address))
    assert refused == [431]
    assert statuses(at, head_of(LARGEST_HEAD, in_the_address=in_the_address)) == [
        400 if in_the_address else 200
    ]


def test_what_comes_behind_a_head_that_is_too_large_is_not_read(at: GuardedServer) -> None:
    large = post(b"Content-Length: %d" % len(BODY), b"X: " + b"a" * LARGEST_HEAD)
    assert statuses(at, large + BODY + LAST) in ([431], []), (
        "the answer may be lost on the way, for more was sent than was read"
    )


def test_the_next_head_is_measured_anew(at: GuardedServer) -> None:
    half = head_of(LARGEST_HEAD * 3 // 4).replace(b"Connection: close\r\n", b"")
    assert statuses(at, half + half + LAST) == [200, 200, 200]


@pytest.mark.parametrize(
    "hosts",
    [(b"elsewhere", b"localhost"), (b"localhost", b"elsewhere"), (b"localhost", b"localhost")],
)
def test_a_call_for_two_hosts_is_not_from_this_machine(
    at: GuardedServer, hosts: tuple[bytes, bytes]
) -> None:
    call = (
        b"GET /api/v1/status HTTP/1.1\r\nHost: "
        + hosts[0]
        + b"\r\nHost: "
        + hosts[1]
        + b"\r\nConnection: close\r\n\r\n"
    )
    assert statuses(at, call) == [403]
