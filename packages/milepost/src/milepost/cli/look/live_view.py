"""Live view in the terminal: stages as columns with counts, rate, oldest item, failures by kind;
plain lines when piped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from milepost.cli.output import cut, plain, safe
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import short_span

if TYPE_CHECKING:
    from milepost.engine.views.snapshot import Snapshot, StageView

ROWS: tuple[tuple[str, str, tuple[Status, ...]], ...] = (
    ("queued", "cyan", (Status.PENDING, Status.QUEUED)),
    ("running", "yellow", (Status.PROCESSING,)),
    ("waiting", "blue", (Status.WAITING,)),
    ("to retry", "magenta", (Status.RETRY_SCHEDULED,)),
    ("failed", "red", (Status.MAX_RETRIES_EXCEEDED, Status.REJECTED)),
    ("cancelled", "dim", (Status.CANCELLED,)),
)
LABEL, NUMBER, NARROWEST = 10, 9, 14
SHORT = {"to retry": "retry", "cancelled": "cancel"}
CELL = 8
"""Width of a number in the layout with one line per stage."""
LINE = 80
SPARKS = "▁▂▃▄▅▆▇█"
KINDS = 5
TOP, BLOCK = 4, 9
"""Height of the head with its bar, and of a block of stages."""
SMALLEST = 5
"""With fewer lines no stage is shown."""
LIST_WIDTH = 76


class Trail:
    """Rates of the last snapshots, for the sparkline."""

    def __init__(self, length: int = 24) -> None:
        self.length = length
        self.rates: list[float] = []

    def add(self, rate: float) -> None:
        self.rates = [*self.rates[1 - self.length :], rate]

    def curve(self, length: int | None = None) -> str:
        """Sparkline of the last rates, relative to the highest."""
        shown = self.rates[-(length or self.length) :]
        top = max(shown, default=0.0)
        return "".join(SPARKS[0 if top <= 0 else min(7, int(rate / top * 7.99))] for rate in shown)


def view(
    snapshot: Snapshot,
    trail: Trail,
    width: int,
    elapsed_ms: int | None = None,
    height: int | None = None,
) -> Group:
    """One route in `width` columns: stages side by side, or one line each if there are many; at
    most `height` lines."""
    width = max(40, min(width, 110))
    top: list[RenderableType] = [
        _head(snapshot, trail, elapsed_ms, width),
        _bar(snapshot, width),
        "",
    ]
    room = None if height is None else height - TOP
    if room is not None and room < SMALLEST:
        return Group(*top)
    per_block = max(1, (width - LABEL) // NARROWEST)
    if len(snapshot.stages) <= per_block and (room is None or room >= BLOCK):
        kinds = KINDS if room is None else min(KINDS, room - BLOCK - 2)
        return Group(
            *top, _block(snapshot, snapshot.stages, width), "", *_kinds(snapshot, width, kinds)
        )
    if width >= LIST_WIDTH:
        kinds = KINDS if room is None else max(0, min(KINDS, room - len(snapshot.stages) - 3))
        lines = None if room is None else room - 2 - (kinds + 1 if kinds else 0)
        return Group(*top, _list(snapshot, width, lines), "", *_kinds(snapshot, width, kinds))
    blocks: list[RenderableType] = []
    for start in range(0, len(snapshot.stages), per_block):
        blocks += [_block(snapshot, snapshot.stages[start : start + per_block], width), ""]
    return Group(*top, *blocks, *_kinds(snapshot, width, KINDS))


def picture(
    snapshots: Sequence[Snapshot], trails: Sequence[Trail], width: int, height: int, elapsed_ms: int
) -> Group:
    """Several routes below each other in `height` lines; a route without items shows only its
    head."""
    busy = sum(snapshot.total > 0 for snapshot in snapshots) or len(snapshots)
    share = (height - TOP * (len(snapshots) - busy)) // max(1, busy)
    rooms = [share if snapshot.total or busy == len(snapshots) else TOP for snapshot in snapshots]
    views = zip(snapshots, trails, rooms, strict=True)
    return Group(
        *(view(snapshot, trail, width, elapsed_ms, room) for snapshot, trail, room in views)
    )


def _head(snapshot: Snapshot, trail: Trail, elapsed_ms: int | None, width: int) -> RenderableType:
    head = Table.grid(expand=False)
    head.add_column(width=width // 2, no_wrap=True)
    head.add_column(width=width - width // 2, justify="right", no_wrap=True)
    paused = "  [black on yellow] paused [/]" if snapshot.paused else ""
    oldest = (
        "" if snapshot.oldest_ms is None else f"oldest here for {short_span(snapshot.oldest_ms)}"
    )
    if snapshot.overdue.most:
        oldest = f"{snapshot.overdue.words} overdue   {oldest}"
    clock = (
        "" if elapsed_ms is None else f"   {elapsed_ms // 60_000:02d}:{elapsed_ms // 1000 % 60:02d}"
    )
    head.add_row(
        f"[bold]{safe(snapshot.route)}[/]{paused}  {snapshot.total:,} items", f"{oldest}{clock}"
    )
    head.add_row(
        f"{snapshot.ended:,} ended, {snapshot.live:,} in progress",
        f"[green]{trail.curve(max(4, width // 2 - 16))}[/] [bold]{snapshot.rate:,.0f}[/] items/s",
    )
    return head


def _bar(snapshot: Snapshot, width: int) -> RenderableType:
    """One bar: completed, failed, and in progress."""
    text = Text()
    if not snapshot.total:
        return Text("no items yet; see 'milepost submit'", style="dim")
    share = f" {snapshot.ended * 100 // snapshot.total:3d}%"
    room = width - len(share)
    gone = snapshot.failed + snapshot.cancelled
    bad = max(1, room * gone // snapshot.total) if gone else 0
    done = min(room - bad, room * snapshot.done // snapshot.total) if snapshot.live else room - bad
    text.append("█" * done, style="green")
    text.append("█" * bad, style="red")
    text.append("░" * (room - done - bad), style="dim")
    text.append(share, style="bold")
    return text


def _block(snapshot: Snapshot, stages: list[StageView], width: int) -> RenderableType:
    column = min(24, (width - LABEL) // len(stages))
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL, no_wrap=True)
    for _ in stages:
        grid.add_column(width=column, no_wrap=True)
    heads = [
        Text(f"{cut(stage.name, column - 2)}{' ‖' if stage.paused else ''}", style="bold underline")
        for stage in stages
    ]
    grid.add_row("", *heads)
    for label, style, statuses in ROWS:
        counts = [stage.among(*statuses) for stage in stages]
        if label == "cancelled" and not any(counts):
            continue
        grid.add_row(
            Text(label, style="dim"), *(_cell(n, snapshot.total, column, style) for n in counts)
        )
    grid.add_row(
        Text("completed", style="dim"),
        *(_cell(stage.past, snapshot.total, column, "green") for stage in stages),
    )
    ages = ("-" if stage.oldest_ms is None else short_span(stage.oldest_ms) for stage in stages)
    grid.add_row(Text("oldest", style="dim"), *(Text(f"{age:>{NUMBER - 1}}") for age in ages))
    return grid


def _list(snapshot: Snapshot, width: int, lines: int | None) -> RenderableType:
    """One line per stage. If the lines do not suffice, idle stages are left out first."""
    stages = snapshot.stages
    rows = [
        (label, style, of)
        for label, style, of in ROWS
        if label != "cancelled" or any(stage.among(*of) for stage in stages)
    ]
    name = width - CELL * (len(rows) + 2)
    grid = Table.grid(padding=0)
    grid.add_column(width=name, no_wrap=True)
    for _ in range(len(rows) + 2):
        grid.add_column(width=CELL, justify="right", no_wrap=True)
    labels = [SHORT.get(label, label) for label, _, _ in rows]
    grid.add_row("", *(Text(label, style="dim") for label in (*labels, "done", "oldest")))
    shown = stages
    if lines is not None and len(stages) > lines:
        busy = [stage for stage in stages if stage.among(*LIVE)]
        chosen = [*busy, *(stage for stage in stages if not stage.among(*LIVE))][
            : max(1, lines - 1)
        ]
        shown = [stage for stage in stages if stage in chosen]
    for stage in shown:
        head = Text(
            f"{_squeezed(stage.name, name - 3)}{' ‖' if stage.paused else ''}", style="bold"
        )
        counts = [(stage.among(*of), style) for _, style, of in rows] + [(stage.past, "green")]
        age = "-" if stage.oldest_ms is None else short_span(stage.oldest_ms)
        grid.add_row(
            head, *(Text(_brief(n), style=style if n else "dim") for n, style in counts), Text(age)
        )
    if len(shown) < len(stages):
        grid.add_row(Text(f"… {len(stages) - len(shown)} more", style="dim"))
    return grid


def _squeezed(text: str, width: int) -> str:
    """Shorten in the middle, because similar names often differ at the end."""
    tail = width // 3
    return text if len(text) <= width else f"{text[: width - tail - 1]}…{text[-tail:]}"


def _brief(n: int) -> str:
    """A count in at most seven characters: 99,999, 1,234k, 57M."""
    return (
        f"{n:,}" if n < 100_000 else f"{n // 1000:,}k" if n < 10_000_000 else f"{n // 1_000_000:,}M"
    )


def _cell(n: int, total: int, column: int, style: str) -> RenderableType:
    cell = Text(f"{n:>{NUMBER - 1},} ", style=style if n else "dim")
    room = column - NUMBER - 2
    if n and total and room > 0:
        cell.append("▇" * max(1, round(room * n / total)), style=style)
    return cell


def _kinds(snapshot: Snapshot, width: int, lines: int) -> list[RenderableType]:
    """The most frequent failures, always in the same number of lines so that the view does not
    jump."""
    if lines <= 0:
        return []
    stage_width, sample_width = (14, width - LABEL - 36) if width >= 60 else (10, 0)
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL + 6, no_wrap=True)
    grid.add_column(width=stage_width, no_wrap=True)
    for size in (6, 7):
        grid.add_column(width=size, justify="right", no_wrap=True)
    grid.add_row(
        Text("failures by kind", style="bold underline"),
        "",
        Text("now", style="dim"),
        Text("ever", style="dim"),
    )
    for kind in snapshot.kinds[:lines]:
        name = Text(cut(kind.category, LABEL + 5), style="red" if kind.now else "dim")
        cells: list[RenderableType] = [
            name,
            Text(cut(kind.stage, stage_width - 1)),
            f"{kind.now:,}",
            f"{kind.total:,}",
        ]
        sample: list[RenderableType] = (
            [Text(f"  {cut(plain(kind.sample), sample_width)}", style="dim")]
            if sample_width
            else []
        )
        grid.add_row(*cells, *sample)
    for _ in range(lines - len(snapshot.kinds)):
        grid.add_row("")
    return [grid]


def line(snapshot: Snapshot, elapsed_ms: int) -> str:
    """The snapshot as one plain line of 80 columns, for logs and pipes."""
    failed = f", {snapshot.failed:,} failed" if snapshot.failed else ""
    oldest = "" if snapshot.oldest_ms is None else f" | oldest {short_span(snapshot.oldest_ms)}"
    failed += f", {snapshot.overdue.words} overdue" if snapshot.overdue.most else ""
    ended = f"{snapshot.ended:,}/{snapshot.total:,} ended"
    start = f"{elapsed_ms / 1000:5.1f}s {cut(snapshot.route, 16)}: {ended}{failed}, {snapshot.rate:,.0f}/s"
    oldest = oldest if len(start) + len(oldest) <= LINE else ""
    return f"{start}{_stages(snapshot, LINE - len(start) - len(oldest))}{oldest}"


def _stages(snapshot: Snapshot, room: int) -> str:
    """Items at each stage: all stages if there is room, else busy ones, then with shortened
    names."""
    busy = [stage for stage in snapshot.stages if stage.among(*LIVE)]
    for stages, longest in ((snapshot.stages, 64), (busy, 64), (busy, 12), (busy, 8), (busy, 5)):
        parts = [f"{cut(stage.name, longest)} {stage.among(*LIVE):,}" for stage in stages]
        text = f" | {'  '.join(parts)}" if parts else ""
        if len(text) <= room:
            return text
    while parts and len(text) > room:
        text = f" | {'  '.join(parts := parts[:-1])}  …"
    return text if parts else ""
