"""start, stop, run and run_async inside a program: everything ends by itself, drained, and nothing
stays leased."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.interrupts import interrupt_beside_main_thread
from tests.polling import wait_until

import milepost as mp
from milepost.app import BackgroundRun
from milepost.core.errors import LedgerDamaged, LedgerFull, UsageError
from milepost.core.status import Status
from milepost.ports.items import Query

TIMEOUT = 60
LOAD = 120


def one_stage(handler: Callable[..., Any], **options: Any) -> mp.Route:
    route = mp.Route("letters", key="id")
    route.stage("send", **options)(handler)
    return route


def submit(post: mp.Milepost, n: int, start: int = 0) -> None:
    assert {
        receipt.answer
        for receipt in post.submit(
            "letters", *({"id": f"L-{number}"} for number in range(start, start + n))
        )
    } == {"new"}


def rows(post: mp.Milepost) -> list[Any]:
    return [item.row for item in post.context.ledger.find(Query(route="letters")).items]


def check_drained(post: mp.Milepost) -> Counter[Status]:
    """Nothing is held, no try was counted, and the threads have ended."""
    found = rows(post)
    assert [
        row.key for row in found if row.status is Status.PROCESSING or row.lease is not None
    ] == []
    assert {row.attempts for row in found} <= {0}
    assert not post.running
    return Counter(row.status for row in found)


async def eventually_async(holds: Callable[[], bool]) -> None:
    for _ in range(TIMEOUT * 100):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


def joined(thread: threading.Thread) -> None:
    thread.join(TIMEOUT)
    assert not thread.is_alive(), f"{thread.name} does not end"


class Gate:
    """Handlers that begin, and end when they are let go."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = 0
        self._lock = threading.Lock()

    def plain(self, item: mp.Item) -> mp.Outcome:
        with self._lock:
            self.begun += 1
        self.open.wait(TIMEOUT)
        return mp.Done()

    async def awaited(self, item: mp.Item) -> mp.Outcome:
        with self._lock:
            self.begun += 1
        while not self.open.is_set():
            await asyncio.sleep(0.005)
        return mp.Done()


def gated(gate: Gate, kind: str, **options: Any) -> mp.Route:
    return one_stage(gate.plain if kind == "plain" else gate.awaited, **options)


class StageThreads:
    """The threads of workers and handlers that were started in one test; other tests may have left
    some behind."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def left(self) -> list[threading.Thread]:
        ours = [thread for thread in threading.enumerate() if thread not in self._before]
        return [
            thread
            for thread in ours
            if thread.name.startswith("stage-") or thread.name in ("milepost", "worker", "handlers")
        ]


@pytest.fixture
def threads() -> StageThreads:
    return StageThreads()


# On all ledgers, under load -----------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_stop_drains_under_load_and_start_goes_on_from_there(
    url: str, kind: str, threads: StageThreads
) -> None:
    gate = Gate()
    with mp.open(url, [gated(gate, kind, concurrency=4)]) as post:
        submit(post, LOAD)
        post.start()
        wait_until(lambda: gate.begun >= 4)
        gate.open.set()
        assert post.stop("30s") is True
        counted = check_drained(post)
        assert counted[Status.COMPLETED] >= 4
        assert sum(counted.values()) == LOAD
        post.start()
        submit(post, LOAD, start=LOAD)
        wait_until(
            lambda: post.status()["routes"]["letters"]["statuses"].get("COMPLETED", 0) == 2 * LOAD
        )
        assert post.running
    assert not post.running
    wait_until(lambda: threads.left() == [])


def test_leaving_the_with_block_stops_and_drains_first(url: str) -> None:
    gate = Gate()
    gate.open.set()
    done: list[str] = []
    route = one_stage(lambda item: (done.append(item.key), gate.plain(item))[1], concurrency=4)
    with mp.open(url, [route]) as post:
        submit(post, LOAD)
        post.start()
        wait_until(lambda: len(done) > 4)
        ledger = post.context.ledger
        closed: list[Counter[Status]] = []
        close = ledger.close
        ledger.close = lambda: (closed.append(check_drained(post)), close())[1]  # type: ignore[method-assign]
    [counted] = closed
    assert counted[Status.COMPLETED] == len(done), "each handler that was begun has finished"


def test_run_in_a_thread_ends_when_another_closes(url: str) -> None:
    gate = Gate()
    post = mp.open(url, [gated(gate, "plain", concurrency=2)])
    submit(post, 20)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            post.run(until_idle=None)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="program")
    thread.start()
    wait_until(lambda: gate.begun == 2)
    gate.open.set()
    post.close()
    joined(thread)
    assert errors == []


async def _under_load(url: str, cancel: Callable[[mp.Milepost, asyncio.Task[None]], Any]) -> None:
    """A program whose loop the handlers share, stopped in the midst of its work."""
    loop, running, most = asyncio.get_running_loop(), 0, 0
    begun: list[str] = []

    async def handler(item: mp.Item) -> mp.Outcome:
        nonlocal running, most
        assert asyncio.get_running_loop() is loop
        begun.append(item.key)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return mp.Done()

    async with mp.open(url, [one_stage(handler, concurrency=8)]) as post:
        await asyncio.to_thread(submit, post, LOAD)
        task = asyncio.create_task(post.run_async())
        await eventually_async(lambda: len(begun) > 8)
        answer = cancel(post, task)
        if asyncio.iscoroutine(answer):
            assert await answer
        try:
            await task
        except asyncio.CancelledError:
            assert task.cancelled()
        counted = await asyncio.to_thread(check_drained, post)
        assert counted[Status.COMPLETED] == len(begun) > 8
        assert running == 0
        assert 1 < most <= 8
        again = asyncio.create_task(post.run_async(until_idle=0))
        await again
        assert (await asyncio.to_thread(check_drained, post)) == {Status.COMPLETED: LOAD}


def test_a_cancelled_run_async_drains_and_may_begin_again(url: str) -> None:
    asyncio.run(_under_load(url, lambda post, task: task.cancel()))


def test_run_async_is_stopped_from_its_own_loop(url: str) -> None:
    asyncio.run(_under_load(url, lambda post, task: post.stop_async("30s")))


# On the two that are quick to make ----------------------------------------------------------------
def test_stop_before_start_and_stop_twice_do_nothing(quick_url: str) -> None:
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        assert post.stop()
        assert post.stop(0)
        post.start()
        post.start()
        submit(post, 3)
        wait_until(lambda: check(post, 3))
        assert post.stop()
        assert post.stop()
        post.close()
        post.close()
        assert not post.running
        with pytest.raises(UsageError, match="closed"):
            post.start()


def check(post: mp.Milepost, n: int) -> bool:
    return bool(post.status()["routes"]["letters"]["statuses"].get("COMPLETED", 0) == n)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_handler_that_does_not_end_within_the_grace_is_given_back_with_its_result_unknown(
    quick_url: str, kind: str, threads: StageThreads
) -> None:
    gate = Gate()
    with mp.open(quick_url, [gated(gate, kind, concurrency=2)]) as post:
        submit(post, 5)
        post.start()
        wait_until(lambda: gate.begun == 2)
        assert post.stop(grace=0)
        check_drained(post)
        assert Counter(row.unknown for row in rows(post)) == {True: 2, False: 3}
        gate.open.set()
    wait_until(lambda: threads.left() == [])


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_handler_may_stop_its_own_program(quick_url: str, kind: str) -> None:
    answers: list[bool] = []

    def plain(item: mp.Item) -> mp.Outcome:
        answers.append(post.stop())
        return mp.Done()

    async def awaited(item: mp.Item) -> mp.Outcome:
        answers.append(post.stop())
        answers.append(await post.stop_async())
        return mp.Done()

    with mp.open(
        quick_url, [one_stage(plain if kind == "plain" else awaited, concurrency=1)]
    ) as post:
        submit(post, 3)
        post.start()
        wait_until(lambda: not post.running)
        assert set(answers) == {False}, "it cannot wait for itself"
        counted = check_drained(post)
        assert counted[Status.COMPLETED] >= 1
        assert post.stop()


def test_a_subscriber_may_stop_the_program_too(quick_url: str) -> None:
    from milepost.subscribers import CallSubscriber

    answers: list[bool] = []
    ear = CallSubscriber(lambda event: answers.append(post.stop()), name="ear")
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())], subscribers=[ear]) as post:
        submit(post, 3)
        post.run(until_idle=None)
    assert answers
    assert set(answers) == {False}


def test_close_in_a_handler_is_refused_and_the_drain_goes_on(quick_url: str) -> None:
    errors: list[BaseException] = []

    def handler(item: mp.Item) -> mp.Outcome:
        try:
            post.close()
        except UsageError as error:
            errors.append(error)
        return mp.Done()

    with mp.open(quick_url, [one_stage(handler, concurrency=1)]) as post:
        submit(post, 1)
        post.start()
        wait_until(lambda: not post.running)
        assert check_drained(post) == {Status.COMPLETED: 1}
    assert "cannot wait" in str(errors[0])


def failing(post: mp.Milepost) -> None:
    """Every claim raises an error that waiting does not mend."""

    def damaged(*_: Any) -> Any:
        raise LedgerDamaged("the file is damaged")

    post.context.ledger.claim = damaged  # type: ignore[method-assign]


def test_a_full_disk_is_waited_for_and_the_program_goes_on_when_there_is_room(
    quick_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.station.BUSY_S", 0.01)
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        claim, refused = post.context.ledger.claim, 0

        def full(*given: Any) -> Any:
            nonlocal refused
            if refused < 3:
                refused += 1
                raise LedgerFull("no space is left")
            return claim(*given)

        post.context.ledger.claim = full  # type: ignore[method-assign]
        submit(post, 3)
        post.start()
        wait_until(lambda: check(post, 3))
        assert refused == 3
        assert post.running
        assert caplog.text.count("is waiting for the ledger: no space is left") == 1
        assert post.stop()
        assert check_drained(post) == {Status.COMPLETED: 3}


def test_an_error_in_the_background_is_raised_by_stop_once(
    quick_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        failing(post)
        post.start()
        wait_until(lambda: not post.running)
        assert "stop() raises it" in caplog.text
        with pytest.raises(LedgerDamaged, match="is damaged"):
            post.stop()
        assert post.stop()


def test_a_run_that_failed_counts_as_running_until_its_error_is_logged(
    quick_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging_began, log_it = threading.Event(), threading.Event()

    def log_slowly(*args: object, **kwargs: object) -> None:
        logging_began.set()
        log_it.wait(30)

    monkeypatch.setattr("milepost.app.log.error", log_slowly)
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        failing(post)
        post.start()
        assert logging_began.wait(30)
        assert post.running
        log_it.set()
        wait_until(lambda: not post.running)
        with pytest.raises(LedgerDamaged, match="is damaged"):
            post.stop()


def test_an_error_in_the_background_is_raised_by_the_next_start_and_by_the_end_of_the_block(
    quick_url: str,
) -> None:
    with pytest.raises(LedgerDamaged, match="is damaged"):
        with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
            failing(post)
            post.start()
            wait_until(lambda: not post.running)
            with pytest.raises(LedgerDamaged, match="is damaged"):
                post.start()
            post.start()
            wait_until(lambda: not post.running)


def test_an_error_of_the_block_is_not_hidden_by_one_in_the_background(quick_url: str) -> None:
    with pytest.raises(ValueError, match="mine"):
        with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
            failing(post)
            post.start()
            wait_until(lambda: not post.running)
            raise ValueError("mine")


def test_run_and_run_async_raise_what_ended_them(quick_url: str) -> None:
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        failing(post)
        with pytest.raises(LedgerDamaged):
            post.run(until_idle=None)
        with pytest.raises(LedgerDamaged):
            asyncio.run(post.run_async())
        assert post.stop()


@pytest.mark.parametrize("error", [StopIteration("mine"), asyncio.CancelledError("mine")])
def test_run_async_ends_with_an_error_that_no_future_can_hold(
    quick_url: str, error: BaseException
) -> None:
    """Such as the StopIteration of a `next()` without a default."""

    def fails(*_: Any) -> Any:
        raise error

    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        post.context.ledger.claim = fails  # type: ignore[method-assign]
        with pytest.raises((RuntimeError, asyncio.CancelledError), match=r"mine|StopIteration"):
            asyncio.run(post.run_async())


def test_stop_on_the_loop_of_run_async_begins_the_drain_and_does_not_wait(quick_url: str) -> None:
    async def main() -> None:
        async with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
            task = asyncio.create_task(post.run_async())
            await eventually_async(lambda: post.running)
            assert post.stop() is False
            await task
            assert post.stop() is True

    asyncio.run(main())


def test_a_second_cancellation_cuts_running_handlers_off(quick_url: str) -> None:
    async def main() -> None:
        gate = Gate()
        async with mp.open(quick_url, [gated(gate, "async", concurrency=2)]) as post:
            submit(post, 4)
            task = asyncio.create_task(post.run_async())
            await eventually_async(lambda: gate.begun == 2)
            [run] = post._runs
            task.cancel()
            await eventually_async(lambda: run._station.stopping.is_set())
            assert not task.done(), "running handlers have their grace"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            check_drained(post)
            assert Counter(row.unknown for row in rows(post)) == {True: 2, False: 2}

    asyncio.run(main())


def test_a_program_that_ends_without_waiting_gives_its_work_back_uncounted(quick_url: str) -> None:
    """asyncio.run cancels every task at its end, those of the handlers among them."""
    gate = Gate()
    post = mp.open(quick_url, [gated(gate, "async", concurrency=2)])
    submit(post, 4)

    async def main() -> None:
        main.task = asyncio.create_task(post.run_async())  # type: ignore[attr-defined]
        await eventually_async(lambda: gate.begun == 2)
        gate.open.clear()

    asyncio.run(main())
    check_drained(post)
    assert Counter(row.status for row in rows(post)) == {Status.QUEUED: 4}
    post.close()


def test_a_handler_that_cancels_its_own_task_has_failed_whichever_loop_it_runs_on(
    quick_url: str,
) -> None:
    async def handler(item: mp.Item) -> mp.Outcome:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return mp.Done()

    with mp.open(quick_url, [one_stage(handler, retry=mp.Backoff(attempts=2, base=0))]) as post:
        submit(post, 2)
        asyncio.run(post.run_async(until_idle=1))
        assert {(row.status, row.attempts) for row in rows(post)} == {
            (Status.MAX_RETRIES_EXCEEDED, 2)
        }


PROGRAM = """
import asyncio
import sys
import threading
import time

import milepost as mp

route = mp.Route("letters", key="id")

@route.stage("send", concurrency=1)
def send(item):
    print("begun", flush=True)
    time.sleep(float(sys.argv[2]))
    return mp.Done()

post = mp.open("sqlite:///letters.db", [route], grace="30s")
post.submit("letters", *({"id": f"L-{number}"} for number in range(3)))
try:
    if sys.argv[1] == "run":
        post.run(until_idle=None)
    else:
        asyncio.run(post.run_async())
except KeyboardInterrupt:
    print(post.running, flush=True)
"""


@contextmanager
def program_at_work(
    tmp_path: Path, method: str, handler_s: float
) -> Iterator[subprocess.Popen[str]]:
    """A program in whose handler an item has arrived."""
    command = [sys.executable, "-c", PROGRAM, method, str(handler_s)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def statuses_after(folder: Path) -> Counter[Status]:
    """How many items the program has left in which status."""
    with mp.open(f"sqlite:///{folder}/letters.db", [one_stage(lambda item: mp.Done())]) as post:
        return check_drained(post)


@pytest.mark.parametrize("method", ["run", "run_async"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_a_program_before_it_ends(
    tmp_path: Path, method: str, number: signal.Signals
) -> None:
    with program_at_work(tmp_path, method, 0.5) as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=TIMEOUT)
    if number is signal.SIGINT:
        assert (output, errors, process.returncode) == ("False\n", "", 0)
    else:
        assert (output, errors, process.returncode) == ("", "", -signal.SIGTERM)
    assert statuses_after(tmp_path) == {Status.COMPLETED: 1, Status.QUEUED: 2}


def test_a_second_signal_ends_run_at_once(tmp_path: Path) -> None:
    with program_at_work(tmp_path, "run", TIMEOUT) as process:
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: _signals_waiting(process.pid) == 0)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT / 2)
    assert (errors, process.returncode) == ("", -signal.SIGTERM)


def _signals_waiting(process: int) -> int:
    """How many signals the kernel has not handed over yet (Linux)."""
    status = Path(f"/proc/{process}/status").read_text()
    pending = [
        line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))
    ]
    return sum(int(mask, 16) for mask in pending)


def test_ctrl_c_that_does_not_interrupt_the_wait_of_run_is_handled(tmp_path: Path) -> None:
    with program_at_work(tmp_path, "run", 0.5) as process:
        interrupt_beside_main_thread(process.pid)
        output, errors = process.communicate(timeout=TIMEOUT)
    assert (output, errors, process.returncode) == ("False\n", "", 0)
    assert statuses_after(tmp_path) == {Status.COMPLETED: 1, Status.QUEUED: 2}


def test_a_signal_that_comes_before_the_work_has_begun_drains_it_too(
    quick_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = BackgroundRun.start

    def interrupted(run: BackgroundRun) -> None:
        signal.raise_signal(signal.SIGINT)
        begin(run)

    monkeypatch.setattr(BackgroundRun, "start", interrupted)
    # As a program has it: a test before this one may have left another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
            with pytest.raises(KeyboardInterrupt):
                post.run(until_idle=None)
            assert not post.running
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_the_program_handles_itself_is_left_to_it(quick_url: str) -> None:
    received: list[int] = []

    def handler(item: mp.Item) -> mp.Outcome:
        signal.raise_signal(signal.SIGTERM)
        return mp.Done()

    def own(number: int, _frame: Any) -> None:
        received.append(number)

    before = signal.signal(signal.SIGTERM, own)
    try:
        with mp.open(quick_url, [one_stage(handler)]) as post:
            submit(post, 1)
            post.run(until_idle=0)
            submit(post, 1, start=1)
            asyncio.run(post.run_async(until_idle=0))
            assert check_drained(post) == {Status.COMPLETED: 2}
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM] * 2


def test_start_leaves_signals_alone(quick_url: str) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM]
    before = [signal.getsignal(number) for number in numbers]
    with mp.open(quick_url, [one_stage(lambda item: mp.Done())]) as post:
        post.start()
        assert [signal.getsignal(number) for number in numbers] == before
