"""The context that every part of an application is given: its settings, and operations on the open ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from milepost.application.documents import AppDocuments
from milepost.application.settings import S
from milepost.core.errors import UsageError
from milepost.operations import Operations

if TYPE_CHECKING:
    from milepost.engine.context import Context


class AppContext(Operations, Generic[S]):
    """An application that runs on a ledger. `name` is the application's, `settings` its settings; items are handed over, looked at and
    corrected with the methods of `Operations`. A command with `ledger="none"` has the settings alone."""

    def __init__(self, name: str, settings: S, context: Context | None) -> None:
        self.name = name
        self.settings = settings
        self._opened = context

    @property
    def documents(self) -> AppDocuments:
        """The application's documents: small named values that all processes share through the ledger."""
        return AppDocuments(self.context, self.name)

    @property
    def context(self) -> Context:
        """The ledger with its routes, for Milepost's own parts; it is not part of the public surface."""
        if self._opened is None:
            raise UsageError(f"this command of {self.name!r} opens no ledger; declare it with ledger='read' or ledger='write'")
        return self._opened
