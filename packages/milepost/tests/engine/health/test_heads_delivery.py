"""Daily heads prove something because others keep them: the doctor warns if no subscriber gets
them."""

from __future__ import annotations

from pathlib import Path

import pytest

import milepost as mp
from milepost.engine.health.doctor import doctor
from milepost.subscribers import CallSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_testing import SeededChance, VirtualClock
from milepost_testing.drive import run_until_rest


def opened(folder: Path, *, with_all_events: bool) -> list[str]:
    """What the doctor says about heads after some events."""
    route = mp.Route("assets", evidence=True, form=lambda envelope: {"asset": envelope["subject"]})
    route.stage("disk")(lambda item: mp.Done())
    subscribers = [Formed(CallSubscriber(lambda event: None, name="desk"))]
    if with_all_events:
        subscribers.append(CallSubscriber(lambda event: None, name="archive"))  # type: ignore[arg-type]
    clock = VirtualClock()
    with mp.open(
        f"sqlite:///{folder}/m.db",
        routes=[route],
        clock=clock,
        chance=SeededChance(1),
        subscribers=subscribers,
    ) as assets:
        assets.submit("assets", {"id": "a-1"})
        run_until_rest(assets.context, clock, subscribers, clock.now() + 60_000)
        return [found.what for found in doctor(assets.context).findings if found.about == "heads"]


@pytest.mark.parametrize("with_all_events", [False, True])
def test_heads_that_reach_nobody_are_a_warning(tmp_path: Path, with_all_events: bool) -> None:
    warned = (
        []
        if with_all_events
        else ["the daily heads reach nobody: desk gets only notifications (formed+…)"]
    )
    assert opened(tmp_path, with_all_events=with_all_events) == warned
