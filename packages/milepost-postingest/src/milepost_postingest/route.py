"""The route of an asset after its ingest, made from the configuration of its queues."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import milepost as mp
from milepost_postingest.answers import accepts_of, next_payload, waits
from milepost_postingest.dialects import ALIASES, INGESTED, TEXTS, form_of, message_of
from milepost_postingest.program import program_of
from milepost_postingest.queues import Queue, read_queues
from milepost_postingest.recheck import add_recheck

if TYPE_CHECKING:
    from milepost_postingest.custodial_copy import CustodialCopy
    from milepost_postingest.tape import Tape

RETRY = mp.Backoff(attempts=10, base="1m", cap="6h")
"""Failures here have causes that people correct: an item is tried for about a day before it
fails."""
CHECKS: dict[str, dict[str, str]] = {
    "ocfl": {"every": "1m", "up_to": "6h", "overdue": "7d"},
    "scoutam": {"every": "10m", "up_to": "12h", "overdue": "14d"},
}
OVERDUE = "30d"
"""For external stages: longer than queues keep messages, so that the message has been sent again by
then without an answer."""
CONCURRENCY = {"ocfl": 8, "scoutam": 4}
MEDIA = {"ocfl": "disk", "scoutam": "tape", "CC": "disk", "Scout": "tape", "TC": "tape"}
"""The storage medium of a stage, by its worker or by its name; for PREMIS."""
BATCHES = "batches"
"""The stage after all others, where an asset waits for its other batches: other systems delete
their copies when it is complete."""
SHOWN_BATCHES = 3

Handler = Any
"""Takes an item and returns an outcome."""


def postingest(
    queues: str | Path | Sequence[Mapping[str, Any]] | None = None,
    *,
    name: str = "postingest",
    dialect: str = "seed",
    workers: Mapping[str, Handler] | None = None,
    ingested_text: str = INGESTED,
    wait_for_batches: bool = False,
    recheck: str | timedelta | None = None,
    environment: Mapping[str, str] | None = None,
) -> mp.Route:
    """The route made of these queues: a JSON file, JSON text or a list (see
    docs/guides/postingest.md); without them the two stages that the dialect knows, both external.

    A queue with `"worker": "ocfl"` or `"scoutam"` is a stage of Milepost's own workers, set up from
    the environment (default `os.environ`) or from `workers`, by alias. With `wait_for_batches` an
    asset is not complete while another batch of it is unfinished. With `recheck="1y"` each
    completed asset is checked again every year, on the route NAME-recheck, for the stages that have
    a worker of ours. Stages are never skipped, and an asset's evidence outlives its row.
    """
    if dialect not in TEXTS:
        raise mp.ConfigMistake(f"the dialect is {dialect!r}; write 'seed' or 'today'")
    found = queues_of(queues, dialect)
    texts = {
        queue.queue_alias: queue.status_text or TEXTS[dialect][queue.queue_alias] for queue in found
    }
    route = mp.Route(
        name,
        key=("assetId", "batchId"),
        carries="input",
        keep="0s",
        skips=False,
        evidence=True,
        dialect=dialect,
        form=form_of(dialect, texts, ingested_text, quiet=[BATCHES] if wait_for_batches else []),
    )
    given_to = os.environ if environment is None else environment
    own = {
        queue.queue_alias: (workers or {}).get(queue.queue_alias)
        or FromEnvironment(queue.worker, given_to)
        for queue in found
        if queue.worker != "external" or queue.queue_alias in (workers or {})
    }
    for queue in found:
        _add(route, queue, texts[queue.queue_alias], dialect, own.get(queue.queue_alias))
    if wait_for_batches:
        route.stage(BATCHES, claims=False, checks=mp.Checks(every="1m", up_to="1h"), retry=RETRY)(
            OtherBatches()
        )
    if recheck is not None:
        checks = {
            alias: getattr(worker, "recheck", None) or getattr(worker, "check", None)
            for alias, worker in own.items()
        }
        add_recheck(
            route,
            {alias: check for alias, check in checks.items() if check is not None},
            recheck,
            RETRY,
        )
    return route


def queues_of(given: str | Path | Sequence[Mapping[str, Any]] | None, dialect: str) -> list[Queue]:
    """The given queues; without them the two stages of the dialect, both external."""
    usual = [
        {"queueAlias": alias, "queueOrder": order}
        for order, alias in enumerate(ALIASES[dialect], 1)
    ]
    return read_queues(usual if given is None else given, TEXTS[dialect])


def _add(route: mp.Route, queue: Queue, text: str, dialect: str, worker: Handler | None) -> None:
    alias, schedule = queue.queue_alias, queue.checks
    accepts = accepts_of(dialect, alias)
    if worker is None:
        route.external(
            alias,
            queue=queue.queue_url,
            resend_after=queue.resend_after,
            overdue=schedule.overdue or OVERDUE,
            accepts=accepts,
            next_payload=next_payload,
            announce=text,
            medium=MEDIA.get(alias),
            message=message_of(dialect),
            retry=RETRY,
        )
        return
    usual = CHECKS.get(queue.worker, CHECKS["ocfl"])
    route.stage(
        alias,
        claims=False,
        checks=mp.Checks(
            every=schedule.every or usual["every"],
            up_to=schedule.up_to or usual["up_to"],
            overdue=schedule.overdue or usual["overdue"],
        ),
        rate=queue.rate,
        concurrency=queue.concurrency or CONCURRENCY.get(queue.worker, 8),
        accepts=accepts,
        next_payload=next_payload,
        announce=text,
        medium=MEDIA.get(queue.worker) or MEDIA.get(alias),
        retry=RETRY,
    )(worker)


def open_worker(kind: str, env: Mapping[str, str]) -> CustodialCopy | Tape:
    """The worker that checks; it connects to nothing yet."""
    # Import the worker's dependencies only where it runs.
    if kind == "ocfl":
        from milepost_postingest.custodial_copy import CustodialCopy

        return CustodialCopy.from_environment(env)
    from milepost_postingest.tape import Tape

    return Tape.from_environment(env)


class FromEnvironment:
    """A worker of ours that reads its settings when it is first needed: a process that only submits
    or reads needs none of them."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        self._kind, self._environment = kind, environment
        self.program = program_of(kind)
        self._worker: Handler = None

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting is missing or wrong."""
        if self._worker is None:
            self._worker = open_worker(self._kind, self._environment)
            if self._kind == "ocfl":
                self._worker.ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        self.ready()
        outcome: mp.Outcome = self._worker(item)
        return outcome

    def check(self, payload: Any, absent: Callable[[str], mp.Outcome] = waits) -> mp.Outcome:
        """The worker's check of a payload, without an item."""
        self.ready()
        outcome: mp.Outcome = self._worker.check(payload, absent)
        return outcome

    def recheck(self, payload: Any, absent: Callable[[str], mp.Outcome] = waits) -> mp.Outcome:
        """The worker's check of a payload that it has confirmed before."""
        self.ready()
        outcome: mp.Outcome = getattr(self._worker, "recheck", self._worker.check)(payload, absent)
        return outcome


class Batch(Protocol):
    """What is known of another batch of an asset, by its row or by its seal."""

    @property
    def key(self) -> str: ...

    @property
    def stage(self) -> str: ...

    @property
    def status(self) -> mp.Status: ...


class OtherBatches:
    """Handler of a stage after all others. An item waits there while another batch of its asset has
    not arrived there and is not completed; a failed batch is waited for, since an operator will
    correct it, even if its row has left the ledger. The first batch to arrive does not delay the
    others."""

    def __init__(self) -> None:
        self._look: Callable[[str], Sequence[Batch]] | None = None

    def attach(self, look: Callable[[str], Sequence[Batch]]) -> None:
        """Called by the ledger's context with the function that finds the route's other items, and
        failed ones whose rows have left."""
        self._look = look

    def __call__(self, item: mp.Item) -> mp.Outcome:
        assert self._look is not None, "attach() was called when the route was opened"
        asset = item.key.partition("#")[0]
        try:
            batches = self._look(f"{asset}#")
        except mp.LedgerError as error:
            return mp.NotYet(
                note=f"all its stages are confirmed; the other batches of the asset cannot be seen: {error}"
            )
        behind = [other.key for other in batches if other.key != item.key and not _through(other)]
        if not behind:
            return mp.Done()
        named = ", ".join(key.partition("#")[2] for key in sorted(behind)[:SHOWN_BATCHES]) + (
            ", …" if len(behind) > SHOWN_BATCHES else ""
        )
        return mp.NotYet(
            note=f"all its stages are confirmed; other batches of the asset are not completed: {named}"
        )


def _through(batch: Batch) -> bool:
    return batch.stage == BATCHES or batch.status in (mp.Status.COMPLETED, mp.Status.CANCELLED)
