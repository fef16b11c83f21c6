"""Rows that others put: taken in where they are new, restored where they were put over one of ours, set aside where they are
not what they should be."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Any

from milepost.core.change import Change, Teller, change
from milepost.core.decide import accept
from milepost.core.item import Item, digest_of
from milepost.core.plan import Plan
from milepost.core.status import Reason, Status
from milepost.ledgers.aws.aside import set_aside
from milepost.ledgers.aws.client import ConditionFailed
from milepost.ledgers.aws.image import attributes, content_of, is_ours, row_of, trail_entry
from milepost.ledgers.aws.keys import Image, Layout
from milepost.ledgers.aws.offering import call_of, send
from milepost.ledgers.aws.store import Store
from milepost.ledgers.aws.writing import Update, place_of, put_of

OUTSIDE = "outside"


def adopt(store: Store, layout: Layout, plan: Plan, key: str, image: Image, old: Image | None, now: int, *, by: str = OUTSIDE) -> str:
    """See to a row without a version. The answer says what was done: "adopted", "restored", "known" or "set aside"."""
    if old is not None and is_ours(old):
        return _restore(store, layout, key, image, old, now)
    wrong = _wrong(layout, image)
    if wrong is not None and by == OUTSIDE:
        return _set_aside(store, layout, image, wrong, now)
    content = store.values.decode(image["input"]) if "input" in image else None
    seal = store.seals(layout.route, [key]).get(key)
    if seal is not None:
        if seal.input_digest != digest_of(content):
            wrong = f"it ended before ({seal.status}) with other content; a finished item is not done again"
            return _set_aside(store, layout, image, wrong, now)
        return _remove(store, layout, key, image)
    written = store.journal.history(layout.route, key)
    if written:
        return _set_aside(store, layout, image, f"it has {len(written)} history lines but had no row: somebody removed it", now)
    return _take_in(store, layout, plan, key, image, content, now, by)


def _wrong(layout: Layout, image: Image) -> str | None:
    """Why a row that somebody put is none to be taken in by itself."""
    if "input" not in image:
        return "it has no input: an update of a row that was gone leaves such a ghost"
    born = sorted(name for name in image if name.startswith(layout.prefix))
    if born:
        return f"it came with {born[0]}: an item that nobody knew of cannot be confirmed"
    return None


def _take_in(store: Store, layout: Layout, plan: Plan, key: str, image: Image, content: Any, now: int, by: str) -> str:
    """Offered and recorded in one write, after the send; only our own attributes are set, and only if still nobody has."""
    told = image.get("correlationId", {}).get("S") or sha256(f"{layout.route}/{key}".encode()).hexdigest()[:32]
    first = accept(plan, key, content, now, correlation_id=told, digest=digest_of(content), by=by)
    if first.after.status is Status.QUEUED:
        send(store, [call_of(store, Item(first.after, content_of(image, layout, store.values)), plan.first)])
    row = put_of(first, content, layout, store.values, secrets.token_hex(8))
    update = Update(layout, key)
    for name, value in row.items():
        if name not in layout.key and name != "input":
            update.set(name, value)
    update.equal("version", None)
    update.equal("input", image.get("input"))
    return "adopted" if _write(store, update) else "known"


def _restore(store: Store, layout: Layout, key: str, image: Image, old: Image, now: int) -> str:
    """Somebody put the row again over ours: everything that was ours comes back, and that it happened is noted."""
    row = row_of(old, layout, store.values)
    again = store.values.decode(image["input"]) if "input" in image else None
    note = {"put again": "with the same content" if digest_of(again) == row.input_digest else {"input": again}}
    noted = change(row, Reason.NOTED, now, row.status, {}, Teller(OUTSIDE), note=note)
    update = Update(layout, key)
    restored = _with_line(store, layout, noted, old)
    for name, value in restored.items():
        if name not in layout.key:
            update.set(name, value)
    for name in image.keys() - restored.keys():
        if not name.startswith(layout.prefix):
            update.remove(name)
    update.equal("version", None)
    return "restored" if _write(store, update) else "known"


def _with_line(store: Store, layout: Layout, noted: Change, old: Image) -> Image:
    """The old row with one more line."""
    place = place_of(noted.before.route, noted.before.key)
    trail = [*old.get("trail", {}).get("L", ()), trail_entry(noted.before.head, noted.body, store.values, place)]
    ours = {name: value for name, value in attributes(noted.after).items() if name in ("version", "head", "lastUpdatedAt")}
    return {**old, **ours, "trail": {"L": trail}}


def _remove(store: Store, layout: Layout, key: str, image: Image) -> str:
    """It is known: the row goes again, if nobody has touched it."""
    try:
        store.requests.call(
            "dynamodb",
            "delete_item",
            TableName=layout.table,
            Key=layout.key_image(key),
            ConditionExpression="attribute_not_exists(#version) AND #input = :input",
            ExpressionAttributeNames={"#version": "version", "#input": "input"},
            ExpressionAttributeValues={":input": image["input"]},
        )
    except ConditionFailed:
        pass
    return "known"


def _write(store: Store, update: Update) -> bool:
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return False
    return True


def _set_aside(store: Store, layout: Layout, image: Image, reason: str, now: int) -> str:
    set_aside(store, layout, image, reason, now)
    return "set aside"
