"""Difference between two JSON values for people: fields added, removed and changed. Secrets are not
shown."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from milepost.core.values.json import canonical_json
from milepost.core.values.redaction import HIDDEN, is_secret, redacted

SHOWN = 100
"""Maximum differences shown; of two completely different values more would not help."""
LONGEST = 500
"""Maximum characters shown of a value."""


class FieldDifference(Struct, frozen=True, omit_defaults=True):
    """One field that differs. `old` is absent if it was added, `new` if it was removed; long values
    are cut."""

    field: str
    """Path of the field, such as `author.name` or `files[2]`; empty: the whole value."""
    text: str
    """The same in one line: `+ field: new`, `- field: old`, or `~ field: old → new`."""
    old: Any | UnsetType = UNSET
    new: Any | UnsetType = UNSET

    def __str__(self) -> str:
        return self.text


def difference(old: Any, new: Any) -> list[FieldDifference]:
    """The fields in which two values differ, sorted by name, up to the maximum."""
    found: list[FieldDifference] = []
    _compare(old, new, "", found, False)
    return found


def _compare(old: Any, new: Any, field: str, found: list[FieldDifference], secret: bool) -> None:
    """Compare two values of this field; `secret`: its name says that it holds a secret."""
    if len(found) >= SHOWN:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            inner = f"{field}.{name}" if field else name
            _compare(
                old.get(name, UNSET), new.get(name, UNSET), inner, found, secret or is_secret(name)
            )
    elif isinstance(old, list) and isinstance(new, list):
        for place in range(max(len(old), len(new))):
            was, now = (values[place] if place < len(values) else UNSET for values in (old, new))
            _compare(was, now, f"{field}[{place}]", found, secret)
    elif old is UNSET or new is UNSET or canonical_json(old) != canonical_json(new):
        was, now = _shown(old, secret), _shown(new, secret)
        found.append(FieldDifference(field, _line(field or "all of it", was, now), was, now))


def _shown(value: Any, secret: bool) -> Any:
    """The value without secrets, or its beginning if it is long."""
    if value is UNSET:
        return UNSET
    value = HIDDEN if secret and value else redacted(value)
    text = canonical_json(value).decode()
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def _line(field: str, old: Any, new: Any) -> str:
    if old is UNSET:
        return f"+ {field}: {_text(new)}"
    return f"- {field}: {_text(old)}" if new is UNSET else f"~ {field}: {_text(old)} → {_text(new)}"


def _text(value: Any) -> str:
    return canonical_json(value).decode()
