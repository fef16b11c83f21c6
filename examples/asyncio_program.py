"""A plain asyncio program: it hands over readings as they come and works on them, on one event
loop.

    python examples/asyncio_program.py

Async handlers run on the program's own loop, so they share its clients and its state. Ctrl-C (or
SIGTERM) cancels the main task; `run_async` then drains: no more claims, running handlers have the
grace to finish, the rest is given back.
"""

from __future__ import annotations

import asyncio
import os
import signal

import milepost as mp

readings = mp.Route("readings", key="id")


class Scale:
    """A client that belongs to the event loop: at most four calls at once."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(4)
        self.weighed = 0

    async def weigh(self, number: int) -> int:
        async with self.free:
            await asyncio.sleep(0.005)
            self.weighed += 1
            if self.weighed % 50 == 0:
                print(self.weighed, "weighed", flush=True)
            return number * 10


scale: Scale


@readings.stage("weigh", concurrency=16)
async def weigh(item: mp.Item) -> mp.Outcome:
    return mp.Done({"grams": await scale.weigh(item.input["number"])})


async def hand_over(post: mp.Milepost, readings: int) -> None:
    for number in range(readings):
        await asyncio.to_thread(post.submit, "readings", {"id": f"R-{number}", "number": number})


async def main() -> None:
    global scale
    scale = Scale()
    ledger = os.environ.get("MILEPOST_LEDGER", "sqlite:///readings.db")
    async with mp.open(ledger, routes=[readings], grace="10s") as post:
        main_task = asyncio.current_task()
        assert main_task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main_task.cancel)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(post.run_async())
                tasks.create_task(hand_over(post, int(os.environ.get("READINGS", "1000000"))))
        finally:
            print("readings:", post.status()["routes"]["readings"]["statuses"], flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("stopped")
