"""Parsing of a submitted input: the item's key, content and correlation id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from milepost.core.errors import MalformedInput, UsageError
from milepost.core.routes.one_field import OneField
from milepost.core.values.durations import moment_ms
from milepost.core.values.key_text import joined_key

CORRELATION = "correlationId"
LONGEST_PART = 1024
"""Characters of a key's field."""
Key = str | Sequence[str] | Callable[[Any], Any]


class KeyColumn(Struct, frozen=True):
    """The column of a delivered table that holds the keys: its place (from 0), the delimiter, and
    whether the first line has names."""

    place: int
    header: bool = False
    delimiter: str = ","


class ParsedInput(Struct, frozen=True, gc=False):
    """One submitted item, parsed."""

    key: str
    content: Any
    correlation_id: str | None = None


def key_fields(key: Key) -> Sequence[str]:
    """The fields that make up the key; none where a function makes it."""
    return (key,) if isinstance(key, str) else () if callable(key) else key


def key_in(content: Any, key: Key) -> str:
    """The item's key; raises MalformedInput with the field that is missing or empty."""
    if isinstance(key, str):
        return _part(content, key)
    if callable(key):
        try:
            value = key(content)
        except Exception as error:
            raise MalformedInput(
                f"the route's key function failed on it: {type(error).__name__}: {error}"
            ) from error
        return _part({"key": value}, "key")
    return joined_key(_part(content, field) for field in key)


def keys_in(contents: Sequence[Any], key: Key) -> list[str]:
    """The key of each input, as `key_in` makes it. Plain text is checked for a whole batch at once:
    a list of known keys costs little more than that."""
    if not callable(key) and contents:
        columns = [
            _plain_column(contents, field) for field in ((key,) if isinstance(key, str) else key)
        ]
        found = [column for column in columns if column is not None]
        if len(found) == len(columns):
            return (
                found[0]
                if isinstance(key, str)
                else list(map(joined_key, zip(*found, strict=True)))
            )
    return [key_in(content, key) for content in contents]


def texts_of(contents: Sequence[Any], field: str) -> list[Any] | None:
    """The values of one field of each input, all of them texts in `OneField`; None if an input
    lacks it."""
    if isinstance(contents, OneField):
        return contents.texts if contents.field == field else None
    try:
        return [content[field] for content in contents]
    except (KeyError, TypeError, IndexError):
        return None


def _plain_column(contents: Sequence[Any], field: str) -> list[str] | None:
    """The texts of one key field, if all are valid as they stand; None: they must be looked at one
    by one."""
    values = texts_of(contents, field)
    if values is None:
        return None
    try:
        joined = "".join(values)
    except TypeError:
        return None
    if not joined.isprintable() or not all(values) or max(map(len, values)) > LONGEST_PART:
        return None
    if " " in joined and any(value[0] == " " or value[-1] == " " for value in values):
        return None
    return values


class ParsedBatch(NamedTuple):
    """Submitted items, parsed: key, content and, where the route takes them, correlation id of
    each. Contents that are `OneField` hold the keys and nothing else."""

    keys: Sequence[str]
    contents: Sequence[Any]
    correlation_ids: list[str | None] | None = None


def parsed(content: Any, parse: Callable[[Any], Any]) -> Any:
    """The input that a route's function makes of a submitted one; raises MalformedInput if it
    cannot."""
    try:
        return parse(content)
    except MalformedInput:
        raise
    except Exception as error:
        raise MalformedInput(
            f"the route's parse function failed on it: {type(error).__name__}: {error}"
        ) from error


def carried(content: dict[str, Any], key: Sequence[str], field: str) -> tuple[Any, str | None]:
    """Content and correlation id (if any) of an input whose key, content and correlation id are
    separate fields.

    Text that is JSON is parsed, as it is where the same fields are attributes of a table's row.
    """
    for name in content:
        if name not in key and name not in (field, CORRELATION):
            taken = ", ".join([*key, field, CORRELATION])
            raise MalformedInput(
                f"the field {name!r} is unknown; this route accepts {taken}",
                field=name,
                expected=taken,
            )
    if content.get(field) is None:
        raise MalformedInput(
            f"the field {field!r} is missing", field=field, expected="the item's content"
        )
    correlation_id = content.get(CORRELATION)
    if correlation_id is not None and not isinstance(correlation_id, str):
        raise MalformedInput(
            f"the field {CORRELATION!r} is {type(correlation_id).__name__}, not text",
            field=CORRELATION,
            expected="text",
        )
    value = content[field]
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            pass
    return value, correlation_id or None


def start_in(content: Any, field: str) -> str | None:
    """The time before which an item does not start, from a field of its content; absent, null or
    empty: it may start at once."""
    value = content.get(field) if isinstance(content, dict) else None
    if value is None or value == "":
        return None
    expected = "a time such as '2027-01-31T08:00:00Z' or '2027-01-31'"
    if not isinstance(value, str):
        raise MalformedInput(
            f"the field {field!r} is {type(value).__name__}, not a time",
            field=field,
            expected=expected,
        )
    try:
        moment_ms(value, 0, field)
    except UsageError:
        raise MalformedInput(
            f"the field {field!r} is {value[:100]!r}, not a time", field=field, expected=expected
        ) from None
    return value


def _part(content: Any, field: str) -> str:
    wrong = partial(
        MalformedInput, field=field, expected="text of 1 to 1,024 characters, or a whole number"
    )
    if not isinstance(content, dict):
        raise wrong(
            f"the input is {type(content).__name__}, not an object with the field {field!r}"
        )
    value = content.get(field)
    if value is None:
        raise wrong(f"the field {field!r} is missing")
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise wrong(
            f"the field {field!r} is {type(value).__name__}; a key is text or a whole number"
        )
    text = str(value).strip()
    if not text:
        raise wrong(f"the field {field!r} is empty")
    if len(text) > LONGEST_PART or any(ord(c) < 32 for c in text):
        raise wrong(
            f"the field {field!r} is over 1,024 characters or holds control characters; it cannot be a key"
        )
    return text
