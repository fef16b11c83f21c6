"""The CPUs of pinned processes: one for each core first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from milepost.runners.process import cpus_by_core

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone tells which CPUs a process may use"
)


@pytest.mark.parametrize(
    ("siblings", "order"),
    [
        ({0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}, [0, 1, 2, 3]),
        ({0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}, [0, 2, 1, 3]),
        ({1: "1,5", 5: "1,5", 6: "2,6"}, [1, 6, 5]),
        ({0: "", 3: ""}, [0, 3]),
    ],
)
def test_cpus_that_share_a_core_come_last(
    siblings: dict[int, str], order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(siblings))
    for cpu, text in siblings.items():
        if text:  # else the kernel does not say
            folder = tmp_path / f"cpu{cpu}" / "topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(f"{text}\n")
    assert cpus_by_core(tmp_path) == order
