"""Claims on AWS: receive an SQS message, then claim its item with one conditional update. The
message is a hint; the row is the truth."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.admission.controls import scope
from milepost.core.decide import given_back
from milepost.core.due import FRAGILE, fragile, look
from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.failures import unreadable, unstorable
from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.ports.items import ClaimRequest, ClaimResult, Conflict, Refused
from milepost_aws.ledger.apply import apply
from milepost_aws.ledger.claim.admission import StageAdmission, lane_of
from milepost_aws.ledger.claim.paused_lanes import hold
from milepost_aws.ledger.names import due_shard, iso
from milepost_aws.ledger.offers import message_body
from milepost_aws.ledger.refused_rows import (
    concerns_one_row,
    item_or_refused,
    quarantine_row,
    readable,
    why_unreadable,
)
from milepost_aws.ledger.requests.client import ConditionFailed
from milepost_aws.ledger.requests.queues import LongPolls, Outgoing, SqsMessage, read, sendable
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.item_rows import is_ours, item_of, row_of
from milepost_aws.ledger.tables.keys import Image, Layout

LOOK_MS = 250
"""Interval at which a worker checks whether a long poll of an idle queue has returned messages;
this costs no request."""
SOON_MS = 2_000
"""Delay of a message whose item cannot be claimed yet."""
MOST_COPIES = 400
"""Maximum delays of one message: after them it is deleted, and the resender sends a new one if the
item exists."""

MOST_LOOKS = 3
"""Maximum receipts of a message for a check without a claim: after them the item is claimed, so
that losses are counted."""

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class MessageVerdict(Struct):
    """Result of one message: a claimed item, or a row advanced without a worker, or neither."""

    message: SqsMessage
    item: Item | None = None
    moved: bool = False
    later_ms: int | None = None
    """Delay of the message; None: it is done."""
    fragile: bool = False
    refused: Refused | None = None
    """The row cannot be read or written: the failure was counted on the item, or the row is in
    quarantine."""


class ItemClaims:
    """Claims the items of one request's messages, one conditional update each, and gives a verdict
    on each message."""

    def __init__(
        self,
        store: AwsStore,
        ask: ClaimRequest,
        layout: Layout,
        messages: Sequence[SqsMessage],
        now: int,
        jitter: float,
    ) -> None:
        self._store, self._ask, self._layout, self._now, self._jitter = (
            store,
            ask,
            layout,
            now,
            jitter,
        )
        # An item that two workers were lost with is always claimed, also at a stage that only
        # checks.
        self._only_checks = not ask.plan.by_name[ask.stage].claims and not ask.fragile
        checked = (
            [message.body["key"] for message in messages if message.received <= MOST_LOOKS]
            if self._only_checks
            else []
        )
        self._checked = store.images(layout.route, checked)
        """The rows to check without a claim, read together."""

    def answer(self, message: SqsMessage) -> MessageVerdict | LedgerError:
        """Process one message; after a problem with AWS, the error. Neither that nor a row that
        cannot be read, decided or written affects other items: those that are claimed belong to
        this worker."""
        try:
            try:
                return self._claim(message)
            except Exception as error:
                if not concerns_one_row(error):
                    raise
                return self._refuse(message, error)
        except LedgerError as error:
            return error

    def _refuse(self, message: SqsMessage, error: Exception) -> MessageVerdict:
        """Count the failure on the row, in a form that fits; if even that cannot be written, put
        the row into quarantine."""
        store, ask, layout, now = self._store, self._ask, self._layout, self._now
        stage, key = ask.plan.by_name[ask.stage], message.body["key"]
        image = store.images(layout.route, [key]).get(key)
        reason = (
            str(error) if isinstance(error, LedgerError) else why_unreadable(error, image, layout)
        )
        item = None if image is None else item_or_refused(store, layout, image)
        row = item.row if item is not None else None
        if row is not None and (
            row.terminal or row.stage != ask.stage or row.lease not in (None, ask.lease.token)
        ):
            return MessageVerdict(message)
        answer: Conflict | Refused | None = (
            item if isinstance(item, Refused) else Refused(reason, key)
        )
        if row is not None:
            damaged = isinstance(item, Refused)
            change = (
                unreadable(row, stage, reason, now)
                if damaged
                else unstorable(row, stage, reason, now, self._jitter)
            )
            answer = apply(store, [change], now, {ask.plan.name: ask.plan.version})[0]
            if answer is None:
                return MessageVerdict(message, moved=True, refused=Refused(reason, key, row))
        if isinstance(answer, Conflict):
            return MessageVerdict(message, later_ms=SOON_MS)
        if image is not None:
            quarantine_row(store, layout, image, f"it cannot be claimed: {reason}", now)
        return MessageVerdict(message, refused=Refused(reason, key, row))

    def _claim(self, message: SqsMessage) -> MessageVerdict:
        """Try the plain claim first; if its condition fails, decide on the row that DynamoDB
        returns."""
        store, layout, key = self._store, self._layout, message.body["key"]
        if key in self._checked:
            return self._decide(message, self._checked[key])
        if self._ask.fragile:
            image = store.images(layout.route, [key]).get(key)
            return MessageVerdict(message) if image is None else self._decide(message, image)
        claim = _plain_claim(self._ask, layout, key, self._now)
        try:
            answer = store.requests.call("dynamodb", "update_item", **claim, ReturnValues="ALL_NEW")
        except ConditionFailed as failed:
            return (
                MessageVerdict(message)
                if failed.image is None
                else self._decide(message, failed.image)
            )
        image = answer["Attributes"]
        try:
            return MessageVerdict(message, item_of(image, layout, store.values, message))
        except LedgerError as error:
            if not concerns_one_row(error):
                self._give_back(row_of(image, layout, store.values), error)
            raise

    def _give_back(self, row: Row, error: LedgerError) -> None:
        """Give back an item whose content cannot be read for now: a loss would be counted if its
        lease ran out. Its message stays hidden for as long as the lease would have lasted, so the
        next claim does not follow at once."""
        plan = self._ask.plan
        apply(
            self._store,
            [given_back(row, self._now, why=str(error))],
            self._now,
            {plan.name: plan.version},
        )

    def _decide(self, message: SqsMessage, image: Image) -> MessageVerdict:
        store, ask, plan, now = self._store, self._ask, self._ask.plan, self._now
        if not is_ours(image):
            return MessageVerdict(message, later_ms=SOON_MS)
        item = item_of(image, self._layout, store.values, message)
        row = item.row
        if row.lease == ask.lease.token:
            return MessageVerdict(message, item)  # our own claim, whose answer was lost
        if row.terminal:
            return MessageVerdict(message)
        if row.lease is not None:
            # The write that ends this lease may come after the message for the next stage.
            return MessageVerdict(
                message, later_ms=SOON_MS if _version_in(message) > row.version else None
            )
        if row.stage != ask.stage:
            ahead = plan.position.get(row.stage, len(plan.stages)) < plan.position[ask.stage]
            # The item has not reached this stage: the write that brings it here may come after the
            # message.
            return MessageVerdict(message, later_ms=SOON_MS if ahead else None)
        if fragile(row) is not ask.fragile:
            return MessageVerdict(
                message, fragile=fragile(row), later_ms=None if fragile(row) else 0
            )
        change = look(item, plan, now, self._jitter, ask.lease, called=True)
        if change is None:
            if _version_in(message) > row.version:
                return MessageVerdict(
                    message, later_ms=SOON_MS
                )  # the write that makes it ready may come after the message
            early = (row.look_at or now) - now
            return MessageVerdict(
                message,
                later_ms=early if 0 < early <= store.settings.longest_delay_s * 1000 else None,
            )
        if (
            change.line is None
            and change.after.lease == ask.lease.token
            and self._only_checks
            and message.received <= MOST_LOOKS
        ):
            # Nothing is written: the outcome of a check is valid only for the present row (see
            # `engine.work.settle`).
            return MessageVerdict(
                message,
                Item(replace(row, holder=ask.lease.holder, claimed_at=now), item.content, message),
            )
        answer = apply(store, [change], now, {plan.name: plan.version})[0]
        if isinstance(answer, Refused):
            return self._refuse(message, LedgerDamaged(answer.reason))
        if answer is not None:
            return MessageVerdict(message, later_ms=SOON_MS)
        if change.after.lease != ask.lease.token:
            return MessageVerdict(message, moved=True)
        return MessageVerdict(message, Item(change.after, item.content, message))


class MessageClaims:
    """Answers claim requests. Messages of fragile items are kept until a request for fragile items
    comes, or returned to the queue."""

    def __init__(self, store: AwsStore) -> None:
        self._store = store
        self._fragile_kept: dict[tuple[str, str], list[tuple[SqsMessage, int]]] = {}
        self._lanes: dict[tuple[str, str], set[str]] = {}
        self._polls = LongPolls(store.queues, store.settings.long_poll_s)

    def close(self) -> None:
        """Return messages to the queue that no claim has used."""
        self._polls.close()

    def claim(self, ask: ClaimRequest, now: int, jitter: float) -> ClaimResult:
        """Items of one stage, claimed under the lease of the request: receive messages, admit those
        that may be claimed now, claim their items, and settle the messages without one."""
        layout = self._store.load_route(ask.plan)
        refusal = self._refusal(ask, now)
        if refusal is not None:
            return refusal
        admission = StageAdmission(self._store, ask, now)
        messages = self._receive(ask, admission, now)
        if messages is None:
            return ClaimResult([], next_at=admission.next_at)
        self._admit(ask, admission, messages)
        claims = ItemClaims(self._store, ask, layout, admission.chosen, now, jitter)
        verdicts = self._claim_items(claims, admission.chosen)
        self._settle(ask, layout, verdicts, admission, now)
        return self._result(ask, verdicts, admission, now)

    def _refusal(self, ask: ClaimRequest, now: int) -> ClaimResult | None:
        """The answer to a request for which nothing is to be received now."""
        store, route = self._store, ask.plan.name
        if store.outdated(route, ask.plan.version, now):
            return ClaimResult([], outdated=True)
        announced = store.takes_effect_at(route, now)
        if announced is not None:
            return ClaimResult([], next_at=announced)
        holds = store.holds(now)
        if ask.want <= 0:
            return ClaimResult([])
        url = self._url(ask)
        if route in holds or scope(route, ask.stage) in holds:
            self._polls.give_up(url)
            # No message tells a worker that a pause has ended: it must poll.
            return ClaimResult([], next_at=now + store.settings.poll_ms)
        if self._polls.waiting(url) and not ask.fragile:
            return ClaimResult([], next_at=now + min(LOOK_MS, store.settings.poll_ms))
        return None

    def _url(self, ask: ClaimRequest) -> str:
        queue = ask.plan.by_name[ask.stage].queue
        return self._store.queues.url(ask.plan.name, ask.stage, queue)

    # Receive --------------------------------------------------------------------------------------
    def _receive(
        self, ask: ClaimRequest, admission: StageAdmission, now: int
    ) -> list[SqsMessage] | None:
        """Messages for the request, one for each item; None: there is no room for any. A request
        for a fragile item first gets the messages that were kept."""
        url = self._url(ask)
        room = admission.room()
        if admission.closed:
            self._polls.give_up(url)
        if room <= 0:
            return None
        messages = self._take_fragile_messages(ask, now) if ask.fragile else []
        if not messages:
            messages = self._polls.take(url)
        if not messages:
            visibility_s = -(-max(1000, ask.lease.until - now) // 1000)
            most = 10 if ask.fragile else room
            messages = self._store.queues.receive(url, most, visibility_s)
            self._polls.received(url, len(messages), visibility_s)
        return self._distinct(ask, messages)

    def _take_fragile_messages(self, ask: ClaimRequest, now: int) -> list[SqsMessage]:
        messages = self._fragile_messages(ask, now)
        self._fragile_kept.pop((ask.plan.name, ask.stage), None)
        return messages

    def _distinct(self, ask: ClaimRequest, received: Sequence[SqsMessage]) -> list[SqsMessage]:
        """The messages for this stage, one for each item: of several the one with the highest
        version, because only that one may precede the write that it refers to. The others are
        deleted; not the same message that SQS has delivered twice, of which the newest receipt
        counts."""
        seen: dict[str, SqsMessage] = {}
        duplicates: list[SqsMessage] = []
        for message in received:
            key = message.body.get("key")
            if (
                not isinstance(key, str)
                or message.body.get("stage") != ask.stage
                or message.body.get("route") != ask.plan.name
            ):
                body = _encode(message.body).decode()
                self._reject(
                    message,
                    body,
                    f"it is not a message for stage {ask.stage!r} of route {ask.plan.name!r}",
                )
            elif key not in seen or message.id == seen[key].id:
                seen[key] = message
            elif _version_in(message) > _version_in(seen[key]):
                duplicates.append(seen[key])
                seen[key] = message
            else:
                duplicates.append(message)
        self._store.queues.delete(duplicates)
        return list(seen.values())

    def _reject(self, message: SqsMessage, body: str, reason: str) -> None:
        self._store.queues.reject(message, body, reason)

    # Admit ----------------------------------------------------------------------------------------
    def _admit(
        self, ask: ClaimRequest, admission: StageAdmission, messages: Sequence[SqsMessage]
    ) -> None:
        """Admit the messages that may be claimed now. Room is left for the lanes of the stage that
        have been seen before."""
        known = self._lanes.setdefault((ask.plan.name, ask.stage), set())
        known.update(lane_of(message) for message in messages)
        admission.admit(messages, known)

    # Claim ----------------------------------------------------------------------------------------
    def _claim_items(
        self, claims: ItemClaims, messages: Sequence[SqsMessage]
    ) -> list[MessageVerdict]:
        """Claim the items of these messages, in parallel. After a problem with AWS its error is
        raised, unless some items are claimed: they belong to this worker."""
        answers = self._store.requests.each(
            [partial(claims.answer, message) for message in messages]
        )
        verdicts = [answer for answer in answers if isinstance(answer, MessageVerdict)]
        items = _items_of(verdicts)
        for error in answers:
            if isinstance(error, LedgerError):
                if not items:
                    raise error
                log.warning("an item could not be claimed; its message comes again: %s", error)
        return verdicts

    # Settle ---------------------------------------------------------------------------------------
    def _settle(
        self,
        ask: ClaimRequest,
        layout: Layout,
        verdicts: Sequence[MessageVerdict],
        admission: StageAdmission,
        now: int,
    ) -> None:
        """Return what was taken for items that are not claimed, and settle their messages."""
        items = _items_of(verdicts)
        try:
            admission.settle(items)
            self._settle_messages(ask, layout, verdicts, admission, now)
        except LedgerError as error:
            # The claimed items are processed all the same; the other messages come again after
            # their visibility timeout.
            if not items:
                raise
            log.warning(
                "messages without a claimed item could not be deleted or delayed: %s", error
            )

    def _settle_messages(
        self,
        ask: ClaimRequest,
        layout: Layout,
        verdicts: Sequence[MessageVerdict],
        admission: StageAdmission,
        now: int,
    ) -> None:
        """Every message without a claimed item: delete it, delay it, keep it, or return it to the
        queue at once."""
        kept = self._fragile_kept.setdefault((ask.plan.name, ask.stage), [])
        kept += [
            (verdict.message, ask.lease.until)
            for verdict in verdicts
            if verdict.fragile and not ask.fragile
        ]
        ended = [verdict for verdict in verdicts if verdict.item is None and not verdict.fragile]
        later = [(verdict.message, verdict.later_ms) for verdict in ended if verdict.later_ms]
        self._delay(later)
        self._store.queues.delete(
            [verdict.message for verdict in ended if verdict.later_ms is None]
        )
        self._hold(layout, admission.paused, now)
        at_once = [verdict.message for verdict in ended if verdict.later_ms == 0]
        self._store.queues.release([*at_once, *admission.waiting])

    def _result(
        self,
        ask: ClaimRequest,
        verdicts: Sequence[MessageVerdict],
        admission: StageAdmission,
        now: int,
    ) -> ClaimResult:
        items = _items_of(verdicts)
        moved = sum(verdict.moved for verdict in verdicts)
        next_at = admission.next_at
        if not items and next_at is None:
            next_at = now if moved else now + self._store.settings.poll_ms
        return ClaimResult(
            items,
            moved,
            next_at,
            fragile=not ask.fragile and bool(self._fragile_messages(ask, now)),
            refused=[verdict.refused for verdict in verdicts if verdict.refused is not None],
        )

    def _delay(self, later: Sequence[tuple[SqsMessage, int]]) -> None:
        """Replace the message by a delayed copy: a hidden message would count against the queue's
        in-flight limit."""
        queues, longest = self._store.queues, self._store.settings.longest_delay_s
        copies = []
        for message, wait_ms in later:
            body = message.body
            count = int(body.get("copies", 0)) + 1
            if count <= MOST_COPIES:
                copy = message_body(
                    body["route"],
                    body["key"],
                    body["stage"],
                    lane_of(message),
                    count,
                    _version_in(message),
                )
                copies.append(
                    Outgoing(
                        message.url,
                        sendable(_encode(copy).decode()),
                        min(longest, -(-wait_ms // 1000)),
                        lane_of(message),
                    )
                )
        if copies:
            queues.send(copies)
        queues.delete([message for message, _ in later])

    def _hold(self, layout: Layout, paused: Sequence[SqsMessage], now: int) -> None:
        """Move a paused row to a separate index partition until it is resumed, and delete its
        message."""
        for image in self._store.images(
            layout.route, [message.body["key"] for message in paused]
        ).values():
            row = readable(self._store, layout, image)
            if row is not None and row.lease is None and not row.terminal:
                hold(self._store, layout, row, now)
        self._store.queues.delete(list(paused))

    def _fragile_messages(self, ask: ClaimRequest, now: int) -> list[SqsMessage]:
        """Kept messages of fragile items that are still valid."""
        return [
            message
            for message, until in self._fragile_kept.get((ask.plan.name, ask.stage), ())
            if until > now
        ]


def _items_of(verdicts: Sequence[MessageVerdict]) -> list[Item]:
    return [verdict.item for verdict in verdicts if verdict.item is not None]


def _version_in(message: SqsMessage) -> int:
    """The version that the row must have for the message to be valid; 0: any."""
    version = message.body.get("version")
    return version if isinstance(version, int) else 0


def _plain_claim(ask: ClaimRequest, layout: Layout, key: str, now: int) -> dict[str, object]:
    """The plain claim (see `core.due.look`): ready, without a lease, and without a confirmation
    that must be decided first."""
    update, until = Update(layout, key), iso(ask.lease.until)
    update.set("status", {"S": Status.PROCESSING.value})
    update.set("lease", {"S": ask.lease.token})
    update.set("holder", {"S": ask.lease.holder})
    update.set("claimedAt", {"S": iso(now)})
    update.set("leaseUntil", {"S": until})
    update.set("dueShard", {"S": due_shard(ask.stage, key)})
    update.set("dueAt", {"S": until})
    update.remove("lookAt", "nextRetryAt")
    update.equal("queue", {"S": ask.stage})
    name, value = update.name, update.value
    offered = f"{name('status')} IN ({value({'S': Status.PENDING.value})}, {value({'S': Status.QUEUED.value})})"
    waits = f"{name('status')} IN ({value({'S': Status.WAITING.value})}, {value({'S': Status.RETRY_SCHEDULED.value})})"
    ready = (
        f"attribute_not_exists({name('lookAt')}) AND {name('dueAt')} <= {value({'S': iso(now)})}"
    )
    update.only_if(f"({offered} OR ({waits} AND {ready}))")
    update.unchanged(
        {}, "lease", "handedOver", "undecided", "kept", "notBefore", layout.prefix + ask.stage
    )
    update.only_if(
        f"(attribute_not_exists({name('overdueAt')}) OR {name('overdueAt')} > {value({'S': until})})"
    )
    update.only_if(
        f"(attribute_not_exists({name('losses')}) OR {name('losses')} < {value({'N': str(FRAGILE)})})"
    )
    return update.params()


# Lambda -------------------------------------------------------------------------------------------
class MessageResults(Struct):
    """Results of some messages. Messages that are not listed here are done."""

    items: list[Item] = field(default_factory=list)
    """Claimed under the lease of the request."""
    moved: int = 0
    """Rows that were advanced without a worker."""
    fragile: list[SqsMessage] = field(default_factory=list)
    """Two workers were lost with their items: request each alone, when nothing else runs."""
    waiting: list[SqsMessage] = field(default_factory=list)
    """They may not be claimed before `next_at`: there is no token, or no room in their lane."""
    next_at: int | None = None
    """None: when a claimed item has ended."""
    announced: bool = False
    """A changed route is announced: from `next_at` on they may all be claimed."""
    failed: list[SqsMessage] = field(default_factory=list)
    """They must be delivered again: because of an error of AWS, or because the route is outdated
    here."""
    outdated: bool = False


class FunctionMessages(MessageClaims):
    """Answers messages that a Lambda function has received from its queue; the queue deletes those
    that the function does not report. The rules are those of `MessageClaims`; only the handling of
    messages differs."""

    def answer(
        self, ask: ClaimRequest, messages: Sequence[SqsMessage], now: int, jitter: float
    ) -> MessageResults:
        """Claim the items of these messages, within pauses and rates. An error of one does not
        affect the others."""
        store, route = self._store, ask.plan.name
        layout = store.load_route(ask.plan)
        if store.outdated(route, ask.plan.version, now):
            return MessageResults(failed=list(messages), outdated=True)
        announced = store.takes_effect_at(route, now)
        if announced is not None:
            return MessageResults(waiting=list(messages), next_at=announced, announced=True)
        admission = StageAdmission(store, ask, now)
        admission.room()  # charges what was spent beyond the last claim
        # Nothing else is claimed beside these, so no lane need leave room for another.
        admission.admit(self._distinct(ask, messages), set())
        answered = MessageResults(waiting=admission.waiting)
        claims = ItemClaims(store, ask, layout, admission.chosen, now, jitter)
        verdicts = store.requests.each(
            [partial(claims.answer, message) for message in admission.chosen]
        )
        later: list[tuple[SqsMessage, int]] = []
        for message, verdict in zip(admission.chosen, verdicts, strict=True):
            if isinstance(verdict, LedgerError):
                answered.failed.append(message)
            elif verdict.item is not None:
                answered.items.append(verdict.item)
            elif verdict.fragile and not ask.fragile:
                answered.fragile.append(message)
            elif verdict.later_ms is not None:
                later.append((message, verdict.later_ms or SOON_MS))
            else:
                answered.moved += verdict.moved
        with suppress(LedgerError):  # the tokens come back with time; the items are claimed
            admission.settle(answered.items)
        answered.failed += self.delay(later)
        try:
            self._hold(layout, admission.paused, now)
        except LedgerError:
            answered.failed += admission.paused
        answered.next_at = admission.next_at
        return answered

    def _reject(self, message: SqsMessage, body: str, reason: str) -> None:
        # Raises where the quarantine cannot be reached: the queue would delete the message.
        self._store.queues.set_aside_message(message.url, message.id, body, reason)

    def delay(self, later: Sequence[tuple[SqsMessage, int]]) -> list[SqsMessage]:
        """Send a copy of each that arrives after so many milliseconds; returns those for which that
        failed."""
        try:
            self._delay(later)
        except LedgerError:
            return [message for message, _ in later]
        # A message that was delayed too often is not delayed again: it stays in its queue.
        return [
            message for message, _ in later if int(message.body.get("copies", 0)) >= MOST_COPIES
        ]


def from_event(event: Mapping[str, Any], store: AwsStore, url: str) -> list[SqsMessage]:
    """The messages of an SQS event of one queue. A body that is not a JSON object goes into
    quarantine, and is done."""
    messages = []
    for record in event["Records"]:
        raw = {
            "MessageId": record["messageId"],
            "ReceiptHandle": record["receiptHandle"],
            "Body": record["body"],
            "Attributes": record.get("attributes", {}),
        }
        message = read(url, raw, lent=True)
        if isinstance(message, SqsMessage):
            messages.append(message)
        else:
            store.queues.set_aside_message(url, raw["MessageId"], raw["Body"], message)
    return messages
