"""Many assets that wait: how soon one that is ready is confirmed beside them, and what they cost
while nothing is ready.

N assets whose objects are not there have been looked at once, and are due again over the next six
hours: the longest pause of the route's checks, where all that waits for long arrives. The same is
measured on an empty ledger. Each part is a process of its own: `python -m bench.waiting FOLDER N`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from msgspec.structs import replace

import milepost as mp
from bench.measure import Span, tell
from bench.ocfl import add, object_id, write
from bench.station import at_work
from milepost.composition import open_context
from milepost.core.item import Item
from milepost.core.status import Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.runners.process import tune_garbage_collection
from milepost_postingest import postingest
from milepost_postingest.custodial_copy import CustodialCopy

NAME, STAGE, BATCH = "postingest", "CC", "b-1"
FIRST = UUID(object_id(0)).int
LONGEST_H = 6
WINDOW_S = 20.0
SAMPLES = 20
PORTION = 10_000
PATIENCE_S = 300.0
TITLES = {
    "behind": "submitted behind all of them, none of which was looked at yet",
    "new": "submitted while they wait, its object there",
    "nudged": "its object has come, an operator says retry",
    "on_time": "its object has come, after its own next look was due",
}
Part = Callable[..., dict[str, float]]


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """`part(FOLDER, N, module=…)` runs one part."""
    n = 5_000 if quick else 100_000
    found: dict[str, Any] = {"n": n, "window_s": WINDOW_S}
    for name, waiting in (("alone", 0), ("beside", n)):
        inside = folder / f"waiting-{name}"
        inside.mkdir()
        found[name] = part(inside, waiting, module="bench.waiting")
        say(
            f"waiting: {waiting:,} assets: new one in {found[name]['new_ms']:.0f} ms, {found[name]['cpu_s_a_minute']:.2f} s CPU a minute"
        )
    return found


def text(found: dict[str, Any]) -> str:
    alone, beside = found["alone"], found["beside"]
    lines = [
        "",
        f"An asset is ready while {found['n']:,} others wait: ms until it is confirmed (median, slowest)",
        "",
    ]
    lines.append(f"  {'':62}{'beside them':>18}{'alone':>16}")
    for what, title in TITLES.items():
        columns = [
            f"{facts[f'{what}_ms']:,.0f}, {facts[f'{what}_worst_ms']:,.0f}"
            if f"{what}_ms" in facts
            else ""
            for facts in (beside, alone)
        ]
        lines.append(f"  {title:62}{columns[0]:>18}{columns[1]:>16}")
    lines += ["", f"CPU while nothing is ready, over {found['window_s']:.0f} s"]
    lines.append(
        f"  {beside['looks_a_minute']:,.0f} looks a minute: {beside['cpu_s_a_minute']:.2f} s a minute;"
        f" nobody waits: {alone['cpu_s_a_minute']:.2f}"
    )
    lines.append(f"  first looks, all due at once: {beside['first_looks_a_second']:,.0f} a second")
    return "\n".join(lines)


# What is measured ---------------------------------------------------------------------------------


class Looks:
    """The confirmer. Who is not there at the first look is looked at again within six hours, each
    at its own time: as if they had come over the day."""

    def __init__(self, root: Path, n: int) -> None:
        self._check, self._n = CustodialCopy(root).check, n
        self._met: set[int] = set()
        self.times = 0

    def __call__(self, item: mp.Item) -> mp.Outcome:
        self.times += 1
        outcome = self._check(item.payload)
        number = UUID(item.payload["preservationSystemId"]).int - FIRST
        if not isinstance(outcome, mp.NotYet) or number in self._met:
            return outcome
        self._met.add(number)
        return replace(outcome, after=LONGEST_H * 3600 * (number + 1) / self._n)


class Desk:
    """The ledger as another process sees it: hands assets over, puts their objects into the
    repository, looks what becomes of them."""

    def __init__(self, root: Path, ctx: Context) -> None:
        self.root, self.ctx = root, ctx

    def submit(self, numbers: Sequence[int]) -> None:
        for begin in range(0, len(numbers), PORTION):
            ids = [object_id(number) for number in numbers[begin : begin + PORTION]]
            submit(
                self.ctx,
                NAME,
                [
                    {"assetId": one, "batchId": BATCH, "input": {"preservationSystemId": one}}
                    for one in ids
                ],
            )

    def confirmed(self, number: int) -> bool:
        [item] = self.ctx.ledger.get([(NAME, key(number))])
        return isinstance(item, Item) and item.row.status is Status.COMPLETED

    def due(self, number: int) -> int:
        [item] = self.ctx.ledger.get([(NAME, key(number))])
        assert isinstance(item, Item)
        assert item.row.look_at is not None
        return item.row.look_at

    def confirmed_at(self, number: int) -> int:
        return self.ctx.ledger.history(NAME, key(number))[-1].line.at

    def waiting(self) -> int:
        return sum(
            count.n for count in self.ctx.ledger.counts(NAME) if count.status is Status.WAITING
        )

    def retry(self, number: int) -> None:
        selection = select(self.ctx, NAME, keys=[key(number)])
        act(self.ctx, selection, RetryVerb(), by="bench", reason="its object is there")

    def ms_until_confirmed(self, number: int, begin: Callable[[], object]) -> float:
        add(self.root, number, versions=1)
        began = time.perf_counter()
        begin()
        until(lambda: self.confirmed(number))
        return (time.perf_counter() - began) * 1000


def key(number: int) -> str:
    return f"{object_id(number)}#{BATCH}"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        time.sleep(0.001)


def measure(folder: Path, n: int) -> None:
    root = folder / "repository"
    write(root, 0)
    looks = Looks(root, n or 1)
    desk = Desk(root, opened(folder, looks))
    desk.submit(range(n))
    fresh = iter(range(n, n + 10_000))
    tune_garbage_collection()  # as `milepost up` does
    facts: dict[str, float] = {}
    behind = next(fresh)
    desk.submit([behind])
    ctx = opened(folder, looks)
    with Span() as span, closing(ctx.ledger), at_work(ctx):
        took = desk.ms_until_confirmed(behind, lambda: None)
        until(lambda: desk.waiting() == n)
        span.stop()
        facts |= {
            "behind_ms": took,
            "behind_worst_ms": took,
            "first_looks_a_second": (n + 1) / span.seconds,
        }
        new_items = [next(fresh) for _ in range(SAMPLES)]
        facts |= figures(
            "new",
            [
                desk.ms_until_confirmed(number, partial(desk.submit, [number]))
                for number in new_items
            ],
        )
        if n:
            # Not due for hours by themselves.
            last = range(n - SAMPLES, n)
            facts |= figures(
                "nudged",
                [desk.ms_until_confirmed(number, partial(desk.retry, number)) for number in last],
            )
        before = looks.times
        with Span() as window:
            time.sleep(WINDOW_S)
        facts["cpu_s_a_minute"] = window.cpu * 60 / window.seconds
        facts["looks_a_minute"] = (looks.times - before) * 60 / window.seconds
        facts |= on_time(desk, n)
    tell(span, n or 1, **facts)


def on_time(desk: Desk, n: int) -> dict[str, float]:
    """Objects appear for those that are due next by themselves."""
    now = desk.ctx.clock.now()
    due = {
        number: at
        for number in range(min(n, 1_000))
        if now + 1_000 < (at := desk.due(number)) < now + WINDOW_S * 1_000
    }
    if not due:
        return {}
    for number in due:
        add(desk.root, number, versions=1)
    until(lambda: all(desk.confirmed(number) for number in due))
    return figures("on_time", [desk.confirmed_at(number) - at for number, at in due.items()])


def figures(what: str, taken: Sequence[float]) -> dict[str, float]:
    return {f"{what}_ms": median(taken), f"{what}_worst_ms": max(taken)}


def opened(folder: Path, looks: Looks) -> Context:
    checks = {"every": f"{LONGEST_H}h", "upTo": f"{LONGEST_H}h"}
    route = postingest(
        [{"queueAlias": STAGE, "queueOrder": 1, "worker": "ocfl", "checks": checks}],
        workers={STAGE: looks},
    )
    return open_context(f"sqlite:///{folder / 'ledger.db'}", [route])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("n", type=int)
    a = parser.parse_args()
    measure(a.folder, a.n)


if __name__ == "__main__":
    main()
