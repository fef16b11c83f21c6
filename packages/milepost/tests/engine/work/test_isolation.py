"""Isolation: one bad item, outcome, lane or call never stops the others."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core.errors import ActRefused, UsageError
from milepost.core.status import Status
from milepost.engine.acts.controls import pause
from milepost.station import Station
from milepost_testing import VirtualClock, drain

WAIT = 30


class Unwritable:
    pass


@dataclass
class Weight:
    grams: float


def leaves_behind(item: mp.Item) -> mp.Outcome:
    item.payload["answer"] = Unwritable()
    return mp.Done()


BAD: dict[str, tuple[Any, str]] = {
    "names that are no text": (lambda item: mp.Done({1: "a", "b": 2}), "WRONG_ANSWER"),
    "an object": (lambda item: mp.Done(Unwritable()), "WRONG_ANSWER"),
    # The answer is right; only the storage finds that what goes with it cannot be written.
    "a payload changed in place": (leaves_behind, "CANNOT_BE_STORED"),
    "NaN": (lambda item: mp.Done(math.nan), "WRONG_ANSWER"),
    "an infinity deep inside": (
        lambda item: mp.Done({"parts": [{"rate": (1, -math.inf)}]}),
        "WRONG_ANSWER",
    ),
    "an infinity in a dataclass": (lambda item: mp.Done(Weight(math.inf)), "WRONG_ANSWER"),
    "NaN as the next payload": (
        lambda item: mp.Done({"grams": 5}, payload={"grams": math.nan}),
        "WRONG_ANSWER",
    ),
    "a set": (lambda item: mp.Done({"boxes": {1, 2}}), "WRONG_ANSWER"),
    "an empty frozenset in a tuple": (lambda item: mp.Done((frozenset(),)), "WRONG_ANSWER"),
    "half a character": (lambda item: mp.Done({"text": "\ud800"}), "WRONG_ANSWER"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_outcome_that_cannot_be_written_is_its_own_items_failure(
    tmp_path: Path, name: str
) -> None:
    route = mp.Route("parcels", key="id")
    answer, category = BAD[name]

    route.stage("pack")(lambda item: mp.Done({"box": 1}))

    @route.stage("weigh", retry=mp.Backoff(attempts=1))
    def weigh(item: mp.Item) -> mp.Outcome:
        outcome: mp.Outcome = answer(item) if item.key == "bad" else mp.Done()
        return outcome

    route.stage("stamp")(lambda item: mp.Done())
    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        post.submit("parcels", *({"id": key} for key in ("a", "bad", "b")))
        post.run(until_idle=0.1)
        found = {key: post.show("parcels", key) or {} for key in ("a", "bad", "b")}
        assert (found["a"]["status"], found["b"]["status"]) == ("COMPLETED", "COMPLETED")
        assert (found["bad"]["status"], found["bad"]["error"]["category"]) == (
            "MAX_RETRIES_EXCEEDED",
            category,
        )


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        (
            {"parts": [{"rate": math.nan}]},
            "output.parts[0].rate is nan, which is no number in JSON; use None, or a text",
        ),
        ({"boxes": {1}}, "output.boxes is a set, which JSON does not have; use a list"),
    ],
)
def test_an_output_that_json_would_change_is_named(output: Any, fault: str) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh", retry=mp.Backoff(attempts=1))(lambda item: mp.Done(output))
    route.external("delivered")
    clock = VirtualClock()
    with mp.open("memory:", [route], clock=clock) as post:
        post.submit("parcels", {"id": "a"})
        drain(post, clock)
        error = post.show("parcels", "a")["error"]
        assert (error["category"], error["message"]) == (
            "WRONG_ANSWER",
            f"the handler returned a Done that is not JSON: {fault}",
        )


@pytest.mark.parametrize(
    "value",
    [math.nan, {"boxes": [math.inf]}, {"boxes": {1}}, Unwritable()],
    ids=["NaN", "infinity", "set", "object"],
)
def test_an_outside_confirmation_that_is_not_json_is_refused_and_its_neighbours_are_not(
    value: Any,
) -> None:
    route = mp.Route("parcels", key="id")
    route.external("delivered")
    with mp.open("memory:", [route]) as post:
        post.submit("parcels", {"id": "a"}, {"id": "b"})
        answers = post.confirm_all(
            "parcels",
            "delivered",
            {"a": mp.Done(value), "b": mp.Done({"grams": None})},
            by="partner",
        )
        assert isinstance(answers["a"], ActRefused)
        assert "the outcome cannot be stored as JSON" in str(answers["a"])
        with pytest.raises(UsageError, match="the outcome cannot be stored as JSON"):
            post.confirm(
                "parcels", "a", "delivered", value, by="ops", force=True, reason="by phone"
            )
        assert (post.show("parcels", "a")["status"], post.show("parcels", "b")["status"]) == (
            "QUEUED",
            "COMPLETED",
        )


@pytest.mark.parametrize("how", ["raised", "rejected", "returned"])
def test_an_error_with_half_a_character_keeps_its_message(how: str) -> None:
    route = mp.Route("parcels", key="id")

    class Rejected(Exception):
        permanent = True

    @route.stage("weigh", retry=mp.Backoff(attempts=1))
    def weigh(item: mp.Item) -> mp.Outcome:
        match how:
            case "raised":
                raise ValueError("no such box: \ud800 (é)")
            case "rejected":
                raise Rejected("no such box: \ud800 (é)")
        return mp.Retry("no such box: \ud800 (é)")

    clock = VirtualClock()
    with mp.open("memory:", [route], clock=clock) as post:
        post.submit("parcels", {"id": "a"})
        drain(post, clock)
        error = post.show("parcels", "a")["error"]
        assert error["message"].endswith("no such box: \\ud800 (é)")
        assert error["category"] == ("ERROR" if how == "returned" else "EXCEPTION")


def test_a_lane_that_is_no_text_does_not_refuse_its_neighbours(tmp_path: Path) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh", lane=lambda content: content["lane"])(lambda item: mp.Done())
    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        receipts = post.submit(
            "parcels",
            {"id": "a", "lane": "west"},
            {"id": "b", "lane": None},
            {"id": "c"},
            {"id": "d", "lane": "x" * 999},
        )
        assert {receipt.answer for receipt in receipts} == {"new"}
        post.run(until_idle=0.1)
        assert post.status()["routes"]["parcels"]["statuses"] == {"COMPLETED": 4}


class Running:
    """A station in a thread of its own."""

    def __init__(self, post: mp.Milepost) -> None:
        self.station = Station(post.context)
        self._thread = threading.Thread(target=self.station.run)
        self._thread.start()

    def __enter__(self) -> Station:
        return self.station

    def __exit__(self, *error: object) -> None:
        self.station.stop()
        self._thread.join(WAIT)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_slow_lane_never_has_all_the_hands(tmp_path: Path, kind: str) -> None:
    import asyncio

    route = mp.Route("parcels", key="id")
    ended, slow_began, quick_done = (
        threading.Event(),
        threading.Semaphore(0),
        threading.Semaphore(0),
    )

    def plain(item: mp.Item) -> mp.Outcome:
        if item.lane == "slow":
            slow_began.release()
            ended.wait(WAIT)
        else:
            quick_done.release()
        return mp.Done()

    async def asynchronous(item: mp.Item) -> mp.Outcome:
        if item.lane == "slow":
            slow_began.release()
            while not ended.is_set():
                await asyncio.sleep(0.005)
        else:
            quick_done.release()
        return mp.Done()

    route.stage("send", concurrency=4, lane=lambda content: content["lane"])(
        plain if kind == "plain" else asynchronous
    )
    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        post.submit("parcels", *({"id": f"s{n}", "lane": "slow"} for n in range(50)))
        with Running(post):
            try:
                for _ in range(3):
                    assert slow_began.acquire(timeout=WAIT)
                # The slow lane is alone until here, and has as many calls as it will ever have.
                post.submit("parcels", *({"id": f"q{n}", "lane": "quick"} for n in range(30)))
                for _ in range(30):
                    assert quick_done.acquire(timeout=WAIT), "the quick lane waits for the slow one"
            finally:
                ended.set()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_lane_that_is_claimed_ahead_never_has_more_calls_than_its_concurrency(
    tmp_path: Path, kind: str
) -> None:
    import asyncio

    route = mp.Route("parcels", key="id")
    lock, running, most, most_held = (
        threading.Lock(),
        {"narrow": 0, "wide": 0},
        {"narrow": 0, "wide": 0},
        0,
    )

    def count(lane: str, change: int) -> None:
        nonlocal most_held
        with lock:
            running[lane] += change
            most[lane] = max(most[lane], running[lane])
            if station is not None and station.worker is not None:
                most_held = max(most_held, station.worker.in_hand)

    def plain(item: mp.Item) -> mp.Outcome:
        count(item.lane, 1)
        ended.wait(0.001)
        count(item.lane, -1)
        return mp.Done()

    async def asynchronous(item: mp.Item) -> mp.Outcome:
        count(item.lane, 1)
        await asyncio.sleep(0.001)
        count(item.lane, -1)
        return mp.Done()

    ended = threading.Event()
    station: Station | None = None
    limits = {"narrow": mp.Limits(concurrency=2), "wide": mp.Limits(concurrency=3)}
    route.stage("send", concurrency=8, lane=lambda content: content["lane"], lanes=limits)(
        plain if kind == "plain" else asynchronous
    )
    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        post.submit(
            "parcels", *({"id": f"p{n}", "lane": ("narrow", "wide")[n % 2]} for n in range(1_000))
        )
        with Running(post) as station:
            deadline = time.monotonic() + WAIT
            while post.status()["routes"]["parcels"]["statuses"].get("COMPLETED", 0) < 1_000:
                assert time.monotonic() < deadline
                ended.wait(0.01)
        assert most == {"narrow": 2, "wide": 3}
        assert most_held > 5, "more were held than may be called"


def test_what_was_claimed_but_not_started_is_given_back_when_its_stage_is_paused(
    tmp_path: Path,
) -> None:
    route = mp.Route("parcels", key="id")
    begun, go_on = threading.Semaphore(0), threading.Event()
    calls = []

    @route.stage("send", concurrency=1)
    def send(item: mp.Item) -> mp.Outcome:
        calls.append(item.key)
        begun.release()
        if len(calls) > 20:
            go_on.wait(WAIT)
        return mp.Done()

    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        post.submit("parcels", *({"id": f"p{n}"} for n in range(500)))
        with Running(post) as station:
            for _ in range(21):
                assert begun.acquire(timeout=WAIT)
            pause(post.context, "parcels", "send", by="ops", reason="repairs")
            worker = station.worker
            assert worker is not None
            held = threading.Event()
            for _ in range(WAIT * 100):
                if worker.in_hand <= 1:
                    break
                held.wait(0.01)
            assert worker.in_hand == 1, "only the call that runs is still in hand"
            go_on.set()
        assert len(calls) == 21
        statuses = post.status()["routes"]["parcels"]["statuses"]
        assert statuses == {"QUEUED": 479, "COMPLETED": 21}


def test_a_fragile_item_and_a_call_that_hangs_do_not_stop_the_others(tmp_path: Path) -> None:

    hangs, begun, finished = threading.Event(), threading.Event(), threading.Semaphore(0)
    other = mp.Route("other", key="id")

    @other.stage("hang")
    def hang(item: mp.Item) -> mp.Outcome:
        begun.set()
        hangs.wait(WAIT)
        return mp.Done()

    route = mp.Route("parcels", key="id")

    @route.stage("send")
    def send(item: mp.Item) -> mp.Outcome:
        finished.release()
        return mp.Done()

    with mp.open(f"sqlite:///{tmp_path}/m.db", [other, route]) as post:
        post.submit("other", {"id": "h"})
        post.submit("parcels", {"id": "fragile"})
        ledger = post.context.ledger
        item = ledger.get([("parcels", "fragile")])[0]
        assert item is not None
        ledger._store.write(
            lambda tx: tx.execute("UPDATE item SET losses = 2 WHERE id = ?", (item.row.handle,))
        )  # type: ignore[attr-defined]
        with Running(post):
            assert begun.wait(WAIT)
            post.submit("parcels", *({"id": f"p{n}"} for n in range(20)))
            try:
                for _ in range(20):
                    assert finished.acquire(timeout=WAIT), "sound items wait for a call that hangs"
            finally:
                hangs.set()
            assert finished.acquire(timeout=WAIT), "the fragile item has its turn when all is quiet"
        fragile = ledger.get([("parcels", "fragile")])[0]
        assert fragile is not None
        assert fragile.row.status is Status.COMPLETED


def test_a_handler_that_cancels_its_own_task_has_failed_and_goes_on(tmp_path: Path) -> None:
    import asyncio

    route = mp.Route("parcels", key="id")

    @route.stage("send", retry=mp.Backoff(attempts=1))
    async def send(item: mp.Item) -> mp.Outcome:
        if item.key == "bad":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return mp.Done()

    with mp.open(f"sqlite:///{tmp_path}/m.db", [route]) as post:
        post.submit("parcels", *({"id": key} for key in ("a", "bad", "b")))
        post.run(until_idle=0.1)
        statuses = post.status()["routes"]["parcels"]["statuses"]
        assert statuses == {"COMPLETED": 2, "MAX_RETRIES_EXCEEDED": 1}
