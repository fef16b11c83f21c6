"""The demo, small: it runs through, sums up, and what it says to try next works."""

from __future__ import annotations

import shlex

import pytest


@pytest.mark.slow
def test_the_demo_runs_and_its_next_steps_work(bare) -> None:
    said = bare.ok("demo", "--items", "120").out
    assert "120 parcels handed over" in said
    assert "parcels: 0/120 ended" in said
    assert "of 120 parcels delivered in" in said
    assert "\x1b" not in said
    steps = [line.strip() for line in said.splitlines() if line.startswith("  milepost ")]
    assert len(steps) >= 6
    inside = type(bare)(bare.folder / "milepost-demo")
    for step in steps:
        inside.ok(*shlex.split(step, comments=True)[1:])
    assert inside.ok("status", "--json").json["routes"]["parcels"]["total"] == 120
    bare.ok("demo", "--items", "3")
    assert inside.ok("status", "--json").json["routes"]["parcels"]["total"] == 3
