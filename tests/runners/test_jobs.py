"""A crew's queue: no lane has all the hands, and what has not been started can be taken back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.decide import NOTHING
from milepost.core.item import Content, Item
from milepost.runners.jobs import Jobs


def item(lane: str, claimed_at: int = 0) -> Item:
    return Item(replace(NOTHING, key=f"{lane}-{claimed_at}", lane=lane, claimed_at=claimed_at), Content())


def test_one_lane_is_first_in_first_out_and_may_have_every_hand() -> None:
    jobs = Jobs()
    jobs.put([[item("", n)] for n in range(4)])
    taken = [jobs.take(4) for _ in range(5)]
    assert [job and job[0].row.claimed_at for job in taken] == [0, 1, 2, 3, None]


def test_of_several_lanes_the_one_with_the_fewest_calls_under_way_is_next_and_none_gets_the_last_hand() -> None:
    jobs = Jobs()
    jobs.put([[item("slow", n)] for n in range(9)])
    jobs.put([[item("quick", 0)]])
    taken = [jobs.take(4) for _ in range(4)]
    assert [job[0].lane for job in taken if job] == ["slow", "quick", "slow", "slow"]
    assert jobs.take(4) is None, "the last hand is kept for other lanes"
    assert jobs
    jobs.put([[item("quick", 1)]])
    job = jobs.take(4)
    assert job is not None
    assert job[0].lane == "quick"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), st.integers(2, 6))
def test_everything_put_is_taken_exactly_once(moves: list[tuple[str, bool]], width: int) -> None:
    jobs = Jobs()
    put, taken, running = 0, [], []
    for number, (lane, takes) in enumerate(moves):
        if takes and (job := jobs.take(width)) is not None:
            taken.append(job[0].row.claimed_at)
            running.append(job)
        elif running and takes:
            jobs.done(running.pop(0))
        elif not takes:
            jobs.put([[item(lane, number)]])
            put += 1
    for job in running:
        jobs.done(job)
    taken += [one.row.claimed_at for one in jobs.recall()]
    assert len(taken) == len(set(taken)) == put
    assert not jobs
    assert len(jobs) == 0


def test_recall_takes_back_what_is_unwanted_and_oldest_says_who_waits_longest() -> None:
    jobs = Jobs()
    jobs.put([[item("a", 5)], [item("b", 3), item("b", 4)], [item("a", 6)]])
    oldest = jobs.oldest()
    assert oldest is not None
    assert oldest.row.claimed_at == 3
    assert sorted(one.row.claimed_at for one in jobs.recall(lambda one: one.row.claimed_at == 4)) == [3, 4]
    assert len(jobs) == 2
    assert len(jobs.recall()) == 2
    assert jobs.oldest() is None
