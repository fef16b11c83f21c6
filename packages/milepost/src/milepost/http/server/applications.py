"""Endpoints and pages of applications, as endpoints of this server."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.responses import Response

from milepost.application.declaration import (
    ConfiguredApplication,
    Download,
    EndpointPart,
    Page,
    Redirect,
)
from milepost.core.errors import ConfigMistake
from milepost.http.auth.authenticator import FORM
from milepost.http.dashboard.render import page
from milepost.http.protocol.endpoint import Answer, Call, Endpoint, attachment
from milepost.http.protocol.problems import problem_error
from milepost.http.server.application import Paths
from milepost.http.state.state import ServerState

PREFLIGHT_S = 600
_PARAMETER = re.compile(r"{\w+(?::\w+)?}")


def application_endpoints(
    applications: Iterable[ConfiguredApplication[Any]], own: Sequence[Endpoint]
) -> list[Endpoint]:
    """The endpoints and pages of applications. A path that Milepost or another application already
    has is a mistake."""
    found: list[Endpoint] = []
    taken = list(own)
    for one in applications:
        for endpoint in (
            endpoint for part in one.application.endpoints for endpoint in _endpoints(one, part)
        ):
            there = Paths(taken).find(endpoint.method, _PARAMETER.sub("x", endpoint.path))
            if there is not None:
                whose = (
                    f"the application {there[0].application!r}"
                    if there[0].application
                    else "Milepost itself"
                )
                raise ConfigMistake(
                    f"the application {one.name!r} has {endpoint.method} {endpoint.path}, which is taken by {whose}"
                )
            found.append(endpoint)
            taken.append(endpoint)
    return found


def _endpoints(one: ConfiguredApplication[Any], part: EndpointPart) -> Iterable[Endpoint]:
    types: tuple[str, ...] = (
        (FORM,) if part.page else () if part.body is bytes else ("application/json",)
    )
    writes = part.method not in ("GET", "HEAD", "OPTIONS")
    origins = frozenset(() if part.origins is None else part.origins(one.settings))
    yield Endpoint(
        part.method,
        part.path,
        _handler(one, part),
        part.scope,
        part.query,
        part.body,
        part.answers,
        summary=part.summary,
        description=inspect.cleandoc(part.function.__doc__ or ""),
        types=types,
        largest=part.largest(one.settings) if callable(part.largest) else part.largest,
        writes=writes,
        page=part.page,
        is_async=inspect.iscoroutinefunction(part.function),
        application=one.name,
        origins=origins,
        on_problem=_on_problem(one, part),
    )
    if part.origins is not None:
        preflight = functools.partial(_preflight, part.method, origins)
        yield Endpoint(
            "OPTIONS",
            part.path,
            preflight,
            None,
            writes=False,
            is_async=True,
            application=one.name,
            origins=origins,
        )


def _on_problem(one: ConfiguredApplication[Any], part: EndpointPart) -> Any:
    """The function that formats an error, with the settings if it takes them."""
    function = part.on_problem
    if function is None or len(inspect.signature(function).parameters) < 2:
        return function
    return lambda problem: function(problem, one.settings)


def _handler(one: ConfiguredApplication[Any], part: EndpointPart) -> Any:
    routes = [route.name for route in one.routes]

    def check(call: Call) -> None:
        if part.scope is not None and not all(call.caller.sees(route) for route in routes):
            raise problem_error(
                "not-allowed",
                f"{call.caller.name!r} does not see all routes of {one.name!r}",
                expected="a key for all of them",
            )

    if inspect.iscoroutinefunction(part.function):

        @functools.wraps(part.function)
        async def awaited(state: ServerState, call: Call) -> Answer:
            check(call)
            return _answer(
                one,
                state,
                call,
                part,
                await part.function(one.on(state.ctx, state.submitting), call),
            )

        return awaited

    @functools.wraps(part.function)
    def called(state: ServerState, call: Call) -> Answer:
        check(call)
        return _answer(one, state, call, part, part.function(one.on(state.ctx), call))

    return called


def _answer(
    one: ConfiguredApplication[Any], state: ServerState, call: Call, part: EndpointPart, given: Any
) -> Answer:
    if isinstance(given, Answer):
        return given
    if isinstance(given, Page):
        shown = {"here": part.path, **given.values}
        return page(
            state,
            call,
            given.template,
            templates=one.application.templates,
            status=given.status,
            **shown,
        )
    if isinstance(given, Redirect):
        return Answer(status=303, headers={"Location": f"{state.base}{given.path}"})
    if isinstance(given, Download):
        return Answer(
            Response(given.content, headers=attachment(given.name), media_type=given.media_type)
        )
    expected = "return an Answer, a Page, a Redirect or a Download"
    raise TypeError(
        f"{part.method} {part.path} of {one.name!r} returned {type(given).__name__}; {expected}"
    )


async def _preflight(
    method: str, origins: frozenset[str], state: ServerState, call: Call
) -> Answer:
    """Answers the preflight request of a browser (CORS)."""
    if call.headers.get("origin") not in origins:
        return Answer(status=204)
    headers = {
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, X-Correlation-Id",
        "Access-Control-Max-Age": str(PREFLIGHT_S),
    }
    return Answer(status=204, headers=headers)
