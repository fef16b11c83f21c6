"""`milepost work --processes N` and `milepost up --processes N`: several processes, one of which is
killed, or ends with an error."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.polling import wait_until

from milepost.runners.process import cpus_by_core

NOTED = """
import os
import sys
import time
from pathlib import Path

import milepost as mp

noted = mp.Route("noted", key="id")


@noted.stage("note", concurrency=2)
def note(item: mp.Item) -> mp.Outcome:
    scheduling = os.sched_getscheduler(0) if sys.platform == "linux" else ""
    Path(f"{item.key}.{os.getpid()}").write_text(f"{sys.getswitchinterval()} {scheduling}")
    if sys.platform == "linux":
        Path(f"cpus.{os.getpid()}").write_text(repr(sorted(os.sched_getaffinity(0))))
    while not Path("open").exists():
        time.sleep(0.01)
    return mp.Done()
"""


@pytest.fixture
def noted(bare: Any) -> Any:
    bare.write("noted.py", NOTED)
    bare.write("milepost.toml", 'routes = ["noted.py"]\n')
    return bare


def submit(noted: Any, n: int) -> None:
    for number in range(n):
        noted.ok("submit", "noted", "--item", f'{{"id": "A{number}"}}')


def begin(noted: Any, *args: str) -> subprocess.Popen[str]:
    command = noted.command("work", "--processes", "2", "--grace", "20s", *args)
    return subprocess.Popen(
        command, cwd=noted.folder, env=noted.env, stderr=subprocess.PIPE, text=True
    )


def workers(noted: Any) -> set[int]:
    """The processes whose handlers have begun."""
    return {int(path.suffix[1:]) for path in Path(noted.folder).glob("A*.*")}


def let_go(noted: Any) -> None:
    Path(noted.folder, "open").touch()


def completed(noted: Any) -> int:
    return int(noted.ok("status", "--json").json["routes"]["noted"]["statuses"].get("COMPLETED", 0))


def is_there(pid: int) -> bool:
    try:
        # A zombie still has its id, but no command.
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def test_processes_share_the_work_and_end_together(noted: Any) -> None:
    submit(noted, 4)
    running = begin(noted, "--until-idle", "0.2")
    wait_until(lambda: len(workers(noted)) == 2)
    let_go(noted)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert running.pid not in workers(noted)
    assert "milepost work: processes " in said
    assert completed(noted) == 4
    # Threads switch soon, so that no process waits long for another one's write; and none
    # interrupts one at work when it wakes up.
    batch = os.SCHED_BATCH if sys.platform == "linux" else ""
    assert {path.read_text() for path in Path(noted.folder).glob("A*.*")} == {f"0.001 {batch}"}


def test_a_process_that_is_killed_is_replaced(noted: Any) -> None:
    submit(noted, 4)
    running = begin(noted, "--until-idle", "0.2")
    wait_until(lambda: len(workers(noted)) == 2)
    os.kill(min(workers(noted)), signal.SIGKILL)
    wait_until(lambda: len(workers(noted)) == 3)
    let_go(noted)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert "was killed (SIGKILL); another one starts in 1 s" in said
    assert completed(noted) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="CPUs are given to processes on Linux only")
def test_pinned_workers_have_a_cpu_each(noted: Any) -> None:
    def cpus() -> list[str]:
        return sorted(path.read_text() for path in Path(noted.folder).glob("cpus.*"))

    submit(noted, 4)
    running = begin(noted, "--pin", "--until-idle", "0.2")
    wait_until(lambda: len(workers(noted)) == 2)
    first = cpus()
    assert first == sorted(repr([cpu]) for cpu in cpus_by_core()[:2])
    # The process that replaces a killed one has its CPU.
    killed = min(workers(noted))
    its_cpu = Path(noted.folder, f"cpus.{killed}").read_text()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: len(workers(noted)) == 3)
    let_go(noted)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert cpus() == sorted([*first, its_cpu])


def test_a_signal_drains_all_processes(noted: Any) -> None:
    submit(noted, 4)
    running = begin(noted)
    wait_until(lambda: len(list(Path(noted.folder).glob("A*.*"))) == 4)
    running.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert running.poll() is None
    let_go(noted)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert completed(noted) == 4


def test_a_parent_that_is_killed_leaves_no_worker_behind(noted: Any) -> None:
    submit(noted, 4)
    running = begin(noted)
    wait_until(lambda: len(workers(noted)) == 2)
    running.kill()
    let_go(noted)
    running.communicate(timeout=60)
    wait_until(lambda: not any(map(is_there, workers(noted))))


def test_an_error_of_one_ends_all_with_its_exit_code(noted: Any) -> None:
    noted.write("noted.py", "import no_such_module\n")
    alone = noted("work")
    together = noted("work", "--processes", "2")
    assert alone.code == together.code > 0
    assert "no_such_module" in together.err


def test_a_ledger_in_memory_cannot_be_shared(noted: Any) -> None:
    refused = noted("--ledger", "memory:", "work", "--processes", "2")
    assert refused.code == 2
    assert "cannot be shared by processes" in refused.err


class Site:
    """`milepost up --processes 2`, and its address."""

    def __init__(self, noted: Any) -> None:
        # Each server takes a free port: one that was free a moment ago may have been taken by
        # another test.
        command = noted.command(
            "up", "--processes", "2", "--grace", "20s", "--listen", "127.0.0.1:0"
        )
        self.errors = Path(noted.folder, "errors.txt")
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, cwd=noted.folder, env=noted.env, stderr=errors)

    def wait_for_servers(self, number: int) -> None:
        """Wait until so many servers have begun to listen, one after the other."""
        wait_until(
            lambda: len(self._ports) == number or self.process.poll() is not None,
            otherwise=lambda: self.said,
        )
        assert len(self._ports) == number, self.said

    @property
    def _ports(self) -> list[str]:
        return re.findall(r"listening at http://127\.0\.0\.1:(\d+)", self.said)

    @property
    def port(self) -> int:
        """The port of the present server."""
        return int(self._ports[-1])

    @property
    def said(self) -> str:
        return self.errors.read_text()

    @property
    def serving(self) -> int:
        """The process that serves, as it was started first."""
        found = re.search(r"milepost up: processes (\d+), \d+, \d+\n", self.said)
        assert found, self.said
        return int(found[1])

    def submit(self, key: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            "POST",
            "/api/v1/routes/noted/items",
            json.dumps({"id": key}),
            {"Content-Type": "application/json"},
        )
        answer: str = json.loads(connection.getresponse().read())["answer"]
        connection.close()
        return answer


@pytest.fixture
def up(noted: Any) -> Iterator[Callable[[], Site]]:
    begun: list[Site] = []

    def begin() -> Site:
        begun.append(Site(noted))
        begun[-1].wait_for_servers(1)
        return begun[-1]

    yield begin
    for site in begun:
        site.process.kill()
        site.process.wait()


def test_up_serves_in_one_process_and_works_in_others(noted: Any, up: Callable[[], Site]) -> None:
    site = up()
    assert [site.submit(f"A{number}") for number in range(4)] == ["new"] * 4
    wait_until(lambda: len(list(Path(noted.folder).glob("A*.*"))) == 4)
    assert len(workers(noted)) == 2
    assert not workers(noted) & {site.process.pid, site.serving}
    site.process.send_signal(signal.SIGTERM)
    let_go(noted)
    assert site.process.wait(60) == 0, site.said
    assert completed(noted) == 4
    assert not any(map(is_there, {site.serving, *workers(noted)}))


def test_up_replaces_the_process_that_serves_and_the_workers_go_on(
    noted: Any, up: Callable[[], Site]
) -> None:
    site = up()
    site.submit("A0")
    wait_until(lambda: len(workers(noted)) == 1)
    os.kill(site.serving, signal.SIGKILL)
    site.wait_for_servers(2)
    assert site.submit("A1") == "new"
    assert all(map(is_there, workers(noted)))
    let_go(noted)
    wait_until(lambda: completed(noted) == 2)


def test_up_ends_with_the_error_of_its_server(noted: Any, up: Callable[[], Site]) -> None:
    site = up()
    taken = noted("up", "--processes", "1", "--listen", f"127.0.0.1:{site.port}")
    assert taken.code > 0
    assert str(site.port) in taken.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("up", "--pin"), "--pin needs --processes"),
        (("up", "--processes", "2", "--no-work"), "leave out --no-work"),
        (("up", "--processes", "2", "--until-idle"), "leave out --until-idle"),
        (("--ledger", "memory:", "up", "--processes", "2"), "cannot be shared by processes"),
    ],
)
def test_up_refuses_options_that_do_not_go_with_processes(
    noted: Any, words: tuple[str, ...], said: str
) -> None:
    refused = noted(*words)
    assert refused.code == 2
    assert said in " ".join(refused.err.split())
