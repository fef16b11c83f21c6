"""Listener for results of the DSpace Submission Service: each result becomes the outcome of its DOI's submit stage.

A message is deleted last, after the ledger has its content. A result that comes twice, or late, changes only the history.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

import milepost as mp
from milepost.applications.deposits.dspace.record import SubmissionRecords
from milepost.applications.deposits.dss.messages import queue_url
from milepost.applications.deposits.dss.results import DepositedResult, DssResult, FailedResult, UnusableResult, outcome_of, read_result
from milepost.applications.deposits.dss.submission import open_sqs
from milepost.applications.deposits.files import FileStore
from milepost.applications.deposits.settings import DepositsApp, DssSettings
from milepost.applications.deposits.stages import SUBMIT

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
"""With more than this, messages that cannot be used stay in the queue: someone has to look first."""
LONGEST_BODY = 50_000
BY = "submission service"

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

    def __init__(self, app: DepositsApp, sqs: Any = None) -> None:
        dss = app.settings.submit.dss
        if dss is None:
            raise mp.UsageError("deposits go to DSpace itself: there is no submission service whose results could be read")
        self._app = app
        self._dss: DssSettings = dss
        self._route = app.settings.route
        self._sqs = open_sqs() if sqs is None else sqs
        self._records = SubmissionRecords(FileStore(app.settings.files))

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
                answer = answers.pop(result.doi, None) if isinstance(result, DepositedResult) else None
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
        """Report the deposits among these results, in one batch, which reads all rows with one request: of each DOI the first, since a second
        one may name another item. Empty if that fails: then each is reported by itself."""
        outcomes: dict[str, mp.Outcome] = {}
        for result in results:
            if isinstance(result, DepositedResult):
                outcomes.setdefault(result.doi, outcome_of(result))
        try:
            return self._app.confirm_all(self._route, SUBMIT, outcomes, by=BY, awaited=True) if len(outcomes) > 1 else {}
        except Exception:
            log.exception("%d results of the submission service could not be applied at once; each is applied by itself", len(outcomes))
            return {}

    def _handle(self, url: str, message: Mapping[str, Any], result: DssResult, answer: Any) -> Became:
        """One message by itself: an error leaves it in the queue and stops no other. `answer`: the row or the
        refusal, if it was reported already."""
        try:
            became = self._apply(message, result, answer)
            if became != "left":
                self._sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        except Exception:
            log.exception("a result of the submission service is left in the queue", extra={"message_id": message.get("MessageId")})
            return "left"
        return became

    def _apply(self, message: Mapping[str, Any], result: DssResult, answer: Any) -> Became:
        if isinstance(result, UnusableResult):
            return self._set_aside(message, result.reason)
        if isinstance(result, FailedResult) and self._is_worked_on(result.doi):
            # It may answer an earlier message than the one that is being sent now; when that is known, it comes again.
            return "left"
        if isinstance(result, FailedResult) and not self._answers(result, message):
            log.info("an error result of an earlier message changes nothing", extra={"doi": result.doi, "error": result.error})
            return "noted"
        outcome = outcome_of(result)
        try:
            if isinstance(answer, mp.ActRefused):
                raise answer
            row = answer or self._app.confirm(self._route, result.doi, SUBMIT, outcome=outcome, by=BY, awaited=True)
        except mp.ActRefused as refusal:
            if refusal.kind == "confirms-nothing" and isinstance(outcome, mp.Done):
                return self._mismatch(result.doi, outcome, str(refusal))
            if refusal.kind == "gone":
                return self._set_aside(message, f"there is no such deposit: {refusal}")
            if refusal.kind == "ended":
                return "noted"
            raise
        if isinstance(result, DepositedResult):
            # Only an error is noted as an answer: a deposit without a failed try costs one request to the store.
            self._records.remove(result.doi, answers=row.total_attempts > 0)
            return "deposited"
        return "noted" if row.status is mp.Status.COMPLETED else "failed"

    def _is_worked_on(self, doi: str) -> bool:
        view = self._app.show(self._route, doi)
        return view is not None and view["status"] == "PROCESSING"

    def _answers(self, result: FailedResult, message: Mapping[str, Any]) -> bool:
        """Does an error result answer the last message of its DOI? One that was written before that message was sent is of an earlier
        message, and comes twice. If it does, the record says so: the message cannot be read any more."""
        record = self._records.get(result.doi)
        written_at = int(message.get("Attributes", {}).get("SentTimestamp", 0)) / 1000
        if record.sent_at is not None and written_at and written_at < record.sent_at:
            return False
        if record.sent_at is not None and not record.answered:
            self._records.put_answer(result.doi, record.sent_at)
        return True

    def _mismatch(self, doi: str, outcome: mp.Done, why: str) -> Became:
        """DSpace has the item with another file than was sent: people have to look, since another try would make a second item."""
        details = {"handle": outcome.output["handle"], "files": outcome.output["files"]}
        rejected = mp.Reject(
            f"DSpace has the item {details['handle']}, but with another file than was sent ({why}); correct it there, then mark the DOI as"
            " deposited",
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
        """Keep a message that cannot be used, with the reason. It is deleted from the queue afterwards."""
        documents = self._app.documents
        if len(documents.find(SET_ASIDE)) >= MOST_SET_ASIDE:
            log.error("more than %d results are set aside; this one stays in the queue: %s", MOST_SET_ASIDE, reason)
            return "left"
        labels = {name: label.get("StringValue") for name, label in (message.get("MessageAttributes") or {}).items()}
        content = {"reason": reason, "attributes": labels, "body": str(message.get("Body", ""))[:LONGEST_BODY]}
        documents.put(f"{SET_ASIDE}{message['MessageId']}", content)
        log.warning("a message of the results queue is set aside: %s", reason, extra={"message_id": message["MessageId"]})
        return "set_aside"


def set_aside(app: DepositsApp) -> dict[str, dict[str, Any]]:
    """The messages that were set aside, by message id: reason, attributes and body."""
    return {name.removeprefix(SET_ASIDE): document.value for name, document in app.documents.find(SET_ASIDE).items()}


def drop_set_aside(app: DepositsApp, message: str) -> bool:
    """Remove a message that was set aside. False: there is none with this id."""
    return app.documents.remove(SET_ASIDE + message)
