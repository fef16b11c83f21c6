"""Handler: what a stage calls, and the optional parts of a handler that is an object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from milepost.core.item import Item
from milepost.core.routes.route import Handler
from milepost.ports.items import KnownKey

Find = Callable[[str], Sequence[Item | KnownKey]]
"""Finds the items of a route by the beginning of their key, and failed ones whose rows have
left."""


class HandlerObject(Protocol):
    """A handler that is an object. All but the call is optional: only the functions of this module
    ask which parts a handler has."""

    program: str
    """The name and version of the program; lines of its outcomes have it beside the worker's
    name."""

    def __call__(self, work: Any, /) -> Any:
        """The outcome of an item, or those of a list of items; or a coroutine of them."""

    def ready(self) -> None:
        """Called in each worker before any item is claimed. Raises if something is missing."""

    def attach(self, find: Find, /) -> None:
        """Called with a function that finds the route's items, when the route is opened."""

    def close(self) -> Awaitable[None] | None:
        """Called when the worker ends, after the last call; of an async handler on its event
        loop."""


AnyHandler = HandlerObject | Handler | None
"""The handler of a stage: an object with some of the parts, a function, or None where the stage has
no handler here."""


def program_of(handler: AnyHandler) -> str | None:
    program = getattr(handler, "program", None)
    return program if isinstance(program, str) else None


def ready_of(handler: AnyHandler) -> Callable[[], None] | None:
    return _method(handler, "ready")


def attach_of(handler: AnyHandler) -> Callable[[Find], None] | None:
    return _method(handler, "attach")


def close_of(handler: AnyHandler) -> Callable[[], Awaitable[None] | None] | None:
    return _method(handler, "close")


def _method(handler: AnyHandler, name: str) -> Callable[..., Any] | None:
    method = getattr(handler, name, None)
    return method if callable(method) else None
