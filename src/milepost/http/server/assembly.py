"""The HTTP server of one process: state, ASGI application and listener together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.application.declaration import ConfiguredApplication
from milepost.engine.context import Context
from milepost.http.server.application import make_app
from milepost.http.server.applications import application_endpoints
from milepost.http.server.endpoints import all_endpoints, all_pages
from milepost.http.server.listener import Server
from milepost.http.state.state import ServerState


def make_asgi_app(state: ServerState) -> Any:
    """The ASGI application with all its middleware."""
    own = [*all_endpoints(), *all_pages()]
    theirs = application_endpoints(state.applications, own)
    state.endpoints = (*all_endpoints(), *theirs)
    return make_app(state, [*own, *theirs])


class HttpServer:
    """Serves between `open` and `close`; `url` is its address."""

    def __init__(
        self,
        ctx: Context,
        host: str,
        port: int,
        state: type[ServerState] = ServerState,
        *,
        base: str = "",
        applications: Sequence[ConfiguredApplication[Any]] = (),
    ) -> None:
        self.state = state(ctx, base=base, applications=applications)
        self.server = Server(make_asgi_app(self.state), host, port)
        self.url = self.server.url + base

    def open(self) -> None:
        """Returns when calls are answered."""
        self.server.start()

    def close(self) -> None:
        """Waits a short time for running calls."""
        self.state.observability.feed.end()
        self.state.waiting.end()
        self.server.stop()
        self.state.close()
