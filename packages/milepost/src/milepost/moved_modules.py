"""Old names of what has moved: import paths of packages of their own, and names that `milepost` had.
For one version they lead to the new place, with a warning."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

NEW_NAMES = {
    "milepost.applications.deposits": "milepost_deposits",
    "milepost.applications.notifications": "milepost_notifications",
    "milepost.applications.postingest": "milepost_postingest",
    "milepost.blobs.s3": "milepost_aws.s3",
    "milepost.client": "milepost_client",
    "milepost.lambdas": "milepost_aws.lambdas",
    "milepost.ledgers.aws": "milepost_aws.ledger",
    "milepost.net": "milepost_net",
    "milepost.subscribers.topic": "milepost_aws.topic",
    "milepost.testing.aws_model": "milepost_aws.aws_model",
    "milepost.testing": "milepost_testing",
}
"""New names by old ones; of two that fit, the first counts."""
EMPTY = "milepost.applications"
"""A package that only held others."""


def new_name(name: str) -> str | None:
    """The present name of a module by its old one; None if it was not moved."""
    for old, new in NEW_NAMES.items():
        if name == old or name.startswith(f"{old}."):
            return new + name[len(old) :]
    return None


class MovedModules:
    """Finder and loader of old import paths. It is asked first: a moved package would look for its
    own modules under the old name."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a moved module."""
        if not name.startswith("milepost.") or (name != EMPTY and new_name(name) is None):
            return None
        return ModuleSpec(name, cast("Loader", MovedModules), is_package=name == EMPTY)

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """An empty module, until `exec_module` puts the moved one in its place."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Import the module by its present name, and let the old name stand for it."""
        old = module.__name__
        new = new_name(old)
        if new is None:
            return
        import warnings

        warnings.warn(
            f"{old} is {new} now; the old name goes with the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        sys.modules[old] = import_module(new)


def moved_name(name: str) -> Any:
    """What `milepost` had under this name and `milepost.application` has now. Raises KeyError for
    any other name."""
    import warnings

    application = import_module("milepost.application")
    if name not in application.__all__:
        raise KeyError(name)
    warnings.warn(
        f"milepost.{name} is milepost.application.{name} now; the old name goes with the next version",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(application, name)
