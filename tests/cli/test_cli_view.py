"""The live view at several widths, with few and many stages."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from milepost.cli.view import Trail, line, view
from milepost.core.status import Status
from milepost.engine.snapshot import Kind, Snapshot, StageView


def _snapshot(stages: int, total: int = 1_234_567) -> Snapshot:
    counts = dict.fromkeys(Status, total // 20) if total else {}
    views = [StageView(f"stage-number-{n}", dict(counts), total // 2, 4_000, paused=n == 0) for n in range(stages)]
    kinds = [Kind("TIMEOUT", "stage-number-0", "the partner [bold]did not answer[/] within 10 s " * 3, n, n * 7) for n in range(9)]
    return Snapshot("parcels", 0, total, total // 2, total // 9, 0, views, kinds, 0, 1234.5, 5000.0, paused=True)


def _drawn(snapshot: Snapshot, width: int) -> list[str]:
    trail = Trail()
    for rate in range(40):
        trail.add(rate)
    to = Console(file=io.StringIO(), width=200, force_terminal=False)
    with to.capture() as captured:
        to.print(view(snapshot, trail, width, 83_000))
    return [text.rstrip() for text in captured.get().splitlines()]


@pytest.mark.parametrize("width", [40, 60, 79, 110])
@pytest.mark.parametrize("stages", [1, 3, 5, 9])
def test_it_fits(width: int, stages: int) -> None:
    lines = _drawn(_snapshot(stages), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for n in range(stages):
        assert f"stage-number-{n}"[:8] in text
    assert "paused" in text
    assert width < 79 or "[bold]did" in text


def test_eighty_by_twenty_four_is_enough_for_three_stages() -> None:
    lines = _drawn(_snapshot(3), 79)
    assert len(lines) <= 21
    text = "\n".join(lines)
    assert "1,234 items/s" in text
    assert "01:23" in text
    assert "oldest here for 4 s" in text
    assert "TIMEOUT" in text


def test_an_empty_route_says_so() -> None:
    assert any("no items yet" in text for text in _drawn(_snapshot(2, total=0), 79))


def test_the_curve_follows_the_rates() -> None:
    trail = Trail(length=4)
    assert trail.curve() == ""
    for rate in (0, 0, 5, 10, 10):
        trail.add(rate)
    assert trail.curve() == "▁▄██"


def test_the_plain_line_names_what_matters() -> None:
    text = line(_snapshot(1, total=2000), 12_345)
    assert text == " 12.3s parcels: 1,222/2,000 ended, 222 failed, 1,234/s | stage-number-0 500 | oldest 4 s"
