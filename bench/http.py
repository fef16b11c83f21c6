"""Submits over HTTP: how many a second are accepted, each on disk when it is answered, and how long
one takes.

The measure is the same server answering from memory: everything but the ledger (head, body, key,
headers, the shared batch, the answer). The load comes from another process over connections that
stay open. Each part is a process of its own: `python -m bench.http FOLDER MODE SECONDS`, the load
is `python -m bench.http load PORT SECONDS`, and the worker beside the server is `python -m
bench.http work FOLDER`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.measure import Span
from bench.route import NAME, STAGES, make_route
from bench.station import at_work
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, submit
from milepost.http.server.assembly import HttpServer
from milepost.http.state.state import ServerState
from milepost.runners.process import tune_garbage_collection, tune_thread_switching
from milepost.station import Station

CONCURRENCY = 64
BATCH = 100
FILLING = "x" * 110
Part = Callable[..., dict[str, float]]
MODES = {
    "memory": "from memory",
    "durable": "on disk",
    "busy": "on disk, while this process works",
    "beside": "on disk, while another process works",
    "batches": f"on disk, {BATCH} items a call",
}
RATIOS = {"durable": "memory", "busy": "durable", "beside": "durable"}
"""Each mode with the one that it is compared with, round by round."""
WORKING = ("busy", "beside")


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Rounds of all modes; `part(FOLDER, MODE, SECONDS, module=…)` runs one of them. The
    medians."""
    seconds, rounds, waiting = (2, 1, 20_000) if quick else (5, 5, 100_000)
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES:
            inside = folder / f"http-{mode}-{number}"
            inside.mkdir()
            facts = part(inside, mode, seconds, "--waiting", waiting, module="bench.http")
            found[mode].append(facts)
            worked = (
                f", {facts['worked']:,.0f} others completed a second" if mode in WORKING else ""
            )
            say(
                f"http: {MODES[mode]}: {facts['rate']:,.0f}/s, p50 {facts['p50_ms']:.1f} ms, p99 {facts['p99_ms']:.1f} ms{worked}"
            )
    medians = {
        mode: {name: median(facts[name] for facts in each) for name in each[0]}
        for mode, each in found.items()
    }
    ratios = {
        mode: median(
            one["rate"] / other["rate"] for one, other in zip(found[mode], found[to], strict=True)
        )
        for mode, to in RATIOS.items()
    }
    return medians | {"ratios": ratios, "waiting": waiting}


def text(found: dict[str, Any]) -> str:
    lines = [
        "",
        f"Items submitted over HTTP, one a call, {CONCURRENCY} calls at the same time (medians)",
        "",
    ]
    lines.append(
        f"  {'':40}{'accepted/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'per CPU s':>12}{'worked/s':>12}"
    )
    for mode, title in MODES.items():
        facts = found[mode]
        worked = f"{facts['worked']:,.0f}" if mode in WORKING else ""
        rates = f"{facts['rate']:>12,.0f}{facts['p50_ms']:>10.1f}{facts['p99_ms']:>10.1f}{facts['per_cpu_s']:>12,.0f}{worked:>12}"
        lines.append(f"  {title:40}{rates}")
    lines.append("")
    lines += [
        f"  {MODES[mode]} / {MODES[to]}: {found['ratios'][mode]:.2f}" for mode, to in RATIOS.items()
    ]
    if any(found[mode]["left"] == 0 for mode in WORKING):
        lines.append(
            "  (the items that were to be processed meanwhile were through before the end)"
        )
    return "\n".join(lines)


class FromMemory(ServerState):
    """A state that answers as if every item were new, and records nothing."""

    def _take(self, route: str, contents: Sequence[Any], *rest: Any) -> list[Receipt]:
        return [Receipt(content["id"], "new", Status.QUEUED, STAGES[0]) for content in contents]


@contextmanager
def working(ctx: Context, folder: Path, mode: str, n: int) -> Iterator[None]:
    """So many items, and those that are submitted after them, are worked on meanwhile: here, in
    another process, or not at all."""
    if mode not in WORKING:
        yield
        return
    for start in range(0, n, 10_000):
        submit(ctx, NAME, [{"id": f"w{number}"} for number in range(start, start + 10_000)])
    with at_work(ctx) if mode == "busy" else beside(ctx, folder):
        yield


@contextmanager
def beside(ctx: Context, folder: Path) -> Iterator[None]:
    """As `milepost up --no-work` and `milepost work` have it."""
    station = Station(ctx, roles={"resender", "relay"})
    thread = threading.Thread(target=station.run)
    thread.start()
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.http", "work", str(folder)], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    worker.stdout.readline()  # it is at work
    try:
        yield
    finally:
        worker.terminate()
        worker.communicate()
        station.stop()
        thread.join()


def work(folder: Path) -> None:
    tune_garbage_collection()
    ctx = opened(folder)
    station = Station(ctx, roles={"worker"})
    signal.signal(signal.SIGTERM, lambda *_: station.stop())
    print("at work", flush=True)
    station.run()
    ctx.ledger.close()


def opened(folder: Path) -> Context:
    return open_context(f"sqlite:///{folder}/ledger.db", [make_route()])


def ended(ctx: Context) -> int:
    return sum(count.n for count in ctx.ledger.counts(NAME) if count.status is Status.COMPLETED)


def part(folder: Path, mode: str, seconds: float, waiting: int) -> dict[str, float]:
    tune_garbage_collection()
    tune_thread_switching()
    ctx = opened(folder)
    door = HttpServer(ctx, "127.0.0.1", 0, FromMemory if mode == "memory" else ServerState)
    door.open()
    try:
        with working(ctx, folder, mode, waiting), Span() as span:
            before = ended(ctx)
            command = [
                sys.executable,
                "-m",
                "bench.http",
                "load",
                str(door.server.port),
                str(seconds),
            ]
            command += ["--batch", str(BATCH)] if mode == "batches" else []
            facts: dict[str, float] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            span.stop()
            after = ended(ctx)
        figures = {
            "per_cpu_s": facts["accepted"] / span.cpu,
            "worked": (after - before) / span.seconds,
        }
        return {**facts, **figures, "left": float(max(0, waiting - after))}
    finally:
        door.close()
        ctx.ledger.close()


# The load -----------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """One connection that hands over an item, or a batch of them, as soon as the one before it was
    accepted."""

    def __init__(self, number: int, until: float, batch: int) -> None:
        self.spans: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()
        self._number, self._until, self._batch, self._got = number, until, batch, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < int(
            head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        ):
            return
        if not head.startswith(b"HTTP/1.1 200 " if self._batch else b"HTTP/1.1 201 "):
            self.ended.set_exception(RuntimeError(self._got.decode()))
            return
        self._got = b""
        now = time.perf_counter()
        self.spans.append(now - self._asked)
        if now < self._until:
            self._ask()
        else:
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the server closed the connection"))

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        name = f"{self._number}-{len(self.spans)}"
        items = [
            f'{{"id":"{name}-{number}","note":"{FILLING}"}}' for number in range(self._batch or 1)
        ]
        body = f"[{','.join(items)}]" if self._batch else items[0]
        head = f"POST /api/v1/routes/{NAME}/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


async def load(port: int, seconds: float, batch: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    address = ("127.0.0.1", port)
    clients = [
        (await loop.create_connection(partial(Client, number, began + seconds, batch), *address))[1]
        for number in range(CONCURRENCY)
    ]
    await asyncio.gather(*(client.ended for client in clients))
    took = time.perf_counter() - began
    spans = [span * 1000 for client in clients for span in client.spans]
    cuts = quantiles(spans, n=100)
    accepted = len(spans) * (batch or 1)
    return {"accepted": accepted, "rate": accepted / took, "p50_ms": cuts[49], "p99_ms": cuts[98]}


def main() -> None:
    if sys.argv[1] == "load":
        parser = argparse.ArgumentParser(prog="python -m bench.http load")
        parser.add_argument("port", type=int)
        parser.add_argument("seconds", type=float)
        parser.add_argument(
            "--batch", type=int, default=0, metavar="N", help="so many items a call, as an array"
        )
        a = parser.parse_args(sys.argv[2:])
        print(json.dumps(asyncio.run(load(a.port, a.seconds, a.batch))))
        return
    if sys.argv[1] == "work":
        work(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(prog="python -m bench.http")
    parser.add_argument("folder", type=Path)
    parser.add_argument("mode", choices=list(MODES))
    parser.add_argument("seconds", type=float)
    parser.add_argument("--waiting", type=int, default=100_000)
    a = parser.parse_args()
    print(json.dumps(part(a.folder, a.mode, a.seconds, a.waiting)), flush=True)


if __name__ == "__main__":
    main()
