"""A client of the event stream over a real connection."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from tests.http.live_server import LiveServer

EVENTS = "/api/v1/events"


class Heard(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


class Listener:
    """Connected, and told where it stands (`place`), when this returns."""

    def __init__(
        self,
        live_server: LiveServer,
        query: str = "",
        *,
        last: str | None = None,
        key: str | None = None,
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", live_server.port, timeout=30)
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = last
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._connection.request("GET", EVENTS + query, headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self.headers = self._answer.headers
        self.place = self.block()["id"]

    def block(self) -> dict[str, str]:
        """The next block, by field; a comment is the field ''. Empty: the stream has ended."""
        fields: dict[str, str] = {}
        while (line := self._answer.readline().decode()).rstrip("\n"):
            name, _, value = line.rstrip("\n").partition(":")
            assert name in ("", "id", "event", "data", "retry"), line
            fields[name] = value.removeprefix(" ")
        return fields

    def next(self) -> Heard:
        """The next event."""
        while True:
            fields = self.block()
            assert fields, "the stream has ended"
            if "data" in fields:
                return Heard(fields["id"], fields["event"], json.loads(fields["data"]))

    def take(self, n: int) -> list[Heard]:
        return [self.next() for _ in range(n)]

    def close(self) -> None:
        self._answer.close()
        self._connection.close()
