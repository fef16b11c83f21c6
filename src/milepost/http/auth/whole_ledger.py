"""What concerns the whole ledger, and not one of its routes, is for those who see all of them."""

from __future__ import annotations

from milepost.http.protocol.endpoint import Call
from milepost.http.protocol.problems import problem_error


def check_sees_all(call: Call) -> None:
    """Raise a problem if the caller sees only some routes: there is no telling what of this would be of others."""
    if call.caller.routes is not None:
        raise problem_error(
            "not-allowed",
            f"{call.caller.name!r} sees only some routes, and this concerns all of them",
            expected="a key that is not limited to routes",
        )
