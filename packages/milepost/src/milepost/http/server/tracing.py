"""Correlation id of every call: returned with the answer, stored with submitted items, and written
to the log. Also reports every call to the observer."""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milepost.engine.context import Context
from milepost.engine.metrics import OTHER
from milepost.ports.observer import ABOUT

PROBES = ("/healthz", "/readyz", "/metrics")
"""Paths that machines call every few seconds; they get no log line."""
HEADER = "X-Correlation-Id"
_NAME = HEADER.lower().encode()
_ID = re.compile(rb"[\x21-\x7e]{1,128}")

log = logging.getLogger(__name__)


class Traced:
    """ASGI middleware around the whole application, so that refused calls are traced too."""

    def __init__(self, app: ASGIApp, ctx: Context) -> None:
        self._app, self._ctx = app, ctx

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = next((value for name, value in scope["headers"] if name == _NAME), None)
        # An invalid id is no reason to refuse the call: the answer has the id that is used instead.
        correlation = (
            self._ctx.chance.token()
            if given is None or not _ID.fullmatch(given)
            else given.decode("ascii")
        )
        ABOUT.set(correlation)
        began = time.perf_counter()

        async def traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (_NAME, correlation.encode())]
                self._note(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, traced)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = getattr(scope.get("endpoint"), "path", OTHER)
        self._ctx.observer.called(
            scope["method"] if path != OTHER else OTHER, path, status, seconds
        )
        level = logging.DEBUG if path in PROBES else logging.INFO
        if log.isEnabledFor(level):
            ms = round(seconds * 1000, 1)
            facts = {"method": scope["method"], "path": scope["path"], "status": status, "ms": ms}
            log.log(level, "%s %s: %s in %s ms", *facts.values(), extra=facts)
