"""A real server on a real ledger, and HTTP calls to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.http.server.assembly import HttpServer
from milepost.station import Station

JSON = "application/json"


def sample_route(name: str = "parcels") -> mp.Route:
    """A handler stage that does what an item's `weigh` says, then one outside: `weigh`,
    `deliver`."""
    route = mp.Route(name, key="id")

    @route.stage("weigh", retry=mp.Backoff(attempts=1))
    def weigh(item: mp.Item) -> mp.Outcome:
        if item.input.get("weigh") == "reject":
            return mp.Reject("too heavy")
        if item.input.get("weigh") == "retry":
            return mp.Retry("the scale is away")
        return mp.Done({"grams": 340})

    route.external("deliver")
    return route


class HttpAnswer:
    """What came back; `body` is read from JSON where it is JSON, else bytes."""

    def __init__(self, status: int, headers: Mapping[str, str], raw: bytes) -> None:
        self.status, self.headers, self.raw = status, headers, raw
        kind = headers.get("content-type", "")
        self.body: Any = json.loads(raw) if raw and "json" in kind and "ndjson" not in kind else raw

    def __repr__(self) -> str:
        return f"{self.status} {self.body!r}"


class LiveServer:
    """Knows the address and the ledger behind it. Each call has a connection of its own."""

    def __init__(self, milepost: mp.Milepost, opened: HttpServer) -> None:
        self.milepost, self.opened = milepost, opened
        self.ctx = milepost.context
        self.url, self.port = opened.url, opened.server.port

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """A body that is no bytes and no iterator goes as JSON."""
        sent: dict[str, str] = {}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        if (body is not None and not isinstance(body, (bytes, Iterable))) or isinstance(
            body, (dict, list, str)
        ):
            body = json.dumps(body).encode()
            sent["Content-Type"] = JSON
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent | dict(headers or {}))
            answer = connection.getresponse()
            return HttpAnswer(
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read(),
            )
        finally:
            connection.close()

    def work(self) -> None:
        """Our own workers do all there is to do."""
        Station(self.ctx).run(until_idle_s=0)


@contextmanager
def running_server(
    folder: Path, *routes: mp.Route, ledger: str | None = None, base: str = ""
) -> Iterator[LiveServer]:
    """A running server over a SQLite ledger in this folder, or over another ledger; its addresses
    begin with `base`."""
    with mp.open(
        ledger or f"sqlite:///{folder}/ledger.db",
        routes=routes or [sample_route(), sample_route("letters")],
    ) as milepost:
        door = HttpServer(milepost.context, "127.0.0.1", 0, base=base)
        door.open()
        try:
            yield LiveServer(milepost, door)
        finally:
            door.close()
