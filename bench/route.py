"""The job: three stages with trivial handlers. The name and the stages are the same for every kind
of handler."""

from __future__ import annotations

import time
from typing import Any

import milepost as mp

NAME = "bench"
STAGES = ("first", "second", "third")
OUTPUT = {"checked": True, "grams": 340}
LANES = 50
FEW = 8
"""How many items are in hand at a time, where they are to be few."""
PORTION = 50
"""Items in one call of a batch handler."""
BUSY_S = 0.001


def make_route(handlers: str = "plain") -> mp.Route:
    """A route of one kind of handlers (see KINDS)."""
    route = mp.Route(NAME, key="id")
    handler, options = _HANDLERS[handlers]
    for stage in STAGES:
        route.stage(stage, **options)(handler)
    return route


def settles(handlers: str) -> int:
    """How often one item is settled on its way."""
    return len(STAGES) + (handlers == "retry")


def _plain(item: mp.Item) -> mp.Outcome:
    return mp.Done()


async def _async(item: mp.Item) -> mp.Outcome:
    return mp.Done()


def _output(item: mp.Item) -> mp.Outcome:
    return mp.Done(OUTPUT)


def _retry(item: mp.Item) -> mp.Outcome:
    return mp.Retry("not now") if item.stage == STAGES[0] and item.attempt == 1 else mp.Done()


def _batch(items: list[mp.Item]) -> list[mp.Outcome]:
    return [mp.Done() for _ in items]


def _busy(item: mp.Item) -> mp.Outcome:
    until = time.thread_time() + BUSY_S
    while time.thread_time() < until:
        pass
    return mp.Done()


def _lane(content: Any) -> str:
    return f"lane {int(content['to'][-3:]) % LANES}"


_HANDLERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (_plain, {}),
    "async": (_async, {}),
    "output": (_output, {}),
    "retry": (_retry, {"retry": mp.Backoff(base=0.1, jitter=0.5)}),
    "lanes": (_plain, {"lane": _lane}),
    "few": (
        _plain,
        {
            "concurrency": 1,
            "lane": lambda content: "one",
            "lanes": {"one": mp.Limits(concurrency=FEW)},
        },
    ),
    "batch": (_batch, {"batch": PORTION}),
    "busy": (_busy, {}),
}
KINDS = {
    "plain": "def",
    "async": "async def",
    "output": "with outputs, a small result kept per stage",
    "retry": "each item fails once, and is tried again after 50 to 150 ms",
    "lanes": f"in {LANES} lanes",
    "few": f"one call at a time, at most {FEW} items in hand",
    "batch": f"called with {PORTION} items at a time",
    "busy": "use 1 ms of CPU",
}
"""The kinds of handlers, in words."""
