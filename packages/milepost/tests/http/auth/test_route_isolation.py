"""Changes to items of another route change no answer that a key for one route gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.http.guarded_server import SIGNED, GuardedServer, guarded_server

from milepost.core.errors import EventRefused
from milepost.core.events import Envelope
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import limit, pause
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.events.deliver import EventRelay
from milepost.http.server.assembly import all_endpoints, all_pages
from milepost.ports.documents import PROCESS, Process
from milepost.station import Station
from milepost_testing import VirtualClock

OPEN = {"/live", "/api/v1/events/stream", "/api/v1/events"}
"""Streams; and the feed, whose places are lines of the whole ledger."""
PARTS = {
    "route": "parcels",
    "key": "a",
    "id": "none",
    "form": "csv",
    "version": "any",
    "name": "look.css",
    "stage": "weigh",
    "lane": "north",
    "volume": "V1",
}


class Office:
    """A subscriber that takes nothing of the other route."""

    name, batch = "office", 10

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        return [
            EventRefused("not that") if envelope["subject"].startswith("letters") else None
            for envelope in envelopes
        ]


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", clock=VirtualClock()) as opened:
        opened.milepost.submit("parcels", {"id": "a"}, {"id": "f", "weigh": "reject"})
        work(opened)
        heard_of(opened, in_hand=0)
        EventRelay(opened.ctx, Office(), "p1").run_once()
        yield opened


def work(at: GuardedServer) -> None:
    """Always by the same process: processes are nobody's, and everybody sees them."""
    Station(at.ctx, holder="host:2").run(until_idle_s=0)


def heard_of(at: GuardedServer, in_hand: int) -> None:
    now = at.ctx.clock.now()
    at.ctx.ledger.write(
        PROCESS,
        "host:1",
        msgspec.to_builtins(Process("host:1", "host", 1, now, now, {"worker": now}, in_hand)),
    )


def everything_happens_to_the_letters(at: GuardedServer, folder: Path) -> None:
    (folder / "list.txt").write_text("one\ntwo\none\n")
    at.milepost.submit(
        "letters", {"id": "a"}, {"id": "f", "weigh": "reject"}, {"id": "r", "weigh": "retry"}
    )
    at.milepost.submit_list("letters", str(folder / "list.txt"), name="march")
    work(at)
    EventRelay(at.ctx, Office(), "p1").run_once()
    act(at.ctx, select(at.ctx, "letters", keys=["f"]), RetryVerb(), **SIGNED)
    pause(at.ctx, "letters", "weigh", **SIGNED)
    limit(at.ctx, "letters", "weigh", rate="1/s", **SIGNED)
    heard_of(at, in_hand=7)


def answers(at: GuardedServer, key: str) -> dict[str, tuple[int, bytes]]:
    found = {}
    for endpoint in (*all_pages(), *all_endpoints()):
        if endpoint.method == "GET" and endpoint.path not in OPEN:
            path = re.sub(r"\{(\w+)(:path)?\}", lambda part: PARTS[part[1]], endpoint.path)
            answer = at.call("GET", path, key=key)
            found[path] = answer.status, answer.raw
    return found


def test_no_answer_is_another_one_when_everything_happens_elsewhere(
    at: GuardedServer, tmp_path: Path
) -> None:
    limited, whole = (
        at.key("admin", name=name, routes=routes, rate=100_000)
        for name, routes in (("some", ["parcels"]), ("all", None))
    )
    answers(at, limited)  # the first look is what the pace of the last minute begins with
    before, all_before = answers(at, limited), answers(at, whole)
    everything_happens_to_the_letters(at, tmp_path)
    after, all_after = answers(at, limited), answers(at, whole)
    assert [path for path in before if before[path] != after[path]] == []
    # Else the test would show nothing.
    assert {
        "/",
        "/events",
        "/acts",
        "/system",
        "/api/v1/status",
        "/api/v1/subscribers",
        "/api/v1/processes",
    } <= {path for path in all_before if all_before[path] != all_after[path]}
