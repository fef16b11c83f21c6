"""Results of the DSpace Submission Service: reads every form of message that it writes or has
written, and makes each the outcome of its DOI's submit stage.

A message is deleted last, after the ledger has its content. A result that comes twice, or late,
changes only the history.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

import milepost as mp
from milepost_deposits.controls import LedgerControls
from milepost_deposits.doi import DoiMistake, normalise
from milepost_deposits.dspace.api import DSpace, open_dspace
from milepost_deposits.dspace.errors import HELD_S
from milepost_deposits.dspace.login import LoginHold
from milepost_deposits.dspace.record import SubmissionRecords
from milepost_deposits.dspace.submission import deposited, same_file
from milepost_deposits.dss.submission import open_sqs, queue_url
from milepost_deposits.files import NO_CHECKSUM, FileStore, StoredFile
from milepost_deposits.settings import DepositsApp, DssSettings
from milepost_deposits.status_names import CONTENT, SUBMIT, result_in

UNCERTAIN_AFTER = "15m"
"""Delay before the next try where the service may have left an item behind: DSpace's index must
know it by then."""
NO_COLLECTION_S = 6 * 3600.0
"""Pause after the service did not find the collection, unless a person ends it earlier."""
TEXT_LIMIT = 1_500
TRACE_LIMIT = 4_000
_MD5 = re.compile(r"[0-9a-fA-F]{32}")

_NO_COLLECTION = "did not find any dspace objects"
_NOTHING_MADE = (
    "collection_handle is required",
    _NO_COLLECTION,
    "failed to load metadata from",
    "operation not recognized",
)
"""Beginnings of error texts after which DSpace certainly has no item. After all others the item may
be there: the service does not notice when its clean-up fails."""


@dataclass(frozen=True)
class DepositedResult:
    """The service made the item. `output` is that of the submit stage; its handle is None where the
    item waits in a review queue of DSpace."""

    doi: str
    output: dict[str, Any]


@dataclass(frozen=True)
class FailedResult:
    """The service made no item, as far as it knows. `rejected`: it refused the message itself."""

    doi: str
    error: str
    rejected: bool = False
    dspace_response: str | None = None
    at: str | None = None
    traceback: str | None = None

    @property
    def no_collection(self) -> bool:
        """Did the service not find the collection in DSpace? That is no fault of the DOI."""
        return not self.rejected and _NO_COLLECTION in self.error.lower()

    @property
    def certain(self) -> bool:
        """Is it certain that DSpace has no item of this try?"""
        text = self.error.lower()
        return self.rejected or any(part in text for part in _NOTHING_MADE)


@dataclass(frozen=True)
class UnusableResult:
    """A message that says nothing about a deposit of ours; `reason` says why."""

    reason: str


DssResult = DepositedResult | FailedResult | UnusableResult


def read_result(message: Mapping[str, Any], source: str) -> DssResult:
    """The result in an SQS message for this SubmissionSource."""
    attributes = message.get("MessageAttributes")
    package = _attribute(attributes, "PackageID")
    if not package:
        return UnusableResult("the message attribute PackageID is missing or empty")
    sender = _attribute(attributes, "SubmissionSource")
    if sender is not None and sender != source:
        return UnusableResult(
            f"its SubmissionSource is {sender[:100]!r}, not {source!r}: it answers another program"
        )
    try:
        doi = normalise(package)
    except DoiMistake as mistake:
        return UnusableResult(f"its PackageID is no DOI: {mistake}")
    try:
        body = _storable(json.loads(message.get("Body") or ""))
    except (ValueError, RecursionError, TypeError):
        return UnusableResult("its body is not JSON")
    if isinstance(body, str):
        # The service answers with a bare string where it refuses the message itself.
        return FailedResult(doi, _cut(body) or "the service refused the message", rejected=True)
    if not isinstance(body, dict):
        return UnusableResult("its body is neither an object nor a text")
    kind = body.get("ResultType")
    if kind == "success":
        handle, last_modified = _text(body.get("ItemHandle")), _text(body.get("lastModified"))
        return DepositedResult(
            doi,
            {
                "handle": handle,
                "last_modified": last_modified,
                "files": _files(body.get("Bitstreams")),
                "via": "dss",
            },
        )
    if kind == "error":
        return _failed(doi, body)
    if "ResultType" not in body:
        return UnusableResult("it has no ResultType")
    return UnusableResult(f"its ResultType is {str(kind)[:100]!r}; expected success or error")


def _failed(doi: str, body: Mapping[str, Any]) -> FailedResult:
    """An error result: today's form has ErrorInfo and DSpaceResponse, the old one ExceptionMessage;
    the traceback is a list or a text."""
    said = [_text(body.get("ErrorInfo")), _text(body.get("ExceptionMessage"))]
    error = ": ".join(dict.fromkeys(part for part in said if part)) or "the service gives no reason"
    trace = body.get("ExceptionTraceback")
    if isinstance(trace, list):
        trace = "\n".join(str(line).rstrip("\n") for line in trace)
    response = _text(body.get("DSpaceResponse"))
    return FailedResult(
        doi,
        _cut(error),
        dspace_response=None if response is None or response == "N/A" else _cut(response),
        at=_text(body.get("ErrorTimestamp")),
        traceback=trace[-TRACE_LIMIT:] if isinstance(trace, str) and trace else None,
    )


def _files(value: Any) -> list[dict[str, str | None]]:
    """The bitstreams that the service reports. A checksum that comes without the name of its
    algorithm is MD5, if it has that form."""
    found = []
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, dict):
            continue
        said: Any = one.get("BitstreamChecksum")
        named = said if isinstance(said, dict) else {"value": said}
        checksum, algorithm = _text(named.get("value")), _text(named.get("checkSumAlgorithm"))
        if algorithm is None and checksum is not None and _MD5.fullmatch(checksum):
            algorithm = "MD5"
        name, uuid = _text(one.get("BitstreamName")), _text(one.get("BitstreamUUID"))
        found.append({"name": name, "uuid": uuid, "checksum": checksum, "algorithm": algorithm})
    return found


def outcome_of(result: DepositedResult | FailedResult) -> mp.Outcome:
    """The outcome of the submit stage that a result is."""
    if isinstance(result, DepositedResult):
        return mp.Done(result.output)
    known = {"dspace_response": result.dspace_response, "at": result.at}
    details = {name: value for name, value in known.items() if value is not None} or None
    if result.no_collection:
        return mp.NotYet(after=HELD_S, note=no_collection_text(result))
    if result.rejected:
        return mp.Retry(
            f"the submission service refused the message: {result.error}",
            category="DSS_REJECTED",
            details=details,
        )
    return mp.Retry(
        result.error,
        after=None if result.certain else UNCERTAIN_AFTER,
        category="DSS_ERROR",
        details=details,
        traceback=result.traceback,
        unknown=not result.certain,
    )


def no_collection_text(result: FailedResult) -> str:
    return f"the submission service does not find the collection ({result.error}); check [deposits.submit] collection"


def _attribute(attributes: Any, name: str) -> str | None:
    label = attributes.get(name) if isinstance(attributes, Mapping) else None
    return _text(label.get("StringValue")) if isinstance(label, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"


def _storable(value: Any) -> Any:
    """The value with '?' for halves of characters: JSON allows them as escapes, and no ledger can
    store them."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_storable(one) for one in value]
    return (
        {_storable(name): _storable(one) for name, one in value.items()}
        if isinstance(value, dict)
        else value
    )


# The listener -------------------------------------------------------------------------------------
BATCH = 10
PORTION = 100
"""Results whose rows are read with one request."""
WAIT_S = 2
"""Long poll: without it SQS may answer "empty" while messages remain."""
VISIBILITY_S = 120
MOST = 10_000
"""Messages in one turn."""
SET_ASIDE = "set-aside/"
MOST_SET_ASIDE = 500
"""With more than this, messages that cannot be used stay in the queue: someone has to look
first."""
LONGEST_BODY = 50_000
BY = "submission service"
CHECKED = "dss, checked in DSpace"
"""`via` of a deposit whose files were looked up in DSpace, since the result did not name them."""

Became = Literal["deposited", "failed", "noted", "set_aside", "left"]
log = logging.getLogger(__name__)


class ResultsTally(msgspec.Struct):
    """Counts of one turn: each message is received, and one of the others."""

    received: int = 0
    deposited: int = 0
    failed: int = 0
    """Error results. One that no DOI awaits is noted in its history, and counts no try."""
    noted: int = 0
    """Error results of DOIs that are deposited or abandoned: they changed only the history."""
    set_aside: int = 0
    """Messages that are no results of ours; `set_aside(app)` lists them."""
    left: int = 0
    """Messages that could not be handled now; they come again."""


class ResultListener:
    """Reads the results queue and applies what it finds. Any number of them may run at once."""

    def __init__(self, app: DepositsApp, sqs: Any = None, dspace: DSpace | None = None) -> None:
        dss = app.settings.submit.dss
        if dss is None:
            raise mp.UsageError(
                "deposits go to DSpace itself: there is no submission service whose results could be read"
            )
        self._app = app
        self._dss: DssSettings = dss
        self._route = app.settings.route
        self._sqs = open_sqs() if sqs is None else sqs
        self._records = SubmissionRecords(FileStore(app.settings.files))
        self._controls = LedgerControls(app.settings)
        self._controls.open(app)
        self._given_dspace = dspace

    @cached_property
    def _dspace(self) -> DSpace:
        """The server that is asked for an item's files where a result does not name them."""
        guard = LoginHold(self._app.settings, self._controls)
        return self._given_dspace or open_dspace(
            self._app.settings,
            os.environ,
            self._app.settings.submit.search or "",
            now=self._app.time,
            guard=guard,
        )

    def turn(self, most: int = MOST) -> ResultsTally:
        """Apply the results that are there, at most so many."""
        url = queue_url(self._sqs, self._dss.results)
        tally = ResultsTally()
        while tally.received < most:
            messages = self._receive(url, min(PORTION, most - tally.received))
            if not messages:
                break
            results = [read_result(message, self._dss.source) for message in messages]
            answers = self._confirm_successes(results)
            for message, result in zip(messages, results, strict=True):
                answer = (
                    answers.pop(result.doi, None) if isinstance(result, DepositedResult) else None
                )
                became = self._handle(url, message, result, answer)
                tally.received += 1
                setattr(tally, became, getattr(tally, became) + 1)
        if tally.received:
            log.info("results of the submission service", extra=msgspec.to_builtins(tally))
        return tally

    def _receive(self, url: str, wanted: int) -> list[Mapping[str, Any]]:
        """The messages that are there, at most so many."""
        found: list[Mapping[str, Any]] = []
        while len(found) < wanted:
            answer = self._sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=min(BATCH, wanted - len(found)),
                WaitTimeSeconds=0 if found else WAIT_S,
                VisibilityTimeout=VISIBILITY_S,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["SentTimestamp"],
            )
            messages = answer.get("Messages") or ()
            if not messages:
                break
            found += messages
        return found

    def _confirm_successes(self, results: Sequence[DssResult]) -> dict[str, Any]:
        """Report the deposits among these results, in one batch, which reads all rows with one
        request: of each DOI the first, since a second one may name another item. Empty if that
        fails: then each is reported by itself."""
        outcomes: dict[str, mp.Outcome] = {}
        for result in results:
            if isinstance(result, DepositedResult):
                outcomes.setdefault(result.doi, outcome_of(result))
        try:
            return (
                self._app.confirm_all(self._route, SUBMIT, outcomes, by=BY, awaited=True)
                if len(outcomes) > 1
                else {}
            )
        except Exception:
            log.exception(
                "%d results of the submission service could not be applied at once; each is applied by itself",
                len(outcomes),
            )
            return {}

    def _handle(
        self, url: str, message: Mapping[str, Any], result: DssResult, answer: Any
    ) -> Became:
        """One message by itself: an error leaves it in the queue and stops no other. `answer`: the
        row or the refusal, if it was reported already."""
        try:
            became = self._apply(message, result, answer)
            if became != "left":
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        except Exception:
            log.exception(
                "a result of the submission service is left in the queue",
                extra={"message_id": message.get("MessageId")},
            )
            return "left"
        return became

    def _apply(self, message: Mapping[str, Any], result: DssResult, answer: Any) -> Became:
        if isinstance(result, UnusableResult):
            return self._set_aside(message, result.reason)
        if isinstance(result, FailedResult) and self._is_worked_on(result.doi):
            # It may answer an earlier message than the one that is being sent now; when that is
            # known, it comes again.
            return "left"
        if isinstance(result, FailedResult) and not self._answers(result, message):
            log.info(
                "an error result of an earlier message changes nothing",
                extra={"doi": result.doi, "error": result.error},
            )
            return "noted"
        outcome = outcome_of(result)
        if isinstance(result, FailedResult) and result.no_collection:
            self._controls.pause(SUBMIT, NO_COLLECTION_S, no_collection_text(result))
        try:
            if isinstance(answer, mp.ActRefused):
                raise answer
            row = answer or self._app.confirm(
                self._route, result.doi, SUBMIT, outcome=outcome, by=BY, awaited=True
            )
        except mp.ActRefused as refusal:
            if refusal.kind == "confirms-nothing" and isinstance(outcome, mp.Done):
                return self._checked(result.doi, outcome, str(refusal))
            if refusal.kind == "gone":
                return self._set_aside(message, f"there is no such deposit: {refusal}")
            if refusal.kind == "ended":
                return "noted"
            raise
        if isinstance(result, DepositedResult):
            # Only an error is noted as an answer: a deposit without a failed try costs one request
            # to the store.
            self._records.remove(result.doi, answers=row.total_attempts > 0)
            return "deposited"
        return "noted" if row.status is mp.Status.COMPLETED else "failed"

    def _is_worked_on(self, doi: str) -> bool:
        view = self._app.show(self._route, doi)
        return view is not None and view["status"] == "PROCESSING"

    def _answers(self, result: FailedResult, message: Mapping[str, Any]) -> bool:
        """Does an error result answer the last message of its DOI? One that was written before that
        message was sent is of an earlier message, and comes twice. If it does, the record says so:
        the message cannot be read any more."""
        record = self._records.get(result.doi)
        written_at = int(message.get("Attributes", {}).get("SentTimestamp", 0)) / 1000
        if record.sent_at is not None and written_at and written_at < record.sent_at:
            return False
        if record.sent_at is not None and not record.answered:
            now = self._app.time()
            self._records.put_answer(result.doi, record.sent_at, min(written_at or now, now))
        return True

    def _checked(self, doi: str, outcome: mp.Done, why: str) -> Became:
        """A success that names no checksum of our PDF is checked in DSpace itself. It stays in the
        queue while DSpace does not answer."""
        if NO_CHECKSUM not in why:
            return self._mismatch(doi, outcome, why)
        view = self._app.show(self._route, doi)
        sent = msgspec.convert(result_in(view, CONTENT).get("file"), StoredFile)
        handle = outcome.output["handle"]
        item = None if handle is None else self._dspace.item_of(handle)
        files = [] if item is None else self._dspace.files(item.uuid)
        if item is None or not any(same_file(file, sent) for file in files):
            return self._mismatch(doi, outcome, "DSpace does not show the PDF that was sent in it")
        self._app.confirm(
            self._route,
            doi,
            SUBMIT,
            {**deposited(item, files), "via": CHECKED},
            by=BY,
            awaited=True,
        )
        self._records.remove(doi)
        return "deposited"

    def _mismatch(self, doi: str, outcome: mp.Done, why: str) -> Became:
        """DSpace has the item with another file than was sent: people have to look, since another
        try would make a second item."""
        details = {"handle": outcome.output["handle"], "files": outcome.output["files"]}
        rejected = mp.Reject(
            f"DSpace has the item {details['handle'] or 'without a handle'}, but not with the file that was sent ({why}); correct it there, then mark"
            " the DOI as deposited",
            category="CHECKSUM_MISMATCH",
            details=details,
        )
        try:
            self._app.confirm(self._route, doi, SUBMIT, outcome=rejected, by=BY)
        except mp.ActRefused as refusal:
            if refusal.kind != "ended":
                raise
            return "noted"
        return "failed"

    def _set_aside(self, message: Mapping[str, Any], reason: str) -> Became:
        """Keep a message that cannot be used, with the reason. It is deleted from the queue
        afterwards."""
        documents = self._app.documents
        if len(documents.find(SET_ASIDE)) >= MOST_SET_ASIDE:
            log.error(
                "more than %d results are set aside; this one stays in the queue: %s",
                MOST_SET_ASIDE,
                reason,
            )
            return "left"
        labels = {
            name: label.get("StringValue")
            for name, label in (message.get("MessageAttributes") or {}).items()
        }
        content = {
            "reason": reason,
            "attributes": labels,
            "body": str(message.get("Body", ""))[:LONGEST_BODY],
        }
        documents.put(f"{SET_ASIDE}{message['MessageId']}", content)
        log.warning(
            "a message of the results queue is set aside: %s",
            reason,
            extra={"message_id": message["MessageId"]},
        )
        return "set_aside"


def set_aside(app: DepositsApp) -> dict[str, dict[str, Any]]:
    """The messages that were set aside, by message id: reason, attributes and body."""
    return {
        name.removeprefix(SET_ASIDE): document.value
        for name, document in app.documents.find(SET_ASIDE).items()
    }


def drop_set_aside(app: DepositsApp, message: str) -> bool:
    """Remove a message that was set aside. False: there is none with this id."""
    return app.documents.remove(SET_ASIDE + message)
