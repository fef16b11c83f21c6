"""Rates on DynamoDB: tokens shared by all processes, wrong clocks, and races without double
winners."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
from tests.aws.ledger.table_scene import Process, Scene, writes

from milepost.core.admission.rates import claim_rate
from milepost_aws.ledger.claim import admission
from milepost_aws.ledger.claim.admission import Grant
from milepost_aws.ledger.tables.documents import LAYOUT, Control

NOW = 1_700_000_000_000
SCOPE = "parcels/weigh"


def take(
    control: Control, name: str, per_second: float, now: int, wanted: int, spent: int = 0
) -> Grant:
    return admission.take_tokens(control, name, claim_rate(per_second), now, wanted, spent)


def test_a_rate_is_kept_over_time_and_next_at_says_when_there_is_a_token(control: Control) -> None:
    assert take(control, SCOPE, 2, NOW, 20) == Grant(1, NOW + 500)
    got, at = 1, NOW
    while at < NOW + 5000:
        grant = take(control, SCOPE, 2, at, 20)
        got += grant.granted if at > NOW else 0
        assert grant.next_at is not None
        assert at < grant.next_at <= at + 510
        assert take(control, SCOPE, 2, grant.next_at - 10, 20).granted == 0
        at = grant.next_at
    assert got == 10


@pytest.mark.parametrize("rate", [0.3, 3, 7, 1 / 3600, 33.3])
def test_at_next_at_there_is_a_token(control: Control, rate: float) -> None:
    at = NOW
    for _ in range(5):
        grant = take(control, SCOPE, rate, at, 1000)
        assert grant.granted >= 1
        assert grant.next_at is not None
        at = grant.next_at


def test_a_rate_holds_for_all_processes_together(scene: Scene, control: Control) -> None:
    other = Control(scene.process(), scene.names)
    got = 0
    for step in range(40):
        now = NOW + 50 * step
        got += take(control, SCOPE, 10, now, 100).granted + take(other, SCOPE, 10, now, 100).granted
    assert 19 <= got <= 22


def test_scopes_have_tokens_of_their_own(control: Control) -> None:
    assert take(control, SCOPE, 1, NOW, 1).granted == 1
    assert take(control, f"{SCOPE}/north", 1, NOW, 1).granted == 1
    assert take(control, SCOPE, 1, NOW, 1).granted == 0


def test_no_more_is_taken_than_is_wanted(control: Control) -> None:
    assert take(control, SCOPE, 100, NOW, 3) == Grant(3, None)
    assert take(control, SCOPE, 100, NOW, 100) == Grant(7, NOW + 10)
    assert take(control, SCOPE, 100, NOW + 10, 0) == Grant(0, None)
    assert take(control, SCOPE, 100, NOW + 10, 5).granted == 1


def test_calls_that_were_spent_are_charged_and_make_debt(control: Control) -> None:
    assert take(control, SCOPE, 1, NOW, 1).granted == 1
    assert take(control, SCOPE, 1, NOW + 1000, 1, spent=3) == Grant(0, NOW + 4000)
    assert take(control, SCOPE, 1, NOW + 3000, 1).granted == 0
    assert take(control, SCOPE, 1, NOW + 4000, 1).granted == 1


def test_tokens_given_back_can_be_taken_again_but_are_not_saved_up(control: Control) -> None:
    assert take(control, SCOPE, 20, NOW, 2).granted == 2
    assert take(control, SCOPE, 20, NOW, 0, spent=-1) == Grant(0, None)
    assert take(control, SCOPE, 20, NOW, 5).granted == 1
    assert take(control, SCOPE, 20, NOW + 60_000, 0, spent=-9) == Grant(0, None)
    assert take(control, SCOPE, 20, NOW + 60_000, 9).granted == 2


def test_a_clock_set_back_blocks_a_rate_for_seconds_only(control: Control) -> None:
    assert take(control, SCOPE, 1, NOW, 1).granted == 1
    earlier = NOW - 3_600_000
    assert take(control, SCOPE, 1, earlier, 1) == Grant(0, earlier + 1000)
    assert take(control, SCOPE, 1, earlier + 1000, 1).granted == 1


def test_a_clock_a_little_behind_gains_nothing(control: Control) -> None:
    assert take(control, SCOPE, 1, NOW, 1).granted == 1
    for behind in (9_000, 5_000, 1):
        assert take(control, SCOPE, 1, NOW - behind, 1) == Grant(0, NOW + 1000)
    assert take(control, SCOPE, 1, NOW + 1000, 1).granted == 1


def test_a_rate_does_not_save_up_while_idle(control: Control) -> None:
    take(control, SCOPE, 20, NOW, 1)
    assert take(control, SCOPE, 20, NOW + 86_400_000, 30).granted == 2


def test_another_rate_holds_from_now_on(control: Control) -> None:
    assert take(control, SCOPE, 1000, NOW, 200).granted == 100
    assert take(control, SCOPE, 1 / 3600, NOW + 1000, 200).granted == 0
    assert take(control, SCOPE, 1000, NOW + 2000, 200).granted == 100


@pytest.mark.parametrize("fault", ["timeout_after", "twice", "throttle"])
def test_a_lost_answer_costs_no_tokens(control: Control, process: Process, fault: str) -> None:
    process.faults.plan("UpdateItem", fault)
    assert take(control, SCOPE, 100, NOW, 4).granted == 4
    assert len(process.faults.fired) == 1
    assert take(control, SCOPE, 100, NOW, 100).granted == 6


def test_a_lost_race_is_run_again_with_what_is_left(
    scene: Scene, control: Control, process: Process
) -> None:
    other = Control(scene.process(), scene.names)
    process.at("update_item", lambda: take(other, SCOPE, 100, NOW, 7))
    assert take(control, SCOPE, 100, NOW, 10).granted == 3


def test_many_at_once_take_no_more_than_there_is(scene: Scene) -> None:
    start, got = Barrier(6), []

    def race() -> None:
        control = Control(scene.process(), scene.names)
        start.wait()
        got.append(sum(take(control, SCOPE, 100, NOW, 1).granted for _ in range(4)))

    threads = [Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    assert sum(got) == 10


def test_only_what_changes_something_is_written(control: Control, process: Process) -> None:
    control.write(LAYOUT, "parcels", {})
    control.raise_format()
    take(control, SCOPE, 1, NOW - 60_000, 5)
    process.measure = True
    process.counts.clear()
    take(control, SCOPE, 1, NOW, 5)
    assert (writes(process), process.counts["dynamodb", "get_item"]) == (1, 1)
    take(control, SCOPE, 1, NOW, 5)
    take(control, SCOPE, 1, NOW + 5000, 0)
    assert (writes(process), process.counts["dynamodb", "get_item"]) == (1, 3)
