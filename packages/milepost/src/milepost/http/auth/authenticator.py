"""Authentication of a call: by key, by session, or, while there are no keys, by being on this
machine."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request

from milepost.core.admission.rates import CallRate
from milepost.engine.auth import SCOPES, is_csrf_token, is_news, match, note_use, session_key
from milepost.engine.context import Context
from milepost.http.auth.origins import address_of, from_elsewhere, not_local
from milepost.http.auth.rates import Rates
from milepost.http.protocol.endpoint import Caller, Endpoint, media_type
from milepost.http.protocol.problems import ProblemError, problem, problem_error
from milepost.ports.documents import KEY, SESSION, Key, Session, read_each

log = logging.getLogger(__name__)

FRESH_S = 3.0
"""Maximum age of the cached keys, so that a revoked key is refused within five seconds."""
USUAL = CallRate(200, 400)
"""Rate of calls with one key, in one process."""
WRONG = CallRate(1 / 6, 10)
"""Rate of wrong keys from one address."""
COOKIE = "mp_session"
FORM = "application/x-www-form-urlencoded"
LARGEST_FORM = 64 << 10
MOST_FIELDS = 100
SLOWEST_S = 30.0
ANONYMOUS = Caller("nobody", frozenset())
LOCAL = Caller("local", frozenset(SCOPES))


class KeySnapshot(Struct, frozen=True):
    """Keys by id and sessions by digest, as read at this time (monotonic seconds)."""

    at: float = -math.inf
    keys: dict[str, Key] = {}
    callers: dict[str, Caller] = {}
    sessions: dict[str, Session] = {}


class Authenticator:
    """Authenticates calls and limits their rates. Belongs to one event loop; it reads the ledger in
    the threads of the pool."""

    def __init__(self, ctx: Context, pool: ThreadPoolExecutor, ticks: Callable[[], float]) -> None:
        self._ctx, self._pool, self._ticks = ctx, pool, ticks
        self._known = KeySnapshot()
        self._reading: asyncio.Task[None] | None = None
        self._calls, self._wrong = Rates(), Rates()
        self._noted: dict[str, int] = {}

    async def recognise(self, request: Request, endpoint: Endpoint) -> Caller:
        """The caller; raises a problem if the call is not allowed at all. The endpoint's scope then
        decides what the caller may do, and the caller's routes decide what it sees (`Caller.sees`,
        `ServerState.plan`)."""
        if endpoint.scope is None:
            return ANONYMOUS
        await self._read_since(self._ticks() - FRESH_S)
        given = _bearer(request)
        if given is not None:
            return self._admit(await self.key_of(request, given))
        token = request.cookies.get(COOKIE)
        key = None if not token else await self.session_of(request, token)
        if token and key is not None:
            if endpoint.writes:
                await check_page(request, token)
            return self._admit(key)
        if await self.needs_keys():
            raise problem_error(
                "no-key",
                "a key is needed here",
                field="Authorization",
                expected="Authorization: Bearer mp_…, or log in at /login",
            )
        return self._local(request, endpoint)

    async def needs_keys(self) -> bool:
        """Whether a call without a key is refused."""
        await self._read_since(self._ticks() - FRESH_S)
        if not self._known.keys:
            # While there are no keys, every call reads them: the first key made by any process
            # closes the server at once.
            await self._read_since(self._ticks())
        return bool(self._known.keys)

    async def key_of(self, request: Request, text: str) -> Key:
        """The key for this text. An unknown key is looked up in the ledger before it is refused: it
        may have been made just now. A good key is never refused because of wrong keys from the same
        address: many clients share one address behind a proxy, and the secrets are too long to be
        guessed at any rate."""
        key = match(self._known.keys, text, self._ctx.clock.now())
        if key is not None:
            return key
        address = address_of(request.client)
        wait = self._wrong.wait(address, WRONG, self._ticks())
        if not wait:
            await self._read_since(self._ticks())
            key = match(self._known.keys, text, self._ctx.clock.now())
            if key is not None:
                return key
            wait = self._wrong.take(address, WRONG, self._ticks())
        if wait:
            raise _too_many("too many wrong keys from your address", wait)
        log.warning("wrong key from %s", address)
        raise problem_error(
            "no-key",
            "the key is not known, has expired, or was revoked",
            field="Authorization",
            expected="a valid key",
        )

    async def session_of(self, request: Request, token: str) -> Key | None:
        """The key of a session; None: the session has expired or does not exist."""
        now = self._ctx.clock.now()
        key = session_key(self._known.sessions, self._known.keys, token, now)
        # Another process may have opened it just now; but an invented cookie must not cause a read
        # at every call.
        if key is None and not self._wrong.take(address_of(request.client), WRONG, self._ticks()):
            await self._read_since(self._ticks())
            key = session_key(self._known.sessions, self._known.keys, token, now)
        return key

    def _admit(self, key: Key) -> Caller:
        """The caller with this key; raises a problem if the key is used too often."""
        rate = USUAL if key.rate is None else CallRate(key.rate, max(1.0, 2 * key.rate))
        wait = self._calls.take(
            key.id,
            rate if key.burst is None else CallRate(rate.per_second, key.burst),
            self._ticks(),
        )
        if wait:
            raise _too_many(f"{key.name!r} may call {rate.per_second:g} times a second", wait)
        now = self._ctx.clock.now()
        if is_news(self._noted.get(key.id), now):
            self._noted[key.id] = now
            asyncio.get_running_loop().run_in_executor(self._pool, note_use, self._ctx, key, now)
        return self._known.callers[key.id]

    def _local(self, request: Request, endpoint: Endpoint) -> Caller:
        # Decode once: the request's own mapping goes through all headers for each name.
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.scope["headers"]
        }
        # With two Host headers it is unknown which one a proxy used.
        headers["host"] = ", ".join(request.headers.getlist("host"))
        why = not_local(request.scope.get("server"), request.client, headers)
        if why is not None:
            raise problem_error(
                "not-local",
                f"there are no keys, so only this machine may call, and {why}",
                expected="a call to 127.0.0.1 or localhost from the same machine; or make a key: milepost keys new NAME --scope read",
            )
        if (
            endpoint.writes
            and from_elsewhere(headers)
            and headers.get("origin") not in endpoint.origins
        ):
            raise problem_error(
                "bad-origin",
                "another site's page made this call",
                field="Origin",
                expected="a page of this server",
            )
        return LOCAL

    async def _read_since(self, moment: float) -> None:
        """Make the cached keys at least as recent as this time. Concurrent callers wait for the
        same read."""
        while self._known.at < moment:
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
            # A caller that disconnects must not cancel the read: others wait for it.
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            self._known = await asyncio.get_running_loop().run_in_executor(
                self._pool, read_known, self._ctx, self._ticks()
            )
        finally:
            self._reading = None


def read_known(ctx: Context, at: float) -> KeySnapshot:
    keys = {key.id: key for key in read_each(ctx.ledger, KEY, Key).values()}
    callers = {
        key.id: Caller(
            key.name,
            frozenset(key.scopes),
            None if key.routes is None else frozenset(key.routes),
            key.attributes,
        )
        for key in keys.values()
    }
    # A session belongs to a key: without keys there are no sessions, and an open server reads the
    # ledger at every call.
    return KeySnapshot(at, keys, callers, read_each(ctx.ledger, SESSION, Session) if keys else {})


async def check_page(request: Request, token: str) -> None:
    """Raise a problem if a write with a cookie does not come from one of our pages: the browser
    must say so, and the page has the token."""
    given = request.headers.get("x-csrf-token")
    if given is None and media_type(request.headers) == FORM:
        given = (await read_form(request)).get("csrf_token")
    if from_elsewhere(request.headers) or not is_csrf_token(given or "", token):
        raise problem_error(
            "bad-origin",
            "a write in a session must come from a page of this server",
            field="X-CSRF-Token",
            expected="the page's token, in the header X-CSRF-Token or the form's field csrf_token",
        )


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form. A later reader of the body gets the same bytes again."""
    length = request.headers.get("content-length", "")
    if not length.isdigit() or int(length) > LARGEST_FORM:
        raise problem_error(
            "too-large",
            f"the form has more than {LARGEST_FORM:,} bytes, or does not say how many",
            field="Content-Length",
        )
    try:
        async with asyncio.timeout(SLOWEST_S):
            data = await request.body()
    except TimeoutError:
        raise problem_error("too-slow", f"form not received within {SLOWEST_S:g} s") from None
    try:
        return dict(
            parse_qsl(
                data.decode(errors="replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
            )
        )
    except ValueError:
        raise problem_error(
            "malformed",
            f"the form has more than {MOST_FIELDS} fields",
            expected="the fields of the page's own form",
        ) from None


def _bearer(request: Request) -> str | None:
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, text = given.strip().partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise problem_error(
            "no-key",
            "the header is not understood",
            field="Authorization",
            expected="Authorization: Bearer mp_…",
        )
    return text.strip()


def _too_many(detail: str, wait: float) -> ProblemError:
    seconds = math.ceil(wait)
    return ProblemError(
        problem("too-many", detail, expected=f"again in {seconds} s"), {"Retry-After": str(seconds)}
    )
