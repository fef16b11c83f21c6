"""Backup and restore of a ledger in a SQLite file: one moment, whole, while others write; and
everything that is refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.core.errors import LedgerBusy, LedgerDamaged, LedgerError, LedgerForeign, UsageError
from milepost.engine.evidence import evidence_of
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file import backup
from milepost.ledgers.sqlite.file.backup import back_up, examine, restore
from milepost.ledgers.sqlite.file.store import blobs_folder
from milepost.ports.items import Query
from milepost.ports.ledger import MISSING_CAPABILITIES
from milepost.subscribers import CallSubscriber

KEYS = [f"L-{number}" for number in range(300)]


def letters() -> mp.Route:
    route = mp.Route("letters", key="id")
    route.stage("send")(lambda item: mp.Done({"sent": item.key}))
    return route


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A ledger with items that have ended, and two blobs."""
    address = f"sqlite:///{tmp_path}/m.db"
    with mp.open(address, [letters()]) as post:
        post.submit("letters", *({"id": key, "text": "x" * 200} for key in KEYS))
        post.run(until_idle=0)
        post.context.blobs.write("lists/one", [b"1" * 1000])
        post.context.blobs.write("evidence/a/two", [b"2"])
    return address


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def quiet(done: int, whole: int) -> None:
    assert 0 <= done <= whole


def keys_in(url: str) -> set[str]:
    with mp.open(url, [letters()]) as post:
        return {item.key for item in post.context.ledger.find(Query(route="letters")).items}


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_backup_is_a_ledger_with_everything_in_it(url: str, tmp_path: Path) -> None:
    with mp.open(url, [letters()]) as post:
        report = post.backup(tmp_path / "copy.db")
    assert (report.items, report.seals, report.blobs, report.blob_bytes) == (300, 0, 2, 1001)
    assert report.bytes == (tmp_path / "copy.db").stat().st_size
    with mp.open(f"sqlite:///{tmp_path}/copy.db", [letters()]) as copy:
        story = copy.show("letters", "L-7")
        assert story is not None
        assert (story["status"], story["results"]) == ("COMPLETED", {"send": {"sent": "L-7"}})
        assert b"".join(copy.context.blobs.read("evidence/a/two")) == b"2"
    assert not [name for name in names(tmp_path) if "unfinished" in name]


def test_a_backup_holds_one_moment_and_never_starts_over_while_others_write(
    url: str, tmp_path: Path
) -> None:
    """Between any two steps of the copy another connection commits; the copy has none of it, and
    each page is copied once."""
    other = SqliteLedger.open(str(path_of(url)))
    with mp.open(url, [letters()]) as post:
        calls: list[int] = []

        def write(done: int, whole: int) -> None:
            calls.append(done)
            post.submit(
                "letters", *({"id": f"new-{len(calls)}-{n}", "text": "y" * 500} for n in range(20))
            )

        pages = backup.PAGES
        try:
            backup.PAGES = 4
            report = back_up(
                str(path_of(url)), tmp_path / "copy.db", overwrite=False, on_progress=write
            )
        finally:
            backup.PAGES = pages
    other.close()
    assert report.items == 300
    assert keys_in(f"sqlite:///{tmp_path}/copy.db") == set(KEYS)
    assert len(keys_in(url)) == 300 + 20 * len(calls)
    assert calls == sorted(calls), "it never went back"
    assert len(calls) > 10


def test_a_backup_under_load_is_whole(url: str, tmp_path: Path) -> None:
    stop = threading.Event()
    with mp.open(url, [letters()]) as post:
        post.start()

        def load() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                post.submit("letters", *({"id": f"more-{number}-{n}"} for n in range(10)))

        thread = threading.Thread(target=load)
        thread.start()
        try:
            reports = [post.backup(tmp_path / f"copy-{n}.db") for n in range(5)]
        finally:
            stop.set()
            thread.join()
    assert [report.last_seq for report in reports] == sorted(report.last_seq for report in reports)
    for n, report in enumerate(reports):
        contents = examine(tmp_path / f"copy-{n}.db")
        assert (contents.items, contents.last_seq) == (report.items, report.last_seq)


def test_a_backup_overwrites_nothing_unless_it_is_told_to(url: str, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with mp.open(url, [letters()]) as post:
        post.backup(target)
        before = target.read_bytes()
        with pytest.raises(UsageError, match="--overwrite"):
            post.backup(target)
        assert target.read_bytes() == before
        post.submit("letters", {"id": "late"})
        (blobs_folder(target) / "old").touch()
        post.backup(target, overwrite=True)
        assert not (blobs_folder(target) / "old").exists()
        with pytest.raises(UsageError, match="is a folder"):
            post.backup(tmp_path)
        with pytest.raises(UsageError, match="does not exist"):
            post.backup(tmp_path / "none/copy.db")
    assert examine(target).items == 301


def test_a_backup_that_breaks_off_leaves_nothing_and_keeps_the_old_one(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mp.open(url, [letters()]) as post:
        post.backup(tmp_path / "copy.db")
        before = names(tmp_path)

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(backup, "_sync", full)
        with pytest.raises(LedgerError, match="No space left"):
            post.backup(tmp_path / "copy.db", overwrite=True)
    assert {name for name in names(tmp_path) if "unfinished" in name} == set()
    assert before - names(tmp_path) <= {"m.db-wal", "m.db-shm"}
    assert examine(tmp_path / "copy.db").items == 300


def test_a_backup_leaves_out_no_blobs_of_a_folder_that_cannot_be_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def unreadable(path: str | os.PathLike[str]) -> Any:
        if Path(path).name == "evidence":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    with mp.open(url, [letters()]) as post:
        monkeypatch.setattr(os, "scandir", unreadable)
        with pytest.raises(LedgerError, match="Permission denied"):
            post.backup(tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_restore_brings_everything_back_and_sets_the_old_ledger_aside(
    url: str, tmp_path: Path
) -> None:
    with mp.open(url, [letters()]) as post:
        post.backup(tmp_path / "copy.db")
        post.submit("letters", {"id": "since"})
        post.context.blobs.write("lists/since", [b"3"])
    with pytest.raises(UsageError, match="--overwrite"):
        mp.restore(tmp_path / "copy.db", url)
    assert "since" in keys_in(url)
    report = mp.restore(tmp_path / "copy.db", url, overwrite=True)
    assert (report.items, report.blobs) == (300, 2)
    assert keys_in(url) == set(KEYS)
    assert sorted(
        file.name for file in blobs_folder(path_of(url)).rglob("*") if file.is_file()
    ) == ["one", "two"]
    assert report.set_aside is not None
    assert "since" in keys_in(f"sqlite:///{report.set_aside}")
    assert (blobs_folder(report.set_aside) / "lists/since").read_bytes() == b"3"
    # To where there is none, and work goes on there.
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    mp.restore(tmp_path / "copy.db", elsewhere)
    with mp.open(elsewhere, [letters()]) as post:
        assert [
            receipt.answer
            for receipt in post.submit("letters", {"id": "L-1", "text": "x" * 200}, {"id": "new"})
        ] == ["known", "new"]
        post.run(until_idle=0)
    assert not [name for name in names(tmp_path) if "unfinished" in name]


def copy_of(url: str, tmp_path: Path) -> Path:
    with mp.open(url, [letters()]) as post:
        post.backup(tmp_path / "copy.db")
    return tmp_path / "copy.db"


def test_a_ledger_that_a_process_uses_is_not_restored(url: str, tmp_path: Path) -> None:
    copy = copy_of(url, tmp_path)
    script = "import sys, milepost as mp\nwith mp.open(sys.argv[1]) as post:\n  print('open', flush=True)\n  sys.stdin.readline()\n"
    looking = subprocess.Popen(
        [sys.executable, "-c", script, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert looking.stdout is not None
    assert looking.stdout.readline() == "open\n"
    with pytest.raises(LedgerError, match=r"m\.db-wal|has .* open"):
        mp.restore(copy, url, overwrite=True)
    looking.communicate("\n")
    with mp.open(url, [letters()]) as post:
        post.start()
        while not list(Path(f"{path_of(url)}-workers").glob("*.lock")):
            pass
        with pytest.raises(LedgerBusy, match="1 process is using"):
            mp.restore(copy, url, overwrite=True)
    mp.restore(copy, url, overwrite=True)


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_leftover_log_is_refused_whether_or_not_its_ledger_is_there(
    url: str, tmp_path: Path, suffix: str
) -> None:
    copy = copy_of(url, tmp_path)
    for target in (path_of(url), tmp_path / "gone.db"):
        left = Path(f"{target}{suffix}")
        left.write_bytes(b"left behind")
        with pytest.raises(LedgerError, match="does not belong to a restored file"):
            restore(copy, str(target), overwrite=True, on_progress=quiet)
        assert left.read_bytes() == b"left behind"
        left.unlink()
    assert not (tmp_path / "gone.db").exists()


def test_a_backup_with_a_log_of_its_own_is_refused(url: str, tmp_path: Path) -> None:
    copy = copy_of(url, tmp_path)
    Path(f"{copy}-wal").write_bytes(b"more")
    with pytest.raises(LedgerError, match="holds changes that are not in"):
        mp.restore(copy, f"sqlite:///{tmp_path}/new.db")


def broken_head(copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE item SET head = x'00' WHERE key = 'L-5'")


def broken_line(copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute(
            "UPDATE history SET body = replace(body, 'completed', 'rejected') WHERE seq = (SELECT max(seq) FROM history)"
        )


def broken_page(copy: Path) -> None:
    with copy.open("r+b") as file:
        file.seek(8192 * 6)
        file.write(os.urandom(8192))


def not_ours(copy: Path) -> None:
    copy.unlink()
    with sqlite3.connect(copy) as connection:
        connection.execute("CREATE TABLE other (a)")


def no_file(copy: Path) -> None:
    copy.write_text("this is no database, whatever its name says" * 100)


def emptied(copy: Path) -> None:
    copy.write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [broken_head, broken_line, broken_page, not_ours, no_file, emptied]
)
def test_a_damaged_backup_is_refused_and_the_ledger_stays_as_it_is(
    url: str, tmp_path: Path, damage: Any
) -> None:
    copy = copy_of(url, tmp_path)
    damage(copy)
    before = path_of(url).read_bytes()
    with pytest.raises((LedgerDamaged, LedgerForeign)):
        mp.restore(copy, url, overwrite=True)
    assert path_of(url).read_bytes() == before
    assert keys_in(url) == set(KEYS)


@pytest.mark.parametrize("damage", [broken_head, broken_line])
def test_an_item_that_was_tampered_with_is_named_and_does_not_prevent_a_backup(
    url: str, tmp_path: Path, damage: Any
) -> None:
    damage(path_of(url))
    with mp.open(url, [letters()]) as post:
        report = post.backup(tmp_path / "copy.db")
    assert len(report.broken) == 1
    with pytest.raises(LedgerDamaged, match="--force"):
        mp.restore(tmp_path / "copy.db", url, overwrite=True)
    assert mp.restore(tmp_path / "copy.db", url, overwrite=True, force=True).broken == report.broken


def test_a_damaged_ledger_can_be_replaced(url: str, tmp_path: Path) -> None:
    copy = copy_of(url, tmp_path)
    broken_page(path_of(url))
    mp.restore(copy, url, overwrite=True)
    assert keys_in(url) == set(KEYS)


def test_a_copy_that_differs_from_its_source_is_not_put_in_place(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_of(url, tmp_path)
    other = tmp_path / "other.db"
    shutil.copy(copy, other)
    with sqlite3.connect(other) as connection:
        connection.execute("DELETE FROM item WHERE key = 'L-5'")
    real = backup._copy_file
    monkeypatch.setattr(
        backup, "_copy_file", lambda source, *rest: real(other if source == copy else source, *rest)
    )
    with pytest.raises(LedgerDamaged, match="differs from it"):
        mp.restore(copy, url, overwrite=True)
    assert keys_in(url) == set(KEYS)


def test_what_cannot_be_backed_up_says_so_and_what_to_do() -> None:
    with mp.open("memory:", [letters()]) as post:
        assert "backup" in post.context.ledger.missing_capabilities
        with pytest.raises(LedgerError, match="memory ledger"):
            post.backup("copy.db")
    from milepost_aws.ledger.ledger import AwsLedger

    assert "backup" in AwsLedger.missing_capabilities
    assert "point-in-time recovery" in MISSING_CAPABILITIES["backup"]
    with pytest.raises(UsageError, match="point-in-time recovery"):
        mp.restore("copy.db", "dynamodb://eu-west-2/try")


def course_of_events(
    url: str, handler: Any
) -> tuple[dict[str, dict[str, Any]], dict[str, Any], list[str]]:
    """Work on the ledger to the end: the events that a subscriber received by their ids, the item's
    story, and the ids in its evidence."""
    received: dict[str, dict[str, Any]] = {}
    route = mp.Route("letters", key="id")
    route.stage("write")(handler)
    route.stage("post")(lambda item: mp.Done())
    with mp.open(
        url,
        [route],
        subscribers=[
            CallSubscriber(lambda event: received.update({event["id"]: event}), name="reader")
        ],
    ) as ledger:
        ledger.submit("letters", {"id": "late"})
        ledger.run(until_idle=0)
        found = evidence_of(ledger.context, "letters", "early")
        assert found is not None
        return received, ledger.show("letters", "early"), found.record["events"]


def test_event_ids_after_a_restore_differ_from_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, copy = f"sqlite:///{tmp_path}/m.db", tmp_path / "copy.db"
    route = mp.Route("letters", key="id")
    route.stage("write")(lambda item: mp.Done())
    route.stage("post")(lambda item: mp.Done())
    with mp.open(url, [route]) as ledger:
        ledger.submit("letters", {"id": "early"})
        ledger.backup(copy)
    courses = [course_of_events(url, lambda item: mp.Done({"ink": "blue"}))]
    for at, ink in ((1_800_003_600, "black"), (1_800_007_200, "red")):
        monkeypatch.setattr("milepost.ledgers.sqlite.file.backup.time.time", lambda at=at: at)
        restore(copy, str(path_of(url)), overwrite=True, on_progress=quiet)
        courses.append(course_of_events(url, lambda item, ink=ink: mp.Done({"ink": ink})))
    monkeypatch.undo()
    early = [
        [received_id for received_id in received if received_id.startswith("letters/early/")]
        for received, _, _ in courses
    ]
    assert early == [
        ["letters/early/1/accepted", "letters/early/2/advanced", "letters/early/3/completed"],
        [
            "letters/early/1/accepted",
            "letters/early/2/advanced/e1800003600",
            "letters/early/3/completed/e1800003600",
        ],
        [
            "letters/early/1/accepted",
            "letters/early/2/advanced/e1800007200",
            "letters/early/3/completed/e1800007200",
        ],
    ], "what was written before the backup keeps its id"
    late = [
        {received_id for received_id in received if received_id.startswith("letters/late/")}
        for received, _, _ in courses
    ]
    assert not late[0] & late[1]
    assert not late[1] & late[2]
    for received, story, in_evidence in courses:
        assert story["verified"]
        assert set(in_evidence) == {
            received_id for received_id in received if received_id.startswith("letters/early/")
        }


def test_each_restore_has_a_later_epoch_even_if_the_clock_was_set_back(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest, epochs = copy_of(url, tmp_path), []
    for at in (1_800_000_000, 1_700_000_000):
        monkeypatch.setattr("milepost.ledgers.sqlite.file.backup.time.time", lambda at=at: at)
        restore(latest, str(path_of(url)), overwrite=True, on_progress=quiet)
        monkeypatch.undo()
        latest = tmp_path / f"copy-{at}.db"
        with mp.open(url, [letters()]) as ledger:
            epochs.append(ledger.context.plans["letters"].epoch)
            ledger.backup(latest)
    assert epochs == [1_800_000_000, 1_800_000_001]
