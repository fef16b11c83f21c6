"""Confirmations over HTTP: applied, kept, known, refused and noted, on every ledger."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.http.live_server import HttpAnswer, LiveServer
from tests.http.servers_on_ledgers import new_aws_ledger, server_over

import milepost as mp
from milepost.core.errors import ActRefused
from milepost.engine.retention import prune
from milepost.runners.clock import SystemClock

CONFIRMATIONS = "/api/v1/routes/loans/confirmations"


class Leaping(SystemClock):
    """The real clock, and a leap ahead."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


def loans() -> mp.Route:
    route = mp.Route("loans", key="id")
    route.external("collect", retry=mp.Backoff(attempts=2, base=1))
    route.external("deliver")
    route.stage("file", remote=True)
    return route


class Office:
    """A door, and an item of the test's own at `collect`."""

    def __init__(self, visitor: LiveServer, clock: Leaping, key: str) -> None:
        self.visitor, self.clock, self.key = visitor, clock, key
        visitor.milepost.submit("loans", {"id": key})

    def confirm(self, stage: str = "collect", key: str | None = None, **said: Any) -> HttpAnswer:
        return self.visitor.call(
            "POST",
            CONFIRMATIONS,
            {"key": key or self.key, "stage": stage, **(said or {"value": {"shelf": 7}})},
        )

    def show(self) -> dict[str, Any]:
        found = self.visitor.milepost.show("loans", self.key)
        assert found is not None
        return found

    def claim(self) -> dict[str, Any]:
        """A worker of `file` has the item in hand."""
        self.visitor.work()
        while True:
            answered = self.visitor.call(
                "POST", "/api/v1/routes/loans/stages/file/claims", {"worker": "w", "wait": 10}
            )
            for work in answered.body["items"]:
                if work["key"] == self.key:
                    return dict(work)

    def settle(self, work: dict[str, Any], outcome: dict[str, Any]) -> None:
        said = {"key": work["key"], "lease": work["lease"], "outcome": outcome}
        answered = self.visitor.call(
            "POST", "/api/v1/routes/loans/stages/file/claims/settle", {"outcomes": [said]}
        )
        assert answered.body["outcomes"][0]["answer"] == "written"

    def act(self, verb: str, **more: Any) -> None:
        """A person does this to the item."""
        said = {"verb": verb, "keys": [self.key], "reason": "a test", **more}
        assert self.visitor.call("POST", "/api/v1/routes/loans/acts", said).body["done"] == 1

    def complete(self) -> None:
        for stage in ("collect", "deliver", "file"):
            assert self.confirm(stage).status == 200
        assert self.show()["status"] == "COMPLETED"

    def let_go(self) -> None:
        """Its row goes; only its seal stays."""
        self.visitor.work()
        self.clock.ahead += 3 * 3_600_000
        self.visitor.milepost.submit("loans", {"id": f"newer than {self.key}"})
        prune(self.visitor.ctx, "loans", 1, by="ops", reason="a test")
        assert self.show()["sealed"] is True


@pytest.fixture(scope="module", params=["memory", "sqlite", "aws"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveServer, Leaping]]:
    clock = Leaping()
    with ExitStack() as stack:
        ledger = "memory:"
        if request.param == "sqlite":
            ledger = f"sqlite:///{tmp_path_factory.mktemp('office')}/ledger.db"
        elif request.param == "aws":
            ledger = stack.enter_context(new_aws_ledger())
        yield stack.enter_context(server_over(ledger, loans(), clock)), clock


@pytest.fixture
def office(place: tuple[LiveServer, Leaping]) -> Office:
    return Office(*place, secrets.token_hex(4))


def told(answered: HttpAnswer) -> tuple[int, str]:
    return answered.status, answered.body["answer"] if answered.status < 300 else answered.body[
        "code"
    ]


def test_a_confirmation_is_applied_and_the_same_again_is_known(office: Office) -> None:
    first = office.confirm()
    assert first.body == {
        "key": office.key,
        "answer": "applied",
        "status": office.show()["status"],
        "stage": "deliver",
        "sealed": False,
    }
    assert told(first) == (200, "applied")
    assert told(office.confirm()) == told(office.confirm(value=True)) == (200, "known")
    assert (office.show()["results"], office.show()["history"][-1]["by"]) == (
        {"collect": {"shelf": 7}},
        "local",
    )


def test_other_content_is_a_conflict_and_is_noted(office: Office) -> None:
    office.confirm()
    lines = len(office.show()["history"])
    answered = office.confirm(value={"shelf": 8})
    assert (told(answered), answered.body["stage"]) == ((409, "conflict"), "deliver")
    assert office.show()["results"] == {"collect": {"shelf": 7}}
    assert [line["reason"] for line in office.show()["history"][lines:]] == ["noted"]


def test_what_conflicts_is_answered_the_same_each_time_and_noted_once(office: Office) -> None:
    office.confirm()
    office.confirm("file")
    lines = len(office.show()["history"])
    first, again = office.confirm(value={"shelf": 8}), office.confirm(value={"shelf": 8})
    assert told(first) == (409, "conflict")
    assert (again.status, again.body["detail"]) == (first.status, first.body["detail"])
    assert told(office.confirm(value={"shelf": 9})) == (409, "conflict")
    assert told(office.confirm(value={"shelf": 8})) == (409, "conflict")
    # A kept one that is contradicted, too.
    assert (
        told(office.confirm("file", value=1))
        == told(office.confirm("file", value=1))
        == (409, "conflict")
    )
    noted = [
        line["note"]["differs"]["output"]
        for line in office.show()["history"][lines:]
        if line["reason"] == "noted"
    ]
    assert noted == [{"shelf": 8}, {"shelf": 9}, 1]


def test_a_confirmation_for_a_later_stage_is_kept_until_the_item_gets_there(office: Office) -> None:
    assert told(office.confirm("deliver")) == (202, "kept")
    assert told(office.confirm("deliver")) == (200, "known")
    assert told(office.confirm("deliver", value="no shelf")) == (409, "conflict")
    assert (told(office.confirm()), office.show()["stage"]) == ((200, "applied"), "file")


def test_a_confirmation_beats_the_worker_that_has_the_item_in_hand(office: Office) -> None:
    office.confirm()
    office.confirm("deliver")
    work = office.claim()
    assert told(office.confirm("file", value={"box": 1})) == (202, "kept")
    office.settle(work, {"type": "done", "output": {"box": 2}})
    assert (office.show()["status"], office.show()["results"]["file"]) == ("COMPLETED", {"box": 1})


def test_a_failure_said_outside_is_a_counted_try(office: Office) -> None:
    answered = office.confirm(outcome={"type": "retry", "error": "the van broke down"})
    assert (told(answered), office.show()["status"], office.show()["attempts"]) == (
        (200, "applied"),
        "RETRY_SCHEDULED",
        1,
    )


def test_what_is_said_of_an_ended_item_is_noted_once_and_told(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    assert office.confirm(outcome={"type": "reject", "error": "lost"}).body["status"] == "REJECTED"
    lines = len(office.show()["history"])
    with caplog.at_level(logging.WARNING, "milepost.engine.acts.confirmations"):
        answered = office.confirm(outcome={"type": "retry", "error": "late"})
        assert (told(answered), answered.body["item_status"]) == ((409, "ended"), "REJECTED")
        assert told(office.confirm(outcome={"type": "retry", "error": "late"})) == (409, "ended")
    assert (
        f"loans/{office.key}: a confirmation for stage 'collect' arrived too late: the item has ended (REJECTED)"
        in caplog.text
    )
    assert [line["note"]["too late"]["error"] for line in office.show()["history"][lines:]] == [
        "late"
    ]
    assert told(office.confirm()) == (200, "applied"), "it was there after all"


@pytest.mark.parametrize("stage", ["deliver", "file"])
def test_no_partner_moves_what_a_person_has_cancelled(
    office: Office, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    office.confirm()
    office.act("cancel")
    lines = len(office.show()["history"])
    with caplog.at_level(logging.WARNING, "milepost.engine.acts.confirmations"):
        first, again = office.confirm(stage), office.confirm(stage)
    assert (told(first), first.body["item_status"], first.body["stage"]) == (
        (409, "ended"),
        "CANCELLED",
        "deliver",
    )
    assert (told(again), again.body["detail"]) == ((409, "ended"), first.body["detail"])
    assert f"loans/{office.key}: a confirmation for stage '{stage}'" in caplog.text
    noted = [line["note"] for line in office.show()["history"][lines:]]
    assert noted == [{"for": stage, "too late": {"type": "done", "output": {"shelf": 7}}}]
    assert told(office.confirm()) == (200, "known"), "what it was through already is known as ever"
    assert office.show()["status"] == "CANCELLED"
    with pytest.raises(ActRefused, match="only an operator can start it again"):
        office.visitor.milepost.confirm("loans", office.key, stage, by="partner")


def test_a_person_confirms_what_was_cancelled(office: Office) -> None:
    office.confirm()
    office.act("cancel")
    office.act("confirm", stage="deliver")
    assert (office.show()["stage"], office.show()["history"][-1]["reason"]) == ("file", "confirmed")


def test_what_is_kept_for_a_failed_item_says_that_it_waits_for_a_person(office: Office) -> None:
    office.confirm(outcome={"type": "reject", "error": "lost"})
    first, again = office.confirm("deliver"), office.confirm("deliver")
    assert (told(first), first.body["status"], first.body["stage"]) == (
        (202, "kept"),
        "REJECTED",
        "collect",
    )
    assert first.body["note"].startswith(
        "the item has failed at 'collect'; the confirmation is kept"
    )
    assert (told(again), again.body["note"]) == ((200, "known"), first.body["note"])
    office.act("retry")
    assert "note" not in office.confirm().body
    assert office.show()["stage"] == "file", "what was kept is applied once it gets there"


def test_what_its_seal_remembers_is_known_though_the_row_has_gone(office: Office) -> None:
    office.complete()
    office.let_go()
    answered = office.confirm("deliver")
    assert answered.body == {
        "key": office.key,
        "answer": "known",
        "status": "COMPLETED",
        "stage": answered.body["stage"],
        "sealed": True,
    }
    assert answered.status == 200
    assert told(office.confirm("deliver", outcome={"type": "reject"})) == (409, "ended")


def test_what_cannot_be_meant_is_told(office: Office) -> None:
    unknown = office.confirm(key="nobody")
    assert (told(unknown), unknown.body["field"]) == ((404, "unknown-item"), "key")
    assert told(office.confirm("nowhere")) == (404, "unknown-stage")
    for empty in (False, "no", {}):
        nothing = office.confirm(value=empty)
        assert (told(nothing), nothing.body["field"]) == ((400, "wrong-value"), "value")
    both = office.confirm(value=True, outcome={"type": "done"})
    assert told(both) == (400, "wrong-value")
    assert [line["reason"] in ("not-yet", "noted") for line in office.show()["history"][1:]] == [
        True
    ] * 3
