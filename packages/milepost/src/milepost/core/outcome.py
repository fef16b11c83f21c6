"""Outcomes of a stage: returned by a handler, or given by an outside confirmation, which counts the
same."""

from __future__ import annotations

import traceback
from typing import Any, Union

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from milepost.core.errors import is_shortage
from milepost.core.values.durations import span_ms
from milepost.core.values.json import canonical_json, check_depth, check_json, storable_text
from milepost.core.values.redaction import redacted_text

TRACEBACK_LIMIT = 4_000
"""Maximum characters of a stored traceback: its beginning and its end."""
TRACEBACK_FRAMES = 50
SHORTAGE_PAUSE_S = 10
"""Pause of an item whose handler met a shortage of the process or of its ledger."""


class Done(Struct, frozen=True, tag="done", omit_defaults=True):
    """The stage is completed. `output` is stored as the stage's result and becomes the next stage's
    payload, unless `payload` is given; with neither, the next stage gets the same payload."""

    output: Any = None
    payload: Any | UnsetType = UNSET


class NotYet(Struct, frozen=True, tag="not-yet", omit_defaults=True):
    """Checked, and not there yet: normal, never counted. `after` takes precedence over the stage's
    schedule of checks."""

    after: float | int | str | None = None
    note: str | None = None
    unknown: bool = False
    """True if it is still not known whether an earlier attempt did the work: the next look runs the
    stage's `verify` first. A probe that cannot tell yet returns it."""
    asked: bool = True
    """False: the partner was not asked, so the lane's breaker learns nothing from this look."""

    def __post_init__(self) -> None:
        if self.after is not None:
            span_ms(self.after, "NotYet(after=…)")


class Checked(Struct, frozen=True, tag="checked", omit_defaults=True):
    """A check that is repeated at intervals was successful: recorded as a success, never counted.
    The item stays at its stage, is checked again `after` that time (default: by the stage's
    schedule), and is overdue if no check succeeds for the stage's overdue time. `output`, if given,
    replaces the stage's result."""

    output: Any = None
    after: float | int | str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.after is not None:
            span_ms(self.after, "Checked(after=…)")


class HandedOver(Struct, frozen=True, tag="handed-over", omit_defaults=True):
    """The work was given to a partner whose answer comes later. No answer after `within` is a
    counted attempt (NO_ANSWER)."""

    within: float | int | str
    note: str | None = None

    def __post_init__(self) -> None:
        span_ms(self.within, "HandedOver(within=…)")


class Retry(Struct, frozen=True, tag="retry", omit_defaults=True):
    """This attempt failed and counts; there may be another. `after` is a minimum for the delay (a
    partner's Retry-After)."""

    error: str = "failed"
    after: float | int | str | None = None
    category: str = "ERROR"
    details: Any = None
    http_status: int | None = None
    unknown: bool = False
    """True if the partner may have done the work nevertheless: the next attempt runs the stage's
    `verify` first."""
    breaker: bool = True
    """False: the lane's breaker does not count this failure, as of a partner that answers and asks
    to wait."""
    traceback: str | None = None
    """Traceback of a raised exception. Stored in the history, redacted and cut to size."""

    def __post_init__(self) -> None:
        force_setattr(self, "error", storable_text(str(self.error)))
        if self.after is not None:
            span_ms(self.after, "Retry(after=…)")


class Reject(Struct, frozen=True, tag="reject", omit_defaults=True):
    """Failed permanently: another attempt would not help."""

    error: str = "rejected"
    category: str = "REJECTED"
    details: Any = None
    http_status: int | None = None
    traceback: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "error", storable_text(str(self.error)))


Outcome = Union[Done, NotYet, Checked, HandedOver, Retry, Reject]  # noqa: UP007  (msgspec reads it at run time)
OUTCOMES = (Done, NotYet, Checked, HandedOver, Retry, Reject)


def outcome_of_exception(error: BaseException) -> Retry | Reject | NotYet:
    """The outcome of a raised exception: a Retry, or a Reject if the exception has `permanent =
    True`. Its `retry_after` is the minimum delay; its `unknown = True` says that the partner may
    have done the work nevertheless. A shortage of the process or of its ledger is no failure of the
    handler: a NotYet, which counts no attempt."""
    message = storable_text(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )
    if is_shortage(error):
        return NotYet(
            after=SHORTAGE_PAUSE_S, note=f"no attempt is counted: {message}", unknown=True
        )
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"where": f"{last[0].filename.rsplit('/', 1)[-1]}:{last[0].lineno}"} if last else {}
    details = {"type": type(error).__name__, **where}
    status = getattr(error, "http_status", None)
    http_status = status if isinstance(status, int) else None
    trace = _traceback_of(error)
    if getattr(error, "permanent", False) is True:
        return Reject(
            message, category="EXCEPTION", details=details, http_status=http_status, traceback=trace
        )
    after = getattr(error, "retry_after", None)
    try:
        if after is not None:
            span_ms(after, "retry_after")
    except Exception:
        after = None
    unknown = getattr(error, "unknown", False) is True
    return Retry(
        message,
        after=after,
        category="EXCEPTION",
        details=details,
        http_status=http_status,
        unknown=unknown,
        traceback=trace,
    )


def _traceback_of(error: BaseException) -> str:
    """The traceback with the exceptions that caused it, without the first frame, which is the
    engine's call of the handler."""
    first = error.__traceback__
    frames = first.tb_next or first if first is not None else None
    trace = traceback.TracebackException(
        type(error), error, frames, limit=-TRACEBACK_FRAMES, compact=True
    )
    return bounded_traceback(storable_text("".join(trace.format())))


def bounded_traceback(text: str) -> str:
    """A traceback for storage: redacted, then its first quarter and its end if it is too long."""
    text, whole = text.rstrip(), len(text)
    if whole > 8 * TRACEBACK_LIMIT:
        # The end begins at a word boundary: half a secret is not recognised as one.
        text = text[: 2 * TRACEBACK_LIMIT] + "\n" + text[-6 * TRACEBACK_LIMIT :].partition(" ")[2]
    text = redacted_text(text).rstrip()
    if len(text) <= TRACEBACK_LIMIT:
        return text
    head = text[: TRACEBACK_LIMIT // 4]
    return (
        f"{head}\n… cut: {whole:,} characters in all …\n{text[len(head) + 60 - TRACEBACK_LIMIT :]}"
    )


def as_outcome(answer: object) -> Outcome:
    """A handler's return value as an outcome; any other value becomes a failure that says what was
    expected."""
    if isinstance(answer, OUTCOMES):
        return answer
    return Retry(
        f"the handler returned {type(answer).__name__}, not an outcome: return Done(), NotYet(), Checked(), HandedOver(), Retry() or Reject()",
        category="WRONG_ANSWER",
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Outcome)
_skim = msgspec.json.Decoder(msgspec.Raw).decode


def outcome_to_builtins(outcome: Outcome) -> Any:
    """The outcome as plain JSON values, to be stored beside a row."""
    return msgspec.json.decode(_encoder.encode(outcome))


def outcome_from_builtins(value: Any) -> Outcome:
    """The outcome that `outcome_to_builtins` made these values from."""
    outcome: Outcome = _decoder.decode(_encoder.encode(value))
    return outcome


def check_outcome(outcome: Outcome) -> None:
    """Raise an error if the outcome cannot be stored as JSON and read again as it is."""
    text = canonical_json(outcome)
    if type(outcome) in (Done, Checked):
        check_json(outcome, text)
        _skim(text)  # its fields may hold anything that is JSON
    else:
        check_depth(text)
        _decoder.decode(text)


def storage_fault(outcome: Outcome) -> str | None:
    """Why the outcome cannot be stored as it is; None if it can."""
    try:
        check_outcome(outcome)
    except Exception as error:
        return f"the outcome cannot be stored as JSON: {storable_text(str(error))}"
    return None
