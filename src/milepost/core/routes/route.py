"""A route as a user writes it: a name, a key and stages in order. Mistakes are told while the file is being imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from milepost.core.errors import RouteMistake
from milepost.core.item import Item
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.mistakes import check_count, check_kind, check_name, check_shape, judge, some_ms, told
from milepost.core.routes.parsed_input import Key, ParsedInput, carried, key_in, start_in
from milepost.core.values.durations import Span, moment_ms, rate_per_second, span_ms

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
LONGEST_LANE = 200
DIALECTS = ("seed", "today")
BREAKER_SAMPLE = "breaker=mp.Breaker(failures=5, within='1m', cooldown='30s')"
RETRY_SAMPLE = "retry=mp.Backoff(attempts=3, base=1)"


class Limits(Struct, frozen=True, kw_only=True):
    """What one lane of a stage may use: `rate` for the whole ledger, `concurrency` per process. `breaker` and `retry` hold for this
    lane in place of the stage's."""

    rate: str | float | None = None
    concurrency: int | None = None
    breaker: Breaker | None = None
    retry: Backoff | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            rate_per_second(self.rate, "rate")
        check_count(self.concurrency, "concurrency")
        check_kind(self.breaker, Breaker, "Limits: breaker", BREAKER_SAMPLE)
        check_kind(self.retry, Backoff, "Limits: retry", RETRY_SAMPLE)


class Stage(Struct, frozen=True, kw_only=True):
    """One step of a route, checked and ready. `grace_ms` and `offer_life_ms` are filled in by the ledger at wiring."""

    name: str
    handler: Handler | None = None
    remote: bool = False
    """Its workers are elsewhere, and come for work over HTTP: it has no handler here, and yet it is not external."""
    retry: Backoff
    checks: Checks
    timeout_ms: int | None = None
    concurrency: int = 16
    rate: float | None = None
    breaker: Breaker | None = None
    lane: Callable[[Any], str] | None = None
    lanes: dict[str, Limits] = {}
    batch: int = 1
    claims: bool = True
    """False: a pure check, which may run without a lease where workers are called by messages."""
    verify: Handler | None = None
    accepts: Callable[[Any, Any], bool] | None = None
    """Does this answer confirm what the stage was given to do? (None, where that is not known yet.) A ValueError says why not."""
    next_payload: Callable[[Any], Any] | None = None
    """Makes the next stage's payload of this stage's output, where the outcome itself names none."""
    announce: str | None = None
    medium: str | None = None
    """The storage medium that its confirmations speak of, such as "disk" or "tape"; for preservation metadata."""
    queue: str | None = None
    """The address of somebody's own queue at which an external stage is offered, where offers go by queue."""
    message: Callable[[dict[str, Any]], Any] | None = None
    """What an external stage's offer says there, made from all that there is to say."""
    resend_after_ms: int | None = None
    overdue_ms: int | None = None
    grace_ms: int = 0
    offer_life_ms: int = 0

    @property
    def external(self) -> bool:
        return self.handler is None and not self.remote

    @property
    def ours(self) -> bool:
        """Our own workers run it."""
        return self.handler is not None

    @property
    def is_async(self) -> bool:
        handler = self.handler
        return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004

    def breaker_of(self, lane: str) -> Breaker | None:
        """The breaker of this lane: its own, or the one that the stage has for each lane."""
        own = self.lanes.get(lane)
        return self.breaker if own is None or own.breaker is None else own.breaker

    def retry_of(self, lane: str) -> Backoff:
        """How failed tries of this lane are repeated."""
        own = self.lanes.get(lane)
        return self.retry if own is None or own.retry is None else own.retry

    @property
    def has_breaker(self) -> bool:
        return self.breaker is not None or any(limits.breaker is not None for limits in self.lanes.values())

    def lane_of(self, content: Any) -> str:
        """The lane of an item with this input; a lane function that fails puts the item into the default lane."""
        if self.lane is None:
            return ""
        try:
            return str(self.lane(content)).encode(errors="replace").decode()[:LONGEST_LANE]
        except Exception:
            return ""

    def payload_after(self, output: Any) -> Any:
        """The next stage's payload, made of this stage's output; all of it where `next_payload` is not given or fails."""
        if self.next_payload is None:
            return output
        try:
            return self.next_payload(output)
        except Exception:
            return output


class Route:
    """The ordered stages of one kind of item. `key` is a field of the input, several fields, or a function of it.

    `remember`: how long an ended item's key stays known (None: for good). `keep`: how long an ended row stays where rows leave by
    themselves (None: until it is pruned; 0: it goes as soon as its last event is out). `dialect`: the names that others read and
    write, as in the design documents ("seed") or as in the systems of today ("today"). `carries`: the one field of what is handed
    over that is the item's input; beside it there may be the key's fields and `correlationId`, and nothing else. `skips=False`: no
    operator may move an item past a stage whose work was not done. `evidence=True`: what an item's stages gave and its whole
    history are kept for good, beside the ledger, when its row leaves. `not_before`: the field of the input that holds the time before
    which an item does not start (an embargo's end, say); where it is absent or empty, the item starts at once.
    """

    def __init__(
        self,
        name: str,
        *,
        key: Key = "id",
        remember: Span | None = None,
        keep: Span | None = None,
        dialect: str = "seed",
        carries: str | None = None,
        skips: bool = True,
        evidence: bool = False,
        not_before: str | None = None,
        form: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    ) -> None:
        check_name(name, "a route's name", "Route")
        self.name = name
        self.key = key
        if (
            not callable(key)
            and not (isinstance(key, str) and key)
            and not (isinstance(key, Sequence) and key and all(isinstance(part, str) and part for part in key))
        ):
            raise RouteMistake(f"route {name!r}: key is {key!r}; give a field's name, a list of names, or a function of the input")
        self.remember_ms = None if remember is None else told(span_ms, remember, f"route {name!r}: remember")
        self.keep_ms = None if keep is None else told(span_ms, keep, f"route {name!r}: keep")
        if dialect not in DIALECTS:
            raise RouteMistake(f"route {name!r}: dialect is {dialect!r}; write {' or '.join(map(repr, DIALECTS))}")
        self.dialect = dialect
        if carries is not None and (callable(key) or carries in self._fields):
            raise RouteMistake(f"route {name!r}: carries is {carries!r}; give a field beside the key's own, and name the key's fields")
        self.carries = carries
        self.skips = skips
        if evidence and remember is not None:
            raise RouteMistake(f"route {name!r}: evidence is found by the key that is remembered; leave out remember, or evidence")
        self.evidence = evidence
        if not_before is not None and not (isinstance(not_before, str) and not_before):
            raise RouteMistake(f"route {name!r}: not_before is {not_before!r}; give the name of the field that holds the time")
        self.not_before = not_before
        if form is not None:
            check_shape(form, f"route {name!r}: form", "envelope")
        self.form = form
        self.follow_up: FollowUp | None = None
        self.closed: str | None = None
        """Why nobody can hand over items of it; None: anybody can."""
        self.stages: list[Stage] = []

    def stage(
        self,
        name: str,
        *,
        retry: Backoff | None = None,
        checks: Checks | None = None,
        timeout: Span | None = None,
        concurrency: int = 16,
        rate: str | float | None = None,
        breaker: Breaker | None = None,
        lane: Callable[[Any], str] | None = None,
        lanes: dict[str, Limits] | None = None,
        batch: int = 1,
        claims: bool = True,
        verify: Handler | None = None,
        accepts: Callable[..., bool] | None = None,
        next_payload: Callable[[Any], Any] | None = None,
        announce: str | None = None,
        medium: str | None = None,
        remote: bool = False,
    ) -> Callable[[H], H]:
        """Declare the next stage; decorates its handler, `async def` or plain `def`, of one item (or, with `batch`, a list).

        `claims=False` promises that the handler only looks: two may look at the same item at once, and neither changes anything.
        `remote=True` declares the stage as it stands, without a handler: workers elsewhere, in any language, claim its items over HTTP.
        What a process is to our own workers, a worker's name is to these: one holds at most `concurrency` times `batch` items.
        `accepts` and `next_payload` are as for `external`. `breaker` stops calls while the stage's partner is down; each lane has a
        breaker of its own (see `Breaker`).
        """
        subject = f"stage {name!r} of route {self.name!r}"
        check_name(name, "a stage's name", f"route {self.name!r}")
        self._check_new(name)
        check_count(concurrency, f"{subject}: concurrency")
        check_count(batch, f"{subject}: batch")
        check_kind(retry, Backoff, f"{subject}: retry", RETRY_SAMPLE)
        check_kind(breaker, Breaker, f"{subject}: breaker", BREAKER_SAMPLE)
        check_kind(checks, Checks, f"{subject}: checks", "checks=mp.Checks(every='10m', up_to='6h')")
        for option, function, given in (("lane", lane, "input"), ("verify", verify, "item"), ("next_payload", next_payload, "output")):
            if function is not None:
                check_shape(function, f"{subject}: {option}", given)
        for lane_name, limits in (lanes or {}).items():
            if not isinstance(limits, Limits):
                raise RouteMistake(f"{subject}: lanes[{lane_name!r}] is {limits!r}; write mp.Limits(rate='10/s', concurrency=4)")
        judged = judge(accepts, f"{subject}: accepts")
        used = checks or Checks()
        if remote and (timeout is not None or verify is not None or not claims):
            raise RouteMistake(
                f"{subject} is remote: its worker says by its lease how long it takes, and is told by `unknown` when it must look first; "
                "leave out timeout, verify and claims"
            )

        def add(handler: Handler | None) -> None:
            self._check_new(name)
            self.stages.append(
                Stage(
                    name=name,
                    handler=handler,
                    remote=remote,
                    retry=retry or Backoff(),
                    checks=used,
                    timeout_ms=None if timeout is None else told(some_ms, timeout, f"{subject}: timeout"),
                    concurrency=concurrency,
                    rate=None if rate is None else told(rate_per_second, rate, f"{subject}: rate"),
                    breaker=breaker,
                    lane=lane,
                    lanes=dict(lanes or {}),
                    batch=batch,
                    claims=claims,
                    verify=verify,
                    accepts=judged,
                    next_payload=next_payload,
                    announce=announce,
                    medium=medium,
                    overdue_ms=None if used.overdue is None else span_ms(used.overdue, f"{subject}: overdue"),
                )
            )

        def declare(handler: H) -> H:
            if remote:
                raise RouteMistake(f"{subject} is remote, so no handler of ours runs it; leave out the handler, or remote=True")
            check_shape(handler, f"{subject}: its handler", "items" if batch > 1 else "item")
            add(handler)
            return handler

        if rate is not None:
            told(rate_per_second, rate, f"{subject}: rate")
        if timeout is not None:
            told(some_ms, timeout, f"{subject}: timeout")
        if remote:
            add(None)
        return declare

    def external(
        self,
        name: str,
        *,
        resend_after: Span | None = None,
        overdue: Span | None = None,
        retry: Backoff | None = None,
        lane: Callable[[Any], str] | None = None,
        accepts: Callable[..., bool] | None = None,
        next_payload: Callable[[Any], Any] | None = None,
        announce: str | None = None,
        medium: str | None = None,
        queue: str | None = None,
        message: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        """Declare a stage that somebody else carries out: it is offered to them, and they confirm it.

        `queue` is the address of their own queue, where offers go by queue; without it the ledger has one for the stage. `message`
        gives such an offer another form: a function of the usual one that returns text, or what is to be written as JSON.

        `accepts` judges an answer: a function of the answer, or of the answer and the stage's payload (None before the item has come
        to the stage). It returns a bool; a ValueError that it raises refuses the answer and says why. An answer that is refused is
        noted, and the stage is offered again after a short pause. `next_payload` makes the next stage's payload of the output.
        """
        subject = f"stage {name!r} of route {self.name!r}"
        check_name(name, "a stage's name", f"route {self.name!r}")
        self._check_new(name)
        for option, function, given in (("lane", lane, "input"), ("message", message, "offer"), ("next_payload", next_payload, "output")):
            if function is not None:
                check_shape(function, f"{subject}: {option}", given)
        judged = judge(accepts, f"{subject}: accepts")
        self.stages.append(
            Stage(
                name=name,
                retry=retry or Backoff(),
                checks=Checks(),
                lane=lane,
                accepts=judged,
                next_payload=next_payload,
                announce=announce,
                medium=medium,
                queue=queue,
                message=message,
                resend_after_ms=None if resend_after is None else told(some_ms, resend_after, f"{subject}: resend_after"),
                overdue_ms=None if overdue is None else told(span_ms, overdue, f"{subject}: overdue"),
            )
        )

    def then(self, route: Route, make_input: MakeInput) -> None:
        """Hand over an item of another route for each item that completes. `make_input` gets the item and the time (UTC) at which it
        completed, and gives what is handed over (None: nothing). The other route belongs to this one: it need not be named beside it."""
        if not isinstance(route, Route) or route is self or not callable(make_input) or self.follow_up is not None:
            raise RouteMistake(f"route {self.name!r}: then takes one other route, and a function of an item and a time; it is said once")
        self.follow_up = FollowUp(route, make_input)

    def key_of(self, content: Any) -> str:
        """The item's key; raises MalformedInput with the field that is missing or empty."""
        return key_in(content, self.key)

    def read(self, content: Any) -> ParsedInput:
        """What was handed over, taken apart; raises MalformedInput if it cannot be."""
        key = key_in(content, self.key)
        handed = ParsedInput(key, content) if self.carries is None else ParsedInput(key, *carried(content, self._fields, self.carries))
        if self.not_before is not None:
            self.start_of(handed.content, 0)  # what is no time is malformed
        return handed

    def read_all(self, contents: Iterable[Any]) -> list[ParsedInput]:
        """What was handed over, each taken apart; raises MalformedInput if one of them cannot be."""
        if self.carries is not None or self.not_before is not None:
            return [self.read(content) for content in contents]
        key = self.key
        return [ParsedInput(key_in(content, key), content) for content in contents]

    def start_of(self, content: Any, now: int) -> int | None:
        """The time before which an item with this input does not start, by the field that the route names for it; raises
        MalformedInput if that is no time."""
        found = None if self.not_before is None else start_in(content, self.not_before)
        return None if found is None else moment_ms(found, now, self.not_before or "")

    @property
    def _fields(self) -> Sequence[str]:
        """The fields that make up the key, where no function does."""
        return (self.key,) if isinstance(self.key, str) else () if callable(self.key) else self.key

    def _check_new(self, name: str) -> None:
        if any(stage.name == name for stage in self.stages):
            raise RouteMistake(f"route {self.name!r} has two stages called {name!r}; give one of them another name")


MakeInput = Callable[[Item, datetime], Any]
"""What is handed over to the other route for this item, which completed at that time (UTC); None: nothing."""


class FollowUp(Struct, frozen=True):
    """Which route the follow-up items are for, and what they carry."""

    route: Any  # a Route, which msgspec does not know
    make_input: MakeInput

    @property
    def target(self) -> Route:
        found: Route = self.route
        return found
