"""A notifications service on loopback: a real server, a real ledger, and partners whose answers a
test decides."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from tests.http.live_server import HttpAnswer, LiveServer
from tests.net.partner import Line, Partner, Received

import milepost as mp
import milepost.application as mpa
from milepost.http.server.assembly import HttpServer
from milepost_notifications import application
from milepost_testing.clock import VirtualClock

LOOPBACK = ("127.0.0.0/8",)
ROUTE = "notifications"
TIME = "2026-01-31T08:00:00.000Z"


class Service(LiveServer):
    """The service as a sender sees it, and its ledger."""

    def __init__(self, milepost: mp.Milepost, door: HttpServer, configured: Any) -> None:
        super().__init__(milepost, door)
        self.configured = configured
        self.state = configured.state
        self.app: mpa.AppContext[Any] = configured.on(milepost.context)

    def post(
        self,
        message: Mapping[str, Any] | bytes,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.call(
            "POST",
            "/message",
            data,
            key=key,
            headers={"Content-Type": "application/json", **(headers or {})},
        )

    def work(self) -> None:
        """Our own workers do all that is due now by the ledger's clock."""
        self.milepost.run(until_idle=0)

    def see_through(self, clock: VirtualClock, message: Mapping[str, Any]) -> list[int]:
        """Work until the message has ended, the clock moved on over every wait; the waits in
        milliseconds."""
        waits: list[int] = []
        self.work()
        while (at := self.next_look(message)) is not None:
            waits.append(at - clock.now())
            clock.advance_to(at)
            self.work()
        return waits

    def next_look(self, message: Mapping[str, Any]) -> int | None:
        """When the message is looked at next, in milliseconds; None: it has ended."""
        due = self.item(message)["due_at"]
        return None if due is None else round(datetime.fromisoformat(due).timestamp() * 1000)

    def attempts(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The failed attempts of a message, from its history."""
        return [line for line in self.item(message)["history"] if "attempt_number" in line]

    def findings(self) -> list[mpa.Finding]:
        """What the health check of the destinations finds."""
        app = self.configured.on(self.ctx)
        return [finding for part in application.checks for finding in part.function(app)]

    def item(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that the ledger knows of a message."""
        found = self.milepost.show(ROUTE, key_of(message))
        assert found is not None
        return found


def message(target: str, **fields: Any) -> dict[str, Any]:
    """A message that can be accepted; a field of None is left out."""
    usual = {
        "messageId": "m-1",
        "timestamp": TIME,
        "senderId": "shop",
        "targetUrl": target,
        "body": {"paid": True},
    }
    return {name: value for name, value in {**usual, **fields}.items() if value is not None}


def answered_late(at: Service, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A message whose sender gets the answer only when the partner has the message; all workers
    have ended."""
    add = at.ctx.ledger.add

    def slow(*arguments: Any) -> Any:
        added = add(*arguments)
        assert partner.came.wait(60)
        return added

    monkeypatch.setattr(at.ctx.ledger, "add", slow)
    at.milepost.start()
    sent = message(partner.url)
    assert at.post(sent).status == 200
    at.milepost.stop()
    return sent


def key_of(message: Mapping[str, Any]) -> str:
    parts = [str(message[name]) for name in ("messageId", "senderId", "timestamp", "targetUrl")]
    return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)


@contextmanager
def service(ledger: str = "memory:", clock: Any = None, **settings: Any) -> Iterator[Service]:
    """The service with these settings and else with the seed's schedule of tries, on this ledger;
    it may call loopback."""
    usual = {"allow_cidrs": list(LOOPBACK), "retry": {"schedule": "seed"}}
    configured = application.configured(usual | settings, environment={})
    with mp.open(ledger, applications=[configured], clock=clock) as desk:
        door = HttpServer(desk.context, "127.0.0.1", 0, applications=[configured])
        door.open()
        try:
            yield Service(desk, door, configured)
        finally:
            door.close()


def answers(*statuses: int | tuple[int, bytes] | tuple[int, bytes, str]) -> Callable[[Line], None]:
    """Answer the first request with the first status, and so on; the last one is for all that
    follow."""
    left, lock = list(statuses), threading.Lock()

    def script(line: Line) -> None:
        while line.read() is not None:
            with lock:
                one = left.pop(0) if len(left) > 1 else left[0]
            status, *rest = one if isinstance(one, tuple) else (one,)
            if not line.answer(status, *rest):
                return

    return script


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until this holds, for a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it has not come about within a minute"
        time.sleep(0.01)


__all__ = [
    "LOOPBACK",
    "ROUTE",
    "TIME",
    "Partner",
    "Received",
    "Service",
    "VirtualClock",
    "answered_late",
    "answers",
    "key_of",
    "message",
    "service",
    "wait_for",
]
