"""Files that stages reported in their outputs: digests, sizes, and the volumes that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct


class FileFacts(Struct):
    """Facts about one file from the outputs. `stages` are those that reported it; `volumes` are by the stage that named them."""

    stages: list[str] = []
    digests: dict[str, str] = {}
    size: int | None = None
    volumes: dict[str, list[str]] = {}


def reported_files(entries: Iterable[Mapping[str, Any]]) -> dict[str, FileFacts]:
    """The files named in the outputs of these stages, by path; each entry has `stage` and, if it still exists, `output`.

    An output may have `filePaths`, a list, with `digests` of "algorithm:hex" and `sizes` in bytes by path; `files`, a list of objects
    with `path`, `digest` and `bytes`; or be an object of paths, each with a list of the volumes that hold the file.
    """
    files: dict[str, FileFacts] = {}
    for entry in entries:
        stage, output = str(entry.get("stage")), entry.get("output")
        if not isinstance(output, dict):
            continue
        digests, sizes = _object(output.get("digests")), _object(output.get("sizes"))
        for path in dict.fromkeys([*_texts(output.get("filePaths")), *digests, *sizes]):
            _add(files, path, stage, digests.get(path), sizes.get(path))
        for file in output["files"] if isinstance(output.get("files"), list) else ():
            if isinstance(file, dict) and isinstance(file.get("path"), str):
                _add(files, file["path"], stage, file.get("digest"), file.get("bytes"))
        if _maps_volumes(output):
            for path, volumes in output.items():
                facts = _add(files, path, stage)
                facts.volumes[stage] = list(dict.fromkeys([*facts.volumes.get(stage, []), *volumes]))
    return files


def volumes_of(output: Any) -> list[str]:
    """The volumes that one output names, each once."""
    if not isinstance(output, dict) or not _maps_volumes(output):
        return []
    return list(dict.fromkeys(volume for volumes in output.values() for volume in volumes))


def paths_on(output: Any, volume: str) -> list[str]:
    """The files that one output reports on this volume."""
    if not isinstance(output, dict) or not _maps_volumes(output):
        return []
    return [path for path, volumes in output.items() if volume in volumes]


def _maps_volumes(output: dict[str, Any]) -> bool:
    """Whether the output maps paths to lists of volumes."""
    lists = all(isinstance(value, list) and value == _texts(value) for value in output.values())
    return bool(output) and lists and "filePaths" not in output


def _add(files: dict[str, FileFacts], path: str, stage: str, digest: Any = None, size: Any = None) -> FileFacts:
    facts = files.setdefault(path, FileFacts())
    if stage not in facts.stages:
        facts.stages.append(stage)
    if isinstance(digest, str) and ":" in digest:
        algorithm, _, value = digest.partition(":")
        facts.digests[algorithm] = value
    if type(size) is int:
        facts.size = size
    return facts


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
