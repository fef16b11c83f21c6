"""The end of a stream is not reached while a shard's reader is silent and its lease still runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at
from tests.aws.ledger.stream.scripted_stream import Reader

from milepost.core.status import Status
from milepost_aws.ledger.stream import LEASE_MS, LOOK_MS, Shards
from milepost_aws.ledger.upkeep import StreamReader

T0 = 1_800_000_000_000


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def reader_of(scene: Scene, holder: str) -> StreamReader:
    return StreamReader(
        scene.store, {scene.plan.name: scene.plan}, scene.clock, lambda: 0.0, holder
    )


def turns(reader: StreamReader, times: int = 4) -> None:
    for _ in range(times):
        reader.turn()


def test_a_follower_stays_until_the_lease_of_a_dead_reader_has_run_out_and_reads_what_it_left(
    scene: Scene,
) -> None:
    dead, heir = reader_of(scene, "dead"), reader_of(scene, "heir")
    turns(dead)
    assert dead.quiet, "it reads everything by itself"
    scene.add("a")
    scene.clock.advance("1s")
    turns(heir)
    assert not heir.quiet
    assert scene.row("a").status is Status.PENDING, "nobody has read of it"
    for _ in range(0, LEASE_MS - LOOK_MS, LOOK_MS):
        scene.clock.advance(LOOK_MS / 1000)
        turns(heir)
        assert not heir.quiet
    scene.clock.advance(2 * LOOK_MS / 1000)
    turns(heir, 8)
    assert heir.quiet
    assert scene.row("a").status is Status.QUEUED
    assert scene.count() == {"QUEUED": 1}


def test_a_neighbour_that_renews_its_lease_keeps_nobody(scene: Scene) -> None:
    neighbour, passing = reader_of(scene, "neighbour"), reader_of(scene, "passing")
    turns(neighbour)
    scene.clock.advance("1s")
    turns(passing)
    assert not passing.quiet, "it may be dead for all that is known"
    for _ in range(0, LEASE_MS // 2, LOOK_MS):
        scene.clock.advance(LOOK_MS / 1000)
        turns(neighbour)
        turns(passing)
    assert passing.quiet
    scene.clock.advance(LOOK_MS / 1000)
    turns(passing)
    assert passing.quiet, "who has shown once that it lives reads its own"


def test_a_neighbour_that_leaves_in_order_keeps_nobody(scene: Scene) -> None:
    neighbour, passing = reader_of(scene, "neighbour"), reader_of(scene, "passing")
    turns(neighbour)
    neighbour.stop()
    turns(passing)
    assert passing.quiet


def test_what_is_left_to_somebody_who_never_takes_it_is_doubtful_until_it_is_ours(
    scene: Scene,
) -> None:
    """The one with fewer shards is to take what is free. It is dead, and is believed to live until
    its word has run out."""
    stream = Reader("s1", "s2")
    ours, other = (
        Shards(stream, scene.store.control, "orders", "rows", holder)
        for holder in ("ours", "other")
    )  # type: ignore[arg-type]
    ours.refresh(T0)
    other.refresh(T0)
    ours.refresh(T0 + LOOK_MS)
    assert len(ours.held) == 1, "one is let go of for the other, which dies before it takes it"
    ours.refresh(T0 + 2 * LOOK_MS)
    assert (len(ours.held), ours.maybe_unread) == (1, True)
    ours.refresh(T0 + LEASE_MS + LOOK_MS)
    assert (len(ours.held), ours.maybe_unread) == (2, False)


def test_of_a_new_reader_of_a_shard_no_more_is_known_than_of_the_one_before(scene: Scene) -> None:
    stream: Any = Reader("s1")
    first, second, looking = (
        Shards(stream, scene.store.control, "orders", "rows", holder)
        for holder in ("first", "second", "looking")
    )
    first.refresh(T0)
    looking.refresh(T0)
    first.keep(first.held["s1"], T0 + 1, None)
    looking.refresh(T0 + LOOK_MS)
    assert not looking.maybe_unread
    first.leave(T0 + LOOK_MS + 1)
    second.refresh(T0 + LOOK_MS + 1)
    looking.refresh(T0 + 2 * LOOK_MS)
    assert looking.maybe_unread
