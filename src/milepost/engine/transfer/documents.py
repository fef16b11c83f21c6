"""Transfer of documents: pauses, limits, breakers, back-fills, lists with their keys, acts, parked events, alerts, and those of applications."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from milepost.engine.alerts.record import AlertRecord
from milepost.engine.context import Context
from milepost.engine.ledger_pages import line_pages
from milepost.ports.documents import (
    ACT,
    ALERT,
    APPLICATION,
    BACK_FILL,
    BREAKER,
    HOLD,
    KEY,
    LIMIT,
    LIST,
    PARKED,
    TALLY,
    Document,
    ListRecord,
    Moving,
    Parked,
    read_as,
)

CARRIED = (HOLD, LIMIT, BREAKER, BACK_FILL, LIST, ACT, PARKED, ALERT, APPLICATION, TALLY)
LINES = 500

Place = Callable[[int], int]
"""The place in the target's feed of the last line that was moved from up to this place."""
Translation = Callable[[str, Any, Place], Any]
"""A document of an application, by its name, as it must be in the target."""


class DocumentTransfer:
    """The documents that move with some routes. `applications` are those whose routes all move, each with the translation of its documents."""

    def __init__(self, source: Context, routes: Sequence[str], applications: Mapping[str, Translation]) -> None:
        self._source, self._routes, self._applications = source, routes, applications

    def carried(self) -> Iterator[tuple[str, str, Document]]:
        """Kind, name and document of those that move."""
        for kind in CARRIED:
            for name, document in self._source.ledger.read(kind).items():
                if self._concerns(kind, name, document.value):
                    yield kind, name, document

    def left(self) -> list[str]:
        """Documents that people might expect in the new ledger and that stay in the old one: documents of other applications, and API keys."""
        documents = [
            f"document {name}"
            for kind in (APPLICATION, TALLY)
            for name in self._source.ledger.read(kind)
            if name.split("/", 1)[0] not in self._applications
        ]
        return documents + [f"API key {name}" for name in self._source.ledger.read(KEY)]

    def carry(self, target: Context, moving: Moving) -> tuple[int, int]:
        """Copy them; existing documents stay. The numbers of documents and of blobs."""
        documents = blobs = 0
        for kind, name, document in self.carried():
            value = document.value
            if kind == LIST:
                blobs += copy_blob(self._source, target, read_as(ListRecord, value).keys_blob)
            if kind in (APPLICATION, TALLY):
                application, _, own = name.partition("/")
                value = self._applications[application](own, value, lambda place: self._place(target, moving, place))
            if not (kind == HOLD and name in self._routes):
                target.ledger.write(kind, name, value, expect=0)
            documents += 1
        return documents, blobs

    def _concerns(self, kind: str, name: str, value: Any) -> bool:
        if kind in (HOLD, LIMIT, BREAKER, BACK_FILL):
            return name.split("/", 1)[0] in self._routes
        if kind in (APPLICATION, TALLY):
            return name.split("/", 1)[0] in self._applications
        if kind == PARKED:
            return read_as(Parked, value).route in self._routes
        if kind == ALERT:
            return read_as(AlertRecord, value).trouble.route in self._routes
        assert isinstance(value, dict)
        return value["route"] in self._routes

    def _place(self, target: Context, moving: Moving, place: int) -> int:
        """Lines keep their order: the n-th that was moved is the n-th of these routes there."""
        if place >= moving.lines:
            return moving.place
        moved = (line.seq for lines in line_pages(self._source.ledger, 0, LINES) for line in lines if line.route in self._routes)
        number = sum(1 for seq in moved if seq <= place)
        there = (line.seq for lines in line_pages(target.ledger, moving.since, LINES) for line in lines if line.route in self._routes)
        return next((seq for n, seq in enumerate(there, 1) if n == number), moving.since)


def copy_blob(source: Context, target: Context, name: str) -> int:
    """1: the blob is copied; 0: there is none to copy."""
    if not name:
        return 0
    target.blobs.write(name, source.blobs.read(name))
    return 1
