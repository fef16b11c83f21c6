"""Bisection of a failed batch, to find the item that makes the call fail. The caller makes the
calls."""

from __future__ import annotations

import math
from collections.abc import Generator

from milepost.core.item import Item
from milepost.core.outcome import Outcome, Retry, as_outcome

Answer = object
"""Result of a call: a list of outcomes, or the Retry for its failure."""


def call_budget(size: int) -> int:
    """Most calls for one batch: 2·log2(n) + 2, rounded down."""
    return int(2 * math.log2(size) + 2)


def halving(items: list[Item]) -> Generator[list[Item], Answer, dict[int, tuple[Outcome, bool]]]:
    """Yields the items of the next call and receives its result; returns (outcome, failed alone) by
    position.

    A failed call with several items counts for none of them, except for items unsettled when the
    budget is used up. One culprit takes at most log2(n) + 3 calls: a half that succeeds settles
    itself, and so the fault is in the other half, and all items set aside on the way are called
    together once the culprit is known.
    """
    settled: dict[int, tuple[Outcome, bool]] = {}
    blame: dict[int, Retry] = {}
    suspects = list(range(len(items)))
    set_aside: list[int] = []
    group = suspects
    for _ in range(call_budget(len(items))):
        answer = yield [items[index] for index in group]
        if isinstance(answer, list) and len(answer) == len(group):
            settled |= {
                index: (as_outcome(one), False) for index, one in zip(group, answer, strict=True)
            }
            suspects = suspects[len(group) :]
        else:
            failure = answer if isinstance(answer, Retry) else _wrong_answer(answer, len(group))
            blame |= dict.fromkeys(group, failure)
            set_aside = suspects[len(group) :] + set_aside
            suspects = group
            if len(group) == 1:
                settled[group[0]] = (failure, True)
                suspects = []
        if suspects:
            group = suspects[: max(1, len(suspects) // 2)]
        elif set_aside:
            group, suspects, set_aside = set_aside, set_aside, []
        else:
            break
    settled |= {index: (failure, False) for index, failure in blame.items() if index not in settled}
    return settled


def _wrong_answer(answer: object, wanted: int) -> Retry:
    got = f"{len(answer)} outcomes" if isinstance(answer, list) else type(answer).__name__
    return Retry(
        f"the handler returned {got} for {wanted} items; return a list with one outcome for each",
        category="WRONG_ANSWER",
    )
