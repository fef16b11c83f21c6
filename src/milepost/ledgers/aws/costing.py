"""What an item costs on AWS: every request of its way, added up. A model, to be held against what is counted (`Requests.counts`
and `.units`), and pure: it asks nobody and needs no ledger.

What each step of an item costs stands in one table, `steps.STEPS`. How heavy a row is follows from what is written on it; DynamoDB
charges a write by the row's larger side, before or after, in whole KB. What many items share (blocks of the journal, cells of
the counters, calls of functions, batches of messages) follows from how full batches are.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil

from msgspec import Struct

from milepost.core.backoff import Checks
from milepost.core.plan import EXTERNAL_RESEND
from milepost.core.route import Route, Stage
from milepost.ledgers.aws.names import Names
from milepost.ledgers.aws.steps import (
    ACCEPTED,
    BLOCK,
    BLOCK_LINE,
    CALL_BODY,
    CHUNK,
    ENTERED,
    ENTRIES,
    ENTRY,
    EVENT,
    FIXED,
    KB,
    KEYS,
    LAST_LEASE,
    LEASED,
    LINE,
    LINE_ON_ROW,
    LOG_BYTES,
    LONG_ID,
    LONGEST_DELAY_MS,
    MEMORY_GB,
    MESSAGES,
    OFFER_BODY,
    OFFERS_ALONE,
    OVERHEAD,
    QUEUED,
    RECORDS,
    REFERENCE,
    RELAY_MS,
    RELAY_RECORD_MS,
    SAME_CELL,
    SEAL,
    STEPS,
    THROUGH,
    TOKEN,
    TRIED,
    UNTOUCHED,
    WORKER_MS,
    WRITES,
)
from milepost.ledgers.aws.values import LARGEST


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


def predicted(route: Route, usage: Usage | None = None, names: Names | None = None) -> Need:
    """What one item of the route needs. With `names` the tables are called as in that deployment, to be compared with what was
    counted there."""
    return _Walk(route, usage or Usage(), names or Names("milepost")).need()


class _Walk:
    """An item's way, step by step; `row` is how heavy it is by now, part by part."""

    def __init__(self, route: Route, usage: Usage, names: Names) -> None:
        self._route, self._usage = route, usage
        self._rows, self._names = names.rows(route.name), names
        self._need = Need(defaultdict(float), defaultdict(float), defaultdict(float))
        self._row: dict[str, int] = {}
        self._cells: defaultdict[str, float] = defaultdict(float)
        """How often each cell that items of this route are counted in (a stage and a status) is touched."""
        self._full = min(MESSAGES, max(1, usage.batch))
        self._blob = usage.payload > LARGEST
        self._held = REFERENCE if self._blob else usage.payload

    def need(self) -> Need:
        stages = self._route.stages
        self._come_in(stages[0])
        reach, offered = 1.0, self._usage.adopted and stages[0].external
        for number, stage in enumerate(stages):
            following = stages[number + 1] if number + 1 < len(stages) else None
            if not offered:
                self._offer(stage, reach)
            reach *= self._outside(stage, following, reach) if stage.external else self._work(stage, following, reach)
            # What the relay brings to an external stage is offered in the same write.
            offered = stage.external and following is not None and following.external
        self._step("marked", reach, row={"trail": 0})
        self._step("marked failed", 1 - reach)
        if self._route.keep_ms is not None:
            self._step("gone", stage=stages[-1])
        self._share()
        return self._need

    # The steps ----------------------------------------------------------------------------------------------------------
    def _come_in(self, first: Stage) -> None:
        usage, need = self._usage, self._need
        many = min(KEYS, max(1, usage.batch))
        self._row = {"key": usage.key, "input": 5 + self._held}
        ours = {"fixed": FIXED + 2 * len(first.name), "trail": ACCEPTED, "token": LONG_ID if usage.adopted else TOKEN}
        if not usage.adopted:
            # Row and seal are looked for, and the seal once more beside the put.
            self._reads(self._rows, 1, many)
            self._reads(self._names.seen, 2, many)
            self._step("put", row=ours)
        else:
            self._step("put by others")
            self._reads(self._names.seen, 1, 1)
            need.calls["dynamodb", "query"] += 1
            need.units[self._names.history, "read"] += 1
            self._step("adopted", offers=first.external, row={**ours, "queued": QUEUED if first.external else 0})
            if first.external:
                self._message(OFFER_BODY + usage.payload)
        if self._blob:
            need.calls["s3", "put_object"] += 1
            need.blob_bytes += usage.payload

    def _offer(self, stage: Stage, weight: float) -> None:
        row = {"trail": LINE_ON_ROW if stage.external else 0, "queued": QUEUED}
        self._step("offered" if stage.external else "called", weight, stage, offers=stage.external, row=row)
        self._message(OFFER_BODY + self._usage.payload if stage.external else CALL_BODY, weight)

    def _outside(self, stage: Stage, following: Stage | None, weight: float) -> float:
        """An external stage: they look, they confirm, the relay moves on."""
        usage = self._usage
        self._receive(OFFER_BODY + usage.payload, weight * max(1, usage.checks))
        for _ in range(usage.wait_ms // (stage.resend_after_ms or EXTERNAL_RESEND)):
            self._reads(self._rows, 2 * weight, min(KEYS, usage.batch))
            self._step("resent", weight, stage, offers=True, row={"trail": LINE_ON_ROW})
            self._message(OFFER_BODY + usage.payload, weight)
            self._receive(OFFER_BODY + usage.payload, weight)
        result = 10 + len(stage.name) + min(usage.result, LARGEST)
        self._step("confirmed", weight, row={f"result {stage.name}": result})
        at_once = following is not None and following.external
        self._move(following, weight, stage, {"trail": LINE_ON_ROW + 80 * at_once}, offers=at_once)
        if at_once:
            self._message(OFFER_BODY + usage.result, weight)
        return 1.0

    def _work(self, stage: Stage, following: Stage | None, weight: float) -> float:
        """A handler stage with its tries and looks; the share of items that get through it."""
        usage, fails = self._usage, self._usage.retries
        waits = stage.checks != Checks()
        for look in range(usage.checks - 1 if waits else 0):
            self._claim(stage, weight)
            first = look == 0
            row = {"trail": self._row["trail"] + LINE_ON_ROW * first, "lease": LAST_LEASE}
            self._step("not yet", weight, stage, lines=float(first), row=row)
            self._again(stage, weight, stage.checks.after_ms(look))
        through = dict(self._row)
        attempts = stage.retry.attempts
        for number in range(attempts):
            tried = weight * fails**number
            if tried < 1e-9:
                break
            self._claim(stage, tried)
            claimed = dict(self._row)
            settled = {"trail": claimed["trail"] + LINE_ON_ROW, "lease": LAST_LEASE}
            self._move(following, tried * (1 - fails), stage, settled)
            through = dict(self._row) if number == 0 else through
            self._row = claimed
            after = {**settled, "tries": claimed.get("tries", 0) + TRIED}
            if number + 1 < attempts:
                self._step("failed", tried * fails, stage, row=after)
                self._again(stage, tried * fails, stage.retry.exponential_ms(number))
            else:
                self._step("ended", tried * fails, stage, row=after)
        self._row = through
        return 1 - fails**attempts

    def _claim(self, stage: Stage, weight: float) -> None:
        self._receive(CALL_BODY, weight)
        self._step("claimed", weight, stage, row={"lease": LEASED})
        self._need.calls["s3", "get_object"] += weight * self._blob
        if stage.rate is not None:
            self._tokens(2 * weight / self._full)
        if self._usage.lambdas:
            ms = WORKER_MS + self._usage.takes_ms * ceil(self._full / stage.concurrency / stage.batch)
            self._invoke(weight / self._full, ms)

    def _again(self, stage: Stage, weight: float, delay_ms: float) -> None:
        """Called for the next try: by a message held back, or by the resender where that would be too long."""
        if delay_ms > LONGEST_DELAY_MS:
            self._reads(self._rows, weight, min(KEYS, self._usage.batch))
            self._step("called again", weight, stage)
        self._message(CALL_BODY, weight)

    def _move(self, following: Stage | None, weight: float, stage: Stage, row: dict[str, int], *, offers: bool = False) -> None:
        row = {**row, "through": self._row.get("through", 0) + THROUGH + len(stage.name)}
        if following is None:
            self._step("ended", weight, stage, row=row)
        else:
            row |= {"next": 20 + len(following.name), "token": LONG_ID if self._usage.adopted else 0}
            self._step("advanced", weight, following, offers=offers, row=row)

    # What a step takes --------------------------------------------------------------------------------------------------
    def _step(
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
        step, need = STEPS[name], self._need
        before = sum(self._row.values())
        self._row |= row or {}
        if name not in UNTOUCHED:
            self._row["entered"] = 0 if name in ENTRIES else ENTERED
        heavy = max(before, sum(self._row.values()))
        need.row_bytes = max(need.row_bytes, heavy + OVERHEAD + ENTRY)
        need.steps[name] += weight
        need.records += weight
        self._cells[f"{SAME_CELL.get(name, name)} {stage.name if stage else ''}"] += step.cells * weight
        if name != "gone":
            need.calls["dynamodb", "put_item" if name in ("put", "put by others") else "update_item"] += weight
            need.units[self._rows, "write"] += weight * ceil(heavy / KB)
            need.units[f"{self._rows}/due", "write"] += weight * step.index
        told = (step.lines or lines) * weight
        if told:
            size = LINE + (min(self._usage.payload, LARGEST) if offers else 0)
            need.lines += told
            # The relay's own offer is told as an offer alone; one that came with another line beside it.
            need.events += told * ((name not in OFFERS_ALONE) + (offers and self._usage.offers))
            need.units[self._names.history, "write"] += told * ceil(size / KB)
            need.kept_bytes += told * (size + OVERHEAD)
            need.calls["s3", "put_object"] += told * (offers and self._blob)
        # The relay reads what a row refers to, each time that it is told of it.
        need.calls["s3", "get_object"] += weight * self._blob

    def _reads(self, table: str, weight: float, together: int) -> None:
        self._need.units[table, "read"] += weight
        self._need.calls["dynamodb", "batch_get_item"] += weight / together

    def _tokens(self, takes: float) -> None:
        """A rate is a bucket in the control table: read, then written if nobody else has meanwhile."""
        need, control = self._need, self._names.control
        for operation, kind in (("get_item", "read"), ("update_item", "write")):
            need.calls["dynamodb", operation] += takes
            need.units[control, kind] += takes

    def _message(self, size: int, weight: float = 1.0) -> None:
        """Sent, and deleted when it has done its work."""
        self._need.messages += weight
        self._queue("send_message_batch", weight, size)
        self._queue("delete_message_batch", weight, 0)

    def _receive(self, size: int, weight: float) -> None:
        self._queue("receive_message", weight, size)

    def _queue(self, operation: str, weight: float, size: int) -> None:
        calls = weight / self._full
        self._need.calls["sqs", operation] += calls
        self._need.queue_requests += calls * max(1, ceil(self._full * size / CHUNK))

    def _invoke(self, weight: float, ms: float) -> None:
        self._need.invocations += weight
        self._need.gb_seconds += weight * ms / 1000 * MEMORY_GB
        self._need.log_bytes += weight * LOG_BYTES

    # What items share ---------------------------------------------------------------------------------------------------
    def _share(self) -> None:
        """The relay's calls, and what is written once in each of them; the topic, whose subscriber reads every line."""
        need, usage, control = self._need, self._usage, self._names.control
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
        need.units[self._names.history, "read"] += need.lines
        need.calls["dynamodb", "batch_get_item"] += need.lines / min(KEYS, many)
        need.calls["dynamodb", "batch_write_item"] += calls * ceil(need.lines / calls / WRITES) * min(1.0, blocks / calls) + 1 / many
        need.units[self._names.seen, "write"] += 1
        need.kept_bytes += SEAL + OVERHEAD + need.lines * (usage.key + BLOCK_LINE)
        need.stream_reads += calls
        need.calls["sns", "publish_batch"] += need.events / self._full
        need.publishes += need.events / self._full * max(1, ceil(self._full * EVENT / CHUNK))
        if usage.lambdas:
            self._invoke(calls, RELAY_MS + RELAY_RECORD_MS * many)
