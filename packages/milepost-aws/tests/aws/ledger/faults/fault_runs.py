"""Runs of the scene with faults: which calls are spoilt, and which of them alone is to blame when a
run fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.aws.ledger.faults.fault_scene import (
    Process,
    Scene,
    Turn,
    check_gone,
    check_whole,
    plainly,
    see_through,
    take_down,
)

from milepost_aws.aws_model import Faults

NOT_TRIED_AGAIN = ("twice", "dup")
MOST_CALLS = 3000

STORIES = {
    "a": [
        *(
            ("accepted", "pack", "PENDING"),
            ("advanced", "pack", "PENDING"),
            ("offered", "ship", "QUEUED"),
        ),
        ("confirmed", "ship", "COMPLETED"),
    ],
    "b": [
        *(
            ("accepted", "pack", "PENDING"),
            ("retry", "pack", "RETRY_SCHEDULED"),
            ("not-yet", "pack", "WAITING"),
        ),
        *(
            ("advanced", "pack", "PENDING"),
            ("offered", "ship", "QUEUED"),
            ("resent", "ship", "QUEUED"),
        ),
        ("confirmed", "ship", "COMPLETED"),
    ],
}
STORIES["c"] = STORIES["a"]
"""What each parcel goes through, whatever passing fault is met."""


class Spot(NamedTuple):
    """The nth call of an operation that is wished for: what is tried again after a fault is the
    same wish."""

    operation: str
    nth: int
    kind: str


def planned(spots: Sequence[Spot]) -> Faults:
    """Faults at these wishes. A call is one attempt, so each fault that is tried again moves the
    later ones on by one."""
    faults, before = Faults(), dict[str, int]()
    for spot in sorted(spots, key=lambda spot: spot.nth):
        faults.plan((spot.operation, spot.nth + before.get(spot.operation, 0)), spot.kind)
        if spot.kind not in NOT_TRIED_AGAIN:
            before[spot.operation] = before.get(spot.operation, 0) + 1
    return faults


def run(
    scene: Scene, faults: Faults, careful: Callable[[Turn], None] = plainly, *, exact: bool = True
) -> None:
    """The whole life with these faults, and everything that must be true of it, as a process that
    meets none sees it. `exact`: nobody gave up, so nothing was done or told a second time."""
    process, witness = Process(scene, faults.attach), Process(scene)
    try:
        see_through(scene, lambda: process, careful)
        stories = check_whole(scene, witness, exact=exact)
        take_down(scene, lambda: process, careful)
        # Whoever gives up a removal that was carried out all the same finds no row the next time,
        # and its lines stay.
        check_gone(scene, witness, exact=exact, evidence=not exact)
    finally:
        process.close()
        witness.close()
    if exact:
        assert stories == STORIES
        assert scene.packed == {"a": 1, "b": 3, "c": 1}
        assert scene.receipts == {"a": "new", "b": "new"}


def fired(faults: Faults, spots: Sequence[Spot]) -> list[Spot]:
    """Those of the planned spots that came up."""
    met = {(call.operation, call.nth) for call, _ in faults.fired}
    found, before = [], dict[str, int]()
    for spot in sorted(spots, key=lambda spot: spot.nth):
        if (spot.operation, spot.nth + before.get(spot.operation, 0)) in met:
            found.append(spot)
        if spot.kind not in NOT_TRIED_AGAIN:
            before[spot.operation] = before.get(spot.operation, 0) + 1
    return found


def to_blame(new_scene: Callable[[], Scene], spots: Sequence[Spot], error: Exception) -> str:
    """The one fault that is enough, found by halving; or that only several together do this."""
    while len(spots) > 1:
        half = len(spots) // 2
        for part in (spots[:half], spots[half:]):
            try:
                run(new_scene(), planned(part))
            except Exception as again:
                spots, error = part, again
                break
        else:
            break
    return f"{'; '.join(f'{spot.kind} at {spot.operation} number {spot.nth}' for spot in spots)}: {type(error).__name__}: {error}"
