"""Milepost inside your own program: open a ledger, hand over items, run the station, look at what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from milepost.core.errors import ActRefused
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome
from milepost.core.outside import SaidBefore
from milepost.core.route import Route
from milepost.engine.intake import Receipt, submit
from milepost.engine.lists import ListReport, submit_list
from milepost.engine.observe import show, status
from milepost.engine.operate import confirm_outside
from milepost.evidence.signing import read_signer
from milepost.ports.publisher import Subscriber
from milepost.ports.runner import Chance, Clock
from milepost.wiring import DEFAULT_LEDGER, Station, open_context


class Milepost:
    """A ledger with its routes. Use it as a context manager, or call `close`. `signing_key` is the file of the private key with which
    the daily heads are signed (None: they are not)."""

    def __init__(
        self,
        ledger: str = DEFAULT_LEDGER,
        routes: Iterable[Route] = (),
        *,
        subscribers: Sequence[Subscriber] = (),
        clock: Clock | None = None,
        chance: Chance | None = None,
        signing_key: str | Path | None = None,
    ) -> None:
        self._signer = None if signing_key is None else read_signer(Path(signing_key))
        self.context = open_context(ledger, routes, clock=clock, chance=chance)
        self._subscribers = tuple(subscribers)

    def submit(self, route: str, *inputs: Any, correlation_id: str | None = None) -> list[Receipt]:
        """Hand over items; the answer for each says new, known, changed (same key, other content) or malformed.
        A new item is on disk when this returns."""
        return submit(self.context, route, inputs, correlation_id=correlation_id)

    def submit_list(
        self, route: str, path: str, *, name: str | None = None, full: bool = False, dry_run: bool = False, by: str | None = None
    ) -> ListReport:
        """Take in a file of items (txt, csv or jsonl), reconcile it with what is known, and record it, as `milepost submit`
        does. `full` says that it is the whole master list; with `dry_run` nothing is written. The answer has the `counts`,
        the first malformed lines with their numbers, and the first vanished keys."""
        return submit_list(self.context, route, path, name=name, full=full, dry_run=dry_run, by=by)

    def run(self, *, until_idle: float | None = 2) -> None:
        """Work in this process until nothing is in hand and nothing falls due within `until_idle` seconds (None: for ever)."""
        Station(self.context, subscribers=self._subscribers, signer=self._signer).run(until_idle_s=until_idle)

    def confirm(self, route: str, key: str, stage: str, value: Any = True, *, by: str, outcome: Outcome | None = None) -> Row:
        """An outside answer for a stage: a confirmation, or any outcome; the row as it then is. The same said again changes
        nothing. Raises ActRefused if it cannot be taken: no such item or stage, a value that confirms nothing, …"""
        answer = confirm_outside(self.context, route, key, stage, outcome or Done(value), by)
        if isinstance(answer, SaidBefore):
            item = self.context.ledger.get([(route, key)])[0]
            answer = item.row if isinstance(item, Item) else str(answer)
        if isinstance(answer, str):
            raise ActRefused(f"{route}/{key}: {answer}")
        return answer

    def show(self, route: str, key: str) -> dict[str, Any] | None:
        """Everything about one item, with its history; None if the key was never seen."""
        return show(self.context, route, key)

    def status(self) -> dict[str, Any]:
        """How many items are where."""
        return status(self.context)

    def close(self) -> None:
        self.context.ledger.close()

    def __enter__(self) -> Milepost:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


open = Milepost
"""`milepost.open("sqlite:///milepost.db", routes=[…])`"""
