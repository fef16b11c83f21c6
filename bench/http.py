"""Submits over HTTP: how many a second are accepted, each on disk when it is answered, and how long one takes.

The measure is the same server answering from memory: everything but the ledger (head, body, key, headers, the shared batch, the
answer). The load comes from another process over connections that stay open. Each part is a process of its own:
`python -m bench.http FOLDER memory|durable|busy SECONDS`, and the load is
`python -m bench.http load PORT SECONDS`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.measure import Span
from bench.route import NAME, STAGES, make_route
from bench.station import at_work
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, submit
from milepost.http.desk import Desk
from milepost.http.door import Door
from milepost.runners.process import settle_in
from milepost.wiring import open_context

CONCURRENCY = 64
FILLING = "x" * 110
Part = Callable[..., dict[str, float]]
MODES = {"memory": "from memory", "durable": "on disk", "busy": "on disk, while others are processed"}


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Rounds of all modes; `part(FOLDER, MODE, SECONDS, module=…)` runs one of them. The medians."""
    seconds, rounds, waiting = (2, 1, 20_000) if quick else (5, 3, 100_000)
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for number in range(rounds):
        for mode in MODES:
            inside = folder / f"http-{mode}-{number}"
            inside.mkdir()
            facts = part(inside, mode, seconds, "--waiting", waiting, module="bench.http")
            found[mode].append(facts)
            say(f"http: {MODES[mode]}: {facts['rate']:,.0f}/s, p50 {facts['p50_ms']:.1f} ms, p99 {facts['p99_ms']:.1f} ms")
    return {mode: {name: median(facts[name] for facts in each) for name in each[0]} for mode, each in found.items()} | {"waiting": waiting}


def text(found: dict[str, Any]) -> str:
    lines = ["", f"Submits over HTTP, one item a call, {CONCURRENCY} at the same time (medians)", ""]
    lines.append(f"  {'':40}{'accepted/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'per CPU s':>12}")
    for mode, title in MODES.items():
        facts = found[mode]
        lines.append(f"  {title:40}{facts['rate']:>12,.0f}{facts['p50_ms']:>10.1f}{facts['p99_ms']:>10.1f}{facts['per_cpu_s']:>12,.0f}")
    lines.append(f"\n  on disk / from memory: {found['durable']['rate'] / found['memory']['rate']:.2f}")
    if found["busy"]["left"] == 0:
        lines.append("  (the items that were to be processed meanwhile were through before the end)")
    return "\n".join(lines)


class FromMemory(Desk):
    """A desk that answers as if every item were new, and records nothing."""

    def _take(self, route: str, contents: Sequence[Any], by: str, correlation_id: Any = None) -> list[Receipt]:
        return [Receipt(content["id"], "new", Status.QUEUED, STAGES[0]) for content in contents]


@contextmanager
def working(ctx: Context, n: int) -> Any:
    """So many items are being processed meanwhile, and those that are submitted after them; none: nobody works."""
    if not n:
        yield
        return
    for start in range(0, n, 10_000):
        submit(ctx, NAME, [{"id": f"w{number}"} for number in range(start, start + 10_000)])
    with at_work(ctx):
        yield


def part(folder: Path, mode: str, seconds: float, waiting: int) -> dict[str, float]:
    settle_in()
    ctx = open_context(f"sqlite:///{folder}/ledger.db", [make_route()])
    door = Door(ctx, "127.0.0.1", 0, FromMemory if mode == "memory" else Desk)
    door.open()
    try:
        with working(ctx, waiting if mode == "busy" else 0), Span() as span:
            command = [sys.executable, "-m", "bench.http", "load", str(door.server.port), str(seconds)]
            facts: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            span.stop()
            ended = sum(count.n for count in ctx.ledger.counts(NAME) if count.status is Status.COMPLETED)
        return {**facts, "per_cpu_s": facts["accepted"] / span.cpu, "left": float(max(0, waiting - ended))}
    finally:
        door.close()
        ctx.ledger.close()


# The load ------------------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """One connection that hands over an item as soon as the one before it was accepted."""

    def __init__(self, number: int, until: float) -> None:
        self.spans: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()
        self._number, self._until, self._got = number, until, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 201 "):
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
        body = f'{{"id":"{self._number}-{len(self.spans)}","note":"{FILLING}"}}'
        head = f"POST /api/v1/routes/{NAME}/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


async def load(port: int, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    clients = [
        (await loop.create_connection(lambda number=number: Client(number, began + seconds), "127.0.0.1", port))[1]  # type: ignore[misc]
        for number in range(CONCURRENCY)
    ]
    await asyncio.gather(*(client.ended for client in clients))
    took = time.perf_counter() - began
    spans = [span * 1000 for client in clients for span in client.spans]
    cuts = quantiles(spans, n=100)
    return {"accepted": len(spans), "rate": len(spans) / took, "p50_ms": cuts[49], "p99_ms": cuts[98]}


def main() -> None:
    if sys.argv[1] == "load":
        print(json.dumps(asyncio.run(load(int(sys.argv[2]), float(sys.argv[3])))))
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
