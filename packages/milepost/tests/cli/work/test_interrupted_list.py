"""Ctrl-C while a list is being taken in."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from tests.polling import wait_until


def test_an_interrupted_list_says_that_it_may_be_submitted_again(shell: Any) -> None:
    command = shell.command("submit", "parcels", "-", "--format", "jsonl")
    with subprocess.Popen(
        command,
        cwd=shell.folder,
        env=shell.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until((shell.folder / "milepost.db").exists)
            process.send_signal(signal.SIGINT)
            # Standard input stays open meanwhile: the command does not end because the list does.
            process.wait(timeout=60)
            assert process.stderr is not None
            err = process.stderr.read()
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "submit it again, and the other lines follow" in err
    assert err.endswith("milepost: stopped\n")
    assert "Traceback" not in err
