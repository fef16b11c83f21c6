"""Lists: reconciled exactly, recorded, repeatable, and harmless when dry."""

from __future__ import annotations

import hashlib
import io
import os
import random
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.app import Milepost
from milepost.blobs.memory import MemoryBlobs
from milepost.core.change import change
from milepost.core.errors import MilepostError, UsageError
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.lists import keys as list_keys
from milepost.engine.lists import source as list_source
from milepost.engine.lists.keys import SortedKeys, missing, pack, unpack
from milepost.engine.lists.reconcile import ListReport, submit_list, vanished_keys
from milepost.engine.lists.source import Source, open_source
from milepost.engine.views.items import lists
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.documents import LIST
from milepost.ports.items import KnownKey, NewItem
from milepost.ports.ledger import Ledger
from milepost_testing.clock import SeededChance, VirtualClock


def context(ledger: Ledger) -> Context:
    route = Route("parcels", key="id")

    @route.stage("weigh")
    def weigh(item: object) -> Done:
        return Done()

    plan = Plan(route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms)
    return Context(ledger, {"parcels": plan}, VirtualClock(), SeededChance(), MemoryBlobs())


@pytest.fixture(params=["memory", "sqlite"])
def ctx(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    ledger: Ledger = (
        MemoryLedger()
        if request.param == "memory"
        else SqliteLedger.open(str(tmp_path / "ledger.db"))
    )
    yield context(ledger)
    ledger.close()


def two_fields() -> Route:
    route = Route("shelf", key=["batch", "asset"])
    route.external("stored")
    return route


class ListFolder:
    """Writes lists to files and submits them."""

    def __init__(self, ctx: Context, folder: Path) -> None:
        self.ctx = ctx
        self.folder = folder

    def file(self, lines: Sequence[str] | bytes, name: str = "list.txt") -> str:
        path = self.folder / name
        path.write_bytes(
            lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
        )
        return str(path)

    def submit(
        self, lines: Sequence[str] | bytes, name: str = "list.txt", **options: Any
    ) -> ListReport:
        return submit_list(self.ctx, "parcels", self.file(lines, name), **options)

    def end(self, key: str, status: Status, reason: Reason) -> None:
        item = self.ctx.ledger.get([("parcels", key)])[0]
        assert item is not None
        ended = change(item.row, reason, self.ctx.clock.now(), status, {"look_at": None})
        assert self.ctx.ledger.apply([ended], self.ctx.clock.now()) == [None]


@pytest.fixture
def slots(ctx: Context, tmp_path: Path) -> ListFolder:
    return ListFolder(ctx, tmp_path)


def counts(report: ListReport) -> dict[str, int]:
    """Those that are not zero."""
    return {name: count for name, count in report.counts.items() if count}


def state(ctx: Context) -> tuple[Any, ...]:
    return (
        ctx.ledger.last_seq(),
        ctx.ledger.change_counter(),
        ctx.ledger.read(LIST),
        dict(ctx.blobs.held),
    )  # type: ignore[attr-defined]


# Reconciling


def test_every_category(slots: ListFolder) -> None:
    submit(
        slots.ctx,
        "parcels",
        [{"id": key} for key in ("moving", "through", "spent", "refused", "taken-off", "other")],
    )
    slots.end("through", Status.COMPLETED, Reason.CONFIRMED)
    slots.end("spent", Status.MAX_RETRIES_EXCEEDED, Reason.EXHAUSTED)
    slots.end("refused", Status.REJECTED, Reason.REJECTED)
    slots.end("taken-off", Status.CANCELLED, Reason.CANCELLED)
    lines = [
        f'{{"id": "{key}"}}'
        for key in (
            "moving",
            "through",
            "spent",
            "refused",
            "taken-off",
            "fresh",
            "fresh",
            "moving",
        )
    ]
    report = slots.submit([*lines, '{"id": "other", "x": 1}', "", "{}", "nonsense"], "list.jsonl")
    assert report.counts == {
        "new": 1,
        "changed": 1,
        "in_progress": 1,
        "finished": 1,
        "failed": 3,
        "repeated": 2,
        "malformed": 2,
    }
    assert report.lines == 11
    assert [(bad.line, bad.text) for bad in report.malformed] == [(11, "{}"), (12, "nonsense")]
    assert "'id' is missing" in report.malformed[0].reason
    assert [(one.line, one.key) for one in report.changed] == [(9, "other")]


def test_a_csv_without_a_header_says_what_its_first_line_was_taken_for(slots: ListFolder) -> None:
    before = state(slots.ctx)
    for dry_run in (True, False):
        with pytest.raises(
            UsageError,
            match=r"line 2: the header lacks the column 'id'.* it has 'name', 'x'.*--no-header",
        ):
            slots.submit(["", "name,x", "a,1", "b,2"], "list.csv", dry_run=dry_run)
    assert state(slots.ctx) == before
    for dry_run in (True, False):
        report = slots.submit(
            ["", "name,x", "a,1", "b,2"], "list.csv", dry_run=dry_run, no_header=True
        )
        assert counts(report) == {"new": 3}
        assert report.notes == [
            "the list has no header: the first column was used as the key, 'name' in the first line"
        ]
    with pytest.raises(UsageError, match="is a header with 'id'; leave out --no-header"):
        slots.submit(["x,ID", "1,a"], "list.csv", no_header=True)
    with pytest.raises(UsageError, match="jsonl, which has no header"):
        slots.submit(['{"id": "a"}'], "list.jsonl", no_header=True)
    assert slots.submit(["x,ID", "1,a"], "list.csv").notes == []
    assert slots.submit(["a,1"], "list.txt").notes == []


def test_a_csv_without_a_header_names_all_fields_of_a_key(slots: ListFolder) -> None:
    slots.ctx.plans["shelf"] = Plan(two_fields())
    with pytest.raises(UsageError, match="lacks the columns 'batch', 'asset'"):
        submit_list(slots.ctx, "shelf", slots.file(["box,no,x", "a,1,2"], "list.csv"))
    with pytest.raises(UsageError, match="lacks the column 'asset'"):
        submit_list(slots.ctx, "shelf", slots.file(["batch,no,x", "a,1,2"], "list.csv"))
    report = submit_list(
        slots.ctx, "shelf", slots.file(["box,no,x", "a,1,2"], "list.csv"), no_header=True
    )
    assert report.notes == [
        "the list has no header: the first 2 columns were used as the key, 'box', 'no' in the first line"
    ]


def test_what_is_no_list_is_not_recorded(slots: ListFolder) -> None:
    before = state(slots.ctx)
    with pytest.raises(UsageError, match="is a PDF document"):
        slots.submit(b"%PDF-1.4\n1 0 obj\n", "list.txt")
    assert state(slots.ctx) == before


def test_lines_with_other_content_are_named_also_where_the_first_is_of_the_same_list(
    slots: ListFolder,
) -> None:
    for dry_run in (True, False):
        report = slots.submit(
            ['{"id": "a"}', '{"id": "b"}', '{"id": "a", "x": 1}'], "a.jsonl", dry_run=dry_run
        )
        assert [(one.line, one.key) for one in report.changed] == [(3, "a")]
        assert counts(report) == {"new": 2, "changed": 1}
    many = slots.submit([f'{{"id": "a", "x": {n}}}' for n in range(1_500)], "a.jsonl")
    assert [one.line for one in many.changed] == list(range(1, 1_001))


def test_a_key_counts_once_however_its_lines_lie(slots: ListFolder) -> None:
    """Also across batches, where the second line meets the first one's row; each line whose content
    differs is a conflict."""
    lines = [f'{{"id": "{n % 1_500}", "x": {n // 3_000}}}' for n in range(6_000)]
    assert counts(slots.submit(lines, "a.jsonl", dry_run=True)) == {
        "new": 1_500,
        "changed": 3_000,
        "repeated": 1_500,
    }
    assert counts(slots.submit(lines, "a.jsonl")) == {
        "new": 1_500,
        "changed": 3_000,
        "repeated": 1_500,
    }
    assert counts(slots.submit(lines[:1_500], "a.jsonl")) == {"in_progress": 1_500}
    assert counts(slots.submit(lines[3_000:], "a.jsonl")) == {"changed": 3_000}


def test_a_dry_run_compares_with_the_first_line_of_a_key_across_batches(
    slots: ListFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_source, "BATCH", 4)
    lines = [
        f'{{"id": "{key}", "x": {x}}}'
        for key, x in ("a1", "b1", "c1", "a2", "a2", "a1", "a2", "b1", "d1", "d2", "b2", "d1")
    ]
    preview, report = (slots.submit(lines, "a.jsonl", dry_run=dry_run) for dry_run in (True, False))
    assert counts(preview) == counts(report) == {"new": 4, "changed": 5, "repeated": 3}
    assert (
        [one.line for one in preview.changed]
        == [one.line for one in report.changed]
        == [4, 5, 7, 10, 11]
    )


def test_more_malformed_lines_than_a_report_holds(slots: ListFolder) -> None:
    report = slots.submit([*["{"] * 2_500, '{"id": 1}', "[]"], "a.jsonl")
    assert counts(report) == {"new": 1, "malformed": 2_501}
    assert [bad.line for bad in report.malformed] == list(range(1, 1_001))


def test_three_bad_lines_among_many(slots: ListFolder) -> None:
    rows = ["id,n", *(f"k{n},{n}" for n in range(2, 10_002))]
    rows[17], rows[5_000], rows[9_999] = "k18", ",5", '"'
    report = slots.submit(rows, "a.csv")
    assert counts(report) == {"new": 9_997, "malformed": 3}
    assert [bad.line for bad in report.malformed] == [18, 5_001, 10_000]


def test_bom_crlf_and_the_digest_of_the_very_bytes(slots: ListFolder) -> None:
    data = b"\xef\xbb\xbfa\r\nb\r\n"
    report = slots.submit(data)
    assert counts(report) == {"new": 2}
    assert report.digest == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"\n\n", b"# no key\n"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_an_empty_list_is_refused_and_not_recorded(
    slots: ListFolder, data: bytes, dry_run: bool
) -> None:
    slots.submit(["a", "b"], full=True)
    with pytest.raises(
        UsageError, match=r"is empty: no line of it holds an item\. Nothing was recorded"
    ):
        slots.submit(data, full=True, dry_run=dry_run)
    assert len(lists(slots.ctx, "parcels")) == 1


def test_a_full_list_without_a_readable_key_makes_no_key_vanish(slots: ListFolder) -> None:
    slots.submit(["a", "b"], full=True)
    unreadable = slots.submit(b"\xff\n\xff\n", full=True)
    assert (counts(unreadable), unreadable.full, unreadable.vanished) == (
        {"malformed": 2},
        False,
        [],
    )
    assert unreadable.notes == [
        "vanished keys are not determined: no line of this list has a key that can be read"
    ]
    assert slots.submit(["b"], full=True).vanished == ["a"]


def test_standard_input(slots: ListFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    report = submit_list(slots.ctx, "parcels", "-")
    assert (report.name, counts(report)) == ("stdin", {"new": 2})


# What is recorded


def test_the_list_is_recorded_and_items_know_it(slots: ListFolder) -> None:
    report = slots.submit(["b", "a", "b"], name="weekly.txt", by="ada")
    [record] = lists(slots.ctx, "parcels")
    assert (record.id, record.name, record.by, record.digest, record.counts) == (
        report.id,
        "weekly.txt",
        "ada",
        report.digest,
        report.counts,
    )
    assert list(unpack(slots.ctx.blobs.read(record.keys_blob))) == [["a", "b"]]
    item = slots.ctx.ledger.get([("parcels", "a")])[0]
    assert item is not None
    assert item.row.list_id == report.id
    assert lists(slots.ctx, "letters") == []


def test_lists_of_one_moment_are_in_order(slots: ListFolder) -> None:
    ids = [slots.submit(["a"], full=True).id for _ in range(5)]
    assert [record.id for record in lists(slots.ctx, "parcels")] == ids


def test_dry_run_changes_nothing_at_all(slots: ListFolder) -> None:
    slots.submit(["a", "b"], full=True)
    before = state(slots.ctx)
    report = slots.submit(["b", "c"], full=True, dry_run=True)
    assert state(slots.ctx) == before
    assert counts(report) == {"new": 1, "in_progress": 1, "vanished": 1}
    assert (report.id, report.vanished) == ("", ["a"])
    real = slots.submit(["b", "c"], full=True)
    assert (real.counts, real.vanished, real.digest) == (
        report.counts,
        report.vanished,
        report.digest,
    )


# Vanished


def test_vanished_is_the_last_full_list_minus_this_one(slots: ListFolder) -> None:
    first = slots.submit(["a", "b", "c", "d"], full=True)
    assert first.counts["vanished"] == 0
    assert first.compared_with == ""
    part = slots.submit(["x"])
    assert "vanished" not in part.counts
    second = slots.submit(["e", "d", "b"], full=True)
    assert (second.counts["vanished"], second.vanished, second.compared_with) == (
        2,
        ["a", "c"],
        first.id,
    )
    third = slots.submit(["a", "b"], full=True)
    assert third.vanished == ["d", "e"]
    assert [
        list(vanished_keys(slots.ctx, "parcels", each.id)) for each in (first, second, third)
    ] == [[], ["a", "c"], ["d", "e"]]
    with pytest.raises(UsageError, match=r"not a full list.*--full"):
        vanished_keys(slots.ctx, "parcels", part.id)
    with pytest.raises(UsageError, match=f"no list 'nonesuch'; the latest are: .*{third.id}"):
        vanished_keys(slots.ctx, "parcels", "nonesuch")


def test_more_vanished_than_a_report_holds(slots: ListFolder) -> None:
    slots.submit([f"k{n:05d}" for n in range(3_000)], full=True)
    report = slots.submit(["k00001"], full=True)
    assert report.counts["vanished"] == 2_999
    assert report.vanished == ["k00000", *(f"k{n:05d}" for n in range(2, 1_001))]
    assert sum(1 for _ in vanished_keys(slots.ctx, "parcels", report.id)) == 2_999


@pytest.mark.parametrize("damage", ["gone", "cut", "spoilt"])
def test_a_lost_blob_does_not_lose_the_list(slots: ListFolder, damage: str) -> None:
    first = slots.submit([f"k{random.random()}" for n in range(100)], full=True)
    held = slots.ctx.blobs.held  # type: ignore[attr-defined]
    name = f"lists/{first.id}"
    if damage == "gone":
        del held[name]
    else:
        held[name] = held[name][:-20] if damage == "cut" else b"no such thing"
    report = slots.submit(["a"], full=True)
    assert counts(report) == {"new": 1}
    assert "vanished" not in report.counts
    assert report.notes[0].startswith(
        f"vanished keys are unknown: the keys of list {first.id!r} of 2033-11-14T"
    )
    assert slots.submit(["b"], full=True).vanished == ["a"]
    with pytest.raises(MilepostError, match="cannot be read"):
        list(vanished_keys(slots.ctx, "parcels", report.id))


# Interrupted


def test_a_list_interrupted_half_way_is_simply_submitted_again(tmp_path: Path) -> None:
    class Flaky(MemoryLedger):
        batches = 3

        def add(self, plan: Plan, new_items: Sequence[NewItem], now: int) -> list[KnownKey | None]:
            if self.batches == 0:
                raise KeyboardInterrupt
            self.batches -= 1
            return super().add(plan, new_items, now)

    ledger = Flaky()
    slots = ListFolder(context(ledger), tmp_path)
    slots.submit(["k1", "old"], full=True)
    lines = [f"k{n}" for n in range(5_000)]
    with pytest.raises(KeyboardInterrupt):
        slots.submit(lines, full=True)
    begun = lists(slots.ctx, "parcels")[-1]
    assert (begun.keys_blob, begun.digest, begun.counts) == ("", "", {})
    with pytest.raises(UsageError, match="not finished"):
        vanished_keys(slots.ctx, "parcels", begun.id)
    item = ledger.get([("parcels", "k2")])[0]
    assert item is not None
    assert item.row.list_id == begun.id

    ledger.batches = 100
    again = slots.submit(lines, full=True)
    assert counts(again) == {"new": 2_999, "in_progress": 2_001, "vanished": 1}
    assert again.vanished == ["old"]


# Files that cannot be read


def test_files_that_are_not_there_or_not_files(slots: ListFolder, tmp_path: Path) -> None:
    before = state(slots.ctx)
    with pytest.raises(
        UsageError, match=r"there is no file '.*nowhere\.txt' in '.*'; check the name"
    ):
        submit_list(slots.ctx, "parcels", str(tmp_path / "nowhere.txt"))
    with pytest.raises(UsageError, match="is a directory; give a file"):
        submit_list(slots.ctx, "parcels", str(tmp_path))
    with pytest.raises(UsageError, match="cannot be opened"):
        submit_list(slots.ctx, "parcels", "nul\0byte")
    with pytest.raises(UsageError, match="no list format 'xls'"):
        slots.submit(["a"], format="xls")
    with pytest.raises(UsageError, match="no route 'letters'"):
        submit_list(slots.ctx, "letters", slots.file(["a"]))
    assert state(slots.ctx) == before


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so become somebody else for a while."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


def test_a_file_that_may_not_be_read(slots: ListFolder) -> None:
    path = slots.file(["a"])
    os.chmod(path, 0)
    with (
        as_nobody(),
        pytest.raises(UsageError, match="check its permissions"),
        open_source(str(path)),
    ):
        pass


def test_a_disk_that_fails_half_way() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(size)

    slices = Source(Failing(b"a\nb"), "list.txt").slices()
    assert next(slices) == (1, [b"a"])
    with pytest.raises(
        MilepostError,
        match=r"list.txt cannot be read past byte 3: .*Input/output error; .*submit it again",
    ):
        next(slices)


@pytest.mark.parametrize(
    ("length", "lines", "sizes"),
    [(60, 39_500, [8_000] * 4 + [7_500]), (3_000, 1_000, None)],
    ids=["short", "long"],
)
def test_slices_are_whole_batches_unless_lines_are_long(
    length: int, lines: int, sizes: list[int] | None
) -> None:
    content = [f"{number:06}".ljust(length, "x").encode() for number in range(lines)]
    slices = list(Source(io.BytesIO(b"\n".join(content)), "list.txt").slices())
    assert [line for _, part in slices for line in part] == content
    assert [first for first, _ in slices] == [
        1 + sum(len(part) for _, part in slices[:place]) for place in range(len(slices))
    ]
    if sizes is not None:
        assert [len(part) for _, part in slices] == sizes
    else:
        assert max(sum(map(len, part)) for _, part in slices) < 1_100_000


# Progress, memory and order


def test_progress_is_told_now_and_then_and_at_the_end(slots: ListFolder) -> None:
    told: list[tuple[int, int, int | None]] = []
    clock = slots.ctx.clock
    assert isinstance(clock, VirtualClock)

    def tell(lines: int, done: int, total: int | None) -> None:
        told.append((lines, done, total))
        if lines == 8_000:
            clock.advance("1s")

    path = slots.file([f"k{n:05d}" for n in range(40_000)])
    submit_list(slots.ctx, "parcels", path, on_progress=tell)
    assert [lines for lines, _, _ in told] == [8_000, 16_000, 40_000]
    assert told[-1][1:] == (280_000, 280_000)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"]), min_size=1),
            st.sampled_from("abc"),
        )
    ),
    st.integers(1, 400),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([1, 100]),
    st.booleans(),
)
def test_sorted_keys_are_what_a_sort_in_memory_gives(
    pairs: list[tuple[str, str]], held: int, size: int, apart: int, sparse: int, in_order: bool
) -> None:
    if in_order:
        pairs = sorted(pairs)
    expected: dict[str, str] = {}
    for key, mark in pairs:
        expected[key] = min(mark, expected.get(key, mark))
    with pytest.MonkeyPatch.context() as patch, SortedKeys(held) as keys:
        patch.setattr(list_keys, "MOST_RUNS", 3)
        patch.setattr(list_keys, "SPARSE", sparse)
        for start in range(0, len(pairs), size):
            some = pairs[start : start + size]
            keys.add(
                [key for key, _ in some],
                "".join(mark for _, mark in some),
                ordered=start % (apart * size) > 0,
            )
        for _ in range(2):
            found = [pair for block in keys.distinct_blocks() for pair in zip(*block, strict=True)]
            assert found == sorted(expected.items())
        assert list(keys.all()) == sorted(pairs)
        assert keys.total == len(pairs)


@given(
    st.sets(st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs"]), min_size=1)),
    st.integers(1, 20),
)
def test_packed_keys_come_back(keys: set[str], size: int) -> None:
    ordered = sorted(keys)
    data = b"".join(pack(ordered[at : at + size] for at in range(0, len(ordered), size)))
    assert [
        key
        for some in unpack(data[at : at + size] for at in range(0, len(data), size))
        for key in some
    ] == ordered
    if data[:-1]:
        with pytest.raises(EOFError):
            list(unpack([data[:-1]]))


@given(
    st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(1, 10), st.integers(1, 10)
)
def test_missing_is_the_difference(
    earlier: set[int], later: set[int], size: int, other_size: int
) -> None:
    def texts(numbers: set[int]) -> list[str]:
        return sorted(f"{n:02d}" for n in numbers)

    def blocks(numbers: set[int], size: int) -> Iterator[list[str]]:
        found = texts(numbers)
        return (found[at : at + size] for at in range(0, len(found), size))

    found = missing(blocks(earlier, size), blocks(later, other_size))
    assert list(chain.from_iterable(found)) == texts(earlier - later)


def test_memory_does_not_grow_with_the_list(tmp_path: Path) -> None:
    class Forgetful(MemoryLedger):
        """Says yes and keeps nothing, so that only the list's own memory is measured."""

        def add(self, plan: Plan, new_items: Sequence[NewItem], now: int) -> list[KnownKey | None]:
            return [None] * len(new_items)

    slots = ListFolder(context(Forgetful()), tmp_path)
    path = slots.file([f"10.{n % 977}/{n:020d}" for n in range(60_000)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedKeys.__init__, "__defaults__", (1 << 19, 1))
        tracemalloc.start()
        try:
            report = submit_list(slots.ctx, "parcels", path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert counts(report) == {"new": 60_000}
    assert peak < 12 << 20


def test_a_program_takes_in_a_file_too(tmp_path: Path) -> None:
    route = Route("parcels", key="id")
    route.stage("weigh")(lambda item: Done())
    path = tmp_path / "march.txt"
    path.write_text("A\nB\nA\n")
    with Milepost(f"sqlite:///{tmp_path}/ledger.db", [route]) as ledger:
        preview = ledger.submit_list("parcels", str(path), dry_run=True)
        assert (preview.id, preview.counts["new"], ledger.show("parcels", "A")) == ("", 2, None)
        report = ledger.submit_list(
            "parcels", str(path), name="the list of March", full=True, by="ops"
        )
        assert (report.name, report.full, report.counts["new"], report.counts["repeated"]) == (
            "the list of March",
            True,
            2,
            1,
        )
        found = ledger.show("parcels", "A")
        assert found is not None
        assert (found["list"], found["list_name"], found["history"][0]["by"]) == (
            report.id,
            "the list of March",
            "ops",
        )
