"""Delivery of events: each subscriber has a cursor over the history lines of all items. At least
once, in order per item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.clocks import still_ahead
from milepost.core.errors import EventRefused
from milepost.core.events import cloud_event
from milepost.core.routes.mistakes import check_name
from milepost.engine.context import Context
from milepost.engine.events import parked_events
from milepost.engine.events.feed import FeedEvent, Ref, feed_events
from milepost.engine.events.parked_index import ParkedIndex
from milepost.engine.routes.versions import standing_by
from milepost.ports.documents import CURSOR, MOVER, Cursor, read_as
from milepost.ports.feed import HistoryEntry
from milepost.ports.service import Service
from milepost.ports.subscriber import Subscriber

PAGE = 500
OUTAGE = 5
"""Failures of different items in a row after which the subscriber counts as unavailable."""
REFUSALS = 20
"""Refusals of different items in a row, with the same answer, after which the subscriber counts as
unavailable."""
LATER_TRIED, LATER_PAGES = 3, 10
"""Before that so many later events are tried, from so many pages: if one is accepted, the refusals
are those of the items."""
LONGEST_REFUSAL_MS = 300_000
"""Longest pause of a subscriber that refuses everything: later items may not be refused."""
LEASE_MS = 30_000
POLL, STAND_BY = 0.5, 5.0


class DeliverySummary(Struct):
    """Counts of one run: events delivered, items parked, lines waiting. `standing_by`: why nothing
    was delivered."""

    delivered: int = 0
    parked: int = 0
    waiting: int = 0
    standing_by: str | None = None


class _Lost(Exception):
    """Another process has taken the cursor."""


class _CallFailed(Exception):
    """A call with several events failed as a whole."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Outage(Exception):
    """The subscriber accepts nothing. `seq`: the first line that is not completely delivered."""

    def __init__(self, seq: int, error: Exception, refused: int = 0) -> None:
        self.seq = seq
        self.error = error
        self.refused = refused
        """So many items were refused in a row; 0: it failed without an answer."""


class Refusals:
    """Items refused in a row with the same answer; `run` has those of this page, which are not
    parked yet. Items refused with another answer, or before an accepted event, are refused for
    their own sake."""

    def __init__(self, count: int, answer: str) -> None:
        self.count, self.answer = count, answer
        self.run: list[tuple[FeedEvent, Exception]] = []

    def add(self, entry: FeedEvent, error: EventRefused) -> list[tuple[FeedEvent, Exception]]:
        """Add a refused event; returns those to be parked because this one got another answer."""
        answer, others = parked_events.error_text(error), list[tuple[FeedEvent, Exception]]()
        if answer != self.answer:
            others = self.end()
        self.answer = answer
        self.count += 1
        self.run.append((entry, error))
        return others

    def end(self) -> list[tuple[FeedEvent, Exception]]:
        """The row has ended; returns its events, to be parked."""
        run, self.run = self.run, []
        self.count, self.answer = 0, ""
        return run


def _first(
    failing: Sequence[tuple[FeedEvent, Exception]],
    run: Sequence[tuple[FeedEvent, Exception]],
    queue: Sequence[FeedEvent],
) -> int:
    """The first line of which an event is neither delivered nor parked."""
    return min(
        entry.seq
        for entry in [*(entry for entry, _ in failing), *(entry for entry, _ in run), *queue]
    )


def _first_by_item(entries: Sequence[FeedEvent], left_out: set[Ref]) -> list[FeedEvent]:
    """The first event of each item, without those of some items."""
    first: dict[Ref, FeedEvent] = {}
    for entry in entries:
        if entry.ref not in left_out:
            first.setdefault(entry.ref, entry)
    return list(first.values())


class EventRelay(Service):
    """Delivers to one subscriber. Several processes may run one for it: the lease of the cursor
    lets one deliver at a time.

    A new subscriber receives everything from the beginning, or `from_now` on.
    """

    def __init__(
        self, ctx: Context, subscriber: Subscriber, holder: str, *, from_now: bool = False
    ) -> None:
        check_name(subscriber.name, "a subscriber's name", "subscribers")
        self.name = f"relay-{subscriber.name}"
        self._ctx = ctx
        self._subscriber = subscriber
        self._lease = f"{holder}/{ctx.chance.token()}"
        self._from_now = from_now
        self._joined = False
        self._cursor = Cursor(0, 0)
        self._version = 0
        self._parked = ParkedIndex(ctx, subscriber.name)
        self._next = POLL
        self.stands_still = ""
        """Why the last run delivered nothing, whatever was to be delivered. That another process
        delivers is no such reason."""
        self._in_time: Callable[[], bool] = lambda: True
        """Whether the present run has time to find out which of several events the subscriber does
        not accept."""

    def turn(self) -> float:
        """Run once; returns the seconds until the next turn."""
        self.run_once()
        return self._next

    def start(self) -> None:
        """Write the cursor if there is none: a subscriber that is new receives everything that is
        written from now on."""
        self._look(self._ctx.clock.now())

    def release(self) -> None:
        """Let another process deliver at once: this one stops although events are left."""
        if self._cursor.lease == self._lease and self._cursor.until > self._ctx.clock.now():
            with suppress(_Lost):
                self._save(until=0)

    def run_once(self, in_time: Callable[[], bool] = lambda: True) -> DeliverySummary:
        """Deliver one page of new events, then parked events that are due. While `in_time` is
        false, a subscriber that accepts none of several events counts as unavailable: there is no
        time to try them one by one."""
        self._in_time = in_time
        ctx, now = self._ctx, self._ctx.clock.now()
        summary = DeliverySummary()
        self._next = STAND_BY
        self.stands_still = ""
        summary.standing_by = self._look(now)
        if summary.standing_by is None:
            lines = ctx.ledger.feed(self._cursor.seq, PAGE)
            self._parked.refresh()
            due = self._parked.due(now)
            # Check after reading the lines, so that an outdated process never delivers a line of a
            # newer version.
            self.stands_still = standing_by(ctx)
            if self.stands_still:
                summary.standing_by = self.stands_still
            elif lines or due:
                self._deliver(lines, due, summary)
        summary.parked = len(self._parked)
        summary.waiting = max(0, ctx.ledger.last_seq() - self._cursor.seq)
        if summary.standing_by is None:
            now = ctx.clock.now()  # the subscriber may have taken its time
            retries = [(at - now) / 1000 for at in self._parked.retries()]
            # Lines that were removed have places, but are never delivered.
            self._next = 0.0 if summary.waiting and lines else max(0.0, min([POLL, *retries]))
        return summary

    def _deliver(
        self, lines: Sequence[HistoryEntry], due: Sequence[Ref], summary: DeliverySummary
    ) -> None:
        try:
            self._take_lease()
            more = len(lines) == PAGE
            if lines:
                refused, refusal = self._deliver_new(lines, summary)
                self._parked.note()
                # Save the cursor before delivering parked events: an item's parked events end at
                # the saved cursor.
                now = self._ctx.clock.now()
                until = now + LEASE_MS if more or due else 0
                formed = bool(getattr(self._subscriber, "formed_only", False))
                answers = {"refused": refused, "refusal": refusal}
                self._save(
                    seq=lines[-1].seq,
                    told_at=now,
                    until=until,
                    failures=0,
                    retry_at=0,
                    error="",
                    formed=formed,
                    **answers,
                )
            if due:
                self._deliver_parked(due, summary)
                self._parked.note()
                if not more:
                    self._save(until=0)
        except _Lost:
            summary.standing_by = "another process delivers to it"
        except _Outage as outage:
            self._back_off(outage)
            summary.standing_by = f"it is unavailable ({self._cursor.error})"

    # New events -----------------------------------------------------------------------------------
    def _deliver_new(
        self, lines: Sequence[HistoryEntry], summary: DeliverySummary
    ) -> tuple[int, str]:
        """Deliver a page of lines in order per item, except those behind a parked event. After a
        failed event its item waits; it is parked only once the subscriber has accepted another
        event, because until then the subscriber may be unavailable. Returns the number of items
        refused in a row at the end of the page, and the answer that they got."""
        queue = self._deliverable(lines)
        waiting: set[Ref] = set()
        failing: list[tuple[FeedEvent, Exception]] = []
        refusals = Refusals(self._cursor.refused, self._cursor.refusal)
        alone = 0
        accepts_others = False
        while queue:
            chunk = self._chunk(queue, waiting, 1 if alone else max(1, self._subscriber.batch))
            alone = max(0, alone - 1)
            if not chunk:
                continue
            self._take_lease()
            try:
                errors = self._call(chunk)
            except _CallFailed as failed:
                if not self._in_time():
                    raise _Outage(min(entry.seq for entry in chunk + queue), failed.error) from None
                # Deliver one at a time to find the event that fails.
                alone = len(chunk)
                queue[:0] = chunk
                continue
            for entry, error in zip(chunk, errors, strict=True):
                if error is None:
                    summary.delivered += 1
                    self._park(refusals.end())
                    self._park(failing)
                    continue
                waiting.add(entry.ref)
                if isinstance(error, EventRefused):
                    self._park(failing)
                    self._park(refusals.add(entry, error))
                else:
                    failing.append((entry, error))
            if len(failing) >= OUTAGE:
                raise _Outage(_first(failing, refusals.run, queue), failing[0][1])
            if refusals.count >= REFUSALS and refusals.run and not accepts_others:
                accepts_others = self._accepts_later(
                    lines, queue, waiting, refusals.answer, summary
                )
                if not accepts_others:
                    raise _Outage(
                        _first(failing, refusals.run, queue), refusals.run[0][1], refusals.count
                    )
                self._park(refusals.end())
        self._park(failing)
        self._park(refusals.run)
        return refusals.count, refusals.answer

    def _accepts_later(
        self,
        lines: Sequence[HistoryEntry],
        queue: list[FeedEvent],
        waiting: set[Ref],
        answer: str,
        summary: DeliverySummary,
    ) -> bool:
        """Whether one of a few later events, each the first that waits for its item, is accepted,
        or refused with another answer. One that is accepted from beyond this page is delivered
        again in its turn."""
        for entry in self._later_events(lines, queue, waiting):
            self._take_lease()
            error = (self._call([entry]) or [None])[0]
            if error is None:
                summary.delivered += 1
                if entry in queue:
                    queue.remove(entry)
                return True
            if isinstance(error, EventRefused) and parked_events.error_text(error) != answer:
                return True
        return False

    def _later_events(
        self, lines: Sequence[HistoryEntry], queue: Sequence[FeedEvent], waiting: set[Ref]
    ) -> list[FeedEvent]:
        """The events to try, from this page and the next ones: the last first, and some between,
        each the first that waits for its item."""
        found = _first_by_item(queue, waiting)
        beyond, seq = {*waiting, *(entry.ref for entry in queue)}, lines[-1].seq
        for _ in range(LATER_PAGES):
            more = self._ctx.ledger.feed(seq, PAGE)
            if not more:
                break
            entries = feed_events(more)
            found += [
                entry
                for entry in _first_by_item(entries, beyond)
                if not self._parked.has(entry.ref)
            ]
            beyond |= {entry.ref for entry in entries}
            seq = more[-1].seq
        places = {len(found) * part // LATER_TRIED - 1 for part in range(1, LATER_TRIED + 1)} - {-1}
        return [found[place] for place in sorted(places, reverse=True)]

    def _deliverable(self, lines: Sequence[HistoryEntry]) -> list[FeedEvent]:
        """Events of the page in order, without those that wait behind a parked one."""
        entries = feed_events(lines)
        for ref, newest in {
            entry.ref: entry.seq for entry in entries if self._parked.waits(entry)
        }.items():
            present = parked_events.parked_one(self._ctx, self._subscriber.name, ref)
            waiting = (
                None if present is None else parked_events.wait_behind(self._ctx, *present, newest)
            )
            if waiting is None:
                self._parked.remove(ref)
        return [entry for entry in entries if not self._parked.waits(entry)]

    def _chunk(self, queue: list[FeedEvent], waiting: set[Ref], size: int) -> list[FeedEvent]:
        """Take the next events for one call off the queue, at most one per item. The second event
        of a line stays for the next call, so that many such lines need two full calls instead of
        one call each."""
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

    def _call(self, chunk: Sequence[FeedEvent]) -> Sequence[Exception | None]:
        """Call the subscriber with these events; returns each one's error, or None for a success.
        Raises _CallFailed if the call with several events failed as a whole."""
        try:
            envelopes = [
                cloud_event(entry.event, self._ctx.plans.get(entry.event.route)) for entry in chunk
            ]
            answers = self._subscriber.tell(envelopes)
            if answers is not None and len(answers) != len(chunk):
                raise ValueError(
                    f"the subscriber received {len(chunk)} events and returned {len(answers)} results"
                )
        except Exception as error:
            if len(chunk) > 1:
                raise _CallFailed(error) from error
            answers = [error]
        answers = [None] * len(chunk) if answers is None else answers
        failed = sum(error is not None for error in answers)
        self._ctx.observer.delivered(self._subscriber.name, len(chunk) - failed, failed)
        return answers

    def _park(self, failing: list[tuple[FeedEvent, Exception]]) -> None:
        for entry, error in failing:
            self._parked.set(parked_events.park(self._ctx, self._subscriber.name, entry, error))
        failing.clear()

    # Parked items ---------------------------------------------------------------------------------
    def _deliver_parked(self, due: Sequence[Ref], summary: DeliverySummary) -> None:
        """Retry parked items, until several in a row fail; the others wait for the next run."""
        in_a_row = 0
        for ref in due:
            present = parked_events.parked_one(self._ctx, self._subscriber.name, ref)
            if present is None:
                self._parked.remove(ref)
                continue
            parked, version = present
            if not parked_events.is_due(parked, self._ctx.clock.now()):
                self._parked.set(parked)  # another process has retried it meanwhile
                continue
            entries = parked_events.pending(self._ctx, parked, self._cursor.seq)
            if entries == []:
                continue  # parked ahead of the cursor, which an outage has set back
            failed = False
            for entry in entries or ():
                self._take_lease()
                [error] = self._call([entry])
                if error is not None:
                    self._parked.set(
                        parked_events.park_again(self._ctx, parked, version, entry, error)
                    )
                    failed = True
                    break
                summary.delivered += 1
            if not failed:
                parked_events.unpark(self._ctx, parked, version)
                self._parked.remove(ref)
            in_a_row = in_a_row + 1 if failed else 0
            if in_a_row >= OUTAGE:
                return

    # The cursor -----------------------------------------------------------------------------------
    def _look(self, now: int) -> str | None:
        """Read the cursor; returns why this process may not deliver now, or None."""
        ledger, name = self._ctx.ledger, self._subscriber.name
        document = ledger.read_one(CURSOR, name)
        if document is None:
            ledger.write(
                CURSOR, name, Cursor(ledger.last_seq() if self._from_now else 0, now), expect=0
            )
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
        if self._cursor.lease != self._lease and self._leased(now):
            self._next = min(STAND_BY, (self._cursor.until - now) / 1000)
            return "another process delivers to it"
        if still_ahead(self._cursor.retry_at, now, parked_events.LONGEST_RETRY_MS):
            self._next = min(STAND_BY, (self._cursor.retry_at - now) / 1000)
            return f"it is unavailable ({self._cursor.error})"
        return None

    def _leased(self, now: int) -> bool:
        """Whether the cursor has a lease. While routes are moved to this ledger, it is a long one,
        and nothing is delivered here."""
        if self._cursor.lease == MOVER:
            return self._cursor.until > now
        return still_ahead(self._cursor.until, now, LEASE_MS)

    def _take_lease(self) -> None:
        """Take the lease, or extend it if less than half is left."""
        now = self._ctx.clock.now()
        if (
            self._cursor.lease != self._lease
            or not LEASE_MS // 2 <= self._cursor.until - now <= LEASE_MS
        ):
            self._save(lease=self._lease, until=now + LEASE_MS)

    def _back_off(self, outage: _Outage) -> None:
        """Wait before the next try. The cursor stays before the first undelivered line, so that
        nothing is skipped."""
        cursor, now = self._cursor, self._ctx.clock.now()
        delay = parked_events.RETRY.delay(cursor.failures, self._ctx.chance.jitter()).ms
        if outage.refused:
            delay = min(delay, LONGEST_REFUSAL_MS)
        self._next = min(STAND_BY, delay / 1000)
        seq = max(cursor.seq, outage.seq - 1)
        error = parked_events.error_text(outage.error)
        refusals = {"refused": outage.refused, "refusal": error if outage.refused else ""}
        try:
            self._parked.note()
            self._save(
                seq=seq,
                until=0,
                failures=cursor.failures + 1,
                retry_at=now + delay,
                error=error,
                **refusals,
            )
        except _Lost:
            return

    def _save(self, **fields: object) -> None:
        """Write the cursor; raises _Lost if another process has changed it."""
        changed = replace(self._cursor, **fields)
        if not self._ctx.ledger.write(CURSOR, self._subscriber.name, changed, expect=self._version):
            raise _Lost
        self._cursor, self._version = changed, self._version + 1
