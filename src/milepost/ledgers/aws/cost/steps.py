"""The steps of an item on AWS and what each costs, with the reason; and the weights and sizes that were counted. Only figures."""

from __future__ import annotations

from msgspec import Struct


class CostStep(Struct, frozen=True):
    """One write of a row: one call, so many units for its entry in the index, so many lines of history; and how often a cell of the
    counters is touched for it, mostly twice: when the item comes into a status and when it leaves it."""

    index: int
    lines: int
    cells: int
    why: str


STEPS: dict[str, CostStep] = {
    "put": CostStep(1, 1, 2, "our own conditional put; the entry in the index is new"),
    "put by others": CostStep(0, 0, 0, "a plain row without our attributes is in no index"),
    "adopted": CostStep(1, 1, 2, "the relay sets our attributes; the entry in the index is new"),
    "called": CostStep(2, 0, 2, "sent to our own stage, then marked QUEUED: dueAt moves on, so one entry goes and one comes"),
    "offered": CostStep(2, 1, 2, "sent to an external stage, then marked QUEUED: as above, and an event"),
    "claimed": CostStep(2, 0, 2, "the lease's end is the new dueAt; no line"),
    "confirmed": CostStep(0, 0, 0, "an outsider adds one attribute; nothing that is indexed changes"),
    "advanced": CostStep(2, 1, 2, "to the next stage: another dueShard"),
    "ended": CostStep(0, 1, 1, "the entry stays in the index until the last line is known to be told"),
    "failed": CostStep(2, 1, 3, "to be tried again at another time; the error's group is counted too"),
    "not yet": CostStep(2, 0, 2, "to be looked at again at another time; only the first makes a line"),
    "called again": CostStep(2, 0, 2, "the resender brings back what is more than a queue's longest delay away"),
    "resent": CostStep(2, 1, 0, "the resender offers an external stage again; QUEUED it was, QUEUED it stays"),
    "marked": CostStep(1, 0, 0, "all are told: the time to live is set, the entry leaves the index"),
    "marked failed": CostStep(2, 0, 0, "all are told: the entry moves to the failed ones"),
    "gone": CostStep(0, 0, 1, "DynamoDB removes it for its time to live, which is free; the counters are told"),
}
SAME_CELL = {"called again": "called", "gone": "ended"}
"""Steps that move items into, or out of, the same cell as another."""
ENTRIES = ("put", "adopted", "advanced", "ended")
"""Steps with which an item comes to a stage, or to its end."""
UNTOUCHED = ("put by others", "claimed", "confirmed", "marked", "marked failed", "gone")
"""Steps that do not change when the row says that it was changed."""

OFFERS_ALONE = ("offered", "resent")
"""Steps whose lines say only that a stage was offered the item: told as offers, or not at all."""

KB = 1024
READ = 4 * KB
"""What one read unit brings."""
CHUNK = 64 * KB
"""SQS and SNS count every such part of a request."""
LONGEST_DELAY_MS = 900_000
MESSAGES, RECORDS, KEYS, WRITES = 10, 100, 100, 25
"""The most in one SQS or SNS batch, in one call of the relay, in one BatchGetItem, in one BatchWriteItem."""

# Bytes on a row, names and values, as they were weighed on real rows.
FIXED = 248
ACCEPTED, LINE_ON_ROW, MOVED_ON = 72, 105, 43
"""A packed history line: the first one, any other, and what it has more when it also offers the next stage."""
KEY_FIELD, WITH_KEY = 6, 8
"""What a key field takes in the input beside its name and value, and the mark of an input that is stored without them."""
QUEUED, LEASED, LAST_LEASE, THROUGH, REFERENCE = 77, 115, 30, 8, 130
ENTERED, TOKEN, LONG_ID = 33, 27, 14
"""When it came to its stage, where that was not its last change; the token of our own put, until it leaves its first stage; and how
much longer the correlation id is that an adopted row is given."""
TRIED = 450
"""A failed try: an entry of retryHistory, and what there is of lastError and nextRetryAt."""
# Bytes elsewhere.
LINE, SEAL, ENTRY, OVERHEAD, CALL_BODY, OFFER_BODY, EVENT = 380, 256, 120, 100, 120, 420, 700
BLOCK, BLOCK_LINE = 80, 8
EVIDENCE, EVIDENCE_LINE = 540, 430
"""What is kept of an item that has ended: what stands in it once, and what each line adds, as text and in words; input and results
come on top."""
FEED, PART, PLACE = 1000, 1024, 40
"""For the daily head: lines read at once, lines in one blob, and the bytes of each there."""

# Assumed, not measured: how long functions run beside the handlers' own time, and what they log.
MEMORY_GB = 0.5
WORKER_MS, RELAY_MS, RELAY_RECORD_MS, EVIDENCE_MS = 60, 70, 2, 10
LOG_BYTES = 500
