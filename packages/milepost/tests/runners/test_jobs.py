"""The queue of a handler pool: no lane takes all threads, and jobs that have not started can be
taken back."""

from __future__ import annotations

import sys
import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from milepost.core.decide import NOTHING
from milepost.core.item import Content, Item
from milepost.ports.runner import Job
from milepost.runners.jobs import Jobs, Portion


def item(lane: str, claimed_at: int = 0) -> Item:
    return Item(
        replace(NOTHING, key=f"{lane}-{claimed_at}", lane=lane, claimed_at=claimed_at), Content()
    )


def test_one_lane_is_first_in_first_out_and_may_have_every_hand() -> None:
    jobs = Jobs()
    jobs.put([[item("", n)] for n in range(4)])
    taken = [jobs.take(4) for _ in range(5)]
    assert [found and found[0][0].row.claimed_at for found in taken] == [0, 1, 2, 3, None]


def test_of_several_lanes_the_one_with_the_fewest_calls_under_way_is_next_and_none_gets_the_last_hand() -> (
    None
):
    jobs = Jobs(lanes=True)
    jobs.put([[item("slow", n)] for n in range(9)])
    jobs.put([[item("quick", 0)]])
    taken = [jobs.take(4) for _ in range(4)]
    assert [found[1].lane for found in taken if found] == ["slow", "quick", "slow", "slow"]
    assert jobs.take(4) is None, "the last hand is kept for other lanes"
    assert jobs
    jobs.put([[item("quick", 1)]])
    found = jobs.take(4)
    assert found is not None
    assert found[1].lane == "quick"


def test_a_lane_that_is_alone_leaves_the_last_hand_to_one_that_comes_later() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item("slow", n)] for n in range(9)])
    assert [found is not None for found in (jobs.take(4) for _ in range(4))] == [
        True,
        True,
        True,
        False,
    ]
    jobs.put([[item("quick", 0)]])
    assert taken(jobs, 4, 1)[1].lane == "quick"


def test_the_lanes_within_a_wider_lane_share_its_cap() -> None:
    jobs = Jobs(lanes=True)
    lanes = ("amy@north", "bob@north", "north", "amy@south")
    jobs.put(
        [[item(lane, n)] for n in range(3) for lane in lanes], dict.fromkeys(lanes), {"north": 2}
    )
    portions = [
        portion
        for found in (jobs.take(9) for _ in range(9))
        if found is not None
        for portion in (found[1],)
    ]
    assert sorted(portion.lane.rpartition("@")[2] for portion in portions) == [
        "north",
        "north",
        "south",
        "south",
        "south",
    ]
    jobs.done(next(portion for portion in portions if portion.lane != "amy@south"))
    assert [found is not None for found in (jobs.take(9), jobs.take(9))] == [True, False]
    jobs.put([], {}, {"north": None})
    assert [found is not None for found in (jobs.take(9) for _ in range(7))] == [True] * 6 + [False]


def test_a_lane_has_the_only_hand() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item("slow", 0)]])
    assert taken(jobs, 1, 1)[1].lane == "slow"


def test_lanes_with_equally_many_hands_take_turns() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item(lane, n)] for n in range(4) for lane in ("a", "b")])
    lanes = []
    while (found := jobs.take(3, 2)) is not None:
        lanes.append(found[1].lane)
        while found[1].next() is not None:
            pass
        jobs.done(found[1])
    assert lanes == ["a", "b", "a", "b"]


def test_a_lane_has_no_more_hands_than_its_cap_and_the_others_go_on() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item("narrow", n)] for n in range(4)], {"narrow": 2})
    first, second = taken(jobs, 8, 1), taken(jobs, 8, 1)
    assert jobs.take(8) is None
    jobs.put([[item("wide", n)] for n in range(3)], {"wide": None})
    assert [taken(jobs, 8, 1)[1].lane for _ in range(3)] == ["wide"] * 3
    assert jobs.take(8) is None
    assert jobs, "two are left"
    jobs.done(first[1])
    assert taken(jobs, 8, 1)[0][0].row.claimed_at == 2
    jobs.put([[item("narrow", 9)]], {"narrow": 3})
    assert taken(jobs, 8, 1)[0][0].row.claimed_at == 3, "the cap was raised"
    assert second[1].lane == "narrow"


def test_a_free_hand_takes_half_of_what_another_has_not_begun() -> None:
    jobs = Jobs()
    jobs.put([[item("", n)] for n in range(8)])
    job, portion = taken(jobs, 4, 8)
    assert (job[0].row.claimed_at, len(portion)) == (0, 7)
    other, rest = taken(jobs, 4, 8)
    assert (other[0].row.claimed_at, len(rest), len(portion)) == (4, 3, 3)
    jobs.done(portion)
    jobs.done(rest)
    assert [one.row.claimed_at for one in jobs.recall()] == [5, 6, 7, 1, 2, 3], (
        "what was put down unbegun is next"
    )


def test_a_recall_takes_from_portions_and_leaves_the_rest_to_other_hands() -> None:
    jobs = Jobs()
    jobs.put([[item("", n)] for n in range(6)])
    _, portion = taken(jobs, 4, 6)
    assert [one.row.claimed_at for one in jobs.recall(lambda one: one.row.claimed_at % 2 == 1)] == [
        1,
        3,
        5,
    ]
    assert portion.next() is None
    job, other = taken(jobs, 4, 6)
    assert (job[0].row.claimed_at, len(other)) == (2, 1)


def taken(jobs: Jobs, width: int, most: int) -> tuple[Job, Portion]:
    found = jobs.take(width, most)
    assert found is not None
    return found


class Queue(RuleBasedStateMachine):
    """Hands put, take, begin, put down, recall and take from each other in any order: each job is
    begun once or recalled once, and no lane has the last hand, nor more hands than its cap."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs(lanes=True)
        self.width = 3
        self.caps: dict[str, int | None] = {}
        self.put: dict[int, str] = {}
        self.ended: list[int] = []
        self.hands: list[Portion] = []

    def begin(self, job: Job) -> None:
        self.ended += [one.row.claimed_at or 0 for one in job]

    @initialize(
        width=st.integers(1, 5),
        caps=st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(1, 3)),
    )
    def start(self, width: int, caps: dict[str, int | None]) -> None:
        self.width, self.caps = width, caps

    @rule(lane=st.sampled_from("abc"), count=st.integers(1, 40), size=st.integers(1, 3))
    def hand_over(self, lane: str, count: int, size: int) -> None:
        numbers = range(len(self.put), len(self.put) + count * size)
        self.put.update((number, lane) for number in numbers)
        self.jobs.put(
            [
                [item(lane, number) for number in numbers[at : at + size]]
                for at in range(0, len(numbers), size)
            ],
            self.caps,
        )

    @precondition(lambda self: len(self.hands) < self.width)
    @rule(most=st.sampled_from([1, 2, 32]))
    def take(self, most: int) -> None:
        left = {self.put[number] for number in self.put.keys() - set(self.ended)}
        found = self.jobs.take(self.width, most)
        if found is None:
            full = [
                self.at_work(lane) >= min(self.width - 1, self.caps.get(lane) or 9) for lane in left
            ]
            assert all(full), "a job lies there, and a hand that may run it is free"
            return
        job, portion = found
        assert {one.lane for one in job} == {portion.lane}
        self.hands.append(portion)
        self.begin(job)
        if self.width > 1:
            assert self.at_work(portion.lane) < self.width
        assert self.at_work(portion.lane) <= (self.caps.get(portion.lane) or self.width)

    def at_work(self, lane: str) -> int:
        return sum(portion.lane == lane for portion in self.hands)

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), count=st.integers(1, 8))
    def work(self, data: st.DataObject, count: int) -> None:
        portion = data.draw(st.sampled_from(self.hands))
        for _ in range(count):
            job = portion.next()
            if job is not None:
                assert {one.lane for one in job} == {portion.lane}
                self.begin(job)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def put_down(self, data: st.DataObject) -> None:
        self.jobs.done(self.hands.pop(data.draw(st.integers(0, len(self.hands) - 1))))

    @rule(lane=st.sampled_from(["a", "b", None]))
    def recall(self, lane: str | None) -> None:
        back = self.jobs.recall(None if lane is None else lambda one: one.lane == lane)
        assert lane is None or {one.lane for one in back} <= {lane}
        self.begin(back)

    @invariant()
    def each_at_most_once(self) -> None:
        assert len(self.ended) == len(set(self.ended))
        assert (
            bool(self.jobs) == (len(self.ended) < len(self.put)) == (self.jobs.oldest() is not None)
        )

    def teardown(self) -> None:
        for portion in self.hands:
            self.jobs.done(portion)
        self.begin(self.jobs.recall())
        assert sorted(self.ended) == sorted(self.put)
        assert len(self.jobs) == 0


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_threads_that_take_from_each_other_begin_each_job_once() -> None:
    jobs, width, count = Jobs(), 4, 4_000
    done: list[list[int]] = [[] for _ in range(width + 1)]
    over = threading.Event()

    def work(mine: list[int]) -> None:
        while not over.is_set():
            if (found := jobs.take(width, 32)) is None:
                continue
            job: Job | None = found[0]
            while job is not None:
                mine += [one.row.claimed_at or 0 for one in job]
                job = found[1].next() if len(mine) % 7 else None
            jobs.done(found[1])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in done[:width]]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for at in range(0, count, 100):
            jobs.put([[item("ab"[number % 2], number)] for number in range(at, at + 100)])
            done[width] += [
                one.row.claimed_at or 0
                for one in jobs.recall(lambda one: (one.row.claimed_at or 0) % 5 == 0)
            ]
        while jobs:
            pass
    finally:
        over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert sorted(number for numbers in done for number in numbers) == list(range(count))


def test_recall_takes_back_what_is_unwanted_and_oldest_says_who_waits_longest() -> None:
    jobs = Jobs()
    jobs.put([[item("a", 5)], [item("b", 3), item("b", 4)], [item("a", 6)]])
    oldest = jobs.oldest()
    assert oldest is not None
    assert oldest.row.claimed_at == 3
    assert sorted(
        one.row.claimed_at for one in jobs.recall(lambda one: one.row.claimed_at == 4)
    ) == [3, 4]
    assert len(jobs) == 2
    assert len(jobs.recall()) == 2
    assert jobs.oldest() is None


def test_many_lanes_that_hang_leave_room_for_a_lane_that_answers() -> None:
    jobs = Jobs(lanes=True)
    for lane in range(40):
        jobs.put([[item(f"hangs-{lane}", n)] for n in range(16)])
    under_way = 0
    while jobs.take(128) is not None:
        under_way += 1
    assert under_way == 96, "all lanes in doubt together have three quarters"
    jobs.put([[item("new", n)] for n in range(20)])
    assert jobs.take(128) is None
    jobs.learn("new", sound=True)
    assert sum(jobs.take(128) is not None for _ in range(40)) == 20


def test_a_lane_has_few_takers_until_it_has_succeeded_and_after_a_failure() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item("crm", n)] for n in range(60)])
    first = [taken(jobs, 128, 1) for _ in range(4)]
    assert jobs.take(128) is None
    jobs.learn("crm", sound=True)
    assert sum(jobs.take(128) is not None for _ in range(10)) == 10
    jobs.learn("crm", sound=False)
    assert jobs.take(128) is None
    assert len(first) == 4


def test_where_there_are_few_takers_none_is_reserved_for_sound_lanes() -> None:
    jobs = Jobs(lanes=True)
    jobs.put([[item("crm", n)] for n in range(70)])
    assert sum(jobs.take(63) is not None for _ in range(63)) == 62
