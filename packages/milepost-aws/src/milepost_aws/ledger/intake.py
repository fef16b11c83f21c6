"""Intake: look up keys, and record new items with one conditional put each; a known key costs a
read."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

from milepost.core.item import digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Status
from milepost.ports.items import Additions, KnownKey, NewItem, Refused
from milepost_aws.ledger.refused_rows import UNREADABLE, UNWRITABLE, unwritable
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import put_new, put_of
from milepost_aws.ledger.tables.item_rows import entered_at, is_ours
from milepost_aws.ledger.tables.keys import Image, Layout

LOOKED_UP_S = 60.0
"""How long a key is assumed to have no seal; much shorter than the time between seal and removal
(`retention.SEALED_FOR_MS`)."""
REMEMBERED = 10_000
HELD = 1_000
"""Rows that are looked up together."""


def peek(store: AwsStore, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
    """Read the rows, then the seals of keys without a row. Few rows are held at a time, since each
    is read whole."""
    layout = store.layout(route)
    if layout is None:
        return [None] * len(keys)
    return [
        one
        for start in range(0, len(keys), HELD)
        for one in _peek(store, layout, route, keys[start : start + HELD])
    ]


def _peek(
    store: AwsStore, layout: Layout, route: str, keys: Sequence[str]
) -> list[KnownKey | None]:
    found = {
        key: known_of(image, layout, store) for key, image in store.images(route, keys).items()
    }
    found |= store.seals(route, [key for key in keys if key not in found])
    if len(store.unsealed) > REMEMBERED:
        store.unsealed.clear()
    looked_at = store.requests.clock()
    store.unsealed |= {(route, key): looked_at for key in keys if key not in found}
    return [found.get(key) for key in keys]


def add(
    store: AwsStore, plan: Plan, new_items: Sequence[NewItem], now: int
) -> list[KnownKey | Refused | None]:
    """Put each row if its key has neither a row nor a seal."""
    layout = store.load_route(plan)
    seals = store.seals(
        plan.name,
        _keys_to_check(store, plan.name, [new_item.change.after.key for new_item in new_items]),
    )
    additions = Additions(new_items, seals)
    while batch := additions.next_batch():
        puts = [partial(_put, store, layout, new_item) for new_item in batch]
        additions.record(store.requests.each(puts))
    return additions.answers


def _keys_to_check(store: AwsStore, route: str, keys: Sequence[str]) -> list[str]:
    """The keys whose seals must be read before the put. A key just found without row and seal is
    skipped: an item that is added, ends and is sealed in between keeps its row for another hour,
    and the put finds that row."""
    since = store.requests.clock() - LOOKED_UP_S
    return [key for key in keys if store.unsealed.pop((route, key), since) <= since]


def _put(store: AwsStore, layout: Layout, new_item: NewItem) -> KnownKey | Refused | None:
    key = new_item.change.after.key
    try:
        image = put_of(new_item.change, new_item.input, layout, store.values, secrets.token_hex(8))
        there = put_new(store.requests, layout, image)
    except UNWRITABLE as error:
        return unwritable(error, key)
    if there is None:
        return None
    there = there or store.images(layout.route, [key]).get(key)
    if there is None:
        return _put(store, layout, new_item)
    return None if _is_own(there, image) else known_of(there, layout, store)


def _is_own(there: Image, put: Image) -> bool:
    """Whether the existing row is our own put, whose answer was lost. A row past its first stage
    has no token."""
    if "createToken" in there:
        return there["createToken"] == put["createToken"]
    return all(
        there.get(name) == put.get(name) for name in ("correlationId", "createdAt", "inputDigest")
    )


def known_of(image: Image, layout: Layout, store: AwsStore) -> KnownKey:
    """The answer for a key with a row, including a row of another program that was not taken in
    yet."""
    key = layout.key_of(image)
    try:
        if not is_ours(image):
            content = store.values.decode(image["input"]) if "input" in image else None
            return KnownKey(key, Status.PENDING, digest_of(content))
        status = Status(image["status"]["S"])
        return KnownKey(
            key,
            status,
            image["inputDigest"]["B"],
            image["queue"]["S"],
            image["listId"]["S"] if "listId" in image else None,
            False,
            entered_at(image) if status in TERMINAL else None,
            image["head"]["B"],
            image["contentDigest"]["B"] if "contentDigest" in image else None,
        )
    except UNREADABLE:
        return KnownKey(key, Status.PENDING, b"")  # it exists, but its content is unreadable
