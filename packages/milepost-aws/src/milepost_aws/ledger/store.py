"""Shared state of the AWS ledger's operations: requests, queues, control documents, and the table
layout of each route."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.controls import Limit
from milepost.core.errors import LedgerMissing, LedgerReadOnly, RouteChanged
from milepost.core.forgetting import forgotten_name
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import FAILED
from milepost.ports.blobs import Blobs
from milepost.ports.documents import (
    BREAKER,
    FORGET,
    HOLD,
    LIMIT,
    ROUTE,
    SECRET,
    DamagedValue,
    Document,
    sort_out,
)
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey
from milepost.ports.retention import LeftFailures
from milepost_aws.ledger.left_failures import LeftNotes
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.requests.queues import Queues
from milepost_aws.ledger.tables.counters import Counters
from milepost_aws.ledger.tables.documents import LAYOUT, Control
from milepost_aws.ledger.tables.item_rows import (
    correlation_of,
    is_ours,
    life_of,
    links_of,
    offered_by,
)
from milepost_aws.ledger.tables.journal import Journal, item_name
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.seals import seal_of
from milepost_aws.ledger.tables.values import Values

log = logging.getLogger(__name__)


class StoreSettings(Struct, frozen=True, kw_only=True):
    """Timing settings, with other values in tests that use a virtual clock."""

    fresh_ms: int = 5_000
    """Maximum age of cached control documents."""
    longest_delay_s: int = 900
    """Longest delay of an SQS message; later looks are left to the resender."""
    poll_ms: int = 1_000
    long_poll_s: int = 0
    """Duration of a long poll of an idle queue, in a thread of its own; 0: poll every `poll_ms`."""
    notice_ms: int = 60_000
    """Time between announcing a changed route and its start; longer than `fresh_ms`."""
    resend_delay_ms: int = 120_000
    grace_ms: int = 600_000
    offer_life_ms: int = 600_000
    """Time after an offer to a handler stage until the queue is checked for its message."""
    repair_within_ms: int = 6 * 3_600_000
    """Time in which the repair scan should have read a table."""
    external_life_ms: int = 14 * 86_400_000
    """Offer life in a partner's queue whose retention cannot be read."""


class AwsStore:
    """One deployment: its tables, queues and control documents, and the routes loaded in this
    process."""

    def __init__(
        self, requests: Requests, names: ResourceNames, blobs: Blobs, settings: StoreSettings
    ) -> None:
        self.requests = requests
        self.names = names
        self.settings = settings
        self.blobs = blobs
        self.values = Values(blobs)
        self.queues = Queues(requests, names)
        self.control = Control(requests, names)
        self.counters = Counters(requests, names)
        self.left = LeftNotes(requests, names, self.control)
        self.journal = Journal(requests, names, self.values)
        self.plans: dict[str, Plan] = {}
        self.pruned_to: dict[str, Image] = {}
        """Position of the prune scan in each route's table."""
        self.unsealed: dict[tuple[str, str], float] = {}
        """Keys found without row and seal, and when they were looked up (see `intake`)."""
        self._secret: bytes | None = None
        """The secret of the names of forgotten keys."""
        self._secret_read: float | None = None
        """When it was looked for last."""
        self._layouts: dict[str, Layout] = {}
        self._read: dict[str, tuple[int, dict[str, Document]]] = {}

    # Routes ---------------------------------------------------------------------------------------
    def load_route(self, plan: Plan) -> Layout:
        """Load a route: from now on rows are read by its rules. An offer to an external stage lives
        as long as the stage's queue keeps messages: that time is read from the queue, and `plans`
        has the plan with these times."""
        layout, known = self._layouts.get(plan.name), self.plans.get(plan.name)
        if layout is not None and known is plan:
            return layout
        if layout is not None and known is not None and known.stages is plan.stages:
            self.plans[plan.name] = plan  # another version of the plan whose queues have been asked
        else:
            external = [
                stage for stage in plan.stages if stage.external and stage.resend_after_ms is None
            ]
            lives = self.requests.each(
                [partial(self._offer_life, plan.name, stage) for stage in external]
            )
            if external:
                plan = plan.with_offer_lives(
                    {stage.name: life for stage, life in zip(external, lives, strict=True)}
                )
            self.control.format()
            layout = Layout.of(plan, self.names.rows(plan.name))
            stored = {"key": list(layout.key), "prefix": layout.prefix}
            held = self.control.read_one(LAYOUT, plan.name)
            if held is None:
                self._begin(plan.name)
            if held is None or held.value != stored:
                self.control.write(LAYOUT, plan.name, stored)
            self.plans[plan.name] = plan
            self._layouts[plan.name] = layout
        return layout

    def _begin(self, route: str) -> None:
        """Before a route's first record: what holds for a new route, and for a new ledger."""
        if not self.control.read(LAYOUT):
            with suppress(
                LedgerReadOnly
            ):  # a role of an older stack: then the ledger begins with the first format
                self.control.begin_format()
        self.left.begin(route)

    def plan_with_offers(self, plan: Plan) -> Plan:
        """The plan for decisions of the relay and the repair: an item that reaches an external
        stage is offered in the same write."""
        self.load_route(plan)
        own = Plan(
            plan.route, grace_ms=self.settings.grace_ms, external_grace_ms=0, version=plan.version
        )
        return own.with_offer_lives({stage.name: stage.offer_life_ms for stage in plan.stages})

    def stage(self, route: str, name: str) -> Stage | None:
        """The stage, if this process knows it."""
        plan = self.plans.get(route)
        return None if plan is None else plan.by_name.get(name)

    def _offer_life(self, route: str, stage: Stage) -> int:
        try:
            return self.queues.retention_ms(self.queues.url(route, stage.name, stage.queue))
        except LedgerReadOnly:
            if stage.queue is None:
                raise
            return (
                self.settings.external_life_ms
            )  # the permission to read a partner's queue may be missing

    def layout(self, route: str) -> Layout | None:
        """The table layout of a route; None: this ledger was never opened with that route."""
        layout = self._layouts.get(route)
        if layout is None:
            held = self.control.read_one(LAYOUT, route)
            if held is None:
                return None
            layout = Layout(
                route, self.names.rows(route), tuple(held.value["key"]), held.value["prefix"]
            )
            self._layouts[route] = layout
        return layout

    def routes(self) -> list[str]:
        """Every route that the ledger was opened with."""
        return sorted(self.control.read(LAYOUT))

    # Cached control documents ---------------------------------------------------------------------
    def documents(self, kind: str, now: int) -> dict[str, Document]:
        """Documents of a kind, at most `fresh_ms` old (see `read`)."""
        at, found = self._read.get(kind, (None, {}))
        if at is None or not 0 <= now - at < self.settings.fresh_ms:
            found = self.read(kind)
            self._read[kind] = (now, found)
        return found

    def read(self, kind: str) -> dict[str, Document]:
        """Documents of a kind. Of kinds with the route in their key, those of the loaded routes,
        and breakers only of those that have any; if no route is loaded, of all routes."""
        if not self.plans:
            return self.control.read(kind)
        if kind != BREAKER:
            return self.control.read(kind, self.plans)
        return self.control.read(
            kind,
            [
                name
                for name, plan in self.plans.items()
                if any(stage.has_breaker for stage in plan.stages)
            ],
        )

    def outdated(self, route: str, version: int, now: int) -> bool:
        held = self.documents(ROUTE, now).get(route)
        if held is not None and isinstance(held.value, DamagedValue):
            return True
        return held is not None and held.value["version"] != version

    def check_current(self, plan: Plan, now: int) -> None:
        """Raise RouteChanged if the ledger has, or has announced, another version of the route."""
        if (
            self.outdated(plan.name, plan.version, now)
            or self.takes_effect_at(plan.name, now) is not None
        ):
            raise RouteChanged(
                f"route {plan.name!r} was just changed or is newer in the ledger; this process stands by"
            )

    def takes_effect_at(self, route: str, now: int) -> int | None:
        """When an announced version of the route takes effect; None: it is in effect. It is
        announced before, so that every process has read it by then. (The first version of a route
        replaces none and takes effect at once.)"""
        held = self.documents(ROUTE, now).get(route)
        if held is None or isinstance(held.value, DamagedValue) or held.value["version"] == 1:
            return None
        starts_at = int(held.value["at"]) + self.settings.notice_ms
        return (
            starts_at
            if 0 <= starts_at - now <= self.settings.notice_ms and starts_at != now
            else None
        )

    def holds(self, now: int) -> set[str]:
        """Scopes that are paused. A scope whose limit is damaged counts as paused: how much is
        allowed there is not known."""
        _, damaged = sort_out(self.documents(LIMIT, now), LIMIT, Limit)
        return {*self.documents(HOLD, now), *damaged}

    def limits(self, now: int) -> dict[str, Limit]:
        sound, _ = sort_out(self.documents(LIMIT, now), LIMIT, Limit)
        return {name: limit for name, (limit, _) in sound.items()}

    def forget(self, kind: str) -> None:
        """This process has written a document of this kind: read them again when they are asked
        for."""
        self._read.pop(kind, None)

    # Rows, lines and seals ------------------------------------------------------------------------
    def images(self, route: str, keys: Iterable[str]) -> dict[str, Image]:
        """Rows by requested key, read consistently; missing rows are left out."""
        layout = self.layout(route)
        if layout is None:
            return {}
        # No row can have an invalid key.
        wanted = {
            key: layout.key_image(key)
            for key in dict.fromkeys(keys)
            if layout.key_fault(key) is None
        }
        if not wanted:
            return {}
        try:
            found = self.requests.batch_get(layout.table, wanted.values())
        except LedgerMissing:
            return {}
        rows = {_place(image, layout): image for image in found}
        return {
            key: rows[place]
            for key, image in wanted.items()
            if (place := _place(image, layout)) in rows
        }

    def rows(self, refs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Image]:
        """Rows of several routes, by route and key."""
        by_route: dict[str, list[str]] = {}
        for route, key in refs:
            by_route.setdefault(route, []).append(key)
        return {
            (route, key): image
            for route, keys in by_route.items()
            for key, image in self.images(route, keys).items()
        }

    def history(
        self,
        route: str,
        key: str,
        image: Image | None,
        *,
        placed: bool = True,
        payloads: bool = False,
    ) -> list[HistoryEntry]:
        """Lines in the journal, followed by those still on the row `image`, which have no place
        yet."""
        seal = self.seals(route, [key]).get(key) if image is None else None
        life = life_of(image) if image is not None else 0 if seal is None else seal.life
        written = self.journal.history(route, key, life, placed=placed, payloads=payloads)
        layout = self.layout(route)
        if image is None or layout is None or not is_ours(image):
            return written
        newest = written[-1].line.version if written else 0
        fresh = [link for link in links_of(image, self.values) if link.version > newest]
        offered = offered_by(fresh, image, layout, self.values) if payloads else {}
        correlation_id = correlation_of(image, key)
        return written + [
            HistoryEntry(
                0, route, key, correlation_id, link.previous, link.body, offered.get(link.version)
            )
            for link in fresh
        ]

    def scan(self, table: str, start: Image | None = None) -> Iterator[Image]:
        """All rows of a table, or those after the key `start`, read consistently; none if there is
        no such table."""
        with suppress(LedgerMissing):
            yield from self.requests.scan(table, start, ConsistentRead=True)

    def seals(self, route: str, keys: Iterable[str]) -> dict[str, KnownKey]:
        """Seals by key. A key that was forgotten is found by the name that stands for it."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return {}
        names = self._forgotten_names(route, wanted)
        found = self.requests.batch_get(
            self.names.seen, [{"key": {"S": item_name(route, key)}} for key in (*wanted, *names)]
        )
        seals = {seal.key: seal for seal in (seal_of(image, route) for image in found)}
        for name in seals.keys() & names.keys():
            seal = seals.pop(name)
            seals.setdefault(names[name], replace(seal, key=names[name]))
        return seals

    def _forgotten_names(self, route: str, keys: Sequence[str]) -> dict[str, str]:
        """The keys by the names that stand for them if they were forgotten; empty if this ledger
        has forgotten none. The secret never changes; that there is none is believed for `fresh_ms`,
        and nothing is forgotten before every process has looked again."""
        read_at = self.requests.clock()
        if self._secret is None and (
            self._secret_read is None
            or read_at - self._secret_read >= self.settings.fresh_ms / 1000
        ):
            self._secret_read = read_at
            try:
                document = self.control.read_one(FORGET, SECRET)
            except LedgerReadOnly:
                # A role from before `milepost forget`: deploy the stack again before it is used.
                log.warning(
                    "this process may not read the secret of forgotten keys; it takes them for new ones"
                )
                document = None
            self._secret = None if document is None else bytes.fromhex(document.value["secret"])
        return (
            {}
            if self._secret is None
            else {forgotten_name(self._secret, route, key): key for key in keys}
        )

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        """Seals of failed items whose rows have left, by their notes."""
        complete = self.left.complete(route)
        keys = self.left.keys(route, prefix, after, limit)
        present = self.images(route, keys)
        seals = self.seals(route, [key for key in keys if key not in present])
        failed = [seals[key] for key in keys if key in seals and seals[key].status in FAILED]
        return LeftFailures(failed, keys[-1] if len(keys) == limit else None, complete)

    def seal_image(self, route: str, key: str) -> Image | None:
        """One seal as stored, with the time at which it was written."""
        found = self.requests.batch_get(self.names.seen, [{"key": {"S": item_name(route, key)}}])
        return found[0] if found else None


def _place(image: Image, layout: Layout) -> tuple[str, ...]:
    return tuple(image[name]["S"] for name in layout.key)
