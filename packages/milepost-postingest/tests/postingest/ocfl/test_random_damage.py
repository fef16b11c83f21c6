"""Damage at random: no object is found with other content than it had."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.postingest.ocfl.ocfl_scene import ASSET, FILES, Scene, hashed, sign

from milepost_postingest.ocfl.object import Damaged, ObjectFound
from milepost_postingest.ocfl.repository import Repository

CONTENT = {
    name: text.encode()
    for name, text in {**FILES, "empty": "", "copy.xml": FILES["IO_Metadata.xml"]}.items()
}


@cache
def good() -> Path:
    """A repository with one object of two versions; copied for each example."""
    folder = tempfile.mkdtemp(prefix="ocfl-")
    atexit.register(shutil.rmtree, folder)
    scene = Scene(Path(folder))
    scene.build(
        {"IO_Metadata.xml": "<old/>"}, {name: content.decode() for name, content in CONTENT.items()}
    )
    return scene.root


def hurt(path: Path, data: st.DataObject) -> None:
    """One file of the object is changed in one way."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    file = data.draw(st.sampled_from(files), label="file")
    content = bytearray(file.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "swap"]), label="kind")
    if kind == "flip" and content:
        content[data.draw(st.integers(0, len(content) - 1), label="at")] ^= data.draw(
            st.integers(1, 255), label="bits"
        )
    elif kind == "cut":
        del content[data.draw(st.integers(0, len(content)), label="at") :]
    elif kind == "grow":
        content += data.draw(st.binary(min_size=1, max_size=8), label="more")
    elif kind == "swap":
        content = bytearray(data.draw(st.sampled_from(files), label="with").read_bytes())
    file.write_bytes(content)
    if kind == "remove":
        file.unlink()


def look_at_a_copy(spoil: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "repository")
        shutil.copytree(good(), root)
        spoil(root / hashed(ASSET))
        answer = Repository(root, pause=lambda: None).look(ASSET, fixity=True)
        assert isinstance(answer, Damaged | ObjectFound)
        if isinstance(answer, ObjectFound):
            assert answer.version == "v2"
            assert {
                file.logical: (root / file.path).read_bytes() for file in answer.files
            } == CONTENT


@settings(max_examples=150)
@given(st.data(), st.integers(1, 3))
def test_no_object_is_found_with_other_content_than_it_had(data: st.DataObject, times: int) -> None:
    look_at_a_copy(lambda path: [hurt(path, data) for _ in range(times)] and None)


@settings(max_examples=50)
@given(st.data())
def test_a_wrong_digest_is_not_believed_for_being_signed(data: st.DataObject) -> None:
    """One digit of one digest, in both inventories and with fresh sidecars: as a writer leaves it
    that got it wrong."""

    def spoil(path: Path) -> None:
        text = (path / "inventory.json").read_text()
        digests = [found.start() for found in re.finditer("[0-9a-f]{128}", text)]
        at = data.draw(st.sampled_from(digests), label="digest") + data.draw(
            st.integers(0, 127), label="digit"
        )
        for folder in (path, path / "v2"):
            (folder / "inventory.json").write_text(
                text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
            )
            sign(folder)

    look_at_a_copy(spoil)
