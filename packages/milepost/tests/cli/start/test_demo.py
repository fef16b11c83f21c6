"""The demo, small: it runs through, sums up, and what it says to try next works; at a terminal it
stays until it is stopped."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from urllib.request import urlopen

import pytest
from tests.cli.conftest import Shell
from tests.interrupts import interrupt_beside_main_thread
from tests.polling import wait_until

from milepost.cli.start.demo import SETTINGS
from milepost.ledgers.sqlite.file.liveness import Liveness


@pytest.mark.slow
def test_the_demo_ends_by_itself_and_its_next_steps_work(bare: Shell) -> None:
    said = bare.ok("demo", "--items", "24").out
    assert "Created an archive of 36 assets with two days of invented history." in said
    assert re.search(r"^Dashboard: http://127\.0\.0\.1:\d+$", said, re.MULTILINE)
    assert "Submitted 24 parcels" in said
    assert "Submitted 24 notifications to ten partners" in said
    assert "breaker" not in said
    assert "parcels: 0/24 ended" in said
    assert "of 24 parcels delivered in" in said
    assert "arrive every second" not in said
    assert "\x1b" not in said
    steps = [line.strip() for line in said.splitlines() if line.startswith("  milepost ")]
    assert len(steps) >= 6
    inside = Shell(bare.folder / "milepost-demo")
    for step in steps:
        inside.ok(*shlex.split(step, comments=True)[1:])
    inside.ok("up", "--until-idle", "0")
    routes = inside.ok("status", "--json").json["routes"]
    assert (routes["parcels"]["total"], routes["archive"]["total"]) == (24, 36)
    ended = routes["notifications"]["statuses"]
    assert (ended["COMPLETED"], ended["REJECTED"]) == (23, 1), (
        "every partner was there again in time"
    )


def heard(process: subprocess.Popen[str], found: Callable[[str], object]) -> str:
    """What it says, up to the first line in which that is found."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found(line):
            return said
    raise AssertionError(said)


@pytest.mark.slow
def test_the_page_answers_while_the_demo_stays_and_ctrl_c_ends_it_cleanly(bare: Shell) -> None:
    command = bare.command("demo", "--items", "8", "--stay")
    with subprocess.Popen(
        command,
        cwd=bare.folder,
        env=bare.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = heard(process, lambda line: "Dashboard" in line)
            url = said.split()[-1]
            with urlopen(url, timeout=30) as page:
                assert "archive" in page.read().decode()
            said += heard(process, lambda line: "arrive every second" in line)
            assert url in said.splitlines()[-1]
            wait_until(lambda: total(url) > 8)
            interrupt_beside_main_thread(process.pid)
            rest, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "of 8 parcels delivered in" in said
    assert "more parcels arrived" in rest
    assert "Try next:" in rest


def total(url: str) -> int:
    with urlopen(f"{url}/api/v1/status", timeout=30) as answer:
        return int(json.load(answer)["routes"]["parcels"]["total"])


def test_ctrl_c_in_the_midst_of_it_sums_up_what_was_done(bare: Shell) -> None:
    command = bare.command("demo", "--items", "500", "--no-page")
    with subprocess.Popen(
        command,
        cwd=bare.folder,
        env=bare.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            heard(process, lambda line: "parcels: " in line)
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert re.search(r"\d+ of 500 parcels delivered in", rest)
    assert "Try next:" in rest


def test_at_a_terminal_it_stays_and_nowhere_else(bare: Shell) -> None:
    from milepost.cli.start.demo import stays

    assert stays(None, page=True, terminal=True)
    assert not stays(None, page=True, terminal=False)
    assert not stays(None, page=False, terminal=True)
    assert stays(True, page=False, terminal=False)
    assert not stays(False, page=True, terminal=True)


@pytest.mark.parametrize(
    "work",
    [
        {"milepost.toml": 'routes = ["parcels.py"]\n', "milepost.db": "the ledger of a person"},
        {"milepost.toml": 'routes = ["parcels.py"]\n'},
        {"milepost.db": "the ledger of a person"},
        {"catalogue.jsonl": '{"id": 1}\n'},
    ],
)
def test_a_folder_with_other_work_is_refused_and_keeps_every_file(
    bare: Shell, work: dict[str, str]
) -> None:
    for name, text in work.items():
        bare.write(name, text)
    answer = bare("demo", "--items", "1", "--no-page", "--folder", ".")
    assert answer.code == 2, answer
    assert (
        f"holds files that no demo has written ({', '.join(sorted(work))}), and they are kept"
        in answer.err
    )
    assert "--folder" in answer.err
    assert {path.name: path.read_text() for path in bare.folder.iterdir()} == work


def test_a_demo_that_runs_is_not_replaced_by_another_one(bare: Shell) -> None:
    (bare.folder / "milepost-demo" / "milepost.db-workers").mkdir(parents=True)
    bare.write("milepost-demo/milepost.toml", SETTINGS)
    ledger = bare.write("milepost-demo/milepost.db", "in use")
    liveness = Liveness(str(ledger))
    liveness.sign_on("the-first-demo")
    try:
        answer = bare("demo", "--items", "1", "--no-page")
    finally:
        liveness.sign_off("the-first-demo")
    assert answer.code == 1, answer
    assert "1 process is using the earlier demo in " in answer.err
    assert ledger.read_text() == "in use"


def test_without_what_the_page_needs_one_line_says_so_and_the_demo_starts_anew_all_the_same(
    bare: Shell,
) -> None:
    (bare.folder / "milepost-demo").mkdir()
    (bare.folder / "milepost-demo" / "milepost.db").write_text("what an earlier demo left")
    (bare.folder / "milepost-demo" / "milepost.toml").write_text(SETTINGS)
    # A folder before all others, in which the server cannot be imported.
    (bare.folder / "uvicorn.py").write_text("raise ImportError('not here', name='uvicorn')\n")
    answer = bare.started(
        "demo", "--items", "1", PYTHONPATH=os.pathsep.join([str(bare.folder), *sys.path[1:]])
    )
    assert answer.code == 0, answer
    assert (
        "milepost demo: the HTTP server needs a package that is not installed (uvicorn): pip install '/path/to/milepost/packages/milepost[http]', or give --no-page"
        in answer.err
    )
    assert "The page" not in answer.out
    assert "of 1 parcels delivered" in answer.out
