"""Workers that die or come late: a message is sent again with the same id, and no late outcome is
written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.cli.conftest import Shell
from tests.http.page_text import text_of
from tests.net.partner import Line
from tests.notifications.partners import Partner, VirtualClock, answers, key_of, message, service

from milepost.engine.work.worker import LEASE_MS, Worker
from milepost.runners.threads import ThreadRunner

PATIENCE = 60.0


@contextmanager
def worker(folder: Path, toml: str) -> Iterator[subprocess.Popen[bytes]]:
    """`milepost work` in a process of its own."""
    (folder / "milepost.toml").write_text(toml)
    command = [sys.executable, "-m", "milepost", "work", "--ledger", f"sqlite:///{folder / 'n.db'}"]
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.DEVNULL, env={**os.environ, "CRM_CLIENT": "s3cret"}
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def settings(**lines: str) -> str:
    own = "\n".join(f"{name} = {value}" for name, value in lines.items())
    return f'applications = ["notifications"]\n[notifications]\nallow_cidrs = ["127.0.0.0/8"]\n[notifications.destinations.crm]\n{own}\n'


def test_s15_a_worker_that_is_killed_before_the_request_leaves_one_request(tmp_path: Path) -> None:
    dying: list[subprocess.Popen[bytes]] = []

    def kill(line: Line) -> None:
        # The worker holds the message and asks for a token: it has sent nothing to the partner yet.
        line.read()
        dying[0].send_signal(signal.SIGKILL)

    with (
        Partner(answers(200)) as partner,
        Partner(kill) as issuer,
        service(f"sqlite:///{tmp_path / 'n.db'}") as at,
    ):
        sent = message(partner.url)
        at.post(sent)
        auth = f'{{ kind = "oauth2", token_url = "{issuer.url}", client_id = "shop", client_secret_env = "CRM_CLIENT" }}'
        with worker(tmp_path, settings(url=f'"{partner.url}"', auth=auth)) as process:
            dying.append(process)
            assert process.wait(PATIENCE) == -signal.SIGKILL
        assert (at.item(sent)["status"], partner.requests) == ("PROCESSING", [])
        at.work()
        [request] = partner.requests
        assert (request.headers["x-delivery-attempt"], request.headers["x-previous-outcome"]) == (
            "2",
            "unknown",
        )
        item = at.item(sent)
        assert (item["status"], item["attempts"], item["losses"]) == ("COMPLETED", 0, 1)


def test_s15_a_worker_that_is_killed_after_the_request_sends_the_same_id_again(
    tmp_path: Path,
) -> None:
    dying: list[subprocess.Popen[bytes]] = []

    def kill_once(line: Line) -> None:
        while line.read() is not None:
            if dying[0].poll() is None:
                # The partner has acted; its answer is never written down.
                dying[0].send_signal(signal.SIGKILL)
                dying[0].wait()
            line.answer()

    with Partner(kill_once) as partner, service(f"sqlite:///{tmp_path / 'n.db'}") as at:
        sent = message(partner.url)
        at.post(sent)
        with worker(tmp_path, settings(url=f'"{partner.url}"')) as process:
            dying.append(process)
            assert process.wait(PATIENCE) == -signal.SIGKILL
        at.work()
        first, second = partner.requests
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert [one.headers["x-delivery-attempt"] for one in (first, second)] == ["1", "2"]
        assert [one.headers.get("x-previous-outcome") for one in (first, second)] == [
            None,
            "unknown",
        ]
        assert at.item(sent)["status"] == "COMPLETED"


def test_tries_that_are_broken_off_are_in_the_record_the_command_and_the_page(
    tmp_path: Path,
) -> None:
    dying: list[subprocess.Popen[bytes]] = []

    def kill_twice(line: Line) -> None:
        while line.read() is not None:
            if len(line.partner.requests) <= 2:
                dying[-1].send_signal(signal.SIGKILL)
                dying[-1].wait()
            line.answer()

    shell = Shell(tmp_path)
    ledger = f"sqlite:///{tmp_path / 'n.db'}"
    with Partner(kill_twice) as partner, service(ledger) as at:
        sent = message(partner.url)
        at.post(sent)
        for _ in range(2):
            with worker(tmp_path, settings(url=f'"{partner.url}"')) as process:
                dying.append(process)
                assert process.wait(PATIENCE) == -signal.SIGKILL
        at.work()
        assert partner.requests[-1].headers["x-delivery-attempt"] == "3"
        found = at.call(
            "GET", f"/api/v1/notifications/messages/{quote(key_of(sent), safe='')}"
        ).body
        page = text_of(at.call("GET", f"/notifications/messages/{quote(key_of(sent), safe='')}"))
    assert (found["tries"], found["lostTries"], found["totalLostTries"], found["retryHistory"]) == (
        1,
        2,
        2,
        [],
    )
    assert "Tries 1, and 2 broken off" in page
    shown = shell.ok("notifications", "show", "m-1", MILEPOST_LEDGER=ledger).out
    for said in (page, shown):
        assert (
            said.count(
                "A try was broken off: its worker was lost; the partner may have the message"
            )
            == 2
        )
    assert re.search(r"lostTries +2\n", shown)


def test_s16_an_outcome_that_comes_after_its_lease_is_refused(tmp_path: Path) -> None:
    clock, ledger = VirtualClock(), f"sqlite:///{tmp_path / 'n.db'}"
    asked, go_on = threading.Event(), threading.Event()

    def slow_then_quick(line: Line) -> None:
        first = len(line.partner.requests) == 0
        line.read()
        if first:
            asked.set()
            go_on.wait(PATIENCE)
            line.answer(400)
        else:
            line.answer(200)

    timeouts = {"connect": 60, "read": 60, "total": 60}
    with (
        Partner(slow_then_quick) as partner,
        service(ledger, clock, timeouts=timeouts) as slow,
        service(ledger, clock) as quick,
    ):
        sent = message(partner.url)
        slow.post(sent)
        woken = threading.Event()
        runner = ThreadRunner()
        runner.wake = lambda name: woken.set()  # type: ignore[method-assign]
        late = Worker(slow.ctx, runner, "late")
        late.turn()
        assert asked.wait(PATIENCE)
        clock.advance(LEASE_MS / 1000 + 1)
        quick.work()
        assert quick.item(sent)["status"] == "COMPLETED"
        go_on.set()
        assert woken.wait(PATIENCE)
        late.turn()
        runner.run([], lambda: True)
        item = quick.item(sent)
        assert (item["status"], item["results"]["deliver"]["statusCode"], item["losses"]) == (
            "COMPLETED",
            200,
            1,
        )
        assert len(partner.requests) == 2
        assert len({one.headers["webhook-id"] for one in partner.requests}) == 1
