"""Prune on AWS: removes ended rows, their lines once they are delivered, and seals that a route need not remember.

A row leaves by deletion here or by its time to live. Its seal holds the place of its last line (`place`) until the lines are
removed, so lines without a row are found by way of the seals, even if a process died between the two steps.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

from milepost.core.errors import LedgerDamaged
from milepost.core.history import origin, verify_chain
from milepost.core.status import TERMINAL, Status
from milepost.ledgers.aws.journal.kept_evidence import leaving
from milepost.ledgers.aws.names import iso
from milepost.ledgers.aws.refused_rows import UNREADABLE, readable
from milepost.ledgers.aws.requests.client import ConditionFailed
from milepost.ledgers.aws.store import SEALED_FOR_MS, AwsStore, seal_of
from milepost.ledgers.aws.tables.item_rows import copied_of
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ports.retention import Leaving, PruneCriteria, Pruned

PAGE = 100

log = logging.getLogger(__name__)


def prune(store: AwsStore, asked: PruneCriteria) -> Pruned:
    """Remove rows first, in as many calls as that takes; then lines and old seals, by way of the seals."""
    layout = store.layout(asked.route)
    if layout is None:
        return Pruned(0, 0, False)
    left, more = _prune_rows(store, layout, asked)
    if more:
        return Pruned(sum(left.values()), 0, True, 0, dict(left))
    lines, forgotten, more = _prune_seals(store, asked)
    return Pruned(sum(left.values()), forgotten, more, lines, dict(left))


# Rows -----------------------------------------------------------------------------------------------------------------
def _prune_rows(store: AwsStore, layout: Layout, asked: PruneCriteria) -> tuple[Counter[Status], bool]:
    """Each call continues where the previous one stopped, so that the whole table is read only once."""
    left: Counter[Status] = Counter()
    start = store.pruned_to.pop(layout.route, None)
    for image in store.scan(layout.table, start):
        if left.total() == asked.limit:
            return left, True
        status = _prune_row(store, layout, image, asked)
        if status is not None:
            store.values.remove(image)
            left[status] += 1
        store.pruned_to[layout.route] = {name: image[name] for name in layout.key}
    store.pruned_to.pop(layout.route, None)
    return left, False


def _prune_row(store: AwsStore, layout: Layout, image: Image, asked: PruneCriteria) -> Status | None:
    """Remove the row and return its status; None: it stays. An unreadable one stays and affects no other."""
    try:
        status = _may_go(store, layout, image, asked)
        if status is None:
            return None
        going = None if asked.keep is None else leaving(store, layout, image)
        if going is not None and not _is_proved(going):
            raise LedgerDamaged("its history chain does not end at its present state; 'milepost show' shows the broken line")
    except UNREADABLE as error:
        log.error("cannot read %s of %s, so it is not removed: %s: %s", layout.key_of(image), layout.table, type(error).__name__, error)
        return None
    if asked.keep is not None and going is not None:
        asked.keep([going])
    return status if _delete(store, layout, layout.key_of(image), image) else None


def _may_go(store: AwsStore, layout: Layout, image: Image, asked: PruneCriteria) -> Status | None:
    """The status of a row that may be removed; None: it stays. It ended long enough ago, its history lines are in the journal, and its
    seal was written long enough ago."""
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
    return verify_chain(links, origin(row.route, row.key, row.input_digest, row.life), row.head) is None


def _delete(store: AwsStore, layout: Layout, key: str, image: Image) -> bool:
    """Delete the row if it is unchanged since the read. A missing row counts as deleted: this same write may have succeeded with its
    answer lost."""
    try:
        store.requests.call(
            "dynamodb",
            "delete_item",
            TableName=layout.table,
            Key=layout.key_image(key),
            ConditionExpression="#version = :version AND #head = :head",
            ExpressionAttributeNames={"#version": "version", "#head": "head"},
            ExpressionAttributeValues={":version": image["version"], ":head": image["head"]},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ConditionFailed as failed:
        return failed.image is None
    return True


# Lines and seals ------------------------------------------------------------------------------------------------------
def _prune_seals(store: AwsStore, asked: PruneCriteria) -> tuple[int, int, bool]:
    """Numbers of items whose lines were removed and of seals forgotten, and whether there is more. Continues where it stopped."""
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
    spent = [
        image
        for image in page
        if "place" in image
        and image["endedAt"]["S"] < iso(asked.ended_before)
        and asked.delivered.covers(route, seal_of(image, route).key, int(image["place"]["N"]))
    ]
    present = store.images(route, [seal_of(image, route).key for image in spent])
    spent = [image for image in spent if seal_of(image, route).key not in present]
    emptied = store.requests.each([partial(_remove_lines, store, route, image) for image in spent])
    empty = [image for image in page if "place" not in image] + [image for image, done in zip(spent, emptied, strict=True) if done]
    if asked.forget_before is None:
        return len(spent), 0
    old = [image for image in empty if image["endedAt"]["S"] < iso(asked.forget_before)]
    return len(spent), sum(store.requests.each([partial(_write_if_unchanged, store, image, "delete_item") for image in old]))


def _remove_lines(store: AwsStore, route: str, image: Image) -> bool:
    """Remove the lines, then record that on the seal; False: the seal has changed since it was read."""
    seal = seal_of(image, route)
    store.journal.remove(route, seal.key, int(image["place"]["N"]), seal.life)
    return _write_if_unchanged(store, image, "update_item", UpdateExpression="REMOVE #place", more_names={"#place": "place"})


def _write_if_unchanged(store: AwsStore, image: Image, operation: str, more_names: dict[str, str] | None = None, **params: Any) -> bool:
    """Change or remove a seal, unless it was written again since it was read: then its key has ended again."""
    return store.requests.write_if(
        operation,
        TableName=store.names.seen,
        Key={"key": image["key"]},
        ConditionExpression="#head = :head",
        ExpressionAttributeNames={"#head": "head", **(more_names or {})},
        ExpressionAttributeValues={":head": image["head"]},
        **params,
    )
