"""Session with a DSpace server: CSRF tokens, login, renewal of the login, and errors by
category."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_deposits.dspace.errors import (
    DSpaceForbidden,
    DSpaceLoginFailed,
    DSpaceLoginRefused,
    DSpaceRefused,
    DSpaceUnavailable,
    DSpaceUnreadable,
)

TIMEOUT_S = 180.0
"""Each write waits until DSpace has indexed the item, which takes long on a busy server."""
LARGEST = 4 << 20
RENEW_S = 300.0
"""Renew the login when it is valid for less than this: a large upload must begin and end with the
same one."""
MESSAGE_LIMIT = 300

LOGIN = "/authn/login"
XSRF_HEADER, XSRF_COOKIE = "DSPACE-XSRF-TOKEN", "DSPACE-XSRF-COOKIE"


class LoginGuard:
    """Is asked before each login with user and password, and informed if DSpace refuses it. This
    one allows every login."""

    def check(self) -> None:
        """Raises DSpaceLoginRefused if no login may be tried now."""

    def refused(self, user: str, status: int) -> DSpaceLoginRefused:
        """The error of a login that DSpace has answered with this status."""
        return DSpaceLoginRefused(
            f"DSpace refused the login of {user} ({status})", http_status=status
        )


class DSpaceSession:
    """Requests to one DSpace server, from any number of threads that share one login. Without a
    user it can only read.

    `url` is the server's base, such as https://repository.example.org/server; `timeout` (seconds)
    is for a whole answer. It never logs out: DSpace ends all logins of an account at once. `now`
    gives the time in seconds, to compare with the login's expiry. `guard` may prevent a login, and
    hears of one that is refused before another thread can try it too.
    """

    @mpa.translated_net_errors()
    def __init__(
        self,
        url: str,
        user: str | None = None,
        password: str | None = None,
        *,
        allow_cidrs: tuple[str, ...] = (),
        timeout: float = TIMEOUT_S,
        now: Callable[[], float] = time.time,
        guard: LoginGuard | None = None,
    ) -> None:
        parsed = net.parse_url(url)
        if "?" in parsed.target:
            raise mp.UsageError(
                f"the URL of DSpace at {parsed.host_header} must be the base of the server, without '?'"
            )
        self.host = parsed.host_header
        base = parsed.text.rstrip("/")
        self._api = base if base.endswith("/api") else f"{base}/api"
        timeouts = net.Timeouts(connect=min(10.0, timeout), read=timeout, total=timeout)
        self._client = net.Client(
            allow_cidrs=allow_cidrs, timeouts=timeouts, largest=LARGEST, connections=16
        )
        self._user, self._password = user, password
        self._guard = guard or LoginGuard()
        self._now = now
        self._lock = threading.Lock()
        self._xsrf: tuple[str, str] | None = None
        """The CSRF token, and the cookie that the server compares it with."""
        self._bearer: str | None = None
        self._thread = threading.local()

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def guarded(self, check: Callable[[], None]) -> Iterator[None]:
        """Call `check` directly before each change that this thread makes in DSpace; an exception
        of it prevents the change."""
        before = getattr(self._thread, "check", None)
        self._thread.check = check
        try:
            yield
        finally:
            self._thread.check = before

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        allowed: tuple[int, ...] = (200,),
    ) -> net.Response:
        """The answer to a GET below /api, with one of the allowed statuses. Raises DSpaceError."""
        if self._user is not None:
            self._log_in(None)
        # As Solr and Spring read it: a space as %20, not '+'.
        return self._checked(
            "GET",
            path + (f"?{urlencode(query, quote_via=quote)}" if query else ""),
            None,
            {},
            allowed,
        )

    def write(
        self,
        method: str,
        path: str,
        body: bytes | net.RequestBody | None = None,
        *,
        content_type: str | None = None,
        allowed: tuple[int, ...] = (200, 201, 204),
    ) -> net.Response:
        """The answer to a POST, PATCH or DELETE below /api, with one of the allowed statuses.
        Raises DSpaceError; it is `unknown` where the server may have carried out the request."""
        self.log_in()
        return self._checked(
            method,
            path,
            body,
            {} if content_type is None else {"Content-Type": content_type},
            allowed,
        )

    def log_in(self) -> None:
        """Have a login. Raises DSpaceLoginRefused, or another DSpaceError where DSpace gives no
        answer about the user and password."""
        if self._user is None:
            raise DSpaceLoginFailed(f"{self.host}: this session has no user, and can only read")
        self._log_in(None)

    # One request ----------------------------------------------------------------------------------
    def _checked(
        self,
        method: str,
        path: str,
        body: bytes | net.RequestBody | None,
        headers: dict[str, str],
        allowed: tuple[int, ...],
    ) -> net.Response:
        """Send it; once more with a new CSRF token if that is what the server refuses, and once
        more with a new login."""
        bearer = self._bearer
        answer = self._send(method, path, body, headers)
        if answer.status == 403 and refuses_token(answer):
            answer = self._send(method, path, body, headers)
        if answer.status == 401 and self._user is not None:
            self._log_in(bearer)
            answer = self._send(method, path, body, headers)
        if answer.status in allowed:
            return answer
        raise self._error(method, answer)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | net.RequestBody | None,
        headers: Mapping[str, str],
    ) -> net.Response:
        sent = {"Accept": "application/json", **headers}
        if self._bearer is not None:
            sent["Authorization"] = self._bearer
        if method != "GET":
            token, cookie = self._xsrf or self._first_token()
            sent |= {"X-XSRF-TOKEN": token, "Cookie": f"{XSRF_COOKIE}={cookie}"}
        check = getattr(self._thread, "check", None)
        if check is not None and method != "GET" and path != LOGIN:
            # As late as possible: a process may be stopped at any instruction, and nothing but the
            # request itself comes after it.
            check()
        try:
            # No write is repeated here: where a kept connection ends without an answer, DSpace may
            # have acted.
            answer = self._client.request(
                method, self._api + path, headers=sent, body=body, repeatable=method == "GET"
            )
        except net.InvalidRequest as error:
            raise DSpaceUnavailable(f"DSpace: {error}", unknown=error.unknown) from None
        except net.AnswerTooLarge as error:
            raise DSpaceUnreadable(
                f"DSpace: {error}", http_status=error.http_status, unknown=method != "GET"
            ) from None
        except net.NetError as error:
            raise DSpaceUnavailable(
                f"DSpace: {error}", unknown=method != "GET" and error.unknown
            ) from None
        # Every answer may bring another CSRF token: at a login, a renewal, and after a refusal.
        fresh = answer.headers.get(XSRF_HEADER)
        if fresh:
            self._xsrf = fresh, cookie_of(answer) or fresh
        return answer

    def _first_token(self) -> tuple[str, str]:
        answer = self._send("GET", "/security/csrf", None, {})
        if self._xsrf is None:
            # Servers before 7.6.2 have no such address; their start page brings a token too.
            answer = self._send("GET", "", None, {})
        if self._xsrf is None:
            if answer.not_now:
                raise self._error("GET", answer)
            raise DSpaceUnreadable(
                f"{self.host} gives no CSRF token; is [deposits.submit] dspace the base of a DSpace 7 server?"
            )
        return self._xsrf

    # Login ----------------------------------------------------------------------------------------
    def _log_in(self, stale: str | None) -> None:
        """Make sure that there is a valid login other than `stale`. One thread asks for it; the
        others wait and share it."""
        with self._lock:
            if self._bearer is not None and self._bearer != stale:
                expires = expiry_of(self._bearer)
                if expires is None or self._now() < expires - RENEW_S:
                    return
                answer = self._login_request(None)
                if answer.status == 200 and self._take_bearer(answer):
                    return
            self._bearer = None
            self._guard.check()
            form = urlencode({"user": self._user or "", "password": self._password or ""}).encode()
            answer = self._login_request(form)
            if answer.not_now or (answer.status == 403 and refuses_token(answer)):
                raise self._error("GET", answer)
            if answer.status in (401, 403):
                raise self._guard.refused(self._user or "", answer.status)
            if answer.status != 200 or not self._take_bearer(answer):
                raise DSpaceLoginFailed(
                    f"{self.host} answers the login with status {answer.status} and no token; is [deposits.submit] dspace the base of a"
                    " DSpace 7 server?",
                    http_status=answer.status,
                )

    def _login_request(self, form: bytes | None) -> net.Response:
        """A login with the form, or a renewal without. A login that is made twice does no harm."""
        headers = {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self._send("POST", LOGIN, form, headers)
        if answer.status == 403 and refuses_token(answer):
            answer = self._send("POST", LOGIN, form, headers)
        return answer

    def _take_bearer(self, answer: net.Response) -> bool:
        bearer = answer.headers.get("Authorization") or ""
        if not bearer.startswith("Bearer ") or not bearer.isprintable():
            return False
        self._bearer = bearer
        return True

    # Errors ---------------------------------------------------------------------------------------
    def _error(self, method: str, answer: net.Response) -> Exception:
        status, said = answer.status, message_of(answer)
        text = f"DSpace answered {status}{f': {said}' if said else ''}"
        if status < 400:
            return DSpaceUnreadable(
                f"{text}, which is not what the API promises",
                http_status=status,
                unknown=method != "GET",
            )
        if status == 401:
            return DSpaceLoginFailed(text, http_status=status)
        if status == 403 and refuses_token(answer):
            # Twice in a row: other clients of this session were given tokens meanwhile. It says
            # nothing about a right.
            return DSpaceUnavailable(text, http_status=status)
        if status == 403 and said:
            user = self._user or "Milepost, which has no login here,"
            return DSpaceForbidden(
                f"{text}: give {user} the right to do this in DSpace", http_status=status
            )
        if answer.not_now:
            # A proxy may answer 502 or 504 while DSpace still works on the request.
            unknown = method != "GET" and status >= 500
            return DSpaceUnavailable(
                text, http_status=status, retry_after=answer.retry_after, unknown=unknown
            )
        return DSpaceRefused(text, http_status=status, permanent=method != "GET")


def refuses_token(answer: net.Response) -> bool:
    """Does this 403 refuse the CSRF token? Any other 403 refuses a right."""
    return "csrf" in message_of(answer).lower()


def message_of(answer: net.Response) -> str:
    """The message of an error's JSON; empty where a proxy answered something else."""
    try:
        content = answer.json()
    except ValueError:
        return ""
    said = content.get("message") if isinstance(content, dict) else None
    return " ".join(said.split())[:MESSAGE_LIMIT] if isinstance(said, str) else ""


def cookie_of(answer: net.Response) -> str | None:
    """The value of the CSRF cookie that an answer sets."""
    for line in answer.headers.get_all("Set-Cookie"):
        name, _, rest = line.partition("=")
        value = rest.partition(";")[0].strip()
        if name.strip() == XSRF_COOKIE and value:
            return value
    return None


def expiry_of(bearer: str) -> float | None:
    """When a login expires, in seconds since 1970: the claim `exp` of its JWT. None: it does not
    say."""
    parts = bearer.removeprefix("Bearer ").split(".")
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = claims["exp"]
    except (ValueError, IndexError, KeyError, TypeError):
        return None
    return float(expires) if isinstance(expires, (int, float)) else None
