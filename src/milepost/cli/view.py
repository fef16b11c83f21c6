"""The live view: stages as columns, counts moving, rate, oldest item, failures by kind. Fits 80 columns; plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.cli.out import plain, safe
from milepost.core.durations import short_span
from milepost.core.status import LIVE, Status

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from milepost.engine.snapshot import Snapshot, StageView

ROWS: tuple[tuple[str, str, tuple[Status, ...]], ...] = (
    ("to do", "cyan", (Status.PENDING, Status.QUEUED)),
    ("in work", "yellow", (Status.PROCESSING,)),
    ("waiting", "blue", (Status.WAITING,)),
    ("to retry", "magenta", (Status.RETRY_SCHEDULED,)),
    ("failed", "red", (Status.MAX_RETRIES_EXCEEDED, Status.REJECTED)),
    ("cancelled", "dim", (Status.CANCELLED,)),
)
LABEL, NUMBER, NARROWEST = 10, 9, 14
SPARKS = "▁▂▃▄▅▆▇█"
KINDS = 5


class Trail:
    """The rates of the last snapshots, for the little curve."""

    def __init__(self, length: int = 24) -> None:
        self.length = length
        self.rates: list[float] = []

    def add(self, rate: float) -> None:
        self.rates = [*self.rates[1 - self.length :], rate]

    def curve(self, length: int | None = None) -> str:
        """The last rates, each as tall as its share of the highest."""
        shown = self.rates[-(length or self.length) :]
        top = max(shown, default=0.0)
        return "".join(SPARKS[0 if top <= 0 else min(7, int(rate / top * 7.99))] for rate in shown)


def view(snapshot: Snapshot, trail: Trail, width: int, elapsed_ms: int | None = None) -> Group:
    """One route as a picture of `width` columns."""
    from rich.console import Group

    width = max(40, min(width, 110))
    parts: list[RenderableType] = [_head(snapshot, trail, elapsed_ms, width), _bar(snapshot, width), ""]
    per_block = max(1, (width - LABEL) // NARROWEST)
    for start in range(0, len(snapshot.stages), per_block):
        parts += [_block(snapshot, snapshot.stages[start : start + per_block], width), ""]
    return Group(*parts, _kinds(snapshot, width))


def _head(snapshot: Snapshot, trail: Trail, elapsed_ms: int | None, width: int) -> RenderableType:
    from rich.table import Table

    head = Table.grid(expand=False)
    head.add_column(width=width // 2, no_wrap=True)
    head.add_column(width=width - width // 2, justify="right", no_wrap=True)
    paused = "  [black on yellow] paused [/]" if snapshot.paused else ""
    oldest = "" if snapshot.oldest_ms is None else f"oldest here for {short_span(snapshot.oldest_ms)}"
    clock = "" if elapsed_ms is None else f"   {elapsed_ms // 60_000:02d}:{elapsed_ms // 1000 % 60:02d}"
    head.add_row(f"[bold]{safe(snapshot.route)}[/]{paused}  {snapshot.total:,} items", f"{oldest}{clock}")
    head.add_row(
        f"{snapshot.ended:,} ended, {snapshot.live:,} on the way",
        f"[green]{trail.curve(max(4, width // 2 - 16))}[/] [bold]{snapshot.rate:,.0f}[/] items/s",
    )
    return head


def _bar(snapshot: Snapshot, width: int) -> RenderableType:
    """How many are through, failed, and still on the way, as one line."""
    from rich.text import Text

    text = Text()
    if not snapshot.total:
        return Text("no items yet: 'milepost submit' brings some", style="dim")
    share = f" {snapshot.ended * 100 // snapshot.total:3d}%"
    room = width - len(share)
    done = room * snapshot.done // snapshot.total
    gone = snapshot.failed + snapshot.cancelled
    bad = min(room - done, max(1, room * gone // snapshot.total)) if gone else 0
    text.append("█" * done, style="green")
    text.append("█" * bad, style="red")
    text.append("░" * (room - done - bad), style="dim")
    text.append(share, style="bold")
    return text


def _block(snapshot: Snapshot, stages: list[StageView], width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    column = min(24, (width - LABEL) // len(stages))
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL, no_wrap=True)
    for _ in stages:
        grid.add_column(width=column, no_wrap=True)
    heads = [Text(f"{_cut(stage.name, column - 2)}{' ‖' if stage.paused else ''}", style="bold underline") for stage in stages]
    grid.add_row("", *heads)
    for label, style, statuses in ROWS:
        counts = [stage.among(*statuses) for stage in stages]
        if label == "cancelled" and not any(counts):
            continue
        grid.add_row(Text(label, style="dim"), *(_cell(n, snapshot.total, column, style) for n in counts))
    grid.add_row(Text("through", style="dim"), *(_cell(stage.past, snapshot.total, column, "green") for stage in stages))
    ages = ("-" if stage.oldest_ms is None else short_span(stage.oldest_ms) for stage in stages)
    grid.add_row(Text("oldest", style="dim"), *(Text(f"{age:>{NUMBER - 1}}") for age in ages))
    return grid


def _cell(n: int, total: int, column: int, style: str) -> RenderableType:
    from rich.text import Text

    cell = Text(f"{n:>{NUMBER - 1},} ", style=style if n else "dim")
    room = column - NUMBER - 2
    if n and total and room > 0:
        cell.append("▇" * max(1, round(room * n / total)), style=style)
    return cell


def _kinds(snapshot: Snapshot, width: int) -> RenderableType:
    """The most frequent failures. Always as many lines, so that the picture does not jump."""
    from rich.table import Table
    from rich.text import Text

    stage_width, sample_width = (14, width - LABEL - 36) if width >= 60 else (10, 0)
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL + 6, no_wrap=True)
    grid.add_column(width=stage_width, no_wrap=True)
    for size in (6, 7):
        grid.add_column(width=size, justify="right", no_wrap=True)
    grid.add_row(Text("failures by kind", style="bold underline"), "", Text("now", style="dim"), Text("ever", style="dim"))
    for kind in snapshot.kinds[:KINDS]:
        name = Text(_cut(kind.category, LABEL + 5), style="red" if kind.now else "dim")
        cells: list[RenderableType] = [name, Text(_cut(kind.stage, stage_width - 1)), f"{kind.now:,}", f"{kind.total:,}"]
        sample: list[RenderableType] = [Text(f"  {_cut(plain(kind.sample), sample_width)}", style="dim")] if sample_width else []
        grid.add_row(*cells, *sample)
    for _ in range(KINDS - len(snapshot.kinds)):
        grid.add_row("")
    return grid


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(1, width - 1)]}…"


def line(snapshot: Snapshot, elapsed_ms: int) -> str:
    """The same in one plain line, for logs and pipes."""
    here = "  ".join(f"{stage.name} {stage.among(*LIVE):,}" for stage in snapshot.stages)
    failed = f", {snapshot.failed:,} failed" if snapshot.failed else ""
    oldest = "" if snapshot.oldest_ms is None else f" | oldest {short_span(snapshot.oldest_ms)}"
    ended = f"{snapshot.ended:,}/{snapshot.total:,} ended"
    return f"{elapsed_ms / 1000:5.1f}s {snapshot.route}: {ended}{failed}, {snapshot.rate:,.0f}/s | {here}{oldest}"
