"""Files of deposits: names that cannot collide, in a folder and in S3, removed after success as the
policy says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.deposits.conftest import MakeScene

from milepost.blobs.folder import check_name
from milepost_deposits.files import FileStore, file_name, readable
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

texts = st.text(min_size=1, max_size=300)


def test_dois_that_read_alike_have_different_files() -> None:
    names = {
        file_name(doi, ".pdf")
        for doi in ("10.1/a/b", "10.1/a-b", "10.1/a_b", "10.1/a b", "10.1/a//b", "10.1/a/b.")
    }
    assert len(names) == 6
    assert readable("10.1/a/b") == readable("10.1/a-b") == "10.1-a-b"


@given(texts, texts)
def test_every_name_is_valid_and_belongs_to_one_doi(one: str, other: str) -> None:
    assume(one != other)
    for doi in (one, other):
        check_name(file_name(f"10.1/{doi}", ".json"))
    assert file_name(one, ".pdf") != file_name(other, ".pdf")


def test_files_in_s3_are_named_by_their_address(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    boto3.client("s3", endpoint_url=endpoint).create_bucket(
        Bucket="store", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    store = FileStore("s3://store/wiley")
    stored = store.write("10.1/x", ".json", [b"{}"])
    assert stored.place == f"s3://store/wiley/{stored.name}"
    assert store.read_json(stored) == {}
    store.remove(stored.name)
    with pytest.raises(FileNotFoundError):
        store.read_json(stored)


def test_a_store_is_probed_only_after_a_file_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another thread stores a file: each probe is a file more."""
    store = FileStore(str(tmp_path))
    written: list[str] = []
    write = store._blobs.write

    def slow_write(name: str, chunks: Iterable[bytes]) -> None:
        written.append(name)
        if not name.startswith("probe-"):
            store.check()
        write(name, chunks)

    monkeypatch.setattr(store._blobs, "write", slow_write)
    store.write("10.1/x", ".json", [b"{}"])
    assert [name for name in written if name.startswith("probe-")] == []


@pytest.mark.parametrize(
    ("clean", "left"), [("never", {".json", ".pdf"}), ("content", {".json"}), ("all", set())]
)
def test_files_are_removed_after_success_by_policy(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    clean: str,
    left: set[str],
) -> None:
    crossref.everything = True
    publisher.put("10.1/x")
    scene = make_scene(clean=clean)
    scene.ledger.submit("deposits", {"doi": "10.1/x"}, {"doi": "10.1/no-pdf"})
    scene.round()
    assert scene.word("10.1/x") == "Success"
    assert {path.suffix for path in _files_of(scene.files, "10.1-x")} == left
    # What has not succeeded keeps its files: the next round needs them.
    assert {path.suffix for path in _files_of(scene.files, "10.1-no-pdf")} == {".json"}


def _files_of(folder: Path, beginning: str) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(beginning)]
