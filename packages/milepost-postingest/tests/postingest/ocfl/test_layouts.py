"""From an id to a path: the examples of each layout's specification, what the library makes of the
same, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.ocfl.ocfl_scene import ASSET, FILES, HASHED, Scene, library, problems

import milepost as mp
from milepost_postingest.ocfl.layouts import KNOWN, layout_of, stays_below
from milepost_postingest.ocfl.object import ObjectFound
from milepost_postingest.ocfl.repository import Repository

FLAT, HASH_AND_ID, OMIT, TUPLES = (KNOWN[0], KNOWN[1], KNOWN[3], KNOWN[4])
MD5 = {"digestAlgorithm": "md5", "tupleSize": 2, "numberOfTuples": 15}
HORRIBLE = "..hor/rib:le-$id"
DIGEST = "3c0ff4240c1e116dba14c7627f2319b58aa3d77606d0d90dfc6161608ac987d4"
LONG = "abcdefghij" * 10 + "a"


@pytest.mark.parametrize(
    ("name", "config", "object_id", "path"),
    [
        (FLAT, {}, "object-01", "object-01"),
        (FLAT, {}, "..hor_rib:lé-$id", "..hor_rib:lé-$id"),
        (HASH_AND_ID, {}, "object-01", "3c0/ff4/240/object-01"),
        (HASH_AND_ID, {}, HORRIBLE, "487/326/d8c/%2e%2ehor%2frib%3ale-%24id"),
        (HASH_AND_ID, {}, "..Hor/rib:lè-$id", "373/529/21a/%2e%2eHor%2frib%3al%c3%a8-%24id"),
        (
            HASH_AND_ID,
            {},
            LONG,
            f"5cc/73e/648/{LONG[:100]}-5cc73e648fbcff136510e330871180922ddacf193b68fdeff855683a01464220",
        ),
        (HASH_AND_ID, MD5, "object-01", "ff/75/53/44/92/48/5e/ab/b3/9f/86/35/67/28/88/object-01"),
        (
            HASH_AND_ID,
            {"tupleSize": 0, "numberOfTuples": 0},
            HORRIBLE,
            "%2e%2ehor%2frib%3ale-%24id",
        ),
        (HASHED, {}, "object-01", f"3c0/ff4/240/{DIGEST}"),
        (
            HASHED,
            {},
            HORRIBLE,
            "487/326/d8c/487326d8c2a3c0b885e23da1469b4d6671fd4e76978924b4443e9e3c316cda6d",
        ),
        (
            HASHED,
            {**MD5, "shortObjectRoot": True},
            "object-01",
            "ff/75/53/44/92/48/5e/ab/b3/9f/86/35/67/28/88/4e",
        ),
        (HASHED, {"tupleSize": 0, "numberOfTuples": 0}, "object-01", DIGEST),
        (
            OMIT,
            {"delimiter": ":"},
            "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
            "6e8bc430-9c3a-11d9-9669-0800200c9a66",
        ),
        (OMIT, {"delimiter": "EDU/"}, "https://institution.edu/abc/edu/f8.05v", "f8.05v"),
        (OMIT, {"delimiter": "aa"}, "aaab", "b"),
        (
            TUPLES,
            {"tupleSize": 4, "numberOfTuples": 2, "reverseObjectRoot": True},
            "namespace:12887296",
            "6927/8821/12887296",
        ),
        (
            TUPLES,
            {"tupleSize": 4, "numberOfTuples": 2, "reverseObjectRoot": True},
            "abc123",
            "321c/ba00/abc123",
        ),
        (
            TUPLES,
            {"delimiter": "edu/", "zeroPadding": "right"},
            "https://institution.edu/3448793",
            "344/879/300/3448793",
        ),
        (
            TUPLES,
            {"delimiter": "edu/", "zeroPadding": "right"},
            "https://institution.edu/abc/edu/f8.05v",
            "f8./05v/000/f8.05v",
        ),
    ],
)
def test_an_id_becomes_the_path_of_the_specification(
    name: str, config: dict[str, Any], object_id: str, path: str
) -> None:
    assert layout_of(name, config)(object_id) == path


@pytest.mark.parametrize(
    ("name", "config", "object_id"),
    [
        (FLAT, {}, ""),
        (FLAT, {}, "."),
        (FLAT, {}, ".."),
        (FLAT, {}, "../elsewhere"),
        (FLAT, {}, "a/b"),
        (FLAT, {}, "a\0b"),
        (HASHED, {}, ""),
        (OMIT, {"delimiter": ":"}, "urn:.."),
        (OMIT, {"delimiter": ":"}, "urn:"),
        (OMIT, {"delimiter": "info:"}, "info:fedora/object-01"),
        (TUPLES, {"tupleSize": 2}, "......x"),
        (TUPLES, {}, "urn:naïve-id"),
    ],
)
def test_an_id_that_would_lead_elsewhere_is_refused(
    name: str, config: dict[str, Any], object_id: str
) -> None:
    with pytest.raises(mp.MalformedInput):
        layout_of(name, config)(object_id)


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "a/../b", "./a", "a/.", "a\0"]
)
def test_a_path_that_leads_elsewhere_does_not_stay_below(path: str) -> None:
    assert not stays_below(path)


@pytest.mark.parametrize(
    "path", ["a", "a/b", ".a", "a.", "a/.b/c", "...", "a/...", "..a/b..", "é/ü"]
)
def test_dots_within_names_are_no_way_out(path: str) -> None:
    assert stays_below(path)


@pytest.mark.parametrize(
    ("layout", "params"),
    [("0002-flat-direct-storage-layout", None), (HASH_AND_ID, None), (HASH_AND_ID, {**MD5})],
    ids=["0002", "0003", "0003-md5"],
)
def test_objects_are_where_the_library_puts_them(
    tmp_path: Path, layout: str, params: dict[str, Any] | None
) -> None:
    """The root and its layout files are the library's own too."""
    root = tmp_path / "repository"
    library().ask("root", path=str(root), spec="1.0", layout=layout, params=params)
    for object_id in (ASSET, "naïve id"):
        place = library().ask("place", path=str(root), object_id=object_id)
        library().ask(
            "build",
            path=str(root / place),
            object_id=object_id,
            versions=[FILES],
            spec_version="1.0",
        )
        found = Repository(root).look(object_id, fixity=True)
        assert isinstance(found, ObjectFound)
        assert (found.object_root, found.spec) == (place, "1.0")


@pytest.mark.parametrize(
    ("layout", "config", "object_id", "place"),
    [
        (
            HASHED,
            {"digestAlgorithm": "md5", "tupleSize": 2, "numberOfTuples": 2},
            "object-01",
            "ff/75/ff75534492485eabb39f86356728884e",
        ),
        (OMIT, {"delimiter": ":"}, "urn:uuid:1", "1"),
        (TUPLES, {"tupleSize": 2, "numberOfTuples": 1}, "urn:uuid:12345", "12/12345"),
    ],
)
def test_the_root_says_how_its_layout_is_set(
    tmp_path: Path, layout: str, config: dict[str, Any], object_id: str, place: str
) -> None:
    scene = Scene(tmp_path, layout=layout, config=config)
    path = scene.build(object_id=object_id, place=place)
    assert problems(path) == []
    found = scene.look(object_id, fixity=True)
    assert isinstance(found, ObjectFound)
    assert found.object_root == place


@pytest.mark.parametrize(
    "layout", ["0004", HASHED, {"extensionName": HASHED}, {"extensionName": "0004", "tupleSize": 3}]
)
def test_a_root_that_does_not_say_its_layout_is_told(tmp_path: Path, layout: Any) -> None:
    scene = Scene(tmp_path, layout=None)
    scene.build()
    with pytest.raises(mp.ConfigMistake, match="does not say which layout"):
        scene.repository()
    assert isinstance(scene.repository(layout=layout).look(ASSET), ObjectFound)


@pytest.mark.parametrize(
    ("layout", "config", "said"),
    [
        ("0010-differential-n-tuple-omit-prefix-storage-layout", {}, "is not a layout known here"),
        (OMIT, None, "config.json: .*delimiter"),
        (OMIT, {"delimiter": ""}, "config.json: .*delimiter"),
        (HASHED, {"digestAlgorithm": "crc32"}, "config.json: .*crc32"),
        (HASHED, {"tupleSize": 33}, "config.json: .*tupleSize"),
        (HASHED, {"tupleSize": 0}, "config.json: .*numberOfTuples"),
        (HASHED, {"tupleSize": 32, "numberOfTuples": 3}, "config.json: .*64 digits"),
        (
            HASHED,
            {"tupleSize": 32, "numberOfTuples": 2, "shortObjectRoot": True},
            "config.json: .*shortObjectRoot",
        ),
        (HASHED, {"extensionName": OMIT}, "config.json: extensionName"),
    ],
)
def test_a_layout_that_cannot_be_is_a_mistake_that_names_the_file(
    tmp_path: Path, layout: str, config: dict[str, Any] | None, said: str
) -> None:
    scene = Scene(tmp_path, layout=layout, config=config)
    with pytest.raises(mp.ConfigMistake, match=said) as mistake:
        scene.repository()
    assert str(scene.root) in str(mistake.value)


def test_what_is_given_may_not_contradict_the_root(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(mp.ConfigMistake, match="leave layout= out"):
        scene.repository(layout="0003")
    scene.repository(layout="0004")


@pytest.mark.parametrize("text", ["", "{", "[]", '"0004"', "\xff"])
def test_a_layout_file_that_is_no_json_object_is_a_mistake(tmp_path: Path, text: str) -> None:
    scene = Scene(tmp_path)
    (scene.root / "ocfl_layout.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(mp.ConfigMistake, match=r"ocfl_layout\.json is not a JSON object"):
        scene.repository()


def test_a_layout_file_without_a_layout_is_a_mistake(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (scene.root / "ocfl_layout.json").write_text(json.dumps({"description": "none"}))
    with pytest.raises(mp.ConfigMistake, match="does not say which layout"):
        scene.repository()
