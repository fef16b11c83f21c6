"""Partners for the notifications section: HTTP servers on loopback that answer at once, or never.

One process serves them all: `python -m bench.partners HEALTHY HANGING` prints their ports, then
answers each line on its standard input with what has arrived since the line before.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

from bench.parts import ROOT
from milepost_net.background import new_event_loop

SENT = b'"sentAt":'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class Arrivals:
    """Requests that have arrived: how many, and how long after the time that their bodies name."""

    def __init__(self) -> None:
        self.count = 0
        self.delays_ms: list[float] = []

    def add(self, body: bytes) -> None:
        self.count += 1
        place = body.find(SENT)
        if place >= 0:
            sent = float(body[place + len(SENT) :].split(b",", 1)[0].split(b"}", 1)[0])
            self.delays_ms.append((time.monotonic() - sent) * 1000)


class PartnerConnection(asyncio.Protocol):
    """Reads requests with a Content-Length and answers each; a hanging partner reads and says
    nothing."""

    def __init__(self, arrivals: Arrivals | None) -> None:
        self._arrivals, self._buffer = arrivals, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._arrivals is None:
            return
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            begin = end + 4
            if len(self._buffer) < begin + length:
                return
            self._arrivals.add(self._buffer[begin : begin + length])
            self._buffer = self._buffer[begin + length :]
            self._transport.write(ANSWER)


async def serve(healthy: int, hanging: int) -> None:
    loop = asyncio.get_running_loop()
    arrivals = Arrivals()
    ports = []
    for number in range(healthy + hanging):
        connect = partial(PartnerConnection, arrivals if number < healthy else None)
        listening = await loop.create_server(connect, "127.0.0.1", 0)
        ports.append(listening.sockets[0].getsockname()[1])
    print(json.dumps(ports), flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"count": arrivals.count, "delays_ms": arrivals.delays_ms}), flush=True)
        arrivals.count, arrivals.delays_ms = 0, []


class Partners:
    """The running partners: their ports, and what has arrived."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self.ports: list[int] = json.loads(self._read())

    def arrived(self) -> tuple[int, list[float]]:
        """Requests at the healthy partners since the last call, and the delay of each in
        milliseconds."""
        assert self._program.stdin is not None
        self._program.stdin.write("\n")
        self._program.stdin.flush()
        found = json.loads(self._read())
        return found["count"], found["delays_ms"]

    def _read(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline()


@contextmanager
def partners(healthy: int, hanging: int = 0) -> Iterator[Partners]:
    command = [sys.executable, "-m", "bench.partners", str(healthy), str(hanging)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            yield Partners(program)
        finally:
            program.kill()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2])))
