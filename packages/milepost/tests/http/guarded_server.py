"""A server with keys and a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.http.live_server import LiveServer, sample_route

import milepost as mp
from milepost.core.routes.route import Route
from milepost.engine.auth import make_key, revoke_key
from milepost.http.server.assembly import make_asgi_app
from milepost.http.server.listener import Server
from milepost.http.state.state import ServerState
from milepost.ports.runner import Clock

READ = "/api/v1/routes/parcels/items/a"
ITEMS = "/api/v1/routes/parcels/items"
SIGNED = {"by": "ops", "reason": "a test"}


class Ticks:
    """Seconds that only rise, and only when told to; and a hair's breadth with every look, as real
    ones do."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now


class Opened:
    """What a visitor needs to know of a door."""

    def __init__(self, state: ServerState, server: Server) -> None:
        self.state, self.server, self.url = state, server, server.url


class GuardedServer(LiveServer):
    """Knows how to make keys, and has the door's time in hand."""

    def __init__(self, milepost: mp.Milepost, opened: Opened, ticks: Ticks) -> None:
        super().__init__(milepost, opened)  # type: ignore[arg-type]
        self.ticks = ticks

    def key(
        self,
        *scopes: str,
        name: str = "loader",
        routes: Iterable[str] | None = None,
        **more: object,
    ) -> str:
        return make_key(self.ctx, name, scopes, routes=routes, **SIGNED, **more)[1]  # type: ignore[arg-type]

    def revoke(self, name: str = "loader") -> None:
        revoke_key(self.ctx, name, **SIGNED)


@contextmanager
def guarded_server(
    ledger: str,
    routes: Iterable[Route] | None = None,
    clock: Clock | None = None,
    host: str = "127.0.0.1",
) -> Iterator[GuardedServer]:
    with mp.open(
        ledger, routes=routes or [sample_route(), sample_route("letters")], clock=clock
    ) as milepost:
        ticks = Ticks()
        state = ServerState(milepost.context, ticks)
        server = Server(make_asgi_app(state), host, 0)
        server.start()
        try:
            yield GuardedServer(milepost, Opened(state, server), ticks)
        finally:
            server.stop()
            state.close()
