"""HTTP listener: uvicorn in a thread of its own, with a timeout for every wait of a connection."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from milepost.core.errors import ConfigMistake
from milepost.http.protocol.problems import TYPE, problem

GRACE_S = 3
LARGEST_HEAD = 64 << 10
"""Bytes, including the request line and line ends. An incomplete head may be larger by what came
with its first byte, which is one read of the socket."""
HEAD_TOO_LARGE = f"the head of the request has more than {LARGEST_HEAD:,} bytes"
MOST = 2_000
"""Maximum connections."""


class ConnectionTimeouts(HttpToolsProtocol):
    """One connection, with a timeout for every wait. uvicorn waits without limit for a request
    head, for a reader, and for the rest of a body that it does not need; a few clients that send a
    byte now and then would occupy all connections. Errors before there is a request have the same
    format as all others."""

    head_s, reader_s, linger_s = 10.0, 60.0, 5.0
    """Time limits for receiving a head, for the client to read an answer, and for the rest of an
    answered request."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._in_head = self._in_body = False
        self._unfinished = self._head_size = self._messages = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST:
            self._refuse("too-many", f"there are {MOST:,} connections already")
        else:
            self._wait("head", self.head_s, self._no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self._messages
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # Of bytes that came together with earlier requests, it is unknown how many belong to
            # this one.
            self._unfinished += len(data) if self._messages == before else 0
            if self._unfinished > LARGEST_HEAD:
                self._refuse("head-too-large", HEAD_TOO_LARGE)
            else:
                self._wait("head", self.head_s, self._no_head)
        elif self.cycle is not None and self.cycle.response_complete and not self._in_body:
            # Only line ends: they start no request.
            self._wait_for_the_next()

    def on_message_begin(self) -> None:
        self._in_head, self._unfinished, self._head_size = True, 0, 0
        self._messages += 1
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers after a body are headers too. A proxy in front of us has not checked them: they
        # say nothing about the call.
        if self._in_head:
            self._head_size += len(name) + len(value) + len(b": \r\n")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._no_wait("head")
        if (
            self._head_size + len(self.parser.get_method()) + len(b"  HTTP/1.1\r\n\r\n")
            > LARGEST_HEAD
        ):
            self._refuse("head-too-large", HEAD_TOO_LARGE)
            raise ValueError(HEAD_TOO_LARGE)  # so that the parser stops here
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()
        if "linger" in self._timers:
            self._no_wait("linger")
            self._wait_for_the_next()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self.transport.is_closing():
            self._wait("linger", self.linger_s, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait("reader", self.reader_s, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._no_wait("reader")

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            self._refuse("malformed", "malformed HTTP request")

    def _cut(self) -> None:
        """Close at once and discard unsent data: otherwise the system would keep it for a client
        that does not read."""
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.transport.abort()

    def _no_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # Another request before it is not answered yet: until then nothing is read, and the
            # head cannot come.
            self._no_wait("head")
            self._wait("head", self.head_s, self._no_head)
        elif self._in_head:
            self._refuse("too-slow", f"request head not received within {self.head_s:g} s")
        else:
            self.transport.close()

    def _refuse(self, code: str, detail: str) -> None:
        found = problem(code, detail)
        body = msgspec.json.encode(found.content())
        head = f"content-type: {TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[found.status] + head.encode() + body)
        self.transport.close()

    def _wait_for_the_next(self) -> None:
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _wait(self, what: str, seconds: float, then: Callable[[], None]) -> None:
        """Start a timer, unless one is running for this: the time counts from the first byte, not
        from the last."""
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(seconds, then)

    def _no_wait(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()


class Server:
    """Serves an ASGI application at an address until it is stopped. `url` is the address, once it
    has started."""

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        protocol: type[ConnectionTimeouts] = ConnectionTimeouts,
    ) -> None:
        self._socket = _bound(host, port)
        self.host, self.port = host, self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            log_level="error",
            http=protocol,
            ws="none",
            loop="auto",  # uvloop, where it is installed
            timeout_keep_alive=15,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="http-server", daemon=True
        )

    def start(self) -> None:
        """Returns when calls are answered."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.01)
        if not self._server.started:
            raise ConfigMistake(f"the server could not be started at {self.url}; the log says why")

    def stop(self) -> None:
        """Waits a short time for running calls."""
        self._server.should_exit = True
        self._thread.join(GRACE_S + 2)
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio checks the name of the socket: only then are answers in two parts not delayed until
    # the client acknowledges the first.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigMistake(
            f"nothing can listen at {host}:{port}: {error.strerror}; give another address with --listen HOST:PORT"
        ) from None
    found.listen(512)
    return found
