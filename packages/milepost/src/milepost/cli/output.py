"""Output of commands: tables, JSON, and progress on standard error. Plain text without colour when
piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {
    "PENDING": "cyan",
    "QUEUED": "cyan",
    "PROCESSING": "yellow",
    "WAITING": "blue",
    "RETRY_SCHEDULED": "magenta",
    "COMPLETED": "green",
    "MAX_RETRIES_EXCEEDED": "red",
    "REJECTED": "red",
    "CANCELLED": "dim",
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}


MB = 1_000_000
REFUSALS = 20
"""Refused items that are printed."""
PIPED = 80
WIDE = 400
"""Width of a piped table: wide enough that a row stays on one line."""


def console(*, err: bool = False, width: int = PIPED) -> Console:
    """A console as wide as the terminal; when piped, `width` columns without colour."""
    from rich.console import Console

    stream: IO[str] = sys.stderr if err else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else width, highlight=False)


@contextmanager
def page(width: int = PIPED) -> Iterator[Console]:
    """A console for one answer. When piped, trailing blanks are removed."""
    to = console(width=width)
    if to.is_terminal:
        yield to
        return
    with to.capture() as captured:
        yield to
    click.echo("\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()))


def show_table(shown: Table) -> None:
    """Print a table."""
    with page(WIDE) as to:
        to.print(shown)


def styled(word: str) -> str:
    """A status or health level with its colour as markup."""
    style = STYLES.get(word)
    return word if style is None else f"[{style}]{word}[/]"


def plain(text: object) -> str:
    """Text from outside, without control characters that could affect the terminal."""
    return "".join(c if c.isprintable() else " " for c in str(text))


def safe(text: object) -> str:
    """The same for text that goes through markup: markup in it has no effect."""
    from rich.markup import escape

    return escape(plain(text))


def cut(text: str, width: int) -> str:
    """The text in at most so many characters."""
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table without a frame. Columns in `right` are aligned right, for numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), collapse_padding=True
    )
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in right,
        )
    return made


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print rows as a table without a frame; None is shown as '-'. Columns in `right` are aligned
    right, for numbers. When piped, each row stays on one line."""
    made = table(*columns, right=right)
    for row in rows:
        made.add_row(*("-" if value is None else safe(value) for value in row))
    show_table(made)


def print_refused(title: str, refused: Sequence[tuple[str, str]], count: int) -> None:
    """Print the first items that were refused, each with the reason, and how many more there
    are."""
    if refused:
        print_table((title, "why"), refused[:REFUSALS])
        if count > REFUSALS:
            console().print(f"… and {count - REFUSALS:,} more.")


def _text(value: Any) -> str:
    """Encode subclasses of `str`, which msgspec does not know, as text."""
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print JSON on standard output, without escaping non-ASCII text."""
    import msgspec

    body = msgspec.json.encode(value, enc_hook=_text)
    click.echo((msgspec.json.format(body, indent=indent) if indent else body).decode())


def printed(found: Sized, value: Any, empty: str, *, as_json: bool) -> bool:
    """Print the answer as JSON, or the sentence for nothing found. False: something was found, and
    the command prints it for people."""
    if as_json:
        print_json(value)
    elif not found:
        click.echo(empty)
    return as_json or not found


def ago(ms: int | None, now: int) -> str:
    """Time since `ms` in short, such as '5 min'; '-' for None and for a future time."""
    from milepost.core.values.durations import short_span

    return "-" if ms is None or ms > now + 1000 else short_span(now - ms)


class ProgressFigures(Protocol):
    """Callback with the items done so far and, where known, the part done of the whole (in bytes or
    items)."""

    def __call__(self, done: int, part: int = 0, whole: int | None = None, /) -> None: ...


@contextmanager
def progress(what: str, *, quiet: bool = False, every_s: float = 5) -> Iterator[ProgressFigures]:
    """Show progress on standard error: a bar on a terminal, else a line every few seconds."""
    if quiet:
        yield lambda _done, _part=0, _whole=None, /: None
    elif sys.stderr.isatty():
        with _bar(what) as on_progress:
            yield on_progress
    else:
        began = last = monotonic()

        def on_line(done: int, part: int = 0, whole: int | None = None, /) -> None:
            nonlocal last
            now = monotonic()
            if now - last >= every_s:
                last = now
                share = f" ({part * 100 // whole}%)" if whole else ""
                click.echo(f"{what}: {done:,}{share}, {done / (now - began):,.0f}/s", err=True)

        yield on_line


@contextmanager
def megabyte_progress(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """The same for bytes, shown in megabytes."""
    with progress(what, quiet=quiet, every_s=2) as on_progress:
        yield lambda done, whole: on_progress(done // MB, done, whole)


@contextmanager
def _bar(what: str) -> Iterator[ProgressFigures]:
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    began = monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(24),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task(what, total=None, pace="")

        def on_progress(done: int, part: int = 0, whole: int | None = None, /) -> None:
            pace = f"{done:,}  {done / max(0.001, monotonic() - began):,.0f}/s"
            bar.update(task, completed=part, total=whole, pace=pace)

        yield on_progress


def print_next_page(token: str | None, ordered: bool, besides: str = "") -> None:
    """Say how to get the next page, and whether the page is in order."""
    if not ordered:
        click.echo("In no order: more match than this ledger can sort; narrow the search down.")
    if token is not None:
        click.echo(
            f"… and more{f'; {besides}' if besides else ''}. The next page: the same command with --after {token}"
        )
