"""Finding the culprit in a failed batch: halve it until the item that breaks it is alone. No I/O: the caller makes the calls."""

from __future__ import annotations

from collections.abc import Generator

from milepost.core.item import Item
from milepost.core.outcome import Outcome, Retry, as_outcome

Answer = object
"""What a call brought: a list of outcomes, or the Retry that stands for its failure."""


def call_budget(size: int) -> int:
    """How many calls a batch may take in all: 2·log2(n) + 2."""
    return 2 * (size - 1).bit_length() + 2


def halving(items: list[Item]) -> Generator[list[Item], Answer, dict[int, tuple[Outcome, bool]]]:
    """Yields the items of the next call and is sent its answer; returns each item's (outcome, failed alone), by position.

    Nobody is counted for a call that failed with others in it, except what is still unsettled when the budget is used up.
    """
    settled: dict[int, tuple[Outcome, bool]] = {}
    groups = [list(range(len(items)))]
    failure = Retry("the batch failed", category="BATCH_FAILED")
    for _ in range(call_budget(len(items))):
        if not groups:
            break
        group = groups.pop()
        answer = yield [items[index] for index in group]
        if isinstance(answer, list) and len(answer) == len(group):
            settled |= {index: (as_outcome(one), False) for index, one in zip(group, answer, strict=True)}
            continue
        failure = answer if isinstance(answer, Retry) else _wrong_answer(answer, len(group))
        if len(group) == 1:
            settled[group[0]] = (failure, True)
        else:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    for group in groups:
        settled |= dict.fromkeys(group, (failure, False))
    return settled


def _wrong_answer(answer: object, wanted: int) -> Retry:
    got = f"{len(answer)} outcomes" if isinstance(answer, list) else type(answer).__name__
    return Retry(f"the handler returned {got} for {wanted} items; return a list with one outcome for each", category="WRONG_ANSWER")
