"""Writes and validates OCFL objects with ocfl-py, in the environment that has it: a line of JSON
in, a line of JSON out.

What our reader is tested on is never written by our reader. Run by `ocfl_scene.Library`.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import ocfl


def root(path: str, spec: str, layout: str | None, params: dict[str, Any] | None) -> None:
    """A new storage root, with a layout that the library knows, or with none."""
    made = ocfl.StorageRoot(root=path, layout_name=layout, spec_version=spec)
    made.initialize(spec_version=spec, layout_params=json.dumps(params) if params else None)


def place(path: str, object_id: str) -> str:
    """Where the library would look for the object."""
    found: str = ocfl.StorageRoot(root=path).object_path(object_id)
    return found


def build(path: str, object_id: str, versions: list[dict[str, str]], **options: Any) -> None:
    """An object with these versions, each a mapping from name to text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as source:
        for number, files in enumerate(versions, 1):
            _write(Path(source, f"v{number}"), files)
        _object(object_id, options).build(
            source, versions_metadata=_metadata(len(versions)), objdir=path
        )


def add(path: str, object_id: str, files: dict[str, str], **options: Any) -> None:
    """One more version, with exactly these files."""
    with tempfile.TemporaryDirectory() as source:
        _write(Path(source), files)
        made = _object(object_id, options)
        made.add_version_with_content(objdir=path, srcdir=source, metadata=_metadata(1)[1])


def validate(path: str) -> list[str]:
    """What the library has against the object, digests of all content included; empty if
    nothing."""
    passed, validator = ocfl.Object().validate(objdir=path, log_warnings=False)
    return [] if passed else [str(validator.log)]


def _object(object_id: str, options: dict[str, Any]) -> Any:
    return ocfl.Object(identifier=object_id, **{"content_path_normalization": None, **options})


def _metadata(versions: int) -> dict[int, Any]:
    return {
        number: ocfl.VersionMetadata(
            created="2026-01-01T00:00:00Z",
            message="ingest",
            name="ingest",
            address="mailto:ops@example.org",
        )
        for number in range(1, versions + 1)
    }


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


VERBS = {"root": root, "place": place, "build": build, "add": add, "validate": validate}


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": VERBS[asked.pop("verb")](**asked)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
