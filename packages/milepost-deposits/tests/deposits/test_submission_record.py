"""The rule for a submission whose result is unknown: two searches apart, and no second message
while the first can be read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from milepost_deposits.dspace.record import (
    ANSWER,
    SUFFIX,
    SubmissionRecord,
    SubmissionRecords,
    next_step,
)
from milepost_deposits.files import FileStore

APART, READABLE = 900.0, 4 * 86_400.0


def test_the_first_search_that_finds_nothing_is_noted() -> None:
    step = next_step(SubmissionRecord(sent_at=100.0), 200.0, apart_s=APART)
    assert (step.step, step.record, step.after_s) == ("wait", SubmissionRecord(100.0, 200.0), APART)


def test_it_is_sent_again_after_a_second_search() -> None:
    record = SubmissionRecord(100.0, 200.0)
    early = next_step(record, 200.0 + APART - 1, apart_s=APART)
    assert (early.step, early.after_s) == ("wait", 1.0)
    assert next_step(record, 200.0 + APART, apart_s=APART).step == "again"


def test_a_message_that_can_still_be_read_is_waited_for() -> None:
    record = SubmissionRecord(100.0, 200.0)
    waits = next_step(record, 100.0 + READABLE, apart_s=APART, readable_s=READABLE)
    assert (waits.step, waits.after_s) == ("wait", APART)
    assert "can still read" in waits.why
    assert (
        next_step(record, 100.0 + READABLE + APART, apart_s=APART, readable_s=READABLE).step
        == "again"
    )


def test_without_a_time_of_sending_the_first_search_counts() -> None:
    record = SubmissionRecord(None, 200.0)
    assert (
        next_step(record, 199.0 + READABLE + APART, apart_s=APART, readable_s=READABLE).step
        == "wait"
    )
    assert (
        next_step(record, 200.0 + READABLE + APART, apart_s=APART, readable_s=READABLE).step
        == "again"
    )


def test_an_answered_message_is_not_waited_for() -> None:
    record = SubmissionRecord(100.0, answered=True)
    record = next_step(record, 200.0, apart_s=APART, readable_s=READABLE).record
    assert record == SubmissionRecord(100.0, 200.0, answered=True)
    assert next_step(record, 200.0 + APART, apart_s=APART, readable_s=READABLE).step == "again"


def test_a_clock_that_was_set_back_begins_anew() -> None:
    assert (
        next_step(SubmissionRecord(100.0, 900.0), 500.0, apart_s=APART).record.absent_since == 500.0
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_times_nothing_is_sent_too_early(seed: int) -> None:
    """Looks at random times, from a random send: "again" comes only after two looks apart and after
    the retention; and it does come."""
    dice = random.Random(seed)
    sent = dice.uniform(0, 1000)
    readable = dice.choice([None, dice.uniform(60, 1e6)])
    record, now, looks = SubmissionRecord(dice.choice([sent, None])), sent, []
    for _ in range(10_000):
        now += dice.choice([0.0, dice.uniform(0, 2000), dice.uniform(0, 100_000)])
        looks.append(now)
        step = next_step(record, now, apart_s=APART, readable_s=readable)
        if step.step == "again":
            assert now - looks[0] >= APART
            assert readable is None or now >= sent + readable
            return
        assert step.after_s > 0
        record = step.record
    raise AssertionError("it was never sent again")


def test_records_are_kept_beside_the_files(tmp_path) -> None:
    records = SubmissionRecords(FileStore(str(tmp_path)))
    assert records.get("10.1/a") == SubmissionRecord()
    records.put("10.1/a", SubmissionRecord(1.5, 2.5))
    records.put("10.1/a/b", SubmissionRecord(3.5))
    assert SubmissionRecords(FileStore(str(tmp_path))).get("10.1/a") == SubmissionRecord(1.5, 2.5)
    records.remove("10.1/a")
    records.remove("10.1/a")
    assert records.get("10.1/a") == SubmissionRecord()
    assert [path.name.endswith(SUFFIX) for path in tmp_path.iterdir()] == [True]


def test_an_answer_is_of_one_submission(tmp_path: Path) -> None:
    records = SubmissionRecords(FileStore(str(tmp_path)))
    records.put("10.1/a", SubmissionRecord(100.0, 200.0))
    records.put_answer("10.1/a", 100.0, 150.0)
    assert records.get("10.1/a") == SubmissionRecord(100.0, answered=True, answered_at=150.0), (
        "searches before the answer do not count"
    )
    records.put("10.1/a", SubmissionRecord(100.0, 300.0, answered=True))
    assert records.get("10.1/a") == SubmissionRecord(100.0, 300.0, answered=True)
    records.put("10.1/a", SubmissionRecord(400.0))
    assert records.get("10.1/a") == SubmissionRecord(400.0), (
        "it says nothing about a later submission"
    )
    records.remove("10.1/a")
    assert (records.get("10.1/a"), list(tmp_path.iterdir())) == (SubmissionRecord(), [])


def test_a_note_of_an_answer_without_its_time_is_read(tmp_path: Path) -> None:
    files = FileStore(str(tmp_path))
    records = SubmissionRecords(files)
    records.put("10.1/a", SubmissionRecord(100.0))
    files.write("10.1/a", ANSWER, [b"100.0"])
    assert records.get("10.1/a") == SubmissionRecord(100.0, answered=True)


def test_one_search_long_enough_after_the_answer_is_enough() -> None:
    record = SubmissionRecord(100.0, answered=True, answered_at=150.0)
    assert next_step(record, 150.0 + APART - 1, apart_s=APART, readable_s=READABLE).step == "wait"
    assert next_step(record, 150.0 + APART, apart_s=APART, readable_s=READABLE).step == "again"
