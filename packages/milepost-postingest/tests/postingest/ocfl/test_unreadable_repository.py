"""A repository that cannot be read says nothing about its objects: an error that is tried again, or
a mistake in the settings."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.ocfl.ocfl_scene import ASSET, Scene

import milepost as mp
from milepost_postingest.ocfl.object import ObjectFound
from milepost_postingest.ocfl.repository import Unreachable

OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def unmount(scene: Scene) -> None:
    """An empty folder is left where the repository was."""
    scene.root.rename(scene.root.with_name("away"))
    scene.root.mkdir()


def test_an_empty_mount_point_says_nothing_about_an_object(scene: Scene) -> None:
    scene.build()
    repository = scene.repository()
    unmount(scene)
    for object_id in (ASSET, OTHER):
        with pytest.raises(Unreachable, match="mounted"):
            repository.look(object_id)


def test_a_mount_that_goes_away_during_a_look_does_not_make_damage(scene: Scene) -> None:
    path = scene.build()
    (path / "v1/content/IO_Metadata.xml").unlink()
    with pytest.raises(Unreachable, match="mounted"):
        scene.repository(pause=lambda: unmount(scene)).look(ASSET)


def test_a_mount_that_comes_back_is_used_again(scene: Scene) -> None:
    scene.build()
    repository = scene.repository()
    unmount(scene)
    with pytest.raises(Unreachable):
        repository.look(ASSET)
    scene.root.rmdir()
    scene.root.with_name("away").rename(scene.root)
    assert isinstance(repository.look(ASSET), ObjectFound)


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT], ids=errno.errorcode.get
)
@pytest.mark.parametrize("call", ["open", "read", "scandir"])
def test_trouble_with_the_disk_is_an_error_and_never_an_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    scene.build()
    repository = scene.repository()

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(Unreachable, match=os.strerror(code)) as error:
            repository.look(ASSET)
    assert str(scene.root) in str(error.value)
    assert isinstance(repository.look(ASSET), ObjectFound)


def test_trouble_while_a_file_is_read_through_is_an_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.build()
    repository, real = scene.repository(), os.open

    def fails(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("IO_Metadata.xml"):
            raise OSError(errno.EIO, "bad sector")
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(Unreachable, match="bad sector"):
        repository.look(ASSET, fixity=True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: shutil.rmtree(root), "is not a folder"),
        (lambda root: (root / "0=ocfl_1.1").unlink(), r"has no declaration \(0=ocfl_…\)"),
        (lambda root: (root / "0=ocfl_1.1").rename(root / "0=ocfl_2.0"), "has 0=ocfl_2.0"),
        (lambda root: (root / "0=ocfl_1.0").touch(), "has 0=ocfl_1.0, 0=ocfl_1.1"),
    ],
    ids=["gone", "undeclared", "too-new", "two"],
)
def test_what_is_no_storage_root_is_a_mistake_that_says_what_is_expected(
    scene: Scene, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(scene.root)
    with pytest.raises(mp.ConfigMistake, match=f"{said}; expected .*0=ocfl_1.0 or 0=ocfl_1.1"):
        scene.repository()


def test_a_root_that_may_not_be_read_is_unreachable(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", fails)
    with pytest.raises(Unreachable, match="Permission denied"):
        scene.repository()
