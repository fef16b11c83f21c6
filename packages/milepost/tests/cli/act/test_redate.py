"""After the machine's clock was three days ahead: what the commands say, and the act that dates the
items anew."""

from __future__ import annotations

import time

import pytest

import milepost as mp
from milepost.route_files import load_routes

DAY_NS = 86_400_000_000_000


@pytest.fixture
def future(shell, monkeypatch: pytest.MonkeyPatch):
    """A ledger with three items that were submitted while the clock was three days ahead, and one
    of the true time."""
    with monkeypatch.context() as patch:
        true_time = time.time_ns
        patch.setattr(time, "time_ns", lambda: true_time() + 3 * DAY_NS)
        with mp.open(
            f"sqlite:///{shell.folder}/milepost.db", load_routes([str(shell.folder / "parcels.py")])
        ) as post:
            post.submit("parcels", {"id": "A"}, {"id": "B"}, {"id": "C"})
    shell.submit({"id": "now"})
    return shell


def test_a_bulk_act_counts_what_it_leaves_out_and_fails_if_that_is_everything(future) -> None:
    some = future.signed("cancel", "parcels", "--stage", "weigh")
    assert some.code == 0
    assert "cancel: 1 of 1 item" in some.out
    assert "3 more match, but are dated in the future" in " ".join(some.out.split())
    for options in ((), ("--dry-run",)):
        nothing = future.signed(
            "cancel", "parcels", "--stage", "weigh", "--status", "QUEUED", *options
        )
        assert nothing.code == 1
        assert "No item matches" not in nothing.out
        assert (
            "Nothing was changed. 3 more match, but are dated in the future: a clock was ahead"
            in " ".join(nothing.out.split())
        )
    assert future.signed("cancel", "parcels", "--stage", "stamp").code == 0


def test_doctor_counts_them_and_redate_dates_them_as_of_now(future) -> None:
    said = " ".join(future("doctor").out.split())
    assert "this process uses this machine's clock" in said
    assert (
        "3 items of parcels are dated in the future: a clock was ahead when they were written"
        in said
    )
    assert future("redate", "parcels").code == 2
    assert "redate would apply to 3 of 3 items" in future.ok("redate", "parcels", "--dry-run").out
    assert "redate: 3 of 3 items (act " in future.signed("redate", "parcels").out
    assert "No item of parcels is dated in the future" in future.signed("redate", "parcels").out
    assert "dated in the future" not in future("doctor").out
    line = future.ok("show", "parcels", "A", "--json").json["history"][-1]
    assert (line["reason"], line["by"], line["why"]) == ("noted", "ops", "a test")
    assert "cancel: 4 of 4 items" in future.signed("cancel", "parcels", "--stage", "weigh").out


def test_work_completes_them_at_the_true_time(future) -> None:
    future.ok("work", "--until-idle", "0.2")
    counts = future.ok("status", "--json").json["routes"]["parcels"]["stages"]
    assert counts["delivered"] == {"QUEUED": 4}


def test_a_repeat_with_its_act_gets_the_first_answer(future) -> None:
    assert (
        "redate: 3 of 3 items (act clock)"
        in future.signed("redate", "parcels", "--act", "clock").out
    )
    again = future.signed("redate", "parcels", "--act", "clock")
    assert again.code == 0
    assert "nothing was changed now. Its result:\nredate: 3 of 3 items (act clock)\n" in again.out
    other = future.signed("cancel", "parcels", "A", "--act", "clock")
    assert (other.code, "act 'clock' is on record with the verb 'redate'" in other.err) == (
        2,
        True,
    ), other
