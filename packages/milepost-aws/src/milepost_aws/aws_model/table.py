"""A DynamoDB table in memory: rows by key, indexes that may lag, and a stream of changes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from hashlib import md5
from typing import Any, NamedTuple

from milepost_aws.aws_model.errors import invalid
from milepost_aws.aws_model.stream import StreamModel
from milepost_aws.aws_model.values import Image, size, size_of, sort_key

LONGEST_HASH, LONGEST_RANGE = 2048, 1024

Key = tuple[Any, ...]
"""A row's key as Python values that sort as DynamoDB sorts them."""


class StoredRow(NamedTuple):
    """A row as it is stored. Its image is never changed in place."""

    image: Image
    size: int


class Partition:
    """The rows of one partition key, in the order of their range keys."""

    def __init__(self) -> None:
        self.order: list[Key] = []

    def add(self, place: Key) -> None:
        insort(self.order, place)

    def remove(self, place: Key) -> None:
        nth = bisect_left(self.order, place)
        if nth < len(self.order) and self.order[nth] == place:
            del self.order[nth]

    def after(self, place: Key | None, forward: bool) -> Iterator[Key]:
        """The places after this one, in either direction."""
        if forward:
            start = 0 if place is None else bisect_right(self.order, place)
            return iter(self.order[start:])
        end = len(self.order) if place is None else bisect_left(self.order, place)
        return reversed(self.order[:end])


class Index:
    """A global secondary index. Writes reach it at once, or `lag` seconds later, or, while it is
    held, not at all."""

    def __init__(
        self,
        name: str,
        key: tuple[str, ...],
        projection: dict[str, Any],
        table_key: tuple[str, ...],
    ) -> None:
        self.name, self.key, self.projection = name, key, projection
        self.lag = 0.0
        """Seconds after which a write shows in the index."""
        self.held = False
        kind = projection.get("ProjectionType", "ALL")
        kept = {*key, *table_key, *projection.get("NonKeyAttributes", ())}
        self.kept: set[str] | None = None if kind == "ALL" else kept
        self.rows: dict[Key, StoredRow] = {}
        self.partitions: dict[Any, Partition] = {}
        self._waiting: list[tuple[float, Key, StoredRow | None]] = []

    def hold(self) -> None:
        """From now on queries see the index as it is now."""
        self.held = True

    def release(self) -> None:
        """The index catches up with all writes."""
        self.held = False
        self.catch_up(float("inf"))

    def write(self, key: Key, row: StoredRow | None, at: float) -> None:
        if self.lag == 0 and not self.held and not self._waiting:
            self._apply(key, row)
        else:
            self._waiting.append((at, key, row))

    def catch_up(self, now: float) -> None:
        """Apply the writes that are old enough to be visible."""
        if self.held:
            return
        while self._waiting and self._waiting[0][0] + self.lag <= now:
            _, key, row = self._waiting.pop(0)
            self._apply(key, row)

    def place(self, image: Image, key: Key) -> tuple[Any, Key] | None:
        """The partition and the place in it; None: the row is not in the index."""
        if any(name not in image for name in self.key):
            return None
        sorted_by = tuple(sort_key(image[name]) for name in self.key[1:])
        return sort_key(image[self.key[0]]), (*sorted_by, *key)

    def shown(self, image: Image) -> Image:
        return (
            image
            if self.kept is None
            else {name: value for name, value in image.items() if name in self.kept}
        )

    def _apply(self, key: Key, row: StoredRow | None) -> None:
        before = self.rows.pop(key, None)
        if before is not None and (place := self.place(before.image, key)) is not None:
            partition = self.partitions[place[0]]
            partition.remove(place[1])
            if not partition.order:
                del self.partitions[place[0]]
        if row is not None and (place := self.place(row.image, key)) is not None:
            shown = self.shown(row.image)
            self.rows[key] = StoredRow(shown, size(shown))
            self.partitions.setdefault(place[0], Partition()).add(place[1])


class Table:
    """One table. All writes go through `write`, which keeps rows, indexes and stream together."""

    def __init__(
        self, name: str, key: tuple[str, ...], kinds: dict[str, str], clock: Callable[[], float]
    ) -> None:
        self.name, self.key, self.kinds, self._clock = name, key, kinds, clock
        self.created_at = clock()
        self.rows: dict[Key, StoredRow] = {}
        self.partitions: dict[Any, Partition] = {}
        self.indexes: dict[str, Index] = {}
        self.stream: StreamModel | None = None
        self.ttl: str | None = None
        """The attribute by which rows expire."""
        self.options: dict[str, Any] = {}
        self._hashes: dict[Any, str] = {}

    def index(self, name: str) -> Index:
        found = self.indexes.get(name)
        if found is None:
            raise invalid(f"The table does not have the specified index: {name}")
        found.catch_up(self._clock())
        return found

    def add_index(self, index: Index) -> None:
        self.indexes[index.name] = index
        for key, row in self.rows.items():
            index.write(key, row, 0.0)

    # Keys -----------------------------------------------------------------------------------------
    def key_of(self, image: Image) -> Key:
        """The key of a row to be put."""
        found = []
        for name, longest in zip(self.key, (LONGEST_HASH, LONGEST_RANGE), strict=False):
            value = image.get(name)
            if value is None:
                raise invalid(
                    f"One or more parameter values were invalid: Missing the key {name} in the item"
                )
            if self.kinds[name] not in value:
                raise invalid(
                    f"One or more parameter values were invalid: Type mismatch for key {name} expected: {self.kinds[name]}"
                    f" actual: {next(iter(value))}"
                )
            self._check_key(name, value, longest)
            found.append(sort_key(value))
        return tuple(found)

    def exact_key(self, image: Image) -> Key:
        """The key of a call that must contain only the key."""
        if len(image) != len(self.key) or any(
            self.kinds[name] not in image.get(name, ()) for name in self.key
        ):
            raise invalid("The provided key element does not match the schema")
        return self.key_of(image)

    def _check_key(self, name: str, value: dict[str, Any], longest: int) -> None:
        length = size_of(value)
        if not length:
            raise invalid(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an"
                f" empty {'string' if 'S' in value else 'binary'} value. Key: {name}"
            )
        if length > longest and "N" not in value:
            part = "hashkey" if longest == LONGEST_HASH else "rangekey"
            raise invalid(
                f"One or more parameter values were invalid: Size of {part} has exceeded the maximum size limit of{longest} bytes"
            )

    def check_index_keys(self, image: Image) -> None:
        """Check that index keys have the declared types, and are not empty."""
        for index in self.indexes.values():
            for name, longest in zip(index.key, (LONGEST_HASH, LONGEST_RANGE), strict=False):
                value = image.get(name)
                if value is None:
                    continue
                if self.kinds[name] not in value:
                    raise invalid(
                        f"One or more parameter values were invalid: Type mismatch for Index Key {name} Expected: {self.kinds[name]}"
                        f" Actual: {next(iter(value))} IndexName: {index.name}"
                    )
                self._check_key(name, value, longest)

    def key_image(self, image: Image) -> Image:
        return {name: image[name] for name in self.key}

    # Writing --------------------------------------------------------------------------------------
    def write(
        self, key: Key, image: Image | None, length: int = 0, *, by_ttl: bool = False
    ) -> None:
        """Put the row, or remove it (None); a write that changes nothing has no effect."""
        before = self.rows.get(key)
        if image is None:
            if before is None:
                return
            after = None
            del self.rows[key]
            partition = self.partitions[key[0]]
            partition.remove(key[1:])
            if not partition.order:
                del self.partitions[key[0]]
        else:
            if before is not None and before.image == image:
                return
            after = StoredRow(image, length)
            self.rows[key] = after
            if before is None:
                self.partitions.setdefault(key[0], Partition()).add(key[1:])
        now = self._clock()
        for index in self.indexes.values():
            index.write(key, after, now)
        if self.stream is not None:
            old, new = before and before.image, after and after.image
            self.stream.add(self.key_image(new or old or {}), old, new, now, by_ttl=by_ttl)

    def expire(self, now: float) -> int:
        """Remove rows whose time to live is over, as DynamoDB does within days. Returns their
        number."""
        gone = [
            key
            for key, row in self.rows.items()
            if self.ttl
            and "N" in row.image.get(self.ttl, ())
            and float(row.image[self.ttl]["N"]) < now
        ]
        for key in gone:
            self.write(key, None, by_ttl=True)
        return len(gone)

    # Scanning -------------------------------------------------------------------------------------
    def scan_order(self, place: Any) -> str:
        """Partitions are scanned in the order of a digest of their key, unrelated to the order of
        keys."""
        found = self._hashes.get(place)
        if found is None:
            found = self._hashes[place] = md5(
                repr(place).encode("utf-8", "surrogatepass"), usedforsecurity=False
            ).hexdigest()
        return found
