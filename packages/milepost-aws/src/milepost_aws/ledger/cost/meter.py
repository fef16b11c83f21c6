"""Cost meter: requests, units and bytes of each step of an item, and its share of what many items
have in common.

A row's size follows from its parts; DynamoDB charges a write by the larger of the sizes before and
after, in whole KB. Shared costs (journal blocks, counter cells, function calls, message batches)
follow from how full batches are.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil

from msgspec import Struct

from milepost.core.routes.route import Stage
from milepost_aws.ledger.cost import steps
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.tables.values import LARGEST


class Usage(Struct, frozen=True, kw_only=True):
    """Behaviour of the items of a route."""

    retries: float = 0.0
    """Share of failed attempts at handler stages."""
    rejects: float = 0.0
    """Share of attempts at handler stages that are rejected for good."""
    checks: int = 1
    """Looks at each waiting item, at external stages and at handler stages with their own schedule
    of looks."""
    wait_ms: int = 86_400_000
    """Time that an item spends at each external stage."""
    payload: int = 500
    result: int = 100
    """Bytes of the input, and of the answer of each external stage."""
    output: int = 0
    """Bytes of the output of each handler stage, and of the details of its errors."""
    key: int = 40
    batch: int = 10
    """How full batches are: messages up to 10, stream records up to 100."""
    takes_ms: int = 100
    """Duration of a handler call."""
    sends: int = 0
    """Bytes that each handler call sends out of AWS."""
    endpoint: bool = False
    """Each item comes by a request of its own, through API Gateway and the function that accepts
    it."""
    adopted: bool = False
    """Rows are put by other programs and adopted by the relay."""
    offers: bool = True
    """Offers to external stages are also published on the topic."""
    lambdas: bool = True
    """Relay and workers are Lambda functions; otherwise processes of your own, which are not priced
    here."""


class Need(Struct):
    """Expected requests, units and bytes of one item."""

    calls: defaultdict[tuple[str, str], float]
    """Requests by (service, operation), of all parties."""
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
    api_requests: float = 0.0
    bytes_out: float = 0.0
    """Sent out of AWS: answers to those who hand over items, and what handlers send."""
    stream_reads: float = 0.0
    log_bytes: float = 0.0
    row_bytes: float = 0.0
    """While in progress: the largest row with its index entry."""
    kept_bytes: float = 0.0
    """Permanent: history, seal, share of the journal."""
    blob_bytes: float = 0.0

    def total(self, kind: str) -> float:
        """Units of all tables: "read" or "write"."""
        return sum(units for (_, which), units in self.units.items() if which == kind)


class Meter:
    """Adds up what one item needs; `row` has the present size of each part of its row."""

    def __init__(self, route: str, usage: Usage, names: ResourceNames) -> None:
        self.rows, self.names = names.rows(route), names
        self.need = Need(defaultdict(float), defaultdict(float), defaultdict(float))
        self.row: dict[str, int] = {}
        self.full = min(steps.MESSAGES, max(1, usage.batch))
        self.blob = usage.payload > LARGEST
        self._usage = usage
        self._history = 0.0
        """Bytes of the item's lines."""
        self._cells: defaultdict[str, float] = defaultdict(float)
        """How often each counter cell of the route (a stage and a status) is written."""

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
        """One write that changes these parts of the row. `offers`: its line has a payload."""
        if weight <= 0:
            return
        step, need = steps.STEPS[name], self.need
        before = sum(self.row.values())
        self.row |= row or {}
        if name not in steps.UNTOUCHED:
            self.row["entered"] = 0 if name in steps.ENTRIES else steps.ENTERED
        heavy = max(before, sum(self.row.values()))
        need.row_bytes = max(need.row_bytes, heavy + steps.OVERHEAD + steps.ENTRY)
        need.steps[name] += weight
        need.records += weight
        self._cells[f"{steps.SAME_CELL.get(name, name)} {stage.name if stage else ''}"] += (
            step.cells * weight
        )
        if name != "gone":
            need.calls[
                "dynamodb", "put_item" if name in ("put", "put by others") else "update_item"
            ] += weight
            need.units[self.rows, "write"] += weight * ceil(heavy / steps.KB)
            need.units[f"{self.rows}/due", "write"] += weight * step.index
        written = (step.lines or lines) * weight
        if written:
            size = steps.LINE + (min(self._usage.payload, LARGEST) if offers else 0)
            need.lines += written
            # The relay's own offer makes only the event `offered`; an offer in another line makes
            # it in addition.
            need.events += written * (
                (name not in steps.OFFERS_ALONE) + (offers and self._usage.offers)
            )
            need.units[self.names.history, "write"] += written * ceil(size / steps.KB)
            need.kept_bytes += written * (size + steps.OVERHEAD)
            self._history += written * size
            need.calls["s3", "put_object"] += written * (offers and self.blob)
        # The relay reads the blobs of a row with each of its stream records.
        need.calls["s3", "get_object"] += weight * self.blob

    def reads(self, table: str, weight: float, together: int) -> None:
        self.need.units[table, "read"] += weight
        self.need.calls["dynamodb", "batch_get_item"] += weight / together

    def tokens(self, takes: float) -> None:
        """A rate limit is a bucket in the control table: one read and one conditional write."""
        need, control = self.need, self.names.control
        for operation, kind in (("get_item", "read"), ("update_item", "write")):
            need.calls["dynamodb", operation] += takes
            need.units[control, kind] += takes

    def message(self, size: int, weight: float = 1.0) -> None:
        """One message, sent and later deleted."""
        self.need.messages += weight
        self._queue("send_message_batch", weight, size)
        self._queue("delete_message_batch", weight, 0)

    def receive(self, size: int, weight: float) -> None:
        self._queue("receive_message", weight, size)

    def _queue(self, operation: str, weight: float, size: int) -> None:
        calls = weight / self.full
        self.need.calls["sqs", operation] += calls
        self.need.queue_requests += calls * max(1, ceil(self.full * size / steps.CHUNK))

    def endpoint(self, size: int) -> None:
        """A request to API Gateway, the call of the function behind it, and the answer."""
        self.need.api_requests += max(1, ceil(size / steps.API_CHUNK))
        self.need.bytes_out += steps.ANSWER
        self.invoke(1.0, steps.ACCEPT_MS, steps.ACCEPT_GB)

    def invoke(self, weight: float, ms: float, memory_gb: float = steps.MEMORY_GB) -> None:
        self.need.invocations += weight
        self.need.gb_seconds += weight * ms / 1000 * memory_gb
        self.need.log_bytes += weight * steps.LOG_BYTES

    # Shared costs ---------------------------------------------------------------------------------
    def share(self) -> None:
        """The relay's calls and the writes made once per call; the topic, whose subscriber reads
        every line."""
        need, usage, control = self.need, self._usage, self.names.control
        many = min(steps.RECORDS, max(1, usage.batch))
        calls = need.records / many
        blocks = min(need.lines, calls)
        block = steps.BLOCK + need.lines / blocks * (usage.key + steps.BLOCK_LINE)
        # In a busy table one call handles all kinds of steps; each cell is written once per call,
        # however many items move.
        cells = sum(min(calls, touched) for touched in self._cells.values())
        need.calls["dynamodb", "put_item"] += blocks
        need.calls["dynamodb", "update_item"] += cells + (0 if usage.lambdas else calls)
        need.units[control, "write"] += (
            blocks * ceil(block / steps.KB) + cells + (0 if usage.lambdas else calls)
        )
        # Cursors once per call; and each line with its block for the topic.
        need.calls["dynamodb", "query"] += calls + blocks
        need.units[control, "read"] += calls + blocks * ceil(block / steps.KB / 4)
        # A function looks for its lines before it writes them: its records may come a second time.
        read = need.lines * (1 + usage.lambdas)
        need.units[self.names.history, "read"] += read
        need.calls["dynamodb", "batch_get_item"] += read / min(steps.KEYS, many)
        need.calls["dynamodb", "batch_write_item"] += (
            calls * ceil(need.lines / calls / steps.WRITES) * min(1.0, blocks / calls) + 1 / many
        )
        need.units[self.names.seen, "write"] += 1
        need.kept_bytes += steps.SEAL + steps.OVERHEAD + need.lines * (usage.key + steps.BLOCK_LINE)
        need.stream_reads += calls
        need.calls["sns", "publish_batch"] += need.events / self.full
        need.publishes += (
            need.events / self.full * max(1, ceil(self.full * steps.EVENT / steps.CHUNK))
        )
        if usage.lambdas:
            self.invoke(calls, steps.RELAY_MS + steps.RELAY_RECORD_MS * many)

    def evidence(self, results: float) -> None:
        """Cost of an item's end where evidence is kept, and of its lines in the daily head;
        `results`: bytes of its stages' results. The relay already has the row: it reads the earlier
        lines and writes one blob."""
        need = self.need
        need.calls["dynamodb", "query"] += 1
        need.units[self.names.history, "read"] += ceil(self._history / steps.READ)
        need.calls["s3", "put_object"] += 1
        need.blob_bytes += (
            steps.EVIDENCE + self._usage.payload + steps.EVIDENCE_LINE * need.lines + results
        )
        if self._usage.lambdas:
            need.gb_seconds += steps.EVIDENCE_MS / 1000 * steps.MEMORY_GB
        # Each line is read once more, with its share of a block, and has an entry in a blob of the
        # head's tree.
        need.calls["dynamodb", "query"] += need.lines / steps.FEED
        need.units[self.names.control, "read"] += (
            need.lines * (self._usage.key + steps.BLOCK_LINE) / steps.READ
        )
        need.calls["dynamodb", "batch_get_item"] += need.lines / steps.KEYS
        need.units[self.names.history, "read"] += need.lines
        need.calls["s3", "put_object"] += need.lines / steps.PART
        need.blob_bytes += need.lines * steps.PLACE
