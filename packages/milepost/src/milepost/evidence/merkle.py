"""Merkle trees as in RFC 6962: leaves and nodes are hashed with different prefixes, and no leaf is
duplicated."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

EMPTY = sha256(b"").digest()

Step = tuple[str, bytes]
"""The side of the sibling hash, and that hash."""


def leaf(data: bytes) -> bytes:
    return sha256(b"\x00" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The tree from its hashed leaves to its root. Over the roots of aligned parts, each with the
    same power of two of leaves except the last, it is the upper part of the tree over all their
    leaves."""
    found = [list(leaves)]
    while len(found[-1]) > 1:
        below = found[-1]
        above = [node(below[index], below[index + 1]) for index in range(0, len(below) - 1, 2)]
        # A last node without a sibling moves up unchanged: the same as splitting at powers of two.
        found.append(above + ([below[-1]] if len(below) % 2 else []))
    return found


def root(leaves: Sequence[bytes]) -> bytes:
    return levels(leaves)[-1][0] if leaves else EMPTY


def path(tree: Sequence[Sequence[bytes]], index: int) -> list[Step]:
    """The path from one leaf of a tree (see `levels`) to its root."""
    steps: list[Step] = []
    for level in tree[:-1]:
        sibling = index ^ 1
        if sibling < len(level):
            steps.append(("left" if sibling < index else "right", level[sibling]))
        index //= 2
    return steps


def climb(start: bytes, steps: Sequence[Step]) -> bytes:
    """The root that a path leads to from a hashed leaf."""
    digest = start
    for side, sibling in steps:
        if side not in ("left", "right"):
            raise ValueError(f"{side!r} is neither 'left' nor 'right'")
        digest = node(sibling, digest) if side == "left" else node(digest, sibling)
    return digest
