"""Base class of stand-ins for partners: a real HTTP server on loopback, which can be set to
misbehave.

class Weather(HttpStandIn):
    def answer(self, request: StandInRequest) -> StandInAnswer:
        return StandInAnswer(200, {"sun": True})

with Weather() as weather:
    weather.fail("status", 503, where="GET /today", times=2)
    ask(weather.url)
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

FaultKind = Literal["status", "garbage", "html", "huge", "hang", "drip", "cut", "reset"]
"""status: an error status. garbage, html, huge: a body of another kind. hang: no answer. drip: a
header that never ends. cut: an answer without its last byte. reset: the connection is reset."""
FOR_EVER = 1 << 62
DRIP_S = 0.02
BODIES = {
    "garbage": (b'{"promised": tru', "application/json"),
    "html": (b"<html><body>Welcome to the proxy</body></html>", "text/html"),
    "huge": (b'{"pad": "' + b"x" * (1 << 20) + b'"}', "application/json"),
}


@dataclass
class HttpFault:
    """A fault of the stand-in for the next `times` requests that match `where`, a pattern of
    "METHOD /path" (None: all). `acted`: the request is carried out first, and only its answer is
    spoiled."""

    kind: FaultKind
    status: int = 500
    where: str | None = None
    times: int = FOR_EVER
    acted: bool = False
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def matches(self, line: str) -> bool:
        """Does the fault apply to this request, "METHOD /path"?"""
        return self.times > 0 and (self.where is None or fnmatchcase(line, self.where))


@dataclass(frozen=True)
class StandInRequest:
    """A request that the stand-in received."""

    method: str
    path: str
    query: dict[str, str]
    headers: Message[str, str]
    body: bytes

    @property
    def line(self) -> str:
        """Method and path, without the query."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class StandInAnswer:
    """The stand-in's answer: bytes are sent as they are, any other content as JSON, and None as no
    body. With an empty `content_type` it has no such header."""

    status: int
    content: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        if self.content is None:
            return b""
        return (
            self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()
        )


class HttpStandIn:
    """A stand-in that listens at `url` within `with`. A subclass says what it answers."""

    def __init__(self, *, port: int = 0) -> None:
        self.faults: list[HttpFault] = []
        self.requests: list[str] = []
        """Each request, as "METHOD /path", in the order of arrival."""
        self.closing = threading.Event()
        self.lock = threading.RLock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name=f"{type(self).__name__}-server"
        )

    def answer(self, request: StandInRequest) -> StandInAnswer:
        """The right answer to a request; called by one thread at a time."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address that clients are given."""
        return self.origin

    @property
    def connections(self) -> int:
        """How many connections have been made to it."""
        return self._server.accepted

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.cut()
        self._server.server_close()

    def fail(
        self,
        kind: FaultKind = "status",
        status: int = 500,
        *,
        where: str | None = None,
        times: int = FOR_EVER,
        acted: bool = False,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpFault:
        """Misbehave from now on, until `mend` or for so many times; see `HttpFault`."""
        fault = HttpFault(kind, status, where, times, acted, body, headers or {})
        with self.lock:
            self.faults.append(fault)
        return fault

    def mend(self) -> None:
        """Behave again."""
        with self.lock:
            self.faults.clear()

    def count(self, where: str) -> int:
        """How many requests matched this pattern of "METHOD /path"."""
        with self.lock:
            return sum(fnmatchcase(line, where) for line in self.requests)

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        """The answer to a request, and the fault that spoils it."""
        with self.lock:
            self.requests.append(request.line)
            fault = self.take_fault(request.line)
            if fault is not None and not fault.acted:
                return fault, StandInAnswer(fault.status, fault.body)
            return fault, self.answer(request)

    def take_fault(self, line: str) -> HttpFault | None:
        """The first fault that applies to "METHOD /path", which is used up by one."""
        with self.lock:
            fault = next((one for one in self.faults if one.matches(line)), None)
            if fault is not None:
                fault.times -= 1
            return fault


def serve(standin: HttpStandIn, about: str) -> int:
    """Run a stand-in as a program: print its address, and what a person should know, and end at
    Ctrl-C or SIGTERM."""
    until_signal = handle_signals()
    with standin:
        print(standin.url, flush=True)
        print(f"{about}; Ctrl-C ends it", file=sys.stderr, flush=True)
        until_signal()
    return 0


def handle_signals() -> Callable[[], None]:
    """Handle Ctrl-C and SIGTERM from now on; the function that is returned waits for one. Call this
    before the program prints that it is ready: the answer to that may be a signal."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def until_signal() -> None:
        while not stop.wait(
            0.2
        ):  # a signal that came just before a wait without a timeout would be lost
            pass

    return until_signal


def spoil(kind: str, connection: socket.socket, body: bytes, closing: threading.Event) -> None:
    """Answer in a way that no client can accept; ends when `closing` is set at the latest."""
    whole = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    if kind == "hang":
        closing.wait()
    elif kind == "drip":
        # Only a client that limits the total time gets out of it.
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not closing.wait(DRIP_S):
            connection.sendall(b".")
    elif kind == "cut":
        connection.sendall(whole[:-1])
    else:
        # Without lingering, closing is a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


class LoopbackServer(ThreadingHTTPServer):
    """A server on loopback with a thread for each connection, which ends at once when it is
    closed."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.accepted = 0
        """How many connections have been made to it."""
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """End the connections that clients keep, so that no thread waits for their next request."""
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a client that has closed its connection."""


class _Server(LoopbackServer):
    def __init__(self, address: tuple[str, int], standin: HttpStandIn) -> None:
        self.standin = standin
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {
            name: values[-1]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, answer = self.server.standin.handle(
            StandInRequest(self.command, parts.path, query, self.headers, body)
        )
        if fault is None:
            self._send(answer)
        elif fault.kind == "status":
            content = (
                fault.body
                if fault.body is not None
                else {"status": fault.status, "message": "a fault of the stand-in"}
            )
            self._send(StandInAnswer(fault.status, content, tuple(fault.headers.items())))
        elif fault.kind in BODIES:
            content, kind = BODIES[fault.kind]
            self._send(StandInAnswer(200, content, tuple(fault.headers.items()), kind))
        else:
            self.close_connection = True
            with suppress(OSError):
                spoil(
                    fault.kind, self.connection, answer.body or b"{}", self.server.standin.closing
                )

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _send(self, answer: StandInAnswer) -> None:
        body = answer.body
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status not in (204, 304):
            if answer.content_type:
                self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: `requests` has what was asked."""
