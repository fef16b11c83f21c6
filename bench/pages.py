"""The pages on a large ledger: how long the server takes for each, against the same on a small one."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import milepost as mp
from milepost.engine.intake import submit
from milepost.http.door import Door

SMALL = 1_000
PAGES = {
    "the overview": "/",
    "items": "/items/parcels",
    "items that failed": "/items/parcels?status=failed",
    "items at a stage": "/items/parcels?stage=deliver&status=live",
    "keys that begin so": "/items/parcels?prefix=P-0000001",
    "one item": "/items/parcels/P-0000001",
}
ROUNDS = 15


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
    lines = ["", f"Pages: ms at the server's door, {SMALL:,} items and {found['large']:,} (medians of {ROUNDS})", ""]
    for name in PAGES:
        lines.append(f"  {name:24}{small[name]:>10.1f}{large[name]:>10.1f}{large[name] / small[name]:>10.2f}")
    return "\n".join(lines)


def _measured(path: Path, n: int) -> dict[str, float]:
    with mp.open(f"sqlite:///{path}", routes=[_route()]) as desk:
        submit(desk.context, "parcels", _inputs(n))
        # A few are seen to, so that there is something of everything.
        for number in range(200):
            desk.confirm(
                "parcels", _key(number), "weigh", {"grams": 1}, by="bench", outcome=mp.Reject("too heavy") if number % 4 == 0 else None
            )
        door = Door(desk.context, "127.0.0.1", 0)
        door.open()
        try:
            return {name: _ms(door.server.port, place) for name, place in PAGES.items()}
        finally:
            door.close()


def _route() -> mp.Route:
    route = mp.Route("parcels")
    route.external("weigh")
    route.external("deliver")
    return route


def _key(number: int) -> str:
    return f"P-{number:07d}"


def _inputs(n: int) -> Iterator[dict[str, Any]]:
    return ({"id": _key(number)} for number in range(n))


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
