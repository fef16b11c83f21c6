"""The job: three stages with trivial handlers. The name and the stages are the same for every kind of handler."""

from __future__ import annotations

import milepost as mp

NAME = "bench"
STAGES = ("first", "second", "third")
OUTPUT = {"checked": True, "grams": 340}


def make_route(handlers: str = "plain") -> mp.Route:
    """`handlers`: plain (def), async (async def), output (def, with a small result kept per stage)."""
    route = mp.Route(NAME, key="id")
    for stage in STAGES:
        route.stage(stage)(_HANDLERS[handlers])
    return route


def _plain(item: mp.Item) -> mp.Outcome:
    return mp.Done()


async def _async(item: mp.Item) -> mp.Outcome:
    return mp.Done()


def _output(item: mp.Item) -> mp.Outcome:
    return mp.Done(OUTPUT)


_HANDLERS = {"plain": _plain, "async": _async, "output": _output}
