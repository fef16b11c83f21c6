"""Costs of a notification and of a deposit on AWS, counted as the benchmark counts them, against
their bars and against `milepost cost`."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.aws_deposits import DEPOSIT_CASES, count_deposits
from bench.aws_messages import MESSAGE_CASES, count_messages
from bench.counted import Figure

N = 20
pytestmark = pytest.mark.usefixtures("quick_botocore")


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


@pytest.mark.parametrize(
    ("case", "writes", "units", "lines_and_seal", "sqs", "sns"),
    [
        (MESSAGE_CASES[0], 5, 18, 3, 0.3, 0.2),
        (MESSAGE_CASES[1], 7, 32, 4, 0.6, 0.3),
        (MESSAGE_CASES[2], 5, 21, 3, 0.3, 0.2),
    ],
    ids=[case.title.replace(" ", "-") for case in MESSAGE_CASES],
)
def test_a_message_takes_what_the_page_on_scale_says(
    case: object, writes: int, units: int, lines_and_seal: int, sqs: float, sns: float
) -> None:
    found = by_name(count_messages(N, 10, case))  # type: ignore[arg-type]
    assert found["row: writing calls"].counted == writes
    assert found["row and index: write units"].counted == units
    assert found["history and seal: write units"].counted == lines_and_seal
    assert (found["SQS requests"].counted, found["SNS requests"].counted) == (sqs, sns)
    if case != MESSAGE_CASES[1]:
        [gateway] = [figure for name, figure in found.items() if ": API Gateway" in name]
        assert gateway.counted == 1.0, "one request of API Gateway for each message"
    for figure in found.values():
        if figure.predicted is not None and figure.name.startswith(
            ("row", "history", "SQS", "SNS", "$", "bytes")
        ):
            assert figure.predicted == pytest.approx(figure.counted, rel=0.1), figure.name


def test_a_doi_that_goes_to_dspace_keeps_to_its_bars(tmp_path: Path) -> None:
    figures = count_deposits(tmp_path, N, 10, DEPOSIT_CASES[0])
    assert sum(figure.most is not None for figure in figures) == 6
    assert [figure for figure in figures if not figure.good] == []
    found = by_name(figures)
    assert (
        found["row: writing calls"].counted,
        found["intake: writes of the row"].counted,
        found["end: writes of the row"].counted,
    ) == (
        11,
        1,
        1,
    )
    # One look-up of the batch before its rows are put.
    assert (found["intake: reads of the row"].counted, found["end: reads of the row"].counted) == (
        1 / N,
        0,
    )


def test_a_result_of_the_submission_service_is_one_write_beyond_the_bars_and_its_rows_are_read_together(
    tmp_path: Path,
) -> None:
    """Called, handed over and answered are three writes; and a portion of results is decided on its
    rows, which one request reads."""
    figures = count_deposits(tmp_path, N, 10, DEPOSIT_CASES[1])
    beyond = {figure.name: figure.counted for figure in figures if not figure.good}
    assert beyond == {
        "submit: writes of the row besides the claim": 3,
        "submit: reads of the row": 1 / N,
    }
