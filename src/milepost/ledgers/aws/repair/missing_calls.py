"""Estimate of how many items wait for a message that their queue no longer holds."""

from __future__ import annotations

TOLERANCE = 50
"""SQS counts are approximate: beside a backlog, a difference below one in so many is not treated as a loss yet."""


def missing_calls(queued: int, others: int, visible: int, in_flight: int, delayed: int) -> int:
    """How many of a stage's `queued` items have no message, as far as the counts show.

    `others` are items of the same queue that may have a message too: those claimed, and those due for a look soon. Two conditions
    must both hold: more items are queued than messages are visible, and there are more items than messages altogether. So a backlog
    whose messages are in the queue is never sent again, however old it is. Since each new message counts, at most the missing
    number is sent.
    """
    missing = min(queued - visible, queued + others - visible - in_flight - delayed)
    return max(0, missing) if missing * TOLERANCE > visible else 0
