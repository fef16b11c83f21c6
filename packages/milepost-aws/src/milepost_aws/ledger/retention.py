"""Retention on AWS: ended rows are sealed, with their evidence, get a time to live, and leave once
all their lines are delivered.

A row leaves by deletion here (`prune`) or by its time to live. Its seal holds the place of its last
line (`place`) until the lines are removed, so lines without a row are found by way of the seals,
even if a process died between the two steps.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged
from milepost.core.history import origin, verify_chain
from milepost.core.item import Item, Row
from milepost.core.status import FAILED, TERMINAL, Status
from milepost.evidence.record import kept
from milepost.ports.items import KnownKey
from milepost.ports.retention import Leaving, PruneCriteria, Pruned
from milepost_aws.ledger.names import FAILED_SHARD, b64, due_shard, iso
from milepost_aws.ledger.refused_rows import UNREADABLE, readable
from milepost_aws.ledger.requests.client import RowRefused, expressions
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import Update, places_of
from milepost_aws.ledger.tables.item_rows import content_of, copied_of, is_ours, row_of
from milepost_aws.ledger.tables.journal import item_name
from milepost_aws.ledger.tables.keys import FULL_KEY, Image, Layout
from milepost_aws.ledger.tables.seals import seal_of
from milepost_aws.ledger.tables.values import unusable

PAGE = 100
SEALED_FOR_MS = 3_600_000
"""Minimum time between writing a seal and removing its row: a process that read no seal before has
put its row by then."""

log = logging.getLogger(__name__)


# Seals and kept evidence --------------------------------------------------------------------------
class Sealing(Struct, frozen=True):
    """A seal to be written, and the end of the item that it records."""

    route: str
    seal: KnownKey
    place: int | None = None
    """Journal place of the item's last line, kept until the lines are removed; None: it has no
    lines there."""
    version: int = 0
    """Of the row; 0: the seal comes from another ledger that no longer had the row, and replaces no
    other seal."""
    created_at: int = 0
    """When the row was created: distinguishes the lives of a key."""
    image: Image | None = None
    """The row, if the caller has just read it."""


def seal_for(
    store: AwsStore, row: Row, place: int | None = None, image: Image | None = None
) -> Sealing:
    """The seal of an ended row; `place` is the journal place of its last line, which is looked up
    if it is not given."""
    if place is None and (lines := store.journal.history(row.route, row.key, row.life)):
        place = lines[-1].seq
    return Sealing(
        row.route, KnownKey.of(row, sealed=True), place, row.version, row.created_at, image
    )


def write_seals(store: AwsStore, seals: Sequence[Sealing], now: int) -> None:
    """Seal ended items after their evidence is kept, where a route wants that. A seal never
    replaces a newer one: a stream relay that is late may still have an end that the item has left
    since."""
    _keep_evidence(store, seals)
    for sealing in seals:
        if not sealing.version and sealing.seal.status in FAILED:
            store.left.write(
                sealing.route, [sealing.seal.key]
            )  # it comes from another ledger, and its row had left there
    written = store.requests.each([partial(_seal, store, seal, now) for seal in seals])
    # The evidence of those not written was kept for an earlier end: keep it again for the present
    # rows.
    _keep_evidence(
        store,
        [replace(seal, image=None) for seal, done in zip(seals, written, strict=True) if not done],
    )


def _seal(store: AwsStore, sealing: Sealing, now: int) -> bool:
    """True if written; False if there is a newer one."""
    older = "attribute_not_exists(#key) OR attribute_not_exists(#version)"
    values: Image = {}
    if sealing.version:
        older += " OR #created < :created OR (#created = :created AND #version <= :version)"
        values = {"created": {"S": iso(sealing.created_at)}, "version": {"N": str(sealing.version)}}
    condition = expressions(values, {"created": "createdAt"}, ConditionExpression=older)
    return store.requests.write_if(
        "put_item", TableName=store.names.seen, Item=_seal_image(sealing, now), **condition
    )


def _seal_image(sealing: Sealing, now: int) -> Image:
    route, seal = sealing.route, sealing.seal
    name = item_name(route, seal.key)
    image: Image = {
        "key": {"S": name},
        "route": {"S": route},
        "status": {"S": seal.status.value},
        "queue": {"S": seal.stage},
        "inputDigest": {"S": b64(seal.input_digest)},
        "head": {"S": b64(seal.head)},
        "endedAt": {"S": iso(seal.ended_at or now)},
        "sealedAt": {"S": iso(now)},
    }
    if sealing.version:
        image["version"] = {"N": str(sealing.version)}
        image["createdAt"] = {"S": iso(sealing.created_at)}
    if sealing.place is not None:
        image["place"] = {"N": str(sealing.place)}
    if seal.life:
        image["life"] = {"N": str(seal.life)}
    if seal.list_id is not None:
        image["listId"] = {"S": seal.list_id}
    if seal.content_digest is not None:
        image["contentDigest"] = {"S": b64(seal.content_digest)}
    if name != f"{route}/{seal.key}":
        image[FULL_KEY] = {"S": seal.key}
    return image


def _keep_evidence(store: AwsStore, seals: Sequence[Sealing]) -> None:
    """Keep evidence of items about to be sealed, for routes that want it: the row leaves later by
    TTL, when no process of Milepost is involved. A repeat writes the same; a row that has changed
    since is sealed and kept again."""
    wanted = [
        one for one in seals if one.route in store.plans and store.plans[one.route].route.evidence
    ]
    found = [(one.route, one.image, one.place) for one in wanted if one.image is not None]
    for route in {one.route for one in wanted}:
        unread = [one.seal.key for one in wanted if one.route == route and one.image is None]
        found += [
            (route, image, None) for image in store.images(route, unread).values() if is_ours(image)
        ]
    store.requests.each(
        [
            partial(_keep, store, store.load_route(store.plans[route]), image, place)
            for route, image, place in found
        ]
    )


def _keep(store: AwsStore, layout: Layout, image: Image, place: int | None) -> None:
    try:
        going = _leaving(store, layout, image, placed=place is None)
        item, lines = going.item, going.lines
        last = place or (lines[-1].seq if lines else 0)
        name, body = kept(item, [written.body for written in lines], last)
    except UNREADABLE as error:
        # Its lines stay in the journal; it must not stop others from being sealed.
        log.error(
            "cannot keep the evidence of %s in %s: %s", layout.key_of(image), layout.table, error
        )
        return
    try:
        store.blobs.write(name, [body])
    except OSError as error:
        raise unusable(
            error, f"cannot keep the evidence of {item.route}/{item.key}; it is sealed later"
        ) from error


def _leaving(store: AwsStore, layout: Layout, image: Image, *, placed: bool = True) -> Leaving:
    """The item in this image with its lines, and with their places if `placed`."""
    item = Item(row_of(image, layout, store.values), content_of(image, layout, store.values))
    lines = store.history(item.route, item.key, image, placed=placed)
    return Leaving(item, lines[: item.row.version])


# Time to live -------------------------------------------------------------------------------------
def finish(store: AwsStore, ended: Sequence[Row], now: int) -> int:
    """Mark ended rows as finished and return how many were. They are sealed, and all their lines
    are in the journal. Events are delivered from the journal, so no event waits for the row
    (decision 20)."""
    return sum(store.requests.each([partial(_finish, store, end, now) for end in ended]))


def _finish(store: AwsStore, end: Row, now: int) -> bool:
    layout = store.layout(end.route)
    if layout is None:
        return False
    update = Update(layout, end.key)
    update.equal("version", {"N": str(end.version)})
    update.equal("status", {"S": end.status.value})
    update.set("copied", {"N": str(end.version)})
    update.remove("trail")
    if end.status in FAILED:
        update.set("dueShard", {"S": due_shard(FAILED_SHARD, end.key)})
        update.set("dueAt", {"S": iso(end.entered_at)})
    else:
        update.remove("dueShard", "dueAt")
    plan = store.plans.get(end.route)
    keep_ms = None if plan is None else plan.route.keep.get(end.status)
    if keep_ms is not None:
        if end.status in FAILED:
            store.left.write(end.route, [end.key])
        update.set(
            "ttl", {"N": str(-(-max(end.entered_at + keep_ms, now + SEALED_FOR_MS) // 1000))}
        )
    elif plan is not None:
        update.remove("ttl")  # of an earlier version, or of the end before
    try:
        return update.written(store.requests)  # False: an operator has started it again
    except RowRefused as refused:
        # Its index entry stays; the repair scan puts it into quarantine.
        log.error("cannot mark %s/%s as finished: %s", end.route, end.key, refused)
        return False


# Prune --------------------------------------------------------------------------------------------
def prune(store: AwsStore, asked: PruneCriteria) -> Pruned:
    """Remove rows first, in as many calls as that takes; then lines and old seals, by way of the
    seals."""
    layout = store.layout(asked.route)
    if layout is None:
        return Pruned(0, 0, False)
    left, more = _prune_rows(store, layout, asked)
    if more:
        return Pruned(sum(left.values()), 0, True, 0, dict(left))
    lines, forgotten, more = _prune_seals(store, asked)
    return Pruned(sum(left.values()), forgotten, more, lines, dict(left))


# Rows ---------------------------------------------------------------------------------------------
def _prune_rows(
    store: AwsStore, layout: Layout, asked: PruneCriteria
) -> tuple[Counter[Status], bool]:
    """Each call continues where the previous one stopped, so that the whole table is read only
    once."""
    left: Counter[Status] = Counter()
    start = store.pruned_to.pop(layout.route, None)
    for image in store.scan(layout.table, start):
        if left.total() == asked.limit:
            return left, True
        status = _prune_row(store, layout, image, asked)
        if status is not None:
            store.values.remove(image, *places_of(layout, layout.key_of(image)))
            left[status] += 1
        store.pruned_to[layout.route] = {name: image[name] for name in layout.key}
    store.pruned_to.pop(layout.route, None)
    return left, False


def _prune_row(
    store: AwsStore, layout: Layout, image: Image, asked: PruneCriteria
) -> Status | None:
    """Remove the row and return its status; None: it stays. An unreadable one stays and affects no
    other."""
    try:
        status = _may_go(store, layout, image, asked)
        if status is None:
            return None
        going = None if asked.keep is None else _leaving(store, layout, image)
        if going is not None and not _is_proved(going):
            raise LedgerDamaged(
                "its history chain does not end at its present state; 'milepost show' shows the broken line"
            )
    except UNREADABLE as error:
        log.error(
            "cannot read %s of %s, so it is not removed: %s: %s",
            layout.key_of(image),
            layout.table,
            type(error).__name__,
            error,
        )
        return None
    if asked.keep is not None and going is not None:
        asked.keep([going])
    if status in FAILED:
        store.left.write(asked.route, [layout.key_of(image)])
    return status if delete_row(store, layout, layout.key_of(image), image) else None


def _may_go(store: AwsStore, layout: Layout, image: Image, asked: PruneCriteria) -> Status | None:
    """The status of a row that may be removed; None: it stays. It ended long enough ago, its
    history lines are in the journal, and its seal was written long enough ago."""
    if image.get("status", {}).get("S") not in asked.statuses & TERMINAL:
        return None  # no need to read the rest of the row
    row = readable(store, layout, image)
    if row is None or row.entered_at >= asked.ended_before or copied_of(image) < row.version:
        return None
    seal = store.seal_image(row.route, row.key)
    sealed = seal is not None and seal["sealedAt"]["S"] <= iso(asked.ended_before - SEALED_FOR_MS)
    return row.status if sealed else None


def _is_proved(going: Leaving) -> bool:
    """Whether the lines prove the row's state; otherwise they would be no evidence of it."""
    row = going.item.row
    links = [(written.previous, written.body) for written in going.lines]
    return (
        verify_chain(links, origin(row.route, row.key, row.input_digest, row.life), row.head)
        is None
    )


def delete_row(store: AwsStore, layout: Layout, key: str, image: Image) -> bool:
    """Delete the row if it is unchanged since the read. A missing row counts as deleted: this same
    write may have succeeded with its answer lost."""
    unchanged = expressions(
        {"version": image["version"], "head": image["head"]},
        ConditionExpression="#version = :version AND #head = :head",
    )
    return not store.requests.conflict(
        "delete_item", TableName=layout.table, Key=layout.key_image(key), **unchanged
    )


# Lines and seals ----------------------------------------------------------------------------------
def _prune_seals(store: AwsStore, asked: PruneCriteria) -> tuple[int, int, bool]:
    """Numbers of items whose lines were removed and of seals forgotten, and whether there is more.
    Continues where it stopped."""
    lines = forgotten = 0
    name = f"{asked.route}/"
    scanned = store.scan(store.names.seen, store.pruned_to.pop(name, None))
    seals = (image for image in scanned if image["route"]["S"] == asked.route)
    while page := list(islice(seals, PAGE)):
        more_lines, more_forgotten = _page(store, page, asked)
        lines, forgotten = lines + more_lines, forgotten + more_forgotten
        if len(page) == PAGE and max(lines, forgotten) >= asked.limit:
            store.pruned_to[name] = {"key": page[-1]["key"]}
            return lines, forgotten, True
    return lines, forgotten, False


def _page(store: AwsStore, page: Sequence[Image], asked: PruneCriteria) -> tuple[int, int]:
    route = asked.route
    placed = [
        image
        for image in page
        if "place" in image and image["endedAt"]["S"] < iso(asked.ended_before)
    ]
    delivered: dict[str, Image] = {}
    for image in placed:
        key = seal_of(image, route).key
        if asked.delivered.covers(route, key, int(image["place"]["N"])):
            delivered[key] = image
    present = store.images(route, delivered)
    spent = [image for key, image in delivered.items() if key not in present]
    emptied = store.requests.each([partial(_remove_lines, store, route, image) for image in spent])
    empty = [image for image in page if "place" not in image] + [
        image for image, done in zip(spent, emptied, strict=True) if done
    ]
    if asked.forget_before is None:
        return len(spent), 0
    old = [image for image in empty if image["endedAt"]["S"] < iso(asked.forget_before)]
    forgotten = store.requests.each(
        [partial(_write_if_unchanged, store, image, "delete_item") for image in old]
    )
    gone = [seal_of(image, route) for image, done in zip(old, forgotten, strict=True) if done]
    store.left.remove(route, [seal.key for seal in gone if seal.status in FAILED])
    return len(spent), sum(forgotten)


def _remove_lines(store: AwsStore, route: str, image: Image) -> bool:
    """Remove the lines, then record that on the seal; False: the seal has changed since it was
    read."""
    seal = seal_of(image, route)
    store.journal.remove(route, seal.key, int(image["place"]["N"]), seal.life)
    return _write_if_unchanged(store, image, "update_item", UpdateExpression="REMOVE #place")


def _write_if_unchanged(store: AwsStore, image: Image, operation: str, **texts: str) -> bool:
    """Change or remove a seal, unless it was written again since it was read: then its key has
    ended again."""
    unchanged = expressions({"head": image["head"]}, ConditionExpression="#head = :head", **texts)
    return store.requests.write_if(
        operation, TableName=store.names.seen, Key={"key": image["key"]}, **unchanged
    )
