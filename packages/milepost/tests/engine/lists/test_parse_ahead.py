"""The parser thread: batches in order, errors in their place, exact progress, and no thread that
stays."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from milepost.core.errors import MilepostError, UsageError
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.lists import source as list_source
from milepost.engine.lists.source import Source, parse_ahead


def plan() -> Plan:
    route = Route("parcels", key="id")

    @route.stage("weigh")
    def weigh(item: object) -> Done:
        return Done()

    return Plan(route, grace_ms=0, offer_life_ms=0)


class Chunks:
    """A stream that gives one chunk for each read, and notes the threads that read."""

    def __init__(
        self, *chunks: bytes | OSError, before: Callable[[int], None] = lambda number: None
    ) -> None:
        self.readers: set[threading.Thread] = set()
        self._chunks = list(chunks)
        self._before = before
        self._number = 0

    def read(self, size: int, /) -> bytes:
        self.readers.add(threading.current_thread())
        self._before(self._number)
        self._number += 1
        chunk = self._chunks.pop(0) if self._chunks else b""
        if isinstance(chunk, OSError):
            raise chunk
        return chunk


@pytest.fixture(autouse=True)
def two_lines_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_source, "BATCH", 2)


@pytest.fixture(autouse=True)
def no_thread_stays() -> object:
    yield
    assert [
        thread for thread in threading.enumerate() if thread.name == "milepost-list-parser"
    ] == []


def test_batches_come_in_order_with_what_was_read_up_to_their_end() -> None:
    stream = Chunks(b"a\nb\n", b"c\n", b"d\ne\n")
    with parse_ahead(Source(stream, "list.txt"), plan(), None, False) as batches:
        found = [
            (one.inputs.parsed.keys, list(one.batch.numbers), one.lines_done, one.bytes_done)
            for one in batches
        ]
    assert found == [(["a", "b"], [1, 2], 2, 4), (["c", "d"], [3, 4], 4, 10), (["e"], [5], 5, 10)]
    assert stream.readers == {threading.current_thread()}, (
        "the caller alone reads: it can be interrupted while it waits"
    )


def test_the_next_lines_are_parsed_while_the_caller_works_on_the_lines_before() -> None:
    second = threading.Event()

    def parse(given: dict[str, str]) -> dict[str, str]:
        if given["id"] == "c":
            second.set()
        return given

    route = Route("parcels", key="id", parse=parse)
    route.external("stored")
    with parse_ahead(
        Source(Chunks(b"a\nb\n", b"c\n"), "list.txt"),
        Plan(route, grace_ms=0, offer_life_ms=0),
        None,
        False,
    ) as batches:
        assert next(batches).inputs.parsed.keys == ["a", "b"]
        assert second.wait(30), "the second batch is parsed before it is asked for"


def test_a_read_error_follows_the_batches_of_the_lines_before() -> None:
    stream = Chunks(b"a\nb\nc\n", OSError("the disk is gone"))
    with parse_ahead(Source(stream, "list.txt"), plan(), None, False) as batches:
        assert next(batches).inputs.parsed.keys == ["a", "b"]
        assert next(batches).inputs.parsed.keys == ["c"]
        with pytest.raises(MilepostError, match="past byte 6: the disk is gone"):
            next(batches)


def test_a_mistake_in_the_list_follows_the_batches_of_the_lines_before() -> None:
    with (
        parse_ahead(Source(Chunks(b"name\nb\n"), "list.csv"), plan(), None, False) as batches,
        pytest.raises(UsageError, match="the header lacks the column 'id'"),
    ):
        next(batches)


def test_malformed_lines_have_receipts_and_the_others_are_parsed() -> None:
    stream = Chunks(b'{"id":"a"}\n{"no":1}\n{"id":"c"}\n')
    with parse_ahead(Source(stream, "list.jsonl"), plan(), None, False) as batches:
        first, second = batches
    assert (
        first.inputs.parsed.keys,
        {place: one.field for place, one in first.inputs.refused.items()},
    ) == (["a"], {1: "id"})
    assert (second.inputs.parsed.keys, second.inputs.refused) == (["c"], {})


def test_an_interrupted_caller_ends_the_parser() -> None:
    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    stream = Chunks(b"a\nb\n", b"c\nd\n", before=interrupt)
    taken: list[list[str]] = []
    with (
        pytest.raises(KeyboardInterrupt),
        parse_ahead(Source(stream, "list.txt"), plan(), None, False) as batches,
    ):
        taken += (one.inputs.parsed.keys for one in batches)
    assert taken == [["a", "b"]]


def test_a_caller_that_fails_ends_the_parser() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        parse_ahead(Source(Chunks(b"a\nb\n", b"c\n"), "list.txt"), plan(), None, False) as batches,
    ):
        next(batches)
        raise ZeroDivisionError
