"""`milepost show`: the story of one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import json_option, settings
from milepost.cli.output import STYLES, page, print_json, safe
from milepost.core.errors import MilepostError

if TYPE_CHECKING:
    from rich.console import Console

    from milepost.core.history import Line
    from milepost.engine.context import Context
    from milepost.engine.views.story import Story

LINES_SHOWN = 15
"""Lines of history shown without --all."""
VALUE = 600
"""Longest value shown, in characters."""
KEYS_SHOWN = 10
"""Keys listed if several match."""


@click.command()
@click.argument("route")
@click.argument("key")
@json_option
@click.option("--all", "whole", is_flag=True, help="Show the whole history.")
@settings
def show(given: CliSettings, route: str, key: str, as_json: bool, whole: bool) -> int:
    """The story of one item: state, reason, next step, history.

    Shows where the item is, why it waits, what happens next and when, its history, and what you can
    do.
    """
    from milepost.engine.views.items import check_route, without_secrets
    from milepost.engine.views.items import show as look
    from milepost.engine.views.story import story

    with given.context() as ctx:
        check_route(ctx, route)
        view = look(ctx, route, key)
        if view is None:
            key = _by_first_part(ctx, route, key)
            view = look(ctx, route, key)
        found = None if as_json else story(ctx, route, key)
    if view is None:
        raise MilepostError(
            f"route {route!r} has never had an item with the key {key!r}; 'milepost list {route}' shows some"
        )
    view = without_secrets(view)
    if found is None:
        print_json(view)
    else:
        with page() as to:
            _print_story(to, found, view, whole)
    return 0


def _by_first_part(ctx: Context, route: str, text: str) -> str:
    """The one key whose first part is this text (an asset's id without its batch), or the text
    itself if no key matches."""
    from milepost.engine.views.queries import keys_with_first_part

    keys = keys_with_first_part(ctx, route, text, KEYS_SHOWN + 1)
    if len(keys) > 1:
        named = ", ".join(keys[:KEYS_SHOWN]) + (", …" if len(keys) > KEYS_SHOWN else "")
        raise MilepostError(
            f"{len(keys) if len(keys) <= KEYS_SHOWN else f'over {KEYS_SHOWN}'} items of {route!r} begin with {text!r}; show one of them: {named}"
        )
    return keys[0] if keys else text


def _print_story(to: Console, story: Story, view: dict[str, Any], whole: bool) -> None:
    """Print the story in paragraphs; long values are shortened (--json has them in full)."""
    style = STYLES.get(view["status"], "")
    to.print(f"[bold]{safe(story.route)} / {safe(story.key)}[/]")
    to.print()
    to.print(safe(story.where), style=style)
    for warning in story.warnings:
        to.print(f"[bold red]Warning:[/] {safe(warning)}")
    for text in story.why:
        to.print(safe(text))
    _paragraph(to, "What happens next", story.next)
    if story.happened:
        _history(to, story, whole)
    _values(to, view)
    if story.can:
        to.print("\n[bold]What you can do[/]")
        for command in story.can:
            to.print(f"  {safe(command)}", soft_wrap=True)


def _paragraph(to: Console, title: str, sentences: list[str]) -> None:
    from rich.padding import Padding

    if sentences:
        to.print(f"\n[bold]{title}[/]")
    for text in sentences:
        to.print(Padding(safe(text), (0, 0, 0, 2)))


def _history(to: Console, story: Story, whole: bool) -> None:
    from datetime import datetime

    from rich.table import Table

    from milepost.engine.views.items import counted

    to.print("\n[bold]What happened[/]")
    lines = story.happened if whole else story.happened[-LINES_SHOWN:]
    if len(lines) < len(story.happened):
        to.print(
            f"  [dim]… {counted(len(story.happened) - len(lines), 'earlier line')}; --all shows all[/]"
        )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    day = None
    for entry in lines:
        if not entry.at:
            grid.add_row(f"  {'?':>19}", safe(entry.text))
            continue
        moment = datetime.fromtimestamp(entry.at / 1000)
        stamp = (
            moment.strftime("%H:%M:%S")
            if moment.date() == day
            else moment.strftime("%Y-%m-%d %H:%M:%S")
        )
        day = moment.date()
        grid.add_row(f"  {stamp:>19}", safe(entry.text))
    to.print(grid)
    _tracebacks(to, [entry.line for entry in lines], whole)


def _tracebacks(to: Console, lines: list[Line], whole: bool) -> None:
    """Print the traceback of the last failed attempt, or of all attempts shown."""
    found = [
        line for line in lines if line.attempt is not None and line.attempt.traceback is not None
    ]
    for line in found if whole else found[-1:]:
        assert line.attempt is not None
        assert line.attempt.traceback is not None
        to.print(f"\n[bold]Traceback of attempt {line.attempt.number} at '{safe(line.stage)}'[/]")
        for text in line.attempt.traceback.splitlines():
            to.print(f"  {safe(text)}", soft_wrap=True)


def _values(to: Console, view: dict[str, Any]) -> None:
    import msgspec
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    values = {
        "input": view["input"],
        **{f"result of {stage}": value for stage, value in (view["results"] or {}).items()},
    }
    for name, value in values.items():
        if value is not None:
            text = msgspec.json.encode(value).decode()
            grid.add_row(
                f"  {safe(name)}",
                safe(
                    text
                    if len(text) <= VALUE
                    else f"{text[:VALUE]}… ({len(text):,} characters; --json)"
                ),
            )
    for name in ("lane", "list_name", "work_id", "correlation_id"):
        if view.get(name):
            grid.add_row(f"  {name.replace('_', ' ').removesuffix(' name')}", safe(view[name]))
    if grid.row_count:
        to.print("\n[bold]Content[/]")
        to.print(grid)
