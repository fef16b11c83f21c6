"""The application: every call is checked, taken apart, given to its endpoint, and answered in one of two shapes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match
from starlette.routing import Route as Path
from starlette.types import ASGIApp

from milepost.core.errors import MilepostError
from milepost.http.calls import Answer, Call, Caller, Endpoint, read_body, read_query
from milepost.http.dashboard.rendering import page_for
from milepost.http.desk import Desk
from milepost.http.headers import Headers
from milepost.http.problems import TYPE, Problem, Trouble, problem, problem_of, trouble
from milepost.http.recognising import NOBODY
from milepost.http.tracing import Traced

LARGEST = 1 << 20
SLOWEST_S = 30.0
"""A body must be here by then."""

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


def make_app(desk: Desk, endpoints: Iterable[Endpoint]) -> ASGIApp:
    """The ASGI application of these endpoints. Who calls is for the desk's doorman to say."""
    routes = [Path(one.path, _door(desk, one), methods=[one.method]) for one in endpoints]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _not_here, Exception: _failed})
    # It would lead to wherever the caller's Host header says.
    app.router.redirect_slashes = False
    return Headers(Traced(app, desk.ctx))


def _door(desk: Desk, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    is_async = endpoint.is_async

    async def door(request: Request) -> Response:
        try:
            caller = await desk.doorman.recognise(request, endpoint)
            if endpoint.scope is not None and not caller.may(endpoint.scope):
                raise trouble("not-allowed", f"{caller.name!r} may not do this", expected=f"a key with the scope {endpoint.scope!r}")
            # Before anything else is looked at: what is wrong with the rest of the call would tell that the route is there.
            if "route" in request.path_params and not caller.sees(request.path_params["route"]):
                raise desk.no_route(caller, request.path_params["route"])
            call = await _taken_apart(request, endpoint, caller)
            if is_async:
                answer = await endpoint.handler(desk, call)  # type: ignore[misc]
            else:
                # With what this task knows of the call: its correlation id is for the log of the thread too.
                run = copy_context().run
                answer = await asyncio.get_running_loop().run_in_executor(desk.pool, run, endpoint.handler, desk, call)
            return _response(answer)
        except Trouble as found:
            return _troubled(desk, endpoint, request, found)
        except ClientDisconnect:
            return Response(status_code=400)
        except MilepostError as error:
            return _troubled(desk, endpoint, request, Trouble(problem_of(error)))

    door.path = endpoint.path  # type: ignore[attr-defined]
    return door


async def _taken_apart(request: Request, endpoint: Endpoint, caller: Caller) -> Call:
    query = read_query({name: request.query_params.getlist(name) for name in request.query_params}, endpoint.query)
    body = None
    if endpoint.body is not None:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in endpoint.types:
            raise trouble("wrong-type", f"the body is {kind or 'of no type'}", field="Content-Type", expected=" or ".join(endpoint.types))
        if kind == "application/json":
            body = read_body(await read_all(request, endpoint.largest or LARGEST), endpoint.body)
    return Call(caller, request.path_params, query, body, request.headers, request)


async def read_all(request: Request, largest: int) -> bytes:
    """The whole body, if it is not too large and not too slow."""
    length = request.headers.get("content-length", "")
    too_large = trouble("too-large", f"the body has more than {largest:,} bytes", expected=f"at most {largest:,} bytes")
    if length.isdigit() and int(length) > largest:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > largest:
                    raise too_large
    except TimeoutError:
        raise trouble("too-slow", f"the body was not here within {SLOWEST_S:g} s") from None
    return bytes(data)


def _response(answer: Answer) -> Response:
    if isinstance(answer.body, Response):
        return answer.body
    if answer.body is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    return Response(_encode(answer.body), answer.status, dict(answer.headers), "application/json")


def _troubled(desk: Desk, endpoint: Endpoint, request: Request, found: Trouble) -> Response:
    """The problem, in the form that whoever called can read."""
    if not endpoint.page:
        return problem_response(found.problem, found.headers)
    if found.problem.status == 401:
        return RedirectResponse("/login", 303)
    return page_for(desk, request, NOBODY, "problem.html", status=found.problem.status, problem=found.problem)


def problem_response(found: Problem, headers: dict[str, str] | None = None) -> Response:
    more = dict(headers or {})
    if found.status == 401:
        more.setdefault("WWW-Authenticate", "Bearer")
    if found.status in (429, 503):
        more.setdefault("Retry-After", "1")
    return Response(_encode(found.content()), found.status, more, TYPE)


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        # Each method of a path is a route of its own.
        allowed = {
            method
            for route in request.app.routes
            if isinstance(route, Path) and route.matches(request.scope)[0] is not Match.NONE
            for method in route.methods or ()
        }
        told = f"{request.method} is not possible at {request.url.path}"
        return problem_response(problem("wrong-method", told, expected=", ".join(sorted(allowed))), {"Allow": ", ".join(sorted(allowed))})
    return problem_response(problem("unknown-path", f"there is nothing at {request.url.path}"))


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a call failed: %s %s", request.method, request.url.path, exc_info=error)
    return problem_response(problem("failed", "this should not have happened; the log of the server says more"))
