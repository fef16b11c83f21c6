"""The HTTP client on event loops and in threads: cancelled calls, closed clients, ended
processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.net.partner import (
    LARGE,
    OPEN,
    PATIENCE,
    PATIENT,
    Line,
    Partner,
    StoppedClock,
    always,
    hang,
)

import milepost_net as net
from milepost_net import SendState
from milepost_net.connection import Exchange


# Event loops, cancelled calls, and the end --------------------------------------------------------
def test_calls_on_an_event_loop_run_beside_each_other() -> None:
    together = threading.Barrier(8)

    def script(line: Line) -> None:
        while line.read() is not None:
            together.wait(PATIENCE)
            line.answer(200, b"ok")

    async def main(url: str) -> None:
        async with net.Client(allow_cidrs=OPEN) as client:
            answers = await asyncio.gather(
                *(client.request_async("POST", url, body=b"x") for _ in range(8))
            )
            assert {answer.body for answer in answers} == {b"ok"}
            await asyncio.gather(*(client.request_async("POST", url, body=b"x") for _ in range(8)))

    with Partner(script) as partner:
        asyncio.run(main(partner.url))
        assert partner.connections == 8


def test_one_client_serves_threads_and_several_event_loops(client: net.Client) -> None:
    async def main(url: str) -> int:
        try:
            return (await client.request_async("GET", url)).status
        finally:
            await client.close_async()

    with Partner(always()) as partner:
        assert client.request("GET", partner.url).status == 200
        assert [asyncio.run(main(partner.url)) for _ in range(3)] == [200] * 3
        assert client.request("GET", partner.url).status == 200
        assert partner.connections == 4


def test_a_cancelled_call_closes_its_connection_and_the_next_one_works() -> None:
    gone = threading.Event()

    def script(line: Line) -> None:
        line.read()
        if line.number == 1:
            line.read()
            gone.set()
        else:
            line.answer()

    async def main(partner: Partner) -> None:
        async with net.Client(allow_cidrs=OPEN, timeouts=PATIENT, connections=1) as client:
            call = asyncio.ensure_future(client.request_async("GET", partner.url))
            await asyncio.to_thread(partner.came.wait, PATIENCE)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(gone.wait, PATIENCE)
            assert (await client.request_async("GET", partner.url)).status == 200

    with Partner(script) as partner:
        asyncio.run(main(partner))


def test_a_call_that_is_cancelled_while_its_sink_writes_waits_for_that_write() -> None:
    writing, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def sink(piece: bytes) -> None:
        writing.set()
        go_on.wait(PATIENCE)
        ended.set()

    async def main(partner: Partner) -> None:
        async with net.Client(allow_cidrs=OPEN, timeouts=PATIENT) as client:
            call = asyncio.ensure_future(
                client.request_async("GET", partner.url, sink=sink, largest=len(LARGE))
            )
            await asyncio.to_thread(writing.wait, PATIENCE)
            call.cancel()
            await asyncio.sleep(0.01)
            assert not call.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert ended.is_set()

    with Partner(always(200, LARGE)) as partner:
        asyncio.run(main(partner))


def test_closing_the_client_ends_calls_under_way_and_says_how_far_they_got() -> None:
    async def stuck(host: str) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    asked = threading.Event()
    with Partner(hang) as partner, ThreadPoolExecutor(2) as threads:
        client = net.Client(allow_cidrs=OPEN, timeouts=PATIENT, resolver=stuck)
        sent = threads.submit(client.request, "POST", partner.url)
        resolving = threads.submit(client.request, "POST", "http://partner.example/")
        assert partner.came.wait(PATIENCE)
        assert asked.wait(PATIENCE)
        client.close()
        for call, state in ((sent, SendState.MAYBE_SENT), (resolving, SendState.NOT_SENT)):
            with pytest.raises(net.CallStopped) as caught:
                call.result()
            assert caught.value.sent is state


def test_closing_on_an_event_loop_ends_its_calls_and_leaves_their_tasks_whole() -> None:
    async def main(partner: Partner) -> None:
        client = net.Client(allow_cidrs=OPEN, timeouts=PATIENT)

        async def call() -> str:
            try:
                await client.request_async("GET", partner.url)
            except net.CallStopped as error:
                await asyncio.sleep(0)  # the task is not cancelled for what comes after
                return error.sent
            return "answered"

        task = asyncio.ensure_future(call())
        await asyncio.to_thread(partner.came.wait, PATIENCE)
        await client.close_async()
        assert await task == SendState.MAYBE_SENT

    with Partner(hang) as partner:
        asyncio.run(main(partner))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(b"HTTP/1.1 204 No\r\n\r\n", "204"), (b"HTTP/1.1 200 OK\r\nContent-Le", "timeout")],
)
def test_an_answer_that_came_while_the_process_was_stopped_is_read_before_the_call_is_late(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, expected: str
) -> None:
    """uvloop runs the timers that are due before it reads. Here the test does: the loop has no turn
    between the answer and the deadline."""
    exchanges: list[Exchange] = []
    asked, answered = threading.Event(), threading.Event()

    class Recorded(Exchange):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            exchanges.append(self)

    def script(line: Line) -> None:
        line.read()
        asked.wait(PATIENCE)
        line.send(answer)
        answered.set()
        line.closing.wait()

    async def main(url: str) -> str:
        clock = StoppedClock(asyncio.get_running_loop())
        async with net.Client(allow_cidrs=OPEN, timeouts=PATIENT) as client:
            call = asyncio.ensure_future(client.request_async("GET", url))
            await asyncio.to_thread(partner.came.wait, PATIENCE)
            asked.set()
            assert answered.wait(PATIENCE), "the loop stands still meanwhile"
            clock.jump(PATIENCE + 1)
            [exchange] = exchanges
            exchange._check()
            await clock.move(1)
            try:
                return str((await call).status)
            except net.NetError as error:
                return error.kind

    monkeypatch.setattr("milepost_net.client.Exchange", Recorded)
    with Partner(script) as partner:
        assert asyncio.run(main(partner.url)) == expected


PROGRAM = """
import sys, threading
import milepost_net as net

client = net.Client(allow_cidrs=["127.0.0.0/8"], timeouts=net.Timeouts(60, 60, 60))

def call():
    try:
        client.request("GET", sys.argv[1])
    except net.NetError as error:
        print(error.kind, flush=True)

thread = threading.Thread(target=call, daemon=True)
thread.start()
sys.stdin.readline()
"""


def test_a_process_ends_though_a_call_is_under_way() -> None:
    """The call's thread is a daemon here, as the threads of handlers are: nothing waits for the
    partner."""
    with Partner(hang) as partner:
        program = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PROGRAM, partner.url],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert partner.came.wait(PATIENCE)
        _, said = program.communicate(b"\n", timeout=PATIENCE)
    assert (program.returncode, said) == (0, b"")


INTERRUPTED = """
import sys
import milepost_net as net

with net.Client(allow_cidrs=["127.0.0.0/8"], timeouts=net.Timeouts(60, 60, 60)) as client:
    try:
        client.request("GET", sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_ends_the_call() -> None:
    gone = threading.Event()

    def script(line: Line) -> None:
        line.read()
        assert line.read() is None
        gone.set()

    with Partner(script) as partner:
        command = [sys.executable, "-W", "error", "-c", INTERRUPTED, partner.url]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert partner.came.wait(PATIENCE)
        program.send_signal(signal.SIGINT)
        said, error = program.communicate(timeout=PATIENCE)
        assert (program.returncode, said, error) == (0, b"interrupted\n", b"")
        assert gone.wait(PATIENCE)


FORKED = """
import os, sys
import milepost_net as net

client = net.Client(allow_cidrs=["127.0.0.0/8"])
assert client.request("GET", sys.argv[1]).status == 200
child = os.fork()
if not child:
    os._exit(0 if client.request("GET", sys.argv[1]).status == 200 else 1)
_, status = os.waitpid(child, 0)
assert client.request("GET", sys.argv[1]).status == 200
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_process_calls_on_a_loop_of_its_own() -> None:
    with Partner(always()) as partner:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, partner.url],
            capture_output=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert partner.connections == 2


def test_of_the_library_the_command_line_and_the_engine_load_the_rule_of_urls_alone() -> None:
    program = (
        "import sys, milepost.app, milepost.subscribers, milepost.cli.commands;"
        "print(sorted(name for name in sys.modules if name.startswith('milepost_net')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['milepost_net', 'milepost_net.hidden_urls']\n", done.stderr


def test_every_public_name_is_where_it_is_said_to_be() -> None:
    assert (
        sorted(name for names in net._HOMES.values() for name in names)
        == net.__all__
        == sorted(net.__all__)
    )
    for name in net.__all__:
        assert getattr(net, name) is not None


# Many calls at once, to a partner that does everything wrong --------------------------------------
def _misbehave(line: Line) -> None:
    while (request := line.read()) is not None:
        said = request.target.encode()
        kind = int(request.target.rpartition("/")[2]) % 11
        plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said)
        if kind < 4:
            line.send(plain)
        elif kind == 4:
            line.send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
                % (len(said), said)
            )
        elif kind == 5:
            line.send(plain)
            return
        elif kind == 6:
            line.send(plain + plain.replace(b"/", b"!"))
        elif kind == 7:
            line.send(plain[:-1])
            return
        elif kind == 8:
            line.reset()
            return
        elif kind == 9:
            line.send(b"HTTP/1.1 200 OK\r\n\r\n" + said)
            return
        else:
            line.send(plain)
            line.send(b"\r\n\r\n")


def test_among_many_calls_each_gets_its_own_answer_or_an_error() -> None:
    """Every answer repeats what was asked. Connections are closed, reset and spoilt all the while,
    and no answer is ever mixed up."""
    results: dict[int, str] = {}

    async def main(url: str) -> None:
        async with net.Client(allow_cidrs=OPEN, connections=4) as client:

            async def some(first: int) -> None:
                for number in range(first, 330, 16):
                    try:
                        answer = await client.request_async(
                            "POST", f"{url}{number}", body=b"x", repeatable=number % 2 == 0
                        )
                    except net.NetError as error:
                        results[number] = error.kind
                    else:
                        assert answer.body == f"/{number}".encode()
                        results[number] = "answered"

            await asyncio.gather(*(some(first) for first in range(16)))

    with Partner(_misbehave) as partner:
        asyncio.run(main(partner.url))
    assert len(results) == 330
    for number, result in results.items():
        # Any call may meet a connection that the partner spoils in this moment; one that may be
        # repeated survives one that is closed.
        own = {7: "cut", 8: "closed"}.get(number % 11, "answered")
        assert result in (own, "malformed") or (number % 2 and result == "closed")
    assert sum(result == "answered" for result in results.values()) > 165
