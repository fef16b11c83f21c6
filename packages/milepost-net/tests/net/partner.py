"""A partner on loopback whose every byte a test decides: a script runs for each connection, in a
thread."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pytest

import milepost_net as net

OPEN = ("127.0.0.0/8", "::1/128")
"""What a client in a test must allow to reach a partner."""
LARGE = bytes(range(256)) * (8 << 12)
"""A body of 8 MB."""
QUICK = net.Timeouts(connect=0.3, read=0.3, total=0.3)
"""For partners that never answer: the call ends soon. No test needs an answer within it."""
PATIENCE = 60.0
"""Seconds within which something must have happened that takes a moment: far more than a busy
machine needs."""


PATIENT = net.Timeouts(connect=PATIENCE, read=PATIENCE, total=PATIENCE)
"""For calls that a test ends itself: on a machine that is too busy, or stopped for a while, the
usual timeouts would end them before."""


class StoppedClock:
    """The clock of asyncio's event loop, stopped: it moves when a test moves it, and deadlines come
    when a test wants them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._now = loop.time()
        loop.time = lambda: self._now  # type: ignore[method-assign]

    def jump(self, seconds: float) -> None:
        """Move on, without a turn for anything."""
        self._now += seconds

    async def move(self, seconds: float) -> None:
        """Move on, and let everything happen that is due then."""
        self._now += seconds
        for _ in range(10):
            await asyncio.sleep(0)


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


class Line:
    """One connection, as the script sees it."""

    def __init__(self, partner: Partner, sock: socket.socket, number: int) -> None:
        self.partner, self.sock, self.number = partner, sock, number
        self.closing = partner.closing
        self._buffer = bytearray()

    def read(self) -> Received | None:
        """The next whole request; None: the client has closed the connection."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *fields = bytes(head).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (field.partition(":") for field in fields)
        }
        length = int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            if not self._more():
                return None
        body, self._buffer = bytes(self._buffer[:length]), self._buffer[length:]
        request = Received(line, headers, body, self.number)
        self.partner.requests.append(request)
        self.partner.came.set()
        return request

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65_536)
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def send(self, data: bytes) -> bool:
        """Send bytes; False: the client has gone."""
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def answer(self, status: int = 200, body: bytes = b"", *headers: str) -> bool:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers]
        return self.send("\r\n".join([*lines, "", ""]).encode() + body)

    def reset(self) -> None:
        # Without lingering, closing is a reset.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


Script = Callable[[Line], None]


def always(status: int = 200, body: bytes = b"ok", *headers: str) -> Script:
    """Answer every request on every connection alike."""

    def script(line: Line) -> None:
        while line.read() is not None:
            if not line.answer(status, body, *headers):
                return

    return script


def hang(line: Line) -> None:
    """Take a request, and never answer."""
    line.read()
    line.closing.wait()


class Partner:
    """Listens on loopback. `requests` are all that came; `connections` counts."""

    def __init__(
        self, script: Script, *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.came = threading.Event()
        self.closing = threading.Event()
        self.connections = 0
        self._context = context
        self._listener = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        self.port = int(self._listener.getsockname()[1])
        self._host = f"[{host}]" if ":" in host else host
        self._threads: list[threading.Thread] = []
        self._socks: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._context else ''}://{self._host}:{self.port}/"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self.closing.is_set():
                sock.close()
                return
            self.connections += 1
            self._socks.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, self.connections))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
                self._socks.append(sock)
            self.script(Line(self, sock, number))
        except OSError:
            pass
        finally:
            sock.close()

    def __enter__(self) -> Partner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        # `accept` is not ended by closing the socket that it waits on.
        socket.create_connection(self._listener.getsockname()[:2]).close()
        self._thread.join()
        self._listener.close()
        for sock in self._socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join()


def failure(client: net.Client, url: str, method: str = "GET", **options: Any) -> net.NetError:
    """The error of a call that must fail, without the secret in its URL."""
    with pytest.raises(net.NetError) as caught:
        client.request(method, url, **options)
    assert "s3cret" not in str(caught.value)
    return caught.value
