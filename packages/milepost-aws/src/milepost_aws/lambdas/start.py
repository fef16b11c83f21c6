"""Start of a container, which opens the ledger once, from the environment, for all its calls; and
what the functions' calls share."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Protocol, TypeVar

import msgspec
from aws_lambda_powertools import Logger

from milepost.application.declaration import ConfiguredApplication
from milepost.application.installation import install
from milepost.composition import open_context, who
from milepost.core.errors import ConfigMistake, LedgerError, RouteChanged
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.follow_ups import follow_ups
from milepost.engine.presence import standing_still
from milepost.ports.documents import PROCESS, Process, StandingStill
from milepost.ports.subscriber import Subscriber
from milepost.route_files import load_application, load_routes
from milepost_aws.ledger.ledger import AwsLedger, parse
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import CALL, Requests
from milepost_aws.ledger.requests.queues import Queues, SqsMessage
from milepost_aws.ledger.store import AwsStore

T = TypeVar("T")

BEAT_MS = 20_000
"""Heartbeat interval of a function that is called all the time."""

MARGIN_S = 1.0
"""Time reserved for a function's answer after its last request to AWS; in a short call, a tenth."""

MOST = 20
"""Maximum items named per call: a segment must fit into one datagram."""

log = Logger(service="milepost")
"""The parent of all loggers in this package: their lines are structured too."""


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used here."""

    function_name: str
    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


class Opened:
    """Objects that live as long as the container."""

    def __init__(
        self,
        ctx: Context,
        ledger: AwsLedger,
        applications: Sequence[ConfiguredApplication[Any]] = (),
    ) -> None:
        self.ctx = ctx
        self.applications = applications
        self.ledger = ledger
        self.holder = who()
        self._started_at = ctx.clock.now()
        self._beaten_at: dict[str, int] = {}
        self._last_runs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._standing: defaultdict[str, dict[str, StandingStill]] = defaultdict(dict)
        """By function: its roles' last successful runs, and the roles that do not work now."""
        self._parts: dict[tuple[Any, ...], Any] = {}

    @property
    def store(self) -> AwsStore:
        return self.ledger.store

    def part(self, make: Callable[..., T], *names: str) -> T:
        """A part of a function that lives as long as this ledger is open; made by the first call,
        for these names."""
        if (make, *names) not in self._parts:
            self._parts[make, *names] = make(self, *names)
        made: T = self._parts[make, *names]
        return made

    def close(self) -> None:
        """Close the parts and the ledger. A handler whose own `close` fails must not fail the
        call."""
        for part in self._parts.values():
            try:
                getattr(part, "close", lambda: None)()
            except Exception:
                log.exception("a part of the function could not be closed")
        self.ledger.close()

    @cached_property
    def event_relays(self) -> list[EventRelay]:
        """One relay for the deployment's topic, and one for each route whose completed items have
        follow-up items."""
        from milepost_aws.topic import Topic

        # External stages get their offers by their queues.
        topic = Topic(
            _required("MILEPOST_TOPIC"), endpoint=self.store.requests.endpoint, offers=False
        )
        subscribers: list[Subscriber] = [topic, *follow_ups(self.ctx, self.ctx.plans)]
        return [EventRelay(self.ctx, subscriber, self.holder) for subscriber in subscribers]

    def beat(
        self, call: LambdaContext, roles: Mapping[str, str], intervals: Mapping[str, float] = {}
    ) -> None:
        """Write a heartbeat under the function's name, for `milepost doctor`, after its work. All
        its containers share the document. `roles`: the roles that had their turn, each with the
        reason why it did not do its work, empty if it did. `intervals`: seconds until the next run
        of a role, if it has an interval of its own."""
        now, last_runs, standing = (
            self.ctx.clock.now(),
            self._last_runs[call.function_name],
            self._standing[call.function_name],
        )
        for role, why in roles.items():
            still = standing_still(standing.pop(role, None), why, now)
            if still is None:
                last_runs[role] = now
            else:
                standing[role] = still
        if 0 <= now - self._beaten_at.get(call.function_name, 0) < BEAT_MS:
            return
        clock = self.ctx.check_clock()
        next_runs = {
            role: now + round(intervals[role] * 1000)
            for role, why in roles.items()
            if not why and role in intervals
        }
        process = Process(
            call.function_name,
            self.holder,
            os.getpid(),
            self._started_at,
            now,
            last_runs,
            clock=clock,
            next_runs=next_runs,
            known_format=self.ledger.known_format,
            standing_still=standing,
        )
        self.ledger.write(PROCESS, call.function_name, msgspec.to_builtins(process))
        self._beaten_at[call.function_name] = now


_opened: Opened | None = None


def opened(only: str | None = None) -> Opened:
    """This container's ledger, with the routes of MILEPOST_ROUTES and MILEPOST_APPLICATIONS, or
    only the named one. Raises RouteChanged while the ledger has other stages."""
    global _opened
    if _opened is None:
        applications = [
            load_application(spec).configured()
            for spec in os.environ.get("MILEPOST_APPLICATIONS", "").split(",")
            if spec
        ]
        named = (
            os.environ.get("MILEPOST_ROUTES", "") if applications else _required("MILEPOST_ROUTES")
        )
        specs = [spec for spec in named.split(",") if spec]
        found = load_routes(specs, [route for one in applications for route in one.routes])
        routes = [route for route in found if only is None or route.name == only]
        if not routes:
            raise ConfigMistake(
                f"MILEPOST_ROUTES is {','.join(specs)!r}, which has no route {only or 'at all'!r}"
            )
        ctx = open_context(_required("MILEPOST_LEDGER"), routes)
        if not isinstance(ctx.ledger, AwsLedger):
            raise ConfigMistake(
                f"MILEPOST_LEDGER is {ctx.ledger.url!r}; functions need a ledger on AWS: dynamodb://REGION/PREFIX"
            )
        install(ctx, applications)
        _opened = Opened(ctx, ctx.ledger, applications)
    return _opened


def forget() -> None:
    """Open the ledger again at the next call: it has another version of a route than this
    container."""
    global _opened
    if _opened is not None:
        closed, _opened = _opened, None
        closed.close()


def hide(event: Mapping[str, Any], seconds: int) -> None:
    """Make the messages of an SQS event visible again after so many seconds. Needs only SQS, not
    the ledger."""
    address = parse(_required("MILEPOST_LEDGER"))
    requests = Requests(address.region, address.endpoint)
    try:
        queues = Queues(requests, ResourceNames(address.prefix))
        messages = []
        for record in event["Records"]:
            url = queues.named(record["eventSourceARN"].rpartition(":")[2])
            messages.append(
                SqsMessage(url, record["receiptHandle"], {}, 1, record["messageId"], lent=True)
            )
        queues.extend(messages, seconds)
    finally:
        requests.close()


def _required(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigMistake(f"{name} is not set; the stack sets it (see infra/README.md)")
    return value


# Calls --------------------------------------------------------------------------------------------
class Trace:
    """X-Ray trace of one sampled call: route, stage and result; does nothing without a `segment`.

    Most calls are not sampled (only the first in each second, and one in twenty of the others), so
    the first sampled one loads the SDK. Requests to AWS are not traced one by one: a call makes
    hundreds, from several threads, and their totals are in the log.
    """

    def __init__(self, segment: Any = None) -> None:
        self._segment = segment

    def annotate(self, **values: str | int | bool) -> None:
        """Add indexed values for searching traces, with few different values: names of routes,
        stages, functions."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_annotation(name, value)

    def note(self, **values: Any) -> None:
        """Add values that are not indexed."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_metadata(name, value, "milepost")

    def items(self, correlation_ids: Sequence[str]) -> None:
        if correlation_ids:
            self.note(correlation_ids=list(correlation_ids[:MOST]))


def is_sampled(header: str) -> bool:
    """Whether a call is sampled. `header` is Lambda's trace header: Root=…;Parent=…;Sampled=1."""
    return "Sampled=1" in header.split(";")


@contextmanager
def _traced(call: LambdaContext) -> Iterator[Trace]:
    """A segment for the duration of the call, under the one that Lambda makes itself. It is sent as
    a datagram: a call is never slower and never fails because its trace cannot be sent."""
    if not is_sampled(os.environ.get("_X_AMZN_TRACE_ID", "")):
        yield Trace()
        return
    from aws_lambda_powertools import Tracer

    with Tracer(service="milepost", auto_patch=False).provider.in_subsegment("milepost") as segment:
        trace = Trace(segment)
        trace.annotate(function=call.function_name)
        yield trace


@contextmanager
def called(call: LambdaContext) -> Iterator[Trace]:
    """One call of a function: name it in every log line, trace it, and limit requests to AWS to its
    remaining time. After a route change, the next call opens the ledger again."""
    log.append_keys(function_name=call.function_name)
    log.set_correlation_id(call.aws_request_id)
    left_s = call.get_remaining_time_in_millis() / 1000
    try:
        with CALL.within(left_s - min(MARGIN_S, left_s / 10)), _traced(call) as trace:
            yield trace
    except RouteChanged:
        forget()
        raise
    except LedgerError as error:
        log.error("problem with AWS: %s", error)
        raise


# Delivery of events to the functions' subscribers -------------------------------------------------
def deliver(ready: Opened, call: LambdaContext, reserve_ms: int) -> str | None:
    """Deliver to the topic, then to subscribers that make follow-up items, page by page while more
    than `reserve_ms` of the call are left: the relay function for seconds, the resender function
    for longer. Each has its share of that time. None: nothing is left to deliver; else why
    something may be."""
    relays, waits = ready.event_relays, []
    for number, relay in enumerate(relays):
        left_ms = call.get_remaining_time_in_millis()
        share_ms = max(0, left_ms - reserve_ms) // (len(relays) - number)
        reason = _deliver(relay, call, left_ms - share_ms)
        if reason is not None:
            waits.append(f"{relay.name}: {reason}")
    return "; ".join(waits) or None


def _deliver(relay: EventRelay, call: LambdaContext, reserve_ms: int) -> str | None:
    """Deliver to one subscriber. It is no error if it accepts nothing, or if another function
    delivers to it: the rest follows later."""

    def in_time() -> bool:
        return call.get_remaining_time_in_millis() > reserve_ms

    if not in_time():
        relay.stands_still = "the time of the call was over before its turn"
    while in_time():
        try:
            summary = relay.run_once(in_time)
        except LedgerError as error:
            log.error("cannot deliver events to %s: %s", relay.name, error)
            relay.stands_still = str(error)
            return str(error)
        if summary.standing_by is not None:
            return summary.standing_by
        if not summary.waiting:
            return None
    with suppress(LedgerError):
        relay.release()
    return "its time is over, and events are left"
