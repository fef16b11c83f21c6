"""Base path: the prefix of every URL if a proxy serves Milepost below a path of its own. It is removed before routing."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from milepost.core.errors import ConfigMistake

_BASE = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")


def checked_base(text: str) -> str:
    """The text, if it is a valid base path; empty: none. Raises a ConfigMistake.

    One of our own paths, such as "/api", would be removed from URLs that a proxy has already shortened.
    """
    from milepost.http.server.endpoints import all_endpoints, all_pages

    if not text:
        return ""
    wrong = f"base_path is {text!r}"
    if not _BASE.fullmatch(text):
        raise ConfigMistake(f"{wrong}; it must begin with '/' and not end with one, such as /milepost")
    first = text.split("/")[1]
    if first in {endpoint.path.split("/")[1] for endpoint in (*all_endpoints(), *all_pages())}:
        raise ConfigMistake(f"{wrong}; /{first} is a path of Milepost's own: choose another, such as /milepost")
    return text


class BasePath:
    """ASGI middleware. A proxy may remove the base path before it forwards a call, or keep it: both work."""

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app, self._base = app, base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self._base}/"):
            scope = {**scope, "path": scope["path"][len(self._base) :] or "/"}
        await self._app(scope, receive, send)
