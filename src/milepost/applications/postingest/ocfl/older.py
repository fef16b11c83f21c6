"""Comparison of an older version's inventory with the newest one. Pure functions; nothing here reads a disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import Any

from milepost.applications.postingest.ocfl.inventory import Inventory, Unsound, Version, checked, contents, plain_names


def check_older(older: Inventory, version: str, inventory: Inventory, where: str) -> dict[str, str]:
    """Raise Unsound unless the inventory in an older version's folder is right, and agrees with the newest one, which has been checked.
    Returns its content paths with their digests, if they are other digests than the newest one has."""
    if older.head == version and _is_part(older, inventory):
        return {}
    older = checked(older, inventory.id, where)
    if older.head != version:
        raise Unsound("E040", f"the inventory in {version} says that it is that of {older.head}", where)
    return _compare(older, inventory, where)


def _is_part(older: Inventory, inventory: Inventory) -> bool:
    """Whether the newest inventory contains all of the older one, word for word, and its versions have the usual names. Then nothing need
    be checked twice."""
    count = len(older.versions)
    return (
        older.head == f"v{count}"
        and older.versions.keys() == plain_names(count)
        and older.versions.items() <= inventory.versions.items()
        and older.manifest.items() <= inventory.manifest.items()
        and older.manifest.keys() == set().union(*[version.state for version in older.versions.values()])
        and all(map(_within(count), chain.from_iterable(older.manifest.values())))
        and older.id == inventory.id
        and older.type == inventory.type
        and older.digest_algorithm == inventory.digest_algorithm
        and older.content_directory == inventory.content_directory
        and not older.fixity
    )


@lru_cache(maxsize=256)
def _within(count: int) -> Callable[[str], bool]:
    """Whether a content path is in one of the first versions, so many."""
    prefixes = tuple(f"{name}/" for name in plain_names(count))
    return lambda path: path.startswith(prefixes)


def _compare(older: Inventory, inventory: Inventory, where: str) -> dict[str, str]:
    if older.content_directory != inventory.content_directory:
        raise Unsound("E020", f"the contentDirectory is {older.content_directory!r}, and later {inventory.content_directory!r}", where)
    if older.spec > inventory.spec:
        raise Unsound("E103", f"the inventory is of OCFL {older.spec}, and a later one of {inventory.spec}", where)
    same = older.digest_algorithm == inventory.digest_algorithm
    known = contents(older, where)
    newer = {path: digest for digest, paths in inventory.manifest.items() for path in paths}
    for path, digest in known.items():
        if path not in newer:
            raise Unsound("E023", f"the content {path!r} of an older inventory is not in the newest one", where)
        if same and newer[path] != digest:
            raise Unsound("E092", f"the content {path!r} has another digest than in the newest inventory", where)
    for name, version in older.versions.items():
        later = inventory.versions.get(name)
        if later is None or (later.state != version.state and _shape(version, older, same) != _shape(later, inventory, same)):
            raise Unsound("E066", f"version {name} does not hold the same as in the newest inventory", where)
    return {} if same else known


def _shape(version: Version, inventory: Inventory, same: bool) -> dict[str, Any]:
    """Content of a version, for comparison: by digest, or, if the algorithms differ, by the first path of each content."""
    manifest = inventory.manifest
    return {digest if same else min(manifest[digest]): sorted(names) for digest, names in version.state.items()}
