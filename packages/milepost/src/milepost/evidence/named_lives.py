"""Earlier lives of keys that the records of a file name: each must be in the file, and end as the
later life says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from milepost.evidence.record import earlier_lives_of


class NamedLife(NamedTuple):
    """An earlier life of a key, as the record in a line of the file names it."""

    key: str
    life: int
    head: str
    line: int
    number: int
    of: int | None
    """How many lives the key has had; None: not known."""
    ended: str

    def __str__(self) -> str:
        which = "the life before it" if self.of is None else f"life {self.number} of {self.of}"
        return f"{which} ({self.ended})" if self.ended else which


class NamedLives:
    """Earlier lives that the records of a file name, each once."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, int], NamedLife] = {}

    def __iter__(self) -> Iterator[NamedLife]:
        return iter(self._named.values())

    def add(self, record: dict[str, Any], key: str, line: int) -> None:
        """Note the lives that a record names. Of several records that name the same life, the
        latest one knows how many there are."""
        try:
            earlier = earlier_lives_of(record)
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            return
        of = len(earlier.lives) + 1 if earlier.complete else None
        for number, life in enumerate(earlier.lives, 1):
            ended = " ".join(filter(None, [life.status, life.ended_at]))
            named = NamedLife(key, life.life, life.head, line, number, of, ended)
            before = self._named.get((key, life.life))
            if before is None or (before.of or 0) < (of or 0):
                self._named[key, life.life] = named

    def not_here(self) -> list[str]:
        """What a record that was handed on by itself says of lives that are not with it, as a
        sentence for each key."""
        lives = Counter(key for key, _ in self._named)
        return [
            f"what happened in the {number} earlier {'life' if number == 1 else 'lives'} of {key}: their records are not here"
            for key, number in lives.items()
        ]
