"""ASGI application: checks every call, parses it, calls its endpoint, and sends the answer or a
problem."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextvars import copy_context
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from milepost.core.errors import MilepostError
from milepost.http.auth.authenticator import ANONYMOUS, FORM, read_form
from milepost.http.auth.origins import led_back
from milepost.http.dashboard.render import page_for
from milepost.http.protocol.endpoint import (
    Answer,
    Call,
    Caller,
    Endpoint,
    media_type,
    read_body,
    read_fields,
    read_query,
)
from milepost.http.protocol.problems import (
    TYPE,
    Problem,
    ProblemError,
    problem,
    problem_error,
    problem_of,
)
from milepost.http.server.tracing import Traced
from milepost.http.state.state import ServerState
from milepost.net_errors import translated_net_errors

LARGEST = 1 << 20
SLOWEST_S = 30.0
"""Time limit for receiving a body."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
ALWAYS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not "no-referrer": with it, browsers send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
KEPT = (b"cache-control", b"no-store")
"""Default, unless an answer sets its own caching, as a style sheet does."""
_OURS = [(name.lower().encode(), value.encode()) for name, value in ALWAYS.items()]
_REPLACED = frozenset(name for name, _ in _OURS) | {b"server"}

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


def make_app(state: ServerState, endpoints: Iterable[Endpoint]) -> ASGIApp:
    """The ASGI application of these endpoints. The state's authenticator identifies the caller."""
    served = Traced(Answering(state, endpoints), state.ctx)
    return BasePath(served, state.base) if state.base else served


class BasePath:
    """ASGI middleware. A proxy may remove the base path before it forwards a call, or keep it: both
    work."""

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app, self._base = app, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if f"{scope['path']}/".startswith(f"{self._base}/"):
            scope = {**scope, "path": scope["path"][len(self._base) :] or "/"}
        await self._app(scope, receive, send)


def with_ours(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """An answer's headers (with lower-case names), with those of every answer in place of headers
    of the same names: security headers for browsers, and no caching."""
    kept = [header for header in headers if header[0] not in _REPLACED]
    if not any(name == KEPT[0] for name, _ in kept):
        kept.append(KEPT)
    return kept + _OURS


class Paths:
    """Paths are matched in the order in which they are given; the first match wins. HEAD is
    answered as GET."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_method: dict[str, list[tuple[re.Pattern[str], Endpoint]]] = {}
        for endpoint in endpoints:
            pattern = compile_path(endpoint.path)[0]
            for method in ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,):
                self._by_method.setdefault(method, []).append((pattern, endpoint))

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, Any]] | None:
        """The endpoint, and the named variables of the path."""
        for pattern, endpoint in self._by_method.get(method, ()):
            # Match the whole path: "$" alone allows a final line end, and a call for one path would
            # reach another.
            matched = pattern.fullmatch(path)
            if matched is not None:
                return endpoint, matched.groupdict()
        return None

    def all(self, path: str) -> dict[str, Endpoint]:
        """The endpoints at a path by their methods, in alphabetical order."""
        found = {method: self.find(method, path) for method in sorted(self._by_method)}
        return {method: one[0] for method, one in found.items() if one is not None}


class Answering:
    """Finds the endpoint of a call, and answers it. Every error is answered as a problem, never as
    a traceback."""

    def __init__(self, state: ServerState, endpoints: Iterable[Endpoint]) -> None:
        self._state = state
        self._paths = Paths(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._paths.find(scope["method"], scope["path"])
        request = Request(scope, receive)
        if found is None:
            there = self._paths.all(scope["path"])
            response = self._wrong_method(request, there) if there else self._unknown_path(request)
        else:
            scope["endpoint"], scope["path_params"] = found
            response = await self._answer(request, found[0])
            allow_origin(response, found[0].origins, request.headers.get("origin"))
        response.raw_headers = with_ours(response.raw_headers)
        await response(scope, receive, send)

    async def _answer(self, request: Request, endpoint: Endpoint) -> Response:
        state, caller = self._state, ANONYMOUS
        try:
            caller = await state.caller(request, endpoint)
            if endpoint.scope is not None and not caller.may(endpoint.scope):
                raise problem_error(
                    "not-allowed",
                    f"{caller.name!r} may not do this",
                    expected=f"a key with the scope {endpoint.scope!r}",
                )
            # First of all: an error in the rest of the call would reveal that the route exists.
            if "route" in request.path_params and not caller.sees(request.path_params["route"]):
                raise state.no_route(caller, request.path_params["route"])
            call = await _taken_apart(request, endpoint, caller)
            with translated_net_errors():  # of an application's own calls
                return _response(await _handled(state, endpoint, call))
        except ProblemError as found:
            return _troubled(state, endpoint, request, caller, found)
        except ClientDisconnect:
            return Response(status_code=400)
        except MilepostError as error:
            reported = problem_of(error)
            if reported.code in ("busy", "unavailable") and not (
                caller.scopes and caller.routes is None
            ):
                # The text of a ledger error contains the ledger's URL, which is not for every
                # caller.
                log.warning("call not answered: %s %s: %s", request.method, request.url.path, error)
                reported = problem(
                    reported.code, "the ledger cannot be used now; see the server's log"
                )
            return _troubled(state, endpoint, request, caller, ProblemError(reported))
        except Exception as error:
            log.error("call failed: %s %s", request.method, request.url.path, exc_info=error)
            failed = problem_error("failed", "internal error; see the server's log")
            return _troubled(state, endpoint, request, caller, failed)

    def _wrong_method(self, request: Request, there: Mapping[str, Endpoint]) -> Response:
        """In the error format of an endpoint at this path that has its own: a caller knows that one
        alone."""
        path, allowed = request.scope["path"], ", ".join(there)
        reported = problem(
            "wrong-method", f"{request.method} is not possible at {path}", expected=allowed
        )
        found = ProblemError(reported, {"Allow": allowed})
        own = next(
            (endpoint for endpoint in there.values() if endpoint.on_problem is not None), None
        )
        if own is None:
            return problem_response(found.problem, found.headers)
        response = _troubled(self._state, own, request, ANONYMOUS, found)
        allow_origin(response, own.origins, request.headers.get("origin"))
        return response

    def _unknown_path(self, request: Request) -> Response:
        reported = problem("unknown-path", f"no such path: {request.scope['path']}")
        if "text/html" in request.headers.get("accept", ""):
            return page_for(
                self._state,
                request,
                ANONYMOUS,
                "problem.html",
                status=reported.status,
                problem=reported,
            )
        return problem_response(reported)


async def _handled(state: ServerState, endpoint: Endpoint, call: Call) -> Any:
    """What the endpoint's function returns; one that is not async runs in a pool of threads."""
    if endpoint.is_async:
        return await endpoint.handler(state, call)
    # In this task's context, so that the thread's log has the correlation id too.
    # A form writes, and has to read what it has written.
    run, given = (
        copy_context().run,
        state.for_one_page() if endpoint.page and not endpoint.writes else state,
    )
    pool = state.act_pool if endpoint.long else state.pool
    return await asyncio.get_running_loop().run_in_executor(
        pool, run, endpoint.handler, given, call
    )


async def _taken_apart(request: Request, endpoint: Endpoint, caller: Caller) -> Call:
    given = (
        {name: request.query_params.getlist(name) for name in request.query_params}
        if request.scope["query_string"]
        else {}
    )
    query = read_query(given, endpoint.query)
    body = None
    if endpoint.body is not None:
        kind = media_type(request.headers)
        if endpoint.types and kind not in endpoint.types:
            raise problem_error(
                "wrong-type",
                f"the body is {kind or 'of no type'}",
                field="Content-Type",
                expected=" or ".join(endpoint.types),
            )
        for name, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
            packed = request.headers.get(name, plain).strip().lower()
            if packed != plain:
                # Bodies are not decompressed: a small one may become very large. Stored as it is,
                # it would be other content than was meant.
                raise problem_error(
                    "wrong-type",
                    f"the body is compressed ({packed})",
                    field=name,
                    expected="an uncompressed body",
                )
        if endpoint.body is bytes:
            body = await read_all(request, endpoint.largest or LARGEST)
        elif kind == "application/json":
            body = read_body(await read_all(request, endpoint.largest or LARGEST), endpoint.body)
        elif kind == FORM:
            body = read_fields(await read_form(request), endpoint.body)
    return Call(caller, request.path_params, query, body, request.headers, request)


async def read_all(request: Request, largest: int) -> bytes:
    """The whole body; raises a problem if it is too large or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > largest:
        raise _too_large(largest)
    data = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > largest:
                    raise _too_large(largest)
    except TimeoutError:
        raise problem_error(
            "too-slow", f"request body not received within {SLOWEST_S:g} s"
        ) from None
    return bytes(data)


def _too_large(largest: int) -> ProblemError:
    return problem_error(
        "too-large",
        f"the body of the request has more than {largest:,} bytes",
        expected=f"at most {largest:,} bytes",
    )


def _response(given: Any) -> Response:
    """The response for an `Answer`, or for the body of one."""
    answer = given if isinstance(given, Answer) else Answer(given)
    if isinstance(answer.body, Response):
        return answer.body
    if answer.body is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    return Response(_encode(answer.body), answer.status, dict(answer.headers), "application/json")


def _troubled(
    state: ServerState, endpoint: Endpoint, request: Request, caller: Caller, found: ProblemError
) -> Response:
    """The problem as a page or as JSON, as the caller needs it."""
    if endpoint.on_problem is not None:
        answer = endpoint.on_problem(found.problem)
        return _response(
            replace(
                answer, headers={**problem_headers(found.problem, found.headers), **answer.headers}
            )
        )
    if not endpoint.page:
        return problem_response(found.problem, found.headers)
    if found.problem.status == 401:
        return RedirectResponse(
            f"{state.base}/login" + led_back(request.scope["path"], request.url.query), 303
        )
    return page_for(
        state, request, caller, "problem.html", status=found.problem.status, problem=found.problem
    )


def problem_response(found: Problem, headers: dict[str, str] | None = None) -> Response:
    return Response(
        _encode(found.content()), found.status, problem_headers(found, headers or {}), TYPE
    )


def problem_headers(found: Problem, headers: Mapping[str, str]) -> dict[str, str]:
    more = dict(headers)
    if found.status == 401:
        more.setdefault("WWW-Authenticate", "Bearer")
    if found.status in (429, 503):
        more.setdefault("Retry-After", "1")
    return more


def allow_origin(response: Response, origins: Collection[str], origin: str | None) -> None:
    """Let pages of these origins read the answer (CORS)."""
    if origins:
        response.headers["Vary"] = "Origin"
        if origin in origins:
            response.headers["Access-Control-Allow-Origin"] = str(origin)
