"""Log in and log out: a session cookie stands for a key, so that a browser need not send the key
with every page."""

from __future__ import annotations

import asyncio

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from milepost.engine.auth import SESSION_MS, end_session, open_session
from milepost.http.auth.authenticator import (
    ANONYMOUS,
    COOKIE,
    FORM,
    LARGEST_FORM,
    check_page,
    read_form,
)
from milepost.http.auth.origins import from_elsewhere, local_path
from milepost.http.dashboard.render import page_for
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState


class LogIn(Struct, frozen=True):
    """A key, and the page to open with it."""

    key: str
    then: str = ""


class LogOut(Struct, frozen=True):
    csrf_token: str = ""


class LoginQuery(Struct, frozen=True):
    then: str = ""
    """The page to open after the log-in; a URL of another server is ignored."""


@endpoint(
    "GET", "/login", scope=None, query=LoginQuery, answers={200: str}, summary="The log-in page"
)
async def page(state: ServerState, call: Call) -> Answer:
    """A form that asks for a key; in a session, a form to log out."""
    request: Request = call.raw
    needed, token = await state.authenticator.needs_keys(), request.cookies.get(COOKIE)
    key = await state.authenticator.session_of(request, token) if needed and token else None
    name, then = None if key is None else key.name, local_path(call.query.then)
    return Answer(
        page_for(
            state, request, ANONYMOUS, "login.html", needed=needed, name=name, error=None, then=then
        )
    )


@endpoint(
    "POST",
    "/login",
    scope=None,
    body=LogIn,
    types=(FORM,),
    largest=LARGEST_FORM,
    answers={303: None, 401: str, 429: str},
    problems=("bad-origin", "too-large"),
    summary="Log in with a key",
)
async def log_in(state: ServerState, call: Call) -> Answer:
    """Sets a cookie that stands for the key for twelve hours, and redirects to the wanted page. The
    cookie is sent by pages of this server only; every write with it also needs the session's token
    (X-CSRF-Token, or the form's field csrf_token)."""
    request: Request = call.raw
    if from_elsewhere(request.headers):
        raise problem_error(
            "bad-origin",
            "another site's page made this call",
            field="Origin",
            expected="the page at /login",
        )
    form = await read_form(request)
    given, then = form.get("key", "").strip(), local_path(form.get("then", ""))
    try:
        key = await state.authenticator.key_of(request, given)
    except ProblemError as wrong:
        status, error = wrong.problem.status, wrong.problem.detail
        shown = page_for(
            state,
            request,
            ANONYMOUS,
            "login.html",
            status=status,
            needed=True,
            name=None,
            error=error,
            then=then,
        )
        shown.headers.update(wrong.headers)
        return Answer(shown)
    token = await asyncio.get_running_loop().run_in_executor(
        state.pool, open_session, state.ctx, key
    )
    response = RedirectResponse(state.base + (then or "/"), 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=SESSION_MS // 1000,
        path=state.base or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return Answer(response)


@endpoint(
    "POST",
    "/logout",
    scope=None,
    body=LogOut,
    types=(FORM,),
    largest=LARGEST_FORM,
    answers={303: None},
    problems=("bad-origin", "too-large"),
    summary="Log out",
)
async def log_out(state: ServerState, call: Call) -> Answer:
    """Ends the session, in every process within five seconds, and redirects to the log-in page."""
    request: Request = call.raw
    token = request.cookies.get(COOKIE)
    response: Response = RedirectResponse(f"{state.base}/login", 303)
    if token:
        await check_page(request, token)
        await asyncio.get_running_loop().run_in_executor(state.pool, end_session, state.ctx, token)
        response.delete_cookie(COOKIE, path=state.base or "/", httponly=True, samesite="strict")
    return Answer(response)
