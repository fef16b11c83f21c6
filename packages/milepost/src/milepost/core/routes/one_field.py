"""Inputs of one field each, such as the keys of a list, as a column of texts: no object per line is
made before it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from milepost.core.item import digest_of


class OneField(Sequence[dict[str, str]]):
    """The inputs `{field: text}`, one for each text. Each is made when it is read."""

    __slots__ = ("field", "texts")

    def __init__(self, field: str, texts: list[str]) -> None:
        self.field = field
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> dict[str, str]: ...
    @overload
    def __getitem__(self, place: slice) -> OneField: ...
    def __getitem__(self, place: int | slice) -> dict[str, str] | OneField:
        if isinstance(place, slice):
            return OneField(self.field, self.texts[place])
        return {self.field: self.texts[place]}

    def __iter__(self) -> Iterator[dict[str, str]]:
        field = self.field
        return ({field: text} for text in self.texts)


class KeyDigests(Sequence[bytes]):
    """The content digests of items whose input is `{field: key}` and nothing else. Each is computed
    when it is read: a ledger that has noted which of its items have such an input need not compare
    digests."""

    __slots__ = ("field", "keys")

    def __init__(self, field: str, keys: Sequence[str]) -> None:
        self.field = field
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> KeyDigests: ...
    def __getitem__(self, place: int | slice) -> bytes | KeyDigests:
        if isinstance(place, slice):
            return KeyDigests(self.field, self.keys[place])
        return digest_of({self.field: self.keys[place]})

    def __iter__(self) -> Iterator[bytes]:
        field = self.field
        return (digest_of({field: key}) for key in self.keys)
