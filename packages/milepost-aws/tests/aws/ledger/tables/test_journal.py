"""The journal: lines to the byte, in one order, and no reader ever passes over a line that shows
later."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from msgspec import UNSET
from tests.aws.ledger.table_scene import Died, Process, Scene, writes

from milepost.core.history import Line, encode_line, link
from milepost.core.status import Reason, Status
from milepost.ports.feed import HistoryEntry
from milepost_aws.ledger.tables.journal import (
    BLOCK,
    JOURNAL,
    REACH,
    Journal,
    JournalBatch,
    JournalEntry,
    images_of,
)
from milepost_aws.ledger.tables.keys import Image


@pytest.fixture
def journal(scene: Scene, process: Process) -> Journal:
    return journal_of(scene, process)


def journal_of(scene: Scene, process: Process | None = None) -> Journal:
    return Journal(process or scene.process(), scene.names, scene.values)


def entry(
    key: str, version: int = 1, *, route: str = "parcels", payload: Any = UNSET, note: Any = None
) -> JournalEntry:
    body = encode_line(
        Line(version, 1000 + version, Reason.NOTED, "weigh", Status.QUEUED, note=note)
    )
    return JournalEntry(route, key, f"c-{key}", version, link(b"", key.encode()), body, payload)


def entries(name: str, n: int) -> list[JournalEntry]:
    return [entry(f"{name}{number:03d}") for number in range(n)]


def keys(lines: list[HistoryEntry]) -> list[str]:
    return [line.key for line in lines]


class Reader:
    """A subscriber with a cursor; it may read at any moment, and must in the end have been given
    every line."""

    def __init__(self, journal: Journal, limit: int = 100) -> None:
        self.journal, self.limit = journal, limit
        self.seq = 0
        self.given: list[str] = []

    def read(self) -> None:
        while batch := self.journal.feed(self.seq, self.limit):
            seqs = [line.seq for line in batch]
            assert len(batch) <= self.limit
            assert seqs == sorted(set(seqs))
            assert seqs[0] > self.seq
            self.seq = seqs[-1]
            self.given += keys(batch)


# Lines --------------------------------------------------------------------------------------------
def test_an_empty_ledger_has_no_lines(journal: Journal) -> None:
    assert journal.last_seq() == 0
    assert journal.feed(0, 10) == []
    assert journal.feed(-1, 1) == []
    assert journal.history("parcels", "p1") == []
    assert journal.append([]) == []
    assert journal.append([], again=True) == []
    journal.remove("parcels", "p1", 1)


def test_lines_come_back_to_the_byte_in_the_order_written(journal: Journal) -> None:
    told = [
        entry("p1", note='büro ☃ "quoted" \\ \n'),
        entry("l1", route="letters"),
        entry("p2"),
        entry("p1", 2),
        entry("p/#1"),
    ]
    assert journal.append(told) == [1, 2, 3, 4, 5]
    found = journal.feed(0, 100)
    assert [
        (line.seq, line.route, line.key, line.correlation_id, line.previous, line.body)
        for line in found
    ] == [
        (seq, each.route, each.key, each.correlation_id, each.previous, each.body)
        for seq, each in enumerate(told, 1)
    ]
    assert journal.last_seq() == 5
    assert [(line.seq, line.line.version) for line in journal.history("parcels", "p1")] == [
        (1, 1),
        (4, 2),
    ]
    assert [line.seq for line in journal.history("parcels", "p/#1")] == [5]


@pytest.mark.parametrize(
    "payload", [{"stamp": "x-1"}, "plain text", "{", 0, None, [], {"large": "ü" * 5000}]
)
def test_a_line_carries_what_it_offered(journal: Journal, payload: Any) -> None:
    journal.append([entry("p1"), entry("p2", payload=payload)])
    assert [line.payload for line in journal.feed(0, 10)] == [None, payload]


def test_history_is_sorted_by_version_and_goes_over_pages(journal: Journal) -> None:
    versions = [10, 9, 2, 11, 1]
    journal.append([entry("p1", version, note="x" * 4000) for version in versions])
    assert [line.line.version for line in journal.history("parcels", "p1")] == sorted(versions)
    journal.append([entry("big", version, note="x" * 4000) for version in range(1, 301)])
    assert [line.seq for line in journal.history("parcels", "big")] == list(range(6, 306))


def test_a_large_line_and_a_long_key_are_kept_whole(scene: Scene, journal: Journal) -> None:
    told = [
        entry("k" * 3000 + "a", note="x" * 500_000, payload="y" * 500_000),
        entry("k" * 3000 + "b"),
    ]
    journal.append(told)
    assert [(line.key, line.body) for line in journal.feed(0, 10)] == [
        (each.key, each.body) for each in told
    ]
    for each in told:
        assert [line.body for line in journal.history("parcels", each.key)] == [each.body]
    assert journal.append(told, again=True) == [1, 2]
    journal.remove("parcels", told[0].key, 1)
    assert keys(journal.feed(0, 10)) == [told[1].key]
    assert scene.values._blobs.held == {}  # type: ignore[attr-defined]


def test_a_hundred_long_keys_that_fit_into_no_row_together_are_told(journal: Journal) -> None:
    told = [entry(f"{number:03d}" + "k" * 6000) for number in range(100)]
    assert journal.append(told) == list(range(1, 101))
    assert keys(journal.feed(0, 1000)) == [each.key for each in told]


# Order --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", [1, 3, 100, 1000])
def test_reading_on_gives_every_line_once(scene: Scene, journal: Journal, limit: int) -> None:
    sizes = [1, 1, 7, BLOCK, 1, BLOCK + 30, 2]
    told = [
        key for number, size in enumerate(sizes) for key in keys_of(entries(f"b{number}-", size))
    ]
    places: list[int] = []
    for number, size in enumerate(sizes):
        places += journal.append(entries(f"b{number}-", size))
    assert places == list(range(1, len(told) + 1))
    for who in (journal, journal_of(scene)):
        reader = Reader(who, limit)
        reader.read()
        assert reader.given == told
        assert reader.seq == who.last_seq() == len(told)


def keys_of(told: list[JournalEntry]) -> list[str]:
    return [each.key for each in told]


def test_reading_can_begin_at_any_place(scene: Scene, journal: Journal) -> None:
    for number, size in enumerate([1, BLOCK, 3, 1, 60]):
        journal.append(entries(f"b{number}-", size))
    whole = journal_of(scene).feed(0, 1000)
    # Before, at and after each end of a block, and within.
    for after in (0, 1, 2, 50, 99, 100, 101, 102, 103, 104, 105, 106, 130, 164, 165):
        assert journal_of(scene).feed(after, 1000) == whole[after:]
    assert keys(journal.feed(journal.last_seq() - 1, 1)) == ["b4-059"]


def test_a_poller_at_the_end_reads_no_more_than_it_must(
    scene: Scene, journal: Journal, process: Process
) -> None:
    for each in entries("p", 60):
        journal.append([each])
    poller = scene.process()
    other = journal_of(scene, poller)
    last = other.last_seq()
    other.feed(last, 10)
    poller.measure = True
    assert other.feed(last, 10) == []
    assert sum(poller.units.values()) <= 1
    journal.append([entry("new")])
    assert keys(other.feed(last, 10)) == ["new"]


def test_removed_lines_leave_their_places_empty(scene: Scene, journal: Journal) -> None:
    for number in range(4):
        journal.append([entry(f"p{number}"), entry("gone", number + 1)])
    journal.append([entry("gone", number) for number in range(5, 155)])
    journal.remove("parcels", "gone", journal.last_seq())
    assert journal.history("parcels", "gone") == []
    for limit in (1, 2, 100):
        reader = Reader(journal_of(scene), limit)
        reader.read()
        assert reader.given == ["p0", "p1", "p2", "p3"]
    assert journal.last_seq() == 158
    assert journal.append([entry("p4")]) == [159]
    assert [(line.seq, line.key) for line in journal.feed(7, 1)] == [(159, "p4")]


def test_an_entry_given_twice_in_one_call_has_one_place(journal: Journal) -> None:
    assert journal.append([entry("p1"), entry("p2"), entry("p1")]) == [1, 2, 1]
    assert keys(journal.feed(0, 10)) == ["p1", "p2"]


# Again --------------------------------------------------------------------------------------------
def test_what_has_a_place_is_not_given_another(scene: Scene, journal: Journal) -> None:
    journal.append(entries("p", 3))
    other = journal_of(scene)
    assert other.append([*entries("p", 4), entry("p001", 2)], again=True) == [1, 2, 3, 4, 5]
    assert [(line.seq, line.key) for line in journal.feed(0, 10)] == [
        (1, "p000"),
        (2, "p001"),
        (3, "p002"),
        (4, "p003"),
        (5, "p001"),
    ]


def test_a_line_that_is_placed_twice_is_read_at_its_newest_place(journal: Journal) -> None:
    journal.append([entry("p1"), entry("p2")])
    before = journal.feed(0, 1)
    assert journal.append([entry("p1")]) == [3]
    assert (keys(before), keys(journal.feed(0, 10)), keys(journal.feed(before[-1].seq, 10))) == (
        ["p1"],
        ["p2", "p1"],
        ["p2", "p1"],
    )
    assert [line.seq for line in journal.history("parcels", "p1")] == [3]


def test_a_repeat_at_the_newest_place_is_read_so_that_a_reader_comes_to_the_end(
    scene: Scene, process: Process, journal: Journal
) -> None:
    """Two readers write the same line; the row of the first one is written last, and its place is
    the earlier one."""
    first, second = (
        JournalBatch("first", [entry("p1")], 0),
        JournalBatch("second", [entry("p1")], 0),
    )
    images = images_of(second, scene.values) + images_of(first, scene.values)
    assert [journal._place(first), journal._place(second)] == [1, 2]
    for image in images:
        process.batch_write(scene.names.history, [image])
    assert [line.seq for line in journal.feed(0, 10)] == [1, 2]
    assert journal.append([entry("p2")]) == [3]
    assert [line.seq for line in journal.feed(0, 10)] == [1, 3]


def test_a_line_whose_last_writer_died_before_its_block_is_read_at_its_first_place(
    scene: Scene, process: Process, journal: Journal
) -> None:
    journal.append([entry("p1")])
    process.die_at("put_item")
    with pytest.raises(Died):
        journal_of(scene, process).append([entry("p1")])
    assert [line.seq for line in journal.feed(0, 10)] == [1]


# Dying --------------------------------------------------------------------------------------------
def test_one_that_died_before_its_block_has_told_nothing_and_is_finished_by_the_next(
    scene: Scene, process: Process
) -> None:
    journal, other = journal_of(scene, process), journal_of(scene)
    reader = Reader(journal_of(scene))
    journal.append([entry("p0")])
    process.die_at("put_item")
    with pytest.raises(Died):
        journal.append([entry("p1"), entry("p2")])
    reader.read()
    assert reader.given == ["p0"]
    # Lines that nobody was told of count as newer than any place, so that nobody lets go of them.
    assert [line.seq for line in other.history("parcels", "p2")] == [2]
    other.append([entry("p3")])
    assert [line.seq for line in other.history("parcels", "p2")] == [3]
    reader.read()
    assert other.append([entry("p1"), entry("p2")], again=True) == [3, 4]
    reader.read()
    assert reader.given == ["p0", "p3", "p1", "p2"]
    assert [line.seq for line in journal_of(scene).history("parcels", "p2")] == [4]


def test_one_that_died_between_two_blocks_has_told_the_first(
    scene: Scene, process: Process
) -> None:
    journal, reader = journal_of(scene, process), Reader(journal_of(scene))
    process.at("put_item", lambda: process.die_at("put_item"))
    told = entries("p", BLOCK + 20)
    with pytest.raises(Died):
        journal.append(told)
    reader.read()
    assert reader.given == keys_of(told)[:BLOCK]
    assert journal_of(scene).append(told, again=True) == list(range(1, BLOCK + 21))
    reader.read()
    assert reader.given == keys_of(told)


def test_one_that_died_while_writing_lines_is_finished_by_the_next(
    scene: Scene, process: Process
) -> None:
    told = entries("p", 60)
    journal = journal_of(scene, process)
    process.batch_write(scene.names.history, scene_lines(scene, told)[:25])
    reader = Reader(journal_of(scene))
    reader.read()
    assert reader.given == []
    assert journal.append(told, again=True) == list(range(1, 61))
    reader.read()
    assert reader.given == keys_of(told)


def scene_lines(scene: Scene, told: list[JournalEntry]) -> list[Image]:
    """Lines as an append that got no further has left them."""
    return images_of(JournalBatch("nobody", told, 0), scene.values)


@pytest.mark.parametrize("fault", ["timeout_after", "twice", "timeout_before", "throttle", "500"])
@pytest.mark.parametrize("operation", ["PutItem", "BatchWriteItem"])
def test_a_lost_answer_gives_no_second_place(
    journal: Journal, process: Process, operation: str, fault: str
) -> None:
    process.faults.plan(operation, fault)
    assert journal.append(entries("p", 3)) == [1, 2, 3]
    assert len(process.faults.fired) == 1
    assert journal.append(entries("q", 2)) == [4, 5]
    assert keys(journal.feed(0, 10)) == ["p000", "p001", "p002", "q000", "q001"]


def test_an_append_whose_answer_never_came_is_recognised(scene: Scene, process: Process) -> None:
    """The process died after its block was there, before anybody heard of it."""
    journal = journal_of(scene, process)
    journal.append([entry("p1"), entry("p2")])
    assert journal_of(scene).append([entry("p1"), entry("p2")], again=True) == [1, 2]
    assert keys(journal.feed(0, 10)) == ["p1", "p2"]


# Racing -------------------------------------------------------------------------------------------
def test_two_that_know_the_same_end_both_find_a_place(scene: Scene) -> None:
    one, two = journal_of(scene), journal_of(scene)
    one.append([entry("p0")])
    two.append([entry("q0")])
    reader = Reader(journal_of(scene))
    assert one.append([entry("p1"), entry("p2")]) == [3, 4]
    assert two.append([entry("q1")]) == [5]
    assert one.append([entry("p3")]) == [6]
    reader.read()
    assert reader.given == ["p0", "q0", "p1", "p2", "q1", "p3"]
    third = journal_of(scene)
    assert [third.history("parcels", key)[0].seq for key in reader.given] == [1, 2, 3, 4, 5, 6]


def test_one_that_is_kept_waiting_before_its_block_comes_after_whoever_passed_it(
    scene: Scene, process: Process
) -> None:
    slow, quick = journal_of(scene, process), journal_of(scene)
    reader = Reader(journal_of(scene))

    def meanwhile() -> None:
        for number in range(5):
            quick.append(entries(f"q{number}-", 3))
            reader.read()

    process.at("put_item", meanwhile)
    assert slow.append([entry("p1"), entry("p2")]) == [16, 17]
    reader.read()
    assert reader.given[-2:] == ["p1", "p2"]
    assert len(reader.given) == 17
    assert [line.seq for line in journal_of(scene).history("parcels", "p2")] == [17]
    assert journal_of(scene).append([entry("p1"), entry("p2")], again=True) == [16, 17]


def test_one_that_is_kept_waiting_for_very_long_is_still_found(
    scene: Scene, process: Process
) -> None:
    slow, quick = journal_of(scene, process), journal_of(scene)
    process.at(
        "put_item", lambda: quick.append([entry(f"q{number}") for number in range(REACH + 150)])
    )
    assert slow.append([entry("p1"), entry("p2")]) == [REACH + 151, REACH + 152]
    assert journal_of(scene).history("parcels", "p2")[0].seq == REACH + 152
    assert keys(journal_of(scene).feed(REACH + 150, 10)) == ["p1", "p2"]
    assert journal_of(scene).append([entry("p1")], again=True) == [REACH + 151]


def test_two_that_write_the_same_lines_lose_none(scene: Scene, process: Process) -> None:
    """A process that was thought dead goes on: its lines may be told twice."""
    slow, other = journal_of(scene, process), journal_of(scene)
    reader = Reader(journal_of(scene))
    process.at("put_item", lambda: other.append([entry("p1"), entry("p2")], again=True))
    process.at("put_item", reader.read)
    slow.append([entry("p1"), entry("p2")], again=True)
    reader.read()
    assert set(reader.given) == {"p1", "p2"}


def test_one_that_overwrote_lines_and_died_takes_none_from_the_readers(
    scene: Scene, process: Process
) -> None:
    journal_of(scene).append([entry("p1"), entry("p2")])
    process.die_at("put_item")
    with pytest.raises(Died):
        journal_of(scene, process).append([entry("p1"), entry("p2")])
    assert keys(journal_of(scene).feed(0, 10)) == ["p1", "p2"]
    assert [line.key for line in journal_of(scene).history("parcels", "p1")] == ["p1"]


def test_a_query_that_missed_a_block_is_not_believed_beyond_it(
    scene: Scene, journal: Journal
) -> None:
    """A query is no picture of one moment: here it misses the second of four blocks, as if that had
    come while it ran."""
    for number in range(4):
        journal.append(entries(f"b{number}-", 3))
    blind = scene.process()
    query, hidden = blind.query, f"{4:015d}"

    def missing(table: str, **params: Any) -> Iterator[Image]:
        return (image for image in query(table, **params) if image.get("name") != {"S": hidden})

    reader = journal_of(scene, blind)
    blind.query = missing  # type: ignore[method-assign]
    assert keys(reader.feed(0, 100)) == ["b0-000", "b0-001", "b0-002"]
    assert reader.feed(3, 100) == []
    blind.query = query  # type: ignore[method-assign]
    assert len(reader.feed(3, 100)) == 9


def test_blocks_join_without_a_gap_whoever_writes_them(scene: Scene) -> None:
    """Four processes append as fast as they can while two read: everyone is given every line once,
    each item's in order."""
    done = Event()
    failed: list[BaseException] = []

    def write(name: str) -> None:
        try:
            journal = journal_of(scene)
            for version in range(1, 13):
                places = journal.append(
                    [entry(f"{name}{number}", version) for number in range(version % 4 + 1)]
                )
                assert places == sorted(places)
        except BaseException as error:
            failed.append(error)

    def read(reader: Reader) -> None:
        try:
            while not done.is_set():
                reader.read()
            reader.read()
        except BaseException as error:
            failed.append(error)

    readers = [Reader(journal_of(scene), limit) for limit in (3, 100)]
    reading = [Thread(target=read, args=(reader,)) for reader in readers]
    writing = [Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in (*reading, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    done.set()
    for thread in reading:
        thread.join()
    assert failed == []
    expected = sum(version % 4 + 1 for version in range(1, 13)) * 4
    whole = journal_of(scene).feed(0, 10_000)
    assert [line.seq for line in whole] == list(range(1, expected + 1))
    for reader in readers:
        assert reader.given == keys(whole)
    for key in {line.key for line in whole}:
        versions = [line.line.version for line in whole if line.key == key]
        assert versions == sorted(set(versions))
        assert [line.seq for line in journal_of(scene).history("parcels", key)] == [
            line.seq for line in whole if line.key == key
        ]


# Cost ---------------------------------------------------------------------------------------------
def test_what_it_costs(scene: Scene, journal: Journal, process: Process) -> None:
    journal.append([entry("p")])
    process.measure = True
    process.counts.clear()
    journal.append([entry("q")])
    assert writes(process) == 2, "one for the line, one for its block"
    assert process.counts == {("dynamodb", "batch_write_item"): 1, ("dynamodb", "put_item"): 1}
    process.units.clear()
    journal.append(entries("10.1000/journal.", 100))
    assert writes(process) == 100 + 3
    process.counts.clear()
    assert len(journal.feed(2, 100)) == 100
    assert process.counts == {("dynamodb", "query"): 1, ("dynamodb", "batch_get_item"): 1}
    blocks = [block for block in scene.rows(scene.names.control) if block["kind"]["S"] == JOURNAL]
    assert sorted(block["name"]["S"] for block in blocks) == [
        f"{start:015d}" for start in (1, 2, 3)
    ]
