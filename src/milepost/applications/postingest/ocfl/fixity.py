"""Fixity of an OCFL object: the digests that its inventories have for each file, and the check that reads the files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from milepost.applications.postingest.ocfl.folder import OPEN_FILE, ObjectFolder, not_so
from milepost.applications.postingest.ocfl.inventory import DIGESTS, Inventory, Unsound

CHUNK = 1 << 20
FIXITY: dict[str, Callable[[], Any]] = {
    **DIGESTS,
    "md5": partial(hashlib.md5, usedforsecurity=False),
    "sha1": partial(hashlib.sha1, usedforsecurity=False),
    "blake2b-512": hashlib.blake2b,
    "blake2b-384": partial(hashlib.blake2b, digest_size=48),
    "blake2b-256": partial(hashlib.blake2b, digest_size=32),
    "blake2b-160": partial(hashlib.blake2b, digest_size=20),
}
"""The algorithms of fixity blocks that are computed; others are ignored, as OCFL requires of clients (E028)."""
Wanted = dict[str, dict[str, str]]
"""The digests that files must have, by path and algorithm; the first is that of the object's inventory."""


def wanted_digests(inventory: Inventory, contents: Mapping[str, str], older: Iterable[tuple[Inventory, Mapping[str, str]]]) -> Wanted:
    """All digests of an object: those of its inventory, with its content paths, and of older inventories, with other digests for them.
    Raises Unsound if a file has two of one algorithm."""
    wanted = {path: {inventory.digest_algorithm: digest} for path, digest in contents.items()}
    _add_block(wanted, inventory)
    for own, others in older:
        for path, digest in others.items():
            _add(wanted, path, own.digest_algorithm, digest)
        _add_block(wanted, own)
    return wanted


def _add_block(wanted: Wanted, inventory: Inventory) -> None:
    """Add the digests of the fixity block that can be computed here."""
    for algorithm, block in inventory.fixity.items():
        if algorithm in FIXITY:
            for digest, paths in block.items():
                for path in paths:
                    _add(wanted, path, algorithm, digest.lower())


def _add(wanted: Wanted, path: str, algorithm: str, digest: str) -> None:
    if wanted[path].setdefault(algorithm, digest) != digest:
        raise Unsound("E093", f"the object's inventories have two {algorithm} digests for one file", path)


def check_fixity(folder: ObjectFolder, wanted: Wanted, sizes: Mapping[str, int]) -> None:
    """Read every file once. Raises Unsound unless it has all its digests."""
    for path, digests in wanted.items():
        _check_digests(folder, path, digests, sizes[path])


def _check_digests(folder: ObjectFolder, path: str, digests: Mapping[str, str], size: int) -> None:
    computed = {algorithm: FIXITY[algorithm]() for algorithm in digests}
    chunk = memoryview(bytearray(min(CHUNK, size + 1)))
    try:
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, OPEN_FILE, dir_fd=folder.number)) as file:
            while n := file.readinto(chunk):
                for digest in computed.values():
                    digest.update(chunk[:n])
    except OSError as error:
        not_so(error, path, "file")
    for number, (algorithm, expected) in enumerate(digests.items()):
        found = computed[algorithm].hexdigest()
        if found != expected:
            code = "E093" if number else "E092"
            raise Unsound(code, f"the file's {algorithm} digest is {found}, and the inventory says {expected}", path)
