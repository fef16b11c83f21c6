"""`milepost up --no-work`: the server in one process, the work in others. The death of one does not
touch the other."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.work.test_up import port_of
from tests.polling import wait_until

ROUTE = """
import time
from pathlib import Path

import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    Path("begun").touch()
    while not Path("open").exists():
        time.sleep(0.01)
    return mp.Done()
"""
TIMEOUT = 60


class Site:
    """A folder with a route whose handler waits for the file `open`, and the processes that were
    started there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        (folder / "route.py").write_text(ROUTE)
        self.port = 0

    def start(self, *words: str) -> tuple[subprocess.Popen[str], str]:
        """A command, and what it says until it is at work."""
        command = [sys.executable, "-m", "milepost", "--routes", "route.py", *words]
        process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if "until " in line:
                break
        return process, said

    def up(self) -> subprocess.Popen[str]:
        process, said = self.start("up", "--no-work", "--listen", "127.0.0.1:0")
        self.port = port_of(said)
        return process

    def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def item(self) -> tuple[str, list[str]]:
        found = self.call("GET", "/api/v1/routes/parcels/items/A")
        return found["status"], [line["reason"] for line in found["history"]]


@pytest.fixture
def site(tmp_path: Path) -> Any:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


def test_a_worker_that_is_killed_leaves_the_server_alone_and_the_server_takes_back_its_leases(
    site: Site,
) -> None:
    server = site.up()
    assert site.call("POST", "/api/v1/routes/parcels/items", {"id": "A"})["answer"] == "new"
    worker, _ = site.start("work")
    wait_until((site.folder / "begun").exists)
    assert site.item()[0] == "PROCESSING"
    worker.kill()
    worker.wait(TIMEOUT)
    # Long before the lease has run out: the lock that the dead worker held is the proof.
    wait_until(lambda: site.item() == ("QUEUED", ["accepted", "lost"]))
    assert site.call("POST", "/api/v1/routes/parcels/items", {"id": "B"})["answer"] == "new"
    (site.folder / "open").touch()
    site.start("work")
    wait_until(lambda: site.item()[0] == "COMPLETED")
    server.send_signal(signal.SIGTERM)
    assert server.wait(TIMEOUT) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_or_is_killed_leaves_the_worker_alone(
    site: Site, number: signal.Signals
) -> None:
    server = site.up()
    site.call("POST", "/api/v1/routes/parcels/items", {"id": "A"})
    worker, _ = site.start("work")
    wait_until((site.folder / "begun").exists)
    server.send_signal(number)
    # It has nothing in hand, and does not wait for what the worker has.
    assert server.wait(TIMEOUT) == (0 if number == signal.SIGTERM else -number)
    assert worker.poll() is None
    (site.folder / "open").touch()
    site.up()
    wait_until(lambda: site.item() == ("COMPLETED", ["accepted", "completed"]))


def test_without_a_worker_items_wait_and_until_idle_ends(site: Site) -> None:
    server = site.up()
    site.call("POST", "/api/v1/routes/parcels/items", {"id": "A"})
    again, _ = site.start("up", "--no-work", "--until-idle", "0")
    assert again.wait(TIMEOUT) == 0
    assert site.item() == ("QUEUED", ["accepted"])
    assert server.poll() is None
