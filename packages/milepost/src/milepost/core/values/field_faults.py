"""Validation errors for people: which field is wrong, and what its msgspec type expects there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from msgspec import Struct, ValidationError, inspect

_STEP = re.compile(r"\.([^.\[\]]+)|\[[^\]]*\]")
_FIELD = re.compile(r"(?:unknown|required) field `(.+?)`")
_GOT = re.compile(r"Expected `.+`, got `(.+)`")
_NAMES = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "a boolean", "array": "a list", "object": "an object",
    "date": "a date", "time": "a time", "datetime": "a date with a time",
}  # fmt: skip
"""msgspec's names of types, for people."""
_kind = cache(inspect.type_info)


class FieldFault(Struct, frozen=True):
    """One mistake in a value. `field` is its place such as `retry.attempts`, empty for the whole;
    `expected`: what would be right."""

    text: str
    field: str
    expected: str | None

    @property
    def sentence(self) -> str:
        """The mistake with what would be right, said once: msgspec's text names a type too if that
        is wrong, or a limit that does not hold."""
        got = _GOT.match(self.text)
        if self.expected is None or (got is None and self.text.startswith("Expected ")):
            return self.text
        return (
            f"{self.text}; expected {self.expected}"
            if got is None
            else f"expected {self.expected}, got {_NAMES.get(got[1], got[1])}"
        )


def field_fault(error: ValidationError, wanted: Any) -> FieldFault:
    """The fault of a value that should have had the type `wanted`."""
    text, _, where = str(error).partition(" - at `")
    place = where.rstrip("`") or "$"
    named = _FIELD.search(text)
    expected = None
    if named is not None:
        expected = _fields_at(wanted, place)
        place += f".{named[1]}"
    expected = expected or _any_of(_words(one) for one in _types_at(wanted, place))
    return FieldFault(
        text, place.removeprefix("$").removeprefix(".").removesuffix("[...]"), expected
    )


def _fields_at(wanted: Any, path: str) -> str | None:
    """The fields of the object at this place; None: unknown."""
    found = [one for one in _types_at(wanted, path) if isinstance(one, inspect.StructType)]
    return ", ".join(field.encode_name for field in found[0].fields) if len(found) == 1 else None


def _types_at(wanted: Any, path: str) -> list[inspect.Type]:
    """The types that a value of this type may have at this place, such as
    `$.outcomes[0].outcome.type`; none: unknown."""
    types = _flat(_kind(wanted))
    for step in _STEP.finditer(path):
        types = [flat for one in types for inner in _inside(one, step[1]) for flat in _flat(inner)]
    return types


def _flat(kind: inspect.Type) -> list[inspect.Type]:
    """The members of a union; otherwise the type itself."""
    if isinstance(kind, inspect.Metadata):
        return _flat(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [flat for one in kind.types for flat in _flat(one)]
    return [kind]


def _inside(kind: inspect.Type, name: str | None) -> list[inspect.Type]:
    """The types of a field with this name, or, without a name, of the elements of a list or an
    object."""
    if isinstance(kind, inspect.StructType):
        if name is not None and name == kind.tag_field:
            return [inspect.LiteralType((kind.tag,))]
        return [field.type for field in kind.fields if field.encode_name == name]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    if isinstance(
        kind, (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
    ):
        return [kind.item_type]
    return []


def _words(kind: inspect.Type) -> str | None:
    if isinstance(kind, inspect.LiteralType):
        return _any_of(str(value) for value in kind.values)
    if isinstance(kind, inspect.EnumType):
        return _any_of(str(one.value) for one in kind.cls)
    if isinstance(kind, (inspect.IntType, inspect.FloatType)):
        return ("a whole number" if isinstance(kind, inspect.IntType) else "a number") + _range(
            kind.ge, kind.le
        )
    if isinstance(kind, inspect.StrType):
        pattern = "" if kind.pattern is None else f" that matches {kind.pattern}"
        return "text" + _range(kind.min_length, kind.max_length, " characters long") + pattern
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        return "a list" + _range(kind.min_length, kind.max_length, " long")
    plain = {
        inspect.BoolType: "true or false",
        inspect.StructType: "an object",
        inspect.DictType: "an object",
    }
    return plain.get(type(kind))


def _range(least: float | None, most: float | None, unit: str = "") -> str:
    if least is None and most is None:
        return ""
    if unit and least == 1 and most is None:
        return " that is not empty"
    return (
        f" from {least} to {most}"
        if None not in (least, most)
        else f", at most {most}"
        if least is None
        else f", at least {least}"
    ) + unit


def _any_of(words: Iterable[str | None]) -> str | None:
    return " or ".join(dict.fromkeys(word for word in words if word is not None)) or None
