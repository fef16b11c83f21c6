"""The daily head: once a day everything written since the last one is summed up, and that is told to everybody.

A head is itself an item, of the route `heads`, with its day as the key: its first line carries it, so that it is told like
everything else and at least once. Which head is the last is decided by one conditional write, so that there is one chain of them
however many processes try; whoever comes later finds the item, or puts it there for one that died in between.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, TypeVar

from msgspec import Struct

from milepost.core.decide import accept
from milepost.core.errors import ConfigMistake, LedgerDamaged, LedgerError
from milepost.core.history import link
from milepost.core.item import digest_of
from milepost.core.merkle import leaf, levels, path, root
from milepost.core.outcome import Done
from milepost.core.route import Route
from milepost.engine.context import Context
from milepost.engine.observe import each
from milepost.evidence.heads import SCHEMA, Head, head_of, proof_of
from milepost.evidence.signing import Signer
from milepost.ports.documents import HEAD
from milepost.ports.ledger import Ledger, Newcomer, Query, Written

ROUTE = "heads"
LAST = "last"
DAY_MS = 86_400_000
EVERY = 60.0
PAGE = 1000
PART = 1024
"""Lines in one part of a head's tree: a power of two, so that the parts' roots are nodes of the whole tree."""
ENTRY = 40
"""Bytes for one line: its place, and its digest."""
HELD = 64
"""Parts held in memory while proofs are made."""

log = logging.getLogger(__name__)
T = TypeVar("T")


def heads_route() -> Route:
    """The route of the heads. That they were told is all there is to do."""
    route = Route(ROUTE, key="day", skips=False)
    route.stage("publish")(lambda item: Done())
    return route


def heads_for(routes: Sequence[Route], ledger: Ledger, no_blobs: str | None) -> list[Route]:
    """The route of the heads, if any of these keeps evidence. `no_blobs` says what to set where there is no place for blobs."""
    keeping = [route.name for route in routes if route.evidence]
    if not keeping:
        return []
    if no_blobs is not None:
        raise ConfigMistake(f"{', '.join(keeping)}: evidence is to be kept, and there is no place for it: {no_blobs}")
    if any(route.name == ROUTE for route in routes):
        raise ConfigMistake(f"a route is called {ROUTE!r}, as that of the daily heads is; call it otherwise")
    # Where each route has tables of its own, those of the heads would have to be there first.
    return [] if "heads" in ledger.lacks else [heads_route()]


def day_of(now: int) -> str:
    """The day, in UTC."""
    return datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d")


def last_head(ctx: Context) -> Head | None:
    document = ctx.ledger.read(HEAD).get(LAST)
    return None if document is None else document.value


def summed_up_to(ctx: Context) -> int | None:
    """The place in the feed up to which heads cover everything; None: there are no heads here."""
    head = last_head(ctx)
    return None if head is None else int(head["up_to"])


def all_heads(ctx: Context) -> list[Head]:
    """Every head that was published, oldest first."""
    if last_head(ctx) is None:
        return []
    found = [item.input for item in each(ctx, Query(route=ROUTE, with_content=True))]
    # Whatever else somebody has handed over to this route is none.
    return sorted((head for head in found if head.get("schema") == SCHEMA), key=lambda head: str(head["day"]))


class HeadKeeper:
    """Publishes the head of each day once the day is over."""

    name = "heads"

    def __init__(self, ctx: Context, signer: Signer | None) -> None:
        self._ctx = ctx
        self._signer = signer

    def turn(self) -> float:
        midnight = self._ctx.clock.now() // DAY_MS * DAY_MS
        try:
            head = publish(self._ctx, self._signer, day_of(midnight - 1), midnight)
        except OSError as error:
            log.error("the head of %s cannot be kept, and is tried again in a while: %s", day_of(midnight - 1), error)
            return EVERY
        if head is not None:
            log.info("the head of %s is published: %s lines, root %s", head["day"], head["count"], head["root"])
        return EVERY


def publish(ctx: Context, signer: Signer | None, day: str, before: int) -> Head | None:
    """Sum up what was written since the last head and before that moment, and publish it as the head of `day`. None: there is one of
    that day or a later one already, nothing was written, or somebody else was quicker."""
    document = ctx.ledger.read(HEAD).get(LAST)
    last: Head | None = None if document is None else document.value
    if last is not None:
        _put(ctx, last)
        if last["day"] >= day:
            return None
    after = 0 if last is None else int(last["up_to"])
    summed = _sum_up(ctx, f"heads/{day}-{ctx.chance.token()}", after, before)
    if summed is None:
        return None
    previous = None if last is None else last["digest"]
    head = {**head_of(day, summed.root, summed.count, after, summed.up_to, previous, signer), "tree": summed.tree}
    if not ctx.ledger.write(HEAD, LAST, head, expect=0 if document is None else document.version):
        for name in (_part_name(summed.tree, number) for number in (None, *range(summed.parts))):
            ctx.blobs.remove(name)
        return None
    _put(ctx, head)
    return head


def _put(ctx: Context, head: Head) -> None:
    """The head as an item; if it is there already, nothing happens."""
    plan, now = ctx.plan(ROUTE), ctx.clock.now()
    if ctx.ledger.peek(ROUTE, [head["day"]])[0] is None:
        change = accept(
            plan, head["day"], head, now, correlation_id=f"head-{head['day']}", digest=digest_of(head), by="milepost", note=head
        )
        ctx.ledger.add(plan, [Newcomer(change, head)], now)


# The tree -------------------------------------------------------------------------------------------------------------------
class _Sum(Struct):
    """The root over some lines, how many they are, the last one's place, and where the tree is kept, in how many parts."""

    root: bytes
    count: int
    up_to: int
    tree: str
    parts: int


def _sum_up(ctx: Context, tree: str, after: int, before: int) -> _Sum | None:
    """Sum up the lines past that place, up to the first that was written at that moment or later. The tree is kept in parts, from
    which proofs are made, under a name of its own, so that two who sum up at once do not get into each other's way."""
    lines = takewhile(lambda written: written.line.at < before, _feed(ctx, after))
    roots: list[bytes] = []
    starts: list[int] = []
    count, up_to = 0, after
    while part := list(islice(lines, PART)):
        entries = [(written.seq, link(written.previous, written.body)) for written in part]
        ctx.blobs.write(_part_name(tree, len(roots)), _entries(entries))
        roots.append(root([leaf(digest) for _, digest in entries]))
        starts.append(entries[0][0])
        count, up_to = count + len(entries), entries[-1][0]
    if not roots:
        return None
    ctx.blobs.write(_part_name(tree, None), _entries(zip(starts, roots, strict=True)))
    return _Sum(root(roots), count, up_to, tree, len(roots))


def _entries(entries: Iterable[tuple[int, bytes]]) -> list[bytes]:
    return [seq.to_bytes(8, "big") + digest for seq, digest in entries]


def _feed(ctx: Context, after: int) -> Iterator[Written]:
    while lines := ctx.ledger.feed(after, PAGE):
        yield from lines
        after = lines[-1].seq


def _part_name(tree: str, number: int | None) -> str:
    return f"{tree}/{'roots' if number is None else number}"


class _Part:
    """Places, and the tree over what stands there."""

    def __init__(self, body: bytes, *, hashed: bool) -> None:
        entries = [body[start : start + ENTRY] for start in range(0, len(body), ENTRY)]
        self.places = [int.from_bytes(entry[:8], "big") for entry in entries]
        self.digests = [entry[8:] for entry in entries]
        self.tree = levels(self.digests if hashed else [leaf(digest) for digest in self.digests])


class Prover:
    """Makes proofs that records end under published heads. Holds a few parts of the trees, never all."""

    def __init__(self, ctx: Context) -> None:
        self._blobs = ctx.blobs
        self._heads = sorted(all_heads(ctx), key=lambda head: int(head["up_to"]))
        self._ends = [int(head["up_to"]) for head in self._heads]
        self._parts: OrderedDict[str, _Part] = OrderedDict()

    def proof(self, place: int, head: bytes) -> dict[str, Any] | None:
        """What leads from the line at this place, whose digest is `head`, to the root of the head that covers it; None: none does
        yet, or the line is not the one that was summed up."""
        index = bisect_left(self._ends, place)
        if place <= 0 or index == len(self._heads):
            return None
        covering = self._heads[index]
        top = self._part(_part_name(covering["tree"], None), hashed=True)
        number = bisect_right(top.places, place) - 1
        if number < 0:
            return None
        part = self._part(_part_name(covering["tree"], number), hashed=False)
        at = bisect_left(part.places, place)
        if at == len(part.places) or part.places[at] != place or part.digests[at] != head:
            return None
        return proof_of(covering, [*path(part.tree, at), *path(top.tree, number)])

    def _part(self, name: str, *, hashed: bool) -> _Part:
        part = self._parts.pop(name, None)
        if part is None:
            part = _Part(_read(lambda: b"".join(self._blobs.read(name)), name), hashed=hashed)
        self._parts[name] = part
        if len(self._parts) > HELD:
            self._parts.popitem(last=False)
        return part


def _read(read: Callable[[], T], name: str) -> T:
    try:
        return read()
    except FileNotFoundError:
        raise LedgerDamaged(
            f"{name} is gone: without it no record can be proved to be under its head; bring it back from a backup"
        ) from None
    except OSError as error:
        raise LedgerError(f"{name} cannot be read: {error}") from error
