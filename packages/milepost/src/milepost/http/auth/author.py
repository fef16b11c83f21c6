"""Author of an act over HTTP, and checks of the texts that are stored with it."""

from __future__ import annotations

from milepost.core.outcome import Outcome
from milepost.core.outcome import check_outcome as check_storable
from milepost.http.protocol.endpoint import Call
from milepost.http.protocol.problems import problem_error

LONGEST = 100


def named(call: Call, person: str | None) -> str:
    """The caller's name, with the name of the person for whom it acts, if given."""
    if person is None:
        return call.caller.name
    if not person.strip() or len(person) > LONGEST or any(ord(c) < 32 for c in person):
        raise problem_error(
            "wrong-value",
            f"'for' is {person!r}",
            field="for",
            expected=f"a person's name of at most {LONGEST} characters",
        )
    return f"{call.caller.name} for {person.strip()}"


def check_may_operate(call: Call, what: str) -> None:
    """Raise a problem if the caller's key may only submit items: this is for operators."""
    if not call.caller.may("operate"):
        raise problem_error(
            "not-allowed",
            f"{call.caller.name!r} may not {what}",
            expected="a key with the scope 'operate'",
        )


def check_outcome(outcome: Outcome, field: str = "outcome") -> None:
    """Raise a problem if an outcome cannot be stored: it is nested too deeply, for example."""
    try:
        check_storable(outcome)
    except (ValueError, RecursionError) as error:
        raise problem_error(
            "wrong-value", f"the outcome cannot be stored: {error}", field=field
        ) from None


def check_reason(reason: str, dry_run: bool) -> None:
    """Every act needs a reason; a preview does not."""
    if not dry_run and not reason.strip():
        raise problem_error(
            "wrong-value",
            "an act needs a reason",
            field="reason",
            expected="why it is done, or dry_run: true for a preview",
        )


def check_sees_all(call: Call) -> None:
    """Raise a problem if the caller sees only some routes, because the answer may concern the
    others."""
    if call.caller.routes is not None:
        raise problem_error(
            "not-allowed",
            f"{call.caller.name!r} sees only some routes, and this concerns all of them",
            expected="a key that is not limited to routes",
        )
