"""OCFL repositories for tests: written by the library ocfl-py, then damaged."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.project import ROOT

from milepost_postingest.ocfl.object import Answer
from milepost_postingest.ocfl.repository import Repository

PYTHON = ROOT / ".standins/ocfl/bin/python"
WRITER = Path(__file__).with_name("ocfl_writer.py")
ASSET = "7cd2bd8f-8a0b-4bd5-9f0f-3ac5c8f5a6a1"
HASHED = "0004-hashed-n-tuple-storage-layout"
FILES = {
    "IO_Metadata.xml": "<io/>",
    "Preservation_1/co/original/g1/letter.txt": "Dear Sir or Madam",
    "Access_1/co/derived/g1/letter.pdf": "%PDF",
}
MUTABLE = "extensions/0005-mutable-head"


class Library:
    """ocfl-py in a process of its own: it pins a botocore that is not ours."""

    def __init__(self) -> None:
        if not PYTHON.exists():
            pytest.fail("ocfl-py is not installed in .standins; run make test", pytrace=False)
        self._process = subprocess.Popen(
            [PYTHON, WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, verb: str, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **asked}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@cache
def library() -> Library:
    """One for all tests of this process."""
    made = Library()
    atexit.register(made.close)
    return made


def hashed(object_id: str) -> str:
    """The path that layout 0004 gives with its defaults, by its specification."""
    digest = hashlib.sha256(object_id.encode()).hexdigest()
    return f"{digest[:3]}/{digest[3:6]}/{digest[6:9]}/{digest}"


class Scene:
    """A repository of layout 0004, as ocfl-java makes them, unless another is wanted."""

    def __init__(
        self,
        folder: Path,
        *,
        spec: str = "1.1",
        layout: str | None = HASHED,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.root = folder / "repository"
        self.spec = spec
        # The library has none of these but 0002 and 0003: the layout's own files are written here,
        # as its specification has them.
        library().ask("root", path=str(self.root), spec=spec, layout=None, params=None)
        if layout is not None:
            (self.root / "ocfl_layout.json").write_text(
                json.dumps({"extension": layout, "description": "how ids become paths"})
            )
        if layout is not None and config is not None:
            (self.root / "extensions" / layout).mkdir(parents=True)
            (self.root / "extensions" / layout / "config.json").write_text(
                json.dumps({"extensionName": layout, **config})
            )
        self.pauses = 0

    def build(
        self,
        *versions: dict[str, str],
        object_id: str = ASSET,
        place: str | None = None,
        **options: Any,
    ) -> Path:
        """The object's folder, written by the library."""
        path = self.root / (place or hashed(object_id))
        library().ask(
            "build",
            path=str(path),
            object_id=object_id,
            versions=versions or (FILES,),
            spec_version=self.spec,
            **options,
        )
        return path

    def add(
        self, path: Path, files: dict[str, str], object_id: str = ASSET, **options: Any
    ) -> None:
        library().ask(
            "add",
            path=str(path),
            object_id=object_id,
            files=files,
            spec_version=self.spec,
            **options,
        )

    def repository(self, **options: Any) -> Repository:
        """It does not wait between two looks; the pauses are counted."""
        return Repository(self.root, **{"pause": self._pause, **options})

    def look(self, object_id: str = ASSET, *, fixity: bool = False) -> Answer:
        return self.repository().look(object_id, fixity=fixity)

    def _pause(self) -> None:
        self.pauses += 1


def problems(path: Path) -> list[str]:
    """What the library's validator says of the object."""
    found: list[str] = library().ask("validate", path=str(path))
    return found


def sign(folder: Path, algorithm: str = "sha512") -> None:
    """A fresh sidecar for the inventory there."""
    digest = hashlib.new(algorithm, (folder / "inventory.json").read_bytes()).hexdigest()
    (folder / f"inventory.json.{algorithm}").write_text(f"{digest} inventory.json\n")


def rewrite(path: Path, change: dict[str, Any], *, everywhere: bool = True) -> None:
    """Change the inventory and sign it again, as a faulty writer would: it agrees with itself, and
    is wrong."""
    inventory = {**json.loads((path / "inventory.json").read_text()), **change}
    for folder in (path, path / inventory["head"]) if everywhere else (path,):
        if folder.is_dir():
            (folder / "inventory.json").write_text(json.dumps(inventory))
            sign(folder)


def mend_empty(path: Path) -> None:
    """The library leaves the state of a first version without files out, which its own validator
    then refuses: put it in."""
    inventory = json.loads((path / "inventory.json").read_text())
    assert "state" not in inventory["versions"][inventory["head"]]
    inventory["versions"][inventory["head"]]["state"] = {}
    rewrite(path, inventory)


def stage(path: Path, name: str, text: str) -> None:
    """Begin a mutable HEAD with one more file, as the extension 0005-mutable-head specifies."""
    inventory = json.loads((path / "inventory.json").read_text())
    last = inventory["versions"][inventory["head"]]
    number = int(inventory["head"][1:]) + 1
    digest = hashlib.sha512(text.encode()).hexdigest()
    head = path / MUTABLE / "head"
    (head / "content/r1").mkdir(parents=True)
    (head / "content/r1" / name).write_text(text)
    (path / MUTABLE / "revisions").mkdir()
    (path / MUTABLE / "revisions/r1").write_text("r1")
    inventory["head"] = f"v{number}"
    inventory["manifest"][digest] = [f"{MUTABLE}/head/content/r1/{name}"]
    inventory["versions"][f"v{number}"] = {**last, "state": {**last["state"], digest: [name]}}
    (head / "inventory.json").write_text(json.dumps(inventory))
    sign(head)
    shutil.copyfile(path / "inventory.json.sha512", path / MUTABLE / "root-inventory.json.sha512")


def commit(path: Path) -> None:
    """Make the mutable HEAD a version, as the extension specifies; what comes of it is the
    library's to validate."""
    head = path / MUTABLE / "head"
    inventory = json.loads((head / "inventory.json").read_text())
    version = inventory["head"]
    inventory["manifest"] = {
        digest: [one.replace(f"{MUTABLE}/head/content", f"{version}/content") for one in paths]
        for digest, paths in inventory["manifest"].items()
    }
    (head / "inventory.json").write_text(json.dumps(inventory))
    sign(head)
    head.rename(path / version)
    for name in ("inventory.json", "inventory.json.sha512"):
        shutil.copyfile(path / version / name, path / name)
    shutil.rmtree(path / "extensions")
