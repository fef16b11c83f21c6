"""The optional parts of a handler: each is read by one function, for objects and for functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.outcome import Done
from milepost.ports import handler as parts
from milepost.ports.handler import HandlerObject, attach_of, close_of, program_of, ready_of

READERS = {"attach": attach_of, "close": close_of, "program": program_of, "ready": ready_of}


def some_method(*_: Any) -> None:
    """A part of a handler."""


VALUES = st.sampled_from([None, "ocfl 1.2", 5, some_method])


def read_before(handler: Any) -> dict[str, Any]:
    """The parts as the callers asked for them before there was a protocol."""
    program = getattr(handler, "program", None)
    ready = getattr(handler, "ready", None)
    attach = getattr(handler, "attach", None)
    return {
        "program": program if isinstance(program, str) else None,
        "ready": ready if callable(ready) else None,
        "attach": attach if callable(attach) else None,
        "close": getattr(handler, "close", None),
    }


class CallableObject:
    """A handler that is an object, without parts of its own."""

    def __call__(self, item: Any) -> Done:
        return Done()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "program": VALUES,
            "ready": VALUES,
            "attach": VALUES,
            "close": st.sampled_from([None, some_method]),
        },
    ),
    st.booleans(),
)
def test_the_parts_are_those_that_were_asked_for_before(
    values: dict[str, Any], is_object: bool
) -> None:
    handler: Any = CallableObject() if is_object else lambda item: Done()
    vars(handler).update(values)
    assert {name: read(handler) for name, read in READERS.items()} == read_before(handler)


@pytest.mark.parametrize("handler", [None, lambda item: Done(), CallableObject()])
def test_a_handler_without_parts_has_none(handler: Any) -> None:
    assert [read(handler) for read in READERS.values()] == [None] * len(READERS)


def test_every_part_of_the_protocol_has_one_reader() -> None:
    declared = {*HandlerObject.__annotations__, *vars(HandlerObject)}
    assert {name for name in declared if not name.startswith("_")} == set(READERS)
    assert {name for name in vars(parts) if name.endswith("_of")} == {
        f"{name}_of" for name in READERS
    }
