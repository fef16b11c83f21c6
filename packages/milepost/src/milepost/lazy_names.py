"""Public names of a package, each imported from its module at its first use.

Names are written once for type checkers, as imports, and once as a mapping from modules to names; a
test compares the two. A command that only prints help then does not load the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

Homes = Mapping[str, Iterable[str]]
"""Names by module, without the leading `milepost.`."""


def names_in(homes: Homes) -> list[str]:
    """All names of these modules, sorted."""
    return sorted(name for names in homes.values() for name in names)


def importer(
    package: str, homes: Homes, moved: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package with these names. `moved` gives the value of a name that the
    package had earlier, or raises KeyError."""
    home_of = {name: f"milepost.{module}" for module, names in homes.items() for name in names}

    def import_name(name: str) -> Any:
        """Import a public name at its first use."""
        if name in home_of:
            value = getattr(import_module(home_of[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if moved is not None:
            try:
                return moved(name)
            except KeyError:
                pass
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return import_name
