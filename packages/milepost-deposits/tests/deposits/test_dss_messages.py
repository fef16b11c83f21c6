"""Messages to the DSpace Submission Service, and its result messages in every form, to the
letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

import milepost as mp
from milepost_deposits.dss.results import (
    DepositedResult,
    FailedResult,
    UnusableResult,
    outcome_of,
    read_result,
)
from milepost_deposits.dss.submission import queue_name, submit_message
from milepost_deposits.files import Deposit, StoredFile, accepts_deposit
from milepost_deposits.settings import DssSettings

DOI = "10.1002/abcd.20417"
MD5 = "9e107d9d372bb6826bd81d3542a419d6"
DSS = DssSettings(
    queue="dss-input", results="dss-wiley-output-stage", system="DSpace@MIT", source="wiley"
)


def stored(suffix: str) -> StoredFile:
    return StoredFile(
        f"n{suffix}",
        f"s3://wiley-stage/10.1002-abcd.20417-1f{suffix}",
        f"10.1002-abcd.20417{suffix}",
        9,
        MD5,
        "00",
    )


def message(body: Any, **attributes: str) -> dict[str, Any]:
    labels = {"PackageID": DOI, "SubmissionSource": "wiley"} | attributes
    said = {
        name: {"DataType": "String", "StringValue": value}
        for name, value in labels.items()
        if value
    }
    return {"MessageAttributes": said, "Body": body if isinstance(body, str) else json.dumps(body)}


def test_the_message_is_the_one_that_the_service_reads() -> None:
    sent = submit_message(Deposit(DOI, "T", stored(".json"), stored(".pdf")), DSS, "1721.1/400001")
    assert sent["MessageAttributes"] == {
        "PackageID": {"DataType": "String", "StringValue": DOI},
        "SubmissionSource": {"DataType": "String", "StringValue": "wiley"},
        "OutputQueue": {"DataType": "String", "StringValue": "dss-wiley-output-stage"},
    }
    assert sent["MessageBody"] == (
        '{"SubmissionSystem": "DSpace@MIT", "CollectionHandle": "1721.1/400001", '
        '"MetadataLocation": "s3://wiley-stage/10.1002-abcd.20417-1f.json", '
        '"Files": [{"BitstreamName": "10.1002-abcd.20417.pdf", "FileLocation": "s3://wiley-stage/10.1002-abcd.20417-1f.pdf", '
        '"BitstreamDescription": null}]}'
    )


def test_the_output_queue_is_named_not_addressed() -> None:
    assert queue_name("https://sqs.us-east-1.amazonaws.com/123456789012/dss-out") == "dss-out"
    assert queue_name("dss-out") == "dss-out"


SUCCESS = {
    "ResultType": "success",
    "ItemHandle": "1721.1/400778",
    "lastModified": "2026-03-02T10:11:12.000+00:00",
    "Bitstreams": [
        {
            "BitstreamName": "a.pdf",
            "BitstreamUUID": "0b1d",
            "BitstreamChecksum": {"value": MD5, "checkSumAlgorithm": "MD5"},
        },
    ],
}
ERROR = {
    "ResultType": "error",
    "ErrorTimestamp": "2026-03-02 10:11:12",
    "ErrorInfo": "Error occurred while creating item from file 's3://wiley-stage/x.json'",
    "DSpaceResponse": "N/A",
    "ExceptionTraceback": ["Traceback (most recent call last):", "..."],
}

FILE = {"name": "a.pdf", "uuid": "0b1d", "checksum": MD5, "algorithm": "MD5"}


def test_a_success() -> None:
    output = {
        "handle": "1721.1/400778",
        "last_modified": "2026-03-02T10:11:12.000+00:00",
        "files": [FILE],
        "via": "dss",
    }
    assert read_result(message(SUCCESS), "wiley") == DepositedResult(DOI, output)


def test_a_success_with_a_bare_checksum_an_old_time_and_no_handle() -> None:
    files = [{"BitstreamName": "a.pdf", "BitstreamUUID": "0b1d", "BitstreamChecksum": MD5}]
    result = read_result(
        message(SUCCESS | {"ItemHandle": None, "lastModified": None, "Bitstreams": files}), "wiley"
    )
    assert result == DepositedResult(
        DOI, {"handle": None, "last_modified": None, "files": [FILE], "via": "dss"}
    )
    done = outcome_of(result)
    assert isinstance(done, mp.Done)
    assert done.output["files"][0]["algorithm"] == "MD5"
    assert accepts_deposit(done.output, None)


@pytest.mark.parametrize("files", [None, "none", [1, None], [{}]])
def test_a_success_whose_files_are_odd_is_a_success(files: Any) -> None:
    result = read_result(message(SUCCESS | {"Bitstreams": files}), "wiley")
    assert isinstance(result, DepositedResult)
    assert isinstance(outcome_of(result), mp.Done)


def test_an_error_in_todays_form() -> None:
    result = read_result(message(ERROR | {"DSpaceResponse": "401: log in"}), "wiley")
    assert isinstance(result, FailedResult)
    assert (result.error, result.dspace_response, result.at) == (
        ERROR["ErrorInfo"],
        "401: log in",
        "2026-03-02 10:11:12",
    )
    assert result.traceback == "Traceback (most recent call last):\n..."
    outcome = outcome_of(result)
    assert isinstance(outcome, mp.Retry)
    assert (outcome.category, outcome.after, outcome.unknown) == ("DSS_ERROR", "15m", True)


def test_an_error_in_the_old_form() -> None:
    old = {
        "ResultType": "error",
        "ErrorTimestamp": "Thu Sep 09 17:56:39 UTC 2021",
        "ErrorInfo": "Stuff broke",
        "ExceptionMessage": "Yes, it really did",
        "ExceptionTraceback": "Full unformatted stack trace of the Exception",
    }
    result = read_result(message(old), "wiley")
    assert isinstance(result, FailedResult)
    assert result.error == "Stuff broke: Yes, it really did"
    assert result.traceback == "Full unformatted stack trace of the Exception"
    assert result.dspace_response is None


@pytest.mark.parametrize(
    ("info", "certain"),
    [
        ("collection_handle is required for create", True),
        ("Did not find any DSpace objects for '1721.1/1'", True),
        ("Failed to load metadata from 's3://x'", True),
        ("Error occurred while creating item from file 's3://x'", False),
        ("Error occurred while creating bundle for item 'u'", False),
        ("Error occurred while creating bitstream from file 'f'", False),
        ("An error that nobody has seen", False),
    ],
)
def test_after_which_errors_an_item_may_be_there(info: str, certain: bool) -> None:
    result = read_result(message(ERROR | {"ErrorInfo": info}), "wiley")
    assert isinstance(result, FailedResult)
    assert result.certain is certain


@pytest.mark.parametrize(
    "text",
    ["'CollectionHandle' is a required property", "Unable to parse submission message body: x", ""],
)
def test_a_bare_string_is_a_rejected_submission(text: str) -> None:
    result = read_result(message(json.dumps(text)), "wiley")
    assert isinstance(result, FailedResult)
    assert (result.rejected, result.certain) == (True, True)
    outcome = outcome_of(result)
    assert isinstance(outcome, mp.Retry)
    assert outcome.category == "DSS_REJECTED"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (message(SUCCESS | {"ResultType": "maybe"}), "ResultType is 'maybe'"),
        (message({"ItemHandle": "1/2"}), "no ResultType"),
        (message({}), "no ResultType"),
        (message({"ResultType": None}), "ResultType is 'None'"),
        (message([]), "neither an object nor a text"),
        (message("{"), "not JSON"),
        (message(SUCCESS, PackageID=""), "PackageID is missing"),
        (message(SUCCESS, PackageID="thesis-1"), "PackageID is no DOI"),
        (message(SUCCESS, SubmissionSource="etd"), "answers another program"),
        ({"MessageAttributes": {"PackageID": {}}, "Body": "{}"}, "PackageID is missing"),
        ({"Body": None}, "PackageID is missing"),
        ({}, "PackageID is missing"),
    ],
)
def test_what_is_no_result_of_ours_is_said_with_the_reason(bad: dict[str, Any], why: str) -> None:
    result = read_result(bad, "wiley")
    assert isinstance(result, UnusableResult)
    assert why in result.reason


def test_a_package_id_in_another_case_is_the_same_doi() -> None:
    result = read_result(message(SUCCESS, PackageID=DOI.upper()), "wiley")
    assert isinstance(result, DepositedResult)
    assert result.doi == DOI


def test_a_checksum_is_compared_with_the_pdf_that_was_sent() -> None:
    value = {
        "handle": "1/2",
        "files": [{"name": "a.pdf", "checksum": MD5.upper(), "algorithm": "MD5"}],
    }
    assert accepts_deposit(value, {"file": {"bitstream": "a.pdf", "md5": MD5}})
    with pytest.raises(ValueError, match="checksum"):
        accepts_deposit(value, {"file": {"bitstream": "a.pdf", "md5": "0" * 32}})
    assert accepts_deposit(value, {"file": {"bitstream": "b.pdf", "md5": "0" * 32}}), "another file"
    with pytest.raises(ValueError, match="handle"):
        accepts_deposit("yes", None)
    with pytest.raises(ValueError, match="give the handle"):
        accepts_deposit({"handle": 12}, None)


def test_half_of_a_character_in_a_result_can_be_stored() -> None:
    labels = {"PackageID": {"StringValue": "10.1/x"}, "SubmissionSource": {"StringValue": "wiley"}}
    for body in (
        '"half \\ud800"',
        '{"ResultType": "error", "ErrorInfo": "half \\ud800", "ExceptionTraceback": ["\\udfff"]}',
    ):
        result = read_result({"MessageAttributes": labels, "Body": body}, "wiley")
        assert isinstance(result, FailedResult)
        assert (result.error + (result.traceback or "")).encode()
