"""Path routing: finds the endpoint of a call by its method and path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from starlette.routing import compile_path

T = TypeVar("T")


class Paths(Generic[T]):
    """Paths are matched in the order in which they are given; the first match wins. HEAD is answered as GET."""

    def __init__(self, found: Iterable[tuple[str, str, T]]) -> None:
        """(method, path, target)"""
        self._by_method: dict[str, list[tuple[re.Pattern[str], T]]] = {}
        for method, path, there in found:
            pattern = compile_path(path)[0]
            for word in (method, "HEAD") if method == "GET" else (method,):
                self._by_method.setdefault(word, []).append((pattern, there))

    def find(self, method: str, path: str) -> tuple[T, dict[str, Any]] | None:
        """The target, and the named variables of the path."""
        for pattern, there in self._by_method.get(method, ()):
            # Match the whole path: "$" alone allows a final line end, and a call for one path would reach another.
            matched = pattern.fullmatch(path)
            if matched is not None:
                return there, matched.groupdict()
        return None

    def all(self, path: str) -> dict[str, T]:
        """The targets at a path by their methods, in alphabetical order."""
        found = {method: self.find(method, path) for method in sorted(self._by_method)}
        return {method: there[0] for method, there in found.items() if there is not None}
