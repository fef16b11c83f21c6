"""Notifications: deliveries a second, accepts a second, delay until the first attempt, a partner
that hangs, and memory.

The measure of deliveries is a bare loop with the same HTTP client; that of accepts is the same
server answering from memory. Each part is a process of its own: `python -m bench.notifications PART
FOLDER …`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import milepost as mp
import milepost_net as net
from bench.measure import Span, facts_of
from bench.partners import Partners, partners
from bench.parts import ROOT
from milepost.app import Milepost
from milepost.application.declaration import ConfiguredApplication
from milepost.core.status import Status
from milepost.engine.intake import Receipt
from milepost.http.server.assembly import HttpServer
from milepost.http.state.state import ServerState
from milepost.ports.documents import PROCESS
from milepost.runners.process import (
    schedule_as_batch,
    tune_garbage_collection,
    tune_thread_switching,
)
from milepost_net.background import new_event_loop
from milepost_notifications.application import application
from milepost_notifications.settings import DestinationSettings, NotificationsSettings

ROUTE = "notifications"
TASKS = 64
"""Requests at the same time: of the bare loop, of a process that delivers, and of those who hand
over messages."""
PARTNERS = 10
HERE = ("127.0.0.0/8",)
FILLING = "x" * 900
BESIDE = 2_000
"""Messages that are delivered while many others wait."""
PATIENCE_S = 900
TIMES = "2026-11-18T12:00:00.000Z"
PROCESSES = 2
CONFIGURATION = """
ledger = "sqlite:///ledger.db"
applications = ["notifications"]
[notifications]
allow_cidrs = ["127.0.0.0/8"]
concurrency = {concurrency}
[notifications.destinations.p{port}]
url = "http://127.0.0.1:{port}/"
concurrency = {concurrency}
"""
Part = Callable[..., dict[str, float]]


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """All parts in interleaved rounds; medians and ratios."""
    n, seconds, rounds, waiting = (2_000, 2, 1, 20_000) if quick else (20_000, 5, 5, 1_000_000)
    absent = {"wrk": "apt-get install wrk"} if shutil.which("wrk") is None else {}
    if find_spec("aiohttp") is None:
        absent["bare-aiohttp"] = "pip install aiohttp"
    for name, cure in absent.items():
        say(f"notifications: {name} is left out: it is not installed ({cure})")
    found: dict[str, list[dict[str, float]]] = {}

    def one(name: str, *words: object) -> dict[str, float]:
        inside = folder / "notifications"
        inside.mkdir()
        try:
            facts = part(name, inside, *words, module="bench.notifications")
        finally:
            shutil.rmtree(inside)
        found.setdefault(name, []).append(facts)
        say(
            f"notifications: {name}: {', '.join(f'{key} {value:,.1f}' for key, value in facts.items())}"
        )
        return facts

    for _ in range(rounds):
        for name in (
            "wrk",
            "bare",
            "bare-aiohttp",
            "deliver",
            "deliver-processes",
            "deliver-pinned",
        ):
            if name not in absent:
                # Long enough that the first and the last moment do not count much.
                one(name, seconds if name == "wrk" else 3 * n)
        for name in ("all-healthy", "one-hangs"):
            one(name, n)
        memory = one("accept-memory", seconds)
        durable = one("accept", seconds)
        one("half-load", durable["rate"] / 2, seconds)
        say(f"notifications: accepted on disk / from memory {durable['rate'] / memory['rate']:.2f}")
    one("waiting", waiting)
    medians = {
        name: {key: median(facts[key] for facts in each) for key in each[0]}
        for name, each in found.items()
    }

    def ratio(what: str, key: str, to: str) -> float:
        return median(a[key] / b[key] for a, b in zip(found[what], found[to], strict=True))

    # The bar is for two cores: a Python process uses one, and a process of two that is not pinned
    # shares its own with the other.
    delivered = {
        "one process": "deliver",
        "two processes": "deliver-processes",
        "two pinned processes": "deliver-pinned",
    }
    deliveries = {
        f"deliveries in {processes} / {TITLES[loop]}": (
            ratio(name, "rate", loop),
            *((">=", 0.5) if name == "deliver-pinned" else ("", "")),
        )
        for loop in ("bare", "bare-aiohttp")
        if loop in found
        for processes, name in delivered.items()
    }
    ratios = {
        **deliveries,
        "accepts on disk / from memory": (ratio("accept", "rate", "accept-memory"), ">=", 0.5),
        "throughput of the others, one hangs / none": (
            ratio("one-hangs", "rate", "all-healthy"),
            ">=",
            0.95,
        ),
        "p99 of the others, one hangs / none": (
            ratio("one-hangs", "p99_ms", "all-healthy"),
            "<=",
            1.5,
        ),
        "peak memory with all that wait, MB": (medians["waiting"]["mb"], "<", 200),
    }
    return {
        "medians": medians,
        "ratios": {name: list(figure) for name, figure in ratios.items()},
        "waiting": waiting,
    }


def text(found: dict[str, Any]) -> str:
    medians = found["medians"]
    lines = ["", "Notifications: 1 KB messages to servers on loopback (medians)", ""]
    for name, title in TITLES.items():
        if name not in medians:
            continue
        facts = ", ".join(
            f"{LABELS[key]} {value:,.0f}" for key, value in medians[name].items() if key in LABELS
        )
        lines.append(f"  {title.format(waiting=found['waiting']):64}{facts}")
    lines.append("")
    for name, (value, relation, bar) in found["ratios"].items():
        lines.append(
            f"  {name:64}{value:>10.2f}" + (f"   (bar: {relation} {bar})" if relation else "")
        )
    return "\n".join(lines)


TITLES = {
    "wrk": f"wrk, {TASKS} connections",
    "bare": "bare loop with the same client",
    "bare-aiohttp": "bare loop with aiohttp",
    "deliver": "delivered, on disk, with history",
    "deliver-processes": f"the same by milepost work --processes {PROCESSES}",
    "deliver-pinned": f"the same by milepost work --processes {PROCESSES} --pin",
    "all-healthy": f"{PARTNERS - 1} partners, none hangs",
    "one-hangs": f"{PARTNERS - 1} partners, a tenth one hangs",
    "accept-memory": "POST /message from memory",
    "accept": "POST /message on disk, delivery in a second process",
    "half-load": "accept to first attempt, at half that load",
    "waiting": "memory with {waiting:,} waiting messages",
}
LABELS = {
    "rate": "per second",
    "cpu_us": "µs of CPU each",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "mb": "MB",
}


def message(number: int, target: str, sent_at: float | None = None) -> dict[str, Any]:
    """A message whose body has about 1 KB."""
    body: dict[str, Any] = {"filling": FILLING}
    if sent_at is not None:
        body["sentAt"] = sent_at
    return {
        "messageId": f"m-{number}",
        "timestamp": TIMES,
        "senderId": "bench",
        "targetUrl": target,
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps(body),
    }


def target(port: int) -> str:
    return f"http://127.0.0.1:{port}/message"


def configured(
    ports: Sequence[int], concurrency: int = TASKS
) -> ConfiguredApplication[NotificationsSettings]:
    """The application with a destination for each port, and no other setting than its
    concurrency."""
    there = {
        f"p{port}": DestinationSettings(url=f"http://127.0.0.1:{port}/", concurrency=concurrency)
        for port in ports
    }
    return application.with_settings(
        NotificationsSettings(
            allow_cidrs=HERE, destinations=there, concurrency=concurrency * len(ports)
        )
    )


@contextmanager
def opened(folder: Path, ports: Sequence[int], concurrency: int = TASKS) -> Iterator[Milepost]:
    tune_garbage_collection()
    with mp.open(
        f"sqlite:///{folder}/ledger.db", applications=[configured(ports, concurrency)]
    ) as post:
        yield post


def submit(
    post: Milepost, messages: Iterator[dict[str, Any]] | Sequence[dict[str, Any]], **how: Any
) -> None:
    receipts = post.submit(ROUTE, *messages, **how)
    if any(receipt.answer != "new" for receipt in receipts):
        raise SystemExit("a message was not new")


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE_S} s")
        # Not more often: this thread shares the interpreter with those that are measured, and the
        # bare loop has no such neighbour.
        time.sleep(0.05)


def completed(post: Milepost) -> int:
    return sum(
        count.n for count in post.context.ledger.counts(ROUTE) if count.status is Status.COMPLETED
    )


# Deliveries ---------------------------------------------------------------------------------------


Send = Callable[[dict[str, str]], Awaitable[int]]
"""Sends a message with these headers; returns the status."""


def bare(folder: Path, n: int) -> dict[str, float]:
    """The same requests with the same client, and nothing else."""

    @asynccontextmanager
    async def client(url: str, body: bytes) -> AsyncIterator[Send]:
        async with net.Client(allow_cidrs=HERE, connections=TASKS) as client:

            async def send(headers: dict[str, str]) -> int:
                return (await client.request_async("POST", url, headers=headers, body=body)).status

            yield send

    return _bare_loop(client, n)


def bare_aiohttp(folder: Path, n: int) -> dict[str, float]:
    """The same loop with the fastest full client of others."""
    import aiohttp

    @asynccontextmanager
    async def client(url: str, body: bytes) -> AsyncIterator[Send]:
        timeout = aiohttp.ClientTimeout(total=30, connect=5, sock_read=15)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit_per_host=TASKS)
        ) as session:

            async def send(headers: dict[str, str]) -> int:
                async with session.post(
                    url, headers=headers, data=body, allow_redirects=False
                ) as response:
                    await response.read()
                    status: int = response.status
                    return status

            yield send

    return _bare_loop(client, n)


def _bare_loop(
    client: Callable[[str, bytes], AbstractAsyncContextManager[Send]], n: int
) -> dict[str, float]:
    tune_garbage_collection()

    async def send_all(url: str) -> dict[str, float]:
        fixed = {
            "User-Agent": "milepost",
            "Content-Type": "application/json",
            "X-Sender-ID": "bench",
            "X-Correlation-ID": "0" * 32,
            "X-Delivery-Attempt": "1",
        }
        left = iter(range(n))
        async with client(url, message(0, url)["body"].encode()) as send:

            async def task() -> None:
                for number in left:
                    assert (
                        await send(
                            {
                                **fixed,
                                "X-Message-ID": f"m-{number}",
                                "webhook-id": f"msg_{number:032}",
                            }
                        )
                        == 200
                    )

            with Span() as span:
                await asyncio.gather(*(task() for _ in range(TASKS)))
        return facts_of(span, n)

    with partners(1) as there, asyncio.Runner(loop_factory=new_event_loop) as runner:
        schedule_as_batch()  # as the workers are
        return runner.run(send_all(target(there.ports[0])))


def wrk(folder: Path, seconds: float) -> dict[str, float]:
    """What the machine and the partner allow: the same requests from a load generator written in
    C."""
    script = folder / "post.lua"
    with partners(1) as there:
        body = message(0, target(there.ports[0]))["body"]
        script.write_text(
            f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = [[{body}]]\n"
        )
        command = [
            "wrk",
            "-t1",
            f"-c{TASKS}",
            f"-d{max(1, round(seconds))}s",
            "-s",
            str(script),
            target(there.ports[0]),
        ]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {"rate": float(said.partition("Requests/sec:")[2].split()[0])}


def deliver(folder: Path, n: int) -> dict[str, float]:
    """Messages that are in the ledger already; until the last outcome is on disk."""
    with partners(1) as there, opened(folder, there.ports) as post:
        submit(post, [message(number, target(there.ports[0])) for number in range(n)])
        schedule_as_batch()  # as `milepost work` does
        with Span() as span:
            post.start()
            until(lambda: completed(post) >= n, "deliveries")
        return facts_of(span, n)


def deliver_with_processes(folder: Path, n: int, *options: str) -> dict[str, float]:
    """The same by `milepost work --processes 2` with these options, from the moment at which both
    workers are there and may begin."""
    with partners(1) as there, opened(folder, there.ports) as post:
        (folder / "milepost.toml").write_text(
            CONFIGURATION.format(port=there.ports[0], concurrency=TASKS * PROCESSES)
        )
        submit(post, [message(number, target(there.ports[0])) for number in range(n)])
        post.pause(ROUTE, "deliver", by="bench", reason="until the workers are there")
        command = [
            sys.executable,
            "-m",
            "milepost",
            "work",
            "--processes",
            str(PROCESSES),
            *options,
        ]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as workers:
            try:
                until(lambda: len(post.context.ledger.read(PROCESS)) >= PROCESSES, "workers")
                with Span() as span:
                    post.resume(ROUTE, "deliver", by="bench", reason="they are there")
                    until(lambda: completed(post) >= n, "deliveries")
            finally:
                workers.terminate()
        return {
            key: value for key, value in facts_of(span, n).items() if key in ("seconds", "rate")
        }


def among(folder: Path, n: int, hanging: int) -> dict[str, float]:
    """Messages to nine partners, and as many for each to a tenth that hangs. First all at once, for
    the throughput of the nine; then one after the other at a third of that, for the delay until
    each arrives."""
    healthy = PARTNERS - 1
    with partners(healthy, hanging) as there, opened(folder, there.ports, concurrency=16) as post:
        ports = there.ports
        submit(post, [message(number, target(ports[number % len(ports)])) for number in range(n)])
        for_nine = sum(1 for number in range(n) if number % len(ports) < healthy)
        arrived = 0

        def all_there() -> bool:
            nonlocal arrived
            arrived += there.arrived()[0]
            return arrived >= for_nine

        with Span() as span:
            post.start()
            until(all_there, "deliveries")
        facts = facts_of(span, for_nine)
        pace = facts["rate"] / 3
        count = min(n // 2, int(pace * 5))
        began, portion = time.monotonic(), max(1, int(pace / 50))
        for first in range(0, count, portion):
            time.sleep(max(0.0, began + first / pace - time.monotonic()))
            some = range(first, min(first + portion, count))
            submit(
                post,
                [
                    message(n + number, target(ports[number % len(ports)]), time.monotonic())
                    for number in some
                ],
            )
        delays: list[float] = []
        wanted = sum(1 for number in range(count) if number % len(ports) < healthy)

        def all_delays() -> bool:
            delays.extend(there.arrived()[1])
            return len(delays) >= wanted

        until(all_delays, "paced deliveries")
        post.stop(grace="1s")
        return facts | percentiles(delays)


def percentiles(delays: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(delays, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98]}


def waiting(folder: Path, n: int) -> dict[str, float]:
    """So many messages wait for a destination that is paused, while others are delivered."""
    with partners(2) as there, opened(folder, there.ports) as post:
        post.pause(ROUTE, "deliver", f"p{there.ports[1]}", by="bench", reason="they are to wait")
        for first in range(0, n, 10_000):
            submit(
                post,
                [
                    message(number, target(there.ports[1]))
                    for number in range(first, min(first + 10_000, n))
                ],
            )
        submit(post, [message(n + number, target(there.ports[0])) for number in range(BESIDE)])
        with Span() as span:
            post.start()
            until(lambda: completed(post) >= BESIDE, "deliveries beside those that wait")
        return facts_of(span, BESIDE)


# Accepts ------------------------------------------------------------------------------------------


class MemoryState(ServerState):
    """A state that answers as if every message were new, and records nothing."""

    def _take(self, route: str, contents: Sequence[Any], *rest: Any) -> list[Receipt]:
        return [
            Receipt(content["messageId"], "new", Status.QUEUED, "deliver", created_at=0)
            for content in contents
        ]


@contextmanager
def serving(folder: Path, there: Partners, *, from_memory: bool = False) -> Iterator[int]:
    """`milepost up --no-work` in this process and `milepost work` in another one; the server's
    port."""
    tune_thread_switching()
    one = configured(there.ports)
    with opened(folder, there.ports) as post:
        door = HttpServer(
            post.context,
            "127.0.0.1",
            0,
            MemoryState if from_memory else ServerState,
            applications=[one],
        )
        door.open()
        try:
            if from_memory:
                yield door.server.port
                return
            command = [
                sys.executable,
                "-m",
                "bench.notifications",
                "work",
                str(folder),
                *map(str, there.ports),
            ]
            with subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as worker:
                assert worker.stdout is not None
                worker.stdout.readline()
                try:
                    yield door.server.port
                finally:
                    worker.communicate("\n")
        finally:
            door.close()


def work(folder: Path, ports: Sequence[int]) -> None:
    schedule_as_batch()
    with opened(folder, ports) as post:
        post.start()
        print("at work", flush=True)
        sys.stdin.readline()


def accept(folder: Path, seconds: float, *, from_memory: bool = False) -> dict[str, float]:
    """Messages that are handed over as fast as they are accepted."""
    with partners(1) as there, serving(folder, there, from_memory=from_memory) as port:
        return loaded(port, there.ports[0], seconds, 0.0)


def half_load(folder: Path, rate: float, seconds: float) -> dict[str, float]:
    """Delay from the moment a message is handed over until its first attempt arrives at the
    partner."""
    with partners(1) as there, serving(folder, there) as port:
        facts = loaded(port, there.ports[0], seconds, rate)
        delays: list[float] = []

        def all_there() -> bool:
            delays.extend(there.arrived()[1])
            return len(delays) >= facts["accepted"]

        until(all_there, "first attempts")
        return {"rate": facts["rate"], **percentiles(delays)}


def loaded(port: int, partner: int, seconds: float, rate: float) -> dict[str, float]:
    """Load from another process; `rate` 0: as much as is accepted."""
    command = [
        sys.executable,
        "-m",
        "bench.notifications",
        "load",
        str(port),
        str(partner),
        str(seconds),
        str(rate),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the load failed: {done.stderr.strip()[-1500:]}")
    facts: dict[str, float] = json.loads(done.stdout)
    return facts


async def load(port: int, partner: int, seconds: float, rate: float) -> dict[str, float]:
    spans: list[float] = []
    began = time.monotonic()
    numbers = iter(range(10**9))
    url = f"http://127.0.0.1:{port}/message"
    async with net.Client(allow_cidrs=HERE, connections=TASKS) as client:

        async def task() -> None:
            for number in numbers:
                if rate:
                    await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                sent = time.monotonic()
                if spans and sent > began + seconds:
                    return  # each task has sent one message at least, however slow the start was
                body = json.dumps(message(number, target(partner), sent)).encode()
                answer = await client.request_async(
                    "POST", url, headers={"Content-Type": "application/json"}, body=body
                )
                if answer.status != 200:
                    raise RuntimeError(answer.body.decode())
                spans.append((time.monotonic() - sent) * 1000)

        await asyncio.gather(*(task() for _ in range(TASKS)))
    took = time.monotonic() - began
    return {"accepted": len(spans), "rate": len(spans) / took, **percentiles(spans)}


def measure(words: Sequence[str]) -> dict[str, float]:
    name, folder, number = words[0], Path(words[1]), float(words[2])
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "wrk": lambda: wrk(folder, number),
        "bare": lambda: bare(folder, int(number)),
        "bare-aiohttp": lambda: bare_aiohttp(folder, int(number)),
        "deliver": lambda: deliver(folder, int(number)),
        "deliver-processes": lambda: deliver_with_processes(folder, int(number)),
        "deliver-pinned": lambda: deliver_with_processes(folder, int(number), "--pin"),
        "all-healthy": lambda: among(folder, int(number), 0),
        "one-hangs": lambda: among(folder, int(number), 1),
        "accept-memory": lambda: accept(folder, number, from_memory=True),
        "accept": lambda: accept(folder, number),
        "half-load": lambda: half_load(folder, number, float(words[3])),
        "waiting": lambda: waiting(folder, int(number)),
    }
    return parts[name]()


def main() -> None:
    if sys.argv[1] == "load":
        port, partner = map(int, sys.argv[2:4])
        seconds, rate = map(float, sys.argv[4:6])
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            print(json.dumps(runner.run(load(port, partner, seconds, rate))))
    elif sys.argv[1] == "work":
        work(Path(sys.argv[2]), [int(port) for port in sys.argv[3:]])
    else:
        print(json.dumps(measure(sys.argv[1:])), flush=True)


if __name__ == "__main__":
    main()
