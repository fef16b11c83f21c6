"""End of `milepost up` and `work`: running handlers have a configurable grace period, and a second
signal ends at once."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

SLOW = """
import time
from pathlib import Path

import milepost as mp

slow = mp.Route("slow", key="id")


@slow.stage("wait")
def wait(item: mp.Item) -> mp.Outcome:
    Path("begun").touch()
    while not Path("open").exists():
        time.sleep(0.01)
    return mp.Done()
"""


@pytest.fixture
def slow(bare: Any) -> Any:
    bare.write("slow.py", SLOW)
    bare.write("milepost.toml", 'routes = ["slow.py"]\n')
    bare.ok("submit", "slow", "--item", '{"id": "A"}')
    return bare


def begin(slow: Any, *args: str) -> subprocess.Popen[str]:
    running = subprocess.Popen(
        slow.command(*args), cwd=slow.folder, env=slow.env, stderr=subprocess.PIPE, text=True
    )
    while not Path(slow.folder / "begun").exists():
        assert running.poll() is None, running.communicate()
    return running


def status(slow: Any) -> tuple[str, str, int]:
    """Its status, its last reason, and its counted tries."""
    shown = slow.ok("show", "slow", "A", "--json").json
    return shown["status"], shown["history"][-1]["reason"], shown["total_attempts"]


@pytest.mark.parametrize(
    ("command", "by"), [(("work",), "flag"), (("up", "--no-listen"), "file")], ids=["work", "up"]
)
def test_a_handler_past_its_grace_is_given_back_and_a_longer_grace_lets_it_finish(
    slow: Any, command: tuple[str, ...], by: str
) -> None:
    def options(grace: str) -> tuple[str, ...]:
        if by == "flag":
            return (*command, "--grace", grace)
        slow.write("milepost.toml", f'routes = ["slow.py"]\ngrace = "{grace}"\n')
        return command

    running = begin(slow, *options("0s"))
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert status(slow) == ("QUEUED", "given-back", 0)

    (slow.folder / "begun").unlink()
    running = begin(slow, *options("10m"))
    running.send_signal(signal.SIGTERM)
    assert running.stderr is not None
    while "finishing running work" not in running.stderr.readline():
        assert running.poll() is None
    (slow.folder / "open").touch()
    assert running.communicate(timeout=60)[1].count("1 COMPLETED") == 1
    assert (running.returncode, status(slow)) == (0, ("COMPLETED", "completed", 0))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once_whatever_the_grace(slow: Any, number: signal.Signals) -> None:
    running = begin(slow, "work", "--grace", "10m")
    running.send_signal(number)
    assert running.stderr is not None
    while "repeat to stop at once" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode != 0
    assert status(slow) == ("PROCESSING", "accepted", 0), "its lease brings it back"


def test_a_grace_that_is_no_span_is_refused(slow: Any) -> None:
    answer = slow("work", "--grace", "soon")
    assert answer.code == 2
    assert "--grace is 'soon'" in answer.err
    slow.write("milepost.toml", 'routes = ["slow.py"]\ngrace = "soon"\n')
    answer = slow("work")
    assert answer.code == 2
    assert "milepost.toml: grace is 'soon'" in answer.err
