"""The benchmark's SQLite section runs to its end, with every case and on a tiny number, so that it
cannot break unseen."""

from __future__ import annotations

import gc
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench import compare, deposits, http, net, notifications, report
from bench.bars import BARS
from bench.page import PARTS, Run, written
from bench.report import Case, Results
from bench.route import KINDS
from bench.sqlite import PREFILL, Section, Sizes

TINY = Sizes(
    items=[200], there=[300], rounds=1, dbos=0, busy=10, queued=(20, 200), starts=1, full=True
)
NOT_HERE = {"processing / DBOS tuned"}


@pytest.fixture(autouse=True)
def own_settings() -> Iterator[None]:
    """Parts that run in this process set it up as `milepost work` does: undone afterwards."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def part(*words: object, module: str = "bench.part") -> dict[str, float]:
    """Run a part in this process."""
    facts: dict[str, float] = importlib.import_module(module).measure([str(word) for word in words])
    return facts


def test_every_case_is_measured_and_held_to_its_bar(tmp_path: Path) -> None:
    results = Section(tmp_path, Results(), part, lambda text: None, None).run(TINY)

    ours = {case.handlers for case in results.cases("ours")}
    assert ours == {*KINDS, PREFILL, "ones", "queued", "start-up", "busy 1", "busy 2"} - {"busy"}
    assert {figure.name for figure in report.figures(results)} == BARS.keys() - NOT_HERE
    told = json.loads(json.dumps(report.as_json(results)))
    assert {bar["good"] for bar in told["bars"]} <= {True, False}
    assert len(told["medians"]) == len(results.facts)
    text = report.text(results)
    assert all(name in text for name in BARS)
    page = "".join(f"<!-- measured: {name} -->\nold\n<!-- end -->\n" for name in PARTS)
    one = {
        "ratios": {"deliveries in one process / bare loop": [0.6, ">=", 0.5]},
        "medians": {"bare": {"rate": 10.0, "accepted": 5.0}},
    }
    assert "old" not in written(page, Run(told | {"notifications": one, "deposits": one}))
    assert written(page, Run(told)).count("old") == 2, "a part of which the run has nothing stays"


def test_ours_and_raw_leave_the_same_rows_lines_and_content_behind(tmp_path: Path) -> None:
    results = Results()
    section = Section(tmp_path, results, part, lambda text: None, None)
    for handlers in ("plain", "output"):
        for who in ("ours", "raw"):
            section.chain(Case(who, 0, "sequential", handlers, 1_000))
        ours, raw = (
            results.all(Case(who, 0, "sequential", handlers, 1_000), "process", "bytes_each")[0]
            for who in ("ours", "raw")
        )
        assert ours == pytest.approx(raw, rel=0.05)


def test_two_trees_are_compared(tmp_path: Path) -> None:
    found = {}
    for tree in ("before", "after"):
        folder = tmp_path / tree
        folder.mkdir()
        section = Section(folder, Results(), part, lambda text: None, None)
        for name in ("plain", "ones"):
            compare.cases(100, 100)[name](section)
        found[tree] = section.results
    assert [line["what"] for line in compare.lines(found)] == [
        "intake",
        "again",
        "process",
        "process",
    ]
    assert all(line["trees"]["after"]["ratio"] > 0 for line in compare.lines(found))
    assert "ratios to before" in compare.text(found)


def test_submits_over_http_are_measured_in_every_mode(tmp_path: Path) -> None:
    for mode in http.MODES:
        (tmp_path / mode).mkdir()
        facts = http.part(tmp_path / mode, mode, 0.2, 10_000)
        assert facts["rate"] > 0


def test_requests_that_go_out_are_measured_in_every_mode() -> None:
    found = net.run(part, quick=True, say=lambda text: None, seconds=0.02)
    assert {mode for mode in net.MODES if "aiohttp" not in mode} <= found["modes"].keys()
    assert all(facts["rate"] > 0 for facts in found["modes"].values())
    assert all(net.MODES[mode] in net.text(found) for mode in found["modes"])


def test_notifications_are_measured_in_every_part(tmp_path: Path) -> None:
    numbers = {"accept-memory": 0.2, "accept": 0.2, "wrk": 1}
    for name in notifications.TITLES:
        if (name == "wrk" and shutil.which("wrk") is None) or (
            name == "bare-aiohttp" and find_spec("aiohttp") is None
        ):
            continue  # left out of the benchmark, too
        folder = tmp_path / name
        folder.mkdir()
        words = (
            [name, str(folder), "200", "0.5"]
            if name == "half-load"
            else [name, str(folder), str(numbers.get(name, 400))]
        )
        facts = notifications.measure(words)
        assert facts["rate"] > 0
        assert facts.get("p99_ms", 1) > 0


def test_deposits_are_measured_in_every_part(tmp_path: Path) -> None:
    for words in (
        ("alone", "2000", "mixed"),
        ("batches", "2000", "mixed"),
        ("intake", "2000", "mixed"),
        ("intake", "2000", "plain"),
        ("round", "5", "mixed"),
    ):
        folder = tmp_path / "-".join(words)
        folder.mkdir()
        facts = deposits.measure([words[0], str(folder), *words[1:]])
        assert facts["rate"] > 0
