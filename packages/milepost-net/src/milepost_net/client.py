"""The HTTP client for everything that calls out."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from milepost_net import background
from milepost_net.body import RequestBody
from milepost_net.connection import Exchange, HttpConnection, Sink, Timeouts
from milepost_net.errors import (
    CallStopped,
    InvalidRequest,
    NetError,
    NetUsageError,
    NoAnswer,
    SendState,
)
from milepost_net.guard import AddressGuard
from milepost_net.headers import PASSED_ON, header_lines
from milepost_net.pool import ConnectionPool, HostConnections, PoolLimits
from milepost_net.redirects import Redirects, next_url
from milepost_net.resolver import Resolver, SystemResolver
from milepost_net.response import Response
from milepost_net.tls import Tls
from milepost_net.url import HttpUrl, parse_url

LARGEST = 1 << 20
USER_AGENT = "milepost"
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods whose repeat does no harm (RFC 9110)."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}\Z")
_NO_TLS = Tls()


@dataclass(slots=True)
class _Call:
    """One call. Its headers are checked when its head is made."""

    method: str
    url: HttpUrl
    headers: Mapping[str, str]
    body: bytes | RequestBody | None
    timeouts: Timeouts
    ends_at: float
    largest: int
    sink: Sink | None
    tls: Tls
    repeatable: bool
    share: str

    def head(self) -> bytes:
        """The request line and the headers."""
        given, names = header_lines(self.headers)
        lines = [
            f"{self.method} {self.url.target} HTTP/1.1\r\nHost: {self.url.host_header}\r\n{given}"
        ]
        if "accept" not in names:
            lines.append("Accept: */*\r\n")
        if "user-agent" not in names:
            lines.append(f"User-Agent: {USER_AGENT}\r\n")
        body = self.body
        if body is None:
            if self.method in WITH_BODY:
                lines.append("Content-Length: 0\r\n")
        else:
            lines.append(
                f"Content-Length: {len(body) if isinstance(body, bytes) else body.length}\r\n"
            )
        lines.append("\r\n")
        return "".join(lines).encode("ascii")

    def redirected(self, url: HttpUrl) -> _Call:
        """The same call to where the answer sent it; another origin gets no header that may be a
        credential."""
        if url.origin == self.url.origin:
            return replace(self, url=url)
        return replace(self, url=url, tls=_NO_TLS if url.host != self.url.host else self.tls, headers={
            name: value for name, value in self.headers.items() if name.lower() in PASSED_ON
        })  # fmt: skip


class Client:
    """An HTTP/1.1 client for threads (`request`) and for event loops (`request_async`), with the
    same rules for both.

    A request goes only to addresses that the guard lets through: ordinary public ones, and those
    within `allow_cidrs`. Each destination has up to `connections` connections per event loop, which
    are kept for `idle` seconds. An answer's body may have `largest` bytes. Redirects are answers,
    unless a call says which ones to follow. Proxies in the environment are not used. `resolver` is
    a coroutine function from a name to its addresses, instead of the system's. Close it when it is
    no longer needed: `with` for calls from threads, `async with` on the event loop that the calls
    run on.
    """

    def __init__(
        self,
        *,
        allow_cidrs: Iterable[str] = (),
        timeouts: Timeouts | None = None,
        largest: int = LARGEST,
        tls: Tls | None = None,
        connections: int = 64,
        idle: float = 30.0,
        resolver: Resolver | None = None,
    ) -> None:
        if connections < 1 or idle < 0 or largest < 0:
            raise NetUsageError(
                "Client(connections=…) must be at least 1, idle=… and largest=… not less than 0"
            )
        self._guard = AddressGuard.allowing(allow_cidrs)
        self._timeouts = timeouts or Timeouts()
        self._largest = largest
        self._tls = tls or _NO_TLS
        self._limits = PoolLimits(connections, idle_s=idle)
        self._resolver = resolver
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._background: background.BackgroundLoop | None = None
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | RequestBody | None = None,
        timeouts: Timeouts | None = None,
        largest: int | None = None,
        sink: Sink | None = None,
        redirects: Redirects | None = None,
        tls: Tls | None = None,
        repeatable: bool | None = None,
        share: str = "",
    ) -> Response:
        """Send a request and return the answer, whatever its status; raises NetError if there is no
        whole answer.

        `timeouts`, `largest` and `tls` replace the client's own. `sink` is called with the pieces
        of a 2xx answer's body, which then is not held in memory. `repeatable`: where the partner
        has closed a kept connection without an answer, send the request again on a new one; so it
        is for GET, HEAD, OPTIONS, PUT and DELETE, unless said otherwise. `share`: for whom the call
        is, such as the sender of a message: names are looked up in turn for all of them, so that
        one with many slow names does not hold up the others.
        """
        running = background.hold()
        try:
            if threading.current_thread() is running.thread:
                raise NetUsageError(
                    "Client.request was called on the thread that serves such calls; use request_async there"
                )
            self._hold_pool(running)
            call = self.request_async(
                method, url, headers=headers, body=body, timeouts=timeouts, largest=largest, sink=sink, redirects=redirects, tls=tls,
                repeatable=repeatable, share=share,
            )  # fmt: skip
            try:
                return running.call(call)
            finally:
                pool = self._pools.get(running.loop)
                if pool is not None and not pool.closed:
                    # `close` may have come before this call had begun.
                    self._hold_pool(running)
        finally:
            background.release(running)

    async def request_async(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | RequestBody | None = None,
        timeouts: Timeouts | None = None,
        largest: int | None = None,
        sink: Sink | None = None,
        redirects: Redirects | None = None,
        tls: Tls | None = None,
        repeatable: bool | None = None,
        share: str = "",
    ) -> Response:
        """`request`, awaited, on the running event loop. A call that is cancelled closes its
        connection."""
        loop = asyncio.get_running_loop()
        timeouts = timeouts or self._timeouts
        if (
            not isinstance(method, str)
            or not _METHOD.match(method)
            or method in ("CONNECT", "TRACE")
        ):
            raise InvalidRequest(
                f"the method {str(method)[:40]!r} cannot be sent; write it in capitals, as in POST",
                kind="invalid-method",
            )
        call = _Call(
            method, parse_url(url), _with_content_type(headers or {}, body), body, timeouts, loop.time() + timeouts.total,
            self._largest if largest is None else largest, sink, tls or self._tls,
            method in REPEATABLE if repeatable is None else repeatable, share,
        )  # fmt: skip
        pool = self._pool(loop)
        task = asyncio.current_task(loop)
        assert task is not None
        pool.calls.add(task)
        sent = _Sent()
        try:
            response = await self._send(pool, call, sent)
            hops = 0
            while (
                redirects is not None
                and method in ("GET", "HEAD")
                and (found := next_url(call.url, response, redirects, hops))
            ):
                hops += 1
                call = call.redirected(found)
                response = await self._send(pool, call, sent)
            return response
        except asyncio.CancelledError:
            if task not in pool.stopped:
                raise
            task.uncancel()
            raise CallStopped(
                f"{call.url.host_header}: the client was closed during the call",
                kind="stopped",
                sent=sent.state,
            ) from None
        finally:
            pool.calls.discard(task)
            pool.stopped.discard(task)

    async def _send(self, pool: ConnectionPool, call: _Call, sent: _Sent) -> Response:
        """One request and its answer, on a kept connection if there is one."""
        head = call.head()
        destination = await pool.enter(call.url, call.tls, call.ends_at, call.timeouts.total)
        try:
            kept = pool.take(destination, look=not call.repeatable)
            if kept is None:
                return await self._send_anew(pool, destination, call, head, sent)
            try:
                return await self._exchange(pool, destination, kept, call, head, sent)
            except NoAnswer as error:
                # Most likely the partner closed it while it was idle. Nothing of an answer has
                # come.
                if error.kind != "closed" or not call.repeatable or sent.begun:
                    raise
            pool.drop_idle(destination)
            try:
                return await self._send_anew(pool, destination, call, head, sent)
            except NetError as error:
                if error.sent is SendState.NOT_SENT:
                    error.sent = SendState.MAYBE_SENT  # by the first try
                raise
        finally:
            pool.leave(call.url, call.tls, destination)

    async def _send_anew(
        self,
        pool: ConnectionPool,
        destination: HostConnections,
        call: _Call,
        head: bytes,
        sent: _Sent,
    ) -> Response:
        connection = await pool.connect(call.url, call.tls, call.timeouts, call.ends_at, call.share)
        return await self._exchange(pool, destination, connection, call, head, sent)

    async def _exchange(
        self,
        pool: ConnectionPool,
        destination: HostConnections,
        connection: HttpConnection,
        call: _Call,
        head: bytes,
        sent: _Sent,
    ) -> Response:
        exchange = Exchange(
            connection, call.url, call.method, call.timeouts, call.ends_at, call.largest, call.sink, pool.loop
        )  # fmt: skip
        try:
            response = await exchange.run(head, b"" if call.body is None else call.body)
        finally:
            sent.note(exchange)
        if exchange.reusable:
            pool.keep(destination, connection, exchange.parser.keep_alive)
        else:
            connection.abort()
        return response

    # Pools ----------------------------------------------------------------------------------------
    def _pool(self, loop: asyncio.AbstractEventLoop) -> ConnectionPool:
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            with self._lock:
                for other in [other for other in self._pools if other.is_closed()]:
                    del self._pools[other]
                pool = self._pools[loop] = ConnectionPool(
                    loop, self._guard, self._resolver or SystemResolver(), self._limits
                )
        return pool

    def _hold_pool(self, running: background.BackgroundLoop) -> None:
        """Keep the background loop for as long as this client has connections on it."""
        if self._background is running:
            return
        with self._lock:
            if self._background is not None and self._background.pid == os.getpid():
                return
            self._background = background.hold()

    def close(self) -> None:
        """Close the connections of synchronous calls; calls that run in other threads end with
        CallStopped. The next call connects anew."""
        with self._lock:
            running, self._background = self._background, None
        if running is None or running.pid != os.getpid():
            return
        try:
            pool = self._pools.get(running.loop)
            if pool is not None:
                running.call(pool.close())
        finally:
            background.release(running)

    async def close_async(self) -> None:
        """Close the connections of calls on the running event loop; such calls end with
        CallStopped."""
        pool = self._pools.get(asyncio.get_running_loop())
        if pool is not None:
            await pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        return f"<Client allowing {', '.join(map(str, self._guard.allowed)) or 'public addresses alone'}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Client cannot be pickled: it holds connections")


def _with_content_type(
    headers: Mapping[str, str], body: bytes | RequestBody | None
) -> Mapping[str, str]:
    """The headers, with the body's own Content-Type unless they have one; raises InvalidRequest if
    the body is none."""
    if body is None or isinstance(body, bytes):
        return headers
    if not hasattr(body, "pieces"):
        raise InvalidRequest(
            f"the body is {type(body).__name__}; give bytes, a FileBody or a MultipartForm",
            kind="invalid-body",
        )
    if body.content_type is None or any(
        isinstance(name, str) and name.lower() == "content-type" for name in headers
    ):
        return headers
    return {**headers, "Content-Type": body.content_type}


class _Sent:
    """How far the requests of a call have got."""

    def __init__(self) -> None:
        self.state = SendState.NOT_SENT
        self.begun = False

    def note(self, exchange: Exchange) -> None:
        self.state = exchange.sent
        self.begun = exchange.parser.begun
