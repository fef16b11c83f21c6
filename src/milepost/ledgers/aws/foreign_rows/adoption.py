"""Adoption of rows that other programs put: new ones are taken in, overwritten ones restored, faulty ones quarantined."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from milepost.core.change import Change, change
from milepost.core.decide import accept
from milepost.core.history import Line
from milepost.core.item import Item, digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Reason, Status
from milepost.ledgers.aws.offers import message_for, send
from milepost.ledgers.aws.refused_rows import quarantine_copy
from milepost.ledgers.aws.requests.queues import Outgoing
from milepost.ledgers.aws.row_duties import OUTSIDE
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update, place_of, put_of
from milepost.ledgers.aws.tables.item_rows import attributes, content_of, correlation_of, is_ours, row_of
from milepost.ledgers.aws.tables.keys import Image, Layout


class Adoption(Struct, frozen=True):
    """A row about to be adopted: the message for its stage, if any, and the write that follows the send."""

    call: Outgoing | None
    update: Update


def adopt(
    store: AwsStore,
    layout: Layout,
    plan: Plan,
    key: str,
    image: Image,
    old: Image | None,
    now: int,
    later: list[Adoption] | None = None,
) -> str:
    """Handle a row without a version. Returns "adopted", "restored", "known" or "set aside". With `later`, an adoption is added
    there, for `carry_out` to do many at once."""
    if old is not None and is_ours(old):
        return _restore(store, layout, key, image, old, now)
    fault = plan.route.closed or _fault_of(layout, image)
    if fault is not None:
        return _set_aside(store, layout, image, fault, now)
    content = store.values.decode(image["input"]) if "input" in image else None
    seal = store.seals(layout.route, [key]).get(key)
    if seal is not None:
        if seal.current_digest != digest_of(content):
            fault = f"it ended before ({seal.status}) with other content; Milepost does not process a finished item again"
            return _set_aside(store, layout, image, fault, now)
        return _remove(store, layout, key, image)
    written = store.journal.history(layout.route, key)
    if written and not _forgotten(plan, written[-1].line, now):
        return _set_aside(store, layout, image, f"it has {len(written)} history lines but had no row: another program removed it", now)
    adoption = _adoption(store, layout, plan, key, image, content, now)
    if later is not None:
        later.append(adoption)
        return "adopted"
    return "adopted" if carry_out(store, [adoption]) else "known"


def _forgotten(plan: Plan, last: Line, now: int) -> bool:
    """Whether this is the last line of an item that ended so long ago that the route has forgotten its key."""
    remembered = plan.route.remember_ms
    return remembered is not None and last.status in TERMINAL and last.at < now - remembered


def carry_out(store: AwsStore, adoptions: Sequence[Adoption]) -> int:
    """Send all messages, then write the rows; returns how many were adopted here (other processes adopted the rest)."""
    send(store, [adoption.call for adoption in adoptions if adoption.call is not None])
    return sum(store.requests.each([partial(adoption.update.written, store.requests) for adoption in adoptions]))


def _fault_of(layout: Layout, image: Image) -> str | None:
    """Why a row of another program cannot be adopted automatically."""
    fault = layout.foreign_key_fault(image)
    if fault is not None:
        return fault
    if "input" not in image:
        return "it has no input; an update of a removed row creates such a row"
    confirmations = sorted(name for name in image if name.startswith(layout.prefix))
    if confirmations:
        return f"it was created with {confirmations[0]}; an unknown item cannot be confirmed"
    at = image.get("queue", {}).get("S")
    if at is not None and at != next(iter(layout.stages), at):
        return f"it is already at stage {at!r}; 'milepost adopt' takes it in at that stage"
    return None


def _adoption(store: AwsStore, layout: Layout, plan: Plan, key: str, image: Image, content: Any, now: int) -> Adoption:
    """Offer and record it in one write, after the send."""
    correlation = correlation_of(image, key)
    start = plan.route.start_of(content, now)
    first = accept(plan, key, content, now, correlation_id=correlation, digest=digest_of(content), by=OUTSIDE.by, not_before=start)
    call = None
    if first.after.status is Status.QUEUED:
        call = message_for(store, Item(first.after, content_of(image, layout, store.values)), plan.first)
    return Adoption(call, adoption_update(store, layout, first, content, image))


def adoption_update(store: AwsStore, layout: Layout, first: Change, content: Any, image: Image, omit: Sequence[str] = ()) -> Update:
    """The write that adopts a row: sets only our own attributes, and only if they are still absent and its input is unchanged."""
    update = Update(layout, first.after.key)
    for name, value in put_of(first, content, layout, store.values, token="").items():
        if name not in (*layout.key, "input", "createToken", *omit):
            update.set(name, value)
    update.equal("version", None)
    update.equal("input", image.get("input"))
    return update


def _restore(store: AwsStore, layout: Layout, key: str, image: Image, old: Image, now: int) -> str:
    """Restore a row of ours that another program overwrote: all our attributes return, and a history line notes it."""
    row = row_of(old, layout, store.values)
    again = store.values.decode(image["input"]) if "input" in image else None
    note = {"put again": "with the same content" if digest_of(again) == row.current_digest else {"input": again}}
    noted = change(row, Reason.NOTED, now, row.status, {}, OUTSIDE, note=note)
    update = Update(layout, key)
    restored = _with_line(store, layout, noted, old)
    for name, value in restored.items():
        if name not in layout.key:
            update.set(name, value)
    for name in image.keys() - restored.keys():
        if not name.startswith(layout.prefix):
            update.remove(name)
    update.equal("version", None)
    return "restored" if update.written(store.requests) else "known"


def _with_line(store: AwsStore, layout: Layout, noted: Change, old: Image) -> Image:
    """The old row with one more line."""
    place = place_of(noted.before.route, noted.before.key)
    trail = [*old.get("trail", {}).get("L", ()), store.values.encode_line(noted.before.head, noted.body, place)]
    ours = {
        name: value for name, value in attributes(noted.after, layout).items() if name in ("version", "head", "lastUpdatedAt", "enteredAt")
    }
    return {**old, **ours, "trail": {"L": trail}}


def _remove(store: AwsStore, layout: Layout, key: str, image: Image) -> str:
    """Remove the row of a known key, if it is unchanged."""
    store.requests.write_if(
        "delete_item",
        TableName=layout.table,
        Key=layout.key_image(key),
        ConditionExpression="attribute_not_exists(#version) AND #input = :input",
        ExpressionAttributeNames={"#version": "version", "#input": "input"},
        ExpressionAttributeValues={":input": image["input"]},
    )
    return "known"


def _set_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> str:
    """Put the row into quarantine, unless it was adopted in the meantime: a repeated record shows an older state."""
    key = layout.key_of(image)
    if is_ours(store.images(layout.route, [key]).get(key, {})):
        return "known"
    quarantine_copy(store, layout, image, reason, now)
    return "set aside"
