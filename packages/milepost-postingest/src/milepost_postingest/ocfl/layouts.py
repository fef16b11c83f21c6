"""Storage layouts of an OCFL repository: from an object's id to its path, by the OCFL community
extensions.

Written out here rather than taken from ocfl-py: that library has no 0004, which is the layout that
repositories made by ocfl-java have, and it brings s3fs along, which holds boto3 back to the
releases that aiobotocore knows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

import milepost as mp

Layout = Callable[[str], str]
"""From an object's id to its path below the storage root, with '/' between the folders."""

HASHES: dict[str, Callable[..., Any]] = {
    "md5": partial(hashlib.md5, usedforsecurity=False),
    "sha1": partial(hashlib.sha1, usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
    "blake2b-512": hashlib.blake2b,
}
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_LONGEST = 100
Tuples = Annotated[int, Meta(ge=0, le=32)]


def stays_below(path: str) -> bool:
    """Whether this relative path leads to something below the folder where it starts, and is
    written in one way only."""
    framed = f"/{path}/"
    return (
        "//" not in framed
        and "\0" not in path
        and ("/." not in framed or ("/./" not in framed and "/../" not in framed))
    )


class _Flat(Struct):
    """0002: the id is the folder."""

    def path(self, object_id: str) -> str:
        return _one_folder(object_id, object_id)


class _Hashed(Struct, rename="camel"):
    """Common part of 0003 and 0004: folders named after the first digits of the id's digest."""

    digest_algorithm: str = "sha256"
    tuple_size: Tuples = 3
    number_of_tuples: Tuples = 3

    def __post_init__(self) -> None:
        if self.digest_algorithm not in HASHES:
            raise ValueError(
                f"digestAlgorithm is {self.digest_algorithm!r}, expected one of {', '.join(HASHES)}"
            )
        digits = len(self.digest(""))
        if (self.tuple_size == 0) != (self.number_of_tuples == 0) or self.used > digits:
            raise ValueError(
                f"tupleSize {self.tuple_size} times numberOfTuples {self.number_of_tuples} must be within the digest's {digits} digits, "
                "and both are 0 or neither"
            )

    @property
    def used(self) -> int:
        return self.tuple_size * self.number_of_tuples

    def digest(self, object_id: str) -> str:
        return str(HASHES[self.digest_algorithm](object_id.encode()).hexdigest())

    def below(self, digest: str, folder: str) -> str:
        size = self.tuple_size
        return "/".join(
            [*[digest[at : at + size] for at in range(0, self.used, size or 1)], folder]
        )


class _HashAndId(_Hashed, rename="camel"):
    """0003: below these folders, one that is named after the id, percent-encoded."""

    def path(self, object_id: str) -> str:
        digest = self.digest(object_id)
        folder = "".join(
            c if _PLAIN.fullmatch(c) else "".join(f"%{byte:02x}" for byte in c.encode())
            for c in object_id
        )
        return self.below(
            digest, folder if len(folder) <= _LONGEST else f"{folder[:_LONGEST]}-{digest}"
        )


class _HashOnly(_Hashed, rename="camel"):
    """0004: below these folders, one that is named after the digest, or the rest of it."""

    short_object_root: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.short_object_root and self.used == len(self.digest("")):
            raise ValueError(
                "shortObjectRoot is true, but the tuples leave nothing of the digest for it"
            )

    def path(self, object_id: str) -> str:
        digest = self.digest(object_id)
        return self.below(digest, digest[self.used :] if self.short_object_root else digest)


class _FlatWithoutPrefix(Struct):
    """0006: the folder is named after the part of the id behind the last delimiter."""

    delimiter: Annotated[str, Meta(min_length=1)]

    def path(self, object_id: str) -> str:
        return _one_folder(_without_prefix(object_id, self.delimiter), object_id)


class _TuplesWithoutPrefix(Struct, rename="camel"):
    """0007: the same, below folders named after its first characters (padded with zeros; or its
    last ones, reversed)."""

    delimiter: Annotated[str, Meta(min_length=1)] = ":"
    tuple_size: Annotated[int, Meta(ge=1, le=32)] = 3
    number_of_tuples: Annotated[int, Meta(ge=1, le=32)] = 3
    zero_padding: Annotated[str, Meta(pattern="^(left|right)$")] = "left"
    reverse_object_root: bool = False

    def path(self, object_id: str) -> str:
        if not object_id.isascii():
            raise mp.MalformedInput(
                f"{object_id!r} has letters beyond ASCII; no object of layout 0007 can have it for an id"
            )
        folder = _one_folder(_without_prefix(object_id, self.delimiter), object_id)
        length = self.tuple_size * self.number_of_tuples
        padded = (
            folder.rjust(length, "0") if self.zero_padding == "left" else folder.ljust(length, "0")
        )
        turned = padded[::-1] if self.reverse_object_root else padded
        return "/".join(
            [
                *(turned[at : at + self.tuple_size] for at in range(0, length, self.tuple_size)),
                folder,
            ]
        )


_LAYOUTS: dict[str, Any] = {
    "0002-flat-direct-storage-layout": _Flat,
    "0003-hash-and-id-n-tuple-storage-layout": _HashAndId,
    "0004-hashed-n-tuple-storage-layout": _HashOnly,
    "0006-flat-omit-prefix-storage-layout": _FlatWithoutPrefix,
    "0007-n-tuple-omit-prefix-storage-layout": _TuplesWithoutPrefix,
}
KNOWN = tuple(_LAYOUTS)


def full_name(name: str) -> str | None:
    """The layout's full name, which may be shortened to its number; None if it is unknown."""
    return next((known for known in KNOWN if name in (known, known[:4])), None)


def layout_of(name: str, config: Mapping[str, Any]) -> Layout:
    """The layout with these parameters. Raises ConfigMistake if they are wrong."""
    said = config.get("extensionName", name)
    if said != name:
        raise mp.ConfigMistake(f"extensionName is {said!r}, expected {name!r}")
    try:
        layout = msgspec.convert(config, _LAYOUTS[name])
    except msgspec.ValidationError as error:
        raise mp.ConfigMistake(str(error)) from error

    def place(object_id: str) -> str:
        path: str = layout.path(object_id)
        if not object_id or not stays_below(path):
            raise mp.MalformedInput(
                f"{object_id!r} cannot be the id of an object here: it would be at {path!r}"
            )
        return path

    return place


def _without_prefix(object_id: str, delimiter: str) -> str:
    # Greedy, so that the last delimiter counts, even if two of them overlap.
    prefix = re.match(f"(?is).*{re.escape(delimiter)}", object_id)
    return object_id[prefix.end() :] if prefix else object_id


def _one_folder(folder: str, object_id: str) -> str:
    if "/" in folder:
        raise mp.MalformedInput(
            f"{object_id!r} cannot be the id of an object here: the folder's name would have a '/' in it"
        )
    return folder
