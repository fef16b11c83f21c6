"""One connection to a partner, one exchange of request and answer on it, and the time that it may
take."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import cast

from milepost_net.body import RequestBody
from milepost_net.errors import (
    AnswerTooLarge,
    InvalidAnswer,
    InvalidRequest,
    NetError,
    NetUsageError,
    NoAnswer,
    SendState,
)
from milepost_net.response import MalformedResponse, Response, ResponseParser
from milepost_net.url import HttpUrl

BUFFERED = 1 << 20
"""Bytes of a streamed body that wait for the sink before the partner is asked to pause."""

UNREAD_S = 0.01
"""How long bytes that have come and are not read yet put off the end of a call whose time is over:
an event loop may run timers before it reads."""

TCP_ESTABLISHED = b"\x01"
"""The first byte of TCP_INFO while both sides may send."""
SO_MEMINFO = 55
"""Socket option of Linux; its first number is the memory that holds data received and not read yet,
an end of the stream included."""
NOTHING = bytes(4)

Sink = Callable[[bytes], object]
"""Takes the body of an answer piece by piece: a file's `write`, say. It is called in another
thread, one call after the other."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds that a call may take. `connect`: resolve the name, connect and agree on TLS. `read`:
    the longest silence of the partner. `total`: from the call to the last byte of the answer,
    redirects included."""

    connect: float = 5.0
    read: float = 15.0
    total: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "total"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not isfinite(value)
                or value <= 0
            ):
                raise NetUsageError(f"Timeouts({name}={value!r}): give seconds, more than 0")


def _is_quiet(sock: socket.socket) -> bool:
    """Does Linux say that the connection is established and that nothing waits to be read? `poll`
    says so on every system, but lets another thread take over the interpreter meanwhile, for
    milliseconds where many compute. False: ask `poll`."""
    if sys.platform != "linux":
        return False
    try:
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return (
            state == TCP_ESTABLISHED
            and sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, len(NOTHING)) == NOTHING
        )
    except OSError:
        return False


class HttpConnection(asyncio.Protocol):
    """A connection to a vetted address; `on_lost` is called once when it has ended."""

    def __init__(self, on_lost: Callable[[HttpConnection], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.lost = False
        self.retire_at = 0.0
        """When it has lived long enough, by the loop's clock."""
        self.idle_until = 0.0
        self.sock: socket.socket | None = None
        """The socket itself, which the transport closes: its copy of it is slow to ask."""
        self._on_lost = on_lost
        self._paused = False
        self._writable: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.exchange is None:
            # Nothing was asked: whatever this answers, it is no request of ours.
            self.abort()
        else:
            self.exchange.received(data)

    def eof_received(self) -> None:
        if self.exchange is not None:
            self.exchange.ended()
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.resume_writing()
        if self.exchange is not None:
            self.exchange.ended(exc)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def is_silent(self) -> bool:
        """Is there nothing to read? An idle connection on which there is has been closed by the
        partner, or spoilt."""
        sock = self.sock
        if not hasattr(select, "poll") or sock is None or _is_quiet(sock):
            return True
        if sock.fileno() < 0:
            return False
        poller = select.poll()
        poller.register(sock.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poller.poll(0)

    async def drained(self) -> None:
        """Wait until the partner has taken enough of what was written."""
        if self._paused:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    def abort(self) -> None:
        """End the connection at once."""
        self.lost = True
        if self.transport is not None:
            self.transport.abort()


class Exchange:
    """One request and its answer. `sent` says how far the request has got."""

    def __init__(
        self,
        connection: HttpConnection,
        url: HttpUrl,
        method: str,
        timeouts: Timeouts,
        ends_at: float,
        largest: int,
        sink: Sink | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        assert connection.transport is not None
        self.sent = SendState.NOT_SENT
        self.parser = ResponseParser(method)
        self._connection, self._transport = connection, connection.transport
        self._url, self._host = url, url.host_header
        self._loop = loop
        self._timeouts, self._ends_at, self._largest = timeouts, ends_at, largest
        self._sink = sink
        self._whole: asyncio.Future[None] = self._loop.create_future()
        self._pieces: list[bytes] = []
        self._size = 0
        self._waiting = 0
        self._sink_busy = False
        self._paused = False
        self._wake: asyncio.Future[None] | None = None
        self._last = self._loop.time()
        self._unsent = 0
        self._looked = False
        """Whether bytes that had come were left to be read once after a deadline."""
        self._timer = self._loop.call_at(min(self._last + timeouts.read, ends_at), self._check)

    @property
    def reusable(self) -> bool:
        """May the connection carry another request? Not while a part of this one waits to be sent:
        the next one would wait behind it."""
        sent = not self._transport.get_write_buffer_size()
        return self.parser.done and self.parser.reusable and sent and not self._connection.lost

    async def run(self, head: bytes, body: bytes | RequestBody) -> Response:
        """Send the request and read the answer. However it ends, nothing of it goes on
        afterwards."""
        connection = self._connection
        connection.exchange = self
        sender: asyncio.Task[None] | None = None
        try:
            self.sent = SendState.MAYBE_SENT
            if isinstance(body, bytes):
                self._transport.write(head + body if len(body) <= 65_536 else head)
                if len(body) > 65_536:
                    self._transport.write(body)
            else:
                self._transport.write(head)
                sender = asyncio.ensure_future(self._send(body))
            if self._sink is not None:
                await self._pass_on(self._sink)
            await self._whole
        except BaseException:
            connection.abort()
            raise
        finally:
            connection.exchange = None
            self._timer.cancel()
            if sender is not None and not sender.done():
                # The answer came before the whole body was sent: the rest is not wanted, and the
                # connection cannot be used again.
                connection.abort()
                sender.cancel()
        return self._response()

    async def _send(self, body: RequestBody) -> None:
        try:
            pieces, left = body.pieces(), body.length
            while (piece := await self._loop.run_in_executor(None, next, pieces, None)) is not None:
                left -= len(piece)
                if left < 0 or self._connection.lost:
                    break
                self._last = self._loop.time()
                self._transport.write(piece)
                await self._connection.drained()
            if left and not self._connection.lost:
                raise OSError("its length is not what it said")
        except asyncio.CancelledError:
            raise
        except Exception as error:
            said = (
                f"{self._host}: the request's body cannot be read ({type(error).__name__}: {error})"
            )
            self._fail(InvalidRequest(said, kind="invalid-body", sent=self.sent))

    async def _pass_on(self, sink: Sink) -> None:
        """Give the body to the sink as it comes, until the answer is whole or has failed."""
        while True:
            if self._pieces and self._streams:
                content = b"".join(self._pieces)
                self._pieces.clear()
                self._waiting = 0
                self._sink_busy = True
                work = self._loop.run_in_executor(None, sink, content)
                try:
                    await asyncio.shield(work)
                except asyncio.CancelledError:
                    # The caller may close its file once this call has ended.
                    await asyncio.wait([work])
                    raise
                self._sink_busy = False
                self._last = self._loop.time()
                if self._paused and not self._connection.lost:
                    self._paused = False
                    self._transport.resume_reading()
            elif self._whole.done():
                return
            else:
                self._wake = self._loop.create_future()
                await self._wake

    @property
    def _streams(self) -> bool:
        """Does the sink take the body? Only what was asked for: an error's text stays in the
        response."""
        return self._sink is not None and 200 <= self.parser.status < 300

    def received(self, data: bytes) -> None:
        self._last = self._loop.time()
        if self._whole.done():
            # More than was asked for: nothing that comes on this connection can be trusted to
            # answer the next request.
            self._connection.abort()
            return
        try:
            pieces = self.parser.feed(data)
        except MalformedResponse as error:
            self._fail(self._invalid(f"its answer is no valid HTTP: {error}", "malformed"))
            return
        if self.parser.status:
            self.sent = SendState.ANSWERED
            if self._streams and (self.parser.length or 0) > self._largest:
                self._fail(self._too_large())
                return
        for piece in pieces:
            self._take(piece)
        if self.parser.done:
            self._finish(None)

    def _take(self, piece: bytes) -> None:
        room = self._largest - self._size
        self._size += len(piece)
        self._pieces.append(piece if len(piece) <= room else piece[: max(0, room)])
        if len(piece) > room:
            self._fail(self._too_large())
        elif self._streams:
            self._waiting += len(piece)
            if self._waiting > BUFFERED and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            self._woken()

    def ended(self, error: Exception | None = None) -> None:
        """The connection has ended, with this error if there was one."""
        if self._whole.done():
            return
        if self.parser.feed_eof():
            self._finish(None)
        elif self.parser.begun:
            self._fail(
                self._invalid(f"its answer was cut off after {self.parser.what_came}", "cut")
            )
        elif isinstance(error, ssl.SSLError):
            said = (error.reason or "TLS failed").replace("_", " ").lower()
            self._fail(
                NoAnswer(
                    f"{self._host}: the partner ended the TLS connection ({said})",
                    kind="tls-failed",
                    sent=self.sent,
                )
            )
        else:
            self._fail(
                NoAnswer(
                    f"{self._host}: the connection was closed before an answer",
                    kind="closed",
                    sent=self.sent,
                )
            )

    def _check(self) -> None:
        """The timer: a deadline has come, or was put off by bytes that came meanwhile."""
        now, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if self._sink_busy or (unsent and unsent != self._unsent):
            # The sink is at work, or the partner is reading: neither is a silence of the partner.
            self._last = now
        self._unsent = unsent
        is_late = now >= min(self._last + self._timeouts.read, self._ends_at)
        if is_late and not self._looked and not self._connection.is_silent():
            # This process was stopped, or too busy to read: what has come is read first, and may be
            # the rest of the answer.
            self._looked = True
            self._timer = self._loop.call_later(UNREAD_S, self._check)
            return
        self._looked = False
        if now >= self._ends_at:
            self._late(f"no whole answer within {self._timeouts.total:g} s", "timeout")
        elif now >= self._last + self._timeouts.read:
            self._late(f"silent for {self._timeouts.read:g} s", "silent")
        else:
            self._timer = self._loop.call_at(
                min(self._last + self._timeouts.read, self._ends_at), self._check
            )

    def _late(self, said: str, kind: str) -> None:
        self._fail(
            NoAnswer(
                f"{self._host}: {said}",
                kind=kind,
                sent=self.sent,
                response=self._response() if self.parser.status else None,
            )
        )

    def _invalid(self, said: str, kind: str) -> InvalidAnswer:
        response = self._response() if self.parser.status else None
        return InvalidAnswer(
            f"{self._host}: {said}", kind=kind, sent=SendState.ANSWERED, response=response
        )

    def _too_large(self) -> AnswerTooLarge:
        said = f"{self._host}: its answer is larger than {self._largest:,} bytes"
        return AnswerTooLarge(
            said, kind="too-large", sent=SendState.ANSWERED, response=self._response()
        )

    def _response(self) -> Response:
        body = b"" if self._streams else b"".join(self._pieces)
        return Response(self.parser.status, self.parser.headers, body, self._size, self._url.text)

    def _fail(self, error: NetError) -> None:
        self._finish(error)
        self._connection.abort()

    def _finish(self, error: NetError | None) -> None:
        if not self._whole.done():
            if error is None:
                self._whole.set_result(None)
            else:
                self._whole.set_exception(error)
                # It may never be awaited, if the call is cancelled in the same moment.
                self._whole.exception()
        self._timer.cancel()
        self._woken()

    def _woken(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
