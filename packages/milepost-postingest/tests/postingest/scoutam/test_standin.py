"""The stand-in for ScoutAM: what it answers by itself, and as a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from tests.postingest.tape_scene import scene_of

from milepost_postingest.scoutam.api import ScoutAM
from milepost_postingest.standins.scoutam import FILES, StandIn, derived, main


def test_a_file_is_archived_a_while_after_it_was_first_asked_for() -> None:
    with scene_of(everything=True, after=30) as scene:
        assert not scene.client.file("/archive/a").archdone
        scene.hands.now += 29
        assert scene.client.file("/archive/a").volumes("3") == ()
        assert not scene.client.file("/archive/b").archdone
        scene.hands.now += 1
        state = scene.client.file("/archive/a")
        assert state.archdone
        assert not scene.client.file("/archive/b").archdone
        (volume,) = state.volumes("3")
        assert volume == derived("/archive/a", True)["copies"][2]["sections"][0]["volume"]
        assert not scene.client.knows("/elsewhere/a")


def test_only_who_has_logged_in_is_answered() -> None:
    with StandIn(everything=True) as standin:
        assert standin.look("/archive/a", "made-up")[0] == 401
        for body in (b"", b"[]", b'{"acct": "milepost"}'):
            assert standin.log_in(body)[0] == 400
        assert standin.log_in(b'{"acct": "milepost", "pass": "no"}')[0] == 401


def test_it_ends_though_somebody_hangs_in_it_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with scene_of(everything=True, client={"timeout": 2}) as scene:
        scene.standin.fail("hang", times=1, where=FILES)
        assert "no whole answer" in str(scene.check("a"))
        scene.client.knows("/archive/b")
    assert set(threading.enumerate()) <= before


def test_as_a_program_it_prints_its_address_and_answers() -> None:
    command = [
        sys.executable,
        "-m",
        "milepost_postingest.standins.scoutam",
        "--port",
        "0",
        "--after",
        "1h",
        "--root",
        "/tape",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as program:
        try:
            assert program.stdout is not None
            url = program.stdout.readline().strip()
            with ScoutAM(url, "milepost", "milepost") as client:
                assert not client.file("/tape/a").archdone
                assert not client.knows("/archive/a")
        finally:
            program.send_signal(signal.SIGTERM)
        _, said = program.communicate(timeout=30)
    assert program.returncode == 0
    assert "every file below /tape" in said


def test_a_span_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--after", "soon"])
    assert "--after is 'soon'; give a span such as 30s" in capsys.readouterr().err
