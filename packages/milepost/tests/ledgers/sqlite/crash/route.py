"""The route of the crash tests. Handlers take 1 to 20 ms and write each call down where no crash
can take it back."""

from __future__ import annotations

import os
import random
import time

import milepost as mp

CALLS = os.environ.get("CRASH_CALLS", "")


def write_down(kind: str, item: mp.Item) -> None:
    """One line per call, in one write, which the kernel keeps even if the process is killed right
    after."""
    line = f"{kind}\t{item.stage}\t{item.key}\t{item.work_id}\t{item.attempt}\n".encode()
    descriptor = os.open(CALLS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


route = mp.Route("crash", key="id")


@route.stage("one", concurrency=4)
def one(item: mp.Item) -> mp.Outcome:
    write_down("call", item)
    time.sleep(random.uniform(0.001, 0.02))
    return mp.Done({"by": "one"})


@route.stage("two", concurrency=4, retry=mp.Backoff(attempts=3, base=0.01, cap=0.05))
def two(item: mp.Item) -> mp.Outcome:
    write_down("call", item)
    time.sleep(random.uniform(0.001, 0.005))
    if item.attempt == 1 and item.key.endswith("7"):
        return mp.Retry("the partner is busy", http_status=503)
    return mp.Done()


@route.stage("three", concurrency=4)
def three(item: mp.Item) -> mp.Outcome:
    write_down("call", item)
    time.sleep(random.uniform(0.001, 0.005))
    return mp.Done()
