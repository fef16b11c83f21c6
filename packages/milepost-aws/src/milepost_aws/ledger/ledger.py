"""The AWS ledger: rows in DynamoDB, messages in SQS, and a stream that triggers the consequences
(see `relay`)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import ConfigMistake, LedgerError, RouteChanged
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.values.durations import span_ms
from milepost.ports.blobs import Blobs
from milepost.ports.documents import ROUTE, Document
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import (
    ClaimRequest,
    ClaimResult,
    Conflict,
    KnownKey,
    NewItem,
    Query,
    QueryPage,
    Refused,
    Same,
    Timing,
    compare,
)
from milepost.ports.retention import ForgetRequest, Forgotten, LeftFailures, PruneCriteria, Pruned
from milepost.ports.runner import Chance, Clock
from milepost.ports.service import Service
from milepost.ports.upkeep import (
    BackupReport,
    FutureCount,
    Progress,
    ScanCost,
    TablesFormat,
    TransferResult,
)
from milepost_aws.ledger import apply, intake, upkeep
from milepost_aws.ledger.claim.claim import MessageClaims
from milepost_aws.ledger.find import cost_of, find
from milepost_aws.ledger.foreign_rows.adoption import AwsForeignRows
from milepost_aws.ledger.forget import forget
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.refused_rows import item_or_refused
from milepost_aws.ledger.repair.lost_messages import LostMessages
from milepost_aws.ledger.repair.quarantine import AwsQuarantine
from milepost_aws.ledger.repair.repair import counted_future
from milepost_aws.ledger.requests.answer_clock import AnswerClock
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.requests.queues import LONGEST_WAIT_S
from milepost_aws.ledger.retention import SEALED_FOR_MS, prune
from milepost_aws.ledger.store import AwsStore, StoreSettings
from milepost_aws.ledger.tables.create import make_common, make_route
from milepost_aws.ledger.tables.documents import KNOWN_FORMAT
from milepost_aws.ledger.tables.keys import Layout
from milepost_aws.ledger.transfer import take_over
from milepost_aws.ledger.upkeep import StreamReader, Sweeper

log = logging.getLogger(__name__)

OPTIONS = ("endpoint", "blobs", "repair-within")
FORM = "dynamodb://REGION/PREFIX, for a stand-in with ?endpoint=http://127.0.0.1:PORT"


class Address(Struct, frozen=True):
    """Address of a ledger on AWS."""

    region: str
    prefix: str
    endpoint: str | None = None
    blobs: str | None = None
    repair_within_ms: int | None = None
    """Time in which the daily repair scan should end; None: the usual one."""


PITR = (
    "switch on point-in-time recovery of its tables and versioning of its blob bucket;"
    " AWS then restores any second of the last 35 days into new tables (docs/aws.md)"
)


class AwsLedger:
    """One deployment (a region and a prefix) as used by one process."""

    missing_capabilities = frozenset(
        {
            "backup",
            "change counter",
            "proof of death",
            "fair lanes",
            "lane counts",
            "exact counts",
            "one step",
        }
    )
    work_queues, row_expiry = True, True
    known_format = KNOWN_FORMAT

    def __init__(
        self,
        requests: Requests,
        prefix: str,
        blobs: Blobs,
        *,
        settings: StoreSettings | None = None,
        make: bool = False,
    ) -> None:
        settings = settings or StoreSettings()
        names = ResourceNames(prefix)
        notice_ms = 2 * settings.fresh_ms
        self.timing = Timing(
            settings.grace_ms,
            settings.offer_life_ms,
            settings.resend_delay_ms,
            SEALED_FOR_MS,
            notice_ms,
        )
        self.url = f"dynamodb://{requests.region}/{prefix}" + (
            f"?endpoint={requests.endpoint}" if requests.endpoint else ""
        )
        self.store = AwsStore(requests, names, blobs, settings)
        self.foreign_rows, self.quarantine = AwsForeignRows(self.store), AwsQuarantine(self.store)
        self._claims = MessageClaims(self.store)
        self._lost_messages = LostMessages(self.store)
        self._make = make
        self._made: set[tuple[str, str]] = set()
        if make:
            make_common(requests, names)

    @classmethod
    def open(cls, address: Address, blobs: Blobs, *, make: bool = True) -> AwsLedger:
        """The ledger at an address. On a stand-in (with an endpoint) this creates tables and
        queues; on AWS a stack does. With `make=False` a missing ledger raises LedgerMissing."""
        requests = Requests(address.region, address.endpoint)
        try:
            if address.endpoint is None or not make:
                upkeep.check_there(requests, address.prefix)
            settings = StoreSettings(long_poll_s=LONGEST_WAIT_S)
            if address.repair_within_ms is not None:
                settings = replace(settings, repair_within_ms=address.repair_within_ms)
            return cls(
                requests,
                address.prefix,
                blobs,
                settings=settings,
                make=address.endpoint is not None,
            )
        except BaseException:
            requests.close()
            raise

    def prepare(self, plan: Plan) -> Plan:
        """Load the route, and on a stand-in create its tables and queues."""
        if self._make and (plan.name, plan.digest) not in self._made:
            make_route(self.store.requests, self.store.names, plan)
            self._made.add((plan.name, plan.digest))
        self.store.load_route(plan)
        return self.store.plans[plan.name]

    # Items ----------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        return intake.peek(self.store, route, keys)

    def recognise(
        self, route: str, keys: Sequence[str], digests: Sequence[bytes]
    ) -> list[KnownKey | Same | None]:
        return compare(self.peek(route, keys), digests)

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        layout = Layout.of(plan, self.store.names.rows(plan.name))
        return {key: why for key in keys if (why := layout.key_fault(key)) is not None}

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        self.prepare(plan)
        if self.store.outdated(plan.name, plan.version, now):
            raise RouteChanged(
                f"the ledger holds another version of route {plan.name!r}; run 'milepost routes apply', or restart this process"
            )
        return intake.add(self.store, plan, new_items, now)

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        for ask in asks:
            self.prepare(ask.plan)
        results: list[ClaimResult] = []
        for ask in asks:
            try:
                results.append(self._claims.claim(ask, now, jitter))
            except LedgerError as error:
                # Items already claimed for other stages belong to this worker.
                if not any(result.items for result in results):
                    raise
                log.warning("cannot claim for %s/%s now: %s", ask.plan.name, ask.stage, error)
                results.append(ClaimResult([], next_at=now + self.store.settings.poll_ms))
        return results

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        return apply.apply(self.store, changes, now, versions)

    def apply_and_claim(
        self,
        changes: Sequence[Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ClaimRequest],
        jitter: float,
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        return self.apply(changes, now, versions), self.claim(asks, now, jitter)

    def extend(
        self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()
    ) -> list[bool]:
        return apply.extend(self.store, rows, until, now, tickets)

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        apply.drop_tickets(self.store, tickets)

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        images = self.store.rows(refs)

        def read(route: str, key: str) -> Item | Refused | None:
            layout, image = self.store.layout(route), images.get((route, key))
            return (
                None
                if layout is None or image is None
                else item_or_refused(self.store, layout, image)
            )

        return [read(route, key) for route, key in refs]

    def find(self, query: Query) -> QueryPage:
        return find(self.store, query)

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        return self.store.history(
            route, key, self.store.images(route, [key]).get(key), payloads=payloads
        )

    # Feed, counters, documents --------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        return self.store.journal.feed(after, limit)

    def last_seq(self) -> int:
        return self.store.journal.last_seq()

    def counts(self, route: str | None = None) -> list[Count]:
        return self.store.counters.counts(route)

    def groups(self, route: str | None = None) -> list[Group]:
        return self.store.counters.groups(route)

    def lane_counts(self, route: str, now: int, lists: Collection[str] = ()) -> None:
        """None: rows would have to be read."""

    def entered_by(self, route: str, stage: str, until: int) -> None:
        """None: rows would have to be read."""

    def read(self, kind: str) -> dict[str, Document]:
        return self.store.read(kind)

    def read_one(self, kind: str, name: str) -> Document | None:
        return self.store.control.read_one(kind, name)

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        return self.store.control.write(kind, name, value, expect)

    # Upkeep ---------------------------------------------------------------------------------------
    def cost_of(self, query: Query) -> ScanCost | None:
        return cost_of(self.store, query)

    def sealed(
        self, route: str, after: str | None, limit: int
    ) -> tuple[list[KnownKey], str | None]:
        return upkeep.sealed(self.store, route, after, limit)

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        return self.store.left_failures(route, prefix, after, limit)

    def take_over(
        self,
        plan: Plan,
        items: Sequence[Item],
        lines: Sequence[HistoryEntry],
        seals: Sequence[KnownKey],
        now: int,
    ) -> TransferResult:
        self.prepare(plan)
        return take_over(self.store, plan, items, lines, seals, now)

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        known = list(plans)
        for plan in known:
            self.prepare(plan)
        return upkeep.next_due(self.store, known)

    def missing_messages(self, plan: Plan, now: int) -> dict[str, int]:
        self.prepare(plan)
        return self._lost_messages.missing(plan, now)

    def lost_messages(self, plan: Plan, now: int, limit: int) -> list[Item]:
        self.prepare(plan)
        return self._lost_messages.find(plan, now, limit)

    def rename_stage(self, route: str, old: str, new: str) -> None:
        upkeep.rename_stage(self.store, route, old, new)

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        return upkeep.reclaim(self.store, holders, now)

    def prune(self, asked: PruneCriteria) -> Pruned:
        return prune(self.store, asked)

    def forget(self, asked: ForgetRequest) -> Forgotten:
        return forget(self.store, asked)

    def sign_on(self, holder: str) -> None:
        """No-op: for a process on another machine, only an expired lease proves its death."""

    def sign_off(self, holder: str) -> None: ...

    def dead_workers(self) -> list[str]:
        return []

    def change_counter(self) -> int:
        """Constant: workers claim again at `ClaimResult.next_at`."""
        return 0

    def idle_upkeep(self) -> None: ...

    def clock(self) -> Clock:
        """That of AWS's answers: the rows of one deployment are judged on many machines."""
        requests = self.store.requests
        key = {"kind": {"S": ROUTE}, "name": {"S": "none"}}  # of a kind that every role may read
        ask = partial(
            requests.ask, "dynamodb", "get_item", TableName=self.store.names.control, Key=key
        )
        return AnswerClock(requests.dates, requests.clock, ask)

    def services(
        self, plans: Mapping[str, Plan], clock: Clock, chance: Chance, holder: str
    ) -> list[tuple[str, Service]]:
        for plan in plans.values():
            self.prepare(plan)
        reader = StreamReader(self.store, plans, clock, chance.jitter, holder)
        return [("relay", reader), ("resender", Sweeper(self.store, plans, clock, chance.jitter))]

    def counted_future(self, route: str) -> FutureCount | None:
        return counted_future(self.store, route)

    def format(self) -> TablesFormat:
        control = self.store.control
        return TablesFormat(control.format(), KNOWN_FORMAT, control.old_documents())

    def raise_format(self) -> int:
        return self.store.control.raise_format()

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        raise LedgerError(f"{self.url} cannot be backed up into a file: {PITR}")

    def describe(self) -> dict[str, Any]:
        return upkeep.describe(self.store, self.url)

    def close(self) -> None:
        self._claims.close()
        self.store.requests.close()


def parse(url: str) -> Address:
    """The address in a ledger URL."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    prefix = parts.path.strip("/")
    if (
        parts.scheme != "dynamodb"
        or not parts.netloc
        or not prefix
        or "/" in prefix
        or query.keys() - set(OPTIONS)
    ):
        raise ConfigMistake(f"the ledger {url!r} is not of the form {FORM}")
    endpoint, blobs, within = (query[name][0] if name in query else None for name in OPTIONS)
    within_ms = None if within is None else span_ms(within, f"repair-within of the ledger {url!r}")
    return Address(parts.netloc, prefix, endpoint, blobs, within_ms)
