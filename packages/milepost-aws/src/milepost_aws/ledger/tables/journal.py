"""The journal: every history line by item, and one order over all of them.

A line is a row of the journal. A block gives lines their places in the order: it is one row of the
control table, named after its first place, that lists up to a hundred lines. Lines are written
first, then their block; a line is delivered only when its block exists. A block begins where the
previous one ends, and the put is conditional on no other block beginning there. So there are no
gaps and no late insertions, and a reader at a place has received everything before it. This
requires that blocks are never removed: a removed one could be put again behind the readers'
position.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from milepost.core.errors import LedgerDamaged
from milepost.ports.feed import HistoryEntry
from milepost.ports.retention import emptied
from milepost_aws.ledger.names import ResourceNames, b64, fitted_key, unb64
from milepost_aws.ledger.requests.client import Requests, expressions, key_condition
from milepost_aws.ledger.tables.conditional_write import place_of
from milepost_aws.ledger.tables.documents import kind_query
from milepost_aws.ledger.tables.item_rows import (
    copied_of,
    correlation_of,
    life_of,
    links_of,
    offered_by,
)
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.values import Values

JOURNAL = "journal"
LARGEST_BLOCK = 300_000
"""Maximum bytes of keys in one block; a row of the table holds 400 KB."""
PER_LINE = 32
"""Bytes for a line's version and separator."""
BLOCK = 100
"""Maximum lines in a block."""
REACH = 2_000
"""How many places after the expected one a block may begin, and how far it is searched for."""
FIRST_RACE_PAUSE_S, LONGEST_RACE_PAUSE_S = 0.01, 1.0
REMEMBERED = 10_000
UNREADABLE = (LedgerDamaged, FileNotFoundError)
"""Exceptions for a blob that is missing or has changed."""
LONGEST_ITEM = 2048
"""Maximum bytes of a DynamoDB hash key."""

log = logging.getLogger(__name__)

Ref = tuple[str, str, int]
"""(route, name, version): one line. The name is the item's key, with its life where a key can have
several (`named`)."""


# Lines: rows of the journal, with hash key `item` ("<route>/<key>") and range key `version` -------
class JournalEntry(Struct, frozen=True):
    """A line to be written, with the payload that it offers, if any."""

    route: str
    key: str
    correlation_id: str
    version: int
    previous: bytes
    body: bytes
    payload: Any = UNSET
    life: int = 0

    @property
    def ref(self) -> Ref:
        return self.route, named(self.key, self.life), self.version


class KeyLines(Struct, frozen=True):
    """Where the journal has a key: the blocks that name it, and its lives."""

    blocks: list[Image]
    lives: list[int]


class JournalBatch(Struct):
    """Entries that receive their places together. `after` is the newest place when they were
    written."""

    token: str
    entries: Sequence[JournalEntry]
    after: int


def named(key: str, life: int) -> str:
    """The name for an item's lines: separate for each life of a key. (A key has no control
    characters.)"""
    return f"{key}\t{life}" if life else key


def key_in(name: str) -> str:
    """The key in a name made by `named`."""
    key, separator, life = name.rpartition("\t")
    return key if separator and life.isdecimal() else name


def uncopied(image: Image, key: str, layout: Layout, values: Values) -> list[JournalEntry]:
    """The row's lines that are not in the journal yet, oldest first."""
    links = [link for link in links_of(image, values) if link.version > copied_of(image)]
    if not links:
        return []
    correlation_id, life = correlation_of(image, key), life_of(image)
    # With the payload that a line offered: its events are built from the line alone.
    offered = offered_by(links, image, layout, values)
    return [
        JournalEntry(
            layout.route,
            key,
            correlation_id,
            link.version,
            link.previous,
            link.body,
            offered.get(link.version, UNSET),
            life,
        )
        for link in links
    ]


def line_key(route: str, name: str, version: int) -> Image:
    return {"item": {"S": item_name(route, name)}, "version": {"N": str(version)}}


def line_at(image: Image) -> tuple[str, int]:
    """The item and version of a line's image."""
    return image["item"]["S"], int(image["version"]["N"])


def item_name(route: str, name: str) -> str:
    return fitted_key(f"{route}/{name}", LONGEST_ITEM)


def images_of(batch: JournalBatch, values: Values) -> list[Image]:
    """The rows of a batch's lines. Large values go to blobs separate from the item's, because a
    line may outlive its row."""
    images = []
    for nth, entry in enumerate(batch.entries):
        place = _blob_place(entry.route, named(entry.key, entry.life))
        image: Image = {
            **line_key(*entry.ref),
            "previous": {"S": b64(entry.previous)},
            "body": values.encode_text(entry.body, place),
            "batch": {"S": batch.token},
            "nth": {"N": str(nth)},
            "after": {"N": str(batch.after)},
        }
        if entry.correlation_id != entry.key:
            image["correlationId"] = {"S": entry.correlation_id}
        if entry.payload is not UNSET:
            image["payload"] = values.encode(entry.payload, place)
        images.append(image)
    return images


def _blob_place(route: str, name: str) -> str:
    return f"history/{place_of(route, name)}"


def batch_of(image: Image) -> tuple[str, int, int]:
    """The token of a line's batch, its number in it, and the newest place when it was written."""
    return image["batch"]["S"], int(image["nth"]["N"]), int(image["after"]["N"])


def unreadable(image: Image, seq: int, route: str, key: str, error: Exception) -> HistoryEntry:
    """Substitute for a line whose blob is damaged or missing. It is not delivered and blocks no
    other; the chain shows the break."""
    log.error(
        "cannot read line %s of %s/%s: %s: %s",
        image["version"]["N"],
        route,
        key,
        type(error).__name__,
        error,
    )
    body = f"{type(error).__name__}: {error}".encode()
    return HistoryEntry(
        seq, route, key, correlation_of(image, key), unb64(image["previous"]["S"]), body
    )


def written_of(
    image: Image, seq: int, route: str, key: str, values: Values, *, payload: bool = False
) -> HistoryEntry:
    """The line in an image; with `payload`, also the payload it offered."""
    offered = values.decode(image["payload"]) if payload and "payload" in image else None
    return HistoryEntry(
        seq,
        route,
        key,
        correlation_of(image, key),
        unb64(image["previous"]["S"]),
        values.text(image["body"]),
        offered,
    )


# Blocks and the order -----------------------------------------------------------------------------
class Block(Struct, frozen=True):
    start: int
    token: str
    refs: list[Ref]

    @property
    def end(self) -> int:
        return self.start + len(self.refs) - 1


class Place(Struct, frozen=True):
    """A place in the order, with its line and the token of its block."""

    seq: int
    ref: Ref
    token: str


class FetchedLines(Struct, frozen=True):
    """Lines at some places, and the last of those that have another place too."""

    lines: list[HistoryEntry]
    newest_repeat: HistoryEntry | None


class Journal:
    """The journal of one ledger, for any number of threads."""

    def __init__(self, requests: Requests, names: ResourceNames, values: Values) -> None:
        self._requests, self._values = requests, values
        self._history, self._control = names.history, names.control
        self._lock = Lock()
        self._head: int | None = None
        """The newest known place. If it is out of date, a block at the next place is refused."""
        self._starts: dict[str, int] = {}
        """First places of batches, by token."""
        self._begins: dict[int, int] = {}
        """For places up to which a reader has read: the first place of the block with the next
        one."""

    # Writing --------------------------------------------------------------------------------------
    def append(self, entries: Sequence[JournalEntry], *, again: bool = False) -> list[int]:
        """Write lines in this order and return the place of each. `again`: first look for lines
        that have a place already. A caller that cannot know whether an append succeeded must set
        it, or lines are delivered twice. No line is lost either way."""
        wanted: dict[Ref, JournalEntry] = {}
        for entry in entries:
            wanted.setdefault(entry.ref, entry)
        places = self.placed(list(wanted.values())) if again else {}
        fresh = [entry for ref, entry in wanted.items() if ref not in places]
        if fresh:
            places |= self._write(fresh)
        return [places[entry.ref] for entry in entries]

    def _write(self, entries: list[JournalEntry]) -> dict[Ref, int]:
        after = self._known_head()
        batches: list[JournalBatch] = []
        first = 0
        for length in portions([entry.ref for entry in entries], BLOCK):
            batches.append(
                JournalBatch(
                    secrets.token_urlsafe(9), entries[first : first + length], after + first
                )
            )
            first += length
        self._requests.batch_write(
            self._history, [image for batch in batches for image in images_of(batch, self._values)]
        )
        places: dict[Ref, int] = {}
        for batch in batches:
            start = self._place(batch)
            places |= {entry.ref: start + nth for nth, entry in enumerate(batch.entries)}
        return places

    def _place(self, batch: JournalBatch) -> int:
        """Put the batch's block after the last block; returns its first place."""
        refs = encode_refs([entry.ref for entry in batch.entries])
        losses = 0
        # Threads of one process take turns; the condition handles other processes.
        with self._lock:
            while True:
                start = (self._head or 0) + 1
                if start > batch.after + 1 + REACH:
                    batch.after = start - 1
                    self._requests.batch_write(self._history, images_of(batch, self._values))
                block = {**_block_key(start), "token": {"S": batch.token}, "lines": {"S": refs}}
                absent = expressions(ConditionExpression="attribute_not_exists(#name)")
                there = self._requests.conflict(
                    "put_item", TableName=self._control, Item=block, **absent
                )
                # Our own token: this is the repeat of a put whose answer was lost.
                if there is not None and there.get("token") != {"S": batch.token}:
                    self._requests.sleep(race_pause_s(losses, self._requests.chance()))
                    losses += 1
                    self._head = self.last_seq()
                    continue
                self._head = start + len(batch.entries) - 1
                self._remember(batch.token, start)
                return start

    def placed(self, entries: Sequence[JournalEntry]) -> dict[Ref, int]:
        """The places of those entries that are already written, byte for byte equal, and have a
        place."""
        keys = [line_key(*entry.ref) for entry in entries]
        images = {line_at(image): image for image in self._requests.batch_get(self._history, keys)}
        found: dict[Ref, Image] = {}
        for entry in entries:
            image = images.get((item_name(*entry.ref[:2]), entry.version))
            if image is not None and self._is_line(image, entry.body):
                found[entry.ref] = image
        places = self._places_of(found.values())
        return {
            ref: places[line_at(image)] for ref, image in found.items() if line_at(image) in places
        }

    def _is_line(self, image: Image, body: bytes) -> bool:
        """Whether the image holds this line. An unreadable one does not: it is written again, since
        twice is better than lost."""
        try:
            return self._values.text(image["body"]) == body
        except UNREADABLE:
            return False

    def remove(self, route: str, key: str, up_to: int, life: int = 0) -> None:
        """Remove the lines of an item whose last line has the place `up_to`. Their places stay
        empty. Lines after that place belong to a later item with the same key and stay."""
        images = [
            image for image in self._lines(route, named(key, life)) if batch_of(image)[2] < up_to
        ]
        self._requests.batch_write(
            self._history,
            deletes=[{name: image[name] for name in ("item", "version")} for image in images],
        )
        for image in images:
            self._values.remove(image, _blob_place(route, named(key, life)))

    def find_key(self, route: str, key: str, life: int) -> KeyLines:
        """Where a key is. Reads all blocks, one for about a hundred lines of the ledger: lines that
        were pruned are still named there. `life` is the last one, whose blocks may be renamed
        already."""
        blocks = [
            image
            for image in self._requests.query(self._control, **kind_query(JOURNAL))
            if _names_key(image, route, key)
        ]
        lives = {life} | {
            _life_in(ref)
            for image in blocks
            for ref in _block_of(image).refs
            if _is_of(ref, route, key)
        }
        return KeyLines(blocks, sorted(lives))

    def forget(self, route: str, key: str, name: str, found: KeyLines) -> int:
        """Remove the content of all lines of a key, of all its lives, and put the name into the
        place of the key; returns how many lines."""
        emptied_lines = sum(self._empty(route, key, name, life) for life in found.lives)
        for image in found.blocks:
            self._rename_in_block(image, route, key, name)
        return emptied_lines

    def _empty(self, route: str, key: str, name: str, life: int) -> int:
        """Write the lines of one life again under the name, without content, then remove them;
        returns how many."""
        images = list(self._lines(route, named(key, life)))
        entries = [self._read(image, 0, route, key, False) for image in images]
        rest = []
        for image, stub in zip(images, emptied(entries, name), strict=True):
            line = line_key(route, named(name, life), int(image["version"]["N"]))
            place = {attribute: image[attribute] for attribute in ("batch", "nth", "after")}
            rest.append(
                {
                    **line,
                    "previous": {"S": b64(stub.previous)},
                    "body": {"S": stub.body.decode()},
                    **place,
                }
            )
        self._requests.batch_write(self._history, rest)
        self._requests.batch_write(
            self._history,
            deletes=[{part: image[part] for part in ("item", "version")} for image in images],
        )
        for image in images:
            self._values.remove(image, _blob_place(route, named(key, life)))
        return len(images)

    def _rename_in_block(self, image: Image, route: str, key: str, name: str) -> None:
        """Put the name into the place of the key in one block. Another process may do the same for
        another key of it."""
        present: Image | None = image
        while present is not None:
            block = _block_of(present)
            refs = [
                (route, named(name, _life_in(ref)), ref[2]) if _is_of(ref, route, key) else ref
                for ref in block.refs
            ]
            values = {"lines": {"S": encode_refs(refs)}, "old": present["lines"]}
            update = expressions(
                values, UpdateExpression="SET #lines = :lines", ConditionExpression="#lines = :old"
            )
            there = self._requests.conflict(
                "update_item", TableName=self._control, Key=_block_key(block.start), **update
            )
            present = None if there is None or there["lines"] == values["lines"] else there

    # Reading --------------------------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        """Lines in the order written, after the place `after`, with the payloads they offered.
        Removed lines are left out, and repeats (see `_repeats`); but not a repeat at the newest
        place, so that a reader comes to the end."""
        after = max(0, after)
        found: list[HistoryEntry] = []
        newest_repeat: HistoryEntry | None = None
        waiting: list[Place] = []
        blocks: list[Block] = []
        for block in self._blocks(after, limit):
            blocks.append(block)
            waiting += [
                Place(seq, ref, block.token)
                for seq, ref in enumerate(block.refs, block.start)
                if seq > after
            ]
            while 0 < (short := limit - len(found)) <= len(waiting):
                fetched = self._fetch(waiting[:short])
                found += fetched.lines
                newest_repeat = fetched.newest_repeat or newest_repeat
                waiting = waiting[short:]
            if len(found) >= limit:
                break
        else:
            fetched = self._fetch(waiting)
            found += fetched.lines
            newest_repeat = fetched.newest_repeat or newest_repeat
            if newest_repeat is not None and (not found or found[-1].seq < newest_repeat.seq):
                found.append(newest_repeat)
        self._mark(found[-1].seq if found else after, blocks)
        return found

    def last_seq(self) -> int:
        """The newest place; 0 if there is none."""
        answer = self._requests.call(
            "dynamodb",
            "query",
            TableName=self._control,
            **kind_query(JOURNAL),
            ScanIndexForward=False,
            Limit=1,
        )
        return next((_block_of(image).end for image in answer["Items"]), 0)

    def history(
        self, route: str, key: str, life: int = 0, *, placed: bool = True, payloads: bool = False
    ) -> list[HistoryEntry]:
        """One item's lines, oldest first; with `payloads`, also the payloads they offered. A line
        without a block counts as newer than all lines with a place, because no subscriber has it
        yet. `placed=False` saves reading the blocks."""
        images = list(self._lines(route, named(key, life)))
        if not placed:
            return [self._read(image, 0, route, key, payloads) for image in images]
        places = self._places_of(images)
        unplaced = [line_at(image) for image in images if line_at(image) not in places]
        if unplaced:
            places |= {line: place for place, line in enumerate(unplaced, self.last_seq() + 1)}
        return [self._read(image, places[line_at(image)], route, key, payloads) for image in images]

    def _read(self, image: Image, place: int, route: str, key: str, payload: bool) -> HistoryEntry:
        try:
            return written_of(image, place, route, key, self._values, payload=payload)
        except UNREADABLE as error:
            return unreadable(image, place, route, key, error)

    def _lines(self, route: str, name: str) -> Iterator[Image]:
        return self._requests.query(
            self._history,
            **key_condition("#item = :item", item=item_name(route, name)),
            ConsistentRead=True,
        )

    def _blocks(self, after: int, limit: int) -> Iterator[Block]:
        """The blocks with places after `after`, without gaps.

        A query is not a snapshot: it may miss a block that is put while it runs and still return
        the next one.
        """
        expected = after + 1
        # Where the block of the next place is not known: go back at most by the length of a block.
        begin = self._begins.get(after, max(1, expected - BLOCK + 1))
        later = kind_query(JOURNAL, " AND #name >= :begin", begin=_block_name(begin))
        images = self._requests.query(self._control, **later, Limit=max(4, limit // 25))
        for block in map(_block_of, images):
            if block.start > expected:
                return
            if block.end >= expected:
                yield block
                expected = block.end + 1
            elif block.end == after:
                self._begins[after] = expected

    def _mark(self, place: int, blocks: list[Block]) -> None:
        """Remember where the next read from this place begins. Without it the next read is only
        wider."""
        if len(self._begins) >= REMEMBERED:
            self._begins.clear()
        for block in blocks:
            if block.start <= place <= block.end:
                self._begins[place] = block.start if place < block.end else block.end + 1

    def _fetch(self, places: Sequence[Place]) -> FetchedLines:
        """The lines at these places. Read consistently: a line not visible yet would count as
        removed."""
        images = self._requests.batch_get(self._history, [line_key(*place.ref) for place in places])
        lines = {line_at(image): image for image in images}
        repeats = self._repeats(places, lines)
        written = []
        newest_repeat: HistoryEntry | None = None
        for place in places:
            route, name, version = place.ref
            image, key = lines.get((item_name(route, name), version)), key_in(name)
            if image is None:
                continue
            try:
                entry = written_of(image, place.seq, route, key, self._values, payload=True)
            except UNREADABLE as error:
                # Its blob is missing: either the line was removed since, which is fine, or it is
                # damaged, which is logged once.
                if not self._requests.batch_get(self._history, [line_key(route, name, version)]):
                    continue
                entry = unreadable(image, place.seq, route, key, error)
            if place.seq in repeats:
                newest_repeat = entry
            else:
                written.append(entry)
        return FetchedLines(written, newest_repeat)

    def _repeats(self, places: Sequence[Place], lines: Mapping[tuple[str, int], Image]) -> set[int]:
        """Places of lines that have another place too: two readers of one shard have written them.
        The place that counts is that of the batch which the line names, so every reader leaves out
        the same ones. A line whose batch has no place yet is no repeat: if the process that wrote
        it last has died, no other place may come."""
        doubtful = {
            place.seq: image
            for place in places
            if (image := lines.get((item_name(*place.ref[:2]), place.ref[2]))) is not None
            and batch_of(image)[0] != place.token
        }
        if not doubtful:
            return set()
        valid = self._places_of(doubtful.values())
        return {seq for seq, image in doubtful.items() if valid.get(line_at(image), seq) != seq}

    # Places ---------------------------------------------------------------------------------------
    def _places_of(self, images: Iterable[Image]) -> dict[tuple[str, int], int]:
        """The places of these lines; lines without a block have none."""
        batches = {line_at(image): batch_of(image) for image in images}
        expected = {token: after + 1 for token, _, after in batches.values()}
        starts = {token: self._starts[token] for token in expected if token in self._starts}
        missing = {token: place for token, place in expected.items() if token not in starts}
        for block in self._requests.batch_get(
            self._control, [_block_key(place) for place in missing.values()]
        ):
            if block["token"]["S"] in missing:
                starts[block["token"]["S"]] = int(block["name"]["S"])
        for token in missing.keys() - starts.keys():
            later = self._look_for(token, missing[token])
            if later is not None:
                starts[token] = later
        for token in missing.keys() & starts.keys():
            self._remember(token, starts[token])
        return {
            line: starts[token] + nth
            for line, (token, nth, _) in batches.items()
            if token in starts
        }

    def _look_for(self, token: str, place: int) -> int | None:
        """Find the block of a batch that lost a race and so begins later than expected."""
        near = kind_query(
            JOURNAL,
            " AND #name BETWEEN :first AND :last",
            first=_block_name(place),
            last=_block_name(place + REACH),
        )
        images = self._requests.query(self._control, **near)
        return next(
            (int(image["name"]["S"]) for image in images if image["token"]["S"] == token), None
        )

    def _remember(self, token: str, start: int) -> None:
        if len(self._starts) >= REMEMBERED:
            self._starts.clear()
        self._starts[token] = start

    def _known_head(self) -> int:
        with self._lock:
            if self._head is None:
                self._head = self.last_seq()
            return self._head


def race_pause_s(losses: int, chance: float) -> float:
    """Seconds until the next try after a lost race for a place; `chance` is between 0 and 1. A
    refused put is paid for like a successful one, and all are on one partition key: without pauses
    most of its capacity would go to refused puts."""
    return chance * min(LONGEST_RACE_PAUSE_S, FIRST_RACE_PAUSE_S * 2.0 ** min(losses, 20))


def _block_name(start: int) -> str:
    return f"{start:015d}"


def _block_key(start: int) -> Image:
    return {"kind": {"S": JOURNAL}, "name": {"S": _block_name(start)}}


def _block_of(image: Image) -> Block:
    return Block(
        int(image["name"]["S"]), image["token"]["S"], list(_decode_refs(image["lines"]["S"]))
    )


def _names_key(image: Image, route: str, key: str) -> bool:
    """Whether a block has a line of this key, in any of its lives."""
    text = msgspec.json.encode(key)[1:-1].decode()  # to decode no block without it
    return text in image["lines"]["S"] and any(
        _is_of(ref, route, key) for ref in _block_of(image).refs
    )


def _is_of(ref: Ref, route: str, key: str) -> bool:
    return ref[0] == route and key_in(ref[1]) == key


def _life_in(ref: Ref) -> int:
    """The life in the name of a line (see `named`); 0 where a key has only one."""
    life = ref[1].removeprefix(key_in(ref[1])).removeprefix("\t")
    return int(life) if life else 0


def encode_refs(refs: list[Ref]) -> str:
    """Runs of one route each: [["parcels", "p1", 1, "p2", 1], …]."""
    runs: list[list[Any]] = []
    for route, key, version in refs:
        if not runs or runs[-1][0] != route:
            runs.append([route])
        runs[-1] += (key, version)
    return msgspec.json.encode(runs).decode()


def portions(refs: Sequence[Ref], most: int) -> list[int]:
    """Lengths of the blocks that the lines are cut into: at most `most` lines each, and small
    enough for one row."""
    lengths: list[int] = []
    size = 0
    for route, key, _ in refs:
        added = len(msgspec.json.encode(route)) + len(msgspec.json.encode(key)) + PER_LINE
        if not lengths or lengths[-1] == most or size + added > LARGEST_BLOCK:
            lengths.append(0)
            size = 0
        lengths[-1] += 1
        size += added
    return lengths


def _decode_refs(text: str) -> Iterator[Ref]:
    for route, *rest in msgspec.json.decode(text):
        for key, version in zip(rest[::2], rest[1::2], strict=True):
            yield route, key, version
