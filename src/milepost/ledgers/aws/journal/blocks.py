"""Journal blocks in the control table: each is named after its first place and lists its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from milepost.ledgers.aws.journal.lines import Ref
from milepost.ledgers.aws.tables.keys import Image

JOURNAL = "journal"
LARGEST_BLOCK = 300_000
"""Maximum bytes of keys in one block; a row of the table holds 400 KB."""
PER_LINE = 32
"""Bytes for a line's version and separator."""


class Block(Struct, frozen=True):
    start: int
    token: str
    refs: list[Ref]

    @property
    def end(self) -> int:
        return self.start + len(self.refs) - 1


def block_name(start: int) -> str:
    return f"{start:015d}"


def block_key(start: int) -> Image:
    return {"kind": {"S": JOURNAL}, "name": {"S": block_name(start)}}


def block_of(image: Image) -> Block:
    return Block(int(image["name"]["S"]), image["token"]["S"], list(_decode_refs(image["lines"]["S"])))


def encode_refs(refs: list[Ref]) -> str:
    """Runs of one route each: [["parcels", "p1", 1, "p2", 1], …]."""
    runs: list[list[Any]] = []
    for route, key, version in refs:
        if not runs or runs[-1][0] != route:
            runs.append([route])
        runs[-1] += (key, version)
    return msgspec.json.encode(runs).decode()


def portions(refs: Sequence[Ref], most: int) -> list[int]:
    """Lengths of the blocks that the lines are cut into: at most `most` lines each, and small enough for one row."""
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
