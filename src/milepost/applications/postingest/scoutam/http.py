"""HTTP/1.1 to one server: a request gets its whole answer within a time, or an error.

What the standard library leaves open is closed here: an answer that drips in byte by byte is cut off at the deadline, one that is
too large is not read, and redirects are not followed. Proxies are not used: HTTPS_PROXY in the environment is for others.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import milepost as mp

TIMEOUT = 10.0
LARGEST = 1 << 20


class NoAnswer(mp.MilepostError):
    """No whole answer has come. Whether the server did what it was asked is not known."""


class AnswerTooLarge(NoAnswer):
    """An answer came, and it is larger than anybody would want to read."""


@dataclass(frozen=True)
class Answer:
    """A whole answer, whatever its status."""

    status: int
    headers: Message
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """The seconds of a Retry-After header. A date is taken by the server's own clock, so that ours does not matter."""
        said = self.headers.get("Retry-After", "").strip()
        if said.isascii() and said.isdigit():
            return float(said[:9])
        try:
            return max(0.0, (parsedate_to_datetime(said) - parsedate_to_datetime(self.headers.get("Date", ""))).total_seconds())
        except (TypeError, ValueError):
            return None


class Web:
    """The server that a URL names; `target` is what the URL says beyond that. Any number of threads may ask at once.

    A request may reach the server twice: one that met a kept connection which the server had closed meanwhile is made again, within
    the same `timeout` (in seconds, from the request to the answer's last byte; resolving the server's name is not in it).
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
        trust: ssl.SSLContext | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise mp.UsageError(f"this is no URL ({error}); one looks like https://host.example:8443/path") from None
        if parts.scheme not in ("http", "https") or not host:
            raise mp.UsageError("a URL must begin with https:// or http:// and name a host, as in https://host.example:8443/path")
        if parts.username is not None or not url.isascii() or not url.isprintable() or " " in url:
            raise mp.UsageError(f"the URL for {host} must be plain ASCII without spaces, and without a user and password in it")
        self.host = host if port is None else f"{host}:{port}"
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._largest = largest
        self._timeout = timeout
        self._ticks = ticks
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()
        if parts.scheme == "https":
            self._connect: Callable[[], HTTPConnection] = partial(
                HTTPSConnection, host, port, context=trust or ssl.create_default_context()
            )  # fmt: skip
        else:
            self._connect = partial(HTTPConnection, host, port)

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """The answer to one request; raises NoAnswer if there is none in time."""
        until = self._ticks() + self._timeout
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        try:
            if kept is not None:
                try:
                    return self._exchange(kept, until, method, target, headers, body)
                except ConnectionError:
                    # Most likely closed while it was idle; everything else that was kept is probably as old.
                    self.close()
            return self._exchange(self._connect(), until, method, target, headers, body)
        except (OSError, HTTPException) as error:
            raise NoAnswer(self._why(error)) from None

    def close(self) -> None:
        """Close what is kept for later requests; the next one connects anew."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        for connection in getattr(self, "_idle", ()):
            connection.close()

    def _exchange(
        self, connection: HTTPConnection, until: float, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        def left() -> float:
            seconds = until - self._ticks()
            if seconds <= 0:
                raise TimeoutError
            return seconds

        try:
            if connection.sock is None:
                connection.timeout = left()
                connection.connect()
            connection.sock.settimeout(left())
            connection.response_class = partial(_response, left)  # type: ignore[assignment]
            connection.request(method, target, body, dict(headers))
            response = connection.getresponse()
            content = self._read(response)
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            with self._lock:
                self._idle.append(connection)
        return Answer(response.status, response.headers, content)

    def _read(self, response: HTTPResponse) -> bytes:
        with response:
            content = b"" if (response.length or 0) > self._largest else response.read(self._largest + 1)
            if (response.length or 0) > self._largest or len(content) > self._largest:
                raise AnswerTooLarge(f"{self.host}: its answer is larger than {self._largest:,} bytes")
            if response.length:
                raise HTTPException("its answer was cut off")
        return content

    def _why(self, error: Exception) -> str:
        """In words that stay the same while the trouble does: they are compared to see whether anything has changed."""
        if isinstance(error, TimeoutError):
            said = f"no whole answer within {self._timeout:g} s"
        elif isinstance(error, socket.gaierror):
            said = "its name cannot be resolved"
        elif isinstance(error, ssl.SSLCertVerificationError):
            said = f"its certificate is not trusted ({error.verify_message})"
        elif isinstance(error, ConnectionRefusedError):
            said = "connection refused"
        elif isinstance(error, ConnectionError):
            said = "the connection was closed before an answer"
        elif isinstance(error, OSError):
            said = error.strerror or type(error).__name__
        else:
            said = "its answer was cut off or is no HTTP"
        return f"{self.host}: {said}"


def _response(left: Callable[[], float], sock: socket.socket, **options: Any) -> HTTPResponse:
    return HTTPResponse(_Source(sock, left), **options)  # type: ignore[arg-type]


class _Source:
    """What http.client reads an answer from: a socket on which each wait is as long as the time that is left."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Timed(self._sock, self._left))


class _Timed(io.RawIOBase):
    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left
        # Through the socket's own file, which keeps it open for as long as the answer is read.
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
