"""Conditional writes of changes: send the SQS message of an offered item first, then write the
row."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from milepost.core.change import Change
from milepost.core.errors import LedgerDamaged, LedgerError, LedgerMissing, UsageError
from milepost.core.item import Content, Item, Row
from milepost.core.status import Status
from milepost.ports.items import Conflict, Refused
from milepost_aws.ledger.breakers import update_breakers
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.offers import message_for
from milepost_aws.ledger.refused_rows import (
    UNREADABLE,
    UNWRITABLE,
    concerns_one_row,
    readable,
    unwritable,
    why_unreadable,
)
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.requests.queues import Outgoing, SqsMessage
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.attribute_rules import update_of
from milepost_aws.ledger.tables.conditional_write import (
    Update,
    records_offer,
    was_written_before,
)
from milepost_aws.ledger.tables.item_rows import content_of, is_ours
from milepost_aws.ledger.tables.keys import Image

Ref = tuple[str, str]

log = logging.getLogger(__name__)


def apply(
    store: AwsStore,
    changes: Sequence[Change],
    now: int,
    versions: dict[str, int] | None = None,
    contents: Mapping[Ref, Content] | None = None,
    copied: Mapping[Ref, int] | None = None,
) -> list[Conflict | Refused | None]:
    """Write each change if its precondition holds: changes of one row in sequence, different rows
    in parallel. `contents`: items' content that the caller already has, used to build offers.
    `copied`: only for the relay (see `update_of`)."""
    answers: list[Conflict | Refused | None] = [None] * len(changes)
    outdated_routes = {
        route for route, version in (versions or {}).items() if store.outdated(route, version, now)
    }
    rows: dict[Ref, list[int]] = {}
    for place, change in enumerate(changes):
        row = change.before
        if row.route in outdated_routes or (
            versions is not None
            and change.after.status is Status.COMPLETED
            and store.takes_effect_at(row.route, now) is not None
        ):
            answers[place] = _outdated(store, row)
        elif store.layout(row.route) is None:
            answers[place] = Conflict(None)
        else:
            rows.setdefault((row.route, row.key), []).append(place)
    to_write = [place for places in rows.values() for place in places]
    for place, refused in zip(
        to_write,
        _send_offers(store, [changes[place] for place in to_write], contents or {}),
        strict=True,
    ):
        answers[place] = refused

    def write(places: list[int]) -> None:
        for place in places:
            row = changes[place].before
            if answers[place] is None:
                answers[place] = _write(
                    store, changes[place], (copied or {}).get((row.route, row.key))
                )

    store.requests.each([partial(write, places) for places in rows.values()])
    update_breakers(store, [changes[place] for place in to_write if answers[place] is None], now)
    return answers


def _write(store: AwsStore, change: Change, copied: int | None) -> Conflict | Refused | None:
    """One conditional update. If its condition fails because this same write succeeded before,
    there is no conflict."""
    layout = store.layout(change.before.route)
    assert layout is not None, "checked by apply"
    try:
        image = store.requests.conflict(
            "update_item", **update_of(change, layout, store.values, copied).params()
        )
    except LedgerMissing:
        return Conflict(None)
    except UNWRITABLE as error:
        return unwritable(error, change.before.key)
    if image is None:
        return None
    if not image:
        return Conflict(None)
    if not is_ours(image):
        return Conflict(change.before)
    try:
        ours = was_written_before(change, image, store.values)
        if ours is None:
            ours = _in_history(store, change)
    except UNREADABLE:
        ours = False  # unknown; the quarantine entry of the row has the reason
    return None if ours else Conflict(readable(store, layout, image))


def extend(
    store: AwsStore, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()
) -> list[bool]:
    """Extend leases together with the visibility of their messages. `tickets` has the message of
    each row, if there is one."""

    def one(row: Row) -> bool:
        layout = store.layout(row.route)
        if layout is None:
            return False
        if row.lease is None:
            return True  # a check without a claim has no lease to extend, but its message must not be delivered again now
        update = Update(layout, row.key)
        update.set("leaseUntil", {"S": iso(until)})
        if row.overdue_at is not None and row.overdue_at < until:
            # Unless the item was reported overdue after the worker read its row.
            update.set_or("dueAt", "overdueAt", {"S": iso(until)})
            update.set("lookAt", {"S": iso(until)})
        else:
            update.set("dueAt", {"S": iso(until)})
            update.remove("lookAt")
        update.equal("lease", {"S": row.lease})
        try:
            return update.written(store.requests)
        except RowRefused:
            return False

    answers = store.requests.each([partial(one, row) for row in rows])
    held = [
        ticket
        for ticket, answer in zip(tickets, answers, strict=False)
        if answer and isinstance(ticket, SqsMessage)
    ]
    store.queues.extend(held, -(-max(0, until - now) // 1000))
    return answers


def drop_tickets(store: AwsStore, tickets: Sequence[Any]) -> None:
    """Delete the messages of claims that have ended. A message that cannot be deleted is delivered
    again, and the row fences it."""
    try:
        store.queues.delete([ticket for ticket in tickets if isinstance(ticket, SqsMessage)])
    except LedgerError as error:
        log.warning(
            "cannot delete messages of settled items; SQS delivers them again without effect: %s",
            error,
        )


def _send_offers(
    store: AwsStore, changes: Sequence[Change], contents: Mapping[Ref, Content]
) -> list[Refused | None]:
    """Send the messages of offers before the writes that record them. If a write then fails, the
    claim fences the extra message. Refused: the message cannot be built or sent, so the change must
    not be written."""
    answers: list[Refused | None] = [None] * len(changes)
    offered = {place: change.after for place, change in enumerate(changes) if records_offer(change)}
    stages = {place: store.stage(row.route, row.stage) for place, row in offered.items()}
    external = [
        (row.route, row.key)
        for place, row in offered.items()
        if (stage := stages[place]) is not None and stage.external
    ]
    images = store.rows(ref for ref in external if ref not in contents)
    outgoing: dict[int, Outgoing] = {}
    for place, row in offered.items():
        change, stage = changes[place], stages[place]
        if stage is None:
            if (row.look_at or 0) <= row.updated_at:
                continue  # due at once: the resender of a process that knows the stage sends it
            raise UsageError(
                f"cannot offer the item: this process does not know stage {row.stage!r} of route {row.route!r}; give --routes"
            )
        try:
            content = _content(
                store, change, contents.get((row.route, row.key)), images.get((row.route, row.key))
            )
            outgoing[place] = message_for(
                store, Item(row, content), stage, ahead=row.version > change.before.version
            )
        except Exception as error:
            if not concerns_one_row(error):
                raise
            why = (
                str(error)
                if isinstance(error, LedgerDamaged)
                else f"{type(error).__name__}: {error}"
            )
            answers[place] = Refused(f"cannot build its offer: {why}", row.key)
    for place, refused in zip(outgoing, store.queues.send(list(outgoing.values())), strict=True):
        if refused is not None:
            answers[place] = Refused(f"cannot send its offer: {refused}", changes[place].after.key)
    return answers


def _content(
    store: AwsStore, change: Change, given: Content | None, image: Image | None
) -> Content:
    """The item's content after this change."""
    layout = store.layout(change.before.route)
    if given is None and image is not None and layout is not None:
        try:
            given = content_of(image, layout, store.values)
        except UNREADABLE as error:
            raise LedgerDamaged(
                f"its content cannot be read: {why_unreadable(error, image, layout)}"
            ) from error
    content = (
        Content(given.input, dict(given.payloads), dict(given.results))
        if given is not None
        else Content()
    )
    for put in change.puts:
        if put.kind == "input":
            content.input = put.value
        elif put.kind != "waiting":
            (content.payloads if put.kind == "payload" else content.results)[put.stage] = put.value
    return content


def _outdated(store: AwsStore, row: Row) -> Conflict:
    layout = store.layout(row.route)
    image = store.images(row.route, [row.key]).get(row.key)
    current = None if layout is None or image is None else readable(store, layout, image)
    return Conflict(current, outdated=current is not None)


def _in_history(store: AwsStore, change: Change) -> bool:
    """Whether the history has our line, for a row that has changed since."""
    assert change.line is not None
    written = store.journal.history(change.before.route, change.before.key, change.before.life)
    return any(
        one.line.version == change.line.version and one.body == change.body for one in written
    )
