"""Context that every part of an application gets: its settings, its documents, and operations on
the open ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from milepost.application.settings import S
from milepost.core.errors import UsageError
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, start_ms
from milepost.operations import Operations
from milepost.ports import documents as control_documents
from milepost.ports.documents import APPLICATION, TALLY, Document, Updated
from milepost.ports.observer import correlation_id as current_correlation_id

T = TypeVar("T")

LARGEST = 200_000
"""Bytes of a document as JSON: it is stored as one value in every ledger."""
LONGEST_NAME = 200


class AppDocuments:
    """The documents of one application, by name. A value is any JSON value. Each write raises the
    document's version by one; a write that names the version it has read fails if another process
    has written meanwhile."""

    def __init__(self, context: Context, application: str, kind: str = APPLICATION) -> None:
        self._context, self._prefix, self._kind = context, f"{application}/", kind

    def get(self, name: str) -> Document | None:
        """The document with its version; None: there is none."""
        return self._context.ledger.read_one(self._kind, self._prefix + name)

    def find(self, prefix: str = "") -> dict[str, Document]:
        """All documents whose names begin with this, by name. All documents of all applications are
        read: keep them few."""
        found = self._context.ledger.read(self._kind)
        start = self._prefix + prefix
        return {
            name.removeprefix(self._prefix): found[name]
            for name in sorted(found)
            if name.startswith(start)
        }

    def put(self, name: str, value: Any, expect: int | None = None) -> bool:
        """Write a document. `expect` is the version that it must have now, 0 if it must not exist;
        False: it has another one."""
        _check(name, value)
        return self._context.ledger.write(self._kind, self._prefix + name, value, expect=expect)

    def update(
        self, name: str, form: type[T], change: Callable[[T | None], T | None]
    ) -> Updated[T, T | None]:
        """Change a document, whatever other processes write meanwhile. `change` gets its value as
        this type (None: there is none) and returns the new one (None: remove it); an equal one is
        not written. If another process was first, `change` is called again with what that one has
        written. Returns what it was `before` and is `after`, and whether it was `written`."""

        def checked(value: T | None) -> T | None:
            after = change(value)
            _check(name, after)
            return after

        ledger = self._context.ledger
        return control_documents.update(ledger, self._kind, self._prefix + name, form, checked)

    def remove(self, name: str, expect: int | None = None) -> bool:
        """Remove a document. False: there is none, or it has another version than `expect`."""
        held = self.get(name)
        if held is None or (expect is not None and held.version != expect):
            return False
        return self._context.ledger.write(
            self._kind, self._prefix + name, None, expect=held.version
        )


def _check(name: str, value: Any) -> None:
    """UsageError unless a document can have this name and this value."""
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"invalid name of a document {name!r}; use printable text of at most {LONGEST_NAME} characters"
        )
    size = len(msgspec.json.encode(value))
    if size > LARGEST:
        raise UsageError(
            f"the document {name!r} has {size:,} bytes; at most {LARGEST:,} are kept in one"
        )


class SharedSubmits(Protocol):
    """The HTTP server's submits: those that wait at the same time are written with one commit."""

    async def submit(
        self,
        route: str,
        content: Any,
        by: str,
        not_before: int | None = None,
        correlation_id: str | None = None,
    ) -> Receipt:
        """Submit one item; it is durable when this returns. `not_before` is in milliseconds since
        1970."""


class AppContext(Operations, Generic[S]):
    """An application on a ledger. `name` is the application's, `settings` its settings, `state` the
    result of its `state` function. The methods of `Operations` submit, read and correct items. A
    command with `ledger="none"` has settings and state only."""

    def __init__(
        self,
        name: str,
        settings: S,
        context: Context | None,
        state: Any = None,
        submits: SharedSubmits | None = None,
        work: Callable[[float], None] | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.state = state
        self._opened = context
        self._submits = submits
        self._work = work

    @property
    def documents(self) -> AppDocuments:
        """The application's documents: small named values that all processes share through the
        ledger."""
        return AppDocuments(self.context, self.name)

    @property
    def tallies(self) -> AppDocuments:
        """Documents for counts alone. On AWS the function that answers callers may write these, and
        none of `documents`, which other parts of the application act on."""
        return AppDocuments(self.context, self.name, TALLY)

    @property
    def context(self) -> Context:
        """The ledger with its routes, for Milepost's own parts; it is not part of the public
        API."""
        if self._opened is None:
            raise UsageError(
                f"this command of {self.name!r} opens no ledger; declare it with ledger='read' or ledger='write'"
            )
        return self._opened

    def work(self, *, until_idle: float = 0) -> None:
        """Work in this process until no item is in progress, every event is delivered, and no item
        becomes due within `until_idle` seconds. For commands with `ledger="write"`, such as one
        that cron runs; elsewhere 'milepost up' works already. Ctrl-C and SIGTERM let running
        handlers finish, and then end the command (SystemExit)."""
        if self._work is None:
            raise UsageError(
                "work() is for commands that are declared with ledger='write'; elsewhere 'milepost up' does the work"
            )
        self._work(until_idle)

    async def submit_async(
        self,
        route: str,
        content: Any,
        *,
        by: str,
        not_before: str | None = None,
        correlation_id: str | None = None,
    ) -> Receipt:
        """Submit one item without blocking the event loop; a new item is on disk when this returns.
        In an endpoint, items that are submitted at the same time share one commit.
        `correlation_id`: by default that of the call."""
        given_id = correlation_id or current_correlation_id()
        if self._submits is not None:
            return await self._submits.submit(
                route, content, by, start_ms(self.context, not_before), given_id
            )
        receipts = await asyncio.to_thread(
            self.submit, route, content, by=by, not_before=not_before, correlation_id=given_id
        )
        return receipts[0]
