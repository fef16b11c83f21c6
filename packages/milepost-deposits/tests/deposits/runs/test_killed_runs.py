"""Runs that are killed (SIGKILL): each leaves a record that says so, and the next run reports what
it did, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from tests.deposits.runs.killed_run import POINTS
from tests.deposits.sample_folder import Folder, sample_folder
from tests.project import TEST_PATH

from milepost_deposits.standins.dspace import DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

GOOD, LATE = "10.1002/good", "10.1002/late"


@pytest.fixture
def folder(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> Iterator[Folder]:
    """One DOI that can be deposited, one without a PDF, and a file that is no list."""
    crossref.everything = True
    publisher.put(GOOD)
    with DSpaceStandIn() as dspace, MailboxStandIn(tmp_path / "mails") as mailbox:
        made = sample_folder(tmp_path, crossref, publisher, dspace, mailbox)
        (tmp_path / "inbox" / "march.csv").write_text(f"{GOOD}\n{LATE}\n")
        (tmp_path / "inbox" / "bad.csv").write_text("title\nFoam\n")
        yield made


def kill_run(folder: Folder, point: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("killed_run.py")
    env = {**folder.env, "PYTHONPATH": TEST_PATH}
    killed = subprocess.Popen(
        [sys.executable, str(script), point],
        cwd=folder.path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    killed.communicate(timeout=120)
    return killed


def states(folder: Folder) -> list[str]:
    return [one["state"] for one in json.loads(folder("runs", "--json").out)]


def mailed(folder: Folder) -> dict[str, list[str]]:
    """What was mailed of each DOI. A mail that was sent again has the same Message-ID, and counts
    once."""
    mails = {}
    for file in sorted((folder.path / "mails").glob("*.eml")):
        mail = message_from_bytes(file.read_bytes(), policy=default)
        mails[str(mail["Message-ID"])] = mail
    found: dict[str, list[str]] = {GOOD: [], LATE: [], "notes": []}
    for mail in mails.values():
        body = mail.get_body(("plain",))
        assert body is not None
        text = body.get_content().replace("\r\n", "\n")
        found["notes"] += [line for line in text.splitlines() if "was interrupted" in line]
        for section in text.split("\n\n"):
            kind, *lines = section.splitlines()
            for doi in (GOOD, LATE):
                if any(line.split()[:1] == [doi] for line in lines):
                    found[doi].append(kind)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_run_is_shown_as_interrupted_and_reported_by_the_next_one(
    folder: Folder, point: str
) -> None:
    killed = kill_run(folder, point)
    assert killed.returncode == -signal.SIGKILL
    [left] = json.loads(folder("runs", "--json").out)
    assert (left["state"], left["process"]["pid"]) == ("interrupted", killed.pid)
    assert f"process {killed.pid} on " in folder("runs").out
    following = folder("run")
    assert following.code == 1, "the file that is no list needs people, whichever run has moved it"
    assert f"UTC (process {killed.pid} on {os.uname().nodename}) was interrupted" in following.out
    assert following.out.count("no column") == 1
    assert "digests mailed: " in following.out
    assert states(folder) == ["finished", "interrupted"]
    found = mailed(folder)
    # LATE has no PDF: in this run or already in the killed one it has failed, and each digest names
    # its last failure.
    assert found[GOOD] == ["DEPOSITED"]
    assert found[LATE] in (["WILL BE RETRIED"], ["WILL BE RETRIED", "WILL BE RETRIED"])
    assert len(found["notes"]) == 1
    last = folder("run")
    assert "interrupted" not in last.out
    assert len(mailed(folder)["notes"]) == 1
    assert states(folder) == ["finished", "finished", "interrupted"]


@pytest.mark.slow
def test_a_run_that_dies_while_it_reports_another_one_leaves_both_to_the_next(
    folder: Folder,
) -> None:
    first = kill_run(folder, "a bad file is in quarantine")
    second = kill_run(folder, "all DOIs are worked on")
    assert states(folder) == ["interrupted", "interrupted"]
    following = folder("run")
    for killed in (first, second):
        assert f"(process {killed.pid} on" in following.out
    assert following.code == 1
    found = mailed(folder)
    assert (len(found["notes"]), found[GOOD]) == (2, ["DEPOSITED"])


@pytest.mark.slow
def test_a_run_that_runs_is_shown_as_running_by_another_process(
    folder: Folder, crossref: CrossrefStandIn
) -> None:
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPS_AT_WORK],
        cwd=folder.path,
        env={**folder.env, "PYTHONPATH": TEST_PATH},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert stopped.stdout is not None
        for line in stopped.stdout:
            if line.strip() == "at work":
                break
        [run] = json.loads(folder("runs", "--json").out)
        assert (run["state"], run["step"], run["new"]) == ("running", "working on DOIs", 2)
        beside = folder("run")
        assert "interrupted" not in beside.out, "two runs at once: neither reports the other"
        assert states(folder) == ["finished", "running"]
    finally:
        stopped.kill()
        stopped.communicate(timeout=120)
    assert states(folder) == ["finished", "interrupted"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_by_a_signal_finishes_its_running_work_and_ends(
    folder: Folder, number: signal.Signals
) -> None:
    (folder.path / "inbox" / "april.csv").write_text(
        "".join(f"10.1002/a{number}\n" for number in range(50))
    )
    env = {**folder.env, "PYTHONPATH": TEST_PATH, "SENT": str(int(number))}
    stopped = subprocess.run(
        [sys.executable, "-c", SIGNALS_ITSELF],
        cwd=folder.path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert stopped.returncode == 128 + number, stopped.stderr
    [run] = json.loads(folder("runs", "--json").out)
    assert (run["state"], run["step"], run["error"]) == (
        "interrupted",
        "working on DOIs",
        "it was stopped by a signal",
    )
    assert json.loads(folder("status", "--json").out)["Processing"] > 0, (
        "it has not worked on the rest"
    )
    following = folder("run")
    assert "was interrupted while it was working on DOIs" in following.out
    assert json.loads(folder("status", "--json").out)["Processing"] == 0
    assert mailed(folder)[GOOD] == ["DEPOSITED"]


SIGNALS_ITSELF = """
import os, sys
from milepost_deposits.fetch.metadata import MetadataStage
from milepost.cli import main
fetch, sent = MetadataStage.__call__, []
def signalling(self, item):
    if not sent:
        sent.append(True)
        os.kill(os.getpid(), int(os.environ["SENT"]))
    return fetch(self, item)
MetadataStage.__call__ = signalling
sys.argv[1:] = ["deposits", "run"]
main()
"""

STOPS_AT_WORK = """
import sys, time
from milepost.application.context import AppContext
from milepost.cli import main
def work(self, *, until_idle=0):
    print("at work", flush=True)
    time.sleep(600)
AppContext.work = work
sys.argv[1:] = ["deposits", "run"]
main()
"""
