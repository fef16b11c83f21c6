"""Inboxes: what others deliver is listed, read and moved, and nothing is ever overwritten or
lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost.blobs import Inbox, open_blobs, open_inbox
from milepost.blobs.inbox import FolderInbox
from milepost.core.errors import UsageError
from milepost_aws.aws_model import AwsModel
from milepost_aws.s3 import S3Inbox

Deliver = Callable[[str, bytes], None]


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Inbox, Deliver]]:
    if request.param == "folder":

        def deliver(name: str, content: bytes) -> None:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # As most senders do: beside it first, then under its name.
            aside = path.with_name(f".{path.name}.part")
            aside.write_bytes(content)
            aside.rename(path)

        yield FolderInbox(tmp_path), deliver
        return
    client = AwsModel().client("s3")
    client.create_bucket(Bucket="box")
    yield (
        S3Inbox("box", "/in/", client),
        lambda name, content: client.put_object(Bucket="box", Key=f"in/{name}", Body=content),
    )


@pytest.mark.parametrize("open_place", [open_inbox, open_blobs])
def test_an_address_without_a_bucket_is_refused(open_place: Callable[[str], object]) -> None:
    with pytest.raises(UsageError, match="'s3:///lists' names no bucket"):
        open_place("s3:///lists")


def test_files_are_listed_by_name_without_hidden_ones_and_skipped_folders(
    place: tuple[Inbox, Deliver],
) -> None:
    inbox, deliver = place
    for name in (
        "b.csv",
        "a.txt",
        "deep/c.csv",
        ".hidden",
        "archived/old.csv",
        "archived-not/d.csv",
        "deep/archived/e.csv",
    ):
        deliver(name, b"12345")
    found = inbox.files(skip=("archived",))
    assert [file.name for file in found] == [
        "a.txt",
        "archived-not/d.csv",
        "b.csv",
        "deep/archived/e.csv",
        "deep/c.csv",
    ]
    assert {file.size for file in found} == {5}


def test_a_file_is_read_in_pieces(place: tuple[Inbox, Deliver]) -> None:
    inbox, deliver = place
    deliver("list.csv", b"x" * 1_000_000)
    [file] = inbox.files()
    with inbox.open(file) as stream:
        assert stream.read(10) == b"x" * 10
        assert len(stream.read()) == 999_990


def test_a_moved_file_is_gone_and_replaces_none(place: tuple[Inbox, Deliver]) -> None:
    inbox, deliver = place
    deliver("list.csv", b"1")
    [file] = inbox.files()
    assert inbox.move(file, "archived/list.csv")
    assert inbox.files(skip=("archived",)) == []
    deliver("list.csv", b"2")
    [file] = inbox.files(skip=("archived",))
    with pytest.raises(FileExistsError):
        inbox.move(file, "archived/list.csv")
    [kept, stays] = inbox.files()
    with inbox.open(kept) as stream:
        assert stream.read() == b"1"
    with inbox.open(stays) as stream:
        assert stream.read() == b"2"


def test_a_file_that_was_replaced_or_removed_is_not_moved(place: tuple[Inbox, Deliver]) -> None:
    inbox, deliver = place
    deliver("list.csv", b"1")
    [file] = inbox.files()
    deliver("list.csv", b"22")
    assert not inbox.move(file, "archived/list.csv")
    [newer] = inbox.files()
    assert inbox.move(newer, "elsewhere.csv")
    assert not inbox.move(newer, "again.csv")
    assert [file.name for file in inbox.files()] == ["elsewhere.csv"]


def test_a_report_is_written(place: tuple[Inbox, Deliver]) -> None:
    inbox, _ = place
    inbox.write("archived/list.json", b"{}")
    assert [file.name for file in inbox.files()] == ["archived/list.json"]


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_inbox(str(tmp_path / "nowhere")).files()
    with pytest.raises(OSError, match="box"):
        S3Inbox("box", client=AwsModel().client("s3")).files()


def test_more_objects_than_one_page_are_listed() -> None:
    client = AwsModel().client("s3")
    client.create_bucket(Bucket="box")
    for number in range(1_001):
        client.put_object(Bucket="box", Key=f"{number:05d}.csv", Body=b"")
    assert len(S3Inbox("box", client=client).files()) == 1_001


def test_a_file_system_without_links_still_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("links are not supported")

    monkeypatch.setattr(os, "link", no_links)
    inbox = FolderInbox(tmp_path)
    (tmp_path / "list.csv").write_bytes(b"1")
    (tmp_path / "taken.csv").write_bytes(b"2")
    [file, _] = inbox.files()
    with pytest.raises(FileExistsError):
        inbox.move(file, "taken.csv")
    assert inbox.move(file, "free.csv")
    assert (tmp_path / "free.csv").read_bytes() == b"1"


@pytest.mark.parametrize("after", [False, True])
def test_a_file_that_is_replaced_while_it_is_moved_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Its sender renames a new file into place just before, or just after, it is linked."""
    inbox = FolderInbox(tmp_path)
    (tmp_path / "list.csv").write_bytes(b"old")
    [file] = inbox.files()
    link = os.link
    delivered: list[bool] = []

    def deliver() -> None:
        if not delivered:
            delivered.append(True)
            (tmp_path / "new").write_bytes(b"new list")
            (tmp_path / "new").rename(tmp_path / "list.csv")

    def link_while_delivered(source: Path, target: Path) -> None:
        if not after:
            deliver()
        link(source, target)
        deliver()

    monkeypatch.setattr(os, "link", link_while_delivered)
    inbox.move(file, "archived/list.csv")
    assert (tmp_path / "list.csv").read_bytes() == b"new list"
    archived = tmp_path / "archived" / "list.csv"
    assert archived.read_bytes() == b"old" if after else not archived.exists()
    assert [one.name for one in inbox.files(skip=("archived",))] == ["list.csv"]


@pytest.mark.parametrize("after", [False, True])
def test_an_object_that_is_replaced_while_it_is_moved_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Its sender puts a new one just before, or just after, it is copied."""
    client = AwsModel().client("s3")
    client.create_bucket(Bucket="box")
    inbox, copy = S3Inbox("box", client=client), client.copy_object
    client.put_object(Bucket="box", Key="list.csv", Body=b"old")
    [file] = inbox.files()

    def copy_while_delivered(**params: Any) -> Any:
        if not after:
            client.put_object(Bucket="box", Key="list.csv", Body=b"new list")
        answer = copy(**params)
        client.put_object(Bucket="box", Key="list.csv", Body=b"new list")
        return answer

    monkeypatch.setattr(client, "copy_object", copy_while_delivered)
    assert inbox.move(file, "archived/list.csv") is after, "what was moved is said to be moved"
    assert client.get_object(Bucket="box", Key="list.csv")["Body"].read() == b"new list"
    archived = [one.name for one in inbox.files() if one.name != "list.csv"]
    assert archived == (["archived/list.csv"] if after else [])
    if after:
        assert client.get_object(Bucket="box", Key="archived/list.csv")["Body"].read() == b"old"
