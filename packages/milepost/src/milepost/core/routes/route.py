"""Route definition: a name, a key and stages in order. Mistakes raise an error while the file is
imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerError, RouteMistake
from milepost.core.item import Item
from milepost.core.routes import mistakes, parsed_input
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.keep import keep_by_status
from milepost.core.routes.one_field import OneField
from milepost.core.routes.parsed_input import Key, KeyColumn, ParsedBatch, ParsedInput
from milepost.core.values.durations import Span, moment_ms, rate_per_second, span_ms
from milepost.core.values.key_text import formed_key

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
LONGEST_LANE = 200
PORTION = 100
"""Inputs of a batch that are parsed together where not the whole batch can be."""
DIALECTS = ("seed", "today")
BREAKER_SAMPLE = "breaker=mp.Breaker(failures=5, within='1m', cooldown='30s')"
RETRY_SAMPLE = "retry=mp.Backoff(attempts=3, base=1)"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one lane of a stage: `rate` for the whole ledger, `concurrency` per process.
    `breaker` and `retry` replace the stage's for this lane."""

    rate: str | float | None = None
    concurrency: int | None = None
    breaker: Breaker | None = None
    retry: Backoff | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            rate_per_second(self.rate, "rate")
        mistakes.check_count(self.concurrency, "concurrency")
        mistakes.check_kind(self.breaker, Breaker, "Limits: breaker", BREAKER_SAMPLE)
        mistakes.check_kind(self.retry, Backoff, "Limits: retry", RETRY_SAMPLE)


class Stage(Struct, frozen=True, kw_only=True):
    """One step of a route, checked and ready. The ledger fills in `grace_ms` and `offer_life_ms`
    when the plan is made."""

    name: str
    handler: Handler | None = None
    remote: bool = False
    """Its workers run elsewhere and claim over HTTP: it has no handler here, but it is not
    external."""
    retry: Backoff
    checks: Checks
    timeout_ms: int | None = None
    concurrency: int = 16
    rate: float | None = None
    breaker: Breaker | None = None
    lane: Callable[[Any], str] | None = None
    lanes: Mapping[str, Limits] = {}
    party: Callable[[str], str] | None = None
    """Whom an item concerns, by its key, among those of its lane: a breaker's probe is of another
    party than the last failures."""
    batch: int = 1
    claims: bool = True
    """False: a pure check, which may run without a lease where messages call workers."""
    verify: Handler | None = None
    pauses: bool = False
    """Its handler may pause its lane, so that its function on AWS needs the right to."""
    accepts: Callable[[Any, Any], bool] | None = None
    """Whether this answer confirms the stage's payload (None: not known yet). A ValueError says why
    not."""
    next_payload: Callable[[Any], Any] | None = None
    """Makes the next stage's payload from this stage's output, where the outcome itself has
    none."""
    announce: str | None = None
    medium: str | None = None
    """The storage medium that its confirmations refer to, such as "disk" or "tape"; for
    preservation metadata."""
    queue: str | None = None
    """The address of a partner's own queue for offers of an external stage, where offers go by
    queue."""
    message: Callable[[dict[str, Any]], Any] | None = None
    """Formats the message of an external stage's offer, from the complete offer."""
    resend_after_ms: int | None = None
    overdue_ms: int | None = None
    grace_ms: int = 0
    offer_life_ms: int = 0

    @property
    def external(self) -> bool:
        return self.handler is None and not self.remote

    @property
    def ours(self) -> bool:
        """Whether workers of Milepost run it, with a handler from the route file."""
        return self.handler is not None

    @property
    def is_async(self) -> bool:
        call = getattr(self.handler, "__call__", None)  # noqa: B004
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(call)

    def breaker_of(self, lane: str) -> Breaker | None:
        """The breaker of this lane: its own, or the one that the stage has for each lane."""
        own = self.lanes.get(lane)
        return self.breaker if own is None or own.breaker is None else own.breaker

    def retry_of(self, lane: str) -> Backoff:
        """The backoff of this lane: its own, or the stage's."""
        own = self.lanes.get(lane)
        return self.retry if own is None or own.retry is None else own.retry

    def party_of(self, key: str) -> str:
        """Digest of the party of an item with this key; empty where the stage tells none apart, or
        its function fails."""
        if self.party is None:
            return ""
        try:
            return sha256(str(self.party(key)).encode(errors="replace")).hexdigest()[:12]
        except Exception:
            return ""

    @property
    def has_breaker(self) -> bool:
        return self.breaker is not None or any(
            limits.breaker is not None for limits in self.lanes.values()
        )

    def lane_of(self, content: Any) -> str:
        """The lane of an item with this input; if the lane function fails, the default lane. A
        LedgerError goes to the caller: the ledger could not be asked what the lane is, so nothing
        is decided now."""
        if self.lane is None:
            return ""
        try:
            return str(self.lane(content)).encode(errors="replace").decode()[:LONGEST_LANE]
        except LedgerError:
            raise
        except Exception:
            return ""

    def payload_after(self, output: Any) -> Any:
        """The next stage's payload, made from this stage's output; the whole output if
        `next_payload` is missing or fails."""
        if self.next_payload is None:
            return output
        try:
            return self.next_payload(output)
        except Exception:
            return output


class Route:
    """The ordered stages of one kind of item. `key` is a field of the input, several fields, or a
    function of it.

    `remember`: how long an ended item's key stays known (None: for good). `keep`: how long the row
    of a completed item stays (0: it leaves within about an hour); a mapping such as {"completed":
    "0s", "rejected": "30d"} names other statuses, too. Rows of all other statuses stay until an
    operator prunes them. `dialect`: names that other programs read and write, as in the design
    documents ("seed") or in today's systems ("today"). `carries`: the one field of a submitted item
    that is its input; the only other fields are those of the key and `correlationId`.
    `skips=False`: no operator may skip a stage whose work was not done. `evidence=True`: results
    and the whole history of an item are kept for good, beside the ledger, when its row leaves.
    `not_before`: the field of the input with the time before which an item does not start (the end
    of an embargo, for example); if it is absent or empty, the item starts at once. `columns`:
    attributes that each row has where a ledger has a table of its own for the route (on AWS), for
    people and programs that read it: fields of the input, and attributes of Milepost that are
    otherwise left out while there is nothing to say (attempts, nextRetryAt, retryHistory,
    maxRetriesExceeded, maxRetriesExceededAt). `key_forms`: for a field of the key whose text may
    hold a secret, such as a URL, the function that makes the text's part of the key. It must make
    different parts of different texts, and leave its own result as it is. Keys are shown
    everywhere; an item can still be named by the field's own text, and items that were accepted
    under that keep their keys. `parse`: makes the recorded input from a submitted one, so that
    different ways to write one key make one item; it raises MalformedInput with the reason.
    `parse_keys`: for a route whose `parse` returns the key and nothing else, the keys that it makes
    of many texts of the key's field at once, where that is faster; None: `parse` must look at each.
    `key_column`: finds the keys in a delivered list of text lines (csv or txt), from its first
    lines; the other columns are then not read.
    """

    def __init__(
        self,
        name: str,
        *,
        key: Key = "id",
        remember: Span | None = None,
        keep: Span | Mapping[str, Span] | None = None,
        dialect: str = "seed",
        carries: str | None = None,
        skips: bool = True,
        evidence: bool = False,
        not_before: str | None = None,
        form: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
        columns: Sequence[str] = (),
        key_forms: Mapping[str, Callable[[str], str]] | None = None,
        parse: Callable[[Any], Any] | None = None,
        parse_keys: Callable[[list[str]], list[str] | None] | None = None,
        key_column: Callable[[list[str]], KeyColumn | None] | None = None,
    ) -> None:
        mistakes.check_name(name, "a route's name", "Route")
        self.name = name
        self.key = key
        if (
            not callable(key)
            and not (isinstance(key, str) and key)
            and not (
                isinstance(key, Sequence)
                and key
                and all(isinstance(part, str) and part for part in key)
            )
        ):
            raise RouteMistake(
                f"route {name!r}: key is {key!r}; give a field's name, a list of names, or a function of the input"
            )
        self.remember_ms = (
            None
            if remember is None
            else mistakes.parse_option(span_ms, remember, f"route {name!r}: remember")
        )
        self.keep = keep_by_status(keep, f"route {name!r}: keep")
        if dialect not in DIALECTS:
            raise RouteMistake(
                f"route {name!r}: dialect is {dialect!r}; write {' or '.join(map(repr, DIALECTS))}"
            )
        self.dialect = dialect
        if carries is not None and (callable(key) or carries in parsed_input.key_fields(self.key)):
            raise RouteMistake(
                f"route {name!r}: carries is {carries!r}; give a field that is not part of the key, and name the key's fields"
            )
        self.carries = carries
        self.skips = skips
        if evidence and remember is not None:
            raise RouteMistake(
                f"route {name!r}: evidence is found by a remembered key; leave out remember or evidence"
            )
        self.evidence = evidence
        if not_before is not None and not (isinstance(not_before, str) and not_before):
            raise RouteMistake(
                f"route {name!r}: not_before is {not_before!r}; give the name of the field with the time"
            )
        self.not_before = not_before
        mistakes.check_functions(f"route {name!r}", form=(form, "envelope"))
        self.form = form
        if isinstance(columns, str) or not all(isinstance(name, str) and name for name in columns):
            raise RouteMistake(
                f"route {name!r}: columns is {columns!r}; give a list of names, such as ['senderId', 'attempts']"
            )
        self.columns = tuple(columns)
        self.key_forms = {} if key_forms is None else dict(key_forms)
        fields = parsed_input.key_fields(self.key)
        if self.key_forms and (len(fields) < 2 or not self.key_forms.keys() <= set(fields)):
            raise RouteMistake(
                f"route {name!r}: key_forms is for {', '.join(self.key_forms)}; name fields of a key that has several fields"
            )
        for field, key_form in self.key_forms.items():
            mistakes.check_shape(key_form, f"route {name!r}: key_forms[{field!r}]", "text")
        mistakes.check_functions(
            f"route {name!r}",
            parse=(parse, "input"),
            parse_keys=(parse_keys, "texts"),
            key_column=(key_column, "lines"),
        )
        if key_column is not None and not isinstance(key, str):
            raise RouteMistake(
                f"route {name!r}: key_column finds a key of one field; name that field as the key, or leave out key_column"
            )
        if parse_keys is not None and (parse is None or not isinstance(key, str)):
            raise RouteMistake(
                f"route {name!r}: parse_keys is a faster way to parse keys of one field; name that field, and give parse, too"
            )
        self.parse = parse
        self.parse_keys = parse_keys
        self.key_column = key_column
        self.follow_up: FollowUp | None = None
        self.closed: str | None = None
        """Why items of this route cannot be submitted; None if they can."""
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
        lanes: Mapping[str, Limits] | None = None,
        party: Callable[[str], str] | None = None,
        batch: int = 1,
        claims: bool = True,
        verify: Handler | None = None,
        pauses: bool = False,
        accepts: Callable[..., bool] | None = None,
        next_payload: Callable[[Any], Any] | None = None,
        announce: str | None = None,
        medium: str | None = None,
        remote: bool = False,
    ) -> Callable[[H], H]:
        """Declare the next stage; decorates its handler, `async def` or plain `def`, of one item
        (or, with `batch`, a list).

        `claims=False` promises that the handler only looks: two may look at the same item at once,
        and neither changes anything. `remote=True` declares a stage without a handler here: workers
        elsewhere, in any language, claim its items over HTTP. For them a worker's name counts as a
        process: one holds at most `concurrency` times `batch` items. `accepts` and `next_payload`
        are as for `external`. `breaker` stops calls while the stage's partner is down; each lane
        has a breaker of its own (see `Breaker`). `lanes` has the limits of single lanes; it may be
        a mapping whose content changes. `party`, a function of the key, tells apart those whom the
        items of a lane concern: a probe of the lane's breaker is of another party than the last
        failures, so that one of them cannot keep it open for all. `pauses=True`: the handler may
        pause its lane; on AWS Lambda its function is then allowed to.
        """
        subject = f"stage {name!r} of route {self.name!r}"
        mistakes.check_name(name, "a stage's name", f"route {self.name!r}")
        self._check_new(name)
        mistakes.check_count(concurrency, f"{subject}: concurrency")
        mistakes.check_count(batch, f"{subject}: batch")
        mistakes.check_kind(retry, Backoff, f"{subject}: retry", RETRY_SAMPLE)
        mistakes.check_kind(breaker, Breaker, f"{subject}: breaker", BREAKER_SAMPLE)
        mistakes.check_kind(
            checks, Checks, f"{subject}: checks", "checks=mp.Checks(every='10m', up_to='6h')"
        )
        mistakes.check_functions(
            subject,
            lane=(lane, "input"),
            party=(party, "key"),
            verify=(verify, "item"),
            next_payload=(next_payload, "output"),
        )
        for lane_name, limits in (lanes or {}).items():
            if not isinstance(limits, Limits):
                raise RouteMistake(
                    f"{subject}: lanes[{lane_name!r}] is {limits!r}; write mp.Limits(rate='10/s', concurrency=4)"
                )
        accepts_answer = mistakes.answer_check(accepts, f"{subject}: accepts")
        used = checks or Checks()
        if remote and (timeout is not None or verify is not None or not claims):
            raise RouteMistake(
                f"{subject} is remote: its worker sets the time limit by its lease, and `unknown` tells it when to check first; "
                "leave out timeout, verify and claims"
            )

        stage = Stage(
            name=name,
            remote=remote,
            retry=retry or Backoff(),
            checks=used,
            concurrency=concurrency,
            rate=None
            if rate is None
            else mistakes.parse_option(rate_per_second, rate, f"{subject}: rate"),
            timeout_ms=None
            if timeout is None
            else mistakes.parse_option(mistakes.some_ms, timeout, f"{subject}: timeout"),
            breaker=breaker,
            lane=lane,
            lanes={} if lanes is None else lanes,
            party=party,
            batch=batch,
            claims=claims,
            verify=verify,
            pauses=pauses,
            accepts=accepts_answer,
            next_payload=next_payload,
            announce=announce,
            medium=medium,
            overdue_ms=None
            if used.overdue is None
            else span_ms(used.overdue, f"{subject}: overdue"),
        )
        if remote:
            self.stages.append(stage)

        def declare(handler: H) -> H:
            if remote:
                raise RouteMistake(
                    f"{subject} is remote, so it has no handler here; leave out the handler, or remote=True"
                )
            mistakes.check_shape(
                handler, f"{subject}: its handler", "items" if batch > 1 else "item"
            )
            self._check_new(name)
            self.stages.append(replace(stage, handler=handler))
            return handler

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
        """Declare a stage that a partner carries out: Milepost offers it, and the partner confirms
        it.

        `queue` is the address of the partner's own queue, where offers go by queue; without it the
        ledger has one for the stage. `message` formats such an offer: a function of the usual offer
        that returns text, or a value to be sent as JSON.

        `accepts` judges an answer: a function of the answer, or of the answer and the stage's
        payload (None before the item has reached the stage). It returns a bool; a ValueError that
        it raises refuses the answer and says why. A refused answer is noted, and the stage is
        offered again after a short pause. `next_payload` makes the next stage's payload from the
        output.
        """
        subject = f"stage {name!r} of route {self.name!r}"
        mistakes.check_name(name, "a stage's name", f"route {self.name!r}")
        self._check_new(name)
        mistakes.check_functions(
            subject,
            lane=(lane, "input"),
            message=(message, "offer"),
            next_payload=(next_payload, "output"),
        )
        accepts_answer = mistakes.answer_check(accepts, f"{subject}: accepts")
        self.stages.append(
            Stage(
                name=name,
                retry=retry or Backoff(),
                checks=Checks(),
                lane=lane,
                accepts=accepts_answer,
                next_payload=next_payload,
                announce=announce,
                medium=medium,
                queue=queue,
                message=message,
                resend_after_ms=None
                if resend_after is None
                else mistakes.parse_option(
                    mistakes.some_ms, resend_after, f"{subject}: resend_after"
                ),
                overdue_ms=None
                if overdue is None
                else mistakes.parse_option(span_ms, overdue, f"{subject}: overdue"),
            )
        )

    def then(self, route: Route, make_input: MakeInput) -> None:
        """Submit an item of another route for each item that completes. `make_input` gets the item
        and the time (UTC) of its completion, and returns the input (None: no item). The other route
        belongs to this one: it need not be named beside it."""
        if (
            not isinstance(route, Route)
            or route is self
            or not callable(make_input)
            or self.follow_up is not None
        ):
            raise RouteMistake(
                f"route {self.name!r}: then takes another route and a function of an item and a time, and may be called once"
            )
        self.follow_up = FollowUp(route, make_input)

    def formed(self, key: str) -> str:
        """The key in the form in which a new item has it, of one with the fields' own texts (see
        `key_forms`); else the key itself."""
        return (
            formed_key(key, parsed_input.key_fields(self.key), self.key_forms)
            if self.key_forms
            else key
        )

    def with_forms(self, content: Any) -> Any:
        """The content with the texts of the key's fields as they are in the key (see
        `key_forms`)."""
        if not isinstance(content, dict):
            return content
        formed = {
            name: form(content[name])
            for name, form in self.key_forms.items()
            if isinstance(content.get(name), str)
        }
        return {**content, **formed}

    def key_of(self, content: Any) -> str:
        """The item's key, with the fields' own texts; raises MalformedInput with the field that is
        missing or empty."""
        return parsed_input.key_in(
            content if self.parse is None else parsed_input.parsed(content, self.parse), self.key
        )

    def read(self, content: Any) -> ParsedInput:
        """The parsed input; raises MalformedInput if it is invalid."""
        return self._read(
            content if self.parse is None else parsed_input.parsed(content, self.parse)
        )

    def _read(self, content: Any) -> ParsedInput:
        key = parsed_input.key_in(content, self.key)
        read = ParsedInput(key, content)
        if self.carries is not None:
            read = ParsedInput(
                key, *parsed_input.carried(content, parsed_input.key_fields(self.key), self.carries)
            )
        if self.not_before is not None:
            self.start_of(read.content, 0)  # raises MalformedInput for an invalid time
        return read

    def read_all(self, contents: Sequence[Any]) -> ParsedBatch:
        """The parsed inputs; raises MalformedInput if one of them is invalid."""
        contents = self._parsed(contents)
        if self.carries is not None or self.not_before is not None:
            read = [self._read(content) for content in contents]
            return ParsedBatch(
                [one.key for one in read],
                [one.content for one in read],
                [one.correlation_id for one in read],
            )
        keys = parsed_input.keys_in(contents, self.key)
        # A key may be another form of its text, such as one without spaces around it.
        alone = isinstance(contents, OneField) and keys is contents.texts
        return ParsedBatch(keys, contents if alone else list(contents))

    def _parsed(self, contents: Sequence[Any]) -> Sequence[Any]:
        """The recorded inputs of submitted ones. What `parse_keys` cannot do is done in portions:
        an unusual line is slow for few others."""
        parse, field = self.parse, self.key
        if parse is None:
            return contents
        if self.parse_keys is not None and isinstance(field, str) and contents:
            texts = parsed_input.texts_of(contents, field)
            valid = texts is not None and (
                isinstance(contents, OneField) or all(isinstance(text, str) for text in texts)
            )
            found = self.parse_keys(texts) if valid and texts is not None else None
            if found is not None:
                return OneField(field, found)
            if len(contents) > PORTION:
                portions = (
                    self._parsed(contents[start : start + PORTION])
                    for start in range(0, len(contents), PORTION)
                )
                return [content for portion in portions for content in portion]
        return [parsed_input.parsed(content, parse) for content in contents]

    def start_of(self, content: Any, now: int) -> int | None:
        """The time before which an item with this input does not start, from the route's field for
        it; raises MalformedInput if it is not a time."""
        found = None if self.not_before is None else parsed_input.start_in(content, self.not_before)
        return None if found is None else moment_ms(found, now, self.not_before or "")

    def _check_new(self, name: str) -> None:
        if any(stage.name == name for stage in self.stages):
            raise RouteMistake(
                f"route {self.name!r} has two stages called {name!r}; give one of them another name"
            )


MakeInput = Callable[[Item, datetime], Any]
"""The input for the other route, for an item that completed at this time (UTC); None: no item."""


class FollowUp(NamedTuple):
    """The route of the follow-up items, and the function that makes their input."""

    target: Route
    make_input: MakeInput
