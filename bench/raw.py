"""The raw SQLite limit: the same rows, indexes and bytes, written by the same statements in batches, with no engine.

Schema, connection settings and SQL text are the ledger's own, so that the limit moves with them. What the engine reckons
per item (key, digest, chain, decision, lease check) is made once here, as a pattern that all items share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from bench.measure import Span, ledger_bytes, tell
from bench.route import NAME, OUTPUT, STAGES, make_route
from milepost.core.change import Change
from milepost.core.decide import accept, decide
from milepost.core.due import Grip, look
from milepost.core.item import Content, Item, digest_of
from milepost.core.outcome import Done
from milepost.core.route import Plan
from milepost.ledgers.sqlite.claiming import CLAIM, PROCESSING
from milepost.ledgers.sqlite.codec import INPUT, INSERT, PAYLOAD, RESULT, changing, clock_of, encode
from milepost.ledgers.sqlite.codec import UPDATE as SETTLE
from milepost.ledgers.sqlite.names import Names
from milepost.ledgers.sqlite.store import Store
from milepost.ledgers.sqlite.writing import CONTENT, HISTORY, Tally
from milepost.runners.clock import SystemClock
from milepost.wiring import who

BATCH = 1_000
NEW_CONTENT = "INSERT INTO content (item, kind, stage, body) VALUES (?, ?, ?, ?)"
AGAIN = INSERT + " ON CONFLICT DO NOTHING"
LIST_ID = TOKEN = "0123456789abcdef"

Rows = list[tuple[Any, ...]]


class Pattern:
    """One item's whole way through the route, reckoned once by the real rules."""

    def __init__(self, connection: sqlite3.Connection, output: Any = None) -> None:
        self.names = names = Names()
        names.refresh(connection)
        plan = Plan(make_route())
        now = SystemClock().now()
        content = {"id": "x"}
        first = accept(plan, "x", content, now, correlation_id=f"{TOKEN}-3e7", digest=digest_of(content), list_id=LIST_ID)
        self.now = now
        self.route = names.route(connection, NAME)
        self.places = [names.place(connection, NAME, stage, "") for stage in STAGES]
        self.accepted = changing(first.after, self.places[0])[:-1]
        self.correlation_id, self.digest = first.after.correlation_id, first.after.input_digest
        self.line = (first.before.head, first.body)
        self.came = _tally([first])
        self.steps: list[Step] = []
        item = Item(replace(first.after, handle=0), Content(content, {}, {}))
        grip = Grip(TOKEN, who(), now + 30_000)
        for _ in STAGES:
            claim = look(item, plan, now, 0.0, grip)
            assert claim is not None
            settled = decide(Item(claim.after, item.content), Done(output), plan, now, 0.0, response_ms=0)
            self.steps.append(Step(connection, names, claim, settled))
            item = Item(settled.after, item.content)


class Step:
    """One stage of the pattern: what its claim and its settle write, all but the item's number."""

    def __init__(self, connection: sqlite3.Connection, names: Names, claim: Change, settled: Change) -> None:
        row = claim.after
        self.claim = (PROCESSING, *clock_of(row), row.lease, row.holder, row.claimed_at)
        self.claimed = _tally([claim])
        place = names.place(connection, NAME, settled.after.stage, "")
        self.settle = changing(settled.after, place)[:-1]
        self.line = (settled.before.head, settled.body)
        self.puts = [
            (PAYLOAD if put.kind == "payload" else RESULT, names.stage(connection, NAME, put.stage), encode(put.value))
            for put in settled.puts
        ]
        self.settled = _tally([settled])


def _tally(changes: Sequence[Change]) -> dict[Any, int]:
    tally = Tally()
    tally.add(changes)
    return tally.counters


def _count(connection: sqlite3.Connection, names: Names, deltas: dict[Any, int], times: int) -> None:
    tally = Tally()
    tally.counters = {key: n * times for key, n in deltas.items()}
    tally.write(connection, names)


def intake(ledger: str, path: str, n: int) -> None:
    """Read, parse, insert: row, input, first line, counters."""
    store = Store(ledger)
    pattern = store.write(Pattern)
    with Span() as span:
        number = 1 + store.read(lambda c: int(c.execute("SELECT coalesce(max(id), 0) FROM item").fetchone()[0]))
        for lines, keys in _parsed(path):
            store.write(_insertion(pattern, number, lines, keys))
            number += len(keys)
    store.close()
    tell(span, n)


def _insertion(pattern: Pattern, first: int, lines: Sequence[bytes], keys: Sequence[str]) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        numbers = range(first, first + len(keys))
        connection.executemany(INSERT, _rows(pattern, numbers, keys))
        connection.executemany(NEW_CONTENT, [(number, INPUT, 0, line) for number, line in zip(numbers, lines, strict=True)])
        connection.executemany(HISTORY, [(number, *pattern.line) for number in numbers])
        _count(connection, pattern.names, pattern.came, len(keys))

    return run


def _rows(pattern: Pattern, numbers: Iterable[int | None], keys: Sequence[str]) -> Rows:
    head = (pattern.route, *pattern.accepted)
    tail = (pattern.now, pattern.correlation_id, pattern.digest, LIST_ID)
    return [(*head, number, key, *tail) for number, key in zip(numbers, keys, strict=True)]


def again(ledger: str, path: str, n: int) -> None:
    """Read, parse, insert what is not there yet: nothing."""
    store = Store(ledger)
    pattern = store.write(Pattern)
    added = 0
    with Span() as span:
        for _, keys in _parsed(path):
            rows = _rows(pattern, [None] * len(keys), keys)
            added += store.write(lambda connection, rows=rows: connection.executemany(AGAIN, rows).rowcount)  # type: ignore[misc]
    store.close()
    if added > 0:
        raise SystemExit(f"the second intake added {added} rows")
    tell(span, n)


def _parsed(path: str) -> Iterator[tuple[list[bytes], list[str]]]:
    parse = msgspec.json.Decoder(dict[str, Any]).decode
    with open(path, "rb") as source:
        while lines := list(islice(source, BATCH)):
            yield [line[:-1] for line in lines], [parse(line)["id"] for line in lines]


def process(ledger: str, n: int, handlers: str) -> None:
    """The last n items, batch by batch through the three stages: a commit for the claim, one for the settle."""
    store = Store(ledger)
    pattern = store.write(lambda connection: Pattern(connection, OUTPUT if handlers == "output" else None))
    last = store.read(lambda c: int(c.execute("SELECT max(id) FROM item").fetchone()[0]))
    with Span() as span:
        for start in range(last - n + 1, last + 1, BATCH):
            numbers = range(start, min(start + BATCH, last + 1))
            for step in pattern.steps:
                store.write(_claiming(pattern, step, numbers))
                store.write(_settling(pattern, step, numbers))
    store.close()
    tell(span, n, bytes_each=ledger_bytes(ledger) / n)


def _claiming(pattern: Pattern, step: Step, numbers: range) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        connection.executemany(CLAIM, [(*step.claim, number) for number in numbers])
        _count(connection, pattern.names, step.claimed, len(numbers))

    return run


def _settling(pattern: Pattern, step: Step, numbers: range) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        connection.executemany(SETTLE, [(*step.settle, number) for number in numbers])
        connection.executemany(HISTORY, [(number, *step.line) for number in numbers])
        if step.puts:
            connection.executemany(CONTENT, [(number, *put) for number in numbers for put in step.puts])
        _count(connection, pattern.names, step.settled, len(numbers))

    return run
