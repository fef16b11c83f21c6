"""Delivery of events: each subscriber has a cursor over the history lines of all items. At least once, in order per item."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import EventRefused
from milepost.core.events import cloud_event
from milepost.core.routes.mistakes import check_name
from milepost.engine.context import Context
from milepost.engine.events import parked_events
from milepost.engine.events.feed import FeedEvent, Ref, feed_events
from milepost.engine.events.parked_events import ParkedItems
from milepost.engine.routes.versions import outdated
from milepost.ports.documents import CURSOR, Cursor, Parked, read_as
from milepost.ports.feed import HistoryEntry
from milepost.ports.subscriber import Subscriber

PAGE = 500
OUTAGE = 5
"""Failures of different items in a row after which the subscriber counts as unavailable."""
LEASE_MS = 30_000
POLL, STAND_BY = 0.5, 5.0


class DeliverySummary(Struct):
    """Counts of one run: events delivered, items parked, lines waiting. `standing_by`: why nothing was delivered."""

    delivered: int = 0
    parked: int = 0
    waiting: int = 0
    standing_by: str | None = None


class _Lost(Exception):
    """Another process has taken the cursor."""


class _Outage(Exception):
    """The subscriber accepts nothing. `seq`: the first line that is not completely delivered."""

    def __init__(self, seq: int, error: Exception) -> None:
        self.seq = seq
        self.error = error


class EventRelay:
    """Delivers to one subscriber. Several processes may run one for it: the lease of the cursor lets one deliver at a time.

    A new subscriber receives everything from the beginning, or `from_now` on.
    """

    def __init__(self, ctx: Context, subscriber: Subscriber, holder: str, *, from_now: bool = False) -> None:
        check_name(subscriber.name, "a subscriber's name", "subscribers")
        self.name = f"relay-{subscriber.name}"
        self._ctx = ctx
        self._subscriber = subscriber
        self._lease = f"{holder}/{ctx.chance.token()}"
        self._from_now = from_now
        self._joined = False
        self._cursor = Cursor(0, 0)
        self._version = 0
        self._next = POLL

    def turn(self) -> float:
        """Run once; returns the seconds until the next turn."""
        self.run_once()
        return self._next

    def start(self) -> None:
        """Write the cursor if there is none: a subscriber that is new receives everything that is written from now on."""
        self._look(self._ctx.clock.now())

    def run_once(self) -> DeliverySummary:
        """Deliver one page of new events, then parked events that are due."""
        ctx, now = self._ctx, self._ctx.clock.now()
        summary = DeliverySummary()
        self._next = STAND_BY
        summary.standing_by = self._look(now)
        if summary.standing_by is None:
            lines = ctx.ledger.feed(self._cursor.seq, PAGE)
            parked_items = parked_events.parked_for(ctx, self._subscriber.name)
            due = [ref for ref, (parked, _) in parked_items.items() if parked_events.NEVER < parked.retry_at <= now]
            # Check after reading the lines, so that an outdated process never delivers a line of a newer version.
            old = outdated(ctx)
            if old:
                summary.standing_by = f"the ledger holds a newer version of {', '.join(old)}"
            elif lines or due:
                self._deliver(lines, parked_items, due, summary)
        left = parked_events.parked_for(ctx, self._subscriber.name)
        summary.parked = len(left)
        summary.waiting = max(0, ctx.ledger.last_seq() - self._cursor.seq)
        if summary.standing_by is None:
            retries = [parked.retry_at - now for parked, _ in left.values() if parked.retry_at != parked_events.NEVER]
            self._next = 0.0 if summary.waiting else max(0.0, min([POLL, *(ms / 1000 for ms in retries)]))
        return summary

    def _deliver(self, lines: Sequence[HistoryEntry], parked_items: ParkedItems, due: Sequence[Ref], summary: DeliverySummary) -> None:
        try:
            self._take_lease()
            more = len(lines) == PAGE
            if lines:
                self._deliver_new(lines, parked_items, summary)
                # Save the cursor before delivering parked events: an item's parked events end at the saved cursor.
                now = self._ctx.clock.now()
                until = now + LEASE_MS if more or due else 0
                formed = bool(getattr(self._subscriber, "formed_only", False))
                self._save(seq=lines[-1].seq, told_at=now, until=until, failures=0, retry_at=0, error="", formed=formed)
            if due:
                self._deliver_parked([parked_items[ref] for ref in due if ref in parked_items], summary)
                if not more:
                    self._save(until=0)
        except _Lost:
            summary.standing_by = "another process delivers to it"
        except _Outage as outage:
            self._back_off(outage)
            summary.standing_by = f"it is unavailable ({self._cursor.error})"

    # New events ---------------------------------------------------------------------------------------------------------
    def _deliver_new(self, lines: Sequence[HistoryEntry], parked_items: ParkedItems, summary: DeliverySummary) -> None:
        """Deliver a page of lines in order per item, except those behind a parked event. After a failed event its item waits; it is parked
        only once the subscriber has accepted another event, because until then the subscriber may be unavailable."""
        queue = self._deliverable(lines, parked_items)
        waiting: set[Ref] = set()
        failing: list[tuple[FeedEvent, Exception]] = []
        alone = 0
        while queue:
            chunk = self._chunk(queue, waiting, 1 if alone else max(1, self._subscriber.batch))
            alone = max(0, alone - 1)
            if not chunk:
                continue
            self._take_lease()
            errors = self._call(chunk)
            if errors is None:
                # The call as a whole failed. Deliver one at a time to find the event that fails.
                alone = len(chunk)
                queue[:0] = chunk
                continue
            for entry, error in zip(chunk, errors, strict=True):
                if error is None:
                    summary.delivered += 1
                else:
                    waiting.add(entry.ref)
                    failing.append((entry, error))
                if error is None or isinstance(error, EventRefused):
                    self._park(failing)
            if len(failing) >= OUTAGE:
                undelivered = [entry for entry, _ in failing] + queue
                raise _Outage(min(entry.seq for entry in undelivered), failing[0][1])
        self._park(failing)

    def _deliverable(self, lines: Sequence[HistoryEntry], parked_items: ParkedItems) -> list[FeedEvent]:
        """Events of the page in order, without those that wait behind a parked one. Updates `parked_items`."""
        entries = feed_events(lines)
        for ref, newest in {entry.ref: entry.seq for entry in entries if parked_events.waits(parked_items, entry)}.items():
            waiting = parked_events.wait_behind(self._ctx, *parked_items[ref], newest)
            if waiting is None:
                del parked_items[ref]
            else:
                parked_items[ref] = waiting
        return [entry for entry in entries if not parked_events.waits(parked_items, entry)]

    def _chunk(self, queue: list[FeedEvent], waiting: set[Ref], size: int) -> list[FeedEvent]:
        """Take the next events for one call off the queue, at most one per item. The second event of a line stays for the next call, so that
        many such lines need two full calls instead of one call each."""
        chunk: list[FeedEvent] = []
        stay: list[FeedEvent] = []
        within: dict[Ref, int] = {}
        at = 0
        while at < len(queue) and len(chunk) < size:
            entry = queue[at]
            if within.get(entry.ref, entry.seq) != entry.seq:
                break
            at += 1
            if entry.ref in within:
                stay.append(entry)
            elif entry.ref not in waiting:
                chunk.append(entry)
                within[entry.ref] = entry.seq
        queue[:at] = stay
        return chunk

    def _call(self, chunk: Sequence[FeedEvent]) -> Sequence[Exception | None] | None:
        """Call the subscriber with these events; returns each one's error, or None for a success. None alone: the call as a whole failed."""
        try:
            envelopes = [cloud_event(entry.event, self._ctx.plans.get(entry.event.route)) for entry in chunk]
            answers = self._subscriber.tell(envelopes)
            if answers is not None and len(answers) != len(chunk):
                raise ValueError(f"the subscriber received {len(chunk)} events and returned {len(answers)} results")
        except Exception as error:
            if len(chunk) > 1:
                return None
            answers = [error]
        answers = [None] * len(chunk) if answers is None else answers
        failed = sum(error is not None for error in answers)
        self._ctx.observer.delivered(self._subscriber.name, len(chunk) - failed, failed)
        return answers

    def _park(self, failing: list[tuple[FeedEvent, Exception]]) -> None:
        for entry, error in failing:
            parked_events.park(self._ctx, self._subscriber.name, entry, error)
        failing.clear()

    # Parked items -------------------------------------------------------------------------------------------------------
    def _deliver_parked(self, due: Sequence[tuple[Parked, int]], summary: DeliverySummary) -> None:
        """Retry parked items, until several in a row fail; the others wait for the next run."""
        in_a_row = 0
        for parked, version in sorted(due, key=lambda one: one[0].retry_at):
            entries = parked_events.pending(self._ctx, parked, self._cursor.seq)
            if entries == []:
                continue  # parked ahead of the cursor, which an outage has set back
            failed = False
            for entry in entries or ():
                self._take_lease()
                error = (self._call([entry]) or [None])[0]
                if error is not None:
                    parked_events.park_again(self._ctx, parked, version, entry, error)
                    failed = True
                    break
                summary.delivered += 1
            if not failed:
                parked_events.unpark(self._ctx, parked, version)
            in_a_row = in_a_row + 1 if failed else 0
            if in_a_row >= OUTAGE:
                return

    # The cursor ---------------------------------------------------------------------------------------------------------
    def _look(self, now: int) -> str | None:
        """Read the cursor; returns why this process may not deliver now, or None."""
        ledger, name = self._ctx.ledger, self._subscriber.name
        document = ledger.read_one(CURSOR, name)
        if document is None:
            ledger.write(CURSOR, name, Cursor(ledger.last_seq() if self._from_now else 0, now), expect=0)
            document = ledger.read_one(CURSOR, name)
        if document is None:
            return "it has just been removed"
        self._cursor, self._version = read_as(Cursor, document.value), document.version
        if self._cursor.removed:
            if self._joined:
                return "it has been removed; restart to deliver to it again"
            try:
                self._save(removed=False)
            except _Lost:
                return "another process has just started to deliver to it"
        self._joined = True
        if self._cursor.until > now and self._cursor.lease != self._lease:
            self._next = min(STAND_BY, (self._cursor.until - now) / 1000)
            return "another process delivers to it"
        if self._cursor.retry_at > now:
            self._next = min(STAND_BY, (self._cursor.retry_at - now) / 1000)
            return f"it is unavailable ({self._cursor.error})"
        return None

    def _take_lease(self) -> None:
        """Take the lease, or extend it if less than half is left."""
        now = self._ctx.clock.now()
        if self._cursor.lease != self._lease or self._cursor.until < now + LEASE_MS // 2:
            self._save(lease=self._lease, until=now + LEASE_MS)

    def _back_off(self, outage: _Outage) -> None:
        """Wait before the next try. The cursor stays before the first undelivered line, so that nothing is skipped."""
        cursor, now = self._cursor, self._ctx.clock.now()
        delay = parked_events.RETRY.delay(cursor.failures, self._ctx.chance.jitter()).ms
        self._next = min(STAND_BY, delay / 1000)
        seq = max(cursor.seq, outage.seq - 1)
        error = parked_events.error_text(outage.error)
        try:
            self._save(seq=seq, until=0, failures=cursor.failures + 1, retry_at=now + delay, error=error)
        except _Lost:
            return

    def _save(self, **fields: object) -> None:
        """Write the cursor; raises _Lost if another process has changed it."""
        changed = replace(self._cursor, **fields)
        if not self._ctx.ledger.write(CURSOR, self._subscriber.name, changed, expect=self._version):
            raise _Lost
        self._cursor, self._version = changed, self._version + 1
