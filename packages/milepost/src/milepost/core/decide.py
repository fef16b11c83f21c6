"""Decisions: the row after intake, after an outcome and at the next stage. Time and randomness are
passed in."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from milepost.core.change import (
    FREE,
    Author,
    Change,
    Fields,
    also,
    change,
    end,
    next_line,
    worker_of,
)
from milepost.core.claims import kept_author, without_author
from milepost.core.failures import CANNOT_BE_STORED, fail, message_of
from milepost.core.history import Line, claim_digest, encode_line, link, origin
from milepost.core.item import Item, Put, Row, digest_of, work_id
from milepost.core.outcome import (
    Checked,
    Done,
    HandedOver,
    NotYet,
    Outcome,
    Reject,
    Retry,
    outcome_from_builtins,
    outcome_to_builtins,
)
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso, span_ms
from milepost.core.values.json import canonical_json
from milepost.core.values.redaction import redacted_text

MAX_LOSSES = 10
SHORTEST_LOOK_MS = 50
"""Minimum pause between looks: without one they would never stop."""

AGAIN = {"completed": "again"}
"""Note of an item that was COMPLETED before and completes an added stage: subscribers must not take
it for a new completion."""

# As module constants: up to Python 3.11, looking up an Enum member is five times slower, and every
# item needs these.
_PENDING, _QUEUED, _COMPLETED = Status.PENDING, Status.QUEUED, Status.COMPLETED
_ADVANCED, _CONFIRMED, _FINISHED = Reason.ADVANCED, Reason.CONFIRMED, Reason.COMPLETED


def valid_confirmation(value: Any, stage: Stage | None = None, payload: Any = None) -> bool:
    """Whether this value confirms the stage; see `refusal`."""
    return refusal(value, stage, payload) is None


def refusal(value: Any, stage: Stage | None = None, payload: Any = None) -> str | None:
    """Why this value does not confirm the stage; None: it does. Valid are true, a non-zero number,
    a non-empty object or list, and text that does not mean no. A stage may have its own rule, also
    by its `payload` (None: not known yet)."""
    if stage is None or stage.accepts is None:
        confirms = (
            value.strip().lower() not in EMPTY_WORDS if isinstance(value, str) else bool(value)
        )
        return (
            None
            if confirms
            else f"{_excerpt(value)} confirms nothing; give true, a number, text or an object"
        )
    try:
        confirms = bool(stage.accepts(value, payload))
    except ValueError as error:
        return str(error)[:REFUSAL_LIMIT] or f"{_excerpt(value)} confirms nothing"
    except Exception as error:
        return (
            f"the stage's own check failed on {_excerpt(value)}: {type(error).__name__}: {error}"[
                :REFUSAL_LIMIT
            ]
        )
    return (
        None
        if confirms
        else f"{_excerpt(value)} confirms nothing; the stage's own check does not accept it"
    )


REFUSAL_LIMIT = 1_000
"""Maximum characters of the reason why an answer does not confirm."""


def _excerpt(value: Any) -> str:
    return canonical_json(value)[:100].decode(errors="ignore")


EMPTY_WORDS = frozenset({"", "false", "no", "0", "null", "{}", "[]"})


class Acceptance:
    """The first change of new items that are accepted at the same time; call it for each item.

    An item starts at the route's first stage, or at `stage`. The `before` of its change is a row
    that never existed: version 0, start of the chain. An item with a later start waits for it as
    PENDING, and its age counts from then. Where the key may have had an item before (the route
    forgets keys, or `anew`), this is a separate life: its ids and its chain differ from those of
    the earlier item.
    """

    def __init__(
        self,
        plan: Plan,
        now: int,
        *,
        list_id: str | None = None,
        by: str | None = None,
        why: str | None = None,
        note: Any = None,
        stage: Stage | None = None,
        not_before: int | None = None,
        anew: bool = False,
    ) -> None:
        stage = stage or plan.first
        life = now if anew or plan.route.remember_ms is not None else 0
        status, look_at, starts_at, not_before = entry_state(stage, now, not_before)
        if not_before is not None and note is None:
            note = {"not_before": iso(not_before)}
        overdue_at = None if stage.overdue_ms is None else starts_at + stage.overdue_ms
        self._stage = stage
        self._offers = stage.external and status is Status.QUEUED
        self._line = Line(
            1,
            now,
            Reason.ACCEPTED,
            stage.name,
            status,
            by=by or None,
            why=why,
            note=note,
            life=life,
            epoch=plan.epoch,
        )
        self._body = encode_line(self._line)
        self._row = Row(
            plan.name, "", stage.name, status, 1, b"", now, now, starts_at, "", b"", "", look_at, overdue_at,
            list_id=list_id, not_before=not_before, life=life, epoch=plan.epoch,
        )  # fmt: skip

    def __call__(self, key: str, content: Any, *, correlation_id: str, digest: bytes) -> Change:
        row, line, body, stage = self._row, self._line, self._body, self._stage
        if self._offers:
            line = replace(line, offered=work_id(row.route, key, stage.name, 1, row.life))
            body = encode_line(line)
        start = origin(row.route, key, digest, row.life)
        lane = "" if stage.lane is None else stage.lane_of(content)
        after = replace(
            row,
            key=key,
            head=link(start, body),
            correlation_id=correlation_id,
            input_digest=digest,
            lane=lane,
        )
        return Change(replace(NOTHING, head=start), after, line, body)


def accept(
    plan: Plan,
    key: str,
    content: Any,
    now: int,
    *,
    correlation_id: str,
    digest: bytes,
    **common: Any,
) -> Change:
    """The first change of one new item; `common` are the options of `Acceptance`."""
    return Acceptance(plan, now, **common)(
        key, content, correlation_id=correlation_id, digest=digest
    )


NOTHING = Row("", "", "", Status.PENDING, 0, b"", 0, 0, 0, "", b"")


def entry_state(
    stage: Stage, now: int, not_before: int | None
) -> tuple[Status, int, int, int | None]:
    """Status, next look, entry time and remaining `not_before` of an item that has just reached a
    stage. If the stage has no grace time, this write offers it, too."""
    if not_before is not None and not_before > now:
        return _PENDING, not_before, not_before, not_before
    if stage.grace_ms:
        return _PENDING, now + stage.grace_ms, now, None
    return _QUEUED, now + stage.offer_life_ms, now, None


def arrive(
    item: Item,
    stage: Stage,
    now: int,
    reason: Reason,
    author: Author,
    *,
    pass_no: int | None = None,
    kept: dict[str, Any] | None = None,
    output: str | None = None,
    note: Any = None,
    puts: tuple[Put, ...] = (),
) -> Change:
    """Bring the item to `stage`, from another or once more. Fields not named here start as for a
    new item: nothing of the stage before counts. `kept`: the confirmations to keep, if not all of
    the row's."""
    row = item.row
    name = stage.name
    if pass_no is None:
        pass_no = row.pass_no
    if kept is None:
        kept = row.kept
    status, look_at, entered_at, not_before = entry_state(stage, now, row.not_before)
    if not_before is None and name in kept:
        look_at = now
    offered = (
        work_id(row.route, row.key, name, pass_no, row.life)
        if stage.external and status is _QUEUED
        else None
    )
    line, body, head = next_line(
        row,
        reason,
        now,
        status,
        author,
        None if name == row.stage else name,
        None,
        output,
        offered,
        note,
    )
    # One call of at most 30 values (a keyword counts twice): beyond that Python first builds a list
    # and a dict.
    after = Row(
        row.route,
        row.key,
        name,
        status,
        line.version,
        head,
        row.created_at,
        now,
        entered_at,
        row.correlation_id,
        row.input_digest,
        "" if stage.lane is None else stage.lane_of(item.content.input),
        look_at,
        None if stage.overdue_ms is None else entered_at + stage.overdue_ms,
        total_attempts=row.total_attempts,
        pass_no=pass_no,
        again=row.again,
        list_id=row.list_id,
        kept=kept,
        handle=row.handle,
        content_digest=row.content_digest,
        life=row.life,
    )
    if row.epoch:
        after = replace(after, epoch=row.epoch)
    if not_before is not None:
        after = replace(after, not_before=not_before)
    return Change(row, after, line, body, puts)


def decide(
    item: Item,
    outcome: Outcome,
    plan: Plan,
    now: int,
    jitter: float,
    *,
    by: str | None = None,
    why: str | None = None,
    act: str | None = None,
    response_ms: int | None = None,
    outside: bool = False,
    expired: bool = False,
    forced: str | None = None,
) -> Change:
    """The change that an outcome makes, of a handler or from outside.

    A kept confirmation for the item's stage takes precedence over the worker's outcome. `jitter` is
    in [-1, 1]. `expired`: the lease has run out, so this is not the outcome of its claim. `forced`:
    an operator confirms the stage although the answer would be refused for this reason.
    """
    row = item.row
    from_kept = bool(row.kept) and not outside and row.stage in row.kept
    if from_kept:
        outcome, outside = outcome_from_builtins(row.kept[row.stage]), True
        by, why = kept_author(row.kept[row.stage]), None
    claim = None if expired or row.lease is None else claim_digest(row.lease)
    author = Author(by or row.holder, row.claimed_at, why, act, claim, from_kept)
    if type(outcome) is Done:
        return pass_on(
            item, outcome, plan, now, _CONFIRMED if outside else _ADVANCED, author, forced
        )
    stage = plan.by_name[row.stage]
    fields: Fields = {"kept": without(row.kept, row.stage)} if row.stage in row.kept else {}
    if type(outcome) is NotYet:
        waiting = _not_yet(row, stage, outcome, now, jitter, fields, author)
        return waiting if outcome.asked else replace(waiting, asked=False)
    if type(outcome) is Checked:
        return _checked(row, stage, outcome, now, jitter, fields, author)
    if type(outcome) is HandedOver:
        fields |= FREE
        fields |= {
            "look_at": row.not_earlier(now + span_ms(outcome.within, "within")),
            "handed_over": True,
            "unknown": False,
        }
        note = cut_note(outcome.note)
        fields |= {"undecided": None, "note": note}
        return change(row, Reason.HANDED_OVER, now, Status.WAITING, fields, author, note=note)
    assert isinstance(outcome, (Retry, Reject))
    return fail(row, stage, outcome, now, jitter, fields, author, response_ms)


def pass_on(
    item: Item,
    done: Done,
    plan: Plan,
    now: int,
    reason: Reason,
    author: Author,
    forced: str | None = None,
) -> Change:
    """Complete this stage: bring the item to the next one, or end it. `forced` is noted: why the
    answer would have been refused."""
    row, content = item.row, item.content
    here, kept = row.stage, row.kept
    puts: tuple[Put, ...] = ()
    output = note = None
    if done.output is not None:
        output = digest_of(done.output).hex()
        puts = (Put("result", here, done.output),)
    elif here in content.results:
        # Sent back and completed again without a result: the earlier result is no longer valid.
        puts = (Put("result", here, None),)
    following = plan.following[here]
    if following is not None:
        payload = done.payload
        if payload is UNSET:
            # A plain "true" from outside only means yes: it is no payload for the next stage.
            bare = output is None or (done.output is True and reason is _CONFIRMED)
            payload = item.payload if bare else plan.by_name[here].payload_after(done.output)
        # A stage without a payload of its own works on the input; remove a payload left from an
        # earlier pass.
        if payload is not content.input or following.name in content.payloads:
            puts = (*puts, Put("payload", following.name, payload))
        if kept:
            kept, note = _arriving(without(kept, here), following, payload)
        if forced is not None:
            note = {**(note or {}), "forced": forced}
        return arrive(
            item, following, now, reason, author, kept=kept, output=output, note=note, puts=puts
        )
    if row.again:
        note = AGAIN
    if forced is not None:
        note = {**(note or {}), "forced": forced}
    completed = end(
        row,
        _FINISHED if reason is _ADVANCED else reason,
        now,
        _COMPLETED,
        author,
        None,
        output=output,
        note=note,
        puts=puts,
    )
    return also(completed, kept=without(kept, here)) if here in kept else completed


def _arriving(kept: dict[str, Any], stage: Stage, payload: Any) -> tuple[dict[str, Any], Any]:
    """The confirmations to keep for an item that reaches a stage, and a note, if any: an early
    confirmation may not confirm the payload that the stage now has."""
    given = kept.get(stage.name)
    if given is None or stage.accepts is None:
        return kept, None
    early = outcome_from_builtins(given)
    if not isinstance(early, Done) or valid_confirmation(early.output, stage, payload):
        return kept, None
    return without(kept, stage.name), {"for": stage.name, "confirms nothing": without_author(given)}


def _next_look_ms(row: Row, stage: Stage, outcome: NotYet | Checked, jitter: float) -> int:
    """Time until the next look: as the outcome says, else by the stage's schedule."""
    if outcome.after is not None:
        return max(SHORTEST_LOOK_MS, span_ms(outcome.after, "after"))
    return stage.checks.after_ms(row.looks, jitter)


def _checked(
    row: Row,
    stage: Stage,
    outcome: Checked,
    now: int,
    jitter: float,
    fields: Fields,
    author: Author,
) -> Change:
    """A success at a stage that the item does not leave: as if it had just arrived there, nothing
    of earlier checks counts."""
    note = cut_note(outcome.note)
    output = None if outcome.output is None else digest_of(outcome.output).hex()
    puts = () if outcome.output is None else (Put("result", row.stage, outcome.output),)
    fields |= FREE
    fields |= {
        "look_at": row.not_earlier(now + _next_look_ms(row, stage, outcome, jitter)),
        "entered_at": now,
    }
    fields |= {"overdue_at": None if stage.overdue_ms is None else now + stage.overdue_ms}
    fields |= {
        "looks": 0,
        "attempts": 0,
        "losses": 0,
        "error": None,
        "handed_over": False,
        "unknown": False,
        "undecided": None,
        "note": note,
    }
    return change(
        row,
        Reason.CHECKED,
        now,
        Status.WAITING,
        fields,
        author,
        output=output,
        note=note,
        puts=puts,
    )


def _not_yet(
    row: Row, stage: Stage, outcome: NotYet, now: int, jitter: float, fields: Fields, author: Author
) -> Change:
    after = _next_look_ms(row, stage, outcome, jitter)
    fields |= FREE
    fields |= {
        "look_at": row.not_earlier(now + after),
        "looks": row.looks + 1,
        "handed_over": False,
        "unknown": outcome.unknown,
    }
    note = cut_note(outcome.note)
    fields |= {"undecided": None, "note": note}
    if row.looks == 0 or note != row.note:
        return change(row, Reason.NOT_YET, now, Status.WAITING, fields, author, note=note)
    # Nothing new: the row changes, the history does not grow. Then only the row records that the
    # claim was settled.
    settled = author.claim or row.settled
    return Change(
        row, replace(row, updated_at=now, status=Status.WAITING, settled=settled, **fields)
    )


def given_back(row: Row, now: int, *, why: str, unknown: bool = False) -> Change:
    """Return an item that its worker has not finished: not counted, due at once."""
    fields = {**FREE, "look_at": now, "unknown": row.unknown or unknown}
    return change(row, Reason.GIVEN_BACK, now, Status.QUEUED, fields, worker_of(row, why))


def late(row: Row, outcome: Outcome, now: int, *, by: str, lease: str | None = None) -> Change:
    """A note that a worker's outcome came after its lease had ended, and was refused. `lease` is
    that lease."""
    note = {"refused": type(outcome).__name__}
    if isinstance(outcome, (Retry, Reject)):
        note["error"] = message_of(outcome)
    claim = None if lease is None else claim_digest(lease)
    return change(row, Reason.LATE, now, row.status, {}, Author(by, claim=claim), note=note)


def undecided(row: Row, outcome: Outcome, now: int, *, by: str) -> Change:
    """The outcome of a process whose route is out of date: stored as it is, due at once for a newer
    process to decide. `row` is the ledger's present row (its stage may have been renamed), still
    under the worker's lease. The lease ends here; the holder stays for the line that decides. An
    outcome too large to be stored becomes a failed attempt that says so."""
    large = too_large(outcome)
    if large is not None:
        outcome = Retry(
            f"this outcome cannot be stored until it is decided: {large}",
            category=CANNOT_BE_STORED,
            unknown=True,
        )
    fields = {"undecided": outcome_to_builtins(outcome), "look_at": now, "lease": None}
    return change(row, Reason.UNDECIDED, now, row.status, fields, replace(worker_of(row), by=by))


def without(kept: dict[str, Any], stage: str) -> dict[str, Any]:
    """The kept confirmations of all other stages."""
    return {name: value for name, value in kept.items() if name != stage}


NOTE_LIMIT = 2_000
"""Maximum characters of a note."""
OUTCOME_LIMIT = 1_048_576
"""Maximum JSON bytes of an outcome stored beside the row: a confirmation, or an outcome to be
decided."""


def cut_note(note: str | None) -> str | None:
    """The note without secrets, as an error is stored; cut to size, and its end then gives the
    original length."""
    if note is None:
        return None
    length, note = len(note), redacted_text(note)
    if len(note) <= NOTE_LIMIT:
        return note
    marker = f"… (cut: {length:,} characters)"
    return note[: NOTE_LIMIT - len(marker)] + marker


def too_large(outcome: Outcome) -> str | None:
    """Why this outcome cannot be stored beside the row; None if it can."""
    size = len(canonical_json(outcome))
    if size <= OUTCOME_LIMIT:
        return None
    return f"it has {size:,} bytes as JSON; the limit is {OUTCOME_LIMIT:,}; store the content elsewhere and give its address"
