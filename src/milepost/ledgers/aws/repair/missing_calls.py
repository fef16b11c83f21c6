"""How many items wait for a message that their queue does not hold any more."""

from __future__ import annotations

TOLERANCE = 50
"""A queue says only roughly how many messages it holds: beside a backlog, less than one in so many is not taken for a loss yet."""


def missing_calls(queued: int, others: int, visible: int, in_flight: int, delayed: int) -> int:
    """How many of a stage's `queued` items have no message any more, as far as the numbers tell.

    `others` are items of the same queue that may have a message too: those in hand, and those to be looked at soon. Two bounds must
    both be passed: more items are queued than messages are visible, and all items together are more than all messages. So a
    backlog whose messages wait in the queue is never called again, however old it is; and since every call that is made again
    adds a message, no more than are missing are ever sent.
    """
    missing = min(queued - visible, queued + others - visible - in_flight - delayed)
    return max(0, missing) if missing * TOLERANCE > visible else 0
