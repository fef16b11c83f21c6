"""Transfer from another ledger: its lines into the journal, its rows as they are, its seals. Every
step can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from milepost.core.errors import LedgerError
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey
from milepost.ports.upkeep import TransferResult
from milepost_aws.ledger.refused_rows import readable
from milepost_aws.ledger.requests.client import AwsRefused
from milepost_aws.ledger.retention import Sealing, seal_for, write_seals
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import is_plain, place_of, put_new
from milepost_aws.ledger.tables.item_rows import attributes, input_of, is_ours, links_of
from milepost_aws.ledger.tables.journal import JournalEntry
from milepost_aws.ledger.tables.keys import CONFIRMED_BY, Image, Layout

COMPARED_WITHIN_MS = 7 * 86_400_000
"""Minimum life of a transferred row: a move may take days, and all rows are compared at its end."""


def take_over(
    store: AwsStore,
    plan: Plan,
    items: Sequence[Item],
    lines: Sequence[HistoryEntry],
    seals: Sequence[KnownKey],
    now: int,
) -> TransferResult:
    """Lines first, then rows marked as copied, then seals of ended rows, then the other seals."""
    layout = store.load_route(plan)
    places = (
        store.journal.append([_entry(written) for written in lines], again=True) if lines else []
    )
    # An item that ended here after its transfer may have left its row.
    gone = store.seals(plan.name, [item.key for item in items if not item.row.terminal])
    items = [item for item in items if item.key not in gone]
    answers = store.requests.each([partial(_put, store, layout, plan, item, now) for item in items])
    refused = [(item.key, why) for item, why in zip(items, answers, strict=True) if why is not None]
    ended = [
        item.row
        for item, why in zip(items, answers, strict=True)
        if why is None and item.row.terminal
    ]
    if ended or seals:
        write_seals(
            store,
            [
                *(seal_for(store, row) for row in ended),
                *(Sealing(plan.name, seal) for seal in seals),
            ],
            now,
        )
    return TransferResult(places, refused)


def _entry(written: HistoryEntry) -> JournalEntry:
    """A line, unchanged, with the payload that it offered."""
    line = written.line
    if line.version < 1:
        raise LedgerError(
            f"a history line of {written.route}/{written.key} cannot be read, so its version is unknown; compare with a backup"
        )
    payload = written.payload if line.offered is not None else UNSET
    return JournalEntry(
        written.route,
        written.key,
        written.correlation_id,
        line.version,
        written.previous,
        written.body,
        payload,
        line.life,
    )


def _put(store: AwsStore, layout: Layout, plan: Plan, item: Item, now: int) -> str | None:
    """None: the row exists, by this call or an earlier one. Else why it was not written. A fault in
    one row affects no other."""
    try:
        there = put_new(store.requests, layout, image_of(store, layout, plan, item, now))
    except AwsRefused as refused:
        if refused.code != "ValidationException":
            raise
        return f"DynamoDB refuses it: {refused}"
    except ValueError as error:
        return f"its key does not fit the table's ({', '.join(layout.key)}): {error}"
    if there is None:
        return None
    there = there or store.images(layout.route, [item.key]).get(item.key)
    return (
        _put(store, layout, plan, item, now)
        if there is None
        else _differs(store, layout, item.row, there)
    )


def _differs(store: AwsStore, layout: Layout, row: Row, there: Image) -> str | None:
    """Why the existing row is not this one; None: it is, as transferred before or as changed
    since."""
    if not is_ours(there):
        return "another program has put a row there"
    found = readable(store, layout, there)
    if found is None:
        return "the row there cannot be read"
    if (found.version, found.head) == (row.version, row.head):
        return None
    if found.version > row.version:
        later = [
            (one.line.version, one.previous)
            for one in store.journal.history(row.route, row.key, row.life)
        ]
        later += [(link.version, link.previous) for link in links_of(there, store.values)]
        if (row.version + 1, row.head) in later:
            return None
    return f"another item with this key is there ({found.status} at {found.stage!r}, version {found.version}, here {row.version})"


def image_of(store: AwsStore, layout: Layout, plan: Plan, item: Item, now: int) -> Image:
    """The row with its content, as if all its lines had been copied and delivered."""
    row, values = item.row, store.values
    place = place_of(row.route, row.key)
    if row.status in (Status.PENDING, Status.QUEUED):
        # Its stage was offered by the other ledger, not here.
        row = replace(row, look_at=row.not_before or min(now, row.entered_at))
    image: Image = {
        **layout.naming(row.key),
        **attributes(row, layout),
        "input": input_of(item.content.input, row.key, layout, values, place),
        "copied": {"N": str(row.version)},
    }
    keep_ms = plan.route.keep.get(row.status)
    if keep_ms is not None:
        # Events are delivered from the journal: the row only waits for its time to live.
        image["ttl"] = {
            "N": str(-(-max(row.entered_at + keep_ms, now + COMPARED_WITHIN_MS) // 1000))
        }
    # A stage's attribute holds its result, or an answer that is not applied yet.
    kept = {stage: outcome["output"] for stage, outcome in row.kept.items() if is_plain(outcome)}
    results = {
        stage: value
        for stage, value in item.content.results.items()
        if value is not None and stage not in kept
    }
    for stage, value in (kept | results).items():
        image[layout.prefix + stage] = values.encode(value, place)
    for stage in kept:
        if row.kept[stage].get("by"):
            image[CONFIRMED_BY + stage] = {"S": row.kept[stage]["by"]}
    if results:
        image["through"] = {"SS": sorted(results)}
    for stage, value in item.content.payloads.items():
        image[f"payload_{stage}"] = values.encode(value, place)
    others = {stage: outcome for stage, outcome in row.kept.items() if stage not in kept}
    if others:
        image["kept"] = values.encode(others, place)
    if row.undecided is not None:
        image["undecided"] = values.encode(row.undecided, place)
    return image
