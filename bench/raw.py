"""The raw SQLite limit: the same rows, indexes and bytes, written in batches with no engine.

Schema, connection settings and statements are the ledger's own, so that the limit moves with them. What the engine reckons
per item (key, digest, chain, decision, lease check) is made once here, as a pattern that all items share, and what is the
same for all items stands in the statement itself: only what would differ from item to item is bound.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
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
from milepost.core.plan import Plan
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
LIST_ID = TOKEN = "0123456789abcdef"


class Bound:
    """Stands for a value that differs from item to item."""


ID, KEY = Bound(), Bound()


class Statement:
    """SQL in which all values but some are literal; `varying` are those to bind, in their order."""

    def __init__(self, connection: sqlite3.Connection, sql: str, values: Sequence[Any], own: Sequence[Any] = ()) -> None:
        parts = sql.split("?")
        assert len(parts) == len(values) + 1, sql
        self.varying = [value for value in values if isinstance(value, Bound) or any(value is each for each in own)]
        literals = ["?" if any(value is each for each in self.varying) else _literal(connection, value) for value in values]
        self.sql = "".join(part + literal for part, literal in zip(parts, [*literals, ""], strict=True))


def _literal(connection: sqlite3.Connection, value: Any) -> str:
    return str(connection.execute("SELECT quote(?)", (value,)).fetchone()[0])


class Pattern:
    """One item's whole way through the route, reckoned once by the real rules."""

    def __init__(self, connection: sqlite3.Connection, output: Any = None) -> None:
        self.names = names = Names()
        names.refresh(connection)
        plan = Plan(make_route())
        now = SystemClock().now()
        content = {"id": "x"}
        first = accept(plan, "x", content, now, correlation_id=f"{TOKEN}-3e7", digest=digest_of(content), list_id=LIST_ID)
        row = first.after
        self.route = names.route(connection, NAME)
        place = names.place(connection, NAME, row.stage, "")
        values = (self.route, *changing(row, place)[:-1], ID, KEY, row.created_at, row.correlation_id, row.input_digest, row.list_id)
        self.insert = Statement(connection, INSERT, values, (row.head, row.correlation_id, row.input_digest))
        self.line = (first.before.head, first.body)
        self.came = _tally([first])
        self.steps: list[Step] = []
        item = Item(replace(row, handle=0), Content(content, {}, {}))
        grip = Grip(TOKEN, who(), now + 30_000)
        for _ in STAGES:
            claim = look(item, plan, now, 0.0, grip)
            assert claim is not None
            settled = decide(Item(claim.after, item.content), Done(output), plan, now, 0.0, response_ms=0)
            self.steps.append(Step(connection, names, claim, settled))
            item = Item(settled.after, item.content)


class Step:
    """One stage of the pattern: what its claim and its settle write."""

    def __init__(self, connection: sqlite3.Connection, names: Names, claim: Change, settled: Change) -> None:
        row, after = claim.after, settled.after
        self.claim = Statement(connection, CLAIM, (PROCESSING, *clock_of(row), row.lease, row.holder, row.claimed_at, ID))
        self.claimed = _tally([claim])
        place = names.place(connection, NAME, after.stage, "")
        self.settle = Statement(connection, SETTLE, (*changing(after, place)[:-1], ID), (after.head,))
        self.head = after.head
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
    head, number_at, key_at, *rest = pattern.insert.varying
    assert (number_at, key_at) == (ID, KEY)

    def run(connection: sqlite3.Connection) -> None:
        numbers = range(first, first + len(keys))
        connection.executemany(pattern.insert.sql, [(head, number, key, *rest) for number, key in zip(numbers, keys, strict=True)])
        connection.executemany(NEW_CONTENT, [(number, INPUT, 0, line) for number, line in zip(numbers, lines, strict=True)])
        connection.executemany(HISTORY, [(number, *pattern.line) for number in numbers])
        _count(connection, pattern.names, pattern.came, len(keys))

    return run


def again(ledger: str, path: str, n: int) -> None:
    """Read, parse, and insert the same rows once more: each INSERT finds its key in the index and does nothing."""
    store = Store(ledger)
    pattern = store.write(Pattern)
    head, _, _, *rest = pattern.insert.varying
    with Span() as span:
        for _, keys in _parsed(path):
            store.write(_known(f"{pattern.insert.sql} ON CONFLICT (route, key) DO NOTHING", [(head, None, key, *rest) for key in keys]))
    store.close()
    tell(span, n)


def _known(sql: str, rows: list[tuple[Any, ...]]) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        if connection.executemany(sql, rows).rowcount:
            raise SystemExit("the second intake took in a key that was there before")

    return run


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
        connection.executemany(step.claim.sql, [(number,) for number in numbers])
        _count(connection, pattern.names, step.claimed, len(numbers))

    return run


def _settling(pattern: Pattern, step: Step, numbers: range) -> Callable[[sqlite3.Connection], None]:
    def run(connection: sqlite3.Connection) -> None:
        connection.executemany(step.settle.sql, [(step.head, number) for number in numbers])
        connection.executemany(HISTORY, [(number, *step.line) for number in numbers])
        if step.puts:
            connection.executemany(CONTENT, [(number, *put) for number in numbers for put in step.puts])
        _count(connection, pattern.names, step.settled, len(numbers))

    return run
