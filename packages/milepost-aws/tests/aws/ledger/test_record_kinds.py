"""Kinds of stream records: the table, and random records read as the relay read them before it had
kinds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import NOTHING
from milepost.core.history import Line, encode_line
from milepost.core.item import Row
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Reason, Status
from milepost_aws.ledger.apply import Ref
from milepost_aws.ledger.foreign_rows.confirmations import keep_input
from milepost_aws.ledger.record_kinds import RecordKind, kind_of
from milepost_aws.ledger.relay import StreamRelay, _has_long_trail, _ItemRecords
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import StreamRecord
from milepost_aws.ledger.tables.counters import RowChange
from milepost_aws.ledger.tables.item_rows import attributes, is_ours, links_of, row_of
from milepost_aws.ledger.tables.journal import uncopied
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.values import Values


def archive() -> Plan:
    route = Route("assets", key=("assetId", "batchId"))
    route.external("CC")
    route.external("Scout")
    return Plan(route, grace_ms=600_000, offer_life_ms=600_000)


PLAN = archive()
LAYOUT = Layout.of(PLAN, "t-assets")
KEYS = ("a#1", "b#1")
LONG = 18
VALUES = Values(MemoryBlobs())
LINES = [
    VALUES.encode_line(
        bytes(32),
        encode_line(Line(version, 1_000 * version, Reason.NOTED, "CC", Status.PENDING)),
        "assets/a",
    )
    for version in range(1, LONG + 1)
]


def image_of(
    version: int, stage: str = "CC", status: Status = Status.QUEUED, key: str = KEYS[0]
) -> Image:
    look_at = None if status in TERMINAL else 9_000
    row = Row(
        "assets", key, stage, status, version, bytes(32), 1, 2, 3, key, bytes(32), look_at=look_at
    )
    return {**LAYOUT.key_image(key), **attributes(row, LAYOUT), "input": {"S": "1"}}


FOREIGN = {**LAYOUT.key_image(KEYS[0]), "input": {"S": "1"}}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (None, image_of(1), RecordKind.PUT),
        (FOREIGN, image_of(1), RecordKind.PUT),
        (None, image_of(2), RecordKind.RESTORED),
        (FOREIGN, image_of(2), RecordKind.RESTORED),
        (image_of(1), image_of(2), RecordKind.CHANGED),
        (image_of(1), image_of(2, "Scout"), RecordKind.CHANGED),
        (image_of(2), image_of(1), RecordKind.CHANGED),
        (image_of(2), image_of(2, "Scout"), RecordKind.RENAMED),
        (image_of(2), image_of(2), RecordKind.TOUCHED),
        (image_of(2), image_of(2, status=Status.PROCESSING), RecordKind.TOUCHED),
        (image_of(2, status=Status.COMPLETED), None, RecordKind.EXPIRED),
        (image_of(2, status=Status.REJECTED), None, RecordKind.EXPIRED),
        (image_of(2), None, RecordKind.REMOVED_BY_OTHERS),
        (image_of(2), FOREIGN, RecordKind.OVERWRITTEN),
        (image_of(2, status=Status.COMPLETED), FOREIGN, RecordKind.OVERWRITTEN),
        (None, FOREIGN, RecordKind.FOREIGN),
        (FOREIGN, FOREIGN, RecordKind.FOREIGN),
        (FOREIGN, None, RecordKind.FOREIGN),
        (None, None, RecordKind.FOREIGN),
    ],
)
def test_the_kind_of_a_record(old: Image | None, new: Image | None, kind: RecordKind) -> None:
    assert kind_of(old, new) is kind


class RecordedStore:
    """In the place of the store: it has no tables, and records writes and quarantine entries."""

    def __init__(self) -> None:
        self.values = VALUES
        self.requests = self.queues = self
        self.calls: list[Any] = []

    def load_route(self, plan: Plan) -> Layout:
        return LAYOUT

    def write_if(self, operation: str, **params: Any) -> bool:
        self.calls.append((operation, params))
        return True

    def set_aside(self, kind: str, content: Any, reason: str) -> None:
        self.calls.append((kind, content, reason))


class RelayWithoutKinds(StreamRelay):
    """The relay as it was before it had kinds of records."""

    def _add_record(
        self,
        record: StreamRecord,
        plan: Plan,
        by_item: dict[Ref, _ItemRecords],
        forgotten: set[Ref],
    ) -> None:
        key, values = self._key_of(record), self._store.values
        old = record.old if record.old is not None and is_ours(record.old) else None
        new = record.new if record.new is not None and is_ours(record.new) else None
        before = NOTHING if old is None else row_of(old, LAYOUT, values)
        after = None if new is None else row_of(new, LAYOUT, values)
        item_records = by_item.get((plan.name, key)) or _ItemRecords(LAYOUT, plan, key)
        if (plan.name, key) not in forgotten:
            self._add_all_lines(item_records, record, before, after)
        by_item[plan.name, key] = item_records
        item_records.records.append(record)
        if after is not None:
            if before.version != after.version or before.stage == after.stage:
                item_records.changes.append(RowChange(before, after, record.seq))
        elif record.new is None and old is not None:
            item_records.changes.append(RowChange(before, None, record.seq))
            if not before.terminal:
                self._quarantine(
                    record,
                    f"another program removed the row of an unfinished item ({before.status} at {before.stage!r})",
                )

    def _add_all_lines(
        self, item_records: _ItemRecords, record: StreamRecord, before: Row, after: Row | None
    ) -> None:
        values = self._store.values
        old = record.old if before is not NOTHING else None
        new = record.new if after is not None else None
        if old is not None and new is not None and old["version"] == new["version"]:
            keep_input(self._store, LAYOUT, old, new)
        shown = new or (old if record.new is None else None)
        on_old = (
            {link.version for link in links_of(old, values)}
            if old is not None and old is not shown
            else set()
        )
        lines = uncopied(shown, item_records.key, LAYOUT, values) if shown is not None else []
        item_records.restored = item_records.restored or (
            old is None and after is not None and after.version > 1
        )
        known = {entry.version for entry in item_records.entries}
        item_records.entries += [entry for entry in lines if entry.version not in known | on_old]
        leaving = after is not None and (
            after.terminal
            or after.kept
            or after.status is Status.PENDING
            or _has_long_trail(record.new)
        )
        item_records.older = (
            [entry for entry in lines if entry.version in on_old] if leaving else []
        )


@st.composite
def our_images(draw: st.DrawFn, key: str) -> Image:
    image = image_of(
        draw(st.integers(1, 2)),
        draw(st.sampled_from(["CC", "Scout"])),
        draw(st.sampled_from([Status.PENDING, Status.QUEUED, Status.QUEUED, Status.COMPLETED])),
        key,
    )
    image["input"] = {"S": draw(st.sampled_from(["1", "2"]))}
    image["copied"] = {"N": str(draw(st.integers(0, 1)))}
    versions = draw(st.sampled_from([(), (2,), (1, 2), (2, 3), (1, 2, 3), range(1, LONG + 1)]))
    trail = [LINES[version - 1] for version in versions]
    if draw(st.integers(0, 8)) == 0:
        trail = [{"B": b"no line"}]
    if draw(st.integers(0, 5)) == 0:
        image["ingested_CC"] = {"S": "yes"}
    return {**image, "trail": {"L": trail}}


@st.composite
def records(draw: st.DrawFn) -> StreamRecord:
    key = draw(st.sampled_from(KEYS))
    foreign = st.none() | st.just({**LAYOUT.key_image(key), "input": {"S": "1"}})
    both = st.tuples(our_images(key), our_images(key))
    old, new = draw(
        both
        | both
        | st.tuples(our_images(key), foreign)
        | st.tuples(foreign, our_images(key))
        | st.tuples(foreign, foreign)
    )
    return StreamRecord("assets", "MODIFY", LAYOUT.key_image(key), old, new, "", 0)


def reading(
    relay_class: type[StreamRelay], batch: list[StreamRecord], forgotten: set[Ref]
) -> list[Any]:
    """What a relay makes of the records: what they contain, errors, and calls."""
    store = RecordedStore()
    relay = relay_class(cast(AwsStore, store), {"assets": PLAN}, lambda: 0.0)
    by_item: dict[Ref, _ItemRecords] = {}
    errors: list[str] = []
    for record in batch:
        try:
            relay._add_record(record, PLAN, by_item, forgotten)
        except ValueError as error:
            errors.append(repr(error))
    return [by_item, errors, store.calls, batch]


@settings(max_examples=300)
@given(st.lists(records(), min_size=1, max_size=4), st.sets(st.sampled_from(KEYS), max_size=1))
def test_random_records_are_read_as_before(
    batch: list[StreamRecord], forgotten_keys: set[str]
) -> None:
    forgotten = {("assets", key) for key in forgotten_keys}
    before = reading(RelayWithoutKinds, deepcopy(batch), forgotten)
    assert reading(StreamRelay, deepcopy(batch), forgotten) == before
