"""What a stage can say. A handler returns one of these; an outside confirmation counts like one of our own."""

from __future__ import annotations

import traceback
from typing import Any, Union

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from milepost.core.values.durations import span_ms
from milepost.core.values.redaction import redacted_text

TRACEBACK_LIMIT = 4_000
"""Characters that are kept of a traceback: its beginning and its end."""
TRACEBACK_FRAMES = 50


class Done(Struct, frozen=True, tag="done", omit_defaults=True):
    """The stage is through. `output` is kept as the stage's result and becomes the next stage's payload,
    unless `payload` says otherwise; with neither, the payload travels on."""

    output: Any = None
    payload: Any | UnsetType = UNSET


class NotYet(Struct, frozen=True, tag="not-yet", omit_defaults=True):
    """Looked, and it is not there yet: normal, never counted. `after` wins over the stage's schedule of checks."""

    after: float | int | str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.after is not None:
            span_ms(self.after, "NotYet(after=…)")


class HandedOver(Struct, frozen=True, tag="handed-over", omit_defaults=True):
    """The work was given to a partner whose answer comes later. Silence past `within` is a counted try (NO_ANSWER)."""

    within: float | int | str
    note: str | None = None

    def __post_init__(self) -> None:
        span_ms(self.within, "HandedOver(within=…)")


class Retry(Struct, frozen=True, tag="retry", omit_defaults=True):
    """This try failed and counts; there may be another. `after` is a floor for the delay (a partner's Retry-After)."""

    error: str = "failed"
    after: float | int | str | None = None
    category: str = "ERROR"
    details: Any = None
    http_status: int | None = None
    unknown: bool = False
    """True if the partner may have done the work all the same: the next try runs the stage's `verify` first."""
    traceback: str | None = None
    """Where the error came from; filled in for a raised exception. Kept in the history, cut to size and without secrets."""

    def __post_init__(self) -> None:
        force_setattr(self, "error", str(self.error))
        if self.after is not None:
            span_ms(self.after, "Retry(after=…)")


class Reject(Struct, frozen=True, tag="reject", omit_defaults=True):
    """Failed for good: trying again would not help."""

    error: str = "rejected"
    category: str = "REJECTED"
    details: Any = None
    http_status: int | None = None
    traceback: str | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "error", str(self.error))


Outcome = Union[Done, NotYet, HandedOver, Retry, Reject]  # noqa: UP007  (msgspec reads it at run time)
OUTCOMES = (Done, NotYet, HandedOver, Retry, Reject)


def outcome_of_exception(error: BaseException) -> Retry | Reject:
    """A raised exception is a Retry; one that carries `permanent = True` is a Reject, `retry_after` is obeyed, `unknown = True` says that
    the partner may have done the work all the same."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = {"where": f"{last[0].filename.rsplit('/', 1)[-1]}:{last[0].lineno}"} if last else {}
    details = {"type": type(error).__name__, **where}
    status = getattr(error, "http_status", None)
    http_status = status if isinstance(status, int) else None
    trace = _traceback_of(error)
    if getattr(error, "permanent", False) is True:
        return Reject(message, category="EXCEPTION", details=details, http_status=http_status, traceback=trace)
    after = getattr(error, "retry_after", None)
    try:
        if after is not None:
            span_ms(after, "retry_after")
    except Exception:
        after = None
    unknown = getattr(error, "unknown", False) is True
    return Retry(message, after=after, category="EXCEPTION", details=details, http_status=http_status, unknown=unknown, traceback=trace)


def _traceback_of(error: BaseException) -> str:
    """The traceback with the exceptions that caused it, without the first frame, which is the engine's own call of the handler."""
    first = error.__traceback__
    frames = first.tb_next or first if first is not None else None
    told = traceback.TracebackException(type(error), error, frames, limit=-TRACEBACK_FRAMES, compact=True)
    return bounded_traceback("".join(told.format()))


def bounded_traceback(text: str) -> str:
    """A traceback as it is kept: without secrets, then its first quarter and its end where it is too long."""
    text, whole = text.rstrip(), len(text)
    if whole > 8 * TRACEBACK_LIMIT:
        # The end begins with a whole word: half a secret does not look like one.
        text = text[: 2 * TRACEBACK_LIMIT] + "\n" + text[-6 * TRACEBACK_LIMIT :].partition(" ")[2]
    text = redacted_text(text).rstrip()
    if len(text) <= TRACEBACK_LIMIT:
        return text
    head = text[: TRACEBACK_LIMIT // 4]
    return f"{head}\n… cut: {whole:,} characters in all …\n{text[len(head) + 60 - TRACEBACK_LIMIT :]}"


def as_outcome(answer: object) -> Outcome:
    """What a handler returned, as an outcome; anything that is none says what was expected."""
    if isinstance(answer, OUTCOMES):
        return answer
    return Retry(
        f"the handler returned {type(answer).__name__}, not an outcome: return Done(), NotYet(), HandedOver(), Retry() or Reject()",
        category="WRONG_ANSWER",
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Outcome)


def outcome_to_builtins(outcome: Outcome) -> Any:
    """The outcome as plain JSON values, for keeping beside a row."""
    return msgspec.json.decode(_encoder.encode(outcome))


def outcome_from_builtins(value: Any) -> Outcome:
    outcome: Outcome = _decoder.decode(_encoder.encode(value))
    return outcome
