"""Requests that go out: `milepost_net` beside aiohttp and the standard library, POSTs of 1 KB to a
server on loopback.

The server answers from memory, in a process of its own: `python -m bench.net serve`. Each client is
a process too: `python -m bench.net MODE PORT SECONDS`. aiohttp is left out where it is not
installed (`pip install aiohttp`).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any, cast

import milepost_net as net
from bench.measure import Span
from bench.parts import ROOT

BODY = b"x" * 1_024
HERE = ["127.0.0.0/8"]
HEADERS = {"Content-Type": "application/json", "X-Message-ID": "m-1"}
TASKS = 64
THREADS = 16
Part = Callable[..., dict[str, float]]
MODES = {
    "ours-uvloop": f"ours, {TASKS} tasks, uvloop",
    "aiohttp-uvloop": f"aiohttp, {TASKS} tasks, uvloop",
    "ours-asyncio": f"ours, {TASKS} tasks, asyncio",
    "aiohttp-asyncio": f"aiohttp, {TASKS} tasks, asyncio",
    "ours-threads": f"ours, {THREADS} threads",
    "http.client-threads": f"http.client, {THREADS} threads",
    "urllib-threads": f"urllib, {THREADS} threads, a connection each time",
    "ours-one": "ours, one thread",
    "http.client-one": "http.client, one thread",
}
RATIOS = {
    "ours-uvloop": "aiohttp-uvloop",
    "ours-asyncio": "aiohttp-asyncio",
    "ours-threads": "http.client-threads",
    "ours-one": "http.client-one",
}
"""Each mode of ours with the one that it is compared with, round by round."""


def run(
    part: Part, *, quick: bool, say: Callable[[str], None], seconds: float | None = None
) -> dict[str, Any]:
    """Rounds of all modes, each in a process of its own; medians and ratios."""
    seconds, rounds = seconds or (1 if quick else 3), 1 if quick else 5
    modes = [mode for mode in MODES if "aiohttp" not in mode or find_spec("aiohttp") is not None]
    if len(modes) < len(MODES):
        say("net: aiohttp is left out: it is not installed (pip install aiohttp)")
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    with server() as port:
        for _ in range(rounds):
            for mode in modes:
                facts = part(mode, port, seconds, module="bench.net")
                found[mode].append(facts)
                say(
                    f"net: {MODES[mode]}: {facts['rate']:,.0f}/s, {facts['cpu_us']:.0f} µs of CPU each"
                )
    medians: dict[str, Any] = {
        mode: {name: median(facts[name] for facts in each) for name in each[0]}
        for mode, each in found.items()
    }
    ratios = {
        mode: {
            "rate": median(
                one["rate"] / two["rate"] for one, two in zip(found[mode], found[to], strict=True)
            ),
            "cpu": median(
                one["cpu_us"] / two["cpu_us"]
                for one, two in zip(found[mode], found[to], strict=True)
            ),
        }
        for mode, to in RATIOS.items()
        if to in found
    }
    return {"modes": medians, "ratios": ratios}


def text(found: dict[str, Any]) -> str:
    lines = [
        "",
        "Requests that go out: POST of 1 KB to a server on loopback, one process (medians)",
        "",
    ]
    lines.append(f"  {'':52}{'requests/s':>12}{'CPU µs each':>14}")
    lines += [
        f"  {MODES[mode]:52}{facts['rate']:>12,.0f}{facts['cpu_us']:>14.0f}"
        for mode, facts in found["modes"].items()
    ]
    lines += ["", f"  {'ratios, round by round':52}{'requests/s':>12}{'CPU':>14}"]
    for mode, ratio in found["ratios"].items():
        lines.append(
            f"  {MODES[mode] + ' / ' + RATIOS[mode]:52}{ratio['rate']:>12.2f}{ratio['cpu']:>14.2f}"
        )
    return "\n".join(lines)


# The server ---------------------------------------------------------------------------------------
class _Answers(asyncio.Protocol):
    """Answers each POST with 200 and two bytes, without looking at it more than it must."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._buffer = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0 and len(self._buffer) >= end + 4 + len(
            BODY
        ):
            self._buffer = self._buffer[end + 4 + len(BODY) :]
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: bench\r\nContent-Length: 2\r\n\r\nok"
            )


def serve() -> None:
    async def main() -> None:
        listening = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", 0)
        print(listening.sockets[0].getsockname()[1], flush=True)
        await listening.serve_forever()

    with asyncio.Runner(loop_factory=_loop_factory("uvloop")) as runner:
        runner.run(main())


@contextmanager
def server() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.net", "serve"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        try:
            yield int(program.stdout.readline())
        finally:
            program.kill()


def _loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if kind == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return asyncio.new_event_loop


# The clients --------------------------------------------------------------------------------------
def measure(words: Sequence[str]) -> dict[str, float]:
    """Requests a second and CPU per request of one mode."""
    who, how = words[0].split("-")
    url, seconds = f"http://127.0.0.1:{words[1]}/message", float(words[2])
    if how in ("uvloop", "asyncio"):
        with asyncio.Runner(loop_factory=_loop_factory(how)) as runner:
            return runner.run(
                _on_loop({"ours": _ours_async, "aiohttp": _aiohttp}[who], url, seconds)
            )
    with net.Client(allow_cidrs=HERE) as client:
        clients: dict[str, Callable[[str], AbstractContextManager[Call]]] = {
            "ours": partial(_ours, client),
            "http.client": _http_client,
            "urllib": _urllib,
        }
        return _in_threads(clients[who], url, seconds, THREADS if how == "threads" else 1)


Call = Callable[[], None]
CallAsync = Callable[[], Awaitable[None]]


async def _on_loop(
    calls: Callable[[str, Callable[[CallAsync], Awaitable[None]]], Awaitable[None]],
    url: str,
    seconds: float,
) -> dict[str, float]:
    facts: dict[str, float] = {}

    async def drive(call: CallAsync) -> None:
        count, ends = 0, 0.0

        async def task() -> None:
            nonlocal count
            while not count or time.perf_counter() < ends:
                await call()
                count += 1

        ends = time.perf_counter() + min(0.3, seconds)
        await asyncio.gather(*(task() for _ in range(TASKS)))
        count, ends = 0, time.perf_counter() + seconds
        with Span() as span:
            await asyncio.gather(*(task() for _ in range(TASKS)))
        facts.update(rate=count / span.seconds, cpu_us=span.cpu * 1e6 / count)

    await calls(url, drive)
    return facts


async def _ours_async(url: str, drive: Callable[[CallAsync], Awaitable[None]]) -> None:
    async with net.Client(allow_cidrs=HERE) as client:

        async def call() -> None:
            assert (
                await client.request_async("POST", url, headers=HEADERS, body=BODY)
            ).body == b"ok"

        await drive(call)


async def _aiohttp(url: str, drive: Callable[[CallAsync], Awaitable[None]]) -> None:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=30, connect=5, sock_read=15)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit_per_host=TASKS)
    ) as session:

        async def call() -> None:
            async with session.post(
                url, headers=HEADERS, data=BODY, allow_redirects=False
            ) as response:
                assert await response.read() == b"ok"

        await drive(call)


def _in_threads(
    calls: Callable[[str], AbstractContextManager[Call]], url: str, seconds: float, width: int
) -> dict[str, float]:
    counts = [0] * width
    ready, go = threading.Barrier(width + 1), threading.Barrier(width + 1)
    ends = 0.0

    def work(number: int) -> None:
        with calls(url) as call:
            call()
            ready.wait()
            go.wait()
            while not counts[number] or time.perf_counter() < ends:
                call()
                counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(width)]
    for thread in threads:
        thread.start()
    ready.wait()
    ends = time.perf_counter() + seconds
    with Span() as span:
        go.wait()
        for thread in threads:
            thread.join()
    return {"rate": sum(counts) / span.seconds, "cpu_us": span.cpu * 1e6 / sum(counts)}


@contextmanager
def _ours(client: net.Client, url: str) -> Iterator[Call]:
    def call() -> None:
        assert client.request("POST", url, headers=HEADERS, body=BODY).body == b"ok"

    yield call


@contextmanager
def _http_client(url: str) -> Iterator[Call]:
    host, _, path = url.removeprefix("http://").partition("/")
    with closing(http.client.HTTPConnection(host, timeout=15)) as connection:

        def call() -> None:
            connection.request("POST", f"/{path}", BODY, HEADERS)
            assert connection.getresponse().read() == b"ok"

        yield call


@contextmanager
def _urllib(url: str) -> Iterator[Call]:
    request = urllib.request.Request(url, BODY, HEADERS, method="POST")

    def call() -> None:
        with urllib.request.urlopen(request, timeout=15) as response:
            assert response.read() == b"ok"

    yield call


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(measure(sys.argv[1:])), flush=True)
