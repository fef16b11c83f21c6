"""Comparison of what a stage confirmed with what its check finds later: paths, digests, sizes and
volumes."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost_postingest.answers import named
from milepost_postingest.dialects import as_json


class Facts(Struct, frozen=True):
    """What an answer of a stage says about files, by path."""

    paths: frozenset[str] = frozenset()
    digests: dict[str, str] = {}
    """As "algorithm:hex"."""
    sizes: dict[str, int] = {}
    volumes: dict[str, list[str]] = {}


class Comparison(Struct, frozen=True):
    """What became of the confirmed files. Files that were added later are no difference: new
    versions may add some."""

    confirmed: int
    """Confirmed files; 0: what was confirmed is not recorded."""
    missing: list[str] = []
    other: list[str] = []
    """Files with another digest or size, each with what it is."""
    moved: list[str] = []
    """Files that are on other volumes, each with old and new ones."""
    volumes: dict[str, list[str]] = {}
    """The volumes on which the files are now."""
    digests: int = 0
    """Files whose digests were compared."""
    sizes: int = 0
    added: int = 0
    content_read: bool | None = None
    """Whether the content of the files was read; None: the check does not say."""

    @property
    def missing_text(self) -> str:
        """How many files are missing, and which."""
        return f"{len(self.missing):,} of {self.confirmed:,} files missing: {named(self.missing, self.missing)}"

    @property
    def other_text(self) -> str:
        """Some of the files that are other ones now."""
        more = len(self.other) - 3
        return "; ".join(self.other[:3]) + (f"; and {more:,} more" if more > 0 else "")

    def __str__(self) -> str:
        """The result of a comparison without differences, for the note of the check."""
        if not self.confirmed:
            return "compared with the inventory only, because it is not recorded which files were confirmed"
        parts = [f"{self.confirmed:,} confirmed {'file' if self.confirmed == 1 else 'files'}"]
        for what, n in (("digests", self.digests), ("sizes", self.sizes)):
            if n:
                parts.append(f"same {what}" if n == self.confirmed else f"same {what} of {n:,}")
        if not self.digests and not self.volumes:
            parts.append("no digests compared")
        if self.content_read is False:
            parts.append("content not read")
        if self.moved:
            more = f"; and {len(self.moved) - 3:,} more" if len(self.moved) > 3 else ""
            parts.append(f"{len(self.moved):,} on other volumes: {'; '.join(self.moved[:3])}{more}")
        elif self.volumes:
            parts.append("same volumes")
        if self.added:
            parts.append(f"{self.added:,} added since")
        return ", ".join(parts)


def compared(confirmed: Any, present: Any) -> Comparison:
    """Compare an answer that confirmed a stage with the present one."""
    before, now = facts_of(confirmed), facts_of(present)
    kept = sorted(before.paths & now.paths)
    digests = [
        path for path in kept if _comparable(before.digests.get(path), now.digests.get(path))
    ]
    sizes = [path for path in kept if path in before.sizes and path in now.sizes]
    other = [
        f"{path} has {now.digests[path]}, not {before.digests[path]}"
        for path in digests
        if not _same(before, now, path)
    ]
    other += [
        f"{path} has {now.sizes[path]:,} bytes, not {before.sizes[path]:,}"
        for path in sizes
        if before.sizes[path] != now.sizes[path]
    ]
    moved = [
        f"{path} on {', '.join(now.volumes[path])} (was {', '.join(before.volumes[path])})"
        for path in kept
        if path in now.volumes and set(before.volumes.get(path, ())) - set(now.volumes[path])
    ]
    read = present.get("fixity") if isinstance(present, dict) else None
    return Comparison(
        len(before.paths),
        sorted(before.paths - now.paths),
        other,
        moved,
        now.volumes,
        len(digests),
        len(sizes),
        len(now.paths - before.paths),
        read if isinstance(read, bool) else None,
    )


def _comparable(before: str | None, now: str | None) -> bool:
    """Whether these are digests of one algorithm."""
    return (
        before is not None and now is not None and before.partition(":")[0] == now.partition(":")[0]
    )


def _same(before: Facts, now: Facts, path: str) -> bool:
    return before.digests[path].lower() == now.digests[path].lower()


def facts_of(answer: Any) -> Facts:
    """The files of an answer: `filePaths` with `digests` and `sizes`, or an object of paths with
    their volumes. Nothing for an answer that names no files."""
    value = as_json(answer)
    if not isinstance(value, dict):
        return Facts()
    if "filePaths" in value:
        paths = value["filePaths"]
        listed = (
            frozenset(path for path in paths if isinstance(path, str))
            if isinstance(paths, list)
            else frozenset()
        )
        return Facts(listed, _of_type(value.get("digests"), str), _of_type(value.get("sizes"), int))
    volumes = {path: _volumes(place) for path, place in value.items()}
    return (
        Facts(frozenset(volumes), volumes={path: names for path, names in volumes.items() if names})
        if any(volumes.values())
        else Facts()
    )


def _volumes(place: Any) -> list[str]:
    """The volumes of one file, of a list or of an object with `volumes`."""
    names = place.get("volumes") if isinstance(place, dict) else place
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _of_type(values: Any, kind: type) -> dict[str, Any]:
    """The entries of an object whose values are of this type."""
    return (
        {path: value for path, value in values.items() if type(value) is kind}
        if isinstance(values, dict)
        else {}
    )
