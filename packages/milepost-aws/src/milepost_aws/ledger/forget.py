"""Forget on AWS: row, blobs and the content of the journal's lines are removed; seal and lines get
a name that stands for the key.

In this order, so that a call that was cut off is continued by the next one: the new seal, the row,
its blobs, examples of errors, the journal, and last the seal under the key. Only rows that may
leave are taken: an item that ended less than an hour ago may still be looked for by a submit that
found no seal (decision 13).
"""

from __future__ import annotations

from milepost.core.status import TERMINAL
from milepost.ports.retention import ForgetRequest, Forgotten, not_ended
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.refused_rows import QUARANTINED, readable
from milepost_aws.ledger.retention import SEALED_FOR_MS, delete_row
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import places_of
from milepost_aws.ledger.tables.item_rows import copied_of, is_ours
from milepost_aws.ledger.tables.journal import item_name
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.seals import seal_of

KEPT = ("route", "status", "queue", "head", "endedAt", "sealedAt", "place", "life")
"""Attributes of the seal that stay."""
TOO_EARLY = "it ended less than an hour ago, or its last lines are not in the journal yet; run this again an hour after its end"
REMAINS = (
    "the streams of its table, for 24 hours",
    "messages in the queues of its stages, for as long as these keep messages (at most 14 days)",
    "backups and point-in-time recovery of the tables (35 days), and older versions in the bucket where it keeps versions",
)


def forget(store: AwsStore, asked: ForgetRequest) -> Forgotten:
    """See `ports.retention.LedgerRetention.forget`."""
    layout = store.layout(asked.route)
    if layout is None:
        return Forgotten(refused="the ledger does not have this route")
    seal = store.seal_image(asked.route, asked.key)
    image = store.images(asked.route, [asked.key]).get(asked.key)
    if image is not None:
        refused = _refusal(store, layout, image, seal, asked.now)
        if refused is not None:
            return Forgotten(refused=refused)
    if asked.dry_run:
        return Forgotten()
    if seal is not None:
        _put_seal(store, asked, seal)
    if image is not None:
        if not delete_row(store, layout, asked.key, image):
            return Forgotten(refused="it has changed meanwhile; run this again")
        store.values.remove(image, *places_of(layout, asked.key))
    store.control.write(f"{QUARANTINED}{asked.route}", asked.key, None)
    life = 0 if seal is None else seal_of(seal, asked.route).life
    found = store.journal.find_key(asked.route, asked.key, life)
    written = [
        entry
        for one in found.lives
        for entry in store.journal.history(asked.route, asked.key, one, placed=False)
    ]
    attempts = [
        attempt for attempt in (entry.line.attempt for entry in written) if attempt is not None
    ]
    store.counters.remove_samples(asked.route, {attempt.message for attempt in attempts})
    lines = store.journal.forget(asked.route, asked.key, asked.name, found)
    store.left.remove(asked.route, [asked.key])
    if seal is not None:
        store.requests.call(
            "dynamodb", "delete_item", TableName=store.names.seen, Key={"key": seal["key"]}
        )
    return Forgotten(lines=lines, remains=REMAINS)


def _refusal(
    store: AwsStore, layout: Layout, image: Image, seal: Image | None, now: int
) -> str | None:
    """Why the item in this row is not forgotten; None: it may be."""
    row = readable(store, layout, image) if is_ours(image) else None
    if row is None:
        return "its row cannot be read, or is not Milepost's; correct or adopt it first ('milepost quarantine list')"
    if row.status not in TERMINAL:
        return not_ended(row.status)
    sealed = (
        seal is not None
        and seal_of(seal, row.route).head == row.head
        and seal["sealedAt"]["S"] <= iso(now - SEALED_FOR_MS)
    )
    return None if sealed and copied_of(image) >= row.version else TOO_EARLY


def _put_seal(store: AwsStore, asked: ForgetRequest, seal: Image) -> None:
    """The seal under the name that stands for the key, without the digests of what was
    submitted."""
    image = {attribute: seal[attribute] for attribute in KEPT if attribute in seal}
    image |= {"key": {"S": item_name(asked.route, asked.name)}, "inputDigest": {"S": ""}}
    store.requests.call("dynamodb", "put_item", TableName=store.names.seen, Item=image)
