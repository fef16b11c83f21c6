"""Recorded files: compare a text or a JSON value with the file that was recorded of it, or record
it anew."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("recorded")
UPDATE = "--golden-update"
LONGEST_DIFF = 400
"""Lines of a difference that a failure shows."""


class Recorder:
    """Compares with the files in `recorded/`; with `--golden-update` it writes them instead."""

    def __init__(self, update: bool) -> None:
        self.update = update

    def text(self, name: str, found: str) -> None:
        """Compare a text with the recorded file of this name."""
        path, found = FOLDER / name, found if found.endswith("\n") else found + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found, encoding="utf-8")
            return
        recorded = path.read_text(encoding="utf-8") if path.exists() else ""
        if found != recorded:
            pytest.fail(_difference(name, recorded, found), pytrace=False)

    def json(self, name: str, found: Any) -> None:
        """Compare a JSON value with the recorded file of this name; the order of names in an object
        does not count."""
        self.text(name, json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True))

    def read(self, name: str) -> Any:
        """The JSON value in a recorded file."""
        return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def _difference(name: str, recorded: str, found: str) -> str:
    lines = list(
        difflib.unified_diff(
            recorded.splitlines(), found.splitlines(), "recorded", "found", lineterm=""
        )
    )
    shown = "\n".join(lines[:LONGEST_DIFF])
    more = f"\n… and {len(lines) - LONGEST_DIFF:,} more lines" if len(lines) > LONGEST_DIFF else ""
    return (
        f"{name} differs from what was recorded (tests/golden/recorded/{name}).\n"
        f"If that is on purpose: pytest tests/golden {UPDATE}, and commit the recorded file with the change.\n{shown}{more}"
    )


def split_prose(value: Any, names: frozenset[str], at: str = "") -> tuple[Any, dict[str, str]]:
    """A JSON value without its sentences for people, and those sentences by their place. `names`:
    the fields that hold them."""
    prose: dict[str, str] = {}
    if isinstance(value, dict):
        bare: Any = {}
        for name, inner in value.items():
            place = f"{at}/{name}"
            if name in names and isinstance(inner, str):
                prose[place] = inner
                bare[name] = "(prose)"
            elif (
                name in names
                and isinstance(inner, list)
                and all(isinstance(one, str) for one in inner)
            ):
                prose |= {f"{place}/{number}": one for number, one in enumerate(inner)}
                bare[name] = ["(prose)"] * len(inner)
            else:
                bare[name], more = split_prose(inner, names, place)
                prose |= more
        return bare, prose
    if isinstance(value, list):
        parts = [split_prose(inner, names, f"{at}/{number}") for number, inner in enumerate(value)]
        for _, more in parts:
            prose |= more
        return [part for part, _ in parts], prose
    return value, prose
