"""The configuration of the stages: a JSON list of queues in order, checked before anything is made of it."""

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
    """When a worker looks again at what is not there yet, and after how long people are told that it is late."""

    every: str | None = None
    up_to: str | None = None
    overdue: str | None = None


class Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One stage. Only its name and its place among the others must be given."""

    queue_alias: str
    queue_order: int
    queue_url: str | None = None
    """Where a confirmer of somebody else's waits for messages; without it the ledger has a queue of its own."""
    status_text: str | None = None
    """What is told when the stage is confirmed."""
    worker: str = "external"
    """Who confirms: somebody else ("external"), or a worker of ours that looks into the repository ("ocfl") or asks for the tapes
    ("scoutam")."""
    checks: Schedule = Schedule()
    resend_after: str | None = None
    """After how long a confirmer of somebody else's is sent the same again; without it, as long as its queue keeps messages."""
    rate: str | None = None
    concurrency: int | None = None


def read_queues(given: str | Path | Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> list[Queue]:
    """The queues in their order: from a JSON file, JSON text, or a list. Raises mp.ConfigMistake that says what is wrong.

    `texts` are what is told when a stage of that name is confirmed; one that is not among them must say it by itself.
    """
    queues = _decoded(given)
    for queue in queues:
        if queue.queue_alias not in texts and queue.status_text is None:
            raise mp.ConfigMistake(
                f"Unsupported queue, {queue.queue_alias!r} found in the configuration. Is the name spelled right? A stage beside"
                f" {', '.join(texts)} must say what is told when it is confirmed: statusText"
            )
        if queue.worker not in WORKERS:
            raise mp.ConfigMistake(f"queue {queue.queue_alias!r} has the worker {queue.worker!r}; there are {', '.join(WORKERS)}")
    _check_orders([queue.queue_order for queue in queues])
    _check_unique(queues)
    return sorted(queues, key=lambda queue: queue.queue_order)


def _decoded(given: str | Path | Sequence[Mapping[str, Any]]) -> list[Queue]:
    where, content = "", given
    if isinstance(given, Path) or (isinstance(given, str) and not given.lstrip().startswith(("[", "{"))):
        where = f" in {given}"
        try:
            content = Path(given).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise mp.ConfigMistake(f"Unable to decode queues from the configuration: {given} cannot be read: {error}") from None
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
        raise mp.ConfigMistake(f"Config does not have a queue with queueOrder 1; it has {', '.join(map(str, sorted(orders)))}")
    if len(set(orders)) < len(orders):
        twice = sorted(order for order, times in Counter(orders).items() if times > 1)
        raise mp.ConfigMistake(f"Config has more than 1 queue with the same queueOrder: {', '.join(map(str, twice))}")
    if sorted(orders) != list(range(1, len(orders) + 1)):
        raise mp.ConfigMistake(f"Config does not have queues in sequential order: {', '.join(map(str, sorted(orders)))}")


def _check_unique(queues: Sequence[Queue]) -> None:
    clashes = []
    for name, values in (
        ("queueAlias", [queue.queue_alias for queue in queues]),
        ("queueUrl", [queue.queue_url for queue in queues]),
        ("statusText", [queue.status_text for queue in queues]),
    ):
        clashes += [(name, value) for value, times in Counter(values).items() if times > 1 and value is not None]
    if clashes:
        told = "\n".join(f"Property: {name}, Value: {value}" for name, value in clashes)
        raise mp.ConfigMistake(f"The values in each queue should be unique but there is more than 1 queue with:\n{told}")
