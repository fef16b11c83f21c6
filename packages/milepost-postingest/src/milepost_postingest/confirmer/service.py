"""Standalone confirmer: receives messages from a queue, runs a check, and writes the confirmation
on the asset's row. It needs no ledger, so it also works for a postingest that is not Milepost's.

The message of a waiting asset is hidden for longer each time, up to twelve hours, so that waiting
assets take up less and less of the confirmer's time; and a turn that reached its maximum is
followed by the next at once.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TextIO

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_postingest.confirmer.rows import NotWritten, RowGone, Rows
from milepost_postingest.confirmer.rules import (
    PREFIXES,
    CheckRequest,
    ConfirmerSettings,
    confirmation,
    read_message,
    read_settings,
    set_aside,
    wait_s,
)
from milepost_postingest.route import open_worker
from milepost_postingest.tape import Tape

BATCH = 10
WIDTH = 8
EVERY_S = 60.0
NOTES = 5
"""Number of reasons for waiting that are logged with each turn."""

WAITING, CONFIRMED_BY = "waiting_", "confirmedBy_"
"""Prefixes of the attributes that say on the row what a stage waits for, and who has confirmed
it."""
MOST_NOTED = 10_000
"""Number of rows whose last note is remembered."""

Check = Callable[..., mp.Outcome]
"""Checks a payload. With `notes` it also takes `absent`, which makes the outcome for missing
files."""
Became = Literal["confirmed", "gone", "not_yet", "refused", "failed", "unreadable"]

log = logging.getLogger(__name__)


class FilesMissing(mp.NotYet, frozen=True):
    """Files are missing; the note names them."""


class TurnTally(msgspec.Struct, frozen=True):
    """Results of the messages of one turn: each is counted as received, and as one of the
    others."""

    received: int = 0
    confirmed: int = 0
    gone: int = 0
    """Their row does not exist any more: nothing to do."""
    not_yet: int = 0
    refused: int = 0
    failed: int = 0
    """They come again when the queue shows them again."""
    unreadable: int = 0
    notes: dict[str, int] = {}
    """Reasons for waiting: the most frequent, with counts."""
    cut_short: bool = False
    """The queue could not be read to its end, or waiting messages could not be hidden for longer:
    the next turn must not start at once."""


class MessageResult(msgspec.Struct, frozen=True):
    became: Became
    note: str | None = None
    unhidden: str | None = None
    """Why it could not be hidden for longer."""


class ConfirmerMessage:
    def __init__(self, raw: Mapping[str, Any], at: float) -> None:
        self.raw, self.at = raw, at
        self.handle: str = raw["ReceiptHandle"]
        self.received = int(raw.get("Attributes", {}).get("ApproximateReceiveCount", 1))
        self.id: str = raw.get("MessageId", "")


class Confirmer:
    """Checks the messages of a queue with `check`, and confirms them in the table.

    A message that `check` refuses, or that cannot be read, goes to the quarantine with its content
    and the reason; without one it stays in the queue, hidden like waiting ones. `sqs` and
    `dynamodb` are boto3 clients; `width` messages are processed at once. With `notes`, the missing
    files are named on the row, as `waiting_<stage>`, whenever that has changed.
    """

    def __init__(
        self,
        check: Check,
        settings: ConfirmerSettings,
        *,
        sqs: Any,
        dynamodb: Any,
        width: int = WIDTH,
        notes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self.width = settings, width
        self._sqs = sqs
        prefix = PREFIXES[settings.dialect]
        self._rows = Rows(dynamodb, settings.table, prefix, settings.blobs)
        self._clock = clock
        self._check = (
            partial(check, absent=lambda note: FilesMissing(note=note)) if notes else check
        )
        stage = settings.attribute.removeprefix(prefix)
        self._waiting, self._confirmed_by = WAITING + stage, CONFIRMED_BY + stage
        self._noted: dict[str, str | None] = {}

    def run(self, every: float = EVERY_S, until: threading.Event | None = None) -> None:
        """Turn after turn until `until` is set: `every` seconds apart, or at once while there is
        more to do."""
        until = until or threading.Event()
        while not until.is_set():
            try:
                tally = self.tick()
            except Exception:
                log.exception("the turn failed; the next one starts in %g s", every)
                tally = TurnTally(cut_short=True)
            if tally.received < self.settings.max_messages or tally.failed or tally.cut_short:
                until.wait(every)

    def tick(self) -> TurnTally:
        """One turn: at most `max_messages`, each processed by itself. One log line has the
        results."""
        started = self._clock()
        jobs: list[Future[MessageResult]] = []
        whole = True
        with ThreadPoolExecutor(self.width, thread_name_prefix="confirmer") as pool:
            while len(jobs) < self.settings.max_messages:
                messages = self._receive(min(BATCH, self.settings.max_messages - len(jobs)))
                if not messages:
                    whole = messages is not None
                    break
                jobs += [pool.submit(self._see_to, message) for message in messages]
        tally = _tally([job.result() for job in jobs], whole)
        log.info(
            "turn",
            extra={
                "attribute": self.settings.attribute,
                **msgspec.to_builtins(tally),
                "seconds": round(self._clock() - started, 3),
            },
        )
        return tally

    def _receive(self, most: int) -> list[ConfirmerMessage] | None:
        """The next few messages; None if the queue could not be read."""
        try:
            answer = self._sqs.receive_message(
                QueueUrl=self.settings.queue_url,
                MaxNumberOfMessages=most,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        except Exception as error:
            # With 120,000 hidden messages SQS delivers no more (OverLimit) until some of them are
            # visible again; this passes by itself.
            log.error("no messages received from %s: %s", self.settings.queue_url, error)
            return None
        now = self._clock()
        return [ConfirmerMessage(raw, now) for raw in answer.get("Messages") or ()]

    # One message ----------------------------------------------------------------------------------
    def _see_to(self, message: ConfirmerMessage) -> MessageResult:
        try:
            return self._answered(message)
        except Exception as error:
            log.error(
                "a message stays in the queue: %s: %s",
                type(error).__name__,
                error,
                extra={"id": message.id},
            )
            return MessageResult("failed")

    def _answered(self, message: ConfirmerMessage) -> MessageResult:
        asked = read_message(message.raw)
        if isinstance(asked, str):
            return MessageResult(
                "unreadable", unhidden=self._refuse(message, asked, {"id": message.id})
            )
        named = {"id": message.id, "row": asked.key}
        outcome = self._outcome(asked)
        match outcome:
            case mp.Done():
                became = self._confirm(asked, outcome, named)
            case None:
                became = "gone"
            case mp.NotYet():
                if isinstance(outcome, FilesMissing):
                    self._note(asked, outcome.note, named)
                return MessageResult("not_yet", outcome.note, self._hide(message, outcome.after))
            case mp.Reject():
                return MessageResult(
                    "refused",
                    unhidden=self._refuse(message, f"{outcome.category}: {outcome.error}", named),
                )
            case mp.Retry():
                log.error("the check failed: %s: %s", outcome.category, outcome.error, extra=named)
                return MessageResult(
                    "failed",
                    unhidden=None if outcome.after is None else self._hide(message, outcome.after),
                )
            case _:
                raise TypeError(
                    f"the check answered {outcome!r}; a confirmer takes Done, NotYet, Retry and Reject"
                )
        self._sqs.delete_message(QueueUrl=self.settings.queue_url, ReceiptHandle=message.handle)
        log.info(became, extra=named)
        return MessageResult(became)

    def _outcome(self, asked: CheckRequest) -> mp.Outcome | None:
        """The outcome of the check; None: the row does not exist any more."""
        try:
            payload = self._rows.payload(asked)
        except RowGone:
            return None
        except NotWritten as error:
            return mp.NotYet(note=str(error))
        return self._check(payload)

    def _note(self, asked: CheckRequest, note: str | None, named: dict[str, Any]) -> None:
        """Write on the row which files are missing, unless that was written last time. If the write
        fails, the row waits all the same."""
        place = "\0".join(asked.key.values())
        if note is None or self._noted.get(place) == note:
            return
        try:
            self._rows.note(asked, self._waiting, note)
        except RowGone:
            return
        except Exception as error:
            log.warning(
                "the missing files could not be written on the row (is %s allowed?): %s",
                self._waiting,
                error,
                extra=named,
            )
            return
        if len(self._noted) >= MOST_NOTED:
            self._noted.clear()
        self._noted[place] = note

    def _confirm(self, asked: CheckRequest, done: mp.Done, named: dict[str, Any]) -> Became:
        try:
            texts = confirmation(
                self.settings.dialect, self.settings.attribute, done, self._rows.room
            )
            if self._rows.room is not None and texts != confirmation(
                self.settings.dialect, self.settings.attribute, done
            ):
                log.warning(
                    "digests and sizes are left out, since they are too large for the row; set MILEPOST_BLOBS",
                    extra=named,
                )
            self._rows.confirm(asked, texts, self._confirmed_by, self.settings.author)
        except RowGone:
            return "gone"
        return "confirmed"

    def _refuse(self, message: ConfirmerMessage, reason: str, named: dict[str, Any]) -> str | None:
        """Log a refused message and send it to the quarantine, if there is one: sent before it is
        deleted, so that it may be there twice but is never lost. Without a quarantine it is hidden
        like waiting ones; returns the result of `_hide`."""
        log.error("not confirmed: %s", reason, extra=named)
        if self.settings.quarantine_url is None:
            return self._hide(message, None)
        answer = self._sqs.send_message(
            QueueUrl=self.settings.quarantine_url,
            MessageBody=set_aside(self.settings.queue_url, message.raw, reason),
        )
        if "MessageId" not in answer:
            raise mp.LedgerError(
                f"{self.settings.quarantine_url} has not confirmed the receipt of the message"
            )
        self._sqs.delete_message(QueueUrl=self.settings.queue_url, ReceiptHandle=message.handle)
        return None

    def _hide(self, message: ConfirmerMessage, after: float | int | str | None) -> str | None:
        """Hide the message for longer. If that fails, return the reason: the message comes again
        when the queue shows it again."""
        hidden = wait_s(message.received, after, self._clock() - message.at)
        try:
            self._sqs.change_message_visibility(
                QueueUrl=self.settings.queue_url,
                ReceiptHandle=message.handle,
                VisibilityTimeout=hidden,
            )
        except Exception as error:
            return str(error)
        return None


def _tally(seen: Sequence[MessageResult], whole: bool) -> TurnTally:
    unhidden = [one.unhidden for one in seen if one.unhidden is not None]
    if unhidden:
        log.warning(
            "%d messages could not be hidden for longer (is sqs:ChangeMessageVisibility allowed?): %s",
            len(unhidden),
            unhidden[0],
        )
    became: dict[str, int] = Counter(one.became for one in seen)
    notes = Counter(one.note for one in seen if one.note is not None).most_common(NOTES)
    return TurnTally(len(seen), **became, notes=dict(notes), cut_short=bool(unhidden) or not whole)


# The process --------------------------------------------------------------------------------------
def run_confirmer(env: Mapping[str, str], once: bool, every: str) -> int:
    """Run turns until a signal, or one turn; returns the exit code. Raises mp.UsageError if the
    environment or the span is wrong."""
    try:
        pause = mpa.span_ms(every, "--every") / 1000
    except mp.UsageError:
        raise mp.UsageError(f"--every is {every!r}; give a span such as 60s or 5m") from None
    settings = read_settings(env)
    with open_worker(settings.worker, env) as worker, ExitStack() as stack:
        sqs, dynamodb = (stack.enter_context(closing(client)) for client in open_clients(WIDTH))
        confirmer = Confirmer(
            worker.check, settings, sqs=sqs, dynamodb=dynamodb, notes=isinstance(worker, Tape)
        )
        log_to(sys.stdout, log)
        if once:
            tally = confirmer.tick()
            return int(bool(tally.failed or tally.cut_short))
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        confirmer.run(pause, stop)
    return 0


def open_clients(width: int) -> tuple[Any, Any]:
    """boto3's clients of SQS and DynamoDB, with boto3's usual configuration."""
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError:
        raise mp.ConfigMistake(
            "a confirmer needs the package milepost-aws, which is not installed: pip install /path/to/milepost/packages/milepost-aws"
        ) from None
    # Every request here may be repeated without harm.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 4},
        connect_timeout=5,
        read_timeout=20,
        max_pool_connections=width,
    )
    session = Session()
    try:
        return session.client("sqs", config=config), session.client("dynamodb", config=config)
    except NoRegionError:
        raise mp.ConfigMistake(
            "AWS_DEFAULT_REGION is not set; expected the region of the queue and the table, such as eu-west-2"
        ) from None


_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class ConfirmerLogFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to(stream: TextIO, own: logging.Logger) -> None:
    """Write all log records of this process to the stream: of other loggers, warnings and
    errors."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ConfirmerLogFormat())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    own.setLevel(logging.INFO)
