"""Search for the items of a DOI that believes an empty answer only where the index has shown that
it can be used.

An index that is being rebuilt answers a search with nothing, as it does for a DOI that DSpace does
not have. So each search asks in the same request for a witness too: an item that DSpace is known to
have. Without the witness an empty answer proves nothing.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from milepost_deposits.controls import LedgerControls
from milepost_deposits.doi import doi_or_none
from milepost_deposits.dspace.api import DSpace, DSpaceItem, has_doi, query_for, quoted
from milepost_deposits.dspace.errors import IndexUnusable
from milepost_deposits.settings import DepositsSettings
from milepost_deposits.status_names import SUBMIT, result_in

DAY_S = 86_400.0
"""An item that DSpace has had for so long is known to its index, unless that is being rebuilt or is
damaged."""
MOST_WITNESSES = 20
RENEW_S, RENEW_NONE_S = 3600.0, 60.0
"""Seconds for which the deposits that the ledger has given are used, and for which its answer is
believed that it has none."""
URI_FIELD = "dc.identifier.uri"
ACCESSIONED = "dc.date.accessioned"
_REBUILD = "its index is being rebuilt, or is damaged; wait for the end of the rebuild, or have the index rebuilt"


class Witness(msgspec.Struct, frozen=True):
    """An item that DSpace is known to have. `doi`: it is found by this DOI, else by `uri`, a value
    of its own metadata."""

    name: str
    doi: str = ""
    uri: str = ""
    own: bool = False
    """It is a deposit of this ledger. People may have removed it from DSpace since."""

    def query(self, fields: Sequence[str]) -> str:
        """The Solr query for it, where these fields hold DOIs."""
        return (
            query_for(self.doi, fields, encoded=False)
            if self.doi
            else f"{URI_FIELD}:{quoted(self.uri)}"
        )

    def is_among(self, items: Sequence[DSpaceItem], fields: Sequence[str]) -> bool:
        if self.doi:
            return any(has_doi(item.metadata, self.doi, fields) for item in items)
        return any(self.uri in item.values(URI_FIELD) for item in items)


class ItemSearch:
    """Searches of one process; threads share what it knows about the index. `apart_s`: most seconds
    that the index is behind."""

    def __init__(
        self,
        dspace: DSpace,
        settings: DepositsSettings,
        controls: LedgerControls,
        *,
        apart_s: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._dspace, self._settings, self._controls = dspace, settings, controls
        self._apart_s, self._now = apart_s, now
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self._deposits: list[Witness] = []
        self._deposits_at = -RENEW_S
        self._listed: Witness | None = None

    def items(self, doi: str) -> list[DSpaceItem]:
        """The items with this DOI. None: DSpace has none, as far as an index can know that is at
        most `apart_s` behind. Raises IndexUnusable where an empty answer proves nothing, and
        another DSpaceError where a search fails."""
        fields = self._dspace.doi_fields
        for witness in self._witnesses():
            hits = self._dspace.search(f"{query_for(doi, fields)} OR {witness.query(fields)}")
            items = self._dspace.having(hits, doi)
            if items or witness.is_among(hits, fields):
                return items
            if not witness.own:
                raise IndexUnusable(
                    f"DSpace's search does not find {witness.name}, which DSpace has: {_REBUILD}"
                )
            self._check_removed(witness)
        return self._dspace.find(doi) or self._read(doi)

    def _witnesses(self) -> Iterator[Witness]:
        """Items that DSpace is known to have: deposits of this ledger, another one at each search,
        else what the settings name, else one that was read from DSpace's own list."""
        deposits = self._own_deposits()
        start = next(self._turn) % len(deposits) if deposits else 0
        yield from deposits[start:] + deposits[:start]
        canary = doi_or_none(self._settings.submit.canary)
        if canary is not None:
            yield Witness(f"{canary} ([deposits.submit] canary)", doi=canary)
        elif self._listed is not None:
            yield self._listed

    def _own_deposits(self) -> list[Witness]:
        with self._lock:
            now = self._now()
            valid_s = RENEW_S if self._deposits else RENEW_NONE_S
            if not 0 <= now - self._deposits_at < valid_s:
                dois = self._controls.deposited_before(
                    now - DAY_S
                ) or self._controls.deposited_before(now - self._apart_s)
                self._deposits = [Witness(doi, doi=doi, own=True) for doi in dois[:MOST_WITNESSES]]
                self._deposits_at = now
            return list(self._deposits)

    def _check_removed(self, witness: Witness) -> None:
        """Forget a deposit that the search does not find, if DSpace has it no more. Raises
        IndexUnusable if it has."""
        item = self._deposited_item(witness.doi)
        visible = item is not None and (
            self._dspace.administrator or (item.discoverable and not item.withdrawn)
        )
        if item is not None and visible and self._dspace.having([item], witness.doi):
            raise IndexUnusable(
                f"DSpace's search does not find {witness.name} (item {item.name}), which DSpace has: {_REBUILD}"
            )
        with self._lock:
            self._deposits = [known for known in self._deposits if known != witness]

    def _deposited_item(self, doi: str) -> DSpaceItem | None:
        """The item of a DOI that was deposited, without the index."""
        result = result_in(self._controls.view(doi), SUBMIT)
        uuid, handle = result.get("uuid"), result.get("handle")
        if isinstance(uuid, str):
            return self._dspace.item(uuid)
        return self._dspace.item_of(handle) if isinstance(handle, str) else None

    def _read(self, doi: str) -> list[DSpaceItem]:
        """The answer of DSpace's own list of items, where no witness is known: in a small
        repository the list itself, else an item in it is the witness."""
        listed = self._dspace.first_items()
        if listed is None:
            raise IndexUnusable(
                "whether DSpace's search can be relied on is not known: set [deposits.submit] canary to a DOI that DSpace has had for a day"
            )
        items, all_of_them = listed
        if all_of_them:
            return self._dspace.having(items, doi)
        old = next(
            (
                item
                for item in items
                if item.values(URI_FIELD) and _is_older(item, self._now() - DAY_S)
            ),
            None,
        )
        if old is None:
            raise IndexUnusable(
                "whether DSpace's search can be relied on is not known, since all items that it lists are younger than a day: wait for a day, or"
                " set [deposits.submit] canary to a DOI that DSpace has"
            )
        self._listed = Witness(old.name, uri=old.values(URI_FIELD)[0])
        return self.items(doi)


def _is_older(item: DSpaceItem, moment: float) -> bool:
    """Has DSpace had the item since before this time? An edit changes only the time of its last
    change."""
    times = [*item.values(ACCESSIONED), item.last_modified]
    return any(seconds is not None and seconds < moment for seconds in map(_seconds, times))


def _seconds(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None
