"""The pages on a large ledger: how long the server takes for each, against the same on a small
one."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import milepost as mp
from milepost.composition import open_context
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.http.server.assembly import HttpServer
from milepost.ports.documents import LIST, ListRecord
from milepost_testing import VirtualClock

SMALL = 1_000
PAGES = {
    "the overview": "/",
    "items": "/items/parcels",
    "items that failed": "/items/parcels?status=failed",
    "items at a stage": "/items/parcels?stage=deliver&status=live",
    "keys that begin so": "/items/parcels?prefix=P-0000001",
    "items that are late": "/items/parcels?overdue=true",
    "items older than a day": "/items/parcels?status=live&older_than=1d",
    "items with one error": "/items/parcels?group={group}",
    "items of a list": "/items/parcels?list=few",
    "one item": "/items/parcels/P-0000001",
    "acts": "/acts",
    "events": "/events",
    "system": "/system",
}
ROUNDS = 15
SEEN_TO = 200
DAY = 86_400_000


def run(folder: Path, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Milliseconds for each page, on both ledgers; medians."""
    large = 100_000 if quick else 1_000_000
    found: dict[str, Any] = {"large": large}
    for n in (SMALL, large):
        say(f"pages: filling a ledger with {n:,} items")
        found[str(n)] = _measured(folder / f"pages-{n}.db", n)
    return found


def text(found: dict[str, Any]) -> str:
    small, large = found[str(SMALL)], found[str(found["large"])]
    lines = [
        "",
        f"Pages: ms at the server's door, {SMALL:,} items and {found['large']:,} (medians of {ROUNDS})",
        "",
    ]
    for name in PAGES:
        lines.append(
            f"  {name:24}{small[name]:>10.1f}{large[name]:>10.1f}{large[name] / small[name]:>10.2f}"
        )
    return "\n".join(lines)


def _measured(path: Path, n: int) -> dict[str, float]:
    clock = VirtualClock(int(time.time() * 1000) - 3 * DAY)
    ctx = open_context(f"sqlite:///{path}", [_route()], clock=clock)
    try:
        # A few have been there for three days, and are seen to, so that there is something of
        # everything; they are of a list.
        submit(ctx, "parcels", _inputs(range(SEEN_TO)), list_id=_list(ctx, "few"))
        for number in range(0, SEEN_TO, 2):
            outcome = mp.Reject("too heavy") if number % 4 == 0 else mp.Done({"grams": 1})
            confirm_outside(ctx, "parcels", _key(number), "weigh", outcome, "bench")
        clock.advance(3 * DAY / 1000)
        submit(ctx, "parcels", _inputs(range(SEEN_TO, n)), list_id=_list(ctx, "many"))
        [group] = ctx.ledger.groups("parcels")
        door = HttpServer(ctx, "127.0.0.1", 0)
        door.open()
        try:
            return {
                name: _ms(door.server.port, place.format(group=group.group))
                for name, place in PAGES.items()
            }
        finally:
            door.close()
    finally:
        ctx.ledger.close()


def _list(ctx: Context, name: str) -> str:
    record = ListRecord(f"list-{name}", "parcels", name, "", ctx.clock.now(), False, {}, "")
    ctx.ledger.write(LIST, record.id, record)
    return record.id


def _route() -> mp.Route:
    route = mp.Route("parcels", key="id")
    route.external("weigh", overdue="2d")
    route.external("deliver", overdue="2d")
    return route


def _key(number: int) -> str:
    return f"P-{number:07d}"


def _inputs(numbers: range) -> Iterator[dict[str, Any]]:
    return ({"id": _key(number)} for number in numbers)


def _ms(port: int, place: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        connection.request("GET", place, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        body = answer.read()
        took.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, body[:300]
    connection.close()
    return median(took)
