"""The last line of `work` and `up`: how many items ended, and how many are still in progress."""

from __future__ import annotations

from typing import Any

import pytest

ROUTE = """
import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    return mp.NotYet(after="3h") if item.input.get("heavy") else mp.Done()
"""


@pytest.mark.parametrize("command", ["work", "up"])
def test_it_counts_what_ended_and_says_when_the_next_of_the_rest_is_due(
    bare: Any, command: str
) -> None:
    bare.write("parcels.py", ROUTE)
    bare.write("milepost.toml", 'routes = ["parcels.py"]\nlisten = "127.0.0.1:0"\n')
    bare.submit({"id": "p-1"}, {"id": "p-2", "heavy": True}, {"id": "p-3", "heavy": True})
    *_, last = bare.ok(command, "--until-idle", 0).err.splitlines()
    assert last.endswith(": 1 COMPLETED; 2 in progress, the next due in 3 h"), last


def test_nothing_in_progress_is_not_mentioned(bare: Any) -> None:
    bare.write("parcels.py", ROUTE)
    bare.write("milepost.toml", 'routes = ["parcels.py"]\n')
    bare.submit({"id": "p-1"})
    assert bare.ok("work", "--until-idle", 0).err.splitlines()[-1].endswith(": 1 COMPLETED")
