"""Identity of processes: a process that has ended, or whose number another one has, is not taken
for a living one."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from milepost_deposits.runs import (
    SILENCE,
    RunProcess,
    RunRecord,
    is_running,
    moment,
    seen_from_here,
    started,
    this_process,
)

NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="only Linux shows processes as files"
)
def test_a_process_is_alive_until_it_ends_also_if_its_parent_has_not_noticed() -> None:
    assert seen_from_here(this_process()) is True
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = replace(this_process(), pid=child.pid, started=started(child.pid))
    assert seen_from_here(there) is True
    assert seen_from_here(replace(there, started="1")) is False, "another process has the number"
    child.kill()
    os.waitid(
        os.P_PID, child.pid, os.WEXITED | os.WNOWAIT
    )  # it has ended, and its parent has not taken note
    assert seen_from_here(there) is False
    child.communicate()
    assert seen_from_here(there) is False


def test_a_process_elsewhere_cannot_be_seen(tmp_path: Path) -> None:
    assert seen_from_here(replace(this_process(), space="another machine")) is None
    assert seen_from_here(RunProcess("host", 1)) is None
    assert this_process(tmp_path).started == "", "a system without /proc"
    assert seen_from_here(this_process(), tmp_path) is None


def test_a_run_elsewhere_is_interrupted_when_it_has_been_silent_for_minutes() -> None:
    run = RunRecord(
        moment(NOW - timedelta(hours=3)),
        state="running",
        seen_at=moment(NOW - timedelta(seconds=30)),
    )
    assert is_running(run, NOW, None)
    assert not is_running(run, NOW + SILENCE, None)
    assert is_running(run, NOW - timedelta(minutes=1), None), "the clock was set back a little"
    assert not is_running(run, NOW - timedelta(days=1), None), (
        "a day: the record is that of a wrong clock"
    )
    assert not is_running(run, NOW, False)
    assert is_running(replace(run, seen_at=moment(NOW - timedelta(days=2))), NOW, True), (
        "its process is there, and was asleep"
    )
