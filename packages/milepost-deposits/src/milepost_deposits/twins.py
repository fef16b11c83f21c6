"""Twins: the second search for deposits that may have two items in DSpace, hours after their
success, and the record of those that have.

An index that is behind hides an item for a while, and the submission service can make a second one
after it has died. So a deposit whose creation had an unknown result before, and every success of
the submission service, is searched for again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

import milepost as mp
from milepost_deposits.controls import LedgerControls
from milepost_deposits.doi import doi_or_none
from milepost_deposits.dspace.api import DSpace, open_dspace
from milepost_deposits.dspace.errors import DSpaceError
from milepost_deposits.dspace.login import LoginHold
from milepost_deposits.dspace.search import ItemSearch
from milepost_deposits.feed_places import place_at
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import IMPORTED, NOTES, SUBMIT, handle_in, result_in

CURSOR = "twin-search"
"""Name of the document that says up to which history line deposits have been searched for again."""
TWINS = "twins"
"""Name of the document with the DOIs that have two items."""
LATER = timedelta(hours=6)
"""Time after a success when DSpace is searched again: its index must know both items by then."""
FIRST = timedelta(days=7)
"""The first search begins so long ago."""
MOST_SEARCHED = 200
"""Searches of one call."""
MOST_KEPT = 500
PORTION = 1_000
BY = "search in DSpace"
NOTE = "twins"
"""The field of a note's data that has the names of the items."""
UNKNOWN_BEFORE = frozenset(
    {"retry", "exhausted", "rejected", "lost", "given-back", "late", "operator-retry"}
)
"""Reasons of history lines at the submit stage after which DSpace may have had an item already."""

log = logging.getLogger(__name__)


class Twins(msgspec.Struct, frozen=True):
    """The items of one DOI, by handle or UUID, and when they were found."""

    items: tuple[str, ...]
    at: str

    @property
    def text(self) -> str:
        return twins_text(self.items)


def twins_text(items: Sequence[str]) -> str:
    number = {2: "two", 3: "three"}.get(len(items), str(len(items)))
    return f"DSpace has {number} items of this DOI: {', '.join(items)}"


def twins(app: DepositsApp) -> dict[str, Twins]:
    """The DOIs that have two items in DSpace, by DOI."""
    document = app.documents.get(TWINS)
    return {} if document is None else msgspec.convert(document.value, dict[str, Twins])


def needs_second_search(view: Mapping[str, Any]) -> bool:
    """May a deposited DOI have a second item? The service may have made two, and so may a try after
    one whose result is unknown."""
    via = result_in(view, SUBMIT).get("via")
    if via in ("hand", IMPORTED):
        return False
    lines = [line for line in view.get("history") or () if line["stage"] == SUBMIT]
    return str(via).startswith("dss") or any(line["reason"] in UNKNOWN_BEFORE for line in lines)


def is_success(line: Mapping[str, Any]) -> bool:
    """Does this history line end the submission of a DOI with success? A note leaves a success as
    it is."""
    return (
        line["stage"] == SUBMIT
        and line.get("status") == "COMPLETED"
        and line["reason"] not in NOTES
    )


def find_twins(
    app: DepositsApp, dspace: DSpace | None = None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Search again for deposits whose time has come, record those with two items, and forget those
    that have one by now. The DOIs that were recorded. A search that fails, or that the index cannot
    answer, is made again by the next call."""
    url = app.settings.submit.dspace or app.settings.submit.search
    if url is None:
        return []
    if not twins(app) and next(_due_lines(app), None) is None:
        return []
    controls = LedgerControls(app.settings)
    controls.open(app)
    environment = os.environ if environment is None else environment
    client = dspace or open_dspace(
        app.settings, environment, url, now=app.time, guard=LoginHold(app.settings, controls)
    )
    try:
        _forget_settled(app, client)
        return _search_again(
            app, client, ItemSearch(client, app.settings, controls, apart_s=0.0, now=app.time)
        )
    except DSpaceError as error:
        log.warning("deposits could not be searched for again, and the next round does: %s", error)
        return []
    finally:
        if dspace is None:
            client.close()


def settle(app: DepositsApp, doi: str) -> Twins | None:
    """Take a DOI off the record, since a person has said which item is right; what was recorded.
    None: it was not on record."""

    def without(recorded: dict[str, Twins] | None) -> dict[str, Twins] | None:
        if recorded is None:
            return None
        return {other: items for other, items in recorded.items() if other != doi}

    recorded = app.documents.update(TWINS, dict[str, Twins], without).before
    return None if recorded is None else recorded.get(doi)


def twins_note(line: Mapping[str, Any]) -> tuple[str, ...]:
    """The items that a history line names as twins; empty: it is another line."""
    note = line.get("note")
    data: Any = (
        note.get("data") if line["reason"] == mp.Reason.NOTED and isinstance(note, dict) else None
    )
    items = data.get(NOTE) if isinstance(data, dict) else None
    return tuple(str(item) for item in items) if isinstance(items, list) else ()


# The second search --------------------------------------------------------------------------------
def _search_again(app: DepositsApp, dspace: DSpace, search: ItemSearch) -> list[str]:
    recorded: list[str] = []
    searches = 0
    for line in _due_lines(app):
        doi = line["key"]
        view = app.show(app.settings.route, doi)
        if view is not None and view["status"] == "COMPLETED" and needs_second_search(view):
            if searches == MOST_SEARCHED:
                break
            searches += 1
            items = _items_of(dspace, search, doi, view)
            if len(items) > 1 and _record(app, doi, items):
                recorded.append(doi)
        _move_cursor(app, line["seq"])
    return recorded


def _items_of(dspace: DSpace, search: ItemSearch, doi: str, view: Mapping[str, Any]) -> list[str]:
    """The items of a deposited DOI that are not withdrawn. The one that Milepost knows counts even
    if the index does not have it."""
    items = [item for item in search.items(doi) if not item.withdrawn]
    handle = handle_in(view)
    if handle is not None and all(item.handle != handle for item in items):
        known = dspace.item_of(handle)
        items += [known] if known is not None and not known.withdrawn else []
    return sorted({item.name for item in items})


def _due_lines(app: DepositsApp) -> Iterator[dict[str, Any]]:
    """The history lines of successes after the cursor that are old enough."""
    before = app.now() - LATER
    after = _cursor(app)
    while portion := app.feed(after, PORTION):
        for entry in portion:
            line = entry.public()
            if datetime.fromisoformat(line["at"]) > before:
                return
            if line["route"] == app.settings.route and is_success(line):
                yield line
        after = portion[-1].seq
        _move_cursor(app, after)


def _cursor(app: DepositsApp) -> int:
    document = app.documents.get(CURSOR)
    if document is not None:
        return int(document.value["after"])
    after = place_at(app, app.now() - FIRST)
    app.documents.put(CURSOR, {"after": after}, expect=0)
    return after


def _move_cursor(app: DepositsApp, after: int) -> None:
    document = app.documents.get(CURSOR)
    if document is not None and document.value["after"] < after:
        # False: another process has moved it.
        app.documents.put(CURSOR, {"after": after}, expect=document.version)


def _record(app: DepositsApp, doi: str, items: list[str]) -> bool:
    """Put a DOI on record, with a line in its history. False: it is on record."""

    def with_doi(present: dict[str, Twins] | None) -> dict[str, Twins]:
        recorded = present or {}
        if doi in recorded:
            return recorded
        if len(recorded) >= MOST_KEPT:
            raise DSpaceError(
                f"more than {MOST_KEPT} DOIs have two items; settle some of them first"
            )
        return {**recorded, doi: Twins(tuple(items), f"{app.now():%Y-%m-%dT%H:%M:%SZ}")}

    if not app.documents.update(TWINS, dict[str, Twins], with_doi).written:
        return False
    app.note(app.settings.route, doi, twins_text(items), by=BY, data={NOTE: items})
    log.error("%s: %s", doi, twins_text(items))
    return True


def _forget_settled(app: DepositsApp, dspace: DSpace) -> None:
    """Take DOIs off the record of which DSpace has one item by now: people have deleted the
    other."""
    for doi, recorded in twins(app).items():
        left = [name for name in recorded.items if _is_there(dspace, name)]
        if len(left) < 2 and settle(app, doi) is not None:
            app.note(
                app.settings.route,
                doi,
                f"DSpace has one item of this DOI now: {', '.join(left) or 'none of them'}",
                by=BY,
            )


def _is_there(dspace: DSpace, name: str) -> bool:
    item = dspace.item_of(name) if "/" in name else dspace.item(name)
    return item is not None and not item.withdrawn


def twins_of(app: DepositsApp, doi: str) -> Twins | None:
    """The items of this DOI on record; None: it is not on record."""
    known = doi_or_none(doi)
    return None if known is None else twins(app).get(known)
