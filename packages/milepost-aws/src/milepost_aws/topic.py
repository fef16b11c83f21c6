"""SNS topic as a subscriber: each event is one message, with attributes for subscription
filters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from milepost.core.errors import EventRefused, MilepostError, UsageError
from milepost.core.events import Envelope, Event
from milepost.subscribers.route_formats import CURE, event_json

ENTRIES = 10
AT_ONCE = 16
"""Maximum requests at the same time."""
LARGEST = 262_144
"""Maximum bytes of one request, bodies and attributes together, unless the topic's
MaximumMessageSize was raised."""

OFFERED = "offered"

_ARN = re.compile(
    r"arn:aws[a-z-]*:sns:(?P<region>[a-z0-9-]+):\d{12}:(?P<name>[A-Za-z0-9_-]{1,256}(\.fifo)?)"
)
_GROUP = re.compile(r"[!-~]{1,128}")
# Errors that AWS may blame on the sender although any other event would get them too: they end when
# the topic's key, policy or limits are corrected, so no event is refused permanently because of
# them.
_OF_THE_TOPIC = re.compile(
    r"KMS|Throttl|Limit|Authorization|AccessDenied|NotFound|Security|Disabled"
)


def topic_subscriber(arn: str, *, offers: bool) -> Topic:
    """The topic of the address sns:ARN."""
    topic = Topic(arn, offers=offers)
    if len(topic.name) > 64:
        raise UsageError(
            f"the topic name {topic.name} is too long for a subscriber (at most 64 characters); "
            "write  events = Topic(arn, name='…')  in a Python file, and use file.py:events here"
        )
    return topic


class _Message(Struct, frozen=True):
    """One entry of a request: the index of its event, and its size for the limit."""

    place: int
    entry: dict[str, Any]
    size: int


class Topic:
    """Publishes events on the topic with this ARN. The cursor's name is the topic's own, unless
    `name` is given.

    The body is the envelope as compact JSON; route, stage, status and kind are message attributes,
    also where the route has a form of its own. The same event always gives the same bytes. On a
    FIFO topic an item is a group, and SNS drops a repeat within five minutes.

    With `offers=False` offers to external stages are not published: for ledgers that send each of
    them to the stage's own queue.

    Without a `client`, one is created that sends each request once: the event relay retries, with
    growing pauses and in the items' order, and its lease must not expire during retries here.

    Requests go out in parallel: no two events of one call belong to the same item. A request that
    fails as a whole halves their number, and each call without such a failure adds one again.
    """

    def __init__(
        self,
        arn: str,
        *,
        name: str | None = None,
        client: Any = None,
        endpoint: str | None = None,
        largest: int = LARGEST,
        offers: bool = True,
    ) -> None:
        region, own_name = _parts(arn)
        self.arn = arn
        self.name = name or own_name
        self._fifo = arn.endswith(".fifo")
        self._largest = largest
        self._offers = offers
        self._client = client if client is not None else _client(region, endpoint)
        self.batch = ENTRIES * AT_ONCE
        self._threads: ThreadPoolExecutor | None = None

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        """One answer per event. Raises if all requests fail as a whole."""
        answers: list[Exception | None] = [None] * len(envelopes)
        messages = []
        for place, envelope in enumerate(envelopes):
            if envelope.event.kind == OFFERED and not self._offers:
                continue
            try:
                messages.append(self._message(place, envelope))
            except EventRefused as refused:
                answers[place] = refused
        requests = list(self._requests(messages))
        results = self._publish_all(requests)
        errors = [result for result in results if isinstance(result, Exception)]
        at_once = self.batch // ENTRIES
        self.batch = ENTRIES * (max(1, at_once // 2) if errors else min(AT_ONCE, at_once + 1))
        if errors and len(errors) == len(requests):
            raise errors[0]
        for request, result in zip(requests, results, strict=True):
            failed = (
                {message.place: result for message in request}
                if isinstance(result, Exception)
                else result
            )
            for place, why in failed.items():
                answers[place] = why
        return answers

    def _publish_all(
        self, requests: Sequence[Sequence[_Message]]
    ) -> list[dict[int, Exception] | Exception]:
        """The result of each request: its events that were not accepted, or the error of the whole
        request."""
        if len(requests) < 2:
            return [self._result_of(request) for request in requests]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, f"topic-{self.name}")
        return list(self._threads.map(self._result_of, requests))

    def _result_of(self, request: Sequence[_Message]) -> dict[int, Exception] | Exception:
        try:
            return self._publish(request)
        except Exception as error:
            return error

    def _message(self, place: int, envelope: Envelope) -> _Message:
        event = envelope.event
        body = _body(envelope)
        status = event.status.value if isinstance(event, Event) else ""
        attributes = {
            "route": event.route,
            "stage": event.stage,
            "status": status,
            "kind": event.kind,
        }
        attributes = {name: value for name, value in attributes.items() if value}
        entry: dict[str, Any] = {
            "Id": str(place),
            "Message": body,
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value}
                for name, value in attributes.items()
            },
        }
        if self._fifo:
            # Its digest where SNS does not allow the item's name. (A digest has no '/', so they
            # never collide.)
            item = f"{event.route}/{event.key}"
            entry["MessageGroupId"] = (
                item if _GROUP.fullmatch(item) else hashlib.sha256(item.encode()).hexdigest()
            )
            entry["MessageDeduplicationId"] = hashlib.sha256(event.id.encode()).hexdigest()
        size = len(body.encode()) + sum(
            len(name) + len("String") + len(value.encode()) for name, value in attributes.items()
        )
        if size > self._largest:
            raise EventRefused(self._too_large(size))
        return _Message(place, entry, size)

    def _requests(self, messages: Iterable[_Message]) -> Iterator[list[_Message]]:
        """In order, as many messages per request as fit."""
        request: list[_Message] = []
        size = 0
        for message in messages:
            if request and (len(request) == ENTRIES or size + message.size > self._largest):
                yield request
                request, size = [], 0
            request.append(message)
            size += message.size
        if request:
            yield request

    def _publish(self, request: Sequence[_Message]) -> dict[int, Exception]:
        """The events of one request that were not accepted, and why. An entry missing in the answer
        was not accepted either."""
        try:
            answer = self._client.publish_batch(
                TopicArn=self.arn, PublishBatchRequestEntries=[message.entry for message in request]
            )
        except Exception as error:
            # The only error of a whole request that certainly belongs to this event, if it is
            # alone: the topic counts bytes differently.
            response = getattr(error, "response", None) or {}
            if len(request) == 1 and str(response.get("Error", {}).get("Code", "")).startswith(
                "BatchRequestTooLong"
            ):
                return {request[0].place: EventRefused(self._too_large(request[0].size))}
            raise
        taken = {entry["Id"] for entry in answer.get("Successful", ())}
        reasons = {entry["Id"]: entry for entry in answer.get("Failed", ())}
        return {
            message.place: self._why(reasons.get(message.entry["Id"])) for message in request if message.entry["Id"] not in taken
        }  # fmt: skip

    def _why(self, failed: dict[str, Any] | None) -> Exception:
        if failed is None:
            return MilepostError(f"the topic {self.name} did not answer for this event")
        reason = f"{failed['Code']}: {failed.get('Message') or 'no reason given'}"
        if failed["SenderFault"] and not _OF_THE_TOPIC.search(failed["Code"]):
            return EventRefused(
                f"the topic {self.name} refuses this event ({reason}); correct the cause, then {CURE}"
            )
        return MilepostError(f"the topic {self.name} did not accept this event ({reason})")

    def _too_large(self, size: int) -> str:
        return (
            f"this event has {size:,} bytes; the topic {self.name} accepts at most {self._largest:,}; let the route's form leave out large "
            f"values or refer to them, or raise the topic's MaximumMessageSize and write Topic(…, largest=…); then {CURE}"
        )


def _body(envelope: Envelope) -> str:
    """The body with sorted names, so that equal content gives equal bytes; a route's own form keeps
    its order."""
    text = event_json(envelope, None if envelope.formed else "deterministic").decode()
    # The only two characters that JSON leaves unescaped and AWS does not accept; they occur only
    # within strings.
    return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _parts(arn: str) -> tuple[str, str]:
    found = _ARN.fullmatch(arn)
    if found is not None:
        return found["region"], found["name"]
    topic = arn.rpartition(":")[0]
    if _ARN.fullmatch(topic):
        raise UsageError(f"{arn!r} is a subscription's ARN; the topic's is {topic}")
    raise UsageError(
        f"{arn!r} is not the ARN of an SNS topic, such as arn:aws:sns:eu-west-2:123456789012:prod-events"
    )


def _client(region: str, endpoint: str | None) -> Any:
    import boto3
    from botocore.config import Config

    # One try, at most 13 s: less than the relay's lease has left at the beginning of a call.
    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=3,
        read_timeout=10,
        max_pool_connections=AT_ONCE,
    )
    return boto3.client("sns", region_name=region, endpoint_url=endpoint, config=config)
