"""Processes die at each AWS call in turn; the processes after them complete every item.

A clean run says which calls there are, by the functions that lead to them. Each of them is a death
once before it is made and once after it was carried out, several in a run, so that the dead also
follow upon one another.
"""

from __future__ import annotations

import pytest
from tests.aws.ledger.faults.deaths_at_calls import Reaper, Site
from tests.aws.ledger.faults.fault_scene import (
    Process,
    Scene,
    check_gone,
    check_whole,
    see_through,
    take_down,
)

GROUPS = 6
_sites: list[Site] = []


def sites(endpoint: str, prefix: str) -> list[Site]:
    """Every call of a clean run, in the order in which they are first made; found out once in this
    test process."""
    if not _sites:
        scene = Scene(endpoint, prefix)
        unharmed = Reaper(scene, set(), after=False)
        see_through(scene, unharmed.process, unharmed.careful)
        take_down(scene, unharmed.process, unharmed.careful)
        unharmed.process().close()
        scene.close()
        _sites.extend(unharmed.sites)
    return _sites


def die_and_check(scene: Scene, doomed: set[Site], *, after: bool) -> set[Site]:
    """A whole life with these deaths; those that nobody came to, because an earlier death led
    another way."""
    reaper, witness = Reaper(scene, doomed, after=after), Process(scene)
    see_through(scene, reaper.process, reaper.careful)
    stories = check_whole(scene, witness, exact=False)
    take_down(scene, reaper.process, reaper.careful)
    check_gone(scene, witness, exact=False, evidence=True)
    for process in (reaper.process(), witness):
        process.close()
    assert reaper.deaths, f"a clean run came to {doomed}"
    assert set(scene.receipts.values()) <= {"new", "known"}
    for key, lines in stories.items():
        assert lines[-1] == ("confirmed", "ship", "COMPLETED"), key
    return reaper.doomed


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_every_call(endpoint: str, prefix: str, when: str, group: int) -> None:
    doomed = set(sites(endpoint, f"{prefix}clean")[group::GROUPS])
    number = 0
    while doomed:
        number += 1
        scene = Scene(endpoint, f"{prefix}n{number}")
        doomed = die_and_check(scene, doomed, after=when == "after")
        scene.close()
