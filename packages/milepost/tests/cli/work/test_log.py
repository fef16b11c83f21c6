"""`--log`: the log of a long-running command has one format."""

from __future__ import annotations

import json
from typing import Any

import pytest


def test_with_json_every_line_on_standard_error_is_an_object(shell: Any) -> None:
    err = shell.ok("up", "--until-idle", 0, "--listen", "127.0.0.1:0", "--log", "json").err
    messages = [json.loads(line)["message"] for line in err.splitlines()]
    assert messages[0].startswith("milepost up: listening at http://127.0.0.1:")
    assert messages[-1].endswith("no item ended")


@pytest.mark.parametrize("command", ["up", "work"])
def test_the_form_may_come_from_the_environment_and_is_text_by_default(
    shell: Any, command: str
) -> None:
    assert shell.ok(command, "--until-idle", 0).err.startswith(f"milepost {command}: parcels on ")
    assert (
        json.loads(shell.ok(command, "--until-idle", 0, MILEPOST_LOG="json").err.splitlines()[0])[
            "level"
        ]
        == "info"
    )
    assert "'yaml'" in shell(command, "--log", "yaml").err
