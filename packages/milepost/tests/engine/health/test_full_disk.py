"""While the disk is full no heartbeat can be written: which processes run is not known, and nothing
says that none does."""

from __future__ import annotations

import pytest
from tests.engine.world import World

from milepost.engine.health.checks import run_checks
from milepost.engine.health.doctor import doctor
from milepost.engine.health.findings import DOCTOR, OVERVIEW, CheckRun
from milepost.engine.presence import Heartbeat


def disk(world: World, monkeypatch: pytest.MonkeyPatch, free_bytes: int | None) -> None:
    describe = world.ledger.describe
    monkeypatch.setattr(world.ledger, "describe", lambda: {**describe(), "free_bytes": free_bytes})


def silent(world: World) -> Heartbeat:
    """A process whose last heartbeat was an hour ago, and an item that waits."""
    heartbeat = Heartbeat(
        world.ctx,
        "host:1",
        lambda: {"roles": {"worker": world.clock.now(), "resender": world.clock.now()}},
    )
    heartbeat.start()
    world.add("p1")
    world.clock.advance("1h")
    return heartbeat


def texts(world: World, view: str) -> list[str]:
    results = run_checks(CheckRun(world.ctx), view)
    return [
        text
        for result in results
        for text in (result.finding.what, result.headline, result.finding.next)
        if text
    ]


@pytest.mark.parametrize("view", [DOCTOR, OVERVIEW])
def test_with_a_full_disk_it_is_not_known_which_processes_run(
    world: World, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    silent(world)
    disk(world, monkeypatch, 4096)
    shown = texts(world, view)
    assert any(text.lower().startswith("it is not known which processes run") for text in shown)
    assert not [
        text
        for text in shown
        if "no process is running" in text or "milepost up" in text or "milepost work" in text
    ]


def test_doctor_says_why_and_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(world)
    disk(world, monkeypatch, 4096)
    [finding] = [finding for finding in doctor(world.ctx).findings if finding.about == "process"]
    assert finding.level == "warn"
    assert (
        "heartbeats cannot be written, because the disk is full; the last one was of host:1, 1 h ago"
        in finding.what
    )
    assert finding.next.startswith("free some space on the disk of the ledger")


@pytest.mark.parametrize("free_bytes", [None, 10**9])
def test_with_room_a_silent_process_is_none(
    world: World, monkeypatch: pytest.MonkeyPatch, free_bytes: int | None
) -> None:
    silent(world)
    world.clock.advance("1h")
    disk(world, monkeypatch, free_bytes)
    assert any(
        "no process is running, and 1 item waits for a worker" in text
        for text in texts(world, DOCTOR)
    )


def test_a_process_that_is_heard_is_running_whatever_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent(world).beat()
    disk(world, monkeypatch, 4096)
    assert any(
        text.startswith("host:1 (resender, worker) is running") for text in texts(world, DOCTOR)
    )
