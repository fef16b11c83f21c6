"""The live view at several widths, with few and many stages."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console, Group

from milepost.cli.look.live_view import Trail, line, picture, view
from milepost.core.status import Status
from milepost.engine.views.snapshot import Kind, Snapshot, StageView


def _snapshot(stages: int, total: int = 1_234_567) -> Snapshot:
    counts = dict.fromkeys(Status, total // 20) if total else {}
    views = [
        StageView(f"stage-number-{n}", dict(counts), total // 2, 4_000, paused=n == 0)
        for n in range(stages)
    ]
    kinds = [
        Kind(
            "TIMEOUT",
            "stage-number-0",
            "the partner [bold]did not answer[/] within 10 s " * 3,
            n,
            n * 7,
        )
        for n in range(9)
    ]
    return Snapshot(
        "parcels", 0, total, total // 2, total // 9, 0, views, kinds, 0, 1234.5, 5000.0, paused=True
    )


def _trail() -> Trail:
    trail = Trail()
    for rate in range(40):
        trail.add(rate)
    return trail


def _printed(what: Group) -> list[str]:
    to = Console(file=io.StringIO(), width=200, force_terminal=False)
    with to.capture() as captured:
        to.print(what)
    return [text.rstrip() for text in captured.get().splitlines()]


def _drawn(snapshot: Snapshot, width: int, height: int | None = None) -> list[str]:
    return _printed(view(snapshot, _trail(), width, 83_000, height))


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


def test_nine_stages_are_lines_and_fit_eighty_by_twenty_four() -> None:
    lines = _drawn(_snapshot(9), 79, 23)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 79
    text = "\n".join(lines)
    for n in range(9):
        assert f"stage-n…er-{n}" in text
    assert "retry" in text
    assert "617k" in text
    assert "failures by kind" in text


def test_too_many_stages_are_left_out_where_nothing_is_to_be_done() -> None:
    snapshot = _snapshot(30)
    idle = [
        StageView(stage.name, {}, 5) if n < 20 else stage for n, stage in enumerate(snapshot.stages)
    ]
    lines = _drawn(replace(snapshot, stages=idle), 79, 23)
    assert len(lines) <= 23
    text = "\n".join(lines)
    for n in range(20, 30):
        assert f"stage-n…r-{n}" in text
    assert "… 14 more" in text


def test_several_routes_share_the_lines() -> None:
    three = [replace(_snapshot(9), route=f"route-{n}") for n in range(3)]
    lines = _printed(picture(three, [_trail()] * 3, 79, 23, 0))
    assert len(lines) <= 23
    text = "\n".join(lines)
    for n in range(3):
        assert f"route-{n}" in text


def test_a_route_without_items_leaves_the_lines_to_others() -> None:
    lines = _printed(picture([_snapshot(2, total=0), _snapshot(9)], [_trail()] * 2, 79, 23, 0))
    assert len(lines) <= 23
    text = "\n".join(lines)
    assert "no items yet" in text
    for n in range(9):
        assert f"stage-n…er-{n}" in text


def test_an_empty_route_says_so() -> None:
    assert any("no items yet" in text for text in _drawn(_snapshot(2, total=0), 79))


def test_the_curve_follows_the_rates() -> None:
    trail = Trail(length=4)
    assert trail.curve() == ""
    for rate in (0, 0, 5, 10, 10):
        trail.add(rate)
    assert trail.curve() == "▁▄██"


def test_the_plain_line_names_what_matters() -> None:
    snapshot = _snapshot(1, total=200)
    assert (
        line(snapshot, 12_345)
        == " 12.3s parcels: 122/200 ended, 22 failed, 1,234/s | stage-numbe… 50 | oldest 4 s"
    )
    few = replace(
        snapshot,
        stages=[StageView("weigh", {Status.QUEUED: 7}, 0), StageView("stamp", {}, 0)],
        failed=0,
    )
    assert line(few, 0) == "  0.0s parcels: 100/200 ended, 1,234/s | weigh 7  stamp 0"


@pytest.mark.parametrize("stages", [1, 5, 9, 40])
def test_the_plain_line_has_eighty_columns(stages: int) -> None:
    assert len(line(_snapshot(stages), 12_345)) <= 80
    assert (
        len(line(replace(_snapshot(stages), route="a-very-long-route-name-" * 2), 12_345_678)) <= 80
    )


@pytest.mark.parametrize(
    ("done", "failed"), [(1_957, 43), (1_999, 1), (1, 1_999), (0, 2_000), (2_000, 0)]
)
def test_the_bar_is_full_when_all_items_have_ended(done: int, failed: int) -> None:
    [bar] = [
        text
        for text in _drawn(replace(_snapshot(1), total=2_000, done=done, failed=failed), 79)
        if text.endswith("100%")
    ]
    assert "░" not in bar
    assert bar.count("█") == 79 - len(" 100%")
    [running] = [
        text
        for text in _drawn(replace(_snapshot(1), total=2_001, done=done, failed=failed), 79)
        if text.endswith("99%")
    ]
    assert len(running) == 79
