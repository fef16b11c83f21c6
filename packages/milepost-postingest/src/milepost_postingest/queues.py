"""Configuration of the stages: a JSON list of queues in order, validated before use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import milepost as mp

WORKERS = ("external", "ocfl", "scoutam")


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When a worker checks a missing asset again, and after how long the asset is reported as
    overdue."""

    every: str | None = None
    up_to: str | None = None
    overdue: str | None = None


class Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One stage. Only its name and its order are required."""

    queue_alias: str
    queue_order: int
    queue_url: str | None = None
    """Queue of an external confirmer; without it the ledger has a queue of its own."""
    status_text: str | None = None
    """Text of the notification when the stage is confirmed."""
    worker: str = "external"
    """The confirmer: a partner ("external"), or a worker of ours that checks the repository
    ("ocfl") or the tapes ("scoutam")."""
    checks: Schedule = Schedule()
    resend_after: str | None = None
    """Time after which an external confirmer gets the message again; default: the retention of its
    queue."""
    rate: str | None = None
    concurrency: int | None = None


def read_queues(
    given: str | Path | Sequence[Mapping[str, Any]], texts: Mapping[str, str]
) -> list[Queue]:
    """The queues in their order: from a JSON file, JSON text, or a list. Raises mp.ConfigMistake
    that says what is wrong.

    `texts` are the notifications by stage name; a stage that is not among them must have its own
    text.
    """
    queues = _decoded(given)
    for queue in queues:
        if queue.queue_alias not in texts and queue.status_text is None:
            raise mp.ConfigMistake(
                f"Unsupported queue, {queue.queue_alias!r} found in the configuration. Is the name spelled right? A stage beside"
                f" {', '.join(texts)} needs the text of its notification: statusText"
            )
        if queue.worker not in WORKERS:
            raise mp.ConfigMistake(
                f"queue {queue.queue_alias!r} has the worker {queue.worker!r}; there are {', '.join(WORKERS)}"
            )
    _check_orders([queue.queue_order for queue in queues])
    _check_unique(queues)
    return sorted(queues, key=lambda queue: queue.queue_order)


def _decoded(given: str | Path | Sequence[Mapping[str, Any]]) -> list[Queue]:
    where, content = "", given
    if isinstance(given, Path) or (
        isinstance(given, str) and not given.lstrip().startswith(("[", "{"))
    ):
        where = f" in {given}"
        try:
            content = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise mp.ConfigMistake(
                f"Unable to decode queues from the configuration: {given} cannot be read: {error}"
            ) from None
    try:
        plain = json.loads(content) if isinstance(content, str) else content
        return msgspec.convert(plain, list[Queue])
    except (ValueError, TypeError, RecursionError) as error:
        raise mp.ConfigMistake(
            f"Unable to decode queues from the configuration{where}: {error}. It is a list of objects such as"
            ' {"queueAlias": "CC", "queueOrder": 1, "queueUrl": "…"}'
        ) from None


def _check_orders(orders: list[int]) -> None:
    if not orders:
        raise mp.ConfigMistake("No queues found in the configuration")
    if 1 not in orders:
        raise mp.ConfigMistake(
            f"Config does not have a queue with queueOrder 1; it has {', '.join(map(str, sorted(orders)))}"
        )
    if len(set(orders)) < len(orders):
        twice = sorted(order for order, times in Counter(orders).items() if times > 1)
        raise mp.ConfigMistake(
            f"Config has more than 1 queue with the same queueOrder: {', '.join(map(str, twice))}"
        )
    if sorted(orders) != list(range(1, len(orders) + 1)):
        raise mp.ConfigMistake(
            f"Config does not have queues in sequential order: {', '.join(map(str, sorted(orders)))}"
        )


def _check_unique(queues: Sequence[Queue]) -> None:
    clashes = []
    for name, field in (
        ("queueAlias", "queue_alias"),
        ("queueUrl", "queue_url"),
        ("statusText", "status_text"),
    ):
        values = Counter(getattr(queue, field) for queue in queues)
        clashes += [
            (name, value) for value, times in values.items() if times > 1 and value is not None
        ]
    if clashes:
        listed = "\n".join(f"Property: {name}, Value: {value}" for name, value in clashes)
        raise mp.ConfigMistake(
            f"The values in each queue should be unique but there is more than 1 queue with:\n{listed}"
        )
