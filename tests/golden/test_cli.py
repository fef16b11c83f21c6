"""The command line: every command with its options, and what commands answer about the golden
ledger.

Answers in JSON are in `cli/`; help and text for people, which may be reworded, are in
`prose/cli/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from tests.golden import internals
from tests.golden.history import milepost
from tests.golden.masks import masked, steady
from tests.golden.recording import Recorder, split_prose

ITEMS = (
    "waiting",
    "partner",
    "busy",
    "torn",
    "raised",
    "wrapped",
    "unwrapped",
    "dropped",
    "gone",
    "rerun",
    "late",
    "embargo",
    "done",
)
LOOKS: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "status-of-a-route": ("status", "parcels"),
    "status-with-ages": ("status", "--ages"),
    "status-of-a-part": ("status", "letters", "--part", "batch=B7"),
    "list": ("list", "parcels"),
    "list-failed": ("list", "parcels", "--status", "failed", "--limit", "1"),
    "list-overdue": ("list", "parcels", "--overdue"),
    "list-next": ("list", "parcels", "--next"),
    "groups": ("groups",),
    "groups-of-a-route": ("groups", "parcels"),
    "lists": ("lists",),
    "lists-vanished": ("lists", "letters", "--vanished", "LIST"),
    "acts": ("acts",),
    "doctor": ("doctor",),
    "routes": ("routes",),
    "subscribers": ("subscribers",),
    "heads": ("heads",),
    "keys": ("keys",),
    **{f"show-{key}": ("show", "parcels", key) for key in ITEMS},
    "show-letter": ("show", "letters", "B9#1"),
    "show-sealed-letter": ("show", "letters", "B7#1"),
}
PREVIEWS: dict[str, tuple[str, ...]] = {
    "retry": ("retry", "parcels", "--status", "failed"),
    "skip": ("skip", "parcels", "unwrapped"),
    "cancel": ("cancel", "parcels", "unwrapped", "done"),
    "resend": ("resend", "parcels", "rerun"),
    "prune": ("prune", "parcels", "--older-than", "1m", "--status", "CANCELLED"),
    "replay": ("subscribers", "replay", "log", "--since", "2d"),
}
PROSE = frozenset({"what", "next"})
"""Sentences in the doctor's answer; they are recorded with its text."""
MISTAKES: dict[str, tuple[str, ...]] = {
    "unknown-key": ("show", "parcels", "nowhere"),
    "unknown-route": ("status", "nowhere"),
    "unknown-option": ("status", "--nowhere"),
    "unsigned": ("cancel", "parcels", "unwrapped"),
    "no-ledger": ("--ledger", "sqlite:///nowhere.db", "status"),
}


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that it is called by."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*path, name))


def described(param: click.Parameter) -> dict[str, Any]:
    """An argument or option: all but its help."""
    found: dict[str, Any] = {"names": [*param.opts, *param.secondary_opts], "type": param.type.name}
    if isinstance(param.type, click.Choice):
        found["choices"] = list(param.type.choices)
    if isinstance(param, click.Option):
        found |= {"flag": param.is_flag, "metavar": param.metavar}
        if isinstance(param.default, (str, int, float)) and param.default is not False:
            found["default"] = param.default
    found |= {
        "required": param.required,
        "multiple": param.multiple,
        "nargs": param.nargs,
        "environment": param.envvar,
    }
    return {name: value for name, value in found.items() if value not in (None, False, 1)}


def test_commands_and_their_options_are_as_recorded(golden: Recorder) -> None:
    found = {
        " ".join(("milepost", *path)): [
            described(param)
            for param in sorted(
                command.params, key=lambda param: (type(param).__name__, param.name or "")
            )
        ]
        for path, command in commands(internals.command_group())
    }
    golden.json("cli/commands.json", found)


def test_help_is_as_recorded(shared_copy: Path, golden: Recorder) -> None:
    pages = []
    for path, _ in commands(internals.command_group()):
        answer = milepost(*path, "--help")
        assert answer.code == 0, answer.err
        pages.append(f"$ milepost {' '.join((*path, '--help'))}\n{answer.out}")
    golden.text("prose/cli/help.txt", "\n".join(pages))


def asked(args: tuple[str, ...]) -> tuple[str, ...]:
    """The command's words; the id of the last list is put in."""
    if "LIST" not in args:
        return args
    latest = milepost("lists", "letters", "--json").json["lists"][0]["id"]
    return tuple(latest if arg == "LIST" else arg for arg in args)


def told(args: tuple[str, ...], answer: Any) -> str:
    """What a person sees of a command."""
    errors = f"--- standard error\n{answer.err}" if answer.err else ""
    text = steady(f"$ milepost {' '.join(args)}\n{answer.out}{errors}--- exit code {answer.code}\n")
    return re.sub(r"\b[0-9a-f]{12}\b", "KEY-ID      ", text) if args[0] == "keys" else text


@pytest.mark.parametrize("name", LOOKS)
def test_what_a_command_shows_is_as_recorded(
    name: str, shared_copy: Path, golden: Recorder
) -> None:
    args = asked(LOOKS[name])
    golden.text(f"prose/cli/{name}.txt", told(LOOKS[name], milepost(*args)))
    answer = masked(milepost(*args, "--json").json)
    golden.json(f"cli/{name}.json", split_prose(answer, PROSE)[0] if name == "doctor" else answer)


@pytest.mark.parametrize("name", PREVIEWS)
def test_what_an_act_would_do_is_as_recorded(
    name: str, shared_copy: Path, golden: Recorder
) -> None:
    args = (*PREVIEWS[name], "--dry-run")
    golden.text(f"prose/cli/preview-{name}.txt", told(args, milepost(*args)))
    golden.json(f"cli/preview-{name}.json", masked(milepost(*args, "--json").json))


def test_mistakes_are_answered_as_recorded(shared_copy: Path, golden: Recorder) -> None:
    golden.text(
        "prose/cli/mistakes.txt",
        "\n".join(told(args, milepost(*args)) for args in MISTAKES.values()),
    )
    answers = {name: milepost(*args, "--json") for name, args in MISTAKES.items()}
    golden.text(
        "prose/cli/mistakes-in-json.txt",
        "".join(
            f"{name}: exit code {answer.code}: {answer.err}" for name, answer in answers.items()
        ),
    )


def test_plain_exports_are_as_recorded(shared_copy: Path, golden: Recorder) -> None:
    lines = [
        masked(json.loads(line))
        for line in milepost("export", "parcels", "--history").out.split("\n")
        if line
    ]
    golden.json("cli/export.json", sorted(lines, key=lambda line: str(line["key"])))
    golden.text("cli/export.csv", steady(milepost("export", "parcels", "--format", "csv").out))
