"""Damaged OCFL objects are never confirmed: one case for each kind of damage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.ocfl.ocfl_scene import ASSET, Scene, hashed, rewrite

from milepost_postingest.ocfl.object import Damaged, ObjectFound

LETTER = "v1/content/Preservation_1/co/original/g1/letter.txt"
OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def inventory(path: Path) -> Any:
    return json.loads((path / "inventory.json").read_text())


def manifest_says(place: str) -> Callable[[Path], None]:
    """The inventory, signed, has the letter's content elsewhere."""

    def spoil(path: Path) -> None:
        manifest = {
            digest: [place if one == LETTER else one for one in paths]
            for digest, paths in inventory(path)["manifest"].items()
        }
        rewrite(path, {"manifest": manifest})

    return spoil


def state_says(name: str) -> Callable[[Path], None]:
    """The inventory, signed, has one of its files under another name."""

    def spoil(path: Path) -> None:
        version = inventory(path)["versions"]["v1"]
        digest = next(iter(version["state"]))
        rewrite(
            path, {"versions": {"v1": {**version, "state": {**version["state"], digest: [name]}}}}
        )

    return spoil


def without_content(path: Path) -> None:
    manifest = inventory(path)["manifest"]
    manifest.pop(next(digest for digest, paths in manifest.items() if LETTER in paths))
    rewrite(path, {"manifest": manifest})


def as_link(name: str) -> Callable[[Path], None]:
    """What was there is moved out of the object, and a link leads to it."""

    def spoil(path: Path) -> None:
        outside = path.parent / "outside"
        (path / name).rename(outside)
        (path / name).symlink_to(outside)

    return spoil


def as_folder(name: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return spoil


def as_pipe(name: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        (path / name).unlink()
        os.mkfifo(path / name)

    return spoil


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda path: (path / name).write_text(content) and None


def tampered(path: Path) -> None:
    file = path / "inventory.json"
    file.write_text(file.read_text().replace("IO_Metadata", "XX_Metadata"))


def folder_as_file(path: Path) -> None:
    shutil.rmtree(path / "v1")
    (path / "v1").touch()


def twice(path: Path) -> None:
    manifest = inventory(path)["manifest"]
    rewrite(
        path,
        {"manifest": {**manifest, **{digest.upper(): paths for digest, paths in manifest.items()}}},
    )


def one_place_for_two(path: Path) -> None:
    """Two files with different digests are said to be in one place: whichever is there, one of them
    is not."""
    manifest = inventory(path)["manifest"]
    rewrite(path, {"manifest": {digest: [LETTER] for digest in manifest}})


def one_name_for_two(path: Path) -> None:
    version = inventory(path)["versions"]["v1"]
    rewrite(
        path,
        {
            "versions": {
                "v1": {**version, "state": {digest: ["letter.txt"] for digest in version["state"]}}
            }
        },
    )


def no_digest(path: Path) -> None:
    """Something else stands for the letter's digest, in manifest and state alike."""
    text = (path / "inventory.json").read_text()
    digest = next(
        digest for digest, paths in inventory(path)["manifest"].items() if LETTER in paths
    )
    rewrite(path, json.loads(text.replace(digest, "letter")))


def older_spec(path: Path) -> None:
    (path / "0=ocfl_object_1.1").unlink()
    (path / "0=ocfl_object_1.0").write_text("ocfl_object_1.0\n")


CASES: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "file-gone": (lambda path: (path / LETTER).unlink(), "the file is missing", LETTER),
    "content-gone": (lambda path: shutil.rmtree(path / "v1/content"), "the file is missing", "v1/content/Access_1/co/derived/g1/letter.pdf"),
    "file-emptied": (text(LETTER, ""), "has 0 bytes", LETTER),
    "file-as-folder": (as_folder(LETTER), "the file is missing", LETTER),
    "file-as-pipe": (as_pipe(LETTER), "something else", LETTER),
    "file-as-link": (as_link(LETTER), "something else", LETTER),
    "folder-as-link": (as_link("v1/content/Access_1"), "something else", "v1/content/Access_1"),
    "version-as-link": (as_link("v1"), "a link or a file", "v1"),
    "version-as-file": (folder_as_file, "a link or a file", "v1"),
    "undeclared": (lambda path: (path / "0=ocfl_object_1.1").unlink(), "no declaration", ""),
    "declared-twice": (text("0=ocfl_object_1.0", "ocfl_object_1.0\n"), "0=ocfl_object_1.0, 0=ocfl_object_1.1", ""),
    "declaration-cut": (text("0=ocfl_object_1.1", ""), "declaration", "0=ocfl_object_1.1"),
    "other-spec": (older_spec, "declaration says 1.0", "inventory.json"),
    "inventory-gone": (lambda path: (path / "inventory.json").unlink(), "the inventory is missing", "inventory.json"),
    "inventory-cut": (text("inventory.json", "{"), "cannot be read", "inventory.json"),
    "inventory-as-pipe": (as_pipe("inventory.json"), "not a file", "inventory.json"),
    "inventory-as-link": (as_link("inventory.json"), "not a file", "inventory.json"),
    "inventory-tampered": (tampered, "digest that its sidecar says", "inventory.json"),
    "sidecar-gone": (lambda path: (path / "inventory.json.sha512").unlink(), "sidecar is missing", "inventory.json.sha512"),
    "sidecar-empty": (text("inventory.json.sha512", ""), "does not hold", "inventory.json.sha512"),
    "sidecar-of-another": (text("inventory.json.sha512", f"{'a' * 128} inventory.xml\n"), "does not hold", "inventory.json.sha512"),
    "own-inventory-differs": (lambda path: rewrite(path, {"fixity": {}}, everywhere=False), "not the same", "v1/inventory.json"),
    "own-inventory-as-folder": (as_folder("v1/inventory.json"), "not a file", "v1/inventory.json"),
    "unknown-version": (lambda path: (path / "v2").mkdir(), "a version v2", "v2"),
    "another-object": (lambda path: rewrite(path, {"id": OTHER}), f"another object, '{OTHER}'", "inventory.json"),
    "head-unknown": (lambda path: rewrite(path, {"head": "v2"}), "head is 'v2'", "inventory.json"),
    "head-no-version": (lambda path: rewrite(path, {"head": "1"}), "head is '1'", "inventory.json"),
    "algorithm-unknown": (lambda path: rewrite(path, {"digestAlgorithm": "md5"}), "'md5', expected sha512 or sha256", "inventory.json"),
    "type-unknown": (lambda path: rewrite(path, {"type": "https://ocfl.io/2.0/spec/#inventory"}), "neither OCFL", "inventory.json"),
    "digest-twice": (twice, "the same digest twice", "inventory.json"),
    "one-place-for-two": (one_place_for_two, "two digests for", "inventory.json"),
    "one-name-for-two": (one_name_for_two, "two contents for", "inventory.json"),
    "no-digest": (no_digest, "no sha512 digest", "inventory.json"),
    "no-content-for-a-file": (without_content, "no content for", "inventory.json"),
    "content-outside": (manifest_says("v1/content/../../../../../../etc/passwd"), "content path", "inventory.json"),
    "content-absolute": (manifest_says("/etc/passwd"), "content path", "inventory.json"),
    "content-in-no-version": (manifest_says("v2/content/letter.txt"), "content path", "inventory.json"),
    "content-beside": (manifest_says("v1/inventory.json"), "content path", "inventory.json"),
    "name-outside": (state_says("../letter.txt"), "logical path", "inventory.json"),
    "no-state": (lambda path: rewrite(path, {"versions": {"v1": {}}}), "cannot be read", "inventory.json"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "what", "where"), CASES.values(), ids=CASES)
def test_a_damaged_object_is_never_found(
    scene: Scene, spoil: Callable[[Path], Any], what: str, where: str
) -> None:
    path = scene.build()
    assert isinstance(scene.look(), ObjectFound)
    spoil(path)
    for fixity in (False, True):
        answer = scene.look(fixity=fixity)
        assert isinstance(answer, Damaged)
        assert what in answer.what
        assert answer.where == f"{hashed(ASSET)}/{where}"


def test_an_inventory_whose_head_is_an_older_version_is_damage(scene: Scene) -> None:
    path = scene.build({"a": "old"}, {"a": "new"})
    rewrite(path, {"head": "v1"})
    answer = scene.look()
    assert isinstance(answer, Damaged)
    assert "not the last of its versions" in answer.what


@pytest.mark.parametrize(
    "content",
    ["Dear Sir or madam", "Dear Sir or", "Dear Sir or Madam,"],
    ids=["other", "cut", "longer"],
)
def test_content_that_is_not_what_it_was_is_damage_once_it_is_read(
    scene: Scene, content: str
) -> None:
    """The inventory has no sizes: without reading, this cannot be seen."""
    path = scene.build()
    (path / LETTER).write_text(content)
    answer = scene.look(fixity=True)
    assert isinstance(answer, Damaged)
    assert hashlib.sha512(content.encode()).hexdigest() in answer.what
    assert answer.where == f"{hashed(ASSET)}/{LETTER}"


def test_a_file_larger_than_one_piece_is_read_to_its_end(scene: Scene) -> None:
    path = scene.build({"large": "x" * 2_500_000})
    assert isinstance(scene.look(fixity=True), ObjectFound)
    with (path / "v1/content/large").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"y")
    assert isinstance(scene.look(fixity=True), Damaged)


def test_a_file_that_ought_to_be_empty_is_damage(scene: Scene) -> None:
    path = scene.build({"nothing": ""})
    (path / "v1/content/nothing").write_text("something")
    assert isinstance(scene.look(), Damaged)


def test_a_file_in_the_objects_place_is_damage(scene: Scene) -> None:
    place = scene.root / hashed(ASSET)
    place.parent.mkdir(parents=True)
    place.touch()
    answer = scene.look()
    assert isinstance(answer, Damaged)
    assert answer.where == hashed(ASSET)


def test_a_link_in_the_objects_place_is_damage(scene: Scene) -> None:
    path = scene.build()
    path.rename(scene.root / "elsewhere")
    path.symlink_to(scene.root / "elsewhere")
    assert isinstance(scene.look(), Damaged)
