"""Whether a claim's outcome was written, and which one, by its line."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.core.claims import is_outcome_of, records
from milepost.core.history import Attempt, Line, claim_digest, decode_line, encode_line
from milepost.core.item import digest_of
from milepost.core.outcome import Checked, Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.status import Reason, Status

CLAIM = claim_digest("a secret lease")


def line(reason: Reason, **more: Any) -> Line:
    return Line(2, 1_000, reason, "weigh", Status.QUEUED, claim=CLAIM, **more)


def test_a_claim_is_named_by_a_short_digest_that_hides_the_lease() -> None:
    assert len(CLAIM) == 12
    assert claim_digest("another lease") != CLAIM
    body = encode_line(line(Reason.ADVANCED))
    assert b"secret" not in body
    assert decode_line(body).claim == CLAIM
    assert b"claim" not in encode_line(Line(2, 1_000, Reason.ADVANCED, "weigh", Status.QUEUED))


@pytest.mark.parametrize("reason", Reason)
def test_only_lines_that_an_outcome_leads_to_are_its_outcome(reason: Reason) -> None:
    outcomes = [
        "advanced",
        "completed",
        "confirmed",
        "not-yet",
        "checked",
        "handed-over",
        "retry",
        "exhausted",
        "rejected",
        "undecided",
    ]
    attempt = Attempt(1, "ERROR", "busy", response_ms=3)
    assert is_outcome_of(line(reason, attempt=attempt), CLAIM) is (reason.value in outcomes)
    assert not is_outcome_of(line(reason, attempt=attempt), claim_digest("another lease"))


def test_the_loss_that_ends_an_item_is_no_outcome() -> None:
    assert not is_outcome_of(
        line(Reason.EXHAUSTED, attempt=Attempt(1, "WORKER_LOST", "10 workers were lost")), CLAIM
    )


@pytest.mark.parametrize(
    ("outcome", "recorded"),
    [
        (Done({"a": 1}), line(Reason.ADVANCED, output=digest_of({"a": 1}).hex())),
        (Done(), line(Reason.COMPLETED)),
        (NotYet(note="soon"), line(Reason.NOT_YET, note="soon")),
        (Checked(note="well"), line(Reason.CHECKED, note="well")),
        (HandedOver(within="1h", note="sent"), line(Reason.HANDED_OVER, note="sent")),
        (
            Retry("busy", category="HTTP"),
            line(Reason.RETRY, attempt=Attempt(1, "HTTP", "busy", response_ms=3)),
        ),
        (
            Retry("gone", category="HTTP"),
            line(Reason.EXHAUSTED, attempt=Attempt(3, "HTTP", "gone", response_ms=3)),
        ),
        (
            Reject("broken"),
            line(
                Reason.REJECTED,
                attempt=Attempt(1, Reject("broken").category, "broken", response_ms=3),
            ),
        ),
    ],
)
def test_a_line_says_one_outcome_and_no_other(outcome: Outcome, recorded: Line) -> None:
    others: list[Outcome] = [
        Done({"a": 2}),
        NotYet(note="later"),
        Checked({"a": 2}, note="later"),
        HandedOver(within="1h", note="x"),
        Retry("other"),
        Reject("other"),
    ]
    assert records(recorded, outcome)
    assert not any(records(recorded, other) for other in others)


def test_a_line_that_was_decided_otherwise_stands_for_any_outcome() -> None:
    assert records(line(Reason.UNDECIDED), Done())
    assert records(line(Reason.CONFIRMED, by="kept", output="00"), Retry("busy")), (
        "a line of an earlier version"
    )
    assert records(line(Reason.CONFIRMED, by="partner", kept=True, output="00"), Retry("busy"))
