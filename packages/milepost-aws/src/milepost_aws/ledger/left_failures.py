"""Notes of failed items whose rows leave: a seal cannot be found by the beginning of its key, a
note can.

A note is written before its row gets a time to live or is removed, and means nothing by itself:
whoever reads it looks at row and seal. The seals of an existing deployment that were written before
there were notes are noted once, by the repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct

from milepost.core.status import FAILED
from milepost.ports.items import KnownKey
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.tables.documents import Control
from milepost_aws.ledger.tables.keys import Image
from milepost_aws.ledger.tables.seals import seal_of

LEFT = "left#"
"""Kind of the notes of a route: with its name behind."""
NOTED = "left"
"""Kind of a route's document that says how far its old seals have been noted."""


class NotingProgress(Struct, frozen=True):
    """How far the old seals of a route have been noted."""

    done: bool = False
    after: Image | None = None
    """The key of the last seal read."""


class LeftNotes:
    """The notes of all routes of one deployment."""

    def __init__(self, requests: Requests, names: ResourceNames, control: Control) -> None:
        self._requests, self._names, self._control = requests, names, control
        self._complete: set[str] = set()
        """Routes whose old seals are known to be noted."""

    def write(self, route: str, keys: Iterable[str]) -> None:
        """Note these keys; a repeat changes nothing."""
        self._requests.each([partial(self._control.write, LEFT + route, key, {}) for key in keys])

    def remove(self, route: str, keys: Iterable[str]) -> None:
        """Remove the notes of keys that the route has forgotten."""
        self._requests.each([partial(self._control.write, LEFT + route, key, None) for key in keys])

    def keys(self, route: str, prefix: str, after: str | None, limit: int) -> list[str]:
        """The noted keys with this prefix, in order."""
        return self._control.page_of_names(LEFT + route, prefix, after, limit)

    # Seals from before there were notes -----------------------------------------------------------
    def complete(self, route: str) -> bool:
        """Whether every seal of the route that needs a note has one."""
        if route not in self._complete and self._progress(route).done:
            self._complete.add(route)
        return route in self._complete

    def begin(self, route: str) -> None:
        """The route is new in this deployment: it has no seals."""
        self._save(route, NotingProgress(done=True))

    def note_page(self, route: str, limit: int) -> int:
        """Note the failed ones among the next seals; returns how many were read."""
        start = self._progress(route).after
        page = self._requests.page(
            "scan", self._names.seen, start, Limit=limit, ConsistentRead=True
        )
        images: Sequence[Image] = page["Items"]
        seals: list[KnownKey] = [
            seal_of(image, route) for image in images if image["route"]["S"] == route
        ]
        self.write(route, [seal.key for seal in seals if seal.status in FAILED])
        last = page.get("LastEvaluatedKey")
        self._save(route, NotingProgress(last is None, last))
        return len(images)

    def _progress(self, route: str) -> NotingProgress:
        document = self._control.read_one(NOTED, route)
        return (
            NotingProgress()
            if document is None
            else NotingProgress(document.value["done"], document.value["after"])
        )

    def _save(self, route: str, progress: NotingProgress) -> None:
        self._control.write(NOTED, route, {"done": progress.done, "after": progress.after})
