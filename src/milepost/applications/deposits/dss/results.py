"""Result messages of the DSpace Submission Service: every form that it writes or has written, read by pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import milepost as mp
from milepost.applications.deposits.doi import DoiMistake, normalise

UNCERTAIN_AFTER = "15m"
"""Delay before the next try where the service may have left an item behind: DSpace's index must know it by then."""
TEXT_LIMIT = 1_500
TRACE_LIMIT = 4_000
_MD5 = re.compile(r"[0-9a-fA-F]{32}")

_NOTHING_MADE = (
    "collection_handle is required",
    "did not find any dspace objects",
    "failed to load metadata from",
    "operation not recognized",
)
"""Beginnings of error texts after which DSpace certainly has no item. After all others the item may be there: the service does not
notice when its clean-up fails."""


@dataclass(frozen=True)
class ResultFile:
    """A bitstream as the service reports it."""

    name: str | None
    uuid: str | None
    checksum: str | None
    algorithm: str | None


@dataclass(frozen=True)
class DepositedResult:
    """The service made the item. `handle` is None where the item waits in a review queue of DSpace."""

    doi: str
    handle: str | None
    last_modified: str | None
    files: tuple[ResultFile, ...]


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
        return UnusableResult(f"its SubmissionSource is {sender[:100]!r}, not {source!r}: it answers another program")
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
        return DepositedResult(doi, _text(body.get("ItemHandle")), _text(body.get("lastModified")), _files(body.get("Bitstreams")))
    if kind == "error":
        return _failed(doi, body)
    if "ResultType" not in body:
        return UnusableResult("it has no ResultType")
    return UnusableResult(f"its ResultType is {str(kind)[:100]!r}; expected success or error")


def _failed(doi: str, body: Mapping[str, Any]) -> FailedResult:
    """An error result: today's form has ErrorInfo and DSpaceResponse, the old one ExceptionMessage; the traceback is a list or a text."""
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


def _files(value: Any) -> tuple[ResultFile, ...]:
    found = []
    for one in value if isinstance(value, list) else ():
        if not isinstance(one, dict):
            continue
        checksum: Any = one.get("BitstreamChecksum")
        algorithm = None
        if isinstance(checksum, dict):
            algorithm, checksum = _text(checksum.get("checkSumAlgorithm")), checksum.get("value")
        found.append(ResultFile(_text(one.get("BitstreamName")), _text(one.get("BitstreamUUID")), _text(checksum), algorithm))
    return tuple(found)


def outcome_of(result: DepositedResult | FailedResult) -> mp.Outcome:
    """The outcome of the submit stage that a result is."""
    if isinstance(result, DepositedResult):
        return mp.Done(deposited(result))
    known = {"dspace_response": result.dspace_response, "at": result.at}
    details = {name: value for name, value in known.items() if value is not None} or None
    if result.rejected:
        return mp.Retry(f"the submission service refused the message: {result.error}", category="DSS_REJECTED", details=details)
    return mp.Retry(
        result.error,
        after=None if result.certain else UNCERTAIN_AFTER,
        category="DSS_ERROR",
        details=details,
        traceback=result.traceback,
        unknown=not result.certain,
    )


def deposited(result: DepositedResult) -> dict[str, Any]:
    """The output of the submit stage for a success."""
    files = [
        {"name": file.name, "uuid": file.uuid, "checksum": file.checksum, "algorithm": file.algorithm or algorithm_of(file.checksum)}
        for file in result.files
    ]
    return {"handle": result.handle, "last_modified": result.last_modified, "files": files, "via": "dss"}


def algorithm_of(checksum: str | None) -> str | None:
    """The algorithm of a checksum that comes without a name: MD5, if it has that form."""
    return "MD5" if checksum is not None and _MD5.fullmatch(checksum) else None


def _attribute(attributes: Any, name: str) -> str | None:
    label = attributes.get(name) if isinstance(attributes, Mapping) else None
    return _text(label.get("StringValue")) if isinstance(label, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}…"


def _storable(value: Any) -> Any:
    """The value with '?' for halves of characters: JSON allows them as escapes, and no ledger can store them."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_storable(one) for one in value]
    return {_storable(name): _storable(one) for name, one in value.items()} if isinstance(value, dict) else value
