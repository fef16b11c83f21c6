"""Is an object in the repository, whole and at rest? Good ones, and those in the middle of
something."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.postingest.ocfl.ocfl_scene import (
    ASSET,
    FILES,
    MUTABLE,
    Scene,
    commit,
    hashed,
    mend_empty,
    problems,
    sign,
    stage,
)

from milepost_postingest.ocfl.object import (
    Answer,
    Damaged,
    Empty,
    ObjectFound,
    ObjectMissing,
    Staged,
)
from milepost_postingest.ocfl.repository import Repository

OTHER = "00000000-0000-4000-8000-000000000002"


def paths(answer: Answer) -> list[str]:
    assert isinstance(answer, ObjectFound), answer
    return [file.path for file in answer.files]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


# What is there ------------------------------------------------------------------------------------
@pytest.mark.parametrize("spec", ["1.0", "1.1"])
@pytest.mark.parametrize("algorithm", ["sha512", "sha256"])
@pytest.mark.parametrize("fixity", [False, True], ids=["seen", "read"])
def test_a_whole_object_is_found_with_all_its_files(
    tmp_path: Path, spec: str, algorithm: str, fixity: bool
) -> None:
    scene = Scene(tmp_path, spec=spec)
    path = scene.build(digest_algorithm=algorithm)
    assert problems(path) == []
    found = scene.look(fixity=fixity)
    assert isinstance(found, ObjectFound)
    assert (found.version, found.spec, found.algorithm, found.object_root) == (
        "v1",
        spec,
        algorithm,
        hashed(ASSET),
    )
    assert found.fixity is fixity
    assert {file.logical: (file.path, file.bytes) for file in found.files} == {
        name: (f"{hashed(ASSET)}/v1/content/{name}", len(text)) for name, text in FILES.items()
    }
    assert paths(found) == sorted(paths(found))
    assert all((scene.root / one).is_file() for one in paths(found))


def test_an_object_that_is_not_there_is_missing(scene: Scene) -> None:
    scene.build()
    assert scene.look(OTHER) == ObjectMissing(hashed(OTHER))
    assert scene.pauses == 0


def test_the_newest_version_is_told_of_and_all_must_be_there(scene: Scene) -> None:
    path = scene.build(
        {"a": "first", "b": "stays"},
        {"a": "second", "b": "stays"},
        {"a": "second", "b": "stays", "c": "new"},
    )
    assert problems(path) == []
    assert paths(scene.look(fixity=True)) == [
        f"{hashed(ASSET)}/{one}" for one in ("v1/content/b", "v2/content/a", "v3/content/c")
    ]
    found = scene.look(fixity=True)
    assert isinstance(found, ObjectFound)
    assert found.version == "v3"
    (path / "v1/content/a").unlink()
    assert isinstance(scene.look(), Damaged), "the first version's own file is part of the object"


def test_files_with_the_same_content_share_it(scene: Scene) -> None:
    scene.build({"a": "same", "b": "same"})
    found = scene.look(fixity=True)
    assert isinstance(found, ObjectFound)
    assert [file.logical for file in found.files] == ["a", "b"]
    assert len({file.path for file in found.files}) == 1


def test_every_copy_of_the_same_content_must_be_there(scene: Scene) -> None:
    path = scene.build({"a": "same", "b": "same"}, dedupe=False)
    found = scene.look()
    assert isinstance(found, ObjectFound)
    assert [(file.logical, file.path.rpartition("/")[2]) for file in found.files] == [
        ("a", "a"),
        ("b", "b"),
    ]
    (path / "v1/content/b").unlink()
    assert isinstance(scene.look(), Damaged)


def test_an_empty_file_is_a_file(scene: Scene) -> None:
    scene.build({"nothing": ""})
    assert paths(scene.look(fixity=True)) == [f"{hashed(ASSET)}/v1/content/nothing"]


def test_names_beyond_ascii_stay_as_they_are_to_the_letter(scene: Scene) -> None:
    """Composed and decomposed letters look alike and are two names."""
    names = ["caf\u00e9.txt", "cafe\u0301.txt", "ユーザー/档案 1.txt", "a\nb", "%2e", "😀"]
    path = scene.build({name: f"content of {number}" for number, name in enumerate(names)})
    assert problems(path) == []
    found = scene.look(fixity=True)
    assert isinstance(found, ObjectFound)
    assert sorted(file.logical for file in found.files) == sorted(names)
    assert sorted(paths(found)) == sorted(f"{hashed(ASSET)}/v1/content/{name}" for name in names)


def test_another_content_directory_is_followed(scene: Scene) -> None:
    scene.build({"a": "1"}, content_directory="data")
    assert paths(scene.look(fixity=True)) == [f"{hashed(ASSET)}/v1/data/a"]


def test_digests_in_capital_letters_are_the_same_digests(scene: Scene) -> None:
    path = scene.build({"a": "1"})
    text = (path / "inventory.json").read_text()
    (digest,) = json.loads(text)["manifest"]
    for folder in (path, path / "v1"):
        (folder / "inventory.json").write_text(text.replace(digest, digest.upper()))
        sign(folder)
    sidecar = path / "inventory.json.sha512"
    sidecar.write_text(sidecar.read_text().upper().replace("INVENTORY.JSON", "inventory.json"))
    found = scene.look(fixity=True)
    assert isinstance(found, ObjectFound)
    assert found.files[0].digest == digest


# What is not at rest ------------------------------------------------------------------------------
def test_staged_changes_are_not_confirmed_until_they_are_committed(scene: Scene) -> None:
    path = scene.build({"old.txt": "old"})
    stage(path, "new.txt", "new")
    assert scene.look() == Staged(hashed(ASSET))
    assert scene.pauses == 0, "it is known what is going on"
    commit(path)
    assert problems(path) == []
    assert paths(scene.look(fixity=True)) == [
        f"{hashed(ASSET)}/v1/content/old.txt",
        f"{hashed(ASSET)}/v2/content/r1/new.txt",
    ]


def test_a_new_object_that_is_staged_is_staged_rather_than_empty(scene: Scene) -> None:
    path = scene.build({})
    mend_empty(path)
    assert problems(path) == []
    assert scene.look() == Empty(hashed(ASSET), "v1")
    stage(path, "new.txt", "new")
    assert scene.look() == Staged(hashed(ASSET))
    commit(path)
    assert problems(path) == []
    assert paths(scene.look()) == [f"{hashed(ASSET)}/v2/content/r1/new.txt"]


def test_the_mark_of_a_first_revision_is_enough_to_be_staged(scene: Scene) -> None:
    path = scene.build()
    (path / MUTABLE / "revisions").mkdir(parents=True)
    assert isinstance(scene.look(), Staged)


def test_other_extensions_of_an_object_do_not_matter(scene: Scene) -> None:
    path = scene.build()
    (path / "extensions/0001-digest-algorithms").mkdir(parents=True)
    assert isinstance(scene.look(), ObjectFound)


def test_a_newest_version_without_files_is_empty(scene: Scene) -> None:
    path = scene.build({"a": "1"}, {})
    assert problems(path) == []
    assert scene.look() == Empty(hashed(ASSET), "v2")


def move_away(*names: str) -> Callable[[Path], Callable[[], None]]:
    """Take these out of an object, as if they had not been written yet; what it gives puts them
    there."""

    def begin(path: Path) -> Callable[[], None]:
        aside = path.parent / "aside"
        aside.mkdir()
        for name in names:
            (path / name).rename(aside / name.replace("/", "_"))
        return lambda: (
            [(aside / name.replace("/", "_")).rename(path / name) for name in names] and None
        )

    return begin


def replace_inventory(path: Path) -> Callable[[], None]:
    """The new inventory is there, and the sidecar is still the old one's."""
    sidecar = path / "inventory.json.sha512"
    new, old = sidecar.read_text(), f"{'0' * 128} inventory.json\n"
    sidecar.write_text(old)
    return lambda: sidecar.write_text(new) and None


WRITING = {
    "no-inventory-yet": move_away("inventory.json", "inventory.json.sha512"),
    "nothing-yet": move_away("0=ocfl_object_1.1", "inventory.json", "inventory.json.sha512", "v1"),
    "no-content-yet": move_away("v1/content"),
    "between-inventory-and-sidecar": replace_inventory,
}


@pytest.mark.parametrize("begin", WRITING.values(), ids=WRITING)
def test_an_object_in_the_middle_of_being_written_is_looked_at_again(
    scene: Scene, begin: Callable[[Path], Callable[[], None]]
) -> None:
    finish = begin(scene.build())
    found = scene.repository(pause=finish).look(ASSET)
    assert isinstance(found, ObjectFound)


@pytest.mark.parametrize("begin", WRITING.values(), ids=WRITING)
def test_an_object_that_is_still_odd_at_the_second_look_is_damaged(
    scene: Scene, begin: Callable[[Path], Callable[[], None]]
) -> None:
    begin(scene.build())
    assert isinstance(scene.look(), Damaged)
    assert scene.pauses == 1


# Many at once -------------------------------------------------------------------------------------
def test_many_threads_look_at_once(scene: Scene) -> None:
    ids = [f"00000000-0000-4000-8000-{number:012}" for number in range(12)]
    for object_id in ids[:8]:
        scene.build({"own": f"of {object_id}"}, object_id=object_id)
    repository = scene.repository()
    alone = [repository.look(object_id, fixity=True) for object_id in ids]
    with ThreadPoolExecutor(8) as threads:
        together = list(
            threads.map(lambda object_id: repository.look(object_id, fixity=True), ids * 25)
        )
    assert together == alone * 25
    assert [type(answer) for answer in alone] == [ObjectFound] * 8 + [ObjectMissing] * 4


def open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder itself was open while it was read
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_looking_leaves_no_file_open(scene: Scene) -> None:
    path = scene.build()
    repository = scene.repository()
    (scene.root / hashed(OTHER)).mkdir(parents=True)
    for object_id in (ASSET, OTHER, "none"):
        repository.look(object_id, fixity=True)
    (path / "inventory.json").unlink()
    repository.look(ASSET)
    assert [path for path in open_files() if path.startswith(str(scene.root))] == []


def test_a_root_is_the_same_wherever_the_process_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scene.build()
    monkeypatch.chdir(scene.root.parent)
    repository = Repository(scene.root.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert isinstance(repository.look(ASSET), ObjectFound)
