"""An idle connection: whether its partner has closed or spoilt it is known before it carries
another request."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from milepost_net import connection as module
from milepost_net.connection import HttpConnection

ABORT = struct.pack("ii", 1, 0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end of a connection, and the partner's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        theirs, _ = server.accept()
        with theirs:
            yield ours, theirs


def idle(sock: socket.socket) -> HttpConnection:
    connection = HttpConnection(lambda lost: None)
    connection.sock = sock
    return connection


def reset(theirs: socket.socket) -> None:
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    theirs.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("quick", [True, False], ids=["by options", "by poll"])
@pytest.mark.parametrize(
    "act",
    [
        lambda theirs: theirs.sendall(b"x"),
        lambda theirs: theirs.shutdown(socket.SHUT_WR),
        lambda theirs: theirs.close(),
        reset,
    ],
    ids=["wrote", "ended", "closed", "reset"],
)
def test_a_connection_with_something_to_read_is_not_silent(
    ends: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[socket.socket], None],
    quick: bool,
) -> None:
    ours, theirs = ends
    if not quick:
        monkeypatch.setattr(module, "_is_quiet", lambda sock: False)
    connection = idle(ours)
    assert connection.is_silent()
    theirs.sendall(b"an answer")
    until(lambda: not connection.is_silent())
    assert ours.recv(100) == b"an answer"
    assert connection.is_silent()
    act(theirs)
    until(lambda: not connection.is_silent())


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have no such option, and are asked by poll"
)
def test_linux_says_that_a_connection_is_quiet_without_poll(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.select, "poll", lambda: pytest.fail("poll was asked"))
    assert idle(ends[0]).is_silent()
