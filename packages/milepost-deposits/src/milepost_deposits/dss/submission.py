"""Submission through the DSpace Submission Service: a message to its queue; the result message is
the outcome of the stage."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_deposits.controls import CONFIGURATION, LedgerControls, operators_fault
from milepost_deposits.dspace.api import DSpace, open_dspace
from milepost_deposits.dspace.login import LoginHold
from milepost_deposits.dspace.record import SubmissionRecord, SubmissionRecords, next_step
from milepost_deposits.dspace.search import ItemSearch
from milepost_deposits.dspace.submission import (
    Present,
    attempted,
    check_claim,
    deposited,
    hidden,
    judge,
    present_item,
    same_file,
)
from milepost_deposits.files import Deposit, FileStore
from milepost_deposits.metadata_form import in_form
from milepost_deposits.settings import DepositsSettings, DssSettings, check_settings


def submit_message(deposit: Deposit, dss: DssSettings, collection: str) -> dict[str, Any]:
    """The SQS message for a deposit, to the letter, as arguments of boto3. It has no `Operation`:
    the service then creates an item."""
    labels = {
        "PackageID": deposit.doi,
        "SubmissionSource": dss.source,
        "OutputQueue": queue_name(dss.results),
    }
    body = {
        "SubmissionSystem": dss.system,
        "CollectionHandle": collection,
        "MetadataLocation": deposit.metadata.place,
        "Files": [
            {
                "BitstreamName": deposit.content.bitstream,
                "FileLocation": deposit.content.place,
                "BitstreamDescription": None,
            },
        ],
    }
    attributes = {
        name: {"DataType": "String", "StringValue": value} for name, value in labels.items()
    }
    return {"MessageBody": json.dumps(body), "MessageAttributes": attributes}


def queue_name(queue: str) -> str:
    """The name of a queue that is given by name or by URL: the service finds its output queues by
    name."""
    return queue.rstrip("/").rpartition("/")[2]


def queue_url(sqs: Any, queue: str) -> str:
    if "://" in queue:
        return queue
    answer: str = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    return answer


class DssSubmission:
    """Deposits through the service. A DOI is handed over until its result comes.

    DSpace is searched before each message. After a silence, a lost process or an unknown send, a
    message follows only when DSpace has not had the item twice, some time apart, and the service
    can no longer read the last message.
    """

    def __init__(
        self,
        settings: DepositsSettings,
        files: FileStore,
        controls: LedgerControls | None = None,
        *,
        sqs: Any = None,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        assert settings.submit.dss is not None
        self._settings, self._files = settings, files
        self._controls = controls or LedgerControls(settings)
        self._dss: DssSettings = settings.submit.dss
        self._environment = os.environ if environment is None else environment
        self._now = now
        self._given_sqs = sqs
        self._records = SubmissionRecords(files)
        self._apart_s = mpa.span_ms(self._dss.apart, "[deposits.submit] dss.apart") / 1000

    @cached_property
    def dspace(self) -> DSpace:
        """The server that is searched."""
        guard = LoginHold(self._settings, self._controls)
        return open_dspace(
            self._settings,
            self._environment,
            self._settings.submit.search or "",
            now=self._now,
            guard=guard,
        )

    @cached_property
    def _search(self) -> ItemSearch:
        return ItemSearch(
            self.dspace, self._settings, self._controls, apart_s=self._apart_s, now=self._now
        )

    @cached_property
    def sqs(self) -> Any:
        return open_sqs() if self._given_sqs is None else self._given_sqs

    @cached_property
    def _queue(self) -> str:
        return queue_url(self.sqs, self._dss.queue)

    @cached_property
    def _retention_s(self) -> float:
        """Message retention of the service's queue."""
        answer = self.sqs.get_queue_attributes(
            QueueUrl=self._queue, AttributeNames=["MessageRetentionPeriod"]
        )
        return float(answer["Attributes"]["MessageRetentionPeriod"])

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting, a secret or boto3 is missing."""
        check_settings(self._settings, self._environment)
        _ = self.sqs

    def present(self, doi: str) -> Present | None:
        """The item that DSpace has of a DOI, before anything is fetched."""
        return present_item(self.dspace, doi)

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        """Send one message, unless DSpace has the item; the deposit is then handed over."""
        return attempted(lambda: self._found(deposit) or self._send(deposit, item))

    def verify(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | None:
        """Done with the item that DSpace has; None when it is certain that none was made and none
        will be."""
        found = self._found(deposit)
        if found is not None:
            self._records.remove(deposit.doi)
            return found
        try:
            readable_s = self._retention_s
        except Exception as error:
            return self._queue_failed(error, unknown=True)
        step = next_step(
            self._records.get(deposit.doi),
            self._now(),
            apart_s=self._apart_s,
            readable_s=readable_s,
        )
        if step.step == "again":
            return None
        # It is the record of the last submission: another worker may have made one since.
        check_claim(self._controls, item)
        self._records.put(deposit.doi, step.record)
        return mp.NotYet(after=step.after_s, unknown=True, note=step.why)

    def _found(self, deposit: Deposit) -> mp.Outcome | None:
        items = self._search.items(deposit.doi)
        outcome = judge(self.dspace, deposit, items)
        if outcome is not None or not items:
            return outcome
        files = self.dspace.files(items[0].uuid)
        if any(same_file(file, deposit.content) for file in files):
            return mp.Done(
                {**deposited(items[0], files), "found": True, "same_file": True, "others": []}
            )
        return hidden(items[0])

    def _check_form(self, deposit: Deposit) -> None:
        """Write the metadata file again if it has another form than the settings ask for: they may
        have been corrected since."""
        content = self._files.read_json(deposit.metadata)
        wanted = in_form(content, self._dss.form)
        if wanted != content:
            self._files.write(deposit.doi, ".json", [msgspec.json.encode(wanted)])

    def _send(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        self._check_form(deposit)
        message = submit_message(deposit, self._dss, self._settings.submit.collection)
        sent_at = self._now()
        try:
            url, retention_s = self._queue, self._retention_s
        except Exception as error:
            return self._queue_failed(error, unknown=False)
        check_claim(self._controls, item)
        # Before the message: a process that dies after sending it leaves the record behind.
        self._records.put(deposit.doi, SubmissionRecord(sent_at))
        check_claim(self._controls, item)
        try:
            answer = self.sqs.send_message(QueueUrl=url, **message)
        except Exception as error:
            return self._queue_failed(error, unknown=not _refused(error))
        within = mpa.span_ms(self._dss.answer_within, "[deposits.submit] dss.answer_within") / 1000
        if item.attempt >= self._settings.attempts.submit:
            # After the last try people deposit by hand: by then the service must not be able to
            # read the message any more.
            within = max(within, retention_s + self._apart_s)
        return mp.HandedOver(
            within=within,
            note=f"sent to the submission service as message {answer.get('MessageId', '')}",
        )

    def _queue_failed(self, error: Exception, *, unknown: bool) -> mp.Retry:
        """The outcome of a request to the queue that failed. `unknown`: SQS may have taken a
        message of this DOI."""
        fault = operators_fault(error)
        category = "DSS_QUEUE" if fault is None else CONFIGURATION
        return mp.Retry(
            f"the queue {self._dss.queue} cannot be used: {fault or error}",
            category=category,
            unknown=unknown,
        )


def _refused(error: Exception) -> bool:
    """Did SQS answer that it has not taken the message? Any other error leaves that open."""
    from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError

    if (
        isinstance(error, (EndpointConnectionError, ParamValidationError))
        or operators_fault(error) is not None
    ):
        return True
    return (
        isinstance(error, ClientError)
        and error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) < 500
    )


def open_sqs() -> Any:
    """boto3's client of SQS, with deadlines; region, endpoint and credentials are found as
    everywhere with boto3."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError:
        raise mp.ConfigMistake(
            "the submission service needs the package milepost-aws, which is not installed: pip install /path/to/milepost/packages/milepost-aws"
        ) from None
    # A message that is sent twice can make two items: boto3 must not send again by itself.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=30
    )
    try:
        return boto3.client("sqs", config=config)
    except NoRegionError:
        raise mp.ConfigMistake(
            "AWS_DEFAULT_REGION is not set; expected the region of the service's queues, such as us-east-1"
        ) from None
