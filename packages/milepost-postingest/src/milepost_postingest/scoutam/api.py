"""Client of ScoutAM's HTTP API, with the calls that are needed to find out whether a file is on
tape.

No error has the password, the token or the content of an answer in it.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote_plus

import milepost as mp
import milepost.application as mpa
import milepost_net as net

TIMEOUT = 10.0
LARGEST = 1 << 20
REST = 5.0
LOGIN_REST = 60.0
IN_A_ROW = 3


class ScoutAMError(mp.MilepostError):
    """An error answer of ScoutAM, or no answer."""

    def __init__(
        self, message: str, *, http_status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.retry_after = retry_after


class AuthenticationFailed(ScoutAMError):
    """ScoutAM refuses our user and password, or its own token."""


class NotThere(ScoutAMError):
    """ScoutAM does not know the file."""


class Unavailable(ScoutAMError):
    """ScoutAM cannot be reached now: 5xx, refused, too slow, cut off."""


class Unreadable(ScoutAMError):
    """ScoutAM's answer is not as specified."""


@dataclass(frozen=True)
class FileState:
    """The state of one file in ScoutAM. `copies` has the volumes of each copy; a copy without any
    is not on tape."""

    archdone: bool
    copies: Mapping[str, tuple[str, ...]]
    damaged: frozenset[str] = frozenset()
    """The copies that are marked as damaged."""
    harmed: bool = False
    """The file is marked as damaged, without a copy."""
    never: bool = False
    """The file is marked not to be archived: it will never be on tape."""

    def volumes(self, copy: str) -> tuple[str, ...]:
        """The volumes that hold this copy; empty unless the file is archived and the copy is
        complete."""
        return self.copies.get(copy, ()) if self.archdone and not self.is_damaged(copy) else ()

    def is_damaged(self, copy: str) -> bool:
        """Whether this copy may be damaged. If only the file is marked, it may be any of its
        copies."""
        return copy in self.damaged or (self.harmed and not self.damaged)


class ScoutAM:
    """A thread-safe client: one login for all, renewed once when its token is refused.

    `timeout` (seconds) is for a whole answer; at most `concurrency` requests run at any time, and
    at most `rate` are started in a second. After three errors in a row, or if ScoutAM has said when
    to retry, no request is made for `rest` seconds (at most a minute), and for a minute after a
    refused login: calls in this time get the same error at once.
    """

    @mpa.translated_net_errors()
    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        *,
        timeout: float = TIMEOUT,
        concurrency: int = 4,
        rate: float | None = None,
        rest: float = REST,
        largest: int = LARGEST,
        ticks: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if concurrency < 1 or timeout <= 0 or rest < 0 or (rate is not None and rate <= 0):
            raise mp.UsageError(
                "ScoutAM(timeout=…, concurrency=…, rate=…) must be more than nothing, and rest=… not less"
            )
        parsed = net.parse_url(url)
        self._host = parsed.host_header
        if "?" in parsed.target:
            raise mp.UsageError(
                f"the URL of ScoutAM at {self._host} must be the base of its API, without '?'"
            )
        self._base = parsed.text.rstrip("/")
        # The URL comes from the operator only, and a tape library is in a private network: no
        # address is refused. The deadline is in real time, whatever `ticks` say, because a server
        # may hang or send byte by byte.
        self._client = net.Client(
            allow_cidrs=net.ANYWHERE,
            timeouts=net.Timeouts(timeout, timeout, timeout),
            largest=largest,
            connections=concurrency,
        )
        self._user, self._password = user, password
        self._token: str | None = None
        self._login = threading.Lock()
        self._slots = threading.BoundedSemaphore(concurrency)
        self._pace = _Pace(rate, ticks, pause)
        self._rest = _Rest(rest, ticks)

    def __repr__(self) -> str:
        return f"<ScoutAM at {self._host}>"

    def __enter__(self) -> ScoutAM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def file(self, path: str) -> FileState:
        """The state of the file with this path, as ScoutAM sees it."""
        answer = self._get(path)
        if answer.status == 404:
            raise NotThere("ScoutAM does not know this file", http_status=404)
        return read_state(answer.body)

    def knows(self, path: str) -> bool:
        """Whether there is anything at this path, even a folder."""
        return self._get(path).status != 404

    def _get(self, path: str) -> net.Response:
        """The answer for a path: one with 200 or 404."""
        url = f"{self._base}/v1/file?path={quote_plus(path)}"
        with self._slots:
            token = self._token or self._log_in(None)
            answer = self._ask("GET", url, _with(token))
            if answer.status == 401:
                answer = self._ask("GET", url, _with(self._log_in(token)))
            if answer.status == 401:
                raise self._rest.failed(
                    AuthenticationFailed(
                        "Authentication failed with status code: 401", http_status=401
                    )
                )
        if answer.status not in (200, 404):
            raise Unreadable(
                f"ScoutAM answered with status code: {answer.status}", http_status=answer.status
            )
        return answer

    def _log_in(self, stale: str | None) -> str:
        """A token that is not the stale one. One thread requests it; the others wait and share
        it."""
        with self._login:
            if self._token is not None and self._token != stale:
                return self._token
            self._token = None
            content = json.dumps({"acct": self._user, "pass": self._password}).encode()
            answer = self._ask(
                "POST",
                f"{self._base}/v1/security/login",
                {**_ACCEPT, "Content-Type": "application/json"},
                content,
            )
            if answer.status != 200:
                said = f"Authentication failed with status code: {answer.status}"
                raise self._rest.failed(AuthenticationFailed(said, http_status=answer.status))
            token = _token_of(answer.body)
            if token is None:
                said = 'Failed to parse authentication response: it must be {"response": TOKEN}'
                raise self._rest.failed(AuthenticationFailed(said, http_status=200))
            self._token = token
            return token

    def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> net.Response:
        """One request, if it may be made now. An answer that says "not now" is an error."""
        self._rest.check()
        self._pace.wait()
        try:
            # Repeating a login or a read does no harm.
            answer = self._client.request(method, url, headers=headers, body=body, repeatable=True)
        except net.AnswerTooLarge as error:
            self._rest.worked()
            raise Unreadable(str(error)) from None
        except net.NetError as error:
            raise self._rest.failed(Unavailable(str(error))) from None
        if answer.not_now:
            raise self._rest.failed(
                Unavailable(
                    str(answer.status), http_status=answer.status, retry_after=answer.retry_after
                )
            )
        self._rest.worked()
        return answer


_ACCEPT = {"Accept": "application/json"}


def _with(token: str) -> dict[str, str]:
    return {**_ACCEPT, "Authorization": f"Bearer {token}"}


def _token_of(body: bytes) -> str | None:
    """The token, if it is valid in a header."""
    try:
        token = json.loads(body)["response"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    fit = (
        isinstance(token, str)
        and token.isascii()
        and token.isprintable()
        and token.strip() == token
    )
    return token if fit and token else None


def read_state(body: bytes) -> FileState:
    """The state in an answer's body. Any deviation from the specification makes it unreadable:
    nothing is guessed."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable("ScoutAM's answer is not JSON", http_status=200) from None
    _expect(isinstance(said, dict), "an object")
    archdone, checksum = said.get("archdone"), said.get("checksum")
    _expect(isinstance(archdone, bool), "an object with archdone: true or false")
    _expect(checksum is None or isinstance(checksum, str), "a checksum that is text")
    copies: dict[str, tuple[str, ...]] = {}
    damaged: set[str] = set()
    for entry in _list(said, "copies"):
        _expect(isinstance(entry, dict), "a list of objects for copies")
        name = entry.get("copy")
        _expect((isinstance(name, str) and name != "") or type(name) is int, "a name for each copy")
        _expect(str(name) not in copies, "each copy once")
        sections = _list(entry, "sections")
        _expect(
            all(isinstance(section, dict) for section in sections), "a list of objects for sections"
        )
        volumes = [section.get("volume") for section in sections]
        _expect(
            all(volume is None or isinstance(volume, str) for volume in volumes),
            "volumes that are texts",
        )
        # A section without a volume makes the copy incomplete.
        copies[str(name)] = (
            tuple(volumes) if all(volume and volume.strip() for volume in volumes) else ()
        )
        if _flag(entry, "damaged") or any(_flag(section, "damaged") for section in sections):
            damaged.add(str(name))
    return FileState(
        archdone, copies, frozenset(damaged), _flag(said, "damaged"), _flag(said, "noarchive")
    )


def _list(said: dict[str, Any], name: str) -> list[Any]:
    value = said.get(name)
    _expect(value is None or isinstance(value, list), f"a list for {name}")
    return value or []


def _flag(said: dict[str, Any], name: str) -> bool:
    value = said.get(name)
    _expect(value is None or isinstance(value, bool), f"true or false for {name}")
    return bool(value)


def _expect(right: bool, what: str) -> None:
    if not right:
        raise Unreadable(f"ScoutAM's answer is not as specified: expected {what}", http_status=200)


class _Pace:
    """Rate limit: at most `rate` starts in a second, evenly spread."""

    def __init__(
        self, rate: float | None, ticks: Callable[[], float], pause: Callable[[float], None]
    ) -> None:
        self._gap = 0.0 if rate is None else 1 / rate
        self._ticks, self._pause = ticks, pause
        self._next = float("-inf")
        self._lock = threading.Lock()

    def wait(self) -> None:
        if not self._gap:
            return
        with self._lock:
            now = self._ticks()
            begin = max(now, self._next)
            self._next = begin + self._gap
        if begin > now:
            self._pause(begin - now)


class _Rest:
    """Remembers an error for a while, so that later calls get it at once."""

    def __init__(self, seconds: float, ticks: Callable[[], float]) -> None:
        self._seconds, self._ticks = seconds, ticks
        self._lock = threading.Lock()
        self._error: ScoutAMError | None = None
        self._until = float("-inf")
        self._in_a_row = 0

    def check(self) -> None:
        with self._lock:
            if self._error is not None and self._ticks() < self._until:
                # A copy: an error that several threads raise would collect all their stacks.
                raise copy.copy(self._error)

    def failed(self, error: ScoutAMError) -> ScoutAMError:
        with self._lock:
            self._in_a_row += 1
            rest = (
                LOGIN_REST
                if isinstance(error, AuthenticationFailed)
                else min(LOGIN_REST, max(self._seconds, error.retry_after or 0))
            )
            if (
                isinstance(error, AuthenticationFailed)
                or error.retry_after
                or self._in_a_row >= IN_A_ROW
            ):
                self._error, self._until = copy.copy(error), self._ticks() + rest
        return error

    def worked(self) -> None:
        with self._lock:
            self._in_a_row, self._error = 0, None
