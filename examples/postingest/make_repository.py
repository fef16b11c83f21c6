"""Writes a small OCFL repository, or adds objects to it: python make_repository.py FOLDER ID [ID…]

Each object has two files. Only to try things out: in earnest the ingest writes its repository
itself.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

LAYOUT = {
    "extension": "0004-hashed-n-tuple-storage-layout",
    "description": "by the SHA-256 of the object's id",
}


def sha512(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def add_object(root: Path, object_id: str) -> None:
    name = hashlib.sha256(object_id.encode()).hexdigest()
    place = root / name[:3] / name[3:6] / name[6:9] / name
    files = {
        "IO_Metadata.xml": f"<io>{object_id}</io>".encode(),
        "letter.txt": f"Dear reader of {object_id}".encode(),
    }
    for path, content in files.items():
        write(place / "v1/content" / path, content)
    inventory = {
        "id": object_id,
        "type": "https://ocfl.io/1.1/spec/#inventory",
        "digestAlgorithm": "sha512",
        "head": "v1",
        "manifest": {sha512(content): [f"v1/content/{path}"] for path, content in files.items()},
        "versions": {
            "v1": {
                "created": "2026-01-01T00:00:00Z",
                "message": "ingested",
                "user": {"name": "ingest", "address": "mailto:ingest@example.org"},
                "state": {sha512(content): [path] for path, content in files.items()},
            }
        },
    }
    text = json.dumps(inventory, indent=2).encode()
    for folder in (place / "v1", place):
        write(folder / "inventory.json", text)
        write(folder / "inventory.json.sha512", f"{sha512(text)} inventory.json\n".encode())
    # Last: a folder without its declaration is no object yet.
    write(place / "0=ocfl_object_1.1", b"ocfl_object_1.1\n")


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(
            "usage: python make_repository.py FOLDER ID [ID…], as in: python make_repository.py repository p-1",
            file=sys.stderr,
        )
        return 2
    root = Path(arguments[0])
    try:
        write(root / "0=ocfl_1.1", b"ocfl_1.1\n")
        write(root / "ocfl_layout.json", json.dumps(LAYOUT).encode())
        for object_id in arguments[1:]:
            add_object(root, object_id)
    except OSError as error:
        print(
            f"make_repository.py: no repository can be written to {root}: {error.strerror}; give another folder",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
