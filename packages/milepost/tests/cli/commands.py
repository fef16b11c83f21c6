"""Route files and the answer of a command, shared by tests of the command line."""

from __future__ import annotations

import json
from typing import Any

WEIGHED = """
from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", retry=mp.Backoff(attempts=2, base=0.05, factor=1, jitter=0))
def weigh(item: mp.Item) -> mp.Outcome:
    if item.input.get("torn"):
        return mp.Reject("it is torn", category="TORN")
    if item.input.get("busy"):
        return mp.Retry("the scale is busy", category="BUSY")
    if item.input.get("later"):
        return mp.NotYet(after="1h", note="not brought yet")
    return mp.Done({"grams": 340})

"""
STAMPED = """
@parcels.stage("stamp")
async def stamp(item: mp.Item) -> mp.Outcome:
    return mp.Done()

"""
DELIVERED = """
parcels.external("delivered", resend_after="14d", lane=lambda content: content.get("depot", ""))
"""


class Answer:
    """What a command answered: its exit code and what it wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def flat(self) -> str:
        """All that was said, in one line."""
        return " ".join((self.out + " " + self.err).split())

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
