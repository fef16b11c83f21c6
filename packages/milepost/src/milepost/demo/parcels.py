"""Parcel route of `milepost demo`: parcels are weighed, cleared by customs and delivered, by
partners that are slow or fail.

Randomness depends only on item and attempt, so that every demo shows the same events.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256

from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.route import Route

parcels = Route("parcels", key="id")

DEPOTS = ("north", "east", "south", "west")


def parcel(number: int) -> dict[str, str]:
    """The input of the parcel with that number."""
    return {"id": f"P-{number:04d}", "depot": DEPOTS[number % len(DEPOTS)]}


def luck(item: Item, what: str) -> float:
    """A number from 0 to 1, the same whenever the same attempt is repeated."""
    digest = sha256(
        f"{item.key} {item.stage} {item.row.round} {item.attempt} {what}".encode()
    ).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


@parcels.stage(
    "weigh", retry=Backoff(attempts=4, base=0.5, factor=2, cap=5), timeout=5, concurrency=28
)
async def weigh(item: Item) -> Outcome:
    """The scale is quick, but sometimes busy."""
    await asyncio.sleep(0.04 + 0.16 * luck(item, "pace"))
    if luck(item, "fault") < 0.08:
        return Retry("the scale is busy", category="BUSY", after=0.5)
    return Done({"grams": 50 + round(4950 * luck(item, "grams"))})


@parcels.stage(
    "customs",
    retry=Backoff(attempts=3, base=0.8, factor=2, cap=5),
    checks=Checks(every="1s", up_to="2s"),
    concurrency=48,
)
async def customs(item: Item) -> Outcome:
    """Customs is slow; some papers are refused until an operator retries them."""
    await asyncio.sleep(0.02 + 0.15 * luck(item, "pace"))
    if luck(item, f"queue {item.row.looks}") < 0.3 and item.row.looks < 2:
        return NotYet(note="in the queue at customs")
    if item.row.round == 1 and sha256(item.key.encode()).digest()[0] < 3:
        return Reject("the declaration is not signed", category="PAPERS")
    if luck(item, "fault") < 0.05:
        return Retry("customs' system answered 503", category="HTTP", http_status=503)
    return Done({"cleared": True})


@parcels.stage(
    "deliver",
    retry=Backoff(attempts=3, base=0.8, factor=2, cap=5),
    timeout=3,
    concurrency=24,
    lane=lambda content: content["depot"],
)
def deliver(item: Item) -> Outcome:
    """A plain function, so it runs in a thread. Deliveries to the west often fail."""
    time.sleep(0.02 + 0.08 * luck(item, "pace"))
    if luck(item, "fault") < (0.35 if item.lane == "west" else 0.03):
        raise ConnectionError(f"the depot in the {item.lane} does not answer")
    return Done({"signed_by": "the neighbour" if luck(item, "who") < 0.3 else "the addressee"})
