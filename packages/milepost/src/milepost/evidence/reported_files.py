"""Files that stages reported in their outputs: digests, sizes, and the volumes that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct

LATER = "stages"
"""The one field of the output of a later check: what it found at other stages."""


class FileFacts(Struct):
    """Facts about one file from the outputs. `stages` are those that reported it; `volumes` are by
    the stage that named them."""

    stages: list[str] = []
    digests: dict[str, str] = {}
    size: int | None = None
    volumes: dict[str, list[str]] = {}


def reported_files(entries: Iterable[Mapping[str, Any]]) -> dict[str, FileFacts]:
    """The files named in the outputs of these stages, by path; each entry has `stage` and, if it
    still exists, `output`.

    An output may have `filePaths`, a list, with `digests` of "algorithm:hex" and `sizes` in bytes
    by path; `files`, a list of objects with `path`, `digest` and `bytes`; or be an object of paths,
    each with a list of the volumes that hold the file. The output of a later check has such outputs
    by stage, in `stages`.
    """
    files: dict[str, FileFacts] = {}
    for stage, output in chain.from_iterable(
        _reports(str(entry.get("stage")), entry.get("output")) for entry in entries
    ):
        digests, sizes = _object(output.get("digests")), _object(output.get("sizes"))
        for path in dict.fromkeys([*_texts(output.get("filePaths")), *digests, *sizes]):
            _add(files, path, stage, digests.get(path), sizes.get(path))
        for file in output["files"] if isinstance(output.get("files"), list) else ():
            if isinstance(file, dict) and isinstance(file.get("path"), str):
                _add(files, file["path"], stage, file.get("digest"), file.get("bytes"))
        if _maps_volumes(output):
            for path, volumes in output.items():
                facts = _add(files, path, stage)
                facts.volumes[stage] = list(
                    dict.fromkeys([*facts.volumes.get(stage, []), *volumes])
                )
    return files


def volumes_of(output: Any) -> list[str]:
    """The volumes that one output names, each once."""
    maps = [report for _, report in _reports("", output) if _maps_volumes(report)]
    return list(
        dict.fromkeys(
            volume for report in maps for volumes in report.values() for volume in volumes
        )
    )


def paths_on(output: Any, volume: str) -> list[str]:
    """The files that one output reports on this volume."""
    maps = [report for _, report in _reports("", output) if _maps_volumes(report)]
    return [path for report in maps for path, volumes in report.items() if volume in volumes]


def later_reports(results: Mapping[str, Any]) -> dict[str, Any]:
    """What checks of another route have found since, by the stage of this one that it replaces."""
    return {
        stage: report
        for output in results.values()
        if _is_recheck(output)
        for stage, report in output[LATER].items()
    }


def _reports(stage: str, output: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The output itself, or what a later check reports of several stages."""
    if _is_recheck(output):
        yield from (
            (name, report) for name, report in output[LATER].items() if isinstance(report, dict)
        )
    elif isinstance(output, dict):
        yield stage, output


def _is_recheck(output: Any) -> bool:
    return isinstance(output, dict) and output.keys() == {LATER} and isinstance(output[LATER], dict)


def _maps_volumes(output: dict[str, Any]) -> bool:
    """Whether the output maps paths to lists of volumes."""
    lists = all(isinstance(value, list) and value == _texts(value) for value in output.values())
    return bool(output) and lists and "filePaths" not in output


def _add(
    files: dict[str, FileFacts], path: str, stage: str, digest: Any = None, size: Any = None
) -> FileFacts:
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
