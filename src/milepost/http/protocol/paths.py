"""Which endpoint a call is for: by its method and its path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from starlette.routing import compile_path

T = TypeVar("T")


class Paths(Generic[T]):
    """Looked up in the order in which they are given: the first that fits it is. HEAD is answered as GET."""

    def __init__(self, found: Iterable[tuple[str, str, T]]) -> None:
        """(method, path, whatever is there)"""
        self._by_method: dict[str, list[tuple[re.Pattern[str], T]]] = {}
        for method, path, there in found:
            pattern = compile_path(path)[0]
            for word in (method, "HEAD") if method == "GET" else (method,):
                self._by_method.setdefault(word, []).append((pattern, there))

    def find(self, method: str, path: str) -> tuple[T, dict[str, Any]] | None:
        """What is there, and the parts of the path that have names."""
        for pattern, there in self._by_method.get(method, ()):
            # The whole of it: "$" alone lets a line end follow, and what is meant for one address would reach another.
            matched = pattern.fullmatch(path)
            if matched is not None:
                return there, matched.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        """By which methods there is something at a path."""
        return sorted(method for method in self._by_method if self.find(method, path) is not None)
