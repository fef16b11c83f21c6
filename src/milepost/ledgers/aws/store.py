"""What every verb of the AWS ledger stands on: requests, queues, control documents, and where each route's rows are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct

from milepost.core.controls import Limit
from milepost.core.errors import LedgerMissing, LedgerReadOnly
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import Status
from milepost.ledgers.aws.journal.journal import Journal
from milepost.ledgers.aws.journal.kept_evidence import AtHand, keep_evidence
from milepost.ledgers.aws.journal.lines import item_name
from milepost.ledgers.aws.names import ResourceNames, b64, iso, ms, unb64
from milepost.ledgers.aws.queues.messages import Queues
from milepost.ledgers.aws.requests.client import ConditionFailed, Requests
from milepost.ledgers.aws.tables.counters import Counters
from milepost.ledgers.aws.tables.documents import Control
from milepost.ledgers.aws.tables.keys import FULL_KEY, Image, Layout
from milepost.ledgers.aws.tables.values import Values
from milepost.ports.blobs import Blobs
from milepost.ports.documents import HOLD, LIMIT, ROUTE, read_as
from milepost.ports.ledger import Document, KnownKey

LAYOUT = "layout"
SEALED_FOR_MS = 3_600_000
"""A row leaves at least so long after its seal was written: whoever looked for the seal before that has put its row by then."""


class StoreSettings(Struct, frozen=True, kw_only=True):
    """What differs between a ledger at work and one whose time is not the world's (in tests)."""

    fresh_ms: int = 5_000
    """How long control documents may be believed without reading them again."""
    longest_delay_s: int = 900
    """How long a queue can hold a message back; what is later than that is brought by the resender."""
    poll_ms: int = 1_000
    long_poll_s: int = 0
    """How long a queue with nothing in it is waited for, in a thread of its own; 0: it is asked every `poll_ms`."""
    notice_ms: int = 60_000
    """How long before it holds a changed route is announced; longer than control documents are believed."""
    patience_ms: int = 120_000
    grace_ms: int = 600_000
    offer_life_ms: int = 600_000
    """How long after its offer an item at a stage of ours is asked after: is its message still in the queue?"""
    external_life_ms: int = 14 * 86_400_000
    """How long an offer in a partner's own queue lives that does not tell how long it keeps messages."""


class Sealing(Struct, frozen=True):
    """A seal to be written, and of which end it is."""

    route: str
    seal: KnownKey
    place: int | None = None
    """Where the item's last line stands in the journal; None: it has no lines there. The seal says so until they are removed."""
    version: int = 0
    """Of the row; 0: it comes from another ledger, which had no row of it any more, and takes the place of no other seal."""
    created_at: int = 0
    """When the row was made: it tells the lives of a key apart."""


class AwsStore:
    """One deployment: its tables, queues and control documents, and the routes that this process knows."""

    def __init__(self, requests: Requests, names: ResourceNames, blobs: Blobs, settings: StoreSettings) -> None:
        self.requests = requests
        self.names = names
        self.settings = settings
        self.blobs = blobs
        self.values = Values(blobs)
        self.queues = Queues(requests, names)
        self.control = Control(requests, names)
        self.counters = Counters(requests, names)
        self.journal = Journal(requests, names, self.values)
        self.plans: dict[str, Plan] = {}
        self.pruned_to: dict[str, Image] = {}
        """How far each route's table has been gone through for rows that may go."""
        self.unsealed: dict[tuple[str, str], float] = {}
        """Keys that had neither a row nor a seal when they were looked up, and when that was (see `adding`)."""
        self._layouts: dict[str, Layout] = {}
        self._read: dict[str, tuple[int, dict[str, Document]]] = {}

    # Routes -----------------------------------------------------------------------------------------------------------
    def know(self, plan: Plan) -> Layout:
        """This process has the route at hand: from now on its own rules hold for what is read. An offer to an external stage lives
        as long as the stage's queue keeps it: the queue itself says how long that is."""
        layout = self._layouts.get(plan.name)
        if layout is None or self.plans.get(plan.name) is not plan:
            asked = [stage for stage in plan.stages if stage.external and stage.resend_after_ms is None]
            lives = self.requests.each([partial(self._offer_life, plan.name, stage) for stage in asked])
            plan.with_offer_lives({stage.name: life for stage, life in zip(asked, lives, strict=True)})
            layout = Layout.of(plan, self.names.rows(plan.name))
            told = {"key": list(layout.key), "prefix": layout.prefix}
            held = self.control.get(LAYOUT, plan.name)
            if held is None or held.value != told:
                self.control.write(LAYOUT, plan.name, told)
            self.plans[plan.name] = plan
            self._layouts[plan.name] = layout
        return layout

    def _offer_life(self, route: str, stage: Stage) -> int:
        try:
            return self.queues.retention_ms(self.queues.url(route, stage.name, stage.queue))
        except LedgerReadOnly:
            if stage.queue is None:
                raise
            return self.settings.external_life_ms  # a partner's own queue need not tell us about itself

    def layout(self, route: str) -> Layout | None:
        """Where a route's rows are; None: nobody has ever opened this ledger with that route."""
        layout = self._layouts.get(route)
        if layout is None:
            held = self.control.get(LAYOUT, route)
            if held is None:
                return None
            layout = Layout(route, self.names.rows(route), tuple(held.value["key"]), held.value["prefix"])
            self._layouts[route] = layout
        return layout

    def routes(self) -> list[str]:
        """Every route that the ledger has been opened with."""
        return sorted(self.control.read(LAYOUT))

    # Control documents, believed for a while --------------------------------------------------------------------------
    def documents(self, kind: str, now: int) -> dict[str, Document]:
        """Documents of a kind, at most `fresh_ms` old."""
        at, found = self._read.get(kind, (None, {}))
        if at is None or not 0 <= now - at < self.settings.fresh_ms:
            found = self.control.read(kind)
            self._read[kind] = (now, found)
        return found

    def outdated(self, route: str, version: int, now: int) -> bool:
        held = self.documents(ROUTE, now).get(route)
        return held is not None and held.value["version"] != version

    def notice(self, route: str, now: int) -> int | None:
        """A changed route is announced before it holds, so that every process has read of it by then. None: it holds; else from
        when on. (The first version of a route replaces none, and holds at once.)"""
        held = self.documents(ROUTE, now).get(route)
        if held is None or held.value["version"] == 1:
            return None
        from_when = int(held.value["at"]) + self.settings.notice_ms
        return from_when if 0 <= from_when - now <= self.settings.notice_ms and from_when != now else None

    def holds(self, now: int) -> set[str]:
        return set(self.documents(HOLD, now))

    def limits(self, now: int) -> dict[str, Limit]:
        return {name: read_as(Limit, document.value) for name, document in self.documents(LIMIT, now).items()}

    def forget(self, kind: str) -> None:
        """This process has written a document of this kind: read them again when they are asked for."""
        self._read.pop(kind, None)

    # Rows and seals ---------------------------------------------------------------------------------------------------
    def images(self, route: str, keys: Iterable[str]) -> dict[str, Image]:
        """Rows by the key that they were asked for by, read consistently; what is not there is left out."""
        layout = self.layout(route)
        if layout is None:
            return {}
        # What no row can be called has none.
        wanted = {key: layout.key_image(key) for key in dict.fromkeys(keys) if layout.misfit(key) is None}
        if not wanted:
            return {}
        try:
            found = self.requests.batch_get(layout.table, wanted.values())
        except LedgerMissing:
            return {}
        rows = {_place(image, layout): image for image in found}
        return {key: rows[place] for key, image in wanted.items() if (place := _place(image, layout)) in rows}

    def due(self, layout: Layout, shard: str, before: int, limit: int) -> list[str]:
        """Keys in one partition of the index that were due before then, the oldest first."""
        found = self.requests.query(
            layout.table,
            IndexName="due",
            KeyConditionExpression="#shard = :shard AND #due <= :before",
            ExpressionAttributeNames={"#shard": "dueShard", "#due": "dueAt"},
            ExpressionAttributeValues={":shard": {"S": shard}, ":before": {"S": iso(before)}},
            Limit=max(1, limit),
        )
        return [layout.key_of(image) for image in islice(found, max(0, limit))]

    def seals(self, route: str, keys: Iterable[str]) -> dict[str, KnownKey]:
        """Seals by key."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return {}
        found = self.requests.batch_get(self.names.seen, [{"key": {"S": item_name(route, key)}} for key in wanted])
        seals = [seal_of(image, route) for image in found]
        return {seal.key: seal for seal in seals}

    def seal_image(self, route: str, key: str) -> Image | None:
        """One seal as it is stored, with the time at which it was written."""
        found = self.requests.batch_get(self.names.seen, [{"key": {"S": item_name(route, key)}}])
        return found[0] if found else None

    def write_seals(self, seals: Sequence[Sealing], now: int, at_hand: AtHand | None = None) -> None:
        """Seal ended items, for good, once their evidence is kept where a route wants that. A seal never takes the place of a newer
        one: a reader of the stream that is late may still hold an end that the item has left since."""
        keep_evidence(self, seals, at_hand or {})
        written = self.requests.each([partial(self._seal, seal, now) for seal in seals])
        late = [seal for seal, done in zip(seals, written, strict=True) if not done]
        if late:
            # Evidence of these was just kept as it was at an earlier end: keep it again, as the rows are now.
            keep_evidence(self, late, {})

    def _seal(self, sealing: Sealing, now: int) -> bool:
        """Whether it was written; not, if a newer one stands there."""
        older = "attribute_not_exists(#key) OR attribute_not_exists(#version)"
        values: Image = {}
        if sealing.version:
            older += " OR #created < :created OR (#created = :created AND #version <= :version)"
            values = {":created": {"S": iso(sealing.created_at)}, ":version": {"N": str(sealing.version)}}
        names = {"#key": "key", "#version": "version", "#created": "createdAt"}
        try:
            self.requests.call(
                "dynamodb",
                "put_item",
                TableName=self.names.seen,
                Item=_seal_image(sealing, now),
                ConditionExpression=older,
                ExpressionAttributeNames=names if values else {name: names[name] for name in ("#key", "#version")},
                **({"ExpressionAttributeValues": values} if values else {}),
            )
        except ConditionFailed:
            return False
        return True


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


def _place(image: Image, layout: Layout) -> tuple[str, ...]:
    return tuple(image[name]["S"] for name in layout.key)


def seal_of(image: Image, route: str) -> KnownKey:
    return KnownKey(
        image[FULL_KEY]["S"] if FULL_KEY in image else image["key"]["S"].removeprefix(f"{route}/"),
        Status(image["status"]["S"]),
        unb64(image["inputDigest"]["S"]),
        image["queue"]["S"],
        image["listId"]["S"] if "listId" in image else None,
        True,
        ms(image["endedAt"]["S"]),
        unb64(image["head"]["S"]),
        unb64(image["contentDigest"]["S"]) if "contentDigest" in image else None,
        int(image["life"]["N"]) if "life" in image else 0,
    )
