"""Scope of a control: a route, one of its stages, or one lane of that stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from milepost.cli.options import json_option, settings, signed

F = TypeVar("F", bound=Callable[..., Any])


def on_scope(command: F) -> F:
    """Add the arguments that name the scope: route, stage (as argument or option) and lane."""
    for option in (
        click.argument("route"),
        click.argument("stage_word", metavar="[STAGE]", required=False),
        click.option("--stage", metavar="STAGE", help="One stage of the route."),
        click.option("--lane", metavar="LANE", help="One lane of the stage."),
        signed,
        json_option,
        settings,
    )[::-1]:
        command = option(command)
    return command


def stage_of(stage: str | None, stage_word: str | None) -> str | None:
    if stage is not None and stage_word is not None and stage != stage_word:
        raise click.UsageError(f"two different stages given: {stage_word!r} and {stage!r}")
    return stage or stage_word
