"""What the AWS ledger stores and sends: tables, attributes of rows, history lines, control
documents, SQS messages. No server is asked.

(What is sent to SNS is in `events/topic.json`.)"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden.history import History
from tests.golden.internals import AwsGolden, items_of, plain
from tests.golden.masks import masked
from tests.golden.recording import Recorder

import milepost as mp


@pytest.fixture
def aws(shared_copy: Path) -> AwsGolden:
    """A deployment that only writes down what is sent; the world is fixed meanwhile."""
    return AwsGolden()


def test_tables_and_queues_are_made_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/tables.json", aws.tables())


def test_rows_are_written_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    """Each change of one item's life: the put of the new row, then conditional updates."""
    golden.json("aws/writes.json", masked(aws.writes()))


def test_rows_in_every_status_have_the_recorded_attributes(
    aws: AwsGolden, history: History, golden: Recorder
) -> None:
    with history.opened() as ledger:
        keys = [
            "embargo",
            "in-hand",
            "dropped",
            "waiting",
            "tried",
            "wrapped",
            "busy",
            "torn",
            "gone",
            "late",
            "rerun",
            "replaced",
        ]
        items = items_of(ledger, "parcels", keys)
    assert {item.status for item in items} == set(mp.Status)
    golden.json("aws/rows.json", masked(aws.rows(items)))


def test_a_packed_line_that_was_stored_can_be_read(aws: AwsGolden, golden: Recorder) -> None:
    """How a line is packed may differ between versions of zlib; what was packed before must be
    readable for good."""
    name = "aws/packed-line.json"
    if golden.update:
        golden.json(name, aws.trail())
    stored = golden.read(name)
    assert aws.unpacked(stored["packed"]) == ("07" * 32, stored["body"])
    assert aws.trail()["body"] == stored["body"]


def test_large_values_are_kept_apart_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/large-value.json", aws.large())


def test_history_rows_are_written_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/history.json", masked(aws.history()))


def test_seals_are_written_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/seals.json", aws.seals())


def test_counters_are_written_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/counters.json", masked(aws.counters()))


def test_control_documents_are_written_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    golden.json("aws/documents.json", masked(aws.documents()))


def test_messages_are_sent_as_recorded(aws: AwsGolden, golden: Recorder) -> None:
    """Bodies and attributes of SQS messages."""
    golden.json("aws/messages.json", plain(aws.messages()))
