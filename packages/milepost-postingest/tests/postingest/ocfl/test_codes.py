"""The OCFL specification's codes for what can be wrong with an object: one object for each, and the
guide's table says which are found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.postingest.ocfl.ocfl_scene import Scene, problems, sign
from tests.project import ROOT

from milepost_postingest.ocfl.object import Damaged, ObjectFound

GUIDE = ROOT / "docs/guides/postingest.md"
VERSIONS = (
    {"a": "1", "b/c": "2"},
    {"a": "1", "b/c": "2", "d": "3"},
    {"a": "4", "b/c": "2", "d": "3"},
)
Spoil = Callable[[Path], Any]


class Case(NamedTuple):
    code: str
    what: str
    spoil: Spoil
    seen: bool = True
    """Without reading every file; with fixity all are."""


def change(made: Callable[[dict[str, Any]], Any], *folders: str) -> Spoil:
    """Change the inventories in these folders of the object (the root's and the newest version's,
    if none are named) and sign them."""

    def spoil(path: Path) -> None:
        for folder in folders or (".", "v3"):
            place = path / folder
            inventory = json.loads((place / "inventory.json").read_text())
            inventory = made(inventory) or inventory
            (place / "inventory.json").write_text(json.dumps(inventory))
            sign(
                place,
                inventory.get("digestAlgorithm")
                if inventory.get("digestAlgorithm") in ("sha256", "sha512")
                else "sha512",
            )

    return spoil


def without(name: str) -> Spoil:
    return change(lambda inventory: inventory.pop(name) and None)


def setting(**values: Any) -> Spoil:
    return change(lambda inventory: inventory.update(values))


def version(name: str = "v3", **values: Any) -> Spoil:
    return change(lambda inventory: inventory["versions"][name].update(values))


def text(name: str, content: str) -> Spoil:
    return lambda path: (path / name).write_text(content)


def touch(name: str) -> Spoil:
    def spoil(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("stray")

    return spoil


def folder(name: str) -> Spoil:
    return lambda path: (path / name).mkdir(parents=True)


def remove(*names: str) -> Spoil:
    def spoil(path: Path) -> None:
        for name in names:
            shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()

    return spoil


def digest_of(inventory: dict[str, Any], path: str) -> str:
    return next(digest for digest, paths in inventory["manifest"].items() if path in paths)


def renamed(name: str, to: list[str]) -> Spoil:
    """The state of the newest version has other logical paths for one of its files."""

    def made(inventory: dict[str, Any]) -> None:
        state = inventory["versions"]["v3"]["state"]
        state[next(digest for digest, names in state.items() if name in names)] = to

    return change(made)


def placed(to: list[str]) -> Spoil:
    """The manifest has other content paths for one of the files."""
    return change(
        lambda inventory: inventory["manifest"].update({digest_of(inventory, "v3/content/a"): to})
    )


def fixed(block: Callable[[dict[str, Any]], Any]) -> Spoil:
    return change(lambda inventory: inventory.update(fixity=block(inventory)))


def md5(content: str) -> str:
    return hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()


def upper_twice(inventory: dict[str, Any]) -> None:
    digest = digest_of(inventory, "v3/content/a")
    inventory["manifest"][digest.upper()] = inventory["manifest"][digest]


def without_v2(path: Path) -> None:
    change(lambda inventory: inventory["versions"].pop("v2") and None)(path)


def no_version(path: Path) -> None:
    change(lambda inventory: inventory.update(versions={}))(path)


def renamed_versions(path: Path) -> None:
    """v3 is written as v03 everywhere."""

    def made(inventory: dict[str, Any]) -> dict[str, Any]:
        plain = json.dumps(inventory).replace('"v3"', '"v03"').replace('"v3/', '"v03/')
        renamed: dict[str, Any] = json.loads(plain)
        return renamed

    change(made)(path)
    (path / "v3").rename(path / "v03")


def link(path: Path) -> None:
    (path / "v3/content/a").unlink()
    os.symlink("../../v1/content/a", path / "v3/content/a")


def older_type(path: Path) -> None:
    """The newest version, and the object, are of an older specification than the first."""
    (path / "0=ocfl_object_1.1").unlink()
    (path / "0=ocfl_object_1.0").write_text("ocfl_object_1.0\n")
    change(lambda inventory: inventory.update(type="https://ocfl.io/1.0/spec/#inventory"))(path)


def add_copy(path: Path) -> None:
    """The newest inventory has a copy within the first version, which the older ones do not
    know."""
    (path / "v1/content/copy").write_text("1")
    change(
        lambda inventory: inventory["manifest"][digest_of(inventory, "v1/content/a")].append(
            "v1/content/copy"
        )
    )(path)


def add_late(path: Path) -> None:
    """Only the newest inventory has some content of the first version."""
    (path / "v1/content/late").write_text("late")
    digest = hashlib.sha512(b"late").hexdigest()

    def made(inventory: dict[str, Any]) -> None:
        inventory["manifest"][digest] = ["v1/content/late"]
        inventory["versions"]["v3"]["state"][digest] = ["late"]

    change(made)(path)


def other_letters(inventory: dict[str, Any]) -> None:
    """One digest of the newest version's state is in capital letters."""
    state = inventory["versions"]["v3"]["state"]
    digest = next(digest for digest, names in state.items() if "a" in names)
    state[digest.upper()] = state.pop(digest)


STRAY = {"sha512": "0" * 128}
CASES = [
    Case("E001", "a file in the object's folder that does not belong there", touch("notes.txt")),
    Case("E001", "a folder in the object's folder that does not belong there", folder("more")),
    Case("E003", "no declaration, or two", remove("0=ocfl_object_1.1")),
    Case("E006", "a declaration of another name", lambda path: (path / "0=ocfl_object_1.1").rename(path / "0=ocfl_object_x")),
    Case("E007", "a declaration that does not hold its own name", text("0=ocfl_object_1.1", "ocfl_object_1.0\n")),
    Case("E008", "no versions", no_version),
    Case("E010", "a version is left out", without_v2),
    Case("E012", "versions with and without zeros", renamed_versions),
    Case("E015", "a file in a version's folder that does not belong there", touch("v1/notes.txt")),
    Case("E017", "a content folder with '/' in its name", setting(contentDirectory="con/tent")),
    Case("E018", "a content folder called '..'", setting(contentDirectory="..")),
    Case("E020", "another content folder in an older inventory", change(lambda inventory: inventory.update(contentDirectory="data"), "v1")),
    Case("E023", "content that is in no inventory", touch("v2/content/stray.txt")),
    Case("E023", "content of a version that its own inventory does not have", add_late),
    Case("E023", "a copy in a version that its own inventory does not have", add_copy),
    Case("E024", "an empty folder within the content", folder("v1/content/empty")),
    Case("E025", "a digest algorithm other than sha512 and sha256", setting(digestAlgorithm="md5")),
    Case("E033", "an inventory that is no JSON", text("inventory.json", "{")),
    Case("E036", "an inventory without id, type, digestAlgorithm or head", without("head")),
    Case("E037", "an inventory of another object", change(lambda inventory: inventory.update(id="urn:another"), "v1")),
    Case("E038", "an inventory of another specification than the declaration", setting(type="https://ocfl.io/1.0/spec/#inventory")),
    Case("E040", "a head that is not the last version", setting(head="v2")),
    Case("E041", "an inventory without manifest or versions", without("manifest")),
    Case("E042", "a content path outside of the versions' content", placed(["v9/content/a"])),
    Case("E046", "a version without its folder", remove("v2")),
    Case("E046", "a version's folder that the inventory does not know", folder("v4")),
    Case("E048", "a version without its date", change(lambda inventory: inventory["versions"]["v3"].pop("created") and None)),
    Case("E049", "a date without time or zone", version(created="2026-01-01")),
    Case("E050", "a file whose content is not in the manifest", version(state={"0" * 128: ["a"]})),
    Case("E050", "a digest in other letters than in the manifest", change(other_letters)),
    Case("E052", "a logical path with '.' or '..'", renamed("d", ["../d"])),
    Case("E053", "a logical path that begins or ends with '/'", renamed("d", ["/d"])),
    Case("E054", "a user without a name", version(user={"address": "mailto:nobody@example.org"})),
    Case("E058", "an inventory without its sidecar", remove("inventory.json.sha512")),
    Case("E058", "a version's inventory without its sidecar", remove("v1/inventory.json.sha512")),
    Case("E060", "an inventory that does not have the digest of its sidecar", text("inventory.json.sha512", f"{'0' * 128} inventory.json\n")),
    Case("E060", "the same of an older version", text("v1/inventory.json.sha512", f"{'0' * 128} inventory.json\n")),
    Case("E061", "a sidecar without a digest", text("inventory.json.sha512", "inventory.json\n")),
    Case("E063", "no inventory", remove("inventory.json")),
    Case("E064", "an inventory that is not the newest version's", change(lambda inventory: inventory.update(fixity={}), ".")),
    Case("E066", "an older inventory that tells of other files", change(
        lambda inventory: inventory["versions"]["v1"]["state"].update({digest_of(inventory, "v1/content/a"): ["other"]}), "v1")),
    Case("E067", "a file among the extensions", touch("extensions/notes.txt")),
    Case("E090", "a link in place of a file", link),
    Case("E092", "a file of the newest version is missing", remove("v3/content/a")),
    Case("E092", "a file of an older version is missing", remove("v1/content/a")),
    Case("E092", "a file is empty, or should be", text("v1/content/a", "")),
    Case("E092", "a file has other content", text("v3/content/a", "x"), seen=False),
    Case("E092", "a file of an older version has other content", text("v1/content/a", "x"), seen=False),
    Case("E092", "an older inventory has another digest for a file", change(
        lambda inventory: json.loads(json.dumps(inventory).replace(digest_of(inventory, "v1/content/a"), "0" * 128)), "v1")),
    Case("E093", "a fixity block with a wrong digest", fixed(lambda inventory: {"md5": {md5("x"): ["v3/content/a"]}}), seen=False),
    Case("E093", "a fixity block with content that is not there", fixed(lambda inventory: {"md5": {md5("4"): ["v3/content/x"]}})),
    Case("E094", "a message that is no text", version(message=["ingest"])),
    Case("E095", "a logical path twice", change(
        lambda inventory: inventory["versions"]["v3"].update(state={digest: ["a"] for digest in inventory["versions"]["v3"]["state"]}))),
    Case("E095", "a logical path as a file and as a folder", renamed("d", ["a/d"])),
    Case("E096", "a digest twice in the manifest", change(upper_twice)),
    Case("E097", "a digest twice in a fixity block", fixed(lambda inventory: {"md5": {digest: ["v3/content/a"] for digest in ("ab", "AB")}})),
    Case("E099", "a content path with '.' or '..'", placed(["v3/content/../content/a"])),
    Case("E100", "a content path that begins or ends with '/'", placed(["/v3/content/a"])),
    Case("E101", "a content path twice", placed(["v1/content/a"])),
    Case("E102", "a name that inventories do not have", setting(more=1)),
    Case("E103", "an older version of a newer specification", older_type),
    Case("E103", "a version of an older specification between newer ones", change(
        lambda inventory: inventory.update(type="https://ocfl.io/1.0/spec/#inventory"), "v2")),
    Case("E107", "content in the manifest that no version has", change(
        lambda inventory: inventory["manifest"].update({"0" * 128: ["v3/content/z"]}))),
    Case("E111", "a fixity block that is no object", setting(fixity=["md5"])),
]  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.code}-{number}" for number, case in enumerate(CASES)]
)
def test_an_object_for_each_code(scene: Scene, case: Case) -> None:
    path = scene.build(*VERSIONS)
    assert problems(path) == []
    assert isinstance(scene.look(fixity=True), ObjectFound)
    case.spoil(path)
    assert isinstance(scene.look(), Damaged if case.seen else ObjectFound)
    answer = scene.look(fixity=True)
    assert isinstance(answer, Damaged)
    alike = {"E006": "E003", "E018": "E017"}
    assert answer.code in (case.code, alike.get(case.code)), answer


def test_the_guide_says_which_codes_are_found() -> None:
    lines = [line for line in GUIDE.read_text().splitlines() if re.match(r"\| E\d{3} \|", line)]
    assert lines == [table_row(code) for code in dict.fromkeys(case.code for case in CASES)]


def table_row(code: str) -> str:
    """The guide's row for a code: what is wrong, and whether it is found without and with
    fixity."""
    cases = [case for case in CASES if case.code == code]
    plain = [case.what for case in cases if case.seen]
    read = [case.what for case in cases if not case.seen]
    return f"| {code} | {'; '.join(plain) or '-'} | {'; '.join(read) or '-'} |"


# Good objects -------------------------------------------------------------------------------------
@pytest.mark.parametrize("fixity", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        lambda path: None,
        lambda path: (path / "logs").mkdir(),
        lambda path: (path / "extensions/0000-example").mkdir(parents=True),
        lambda path: (path / "v1/more").mkdir(),
        remove("v1/inventory.json", "v1/inventory.json.sha512"),
        remove("v3/inventory.json", "v3/inventory.json.sha512"),
        change(lambda inventory: inventory["versions"]["v3"].pop("message") and None),
        change(lambda inventory: inventory["versions"]["v3"].pop("user") and None),
        version(user={"name": "ingest"}),
        version(created="2026-01-01T00:00:00.123+01:00"),
        change(lambda inventory: inventory["versions"]["v1"].update(message="told otherwise"), "v1"),
        fixed(lambda inventory: {"md5": {md5("4"): ["v3/content/a"]}, "unknown": {"zz": ["v3/content/a"]}, "sha1": {}}),
    ],
    ids=["plain", "logs", "extension", "folder", "no-v1", "no-v3", "no-message", "no-user", "no-address", "fraction", "metadata", "fixity"],
)  # fmt: skip
def test_good_objects_are_found(scene: Scene, made: Spoil, fixity: bool) -> None:
    path = scene.build(*VERSIONS)
    made(path)
    assert isinstance(scene.look(fixity=fixity), ObjectFound)


@pytest.mark.parametrize("fixity", [False, True])
def test_an_object_whose_algorithm_changed_is_found(scene: Scene, fixity: bool) -> None:
    path = scene.build({"a": "1", "b": "2"}, digest_algorithm="sha256")
    scene.add(path, {"a": "1", "b": "2", "c": "3"}, digest_algorithm="sha512")
    assert problems(path) == []
    found = scene.look(fixity=fixity)
    assert isinstance(found, ObjectFound)
    assert found.algorithm == "sha512"
    (path / "v1/content/a").write_text("x")
    assert isinstance(scene.look(fixity=fixity), Damaged if fixity else ObjectFound)


def test_an_older_inventory_with_content_of_a_later_version_is_damage(scene: Scene) -> None:
    """It says the same as the newest one, word for word, which is right there and not yet in the
    first version."""
    path = scene.build(*VERSIONS)
    (path / "v3/content/copy").write_text("1")

    def made(inventory: dict[str, Any]) -> None:
        inventory["manifest"][digest_of(inventory, "v1/content/a")] = [
            "v1/content/a",
            "v3/content/copy",
        ]

    change(made, ".", "v3")(path)
    assert isinstance(scene.look(fixity=True), ObjectFound)
    change(made, "v1")(path)
    answer = scene.look()
    assert isinstance(answer, Damaged)
    assert (answer.code, answer.where.rpartition("/v")[2]) == ("E042", "1/inventory.json")


def test_an_older_inventory_with_content_that_it_does_not_use_is_damage(scene: Scene) -> None:
    path = scene.build({"a": "1"}, {"a": "1", "b": "2"}, {"a": "3"})
    newest = json.loads((path / "inventory.json").read_text())
    first = newest["versions"]["v1"]["state"]
    later = next(digest for digest in newest["versions"]["v2"]["state"] if digest not in first)
    (path / "v2/content/b").rename(path / "v1/content/b")

    def made(inventory: dict[str, Any]) -> None:
        inventory["manifest"][later] = ["v1/content/b"]

    change(made, ".", "v2", "v3")(path)
    unknown = scene.look()
    change(made, "v1")(path)
    unused = scene.look()
    assert [answer.code for answer in (unknown, unused) if isinstance(answer, Damaged)] == [
        "E023",
        "E107",
    ]


def test_numbers_with_zeros_are_found(scene: Scene) -> None:
    path = scene.build({"a": "1"})
    text = (
        (path / "inventory.json").read_text().replace('"v1"', '"v0001"').replace('"v1/', '"v0001/')
    )
    for place in (path, path / "v1"):
        (place / "inventory.json").write_text(text)
        sign(place)
    (path / "v1").rename(path / "v0001")
    assert problems(path) == []
    assert isinstance(scene.look(fixity=True), ObjectFound)
