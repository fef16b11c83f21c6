"""The HTTP server of one process: all endpoints, the ASGI application and the listener together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from milepost.application.declaration import ConfiguredApplication
from milepost.core.errors import ConfigMistake
from milepost.engine.context import Context
from milepost.http import openapi
from milepost.http.api import (
    alerts,
    claims,
    confirmations,
    events,
    evidence,
    find,
    forecast,
    groups,
    health,
    items,
    lists,
    metrics,
    subscribers,
)
from milepost.http.api.operators import acts, breakers, controls, forget, prune, quarantine, redate
from milepost.http.dashboard import static_files
from milepost.http.dashboard.pages import acts as acts_page
from milepost.http.dashboard.pages import events as events_page
from milepost.http.dashboard.pages import item as item_page
from milepost.http.dashboard.pages import items as items_page
from milepost.http.dashboard.pages import lists as lists_page
from milepost.http.dashboard.pages import live, login, overview, system
from milepost.http.protocol.endpoint import ENDPOINTS, Endpoint
from milepost.http.server.application import make_app
from milepost.http.server.applications import application_endpoints
from milepost.http.server.listener import Server
from milepost.http.state.state import ServerState

_BASE = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")

MODULES = (
    items,
    evidence,
    find,
    forecast,
    groups,
    alerts,
    lists,
    confirmations,
    acts,
    redate,
    prune,
    forget,
    controls,
    breakers,
    claims,
    events,
    subscribers,
    quarantine,
    health,
    metrics,
    login,
    openapi,
)
"""The endpoints of the API, which the OpenAPI document describes."""

PAGES = (
    overview,
    items_page,
    item_page,
    lists_page,
    events_page,
    acts_page,
    system,
    live,
    static_files,
)
"""Pages for people; the OpenAPI document does not describe them."""


def all_endpoints() -> list[Endpoint]:
    """Every endpoint there is, in the order in which they are described."""
    return [endpoint for module in MODULES for endpoint in ENDPOINTS[module.__name__]]


def all_pages() -> list[Endpoint]:
    return [endpoint for module in PAGES for endpoint in ENDPOINTS[module.__name__]]


def checked_base(text: str) -> str:
    """The text, if it is a valid base path; empty: none. Raises a ConfigMistake.

    One of our own paths, such as "/api", would be removed from URLs that a proxy has already
    shortened.
    """
    if not text:
        return ""
    wrong = f"base_path is {text!r}"
    if not _BASE.fullmatch(text):
        raise ConfigMistake(
            f"{wrong}; it must begin with '/' and not end with one, such as /milepost"
        )
    first = text.split("/")[1]
    if first in {endpoint.path.split("/")[1] for endpoint in (*all_endpoints(), *all_pages())}:
        raise ConfigMistake(
            f"{wrong}; /{first} is a path of Milepost's own: choose another, such as /milepost"
        )
    return text


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
        self.state.feed.end()
        self.state.waiting.end()
        self.server.stop()
        self.state.close()
