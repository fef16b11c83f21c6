"""Checks of a route's options, run while its file is imported. The errors name the option and say
what would be right."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from milepost.core.errors import RouteMistake, UsageError
from milepost.core.values.durations import span_ms


def parse_option(parse: Callable[[Any, str], Any], value: Any, subject: str) -> Any:
    """Parse an option of a route; a mistake in it becomes a RouteMistake."""
    try:
        return parse(value, subject)
    except UsageError as error:
        raise RouteMistake(str(error)) from None


def some_ms(value: Any, subject: str) -> int:
    """A span in milliseconds, which must be above zero."""
    ms = span_ms(value, subject)
    if ms == 0:
        raise RouteMistake(f"{subject} is {value!r}; give a span above 0, such as '10s'")
    return ms


def check_name(name: object, what: str, where: str) -> None:
    if (
        not isinstance(name, str)
        or not name
        or len(name) > 64
        or not all(c.isalnum() or c in "-_." for c in name)
    ):
        raise RouteMistake(
            f"{where}: {what} is {name!r}; use 1 to 64 letters, digits, '-', '_' or '.'"
        )


def check_count(value: object, subject: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise RouteMistake(f"{subject} is {value!r}; give a whole number from 1 up")


def check_kind(value: object, kind: type, subject: str, sample: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise RouteMistake(f"{subject} is {value!r}; write {sample}")


def answer_check(
    function: Callable[..., bool] | None, subject: str
) -> Callable[[Any, Any], bool] | None:
    """A stage's rule for valid confirmations as a function of answer and payload; a route may
    declare it as a function of the answer alone."""
    if function is None:
        return None
    try:
        inspect.signature(function).bind(object(), object())
    except (TypeError, ValueError):
        check_shape(function, subject, "value")
        return lambda value, payload: function(value)
    return function


def check_functions(where: str, **options: tuple[object, str]) -> None:
    """Each option that is given must be a function of one argument; the option comes with the name
    of that argument."""
    for option, (function, wanted) in options.items():
        if function is not None:
            check_shape(function, f"{where}: {option}", wanted)


def check_shape(function: object, subject: str, wanted: str) -> None:
    """A handler must be callable with exactly one positional argument."""
    if not callable(function):
        raise RouteMistake(f"{subject} is {function!r}; give a function of one argument ({wanted})")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(object())
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise RouteMistake(
            f"{subject} is {name}{signature}; it must take one argument: def {name}({wanted})"
        ) from None
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RouteMistake(f"{subject} uses 'yield'; return one outcome instead")
