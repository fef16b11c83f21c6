"""Merkle trees under the daily heads, in the blob store: built part by part, and read again for
proofs.

A tree is stored as parts (positions and digests of 1,024 lines each) and a list of their roots.
Blobs are named by their content, so that two processes write the same blobs for the same lines, and
one can continue where another stopped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import chain, islice, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.engine.context import Context
from milepost.engine.ledger_pages import line_pages
from milepost.evidence.heads import Head, proof_of
from milepost.evidence.merkle import leaf, levels, path, root
from milepost.ports.feed import HistoryEntry

PAGE = 1000
PART = 1024
"""Lines per part: a power of two, so that the roots of the parts are nodes of the whole tree."""
ENTRY = 40
"""Bytes per line or part: its position, and its digest or root."""
CLOCKS_MS = 300_000
"""Lines that are dated later than this from now were dated by a clock that was ahead."""
HELD = 64
"""Parts cached in memory while proofs are made."""


class Sum(Struct, frozen=True):
    """Progress of the head of `day`: `count` lines after position `after` and up to `up_to`. It
    ends before the first line written at `before` or later, by a clock that was not ahead. `tree`
    names the list of part roots."""

    day: str
    before: int
    after: int
    up_to: int
    count: int = 0
    tree: str = ""
    lines: dict[str, int] = {}
    """Number of lines by route. They add up to `count`, unless an earlier Milepost added some."""


def add_lines(ctx: Context, so_far: Sum, parts: int) -> tuple[Sum, bytes | None]:
    """Add lines to the sum, for at most `parts` parts; returns it with the root of the whole tree,
    or None while lines remain. Starts again if the tree is gone because another process has
    continued it."""
    try:
        held = _entries(_body(ctx, so_far.tree)) if so_far.tree else []
    except FileNotFoundError:
        held, so_far = [], replace(so_far, up_to=so_far.after, count=0, tree="", lines={})
    feed = chain.from_iterable(line_pages(ctx.ledger, so_far.up_to, PAGE))
    ahead = ctx.clock.now() + CLOCKS_MS

    def in_time(written: HistoryEntry) -> bool:
        # A line from a clock that was ahead would otherwise end all heads until then.
        return not so_far.before <= written.line.at <= ahead

    lines = takewhile(in_time, feed)
    count, up_to, done = so_far.count, so_far.up_to, False
    of_routes = Counter(so_far.lines)
    for _ in range(parts):
        entries = list(islice(lines, PART))
        part = [(written.seq, written.digest) for written in entries]
        of_routes.update(written.route for written in entries)
        if part:
            top = root([leaf(digest) for _, digest in part])
            ctx.blobs.write(_part_name(so_far.day, top), _packed(part))
            held.append((part[0][0], top))
            count, up_to = count + len(part), part[-1][0]
        # Only the last part may be short: the roots of the others are nodes of the whole tree.
        if done := len(part) < PART:
            break
    if not held:
        return so_far, b""
    packed = list(_packed(held))
    # Different names, because the unfinished list is deleted later and the one of a head never is.
    tree = (
        f"heads/{so_far.day}/{'roots' if done else 'so-far'}-{sha256(b''.join(packed)).hexdigest()}"
    )
    ctx.blobs.write(tree, packed)
    now = replace(so_far, up_to=up_to, count=count, tree=tree, lines=dict(of_routes))
    return now, root([digest for _, digest in held]) if done else None


def drop_replaced(ctx: Context, replaced: Sum, now: Sum) -> None:
    """Delete the replaced list of roots; if that fails, it only takes up space."""
    if replaced.tree not in ("", now.tree):
        with suppress(OSError):
            ctx.blobs.remove(replaced.tree)


def _packed(entries: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    return (place.to_bytes(8, "big") + digest for place, digest in entries)


def _entries(body: bytes) -> list[tuple[int, bytes]]:
    return [
        (int.from_bytes(body[at : at + 8], "big"), body[at + 8 : at + ENTRY])
        for at in range(0, len(body), ENTRY)
    ]


def _body(ctx: Context, name: str) -> bytes:
    return b"".join(ctx.blobs.read(name))


def _part_name(day: str, top: bytes) -> str:
    return f"heads/{day}/{top.hex()}"


class _Part:
    """Positions, and the tree over their digests."""

    def __init__(self, body: bytes, hashed: bool) -> None:
        entries = _entries(body)
        self.places = [place for place, _ in entries]
        self.digests = [digest for _, digest in entries]
        self.tree = levels(self.digests if hashed else [leaf(digest) for digest in self.digests])


class Prover:
    """Proves that records are covered by these heads. Caches a few parts of the trees."""

    def __init__(self, ctx: Context, heads: Sequence[Head]) -> None:
        self._ctx = ctx
        self._heads = sorted(heads, key=lambda head: int(head["up_to"]))
        self._ends = [int(head["up_to"]) for head in self._heads]
        self._part = lru_cache(HELD)(self._read)

    def proof(self, place: int, head: bytes) -> dict[str, Any] | None:
        """The proof from the line at this position, with digest `head`, to the root of the head
        that covers it; None if no head covers it yet, or the line is not the one covered."""
        index = bisect_left(self._ends, place)
        if place <= 0 or index == len(self._heads):
            return None
        covering = self._heads[index]
        top = self._part(covering["tree"], True)
        number = bisect_right(top.places, place) - 1
        if number < 0:
            return None
        part = self._part(_part_name(covering["day"], top.digests[number]), False)
        at = bisect_left(part.places, place)
        if at == len(part.places) or part.places[at] != place or part.digests[at] != head:
            return None
        return proof_of(covering, [*path(part.tree, at), *path(top.tree, number)])

    def covered(self, places: Sequence[int]) -> int:
        """How many of the lines at these places, oldest first, are covered by the heads. A line
        without a place is not in the feed yet."""
        end = self._ends[-1] if self._ends else 0
        return sum(1 for _ in takewhile(lambda place: 0 < place <= end, places))

    def _read(self, name: str, hashed: bool) -> _Part:
        try:
            return _Part(_body(self._ctx, name), hashed)
        except FileNotFoundError:
            raise LedgerDamaged(
                f"{name} is missing: its head cannot prove any record; restore it from a backup"
            ) from None
        except OSError as error:
            raise LedgerError(f"{name} cannot be read: {error}") from error
