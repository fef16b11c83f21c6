"""The model of what an item costs, against figures that were counted on a stand-in and against
plain arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose

import pytest

import milepost as mp
from milepost.core.errors import UsageError
from milepost_aws.ledger.cost.model import Need, Usage, predicted
from milepost_aws.ledger.cost.prices import REGIONS, dollars, prices_in, standing
from milepost_aws.ledger.cost.steps import STEPS
from milepost_aws.ledger.names import ResourceNames

SMALL = Usage(payload=2, result=2, key=10, batch=1)
"""So light that no row ever passes 1 KB: what is left is calls and the index."""


def assets(**options: object) -> mp.Route:
    route = mp.Route("assets", key=["assetId", "batchId"], **options)
    route.external("CC")
    route.external("TC")
    return route


def notes(stages: int = 1, called: str = "s", **options: object) -> mp.Route:
    route = mp.Route("notes", key="id")
    for number in range(stages):

        @route.stage(f"{called}{number}", **options)
        def handler(item: mp.Item) -> mp.Outcome:
            return mp.Done()

    return route


def on_rows(need: Need, route: str) -> tuple[float, float]:
    table = ResourceNames("milepost").rows(route)
    return need.units[table, "write"], need.units[f"{table}/due", "write"]


def test_two_external_stages_are_13_units_in_7_writes() -> None:
    need = predicted(assets(), SMALL)
    assert sum(need.steps.values()) == 7
    assert on_rows(need, "assets") == (7, 6)
    assert (need.lines, need.events, need.messages) == (4, 5, 2)
    assert (need.units["milepost-history", "write"], need.units["milepost-seen", "write"]) == (4, 1)


def test_offers_that_go_by_queue_alone_are_no_events() -> None:
    assert predicted(assets(), Usage(payload=2, offers=False)).events == 3
    assert predicted(assets(), Usage(payload=2, offers=False, adopted=True)).events == 3


def test_a_row_that_others_put_saves_an_offer_and_a_line() -> None:
    need = predicted(assets(), Usage(payload=2, result=2, key=10, batch=1, adopted=True))
    assert sum(need.steps.values()) == 7
    assert on_rows(need, "assets") == (7, 4)
    assert (need.lines, need.events, need.messages) == (3, 5, 2)


def test_a_handler_stage_is_called_claimed_and_settled() -> None:
    one, two = predicted(notes(1), SMALL), predicted(notes(2), SMALL)
    assert on_rows(one, "notes") == (5, 6)
    # One more stage: called 1+2, claimed 1+2, advanced 1+2.
    assert on_rows(two, "notes") == (8, 12)
    assert dict(two.steps) == {
        "put": 1,
        "called": 2,
        "claimed": 2,
        "advanced": 1,
        "ended": 1,
        "marked": 1,
    }


def test_a_call_that_follows_an_external_stage_is_a_write_of_its_own() -> None:
    route = mp.Route("mixed")
    route.external("first")

    @route.stage("second")
    def handler(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    steps = predicted(route, SMALL).steps
    assert (steps["offered"], steps["called"], steps["advanced"], steps["confirmed"]) == (
        1,
        1,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("route", "usage", "counted"),
    [
        # Ten items of each, one phase after the other; units for one of them.
        (
            assets(),
            Usage(payload=584, key=62, result=20),
            {"rows": 13, "due": 6, "history": 4, "seen": 1},
        ),
        # The stage's name is on the row, and these rows are just over 1 KB.
        (
            notes(1, "delive"),
            Usage(payload=660, key=12),
            {"rows": 10, "due": 6, "history": 2, "seen": 1},
        ),
    ],
    ids=["two external stages", "one handler stage"],
)
def test_units_are_those_that_were_counted(
    route: mp.Route, usage: Usage, counted: dict[str, float]
) -> None:
    units = predicted(route, usage, ResourceNames("t")).units
    rows = f"t-{route.name}"
    found = {"rows": units[rows, "write"], "due": units[f"{rows}/due", "write"]}
    found |= {name: units[f"t-{name}", "write"] for name in ("history", "seen")}
    assert found == counted


def test_one_at_a_time_every_move_is_counted_by_itself() -> None:
    need = predicted(assets(keep="0s"), SMALL)
    # Cells: PENDING in, out and QUEUED in, and so on to COMPLETED, and out of it when the row goes.
    # Blocks: one for each line.
    assert need.units["milepost-control", "write"] == 8 + 4
    assert need.records == 8


def test_fuller_batches_cost_less_and_change_nothing_on_the_rows() -> None:
    by_batch = [predicted(notes(3), Usage(batch=batch)) for batch in (1, 10, 100)]
    control = [need.units["milepost-control", "write"] for need in by_batch]
    assert control[0] > control[1] > control[2]
    assert len({on_rows(need, "notes") for need in by_batch}) == 1
    assert by_batch[0].queue_requests == pytest.approx(10 * by_batch[1].queue_requests)
    assert by_batch[1].queue_requests == by_batch[2].queue_requests


def test_retries_are_bounded_by_the_threshold() -> None:
    need = predicted(
        notes(1, retry=mp.Backoff(attempts=3, base=1)),
        Usage(retries=0.5, batch=1, payload=2, key=10),
    )
    assert need.steps["claimed"] == 1 + 0.5 + 0.25
    assert need.steps["failed"] == 0.5 + 0.25
    assert need.steps["marked failed"] == 0.125
    assert isclose(need.steps["marked"] + need.steps["marked failed"], 1)
    assert need.steps["ended"] == 1
    assert need.messages == need.steps["claimed"]


def test_what_is_rejected_ends_at_its_first_try_and_goes_to_the_failed_partition() -> None:
    need = predicted(notes(2), Usage(rejects=1, payload=2, key=10, batch=1))
    assert dict(need.steps) == {"put": 1, "called": 1, "claimed": 1, "ended": 1, "marked failed": 1}
    assert on_rows(need, "notes")[1] == 7
    half = predicted(notes(1), Usage(rejects=0.25, retries=0.5, payload=2, key=10, batch=1)).steps
    assert half["ended"] == pytest.approx(1)
    assert half["marked"] == pytest.approx(
        0.25 * (1 - 0.5 ** notes(1).stages[0].retry.attempts) / 0.5
    )


def test_outputs_and_columns_are_on_the_row() -> None:
    route = mp.Route(
        "notes", key=["id", "sender"], columns=["id", "sender", "method", "retryHistory"]
    )
    route.stage("deliver")(lambda item: mp.Done())
    plain, wide = predicted(notes(1), SMALL), predicted(route, SMALL)
    assert wide.row_bytes - plain.row_bytes >= len("methodretryHistory")
    heavy = predicted(notes(1), Usage(payload=2, key=10, batch=1, output=900))
    # The settled row and the last write of it are over 1 KB.
    assert on_rows(heavy, "notes") == (7, 6)
    assert (
        on_rows(
            predicted(notes(1), Usage(payload=2, key=10, batch=1, output=900, rejects=1)), "notes"
        )[0]
        > 7
    )


def test_what_comes_back_after_more_than_a_quarter_of_an_hour_is_brought_by_the_resender() -> None:
    soon = predicted(notes(1, retry=mp.Backoff(attempts=2, base="10m")), Usage(retries=0.1))
    late = predicted(notes(1, retry=mp.Backoff(attempts=2, base="20m")), Usage(retries=0.1))
    assert soon.steps["called again"] == 0
    assert late.steps["called again"] == pytest.approx(0.1)
    assert late.messages == pytest.approx(soon.messages)


def test_only_stages_with_a_schedule_of_looks_are_looked_at_again() -> None:
    plain, waiting = notes(1), notes(1, checks=mp.Checks(every="10m", up_to="6h"))
    assert predicted(plain, Usage(checks=20)).steps["not yet"] == 0
    need = predicted(waiting, Usage(checks=20))
    assert (need.steps["not yet"], need.steps["claimed"]) == (19, 20)
    # 10 minutes is within a queue's delay, 20 and more is not; and only the first look makes a
    # line.
    assert need.steps["called again"] == 18
    assert need.lines == 3


def test_looks_of_confirmers_are_receives_and_no_writes() -> None:
    once, often = predicted(assets(), Usage(checks=1)), predicted(assets(), Usage(checks=20))
    assert often.units == once.units
    assert often.calls["sqs", "receive_message"] == pytest.approx(
        20 * once.calls["sqs", "receive_message"]
    )


def test_a_long_wait_is_offered_again() -> None:
    day = 86_400_000
    need = predicted(assets(), Usage(wait_ms=30 * day))
    assert need.steps["resent"] == 4
    assert predicted(assets(), Usage(wait_ms=13 * day)).steps["resent"] == 0


def test_heavier_rows_cost_more_until_they_are_kept_apart() -> None:
    def writes(payload: int) -> float:
        return on_rows(predicted(notes(1), Usage(payload=payload)), "notes")[0]

    assert writes(100) < writes(1000) < writes(4000)
    assert writes(100_000) < writes(4000)
    apart = predicted(notes(1), Usage(payload=100_000))
    assert apart.calls["s3", "put_object"] == 1
    assert apart.blob_bytes == 100_000


def test_a_rate_is_paid_for_in_tokens() -> None:
    free, limited = predicted(notes(1), Usage()), predicted(notes(1, rate="50/s"), Usage())
    assert limited.units["milepost-control", "write"] - free.units[
        "milepost-control", "write"
    ] == pytest.approx(0.2)
    assert limited.calls["dynamodb", "get_item"] == pytest.approx(0.2)


def test_processes_of_ones_own_pay_for_the_stream_and_not_for_functions() -> None:
    prices = REGIONS["us-east-1"]
    ours, theirs = Usage(lambdas=False), Usage()
    own, functions = predicted(notes(1), ours), predicted(notes(1), theirs)
    assert dollars(own, prices, lambdas=False)["Lambda"] == 0 < dollars(functions, prices)["Lambda"]
    assert (
        dollars(own, prices, lambdas=False)["DynamoDB streams"]
        > 0
        == dollars(functions, prices)["DynamoDB streams"]
    )


def test_evidence_is_a_blob_a_query_and_one_more_read_of_every_line() -> None:
    plain, kept = (
        predicted(assets(evidence=evidence), Usage(key=10, lambdas=False))
        for evidence in (False, True)
    )
    history = "milepost-history", "read"
    assert kept.total("write") == plain.total("write")
    assert kept.units[history] - plain.units[history] == pytest.approx(1 + plain.lines)
    assert kept.calls["dynamodb", "query"] - plain.calls["dynamodb", "query"] == pytest.approx(
        1, abs=0.01
    )
    assert kept.calls["s3", "put_object"] == pytest.approx(1, abs=0.01)
    assert kept.blob_bytes > 1000 > plain.blob_bytes
    assert dollars(kept, REGIONS["us-east-1"])["S3"] == pytest.approx(5e-6, rel=0.01)


def test_dollars_are_units_times_prices() -> None:
    need = predicted(assets(), Usage())
    told = dollars(need, REGIONS["us-east-1"])
    assert told["DynamoDB writes"] == pytest.approx(need.total("write") * 0.625e-6)
    assert told["DynamoDB reads"] == pytest.approx(need.total("read") * 0.125e-6)
    assert told["SQS"] == pytest.approx(need.queue_requests * 0.4e-6)
    assert told["SNS"] == pytest.approx(need.publishes * 0.5e-6)


def test_every_region_has_every_price_and_an_unknown_one_says_which_there_are() -> None:
    assert (
        standing([assets(), notes(3)], prices_in("eu-west-2"))
        >= standing([assets()], prices_in("eu-west-2"))
        > 0
    )
    with pytest.raises(UsageError, match="us-east-1, eu-west-2"):
        prices_in("mars-north-1")


@pytest.mark.parametrize("make", [assets, notes], ids=["external", "handler"])
def test_every_step_has_its_reason(make: Callable[[], mp.Route]) -> None:
    assert predicted(make(), Usage(retries=0.1, checks=3)).steps.keys() <= STEPS.keys()
    assert all(step.why for step in STEPS.values())


def test_an_item_that_comes_by_a_request_costs_the_gateway_its_function_and_the_answer() -> None:
    route = mp.Route("messages", key="id")
    route.stage("deliver")(lambda item: mp.Done())
    plain, asked = predicted(route), predicted(route, Usage(endpoint=True, sends=1_000))
    large = predicted(route, Usage(endpoint=True, payload=600_000))
    assert (plain.api_requests, asked.api_requests, large.api_requests) == (0, 1, 2)
    assert (plain.bytes_out, asked.bytes_out) == (0, 1_950)
    price = dollars(asked, prices_in("us-east-1"))
    assert price["API Gateway"] * 1e6 == pytest.approx(1.0)
    assert (
        price["Lambda"] - dollars(plain, prices_in("us-east-1"))["Lambda"]
    ) * 1e6 == pytest.approx(0.20 + 0.04 * 13.3334)
