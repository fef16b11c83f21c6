"""The public Python surface: what each public name is called with, and what calls give back."""

from __future__ import annotations

import enum
import inspect
from types import GenericAlias
from typing import Any

from tests.golden import internals
from tests.golden.history import History
from tests.golden.masks import masked
from tests.golden.recording import Recorder

import milepost
import milepost_testing
from milepost import application, ports


def parameters(function: Any) -> list[str]:
    """What a callable is called with: names, kinds and defaults. Annotations are left out: they
    name classes that are not public."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        default = (
            "(function)"
            if callable(parameter.default) and parameter.default is not parameter.empty
            else parameter.default
        )
        if parameter.name != "self":
            found.append(
                f"{parameter.kind.name.lower()} {parameter.replace(annotation=parameter.empty, default=default)}"
            )
    return found


def described(value: Any, public: dict[str, Any]) -> Any:
    """A public name: what kind of thing it is, and what can be done with it."""
    if isinstance(value, type) and issubclass(value, enum.Enum):
        return {"enum": {member.name: member.value for member in value}}
    if isinstance(value, type):
        bases = [
            name for name, other in public.items() if other is not value and other in value.__mro__
        ]
        found: dict[str, Any] = {
            "class": parameters(value) if not issubclass(value, Exception) else "exception",
            "is also": sorted(bases),
        }
        methods = {}
        for name in sorted(dir(value)):
            if name.startswith("_") and name not in ("__enter__", "__aenter__"):
                continue
            if hasattr(Exception, name) and issubclass(value, Exception):
                continue
            member = getattr(value, name)
            methods[name] = parameters(member) if inspect.isfunction(member) else "value"
        return {**found, "members": methods}
    if callable(value) and not isinstance(value, GenericAlias):
        return {"function": parameters(value)}
    if isinstance(value, frozenset):
        return {"value": sorted(value)}
    return {"value": str(value)}


def test_the_public_names_are_as_recorded(golden: Recorder) -> None:
    bases: dict[str, Any] = {}
    for module in (milepost, application, ports, milepost_testing):
        public = {name: getattr(module, name) for name in module.__all__}
        bases |= public
        golden.json(
            f"python/{module.__name__}.json",
            {name: described(value, bases) for name, value in public.items()},
        )


def test_subscribers_are_made_as_recorded(golden: Recorder) -> None:
    golden.json(
        "python/subscribers.json",
        {name: parameters(made) for name, made in internals.subscriber_classes().items()},
    )


def test_answers_are_as_recorded(history: History, golden: Recorder) -> None:
    """The fields of what calls give back."""
    names = ("receipts", "list", "row", "prune")
    golden.json("python/answers.json", masked({name: history.answers[name] for name in names}))
