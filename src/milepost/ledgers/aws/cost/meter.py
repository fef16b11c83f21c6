"""What one step of an item takes in requests, units and bytes, and what many items share.

How heavy a row is follows from what is written on it; DynamoDB charges a write by the row's larger side, before or after, in whole
KB. What is shared (blocks of the journal, cells of the counters, calls of functions, batches of messages) follows from how full
batches are.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil

from msgspec import Struct

from milepost.core.routes.route import Stage
from milepost.ledgers.aws.cost.steps import (
    BLOCK,
    BLOCK_LINE,
    CHUNK,
    ENTERED,
    ENTRIES,
    ENTRY,
    EVENT,
    EVIDENCE,
    EVIDENCE_LINE,
    EVIDENCE_MS,
    FEED,
    KB,
    KEYS,
    LINE,
    LOG_BYTES,
    MEMORY_GB,
    MESSAGES,
    OFFERS_ALONE,
    OVERHEAD,
    PART,
    PLACE,
    READ,
    RECORDS,
    RELAY_MS,
    RELAY_RECORD_MS,
    SAME_CELL,
    SEAL,
    STEPS,
    UNTOUCHED,
    WRITES,
)
from milepost.ledgers.aws.names import ResourceNames
from milepost.ledgers.aws.tables.values import LARGEST


class Usage(Struct, frozen=True, kw_only=True):
    """How items behave that travel a route."""

    retries: float = 0.0
    """The share of tries at handler stages that fail."""
    checks: int = 1
    """Looks at each waiting item: at external stages, and at handler stages that have a schedule of looks of their own."""
    wait_ms: int = 86_400_000
    """How long an item is at each external stage."""
    payload: int = 500
    result: int = 100
    """Bytes of the input, and of what each external stage answers."""
    key: int = 40
    batch: int = 10
    """How full batches are: of messages, up to 10; of a stream's records, up to 100."""
    takes_ms: int = 100
    """How long a handler takes."""
    adopted: bool = False
    """Rows are put by others and taken in by the relay."""
    offers: bool = True
    """Offers to external stages are published on the topic too, beside each stage's own queue."""
    lambdas: bool = True
    """Relay and workers are functions; else processes of your own, which are not priced here."""


class Need(Struct):
    """What one item needs, as an expected value."""

    calls: defaultdict[tuple[str, str], float]
    """Requests by (service, operation), everybody's."""
    units: defaultdict[tuple[str, str], float]
    """Units by (table, "read" | "write"); an index's share is under "table/index"."""
    steps: defaultdict[str, float]
    records: float = 0.0
    lines: float = 0.0
    events: float = 0.0
    messages: float = 0.0
    queue_requests: float = 0.0
    publishes: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    stream_reads: float = 0.0
    log_bytes: float = 0.0
    row_bytes: float = 0.0
    """While it is on its way, at its heaviest, with its entry in the index."""
    kept_bytes: float = 0.0
    """For good: history, seal, its share of the journal."""
    blob_bytes: float = 0.0

    def total(self, kind: str) -> float:
        """Units of all tables: "read" or "write"."""
        return sum(units for (_, which), units in self.units.items() if which == kind)


class Meter:
    """Adds up what one item needs; `row` is how heavy it is by now, part by part."""

    def __init__(self, route: str, usage: Usage, names: ResourceNames) -> None:
        self.rows, self.names = names.rows(route), names
        self.need = Need(defaultdict(float), defaultdict(float), defaultdict(float))
        self.row: dict[str, int] = {}
        self.full = min(MESSAGES, max(1, usage.batch))
        self.blob = usage.payload > LARGEST
        self._usage = usage
        self._history = 0.0
        """Bytes of the item's lines."""
        self._cells: defaultdict[str, float] = defaultdict(float)
        """How often each cell that items of this route are counted in (a stage and a status) is touched."""

    def step(
        self,
        name: str,
        weight: float = 1.0,
        stage: Stage | None = None,
        *,
        lines: float = 0.0,
        offers: bool = False,
        row: dict[str, int] | None = None,
    ) -> None:
        """One write, which changes these parts of the row. `offers`: its line carries a payload."""
        if weight <= 0:
            return
        step, need = STEPS[name], self.need
        before = sum(self.row.values())
        self.row |= row or {}
        if name not in UNTOUCHED:
            self.row["entered"] = 0 if name in ENTRIES else ENTERED
        heavy = max(before, sum(self.row.values()))
        need.row_bytes = max(need.row_bytes, heavy + OVERHEAD + ENTRY)
        need.steps[name] += weight
        need.records += weight
        self._cells[f"{SAME_CELL.get(name, name)} {stage.name if stage else ''}"] += step.cells * weight
        if name != "gone":
            need.calls["dynamodb", "put_item" if name in ("put", "put by others") else "update_item"] += weight
            need.units[self.rows, "write"] += weight * ceil(heavy / KB)
            need.units[f"{self.rows}/due", "write"] += weight * step.index
        told = (step.lines or lines) * weight
        if told:
            size = LINE + (min(self._usage.payload, LARGEST) if offers else 0)
            need.lines += told
            # The relay's own offer is told as an offer alone; one that came with another line beside it.
            need.events += told * ((name not in OFFERS_ALONE) + (offers and self._usage.offers))
            need.units[self.names.history, "write"] += told * ceil(size / KB)
            need.kept_bytes += told * (size + OVERHEAD)
            self._history += told * size
            need.calls["s3", "put_object"] += told * (offers and self.blob)
        # The relay reads what a row refers to, each time that it is told of it.
        need.calls["s3", "get_object"] += weight * self.blob

    def reads(self, table: str, weight: float, together: int) -> None:
        self.need.units[table, "read"] += weight
        self.need.calls["dynamodb", "batch_get_item"] += weight / together

    def tokens(self, takes: float) -> None:
        """A rate is a bucket in the control table: read, then written if nobody else has meanwhile."""
        need, control = self.need, self.names.control
        for operation, kind in (("get_item", "read"), ("update_item", "write")):
            need.calls["dynamodb", operation] += takes
            need.units[control, kind] += takes

    def message(self, size: int, weight: float = 1.0) -> None:
        """Sent, and deleted when it has done its work."""
        self.need.messages += weight
        self._queue("send_message_batch", weight, size)
        self._queue("delete_message_batch", weight, 0)

    def receive(self, size: int, weight: float) -> None:
        self._queue("receive_message", weight, size)

    def _queue(self, operation: str, weight: float, size: int) -> None:
        calls = weight / self.full
        self.need.calls["sqs", operation] += calls
        self.need.queue_requests += calls * max(1, ceil(self.full * size / CHUNK))

    def invoke(self, weight: float, ms: float) -> None:
        self.need.invocations += weight
        self.need.gb_seconds += weight * ms / 1000 * MEMORY_GB
        self.need.log_bytes += weight * LOG_BYTES

    # What items share ---------------------------------------------------------------------------------------------------
    def share(self) -> None:
        """The relay's calls, and what is written once in each of them; the topic, whose subscriber reads every line."""
        need, usage, control = self.need, self._usage, self.names.control
        many = min(RECORDS, max(1, usage.batch))
        calls = need.records / many
        blocks = min(need.lines, calls)
        block = BLOCK + need.lines / blocks * (usage.key + BLOCK_LINE)
        # In a busy table a call meets all kinds of steps; a cell is written once in it, however many items move.
        cells = sum(min(calls, touched) for touched in self._cells.values())
        need.calls["dynamodb", "put_item"] += blocks
        need.calls["dynamodb", "update_item"] += cells + (0 if usage.lambdas else calls)
        need.units[control, "write"] += blocks * ceil(block / KB) + cells + (0 if usage.lambdas else calls)
        # How far everybody has been told, once a call; and each line with its block for the topic.
        need.calls["dynamodb", "query"] += calls + blocks
        need.units[control, "read"] += calls + blocks * ceil(block / KB / 4)
        need.units[self.names.history, "read"] += need.lines
        need.calls["dynamodb", "batch_get_item"] += need.lines / min(KEYS, many)
        need.calls["dynamodb", "batch_write_item"] += calls * ceil(need.lines / calls / WRITES) * min(1.0, blocks / calls) + 1 / many
        need.units[self.names.seen, "write"] += 1
        need.kept_bytes += SEAL + OVERHEAD + need.lines * (usage.key + BLOCK_LINE)
        need.stream_reads += calls
        need.calls["sns", "publish_batch"] += need.events / self.full
        need.publishes += need.events / self.full * max(1, ceil(self.full * EVENT / CHUNK))
        if usage.lambdas:
            self.invoke(calls, RELAY_MS + RELAY_RECORD_MS * many)

    def evidence(self, results: float) -> None:
        """What an item's end costs where evidence is kept, and what its lines cost the daily head; `results`: bytes of what its stages
        gave. The relay has the row at hand: it reads the lines before, and writes one blob."""
        need = self.need
        need.calls["dynamodb", "query"] += 1
        need.units[self.names.history, "read"] += ceil(self._history / READ)
        need.calls["s3", "put_object"] += 1
        need.blob_bytes += EVIDENCE + self._usage.payload + EVIDENCE_LINE * need.lines + results
        if self._usage.lambdas:
            need.gb_seconds += EVIDENCE_MS / 1000 * MEMORY_GB
        # Each line is read once more, with its share of a block, and has a place in a blob of the head's tree.
        need.calls["dynamodb", "query"] += need.lines / FEED
        need.units[self.names.control, "read"] += need.lines * (self._usage.key + BLOCK_LINE) / READ
        need.calls["dynamodb", "batch_get_item"] += need.lines / KEYS
        need.units[self.names.history, "read"] += need.lines
        need.calls["s3", "put_object"] += need.lines / PART
        need.blob_bytes += need.lines * PLACE
