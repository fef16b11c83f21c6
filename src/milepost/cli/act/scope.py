"""Scope of a control: a route, one of its stages, or one lane of that stage; with the name and reason of the act."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed, shared_options, signed


class ControlScope:
    """Where a control applies, and who sets it why."""

    def __init__(self, route: str, stage: str | None, lane: str | None, by: str, reason: str) -> None:
        from milepost.core.admission.controls import scope

        self.place = (route, stage, lane)
        self.signed: dict[str, Any] = {"by": by, "reason": reason}
        self.name = scope(route, stage, lane)


def on_scope(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name the scope (route, stage as argument or option, lane), --by and --reason; the command gets them as one
    ControlScope."""

    @functools.wraps(command)
    def with_scope(
        given: CliSettings,
        route: str,
        stage_word: str | None,
        stage: str | None,
        lane: str | None,
        by: str | None,
        reason: str | None,
        **options: Any,
    ) -> Any:
        if stage is not None and stage_word is not None and stage != stage_word:
            raise click.UsageError(f"two different stages given: {stage_word!r} and {stage!r}")
        return command(given, ControlScope(route, stage or stage_word, lane, *check_signed(by, reason)), **options)

    wrapped: Callable[..., Any] = with_scope
    for option in (
        click.argument("route"),
        click.argument("stage_word", metavar="[STAGE]", required=False),
        click.option("--stage", metavar="STAGE", help="One stage of the route."),
        click.option("--lane", metavar="LANE", help="One lane of the stage."),
        signed,
        shared_options,
    )[::-1]:
        wrapped = option(wrapped)
    return wrapped
