"""SQS queues: messages in batches (send, receive, delete, extend, release; unreadable ones go into
quarantine), and long polls.

A message only says that an item may be due. It can come twice, late or never: the row decides, and
the resender sends again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field

from milepost.core.errors import LedgerError
from milepost.core.values.json import check_depth
from milepost_aws.ledger.names import ResourceNames, b64
from milepost_aws.ledger.requests.client import TEMPORARY, AwsRefused, Requests

BATCH = 10
BATCH_BYTES = 900_000
LONGEST_DELAY_S = 900
LONGEST_VISIBILITY_S = 43_200
LONGEST_WAIT_S = 20
"""Longest long poll of SQS; such a request may take longer than others (see `client`)."""
LONGEST_CONTENT = 200_000

_STALE = {
    *(
        "ReceiptHandleIsInvalid",
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "InvalidIdFormat",
    ),
    *("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"),
}
"""The receipt is out of date: the message was deleted, is visible again, or was received again."""
_OF_ONE_ENTRY = {
    *_STALE,
    *("InvalidMessageContents", "InvalidAttributeValue", "ParamValidationError"),
    *("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong"),
}
"""A batch refused with these codes may be refused because of one entry."""
_GROUP = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_UNSENDABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
log = logging.getLogger(__name__)


class Outgoing(Struct, frozen=True):
    """A message to send. Messages of one lane share a group, so that SQS does not let a long lane
    delay the others."""

    url: str
    body: str
    delay_s: int = 0
    lane: str = ""
    attributes: dict[str, str] = {}


class SqsMessage(Struct, frozen=True):
    """A received message, ours until its visibility ends. `received` counts its deliveries."""

    url: str
    handle: str
    body: dict[str, Any]
    received: int
    id: str
    lent: bool = False
    """Received by a Lambda event source, which deletes it after success: never deleted here."""


class EntryRefusal(Struct, frozen=True):
    """Why SQS will never accept one entry of a batch."""

    code: str
    why: str


class Queues:
    """The queues of one deployment: one per stage, and the quarantine."""

    def __init__(self, requests: Requests, names: ResourceNames) -> None:
        self._requests, self._names = requests, names
        self._urls: dict[str, str] = {}
        self._retention: dict[str, int] = {}

    def url(self, route: str, stage_name: str, own: str | None = None) -> str:
        """The stage's queue; `own` is the queue that the stage itself names."""
        return own or self.named(self._names.queue(route, stage_name))

    def retention_ms(self, url: str) -> int:
        """The queue's message retention."""
        if url not in self._retention:
            (seconds,) = self._numbers(url, "MessageRetentionPeriod")
            self._retention[url] = seconds * 1000
        return self._retention[url]

    def depth(self, url: str) -> tuple[int, int, int]:
        """Messages that are visible, in flight and delayed; approximate."""
        counted = "ApproximateNumberOfMessages"
        visible, in_flight, delayed = self._numbers(
            url, counted, f"{counted}NotVisible", f"{counted}Delayed"
        )
        return visible, in_flight, delayed

    def send(self, outgoing: Sequence[Outgoing]) -> list[str | None]:
        """Send all messages. One answer each, in order: None if sent, else why SQS will never
        accept it. Temporary failures are retried until the deadline; then LedgerBusy is raised, and
        some may have been sent."""
        answers = [_unsendable(one.body) for one in outgoing]
        sendable = [
            (str(number), one) for number, one in enumerate(outgoing) if answers[number] is None
        ]
        jobs = [
            partial(self._batch, "send_message_batch", url, entries)
            for url, entries in _send_batches(sendable)
        ]
        for refused in self._requests.each(jobs):
            for name, refusal in refused.items():
                answers[int(name)] = refusal.why
        return answers

    def receive(self, url: str, most: int, visibility_s: int, wait_s: int = 0) -> list[SqsMessage]:
        """Up to `most` messages, invisible to other receivers for `visibility_s`; waits up to
        `wait_s` (at most 20) for the first. A body that is not a JSON object goes into quarantine
        and does not affect the others."""
        messages: list[SqsMessage] = []
        taken = (
            0  # counts unreadable ones too, so that a flood of them cannot keep this loop running
        )
        while taken < most:
            try:
                answer = self._requests.call(
                    "sqs",
                    "receive_message",
                    QueueUrl=url,
                    MaxNumberOfMessages=min(BATCH, most - taken),
                    VisibilityTimeout=min(max(visibility_s, 0), LONGEST_VISIBILITY_S),
                    WaitTimeSeconds=0 if taken else min(max(wait_s, 0), LONGEST_WAIT_S),
                    MessageSystemAttributeNames=["ApproximateReceiveCount"],
                )
            except LedgerError:
                # Keep the messages received so far; if the problem lasts, the next call raises it.
                if not messages:
                    raise
                break
            received = answer.get("Messages") or []
            if not received:
                break
            taken += len(received)
            for raw in received:
                message = read(url, raw)
                if isinstance(message, SqsMessage):
                    messages.append(message)
                else:
                    self.reject(
                        SqsMessage(url, raw["ReceiptHandle"], {}, 1, raw.get("MessageId", "")),
                        raw.get("Body", ""),
                        message,
                    )
        return messages

    def delete(self, messages: Sequence[SqsMessage]) -> None:
        """Delete them; messages that now belong to another receiver stay."""
        self._settle(
            "delete_message_batch", [message for message in messages if not message.lent], {}
        )

    def extend(self, messages: Sequence[SqsMessage], seconds: int) -> None:
        """Keep them invisible for `seconds` from now, except those that now belong to another
        receiver."""
        self._settle(
            "change_message_visibility_batch",
            messages,
            {"VisibilityTimeout": min(max(seconds, 0), LONGEST_VISIBILITY_S)},
        )

    def release(self, messages: Sequence[SqsMessage]) -> None:
        """Make them visible again: any receiver may have them at once."""
        self.extend(messages, 0)

    def quarantine(self) -> str:
        """The address of the quarantine queue."""
        return self.named(self._names.quarantine)

    def set_aside(self, kind: str, content: Any, reason: str) -> None:
        """Put content that cannot be used into the quarantine queue for operators: {"kind",
        "reason", "content"}. Content too long for a message is cut, and its digest is added."""
        body = json.dumps(
            {"kind": kind, "reason": reason[:2000], "content": _cut_to_fit(content)},
            separators=(",", ":"),
        )
        self._requests.call("sqs", "send_message", QueueUrl=self.quarantine(), MessageBody=body)

    def set_aside_message(self, url: str, id: str, body: str, reason: str) -> None:
        """Put a message of a queue that cannot be used into quarantine. `milepost quarantine
        replay` sends it to that queue again."""
        self.set_aside("message", {"url": url, "id": id, "body": body}, reason)

    def reject(self, message: SqsMessage, body: str, reason: str) -> None:
        """Put a received message into quarantine and delete it. One that cannot be put there stays,
        and affects no other."""
        try:
            self.set_aside_message(message.url, message.id, body, reason)
            self.delete([message])
        except LedgerError as error:
            # Not deleted, so not lost: SQS delivers it again when its visibility ends.
            log.warning(
                "cannot quarantine an unusable message, so it stays in %s: %s", message.url, error
            )

    def named(self, name: str) -> str:
        """The address of the queue of this name."""
        if name not in self._urls:
            self._urls[name] = self._requests.call("sqs", "get_queue_url", QueueName=name)[
                "QueueUrl"
            ]
        return self._urls[name]

    def _numbers(self, url: str, *names: str) -> list[int]:
        attributes = self._requests.call(
            "sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=list(names)
        ).get("Attributes", {})
        return [int(attributes.get(name, 0)) for name in names]

    def _settle(
        self, operation: str, messages: Sequence[SqsMessage], params: dict[str, Any]
    ) -> None:
        by_url: dict[str, list[dict[str, Any]]] = {}
        for number, message in enumerate(messages):
            by_url.setdefault(message.url, []).append(
                {"Id": str(number), "ReceiptHandle": message.handle, **params}
            )
        jobs = [
            partial(self._batch, operation, url, entries[start : start + BATCH])
            for url, entries in by_url.items()
            for start in range(0, len(entries), BATCH)
        ]
        for refused in self._requests.each(jobs):
            for refusal in refused.values():
                if refusal.code not in _STALE:
                    raise AwsRefused(f"sqs {operation}: {refusal.why}", refusal.code)

    def _batch(
        self, operation: str, url: str, entries: list[dict[str, Any]]
    ) -> dict[str, EntryRefusal]:
        """Send up to ten entries; returns the permanently refused ones by id. An entry missing in
        the answer is sent again."""
        refused: dict[str, EntryRefusal] = {}
        budget = self._requests.retry_budget()
        while entries:
            params = {"QueueUrl": url, "Entries": entries}
            try:
                answer = self._requests.attempt(budget, "sqs", operation, params)
            except AwsRefused as error:
                if error.code not in _OF_ONE_ENTRY:
                    raise
                if len(entries) == 1:
                    return refused | {entries[0]["Id"]: EntryRefusal(error.code, str(error))}
                for entry in entries:
                    refused |= self._batch(operation, url, [entry])
                return refused
            done = {entry["Id"] for entry in answer.get("Successful") or ()}
            why = "some entries got no answer"
            for failed in answer.get("Failed") or ():
                code, why = failed.get("Code", ""), f"{failed.get('Code')}: {failed.get('Message')}"
                if failed.get("SenderFault") and code not in TEMPORARY:
                    refused[failed["Id"]] = EntryRefusal(code, why)
            entries = [
                entry for entry in entries if entry["Id"] not in done and entry["Id"] not in refused
            ]
            if entries:
                budget.pause(self._requests.where("sqs", operation, params), why)
        return refused


def sendable(text: str) -> str:
    """JSON that SQS accepts: unsupported characters occur only within strings, and are escaped
    there."""
    return _UNSENDABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _unsendable(body: str) -> str | None:
    """Why SQS would refuse this body; some such bodies would make it refuse the whole batch."""
    if not body:
        return "the message is empty"
    found = _UNSENDABLE.search(body)
    return (
        found
        and f"the message has the character {found[0]!a} at {found.start()}, which SQS does not accept"
    )


def _send_batches(
    outgoing: Sequence[tuple[str, Outgoing]],
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Batches by queue, each within SQS's limits; a body too long for any batch is alone, so that
    it is refused alone."""
    filling: dict[str, tuple[list[dict[str, Any]], int]] = {}
    for name, one in outgoing:
        entry: dict[str, Any] = {"Id": name, "MessageBody": one.body}
        if one.delay_s > 0:
            entry["DelaySeconds"] = min(one.delay_s, LONGEST_DELAY_S)
        if one.lane:
            entry["MessageGroupId"] = (
                one.lane
                if _GROUP.fullmatch(one.lane)
                else b64(hashlib.sha256(one.lane.encode("utf-8", "surrogatepass")).digest())
            )
        if one.attributes:
            entry["MessageAttributes"] = {
                name: {"DataType": "String", "StringValue": _UNSENDABLE.sub("\ufffd", value)}
                for name, value in one.attributes.items()
                if value
            }
        size = len(one.body.encode()) + sum(
            len(name) + len("String") + len(value.encode())
            for name, value in one.attributes.items()
        )
        entries, total = filling.get(one.url, ([], 0))
        if entries and (len(entries) == BATCH or total + size > BATCH_BYTES):
            yield one.url, entries
            entries, total = [], 0
        entries.append(entry)
        filling[one.url] = (entries, total + size)
    for url, (entries, _) in filling.items():
        yield url, entries


def read(url: str, raw: dict[str, Any], *, lent: bool = False) -> SqsMessage | str:
    """The message, or why it cannot be read."""
    try:
        text = raw.get("Body", "")
        body = msgspec.json.decode(text)
        check_depth(text.encode())
    except (ValueError, RecursionError) as error:
        return f"the message cannot be read as JSON: {error}"
    if not isinstance(body, dict):
        return f"the message is JSON, but {type(body).__name__} and not an object"
    received = int(raw.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return SqsMessage(url, raw["ReceiptHandle"], body, received, raw.get("MessageId", ""), lent)


def _cut_to_fit(content: Any) -> Any:
    """The content as plain JSON values, or its beginning if it is too long."""
    try:
        plain = msgspec.to_builtins(content, str_keys=True, enc_hook=repr)
        # ASCII only: SQS accepts that whatever the content is.
        text = json.dumps(plain, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        plain = repr(content)
        text = json.dumps(plain)
    if len(text) <= LONGEST_CONTENT:
        return plain
    kept = LONGEST_CONTENT
    while len(json.dumps(text[:kept])) > LONGEST_CONTENT:
        kept = kept * 3 // 4
    return {
        "cut": text[:kept],
        "bytes": len(text),
        "sha256": b64(hashlib.sha256(text.encode()).digest()),
    }


# Long polls ---------------------------------------------------------------------------------------
IDLE_POLLS = 10
"""A queue is idle after so many empty receives in a row. A process that only works off a backlog
has stopped by then."""


class _Wait(Struct):
    """One long poll. Its messages are ours until their visibility ends."""

    thread: threading.Thread
    visibility_s: int
    done: threading.Event = field(default_factory=threading.Event)
    messages: list[SqsMessage] = field(default_factory=list)
    received_at: float = 0.0


class LongPolls:
    """Long polls of the idle queues of one ledger, by address: one thread per queue waits at SQS,
    so that no worker and no other stage has to wait. Thread-safe."""

    def __init__(self, queues: Queues, wait_s: int) -> None:
        self._queues, self._wait_s = queues, wait_s
        self._lock = threading.Lock()
        self._empty: dict[str, int] = {}
        self._waits: dict[str, _Wait] = {}
        self._closed = False

    def waiting(self, url: str) -> bool:
        """Whether a long poll is running: then a receive would cost a request and return nothing
        more."""
        with self._lock:
            wait = self._waits.get(url)
            return wait is not None and not wait.done.is_set()

    def take(self, url: str) -> list[SqsMessage]:
        """The messages of a finished poll, once. Messages whose visibility may have ended are left
        to be delivered again."""
        with self._lock:
            wait = self._waits.get(url)
            if wait is None or not wait.done.is_set():
                return []
            del self._waits[url]
            if wait.messages:
                self._empty.pop(url, None)
            return (
                wait.messages if time.monotonic() - wait.received_at < wait.visibility_s / 2 else []
            )

    def received(self, url: str, n: int, visibility_s: int) -> None:
        """Report a receive of `n` messages. After several empty ones a long poll begins."""
        with self._lock:
            self._empty[url] = 0 if n else self._empty.get(url, 0) + 1
            if (
                not self._wait_s
                or self._closed
                or self._empty[url] < IDLE_POLLS
                or url in self._waits
            ):
                return
            thread = threading.Thread(
                target=self._wait,
                args=(url,),
                name=f"milepost-wait-{url.rpartition('/')[2]}",
                daemon=True,
            )
            self._waits[url] = _Wait(thread, visibility_s)
            thread.start()

    def give_up(self, url: str) -> None:
        """Release the messages of the poll, because no worker here handles them: others may receive
        them at once."""
        self._release(self.take(url))

    def close(self) -> None:
        """Release received messages. A running poll is not waited for: SQS delivers its messages
        again."""
        with self._lock:
            self._closed = True
            urls = list(self._waits)
        for url in urls:
            self.give_up(url)

    def _wait(self, url: str) -> None:
        wait = self._waits[url]
        found: list[SqsMessage] = []
        try:
            found = self._queues.receive(url, 10, wait.visibility_s, self._wait_s)
        except LedgerError as error:
            log.info("long poll of %s failed: %s", url, error)
        except Exception:
            if not self._closed:  # otherwise the connections were closed during the poll
                log.exception("long poll of %s failed", url)
        with self._lock:
            wait.messages, wait.received_at = found, time.monotonic()
            wait.done.set()
            closed = self._closed
        if closed:
            self._release(found)

    def _release(self, messages: list[SqsMessage]) -> None:
        with suppress(LedgerError):
            self._queues.release(messages)
