"""Costs of an asset on AWS in calls and units, counted as the benchmark counts them, against their
limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import aws
from bench.aws_list import run as run_list

from milepost_aws.ledger.requests.client import Requests

N = 20


@pytest.mark.parametrize(
    "case", aws.CASES, ids=[case.title.replace(" ", "-").replace(",", "") for case in aws.CASES]
)
def test_an_asset_keeps_to_its_bars(endpoint: str, account: str, case: aws.Case) -> None:
    figures = aws.count_assets(endpoint, account, N, 10, case)
    barred = [figure for figure in figures if figure.most is not None]
    assert len(barred) == 5
    assert [figure for figure in barred if not figure.good] == []
    found = {figure.name: figure for figure in figures}
    state, calls = found["state: write units"], found["state: writing calls"]
    # Counted to the last unit, and what `milepost cost` says is what was counted.
    assert (state.counted, calls.counted) == (11 if case.adopted else case.most, 7)
    assert (state.predicted, calls.predicted) == (state.counted, calls.counted)


def test_evidence_keeps_to_its_bars(endpoint: str, account: str) -> None:
    figures = {figure.name: figure for figure in aws.count_evidence(endpoint, account, N, 10)}
    assert [figure for figure in figures.values() if not figure.good] == []
    for name in ("blobs written", "queries of history", "read units of these queries"):
        assert figures[name].counted == 1
    for name in (
        "blobs written",
        "read units of these queries",
        "bytes kept",
        "lines read for the daily head",
    ):
        assert figures[name].counted == pytest.approx(figures[name].predicted, rel=0.05), name


def test_a_list_of_known_keys_is_read_in_full_batches(endpoint: str, tmp_path: Path) -> None:
    meter = run_list(endpoint, tmp_path, 450, 10)
    assert meter.made("rows", operations={"batch_get_item"}) == 5
    assert meter.keys["ours", "rows"] == 460
    assert meter.keys["ours", "seen"] == 10
    assert meter.made("rows") == 10
    assert meter.made("rows", "seen", "history", "control", operations={"scan"}) == 0


def test_a_request_too_many_is_seen(
    endpoint: str, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counting itself: whoever sends one message a call, instead of ten, is found out."""
    once = Requests.attempt

    def one_by_one(
        self: Requests, patience: object, service: str, operation: str, params: dict[str, object]
    ) -> dict[str, object]:
        if operation != "send_message_batch":
            return once(self, patience, service, operation, params)
        answers = [
            once(self, patience, service, operation, {**params, "Entries": [entry]})
            for entry in params["Entries"]
        ]
        return {"Successful": [entry for answer in answers for entry in answer["Successful"]]}

    monkeypatch.setattr(Requests, "attempt", one_by_one)
    figures = aws.count_assets(endpoint, account, 10, 10, aws.Case("one by one"))
    assert [figure.name for figure in figures if not figure.good] == ["SQS calls in all"]
