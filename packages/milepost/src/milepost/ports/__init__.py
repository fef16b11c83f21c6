"""Ports: the interfaces that the rules need (ledger, clock, runner, observer, subscriber, blob
store), and what the author of a ledger imports.

    from milepost import ports

    class MyLedger:  # a ports.Ledger
        def find(self, query: ports.Query) -> ports.QueryPage: ...

Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.lazy_names import importer, names_in

if TYPE_CHECKING:
    from milepost.composition import open_ledger as open_ledger
    from milepost.core.admission.breakers import PROBE_CANDIDATES as PROBE_CANDIDATES
    from milepost.core.admission.breakers import BreakerRecord as BreakerRecord
    from milepost.core.admission.breakers import ask_again_at as ask_again_at
    from milepost.core.admission.breakers import at_clock as at_clock
    from milepost.core.admission.breakers import breaker_after as breaker_after
    from milepost.core.admission.breakers import probe_order as probe_order
    from milepost.core.admission.breakers import room_for as room_for
    from milepost.core.admission.breakers import transition as transition
    from milepost.core.admission.breakers import with_leases as with_leases
    from milepost.core.admission.breakers import with_probes as with_probes
    from milepost.core.admission.controls import Controls as Controls
    from milepost.core.admission.controls import LaneItems as LaneItems
    from milepost.core.admission.controls import Limit as Limit
    from milepost.core.admission.controls import is_held as is_held
    from milepost.core.admission.controls import lanes_above as lanes_above
    from milepost.core.admission.controls import scope as scope
    from milepost.core.admission.lanes import share_out as share_out
    from milepost.core.admission.rates import CallRate as CallRate
    from milepost.core.admission.rates import TokenBucket as TokenBucket
    from milepost.core.admission.rates import calls_left as calls_left
    from milepost.core.admission.rates import next_call_at as next_call_at
    from milepost.core.admission.rates import refill as refill
    from milepost.core.admission.rates import spend as spend
    from milepost.core.admission.rates import was_set_back as was_set_back
    from milepost.core.change import Change as Change
    from milepost.core.change import holds as holds
    from milepost.core.change import keeps_lease as keeps_lease
    from milepost.core.counters import HOUR as HOUR
    from milepost.core.counters import CounterKey as CounterKey
    from milepost.core.counters import GroupKey as GroupKey
    from milepost.core.counters import count_all as count_all
    from milepost.core.due import FRAGILE as FRAGILE
    from milepost.core.due import Lease as Lease
    from milepost.core.due import claimed_on_arrival as claimed_on_arrival
    from milepost.core.due import fragile as fragile
    from milepost.core.due import look as look
    from milepost.core.errors import ConfigMistake as ConfigMistake
    from milepost.core.errors import LedgerBusy as LedgerBusy
    from milepost.core.errors import LedgerDamaged as LedgerDamaged
    from milepost.core.errors import LedgerError as LedgerError
    from milepost.core.errors import LedgerForeign as LedgerForeign
    from milepost.core.errors import LedgerFull as LedgerFull
    from milepost.core.errors import LedgerMissing as LedgerMissing
    from milepost.core.errors import LedgerReadOnly as LedgerReadOnly
    from milepost.core.errors import LedgerTooNew as LedgerTooNew
    from milepost.core.errors import LedgerUnavailable as LedgerUnavailable
    from milepost.core.errors import RouteChanged as RouteChanged
    from milepost.core.errors import TooManyOpenFiles as TooManyOpenFiles
    from milepost.core.errors import UsageError as UsageError
    from milepost.core.failures import unreadable as unreadable
    from milepost.core.forecast import LaneCount as LaneCount
    from milepost.core.forgetting import REMOVED_TEXT as REMOVED_TEXT
    from milepost.core.forgetting import forgotten_name as forgotten_name
    from milepost.core.history import Line as Line
    from milepost.core.history import link as link
    from milepost.core.item import Content as Content
    from milepost.core.item import Failure as Failure
    from milepost.core.item import Item as Item
    from milepost.core.item import KeyPart as KeyPart
    from milepost.core.item import Put as Put
    from milepost.core.item import Row as Row
    from milepost.core.routes.breaker import Breaker as Breaker
    from milepost.core.routes.one_field import KeyDigests as KeyDigests
    from milepost.core.routes.plan import Plan as Plan
    from milepost.core.routes.route import Limits as Limits
    from milepost.core.routes.route import Stage as Stage
    from milepost.core.status import FAILED as FAILED
    from milepost.core.status import LIVE as LIVE
    from milepost.core.status import TERMINAL as TERMINAL
    from milepost.core.status import Reason as Reason
    from milepost.core.status import Status as Status
    from milepost.core.values.durations import rate_per_second as rate_per_second
    from milepost.core.values.key_text import SEPARATOR as SEPARATOR
    from milepost.ports.blobs import Blobs as Blobs
    from milepost.ports.clock import CheckedClock as CheckedClock
    from milepost.ports.clock import ClockState as ClockState
    from milepost.ports.documents import BREAKER as BREAKER
    from milepost.ports.documents import EPOCH as EPOCH
    from milepost.ports.documents import FORGET as FORGET
    from milepost.ports.documents import HOLD as HOLD
    from milepost.ports.documents import LIMIT as LIMIT
    from milepost.ports.documents import ROUTE as ROUTE
    from milepost.ports.documents import SECRET as SECRET
    from milepost.ports.documents import DamagedValue as DamagedValue
    from milepost.ports.documents import Document as Document
    from milepost.ports.documents import Epoch as Epoch
    from milepost.ports.documents import LedgerDocuments as LedgerDocuments
    from milepost.ports.documents import raised_epoch as raised_epoch
    from milepost.ports.documents import read_as as read_as
    from milepost.ports.documents import sort_out as sort_out
    from milepost.ports.extensions import LedgerScheme as LedgerScheme
    from milepost.ports.extensions import OpenLedger as OpenLedger
    from milepost.ports.feed import Count as Count
    from milepost.ports.feed import Group as Group
    from milepost.ports.feed import HistoryEntry as HistoryEntry
    from milepost.ports.feed import LedgerFeed as LedgerFeed
    from milepost.ports.foreign_rows import Adopted as Adopted
    from milepost.ports.foreign_rows import ForeignRow as ForeignRow
    from milepost.ports.foreign_rows import ForeignRowPage as ForeignRowPage
    from milepost.ports.foreign_rows import ForeignRowStore as ForeignRowStore
    from milepost.ports.foreign_rows import LedgerForeignRows as LedgerForeignRows
    from milepost.ports.foreign_rows import QuarantineEntry as QuarantineEntry
    from milepost.ports.foreign_rows import QuarantineStore as QuarantineStore
    from milepost.ports.items import Additions as Additions
    from milepost.ports.items import ClaimRequest as ClaimRequest
    from milepost.ports.items import ClaimResult as ClaimResult
    from milepost.ports.items import Conflict as Conflict
    from milepost.ports.items import KnownKey as KnownKey
    from milepost.ports.items import LedgerItems as LedgerItems
    from milepost.ports.items import NewItem as NewItem
    from milepost.ports.items import Query as Query
    from milepost.ports.items import QueryPage as QueryPage
    from milepost.ports.items import Refused as Refused
    from milepost.ports.items import Same as Same
    from milepost.ports.items import Timing as Timing
    from milepost.ports.items import compare as compare
    from milepost.ports.ledger import MISSING_CAPABILITIES as MISSING_CAPABILITIES
    from milepost.ports.ledger import Ledger as Ledger
    from milepost.ports.ledger import LedgerPresence as LedgerPresence
    from milepost.ports.retention import DeliveredLines as DeliveredLines
    from milepost.ports.retention import ForgetRequest as ForgetRequest
    from milepost.ports.retention import Forgotten as Forgotten
    from milepost.ports.retention import Keep as Keep
    from milepost.ports.retention import Leaving as Leaving
    from milepost.ports.retention import LedgerRetention as LedgerRetention
    from milepost.ports.retention import LeftFailures as LeftFailures
    from milepost.ports.retention import PruneCriteria as PruneCriteria
    from milepost.ports.retention import Pruned as Pruned
    from milepost.ports.retention import emptied as emptied
    from milepost.ports.retention import not_ended as not_ended
    from milepost.ports.runner import Chance as Chance
    from milepost.ports.runner import Clock as Clock
    from milepost.ports.service import Service as Service
    from milepost.ports.upkeep import BackupReport as BackupReport
    from milepost.ports.upkeep import FutureCount as FutureCount
    from milepost.ports.upkeep import LedgerUpkeep as LedgerUpkeep
    from milepost.ports.upkeep import Progress as Progress
    from milepost.ports.upkeep import RestoreReport as RestoreReport
    from milepost.ports.upkeep import ScanCost as ScanCost
    from milepost.ports.upkeep import TablesFormat as TablesFormat
    from milepost.ports.upkeep import TransferResult as TransferResult

_HOMES = {
    "composition": ("open_ledger",),
    "core.admission.breakers": (
        "BreakerRecord",
        "PROBE_CANDIDATES",
        "ask_again_at",
        "at_clock",
        "breaker_after",
        "probe_order",
        "room_for",
        "transition",
        "with_leases",
        "with_probes",
    ),
    "core.admission.controls": (
        "Controls",
        "LaneItems",
        "Limit",
        "is_held",
        "lanes_above",
        "scope",
    ),
    "core.admission.lanes": ("share_out",),
    "core.admission.rates": (
        "CallRate",
        "TokenBucket",
        "calls_left",
        "next_call_at",
        "refill",
        "spend",
        "was_set_back",
    ),
    "core.change": (
        "Change",
        "holds",
        "keeps_lease",
    ),
    "core.counters": (
        "CounterKey",
        "GroupKey",
        "HOUR",
        "count_all",
    ),
    "core.due": (
        "FRAGILE",
        "Lease",
        "claimed_on_arrival",
        "fragile",
        "look",
    ),
    "core.errors": (
        "ConfigMistake",
        "LedgerBusy",
        "LedgerDamaged",
        "LedgerError",
        "LedgerForeign",
        "LedgerFull",
        "LedgerMissing",
        "LedgerReadOnly",
        "LedgerTooNew",
        "LedgerUnavailable",
        "RouteChanged",
        "TooManyOpenFiles",
        "UsageError",
    ),
    "core.failures": ("unreadable",),
    "core.forecast": ("LaneCount",),
    "core.forgetting": (
        "REMOVED_TEXT",
        "forgotten_name",
    ),
    "core.history": (
        "Line",
        "link",
    ),
    "core.item": (
        "Content",
        "Failure",
        "Item",
        "KeyPart",
        "Put",
        "Row",
    ),
    "core.routes.breaker": ("Breaker",),
    "core.routes.one_field": ("KeyDigests",),
    "core.routes.plan": ("Plan",),
    "core.routes.route": (
        "Limits",
        "Stage",
    ),
    "core.status": (
        "FAILED",
        "LIVE",
        "Reason",
        "Status",
        "TERMINAL",
    ),
    "core.values.durations": ("rate_per_second",),
    "core.values.key_text": ("SEPARATOR",),
    "ports.blobs": ("Blobs",),
    "ports.clock": (
        "CheckedClock",
        "ClockState",
    ),
    "ports.documents": (
        "BREAKER",
        "DamagedValue",
        "Document",
        "EPOCH",
        "Epoch",
        "FORGET",
        "HOLD",
        "LIMIT",
        "LedgerDocuments",
        "ROUTE",
        "SECRET",
        "raised_epoch",
        "read_as",
        "sort_out",
    ),
    "ports.extensions": (
        "LedgerScheme",
        "OpenLedger",
    ),
    "ports.feed": (
        "Count",
        "Group",
        "HistoryEntry",
        "LedgerFeed",
    ),
    "ports.foreign_rows": (
        "Adopted",
        "ForeignRow",
        "ForeignRowPage",
        "ForeignRowStore",
        "LedgerForeignRows",
        "QuarantineEntry",
        "QuarantineStore",
    ),
    "ports.items": (
        "Additions",
        "ClaimRequest",
        "ClaimResult",
        "Conflict",
        "KnownKey",
        "LedgerItems",
        "NewItem",
        "Query",
        "QueryPage",
        "Refused",
        "Same",
        "Timing",
        "compare",
    ),
    "ports.ledger": (
        "Ledger",
        "LedgerPresence",
        "MISSING_CAPABILITIES",
    ),
    "ports.retention": (
        "DeliveredLines",
        "ForgetRequest",
        "Forgotten",
        "Keep",
        "Leaving",
        "LedgerRetention",
        "LeftFailures",
        "PruneCriteria",
        "Pruned",
        "emptied",
        "not_ended",
    ),
    "ports.runner": (
        "Chance",
        "Clock",
    ),
    "ports.service": ("Service",),
    "ports.upkeep": (
        "BackupReport",
        "FutureCount",
        "LedgerUpkeep",
        "Progress",
        "RestoreReport",
        "ScanCost",
        "TablesFormat",
        "TransferResult",
    ),
}
"""Public names by module, for those who write ledgers: the port, its values, and the rules that
every ledger applies."""
__all__ = names_in(_HOMES)


if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = importer(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
