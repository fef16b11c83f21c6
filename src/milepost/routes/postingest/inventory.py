"""An OCFL object's inventory: what it says its newest version holds, and where. Nothing here touches a disk."""

from __future__ import annotations

import hashlib
import re

import msgspec
from msgspec import Struct

import milepost as mp
from milepost.routes.postingest.ocfl_layouts import stays_below

NAME = "inventory.json"
DIGESTS = {"sha512": hashlib.sha512, "sha256": hashlib.sha256}
"""The algorithms that OCFL allows."""
EMPTY = {name: digest().hexdigest() for name, digest in DIGESTS.items()}
"""The digest of nothing: a file has it exactly if it is empty."""

_HEAD = re.compile(r"v(0*[1-9][0-9]*)")
_TYPE = re.compile(r"https://ocfl\.io/(1\.[01])/spec/#inventory")
_HEX = {name: re.compile(f"[0-9a-f]{{{len(empty)}}}") for name, empty in EMPTY.items()}


class Unsound(mp.MilepostError):
    """The object is not as OCFL says. `where` is a path below the object's folder."""

    def __init__(self, what: str, where: str = NAME) -> None:
        super().__init__(what)
        self.where = where


class Version(Struct, frozen=True):
    state: dict[str, list[str]]


class Inventory(Struct, frozen=True, rename="camel"):
    id: str
    type: str
    digest_algorithm: str
    head: str
    manifest: dict[str, list[str]]
    versions: dict[str, Version]
    content_directory: str = "content"

    @property
    def spec(self) -> str:
        """The version of OCFL that it keeps to."""
        return self.type[len("https://ocfl.io/") : -len("/spec/#inventory")]


class Entry(Struct, frozen=True, gc=False):
    """A file of the newest version: its name there, where it is below the object's folder, and its digest."""

    logical: str
    content: str
    digest: str


_decoder = msgspec.json.Decoder(Inventory)
_side: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rf"([0-9a-fA-F]{{{len(empty)}}})[ \t]+inventory\.json[ \t\r\n]*".encode()) for name, empty in EMPTY.items()
}


def read_inventory(data: bytes, object_id: str) -> Inventory:
    """The inventory of this very object. Unsound if it is another's, or not one."""
    try:
        inventory = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unsound(f"the inventory cannot be read ({error})") from error
    if inventory.id != object_id:
        raise Unsound(f"the inventory is that of another object, {inventory.id!r}")
    if _TYPE.fullmatch(inventory.type) is None:
        raise Unsound(f"the inventory's type is {inventory.type!r}, which is neither OCFL 1.0 nor 1.1")
    if inventory.digest_algorithm not in EMPTY:
        raise Unsound(f"the inventory's digestAlgorithm is {inventory.digest_algorithm!r}, expected sha512 or sha256")
    number = _HEAD.fullmatch(inventory.head)
    if number is None or inventory.head not in inventory.versions or int(number[1]) != len(inventory.versions):
        raise Unsound(f"the inventory's head is {inventory.head!r}, which is not the last of its versions: {', '.join(inventory.versions)}")
    return inventory


def check_sidecar(data: bytes, sidecar: bytes, algorithm: str) -> None:
    """Unsound unless the sidecar holds the digest of these very bytes."""
    found = _side[algorithm].fullmatch(sidecar)
    if found is None:
        raise Unsound(f"the inventory's sidecar does not hold a {algorithm} digest", f"{NAME}.{algorithm}")
    if found[1].decode().lower() != DIGESTS[algorithm](data).hexdigest():
        raise Unsound(f"the inventory does not have the {algorithm} digest that its sidecar says")


def head_entries(inventory: Inventory) -> list[Entry]:
    """The files of the newest version, each at every place where its content is kept: one of several copies that is gone or
    wrong is damage too. Unsound if a path leads elsewhere, or a file has no content."""
    contents = {digest.lower(): paths for digest, paths in inventory.manifest.items()}
    if len(contents) != len(inventory.manifest):
        raise Unsound("the inventory's manifest has the same digest twice, in small and capital letters")
    inside, shape = f"{inventory.content_directory}/", _HEX[inventory.digest_algorithm]
    entries: list[Entry] = []
    for said, names in inventory.versions[inventory.head].state.items():
        digest = said.lower()
        paths = contents.get(digest)
        if not paths or not names or shape.fullmatch(digest) is None:
            raise Unsound(f"the inventory has no content for {', '.join(map(repr, names)) or 'a file'} (digest {said[:16]}…)")
        for path in paths:
            version, _, rest = path.partition("/")
            if not stays_below(path) or version not in inventory.versions or not rest.startswith(inside):
                raise Unsound(f"the inventory's content path {path!r} is not within the content of one of its versions")
        for name in names:
            if not stays_below(name):
                raise Unsound(f"the inventory's logical path {name!r} leads elsewhere")
        if len(names) == len(paths) == 1:
            entries.append(Entry(names[0], paths[0], digest))
        else:
            entries += [Entry(name, path, digest) for name, path in _pairs(names, paths)]
    _check_one_digest(entries)
    return entries


def _check_one_digest(entries: list[Entry]) -> None:
    """Unsound if a name, or a place, is said to have two contents."""
    contents: dict[str, str] = {}
    names: dict[str, str] = {}
    for entry in entries:
        if contents.setdefault(entry.content, entry.digest) != entry.digest:
            raise Unsound(f"the inventory has two digests for the content path {entry.content!r}")
        if names.setdefault(entry.logical, entry.digest) != entry.digest:
            raise Unsound(f"the inventory has two contents for {entry.logical!r}")


def _pairs(names: list[str], paths: list[str]) -> list[tuple[str, str]]:
    """Every name and every path at least once; those that look alike together."""
    if len(paths) == 1:
        return [(name, paths[0]) for name in names]
    pairs = [(next((name for name in names if path.endswith(f"/{name}")), names[0]), path) for path in paths]
    placed = {name for name, _ in pairs}
    return pairs + [(name, paths[0]) for name in names if name not in placed]
