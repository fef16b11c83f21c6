"""Sources of the ledger URL and the routes, and messages about mistakes in them."""

from __future__ import annotations

import os
import sys

import click
import pytest
from click.testing import CliRunner

from milepost.cli import _folded
from milepost.cli.commands import cli
from milepost.route_files import load_file

COMMANDS = (
    "acts", "adopt", "alerts", "backup", "breakers", "cancel", "completion", "confirm", "cost", "demo", "doctor", "export", "forecast", "forget", "groups", "heads", "init", "keys", "limit", "list", "lists",
    "move", "pause", "prune", "quarantine", "redate", "replace", "rerun", "reschedule", "resend", "restore", "resume", "retry", "routes", "show", "signing-key", "skip", "status", "submit",
    "subscribers", "up", "upgrade", "verify", "volume", "watch", "work",
)  # fmt: skip


def test_help_names_every_command_and_is_no_failure(bare) -> None:
    answer = bare.ok("--help")
    for command in COMMANDS:
        assert f"\n  {command} " in answer.out, command


def test_every_command_has_help_and_options_that_say_what_they_do() -> None:
    context = click.Context(cli)
    assert sorted(cli.list_commands(context)) == sorted(COMMANDS)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        shown = CliRunner().invoke(cli, [name, "--help"]).output
        assert shown.startswith(f"Usage: cli {name}")
        short = command.get_short_help_str(62)
        assert short.endswith((".", "?")), name
        assert not short.endswith("..."), f"{name}: its first sentence is cut off"
        for option in command.params:
            assert (
                isinstance(option, click.Argument)
                or option.help
                or option.name in ("form", "folder")
            ), (name, option.name)


def test_messages_are_folded_between_words_and_a_command_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = f"milepost routes apply parcels --map weigh=STAGE {'--by YOU ' * 9}"
    text = "milepost:" + " the route is not the one that the ledger holds" * 3
    *prose, last = _folded(f"{text}: {command}").split("\n")
    assert last == f"  {command}"
    assert max(map(len, prose)) <= 60
    assert " ".join(prose) == f"{text}:"


def test_version(bare) -> None:
    assert bare.ok("--version").out.startswith("milepost 0.")


def test_an_unknown_command_or_option_is_wrong_usage(bare) -> None:
    assert bare("frobnicate").code == 2
    assert "No such option" in bare("status", "--frobnicate").err
    assert bare("status", "--frobnicate").code == 2


def test_the_ledger_is_taken_from_the_option_then_the_environment_then_the_file(shell) -> None:
    shell.ok("submit", "parcels", "--item", '{"id": "A"}', "--ledger", "sqlite:///one.db")
    shell.ok("--ledger", "two.db", "submit", "parcels", "--item", '{"id": "A"}')
    shell.ok("submit", "parcels", "--item", '{"id": "A"}', MILEPOST_LEDGER="sqlite:///three.db")
    shell.write("milepost.toml", 'routes = ["parcels.py"]\nledger = "sqlite:///four.db"\n')
    shell.ok("submit", "parcels", "--item", '{"id": "A"}')
    shell.ok(
        "submit",
        "parcels",
        "--item",
        '{"id": "A"}',
        "--ledger",
        "sqlite:///one.db",
        MILEPOST_LEDGER="sqlite:///three.db",
    )
    made = sorted(path.name for path in shell.folder.glob("*.db"))
    assert made == ["four.db", "one.db", "three.db", "two.db"]
    for url in ("one.db", "sqlite:///two.db", f"sqlite:///{shell.folder}/three.db"):
        assert shell.ok("status", "--json", "--ledger", url).json["routes"]["parcels"]["total"] == 1


def test_by_default_the_ledger_is_a_file_here(shell) -> None:
    shell.submit({"id": "A"})
    assert (shell.folder / "milepost.db").exists()


@pytest.mark.parametrize(
    "spec", ["parcels.py", "parcels.py:parcels", "parcels:parcels", "./parcels.py"]
)
def test_routes_are_named_as_files_or_modules(shell, spec: str) -> None:
    (shell.folder / "milepost.toml").unlink()
    assert (
        shell.ok("--routes", spec, "submit", "parcels", "--item", '{"id": "A"}').out
        == "A: accepted at weigh\n"
    )
    assert shell.ok("submit", "parcels", "--item", '{"id": "A"}', "--routes", spec).out.startswith(
        "A: already known, QUEUED at weigh"
    )


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("none.py", "there is no route file none.py"),
        ("none:x", "there is no module 'none'"),
        ("parcels.py:letters", "has no route 'letters'; it has parcels"),
        ("empty.py", "empty.py has no route"),
        ("syntax.py", "syntax.py, line 2:"),
        ("raises.py", "raises.py, line 2: ZeroDivisionError: division by zero"),
        ("imports.py", "No module named 'not_installed_at_all'"),
        ("twice.py", "twice.py, line 9: route 'r' has two stages called 'a'"),
        ("leaves.py", "leaves.py, line 1: SystemExit: 3"),
    ],
)
def test_a_wrong_route_file_is_told_with_its_line(shell, spec: str, said: str) -> None:
    shell.write("empty.py", "x = 1\n")
    shell.write("syntax.py", "x = 1\ndef (:\n")
    shell.write("raises.py", "x = 1\nx / 0\n")
    shell.write("imports.py", "import not_installed_at_all\n")
    shell.write("leaves.py", "raise SystemExit(3)\n")
    stage = "@r.stage('a')\ndef one(item):\n    ...\n"
    shell.write("twice.py", f"import milepost as mp\nr = mp.Route('r')\n\n{stage}\n\n{stage}")
    answer = shell("--routes", spec, "submit", "parcels", "--item", '{"id": "A"}')
    assert answer.code == 2
    assert answer.err.startswith("milepost: ")
    assert said in answer.err


def test_no_route_at_all_says_how_to_name_one(bare) -> None:
    answer = bare("submit", "parcels", "--item", "{}")
    assert answer.code == 2
    assert "give --routes file.py" in answer.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("routes = 'parcels.py'\n", "routes is 'parcels.py'; it must be a list of texts"),
        (
            "route = []\n",
            "'route' is not a setting; settings are ledger, routes, applications, subscribers",
        ),
        ("routes = [\n", "milepost.toml: "),
        ('mode = "0777"\n', "milepost.toml: mode is '0777'; write octal text such as \"0600\""),
        ("mode = 0o660\n", "mode is 432; it must be text"),
    ],
)
def test_a_wrong_settings_file(shell, text: str, said: str) -> None:
    shell.write("milepost.toml", text)
    answer = shell("submit", "parcels", "--item", '{"id": "A"}')
    assert answer.code == 2
    assert said in answer.err


def test_a_settings_file_of_a_windows_editor(shell) -> None:
    path = shell.folder / "milepost.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert shell.ok("submit", "parcels", "--item", '{"id": "A"}').out == "A: accepted at weigh\n"
    path.write_bytes(b'# ledger\r\nroutes = ["parc\xe9ls.py"]\r\n')
    answer = shell("status")
    assert answer.code == 2
    assert (
        answer.err
        == "milepost: milepost.toml is not UTF-8: byte 0xe9 in line 2; save it as UTF-8\n"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('routes = ["none.py"]\n', "route file"),
        ('routes = ["parcels.py"]\nsubscribers = ["none.py:tell"]\n', "subscriber file"),
        ('routes = ["parcels.py"]\napplications = ["none.py"]\n', "application file"),
    ],
)
def test_a_missing_file_is_named_with_its_kind_and_folder(shell, text: str, kind: str) -> None:
    shell.write("milepost.toml", text)
    answer = shell("up", "--until-idle", "0", "--no-listen")
    assert answer.code == 2
    assert (
        f"there is no {kind} none.py in {shell.folder.resolve()}: correct its name in milepost.toml"
        in answer.err
    )


def test_looking_never_makes_a_ledger(shell) -> None:
    for command in (
        ("status",),
        ("show", "parcels", "A"),
        ("list", "parcels"),
        ("doctor",),
        ("watch", "--once"),
        ("export", "parcels"),
    ):
        answer = shell(*command)
        assert answer.code == 1
        assert "there is no ledger at milepost.db" in answer.err
    assert not (shell.folder / "milepost.db").exists()


def test_a_ledger_that_is_none(shell) -> None:
    shell.write("notes.db", "this is a letter to my aunt, and no database" * 50)
    answer = shell("status", "--ledger", "sqlite:///notes.db")
    assert answer.code == 1
    assert answer.err.startswith("milepost: ")
    assert shell("status", "--ledger", "redis://x").code == 2


def test_completion_is_printed_and_works(bare) -> None:
    for name in ("bash", "zsh", "fish"):
        assert "_MILEPOST_COMPLETE" in bare.ok("completion", name).out
    assert bare("completion", "cobol").code == 2
    answer = bare(_MILEPOST_COMPLETE="bash_complete", COMP_WORDS="milepost sta", COMP_CWORD="1")
    assert "plain,status" in answer.out


def test_init_writes_a_route_that_runs(bare) -> None:
    said = bare.ok("init").out
    commands = [
        line.split("#")[0].split() for line in said.splitlines() if line.startswith("  milepost ")
    ]
    assert len(commands) == 4
    for command in commands:
        bare.ok(*command[1:])
    statuses = bare.ok("status", "--json").json["routes"]["parcels"]["statuses"]
    assert statuses == {"COMPLETED": 2, "REJECTED": 1}
    again = bare("init")
    assert again.code == 1
    assert "not overwritten" in again.err
    assert "cd other" in bare.ok("init", "other").out


def test_a_route_file_written_twice_within_a_second_is_read_anew(bare, monkeypatch) -> None:
    """Python's cache of compiled files goes by size and second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = bare.folder / "same.py"
    for name in ("weigh", "scale"):
        path.write_text(f"import milepost as mp\nr = mp.Route('r')\nr.external('{name}')\n")
        os.utime(path, (1_700_000_000, 1_700_000_000))
        sys.modules.pop("same", None)
        assert [stage.name for stage in load_file(path).r.stages] == [name]
    sys.modules.pop("same", None)


def test_a_ledger_given_to_a_group_is_that_of_its_commands(shell) -> None:
    elsewhere = ("--ledger", "sqlite:///other.db")
    shell.ok("submit", "parcels", "--item", '{"id": "a"}', *elsewhere)
    shell.signed("keys", *elsewhere, "new", "loader", "--scope", "read")
    assert [one["name"] for one in shell.ok("keys", "--json", *elsewhere).json["keys"]] == [
        "loader"
    ]
    shell.ok("submit", "parcels", "--item", '{"id": "a"}')
    assert shell.ok("keys", "--json").json["keys"] == []


@pytest.mark.parametrize(("setting", "mode"), [("", "0o600"), ('mode = "0640"\n', "0o640")])
def test_the_setting_mode_is_that_of_a_new_ledger(shell, setting: str, mode: str) -> None:
    shell.write("milepost.toml", f'{setting}routes = ["parcels.py"]\n')
    shell.ok("submit", "parcels", "--item", '{"id": "A"}')
    assert oct((shell.folder / "milepost.db").stat().st_mode & 0o777) == mode
