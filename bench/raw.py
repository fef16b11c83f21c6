"""The raw SQLite limit: the same rows, indexes and bytes, written in batches with no engine.

It is the fixed measure, so that figures of different versions of Milepost can be compared: the
statements and the values are written out here and do not follow the ledger when it changes its own.
They are the ledger's statements of November 2026, row by row with `executemany`; what the engine
reckons per item (key, digest, chain, decision, lease check) is written here once, as a pattern that
all items share, and what is the same for all items stands in the statement itself: only what would
differ from item to item is bound. (A quicker way to write the same rows is one of the things that
Milepost may do better than this.) The schema and the settings of the connection are the ledger's.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from bench.measure import Span, facts_of, ledger_bytes
from bench.route import FEW, NAME, STAGES
from milepost.ledgers.sqlite.file.store import SqliteFile
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction

BATCH = 1_000
QUEUED, PROCESSING, COMPLETED = 1, 2, 5
INPUT, PAYLOAD, RESULT = 0, 1, 2

# In braces: what is the same for all items. ?: what differs from item to item.
INSERT = (
    "INSERT INTO item (route, place, status, due_at, look_at, overdue_at, version, head, updated_at, entered_at,"
    " attempts, total_attempts, looks, losses, round, pass_no, flags, lease, holder, claimed_at, error_group, rest,"
    " id, key, created_at, correlation_id, input_digest, list_id, life)"
    " VALUES ({route}, {place}, 1, {now}, NULL, NULL, 1, ?, {now}, {now}, 0, 0, 0, 0, 1, 1, 0, NULL, NULL, NULL, NULL, NULL,"
    " ?, ?, {now}, ?, ?, '0123456789abcdef', 0)"
)
ONLY_NEW = " ON CONFLICT (route, key) DO NOTHING"
CLAIM = (
    "UPDATE item SET status = 2, due_at = {until}, look_at = NULL, lease = '0123456789abcdef', holder = 'vm-0123abcd',"
    " claimed_at = {now} WHERE id = ?"
)
SETTLE = (
    "UPDATE item SET place = {place}, status = {status}, due_at = {due}, look_at = NULL, overdue_at = NULL, version = {version}, head = ?,"
    " updated_at = {now}, entered_at = {now}, attempts = 0, total_attempts = 0, looks = 0, losses = 0, round = 1, pass_no = 1, flags = 0,"
    " lease = NULL, holder = NULL, claimed_at = NULL, error_group = NULL, rest = NULL WHERE id = ?"
)
HISTORY = "INSERT INTO history (item, previous, body) VALUES (?, ?, ?)"
NEW_CONTENT = "INSERT INTO content (item, kind, stage, body) VALUES (?, ?, ?, ?)"
CONTENT = NEW_CONTENT + " ON CONFLICT (item, kind, stage) DO UPDATE SET body = excluded.body"
COUNT = "INSERT INTO counter (stage, status, hour, n) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n"

HEADS = [bytes(range(start, start + 32)) for start in (0, 32, 64, 96, 128)]
"""In the place of the chain: one 32-byte digest for each of the item's versions, from before the
first on."""
CORRELATION_ID = "0123456789abcdef-3e7"
DIGEST = bytes(range(160, 192))
OUTPUT = b'{"checked":true,"grams":340}'
ACCEPTED = '{{"version":1,"at":{now},"reason":"accepted","stage":"first","status":"QUEUED"}}'
SETTLED = (
    '{{"version":{version},"at":{now},"reason":"{reason}","stage":"{stage}","status":"{status}"{to},"by":"vm-0123abcd","since":{now}'
    '{output},"claim":"0123456789ab"}}'
)
SAID_OUTPUT = f',"output":"{DIGEST.hex()}"'

Deltas = list[tuple[int, int, int]]
"""(stage, status, how many more per item)"""


class Pattern:
    """One item's whole way through the route."""

    def __init__(self, connection: sqlite3.Connection, with_output: bool = False) -> None:
        now = self.now = int(time.time() * 1000)
        numbers = _names(connection)
        stages = [stage for _, stage in numbers]
        self.route: int = connection.execute(
            "SELECT id FROM route WHERE name = ?", (NAME,)
        ).fetchone()[0]
        self.insert = INSERT.format(route=self.route, place=numbers[0][0], now=now)
        self.line = ACCEPTED.format(now=now).encode()
        self.came: Deltas = [(stages[0], QUEUED, 1)]
        self.steps = [Step(index, numbers, now, with_output) for index in range(len(STAGES))]


class Step:
    """One stage of the pattern: what its claim and its settle write."""

    def __init__(
        self, index: int, numbers: Sequence[tuple[int, int]], now: int, with_output: bool
    ) -> None:
        last = index == len(STAGES) - 1
        stage = numbers[index][1]
        place, following = numbers[index if last else index + 1]
        status = COMPLETED if last else QUEUED
        version = index + 2
        self.claim = CLAIM.format(now=now, until=now + 30_000)
        self.settle = SETTLE.format(
            place=place, status=status, due="NULL" if last else now, version=version, now=now
        )
        self.before, self.head = HEADS[index + 1], HEADS[index + 2]
        self.line = SETTLED.format(
            version=version,
            now=now,
            reason="completed" if last else "advanced",
            stage=STAGES[index],
            status="COMPLETED" if last else "QUEUED",
            to="" if last else f',"to":"{STAGES[index + 1]}"',
            output=SAID_OUTPUT if with_output else "",
        ).encode()
        self.puts: list[tuple[int, int, bytes]] = []
        if with_output:
            self.puts = [(RESULT, stage, OUTPUT), *([] if last else [(PAYLOAD, following, OUTPUT)])]
        self.claimed: Deltas = [(stage, QUEUED, -1), (stage, PROCESSING, 1)]
        self.settled: Deltas = [(stage, PROCESSING, -1), (following, status, 1)]


def _names(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """The numbers of each stage, as (place, stage); made where they are not there yet."""
    numbers = []
    connection.execute("INSERT INTO route (name) VALUES (?) ON CONFLICT DO NOTHING", (NAME,))
    for name in STAGES:
        connection.execute(
            "INSERT INTO stage (route, name) SELECT id, ? FROM route WHERE name = ? ON CONFLICT DO NOTHING",
            (name, NAME),
        )
        find = "FROM stage s JOIN route r ON r.id = s.route WHERE r.name = ? AND s.name = ?"
        (stage,) = connection.execute(f"SELECT s.id {find}", (NAME, name)).fetchone()
        connection.execute(
            "INSERT INTO place (stage, lane) VALUES (?, '') ON CONFLICT DO NOTHING", (stage,)
        )
        (place,) = connection.execute(
            "SELECT id FROM place WHERE stage = ? AND lane = ''", (stage,)
        ).fetchone()
        numbers.append((place, stage))
    return numbers


def _count(tx: Transaction, pattern: Pattern, deltas: Deltas, times: int) -> None:
    hour = pattern.now // 3_600_000
    tx.executemany(COUNT, [(stage, status, hour, n * times) for stage, status, n in deltas])
    if any(n < 0 for _, _, n in deltas):
        tx.execute("DELETE FROM counter WHERE n = 0")


class NoNames(NameNumbers):
    """Names are numbered once, in the pattern: no write has to read them first."""

    def refresh(self, connection: sqlite3.Connection) -> None:
        pass


def _open(ledger: str) -> SqliteFile:
    store = SqliteFile(ledger)
    store.names = NoNames()
    return store


def _pattern(tx: Transaction, with_output: bool) -> Pattern:
    return Pattern(tx.connection, with_output)


def intake(ledger: str, path: str, n: int) -> dict[str, float]:
    """Read, parse, insert: row, input, first line, counters."""
    store = _open(ledger)
    pattern = store.write(_pattern, False)
    with Span() as span:
        number = _first_free(store)
        for lines, keys in _parsed(path, BATCH):
            store.write(_insertion(pattern, number, lines, keys))
            number += len(keys)
    store.close()
    return facts_of(span, n)


def _first_free(store: SqliteFile) -> int:
    return 1 + store.read(
        lambda c: int(c.execute("SELECT coalesce(max(id), 0) FROM item").fetchone()[0])
    )


def _insertion(
    pattern: Pattern, first: int, lines: Sequence[bytes], keys: Sequence[str]
) -> Callable[[Transaction], None]:
    before, head = HEADS[0], HEADS[1]

    def run(tx: Transaction) -> None:
        numbers = range(first, first + len(keys))
        rows = [
            (head, number, key, CORRELATION_ID, DIGEST)
            for number, key in zip(numbers, keys, strict=True)
        ]
        tx.executemany(pattern.insert, rows)
        tx.executemany(
            NEW_CONTENT,
            [(number, INPUT, 0, line) for number, line in zip(numbers, lines, strict=True)],
        )
        tx.executemany(HISTORY, [(number, before, pattern.line) for number in numbers])
        _count(tx, pattern, pattern.came, len(keys))

    return run


def again(ledger: str, path: str, n: int) -> dict[str, float]:
    """Read, parse, and insert the same rows once more: each INSERT finds its key in the index and
    does nothing."""
    store = _open(ledger)
    pattern = store.write(_pattern, False)
    with Span() as span:
        for _, keys in _parsed(path, BATCH):
            store.write(
                _known(
                    pattern.insert + ONLY_NEW,
                    [(HEADS[1], None, key, CORRELATION_ID, DIGEST) for key in keys],
                )
            )
    store.close()
    return facts_of(span, n)


def _known(sql: str, rows: list[tuple[Any, ...]]) -> Callable[[Transaction], None]:
    def run(tx: Transaction) -> None:
        if tx.executemany(sql, rows).rowcount:
            raise SystemExit("the second intake took in a key that was there before")

    return run


def select(ledger: str, path: str, n: int) -> dict[str, float]:
    """Read, parse, and merely look the keys up."""
    store = _open(ledger)
    route = store.write(_pattern, False).route
    found = 0
    with Span() as span:
        for _, keys in _parsed(path, BATCH):
            sql = f"SELECT key FROM item WHERE route = {route} AND key IN ({', '.join('?' * len(keys))})"
            found += len(store.read(_looking(sql, keys)))
    store.close()
    if found != n:
        raise SystemExit(f"expected {n} keys, found {found}")
    return facts_of(span, n)


def _looking(sql: str, keys: Sequence[str]) -> Callable[[Transaction], list[Any]]:
    return lambda tx: tx.execute(sql, keys).fetchall()


def _parsed(path: str, size: int) -> Iterator[tuple[list[bytes], list[str]]]:
    parse = msgspec.json.Decoder(dict[str, Any]).decode
    with open(path, "rb") as source:
        while lines := list(islice(source, size)):
            yield [line[:-1] for line in lines], [parse(line)["id"] for line in lines]


def process(ledger: str, n: int, handlers: str) -> dict[str, float]:
    """The last n items, batch by batch through the three stages: a commit for the claim, one for
    the settle."""
    store = _open(ledger)
    pattern = store.write(_pattern, handlers == "output")
    last = _first_free(store) - 1
    size = FEW if handlers == "few" else BATCH
    with Span() as span:
        for start in range(last - n + 1, last + 1, size):
            _through(store, pattern, range(start, min(start + size, last + 1)))
    store.close()
    return facts_of(span, n, bytes_each=ledger_bytes(ledger) / n)


def ones(ledger: str, path: str, n: int) -> dict[str, float]:
    """One item at a time: taken in, then through the three stages, with a commit for each claim and
    each settle."""
    store = _open(ledger)
    pattern = store.write(_pattern, False)
    with Span() as span:
        for number, (lines, keys) in enumerate(_parsed(path, 1), _first_free(store)):
            store.write(_insertion(pattern, number, lines, keys))
            _through(store, pattern, range(number, number + 1))
    store.close()
    return facts_of(span, n)


def _through(store: SqliteFile, pattern: Pattern, numbers: range) -> None:
    for step in pattern.steps:
        store.write(_claiming(pattern, step, numbers))
        store.write(_settling(pattern, step, numbers))


def _claiming(pattern: Pattern, step: Step, numbers: range) -> Callable[[Transaction], None]:
    def run(tx: Transaction) -> None:
        tx.executemany(step.claim, [(number,) for number in numbers])
        _count(tx, pattern, step.claimed, len(numbers))

    return run


def _settling(pattern: Pattern, step: Step, numbers: range) -> Callable[[Transaction], None]:
    def run(tx: Transaction) -> None:
        tx.executemany(step.settle, [(step.head, number) for number in numbers])
        tx.executemany(HISTORY, [(number, step.before, step.line) for number in numbers])
        if step.puts:
            tx.executemany(CONTENT, [(number, *put) for number in numbers for put in step.puts])
        _count(tx, pattern, step.settled, len(numbers))

    return run
