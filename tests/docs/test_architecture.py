"""The page on the architecture is true: its walks are what a traced run calls, and its diagram is
the import graph."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from tests.project import ROOT
from tools.architecture import missing_steps, reduced, steps

import milepost as mp
from milepost_aws.aws_model import AwsModel

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def walk(ledger: str) -> list[tuple[str, str]]:
    """The functions that the page lists for a ledger, as (qualified name, file)."""
    section = PAGE.partition(f"## The way of an item on {ledger}\n")[2].partition("\n## ")[0]
    found = steps(section)
    said = re.search(r"(\d+) functions in (\d+) files", section)
    assert said is not None
    assert (len(found), len({file for _, file in found})) == (int(said[1]), int(said[2]))
    return found


@contextmanager
def traced(wanted: set[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The calls of the wanted functions, in order, in this thread and in those that are started
    meanwhile."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)):
            call = (code.co_qualname, Path(code.co_filename).relative_to(ROOT).as_posix())
            if call in wanted:
                calls.append(call)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def see_through(url: str) -> None:
    """One item, one stage, to its end."""
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done({"grams": 340}))
    with mp.open(url, routes=[route]) as ledger:
        ledger.submit("parcels", {"id": "P-1"})
        ledger.run(until_idle=1)
        assert ledger.show("parcels", "P-1")["status"] == "COMPLETED"


def test_an_item_on_sqlite_goes_the_way_that_the_page_lists(tmp_path: Path) -> None:
    listed = walk("SQLite")
    assert len(listed) <= 15
    assert len({file for _, file in listed}) <= 10
    with traced(set(listed)) as calls:
        see_through(f"sqlite:///{tmp_path}/parcels.db")
    rest = iter(calls)
    assert [step for step in listed if step not in rest] == [], "not called, or not in this order"


def test_an_item_on_aws_goes_the_way_that_the_page_lists() -> None:
    listed = walk("AWS")
    with traced(set(listed)) as calls, AwsModel().served() as endpoint:
        see_through(f"dynamodb://eu-central-1/test?endpoint={endpoint}")
    # Reader of the stream and worker run side by side, so that only what is called is certain, not
    # every order.
    assert [step for step in listed if step not in calls] == []


def test_every_function_that_the_page_names_exists() -> None:
    assert missing_steps(PAGE) == []


def test_a_function_that_is_gone_is_named() -> None:
    row = "| 1 | `Gone.away` | [app.py](../packages/milepost/src/milepost/app.py) | text |\n| 2 | `take_in` | [x](../packages/milepost/src/milepost/gone.py) | text |"
    assert missing_steps(row) == [
        "there is no Gone.away in packages/milepost/src/milepost/app.py",
        "there is no take_in in packages/milepost/src/milepost/gone.py",
    ]


@pytest.mark.parametrize(
    ("edges", "fewest"),
    [
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, {"a": {"b"}, "b": {"c"}, "c": set()}),
        ({"a": {"b", "c"}, "b": set(), "c": set()}, {"a": {"b", "c"}, "b": set(), "c": set()}),
        (
            {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()},
            {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()},
        ),
    ],
)
def test_arrows_that_follow_from_others_are_left_out(
    edges: dict[str, set[str]], fewest: dict[str, set[str]]
) -> None:
    assert reduced(edges) == fewest


def test_a_cycle_is_not_drawn() -> None:
    with pytest.raises(SystemExit, match="cycle: a, b"):
        reduced({"a": {"b"}, "b": {"a", "c"}, "c": set()})
