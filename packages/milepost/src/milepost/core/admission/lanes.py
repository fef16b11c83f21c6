"""Fair lanes: how free slots are shared out among the lanes of a stage. A full lane
(`Controls.cap`) gets none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

L = TypeVar("L")


def fair_shares(left: int, in_hand: Sequence[int]) -> list[int]:
    """The number of `left` items that each lane gets, given the items that it already holds: as if
    every item went to the lane with the fewest, the first of these."""
    level = _level(left, in_hand)
    # The level takes a little more than there is: the last lanes are filled to one below it.
    spare = sum(level - held for held in in_hand if held < level) - left
    shares: list[int] = []
    for held in reversed(in_hand):
        lower = held < level and spare > 0
        spare -= lower
        shares.append(max(0, level - held - lower))
    return shares[::-1]


def _level(left: int, in_hand: Sequence[int]) -> int:
    """The lowest number of held items to which all lanes below it can be filled with `left` items,
    rounded up."""
    ordered = sorted(in_hand)
    total = left
    for count, held in enumerate(ordered, 1):
        total += held
        level = -(-total // count)
        if count == len(ordered) or level <= ordered[count]:
            return level
    return 0


def share_out(
    want: int,
    lanes: Sequence[L],
    in_hand: Callable[[L], int],
    known: int,
    take: Callable[[L, int], int],
) -> int:
    """Share `want` items out among the lanes, in this order if they are equal; returns the number
    of items left over.

    `take(lane, share)` takes up to `share` items of a lane and returns how many it got: fewer than
    its share means that the lane has no more, or is full. The others share the rest. `in_hand` also
    counts the items just taken. `known` is the number of lanes of the stage, including those
    without work now: if there are several, the last lane with work is filled to at most half, since
    work for the others may arrive at any moment.
    """
    left, half = want, -(-(want + sum(map(in_hand, lanes))) // 2)
    while lanes and left > 0:
        held = [in_hand(lane) for lane in lanes]
        shares = (
            fair_shares(left, held)
            if len(lanes) > 1 or known < 2
            else [max(0, min(left, half - held[0]))]
        )
        unfilled: list[L] = []
        for lane, share in zip(lanes, shares, strict=True):
            got = take(lane, share) if share else 0
            left -= got
            if got == share:
                unfilled.append(lane)
        if len(unfilled) == len(lanes):
            break
        lanes = unfilled
    return left
