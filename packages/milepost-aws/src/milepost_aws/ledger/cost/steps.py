"""Steps of an item on AWS with the cost of each and the reason, and measured weights and sizes:
figures only."""

from __future__ import annotations

from msgspec import Struct


class CostStep(Struct, frozen=True):
    """One write of a row: one request, units for its index entry, history lines, and writes of
    counter cells (mostly two: the status that the item enters and the one it leaves)."""

    index: int
    lines: int
    cells: int
    why: str


STEPS: dict[str, CostStep] = {
    "put": CostStep(1, 1, 2, "conditional put; adds an index entry"),
    "put by others": CostStep(0, 0, 0, "a row without our attributes is not in the index"),
    "adopted": CostStep(1, 1, 2, "the relay sets our attributes; adds an index entry"),
    "called": CostStep(
        2,
        0,
        2,
        "sent to a handler stage, then marked QUEUED: the new dueAt removes one index entry and adds one",
    ),
    "offered": CostStep(
        2, 1, 2, "sent to an external stage, then marked QUEUED: as above, and an event"
    ),
    "claimed": CostStep(2, 0, 2, "dueAt becomes the lease expiry; no line"),
    "confirmed": CostStep(0, 0, 0, "a partner adds one attribute; the index does not change"),
    "advanced": CostStep(2, 1, 2, "to the next stage: another dueShard"),
    "ended": CostStep(0, 1, 1, "the index entry stays until the last line is delivered"),
    "failed": CostStep(2, 1, 3, "new dueAt for the next attempt; counts the error's group too"),
    "not yet": CostStep(2, 0, 2, "new dueAt for the next look; only the first makes a line"),
    "called again": CostStep(
        2, 0, 2, "the resender sends it, because the delay is too long for SQS"
    ),
    "resent": CostStep(
        2, 1, 0, "the resender offers an external stage again; the status stays QUEUED"
    ),
    "marked": CostStep(
        1, 0, 0, "all lines delivered: sets the time to live, removes the index entry"
    ),
    "marked failed": CostStep(
        2, 0, 0, "all lines delivered: moves the index entry to the failed partition"
    ),
    "gone": CostStep(0, 0, 1, "DynamoDB removes it by TTL, which is free; the counters change"),
}
SAME_CELL = {"called again": "called", "gone": "ended"}
"""Steps that move items into or out of the same counter cell as another step."""
ENTRIES = ("put", "adopted", "advanced", "ended")
"""Steps by which an item enters a stage or a terminal status."""
UNTOUCHED = ("put by others", "claimed", "confirmed", "marked", "marked failed", "gone")
"""Steps that do not change the row's time of last change."""

OFFERS_ALONE = ("offered", "resent")
"""Steps whose lines only record an offer: their one event, if any, is `offered`."""

KB = 1024
READ = 4 * KB
"""Bytes per read unit."""
CHUNK = 64 * KB
"""Bytes per charged part of an SQS or SNS request."""
API_CHUNK = 512 * KB
"""Bytes per charged part of a request to API Gateway."""
LONGEST_DELAY_MS = 900_000
MESSAGES, RECORDS, KEYS, WRITES = 10, 100, 100, 25
"""Maximum entries of an SQS or SNS batch, a relay call, a BatchGetItem and a BatchWriteItem."""

# Bytes on a row, names and values, measured on real rows.
FIXED = 248
ACCEPTED, LINE_ON_ROW, MOVED_ON, CONFIRMER, FAILED_LINE = 72, 105, 43, 35, 340
"""A packed history line: the first, any other, its extra bytes when it also offers the next stage
and when it names who has confirmed a stage, and that of a failed attempt."""
KEY_FIELD, WITH_KEY = 6, 8
"""Bytes of a key field in the input beside its name and value, and of the mark of an input stored
without them."""
QUEUED, LEASED, LAST_LEASE, THROUGH, REFERENCE = 77, 115, 30, 8, 130
ENTERED, TOKEN, LONG_ID = 33, 27, 14
"""The time it entered its stage, where that is not the last change; the put's token, until it
leaves its first stage; and the extra length of an adopted row's correlation id."""
COLUMN, LANE = 6, 24
"""Mean length of the value of a column that is no field of the key (its name is added), and the
lane with its name."""
TRIED = 450
"""A failed attempt: an entry of retryHistory, lastError and nextRetryAt."""
# Bytes elsewhere.
LINE, SEAL, ENTRY, OVERHEAD, CALL_BODY, OFFER_BODY, EVENT = 380, 256, 120, 100, 120, 420, 700
ANSWER = 950
"""The answer to POST /message with its headers."""
BLOCK, BLOCK_LINE = 80, 8
EVIDENCE, EVIDENCE_LINE = 540, 480
"""Kept evidence of an ended item: fixed bytes, and bytes per line, as text and as prose; input and
results are added."""
FEED, PART, PLACE = 1000, 1024, 40
"""For the daily head: lines read at once, lines in one blob, and bytes of each there."""

# Assumed, not measured: run time of functions beside the handlers, and their log volume.
MEMORY_GB = 0.5
WORKER_MS, RELAY_MS, RELAY_RECORD_MS, EVIDENCE_MS = 60, 70, 2, 10
ACCEPT_GB, ACCEPT_MS = 1.0, 40
LOG_BYTES = 500
