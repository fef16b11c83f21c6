"""Errors of commands: one format; a route on a ledger in memory warns that it forgets."""

from __future__ import annotations

import json
import os
import subprocess

import pytest


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["show", "parcels", "nobody", "--json"], 1, "MilepostError"),
        (["status", "--ledger", "sqlite:///nowhere.db", "--json"], 1, "LedgerError"),
        (["status", "letters", "--json"], 2, "UsageError"),
        (["retry", "parcels", "--json"], 2, "UsageError"),
        (["show", "parcels", "\udcff", "--json"], 2, "UsageError"),
        (["list", "parcels", "--status", "asleep", "--json"], 2, None),
    ],
)
def test_with_json_an_error_is_one_object_on_standard_error(
    shell, args: list[str], code: int, kind: str | None
) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "a"}')
    answer = shell(*args)
    assert answer.code == code
    assert answer.out == ""
    error = json.loads(answer.err)["error"]
    assert error["message"]
    assert kind is None or error["kind"] == kind


def test_a_route_that_forgets_says_so(shell) -> None:
    (shell.folder / "short.py").write_text(
        'import milepost as mp\nshort = mp.Route("short", remember="30d")\nshort.stage("do")(lambda item: mp.Done())\n'
    )
    routes = ["--routes", "short.py", "--ledger", "sqlite:///short.db"]
    shell.ok("submit", "short", "--item", '{"id": "a"}', *routes)
    assert "short remembers a finished key for 30 d only." in shell.ok("routes", *routes).out
    assert shell.ok("routes", "--json", *routes).json["routes"][0]["remembers_s"] == 30 * 86_400


def test_an_ended_item_has_the_time_of_its_end(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "bad", "torn": true}')
    assert shell.ok("show", "parcels", "bad", "--json").json["ended_at"] is None
    shell.ok("work", "--until-idle", "0")
    shown = shell.ok("show", "parcels", "bad", "--json").json
    assert (shown["status"], shown["ended_at"]) == ("REJECTED", shown["history"][-1]["at"])


# Output that cannot be written --------------------------------------------------------------------
UNWRITABLE = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="no /dev/full on this system"
)


def with_output(
    shell, redirection: str, *args: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that redirects its standard output."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *shell.command(*args)],
        cwd=shell.folder,
        env={**shell.env, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


@UNWRITABLE
@pytest.mark.parametrize(
    "args",
    [("export", "parcels"), ("list", "parcels"), ("status", "--json"), ("status",), ("--help",)],
)
@pytest.mark.parametrize("env", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_output_that_cannot_be_written_is_one_sentence(
    shell, args: tuple[str, ...], env: dict[str, str]
) -> None:
    shell.submit({"id": "a", "note": "x" * 20_000})
    answer = with_output(shell, "> /dev/full", *args, **env)
    assert answer.returncode == 1
    message = answer.stderr
    if "--json" in args:
        error = json.loads(message)["error"]
        assert error["kind"] == "OutputError"
        message = error["message"]
    assert (
        "the output cannot be written: No space left on device. What was printed is incomplete"
        in message
    )
    assert "send the output elsewhere" in message
    assert len(answer.stderr.splitlines()) == 1


def test_a_closed_output_is_one_sentence_and_what_was_done_stays_done(shell) -> None:
    answer = with_output(shell, ">&-", "submit", "parcels", "--item", '{"id": "a"}')
    assert answer.returncode == 1
    assert "milepost: the output cannot be written: Bad file descriptor." in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert shell.ok("show", "parcels", "a", "--json").json["key"] == "a"


def test_an_error_of_a_command_keeps_its_code_when_output_is_closed(shell) -> None:
    shell.submit({"id": "a"})
    answer = with_output(shell, ">&-", "list", "letters")
    assert (answer.returncode, "letters" in answer.stderr, "Traceback" in answer.stderr) == (
        2,
        True,
        False,
    )


def test_a_closed_pipe_is_silent(shell) -> None:
    """Also where Python tells of what fails at exit, as 3.13.5 does."""
    shell.submit(*({"id": f"P-{number}"} for number in range(2000)))
    answer = with_output(shell, "| head -n 1", "export", "parcels")
    assert (len(answer.stdout.splitlines()), answer.stderr) == (1, "")
