"""Submission record: when a deposit was last sent, and since when a search has not found it. Kept
beside the deposit's files.

A submission may have been carried out although no answer came. The record is written before
anything is sent, so that a process that dies in between leaves it behind. `next_step` is the rule
for what happens then.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from milepost_deposits.files import FileStore

SUFFIX = ".submission.json"
ANSWER = ".answer.json"
LOOK_EVERY_S = 6 * 3600.0
"""Longest pause between two searches while a sent message can still be read."""


class SubmissionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times in seconds since 1970. `absent_since`: the first search after the last submission that
    did not find the item. `answered`: the partner has answered the last submission, at
    `answered_at`, with an error after which the item may be there nevertheless."""

    sent_at: float | None = None
    absent_since: float | None = None
    answered: bool = False
    answered_at: float | None = None


class SubmissionAnswer(msgspec.Struct, frozen=True):
    """When the answered submission was sent, and when it was answered; None: that was not noted."""

    sent_at: float
    at: float | None = None


def _read_answer(content: bytes) -> SubmissionAnswer:
    """The note of an answer. The first ones had the time of the submission alone."""
    answer = msgspec.json.decode(content, type=SubmissionAnswer | float)
    return answer if isinstance(answer, SubmissionAnswer) else SubmissionAnswer(answer)


class NextStep(msgspec.Struct, frozen=True):
    """`again`: submit once more. `wait`: search again after so many seconds; `why` says what it
    waits for."""

    step: Literal["again", "wait"]
    record: SubmissionRecord
    after_s: float = 0.0
    why: str = ""


def next_step(
    record: SubmissionRecord, now: float, *, apart_s: float, readable_s: float | None = None
) -> NextStep:
    """The next step after a search that did not find the item.

    One search proves nothing: the index is behind, and the partner may be slow. It must be absent
    twice, `apart_s` apart, or once, so long after the partner's answer: it makes nothing after
    that. `readable_s`: the partner reads submissions from a queue that keeps them for so long;
    until then it may still carry out the last one, and a second message could make a second item.
    """
    if record.answered_at is not None and record.answered_at + apart_s <= now:
        return NextStep("again", record)
    if record.absent_since is None or record.absent_since > now:
        return NextStep(
            "wait",
            msgspec.structs.replace(record, absent_since=now),
            apart_s,
            "not in DSpace; a second search follows",
        )
    left = record.absent_since + apart_s - now
    if left > 0:
        return NextStep("wait", record, left, "not in DSpace; a second search follows")
    if readable_s is not None and not record.answered:
        # Where it is not known when the message was sent, it was before the first search.
        sent_at = record.absent_since if record.sent_at is None else record.sent_at
        left = sent_at + readable_s + apart_s - now
        if left > 0:
            why = "not in DSpace, but the submission service can still read the message; it is sent again when its queue has dropped it"
            return NextStep("wait", record, min(left, LOOK_EVERY_S), why)
    return NextStep("again", record)


class SubmissionRecords:
    """The records of deposits in a file store."""

    def __init__(self, files: FileStore) -> None:
        self._files = files

    def get(self, doi: str) -> SubmissionRecord:
        """The record of a DOI; an empty one if there is none."""
        content = self._files.find(doi, SUFFIX)
        record = (
            SubmissionRecord()
            if content is None
            else msgspec.json.decode(content, type=SubmissionRecord)
        )
        if record.sent_at is None or record.answered:
            return record
        answer = self._files.find(doi, ANSWER)
        answered = None if answer is None else _read_answer(answer)
        if answered is None or answered.sent_at != record.sent_at:
            return record
        # Searches before the answer prove nothing: the partner may have made the item since.
        return SubmissionRecord(record.sent_at, answered=True, answered_at=answered.at)

    def put(self, doi: str, record: SubmissionRecord) -> None:
        """Write the record of a DOI. It is durable when this returns."""
        self._files.write(doi, SUFFIX, [msgspec.json.encode(record)])

    def put_answer(self, doi: str, sent_at: float, at: float) -> None:
        """Note that the partner has answered the submission of `sent_at`, and when. The note has a
        file of its own, so that it never replaces the record of a submission that follows at the
        same moment, and says nothing about that one."""
        self._files.write(doi, ANSWER, [msgspec.json.encode(SubmissionAnswer(sent_at, at))])

    def remove(self, doi: str, *, answers: bool = True) -> None:
        """Remove the record of a DOI whose submission has ended. `answers`: an answer may have been
        noted, too."""
        for suffix in (SUFFIX, ANSWER) if answers else (SUFFIX,):
            self._files.remove_of(doi, suffix)
