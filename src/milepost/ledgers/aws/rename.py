"""Rename of a stage: one conditional write for every row that names it, then seals, counters, pauses and limits."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from milepost.core.admission.controls import scope
from milepost.core.status import Status
from milepost.ledgers.aws.claim.paused_lanes import HOLDING, held_at
from milepost.ledgers.aws.names import MARKED_SHARD, QUEUED_SHARD, due_shard
from milepost.ledgers.aws.requests.client import ConditionFailed
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ledgers.aws.tables.readable_rows import readable
from milepost.ports.documents import BREAKER, HOLD, LIMIT

WAITING = (f"{QUEUED_SHARD}#", f"{MARKED_SHARD}#")


def rename_stage(store: AwsStore, route: str, old: str, new: str) -> None:
    layout = store.layout(route)
    if layout is None:
        return
    for image in list(store.requests.scan(layout.table, ConsistentRead=True)):
        # An unreadable row is left as it is; after it is corrected, renaming again includes it.
        while readable(store, layout, image) is not None and not _rename(store, layout, image, old, new):
            image = store.images(route, [layout.key_of(image)]).get(layout.key_of(image), {})
    for seal in list(store.requests.scan(store.names.seen, ConsistentRead=True)):
        if seal["route"]["S"] == route and seal["queue"]["S"] == old:
            _rename_seal(store, seal, old, new)
    store.counters.rename(route, old, new)
    for kind in (HOLD, LIMIT, BREAKER):
        for name, document in store.control.read(kind).items():
            if (name + "/").startswith(f"{route}/{old}/"):
                store.control.write(kind, f"{route}/{new}" + name.removeprefix(f"{route}/{old}"), document.value)
                store.control.write(kind, name, None)
    # After the pauses: a process that finds a row in the paused partition must find its lane paused too.
    _rename_holding(store, route, old, new)


def _rename_seal(store: AwsStore, seal: Image, old: str, new: str) -> None:
    """Writes the stage only: the seal may have been rewritten since it was read."""
    with suppress(ConditionFailed):
        store.requests.call(
            "dynamodb",
            "update_item",
            TableName=store.names.seen,
            Key={"key": seal["key"]},
            UpdateExpression="SET #queue = :new",
            ConditionExpression="#queue = :old",
            ExpressionAttributeNames={"#queue": "queue"},
            ExpressionAttributeValues={":old": {"S": old}, ":new": {"S": new}},
        )


def _rename(store: AwsStore, layout: Layout, image: Image, old: str, new: str) -> bool:
    """Rename in one row; False: another process wrote the row in the meantime."""
    key = layout.key_of(image)
    update = Update(layout, key)
    touched = False
    for prefix in (layout.prefix, "payload_"):
        if prefix + old in image:
            update.set(prefix + new, _pointing(image[prefix + old], old, new))
            update.remove(prefix + old)
            touched = True
    for name, value in image.items():
        if name.startswith("payload_") and name != "payload_" + old and value.get("M", {}).get("of") == {"S": old}:
            update.set(name, _pointing(value, old, new))
            touched = True
    if old in image.get("through", {}).get("SS", ()):
        update.set("through", {"SS": sorted({new if stage == old else stage for stage in image["through"]["SS"]})})
        touched = True
    if "kept" in image:
        kept: dict[str, Any] = msgspec.json.decode(image["kept"]["S"])
        if old in kept:
            renamed = {new if stage == old else stage: outcome for stage, outcome in kept.items()}
            update.set("kept", {"S": msgspec.json.encode(renamed).decode()})
            touched = True
    if image["queue"]["S"] == old:
        update.set("queue", {"S": new})
        if "dueShard" in image and image["dueShard"]["S"] in {due_shard(kind + old, key) for kind in ("", *WAITING)}:
            update.set("dueShard", {"S": due_shard(new, key)})
            if image["status"]["S"] in (Status.PENDING.value, Status.QUEUED.value) and "notBefore" not in image:
                # Its message went to the old stage's queue: the resender must send another.
                update.set("dueAt", image["enteredAt" if "enteredAt" in image else "lastUpdatedAt"])
                update.remove("lookAt")
        lane = image.get("lane", {}).get("S", "")
        if image.get("dueShard") == {"S": held_at(old, lane, key)}:
            update.set("dueShard", {"S": held_at(new, lane, key)})
        touched = True
    if not touched:
        return True
    update.equal("version", image["version"])
    update.equal("queue", image["queue"])
    update.equal("lease", image.get("lease"))
    update.equal("status", image["status"])
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return False
    return True


def _rename_holding(store: AwsStore, route: str, old: str, new: str) -> None:
    """Record the paused partitions under the stage's new name, before the old record is removed."""
    for name, document in store.control.read(HOLDING).items():
        if document.value["route"] == route and document.value["stage"] == old:
            renamed = {**document.value, "stage": new}
            store.control.write(HOLDING, scope(route, new, renamed["lane"]), renamed)
            store.control.write(HOLDING, name, None)


def _pointing(value: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {"M": {"of": {"S": new}}} if value.get("M", {}).get("of") == {"S": old} else value
