"""Claims by messages that a Lambda function receives from its queue; the queue deletes those that the function does not report. The rules
are those of `claim`; only the handling of messages differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct, field

from milepost.core.errors import LedgerError
from milepost.core.item import Item
from milepost.ledgers.aws.claim.admission import StageAdmission
from milepost.ledgers.aws.claim.claim import MOST_COPIES, SOON_MS, ItemClaims, MessageClaims, MessageVerdict
from milepost.ledgers.aws.requests.queues import SqsMessage, read
from milepost.ledgers.aws.store import AwsStore
from milepost.ports.items import ClaimRequest


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
    """They must be delivered again: because of an error of AWS, or because the route is outdated here."""
    outdated: bool = False


class FunctionMessages(MessageClaims):
    """Answers messages that a function has received."""

    def answer(self, ask: ClaimRequest, messages: Sequence[SqsMessage], now: int, jitter: float) -> MessageResults:
        """Claim the items of these messages, within pauses and rates. An error of one does not affect the others."""
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
        admitted = admission.admit(self._distinct(ask, messages), set())
        answered = MessageResults(waiting=admitted.waiting)
        claims = ItemClaims(store, ask, layout, admitted.chosen, now, jitter)
        verdicts = store.requests.each([partial(_verdict_if_possible, claims, message) for message in admitted.chosen])
        later: list[tuple[SqsMessage, int]] = []
        for message, verdict in zip(admitted.chosen, verdicts, strict=True):
            if verdict is None:
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
            self._hold(layout, admitted.paused)
        except LedgerError:
            answered.failed += admitted.paused
        answered.next_at = admission.next_at
        return answered

    def delay(self, later: Sequence[tuple[SqsMessage, int]]) -> list[SqsMessage]:
        """Send a copy of each that arrives after so many milliseconds; returns those for which that failed."""
        try:
            self._delay(later)
        except LedgerError:
            return [message for message, _ in later]
        # A message that was delayed too often is not delayed again: it stays in its queue.
        return [message for message, _ in later if int(message.body.get("copies", 0)) >= MOST_COPIES]


def _verdict_if_possible(claims: ItemClaims, message: SqsMessage) -> MessageVerdict | None:
    try:
        return claims.verdict(message)
    except LedgerError:
        return None


def from_event(event: Mapping[str, Any], store: AwsStore, url: str) -> list[SqsMessage]:
    """The messages of an SQS event of one queue. A body that is not a JSON object goes into quarantine, and is done."""
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
            store.queues.set_aside("message", {"url": url, "id": raw["MessageId"], "body": raw["Body"]}, message)
    return messages
