"""Check that the caller sees all routes, for endpoints that concern the whole ledger."""

from __future__ import annotations

from milepost.http.protocol.endpoint import Call
from milepost.http.protocol.problems import problem_error


def check_sees_all(call: Call) -> None:
    """Raise a problem if the caller sees only some routes, because the answer may concern the others."""
    if call.caller.routes is not None:
        raise problem_error(
            "not-allowed",
            f"{call.caller.name!r} sees only some routes, and this concerns all of them",
            expected="a key that is not limited to routes",
        )
