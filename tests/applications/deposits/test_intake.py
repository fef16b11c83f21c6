"""Intake: every list is taken in once, archived beside its report, and a bad one stops no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.applications.deposits.deposits_scene import DepositsScene

import milepost as mp
from milepost.applications.deposits.intake import take_in_lists


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DepositsScene]:
    with DepositsScene(tmp_path) as found:
        yield found


def test_every_form_of_a_doi_is_one_item_and_bad_lines_are_named(scene: DepositsScene) -> None:
    scene.deliver("list.csv", "\ufeffDOI\r\n\r\n10.1/x  \r\nhttps://doi.org/10.1/X\r\ndoi:10.1/x\r\n10.1/x,foo\r\nnot a doi\r\n")
    [taken] = scene.take_in().taken
    assert scene.keys() == ["10.1/x"]
    assert taken.report.counts | {"new": 1, "repeated": 3, "malformed": 1} == taken.report.counts
    [bad] = taken.report.malformed
    assert (bad.line, bad.text) == (7, "not a doi")
    assert "not a DOI" in bad.reason


def test_a_byte_order_mark_and_line_ends_of_windows_leave_no_trace(scene: DepositsScene) -> None:
    scene.deliver("list.csv", b"\xef\xbb\xbf10.1/a\r\n10.1/b\r\n")
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]


@pytest.mark.parametrize("name", ["LIST.CSV", "list.Txt", "deep/down/list.csv", "with space (1).csv"])
def test_lists_of_any_name_are_taken(scene: DepositsScene, name: str) -> None:
    scene.deliver(name, "Title;DOI\nFoam;10.1/a\n")
    report = scene.take_in()
    assert report.new == 1
    assert scene.keys() == ["10.1/a"]
    assert [one.rpartition("-")[2] for one in scene.archived()] == [name.rpartition("/")[2]]
    assert not (scene.inbox / name).exists()


def test_quotes_and_line_breaks_in_other_columns_do_no_harm(scene: DepositsScene) -> None:
    scene.deliver("list.csv", 'title,doi\n"Foam, ""wet"",\nand sand","10.1/a"\nplain,10.1/b\n')
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]


def test_what_is_archived_or_in_quarantine_is_not_read(scene: DepositsScene) -> None:
    scene.deliver("archived/old.csv", "10.1/a\n")
    scene.deliver("quarantine/bad.csv", "10.1/b\n")
    scene.deliver(".hidden.csv", "10.1/c\n")
    assert scene.take_in().taken == []
    assert scene.keys() == []


def test_two_lists_that_share_a_doi_make_one_item(scene: DepositsScene) -> None:
    scene.deliver("a.csv", "10.1/a\n10.1/b\n")
    scene.deliver("b.csv", "10.1/B\n10.1/c\n")
    assert scene.take_in().new == 3
    assert scene.keys() == ["10.1/a", "10.1/b", "10.1/c"]


def test_a_list_of_the_same_name_replaces_no_archive(scene: DepositsScene) -> None:
    for doi in ("10.1/a", "10.1/b", "10.1/c"):
        scene.deliver("list.csv", f"{doi}\n")
        scene.take_in()
    archived = scene.archived()
    assert len(archived) == 3
    assert {(scene.inbox / "archived" / name).read_text() for name in archived} == {"10.1/a\n", "10.1/b\n", "10.1/c\n"}


def test_the_report_is_beside_the_archived_list(scene: DepositsScene) -> None:
    scene.deliver("list.csv", "10.1/a\nbroken\n")
    [taken] = scene.take_in().taken
    report = json.loads((scene.inbox / f"{taken.archived}.report.json").read_text())
    assert report["counts"]["new"] == 1
    assert [bad["line"] for bad in report["malformed"]] == [2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"title,year\nFoam,2020\n", "no column"), (b"\x1f\x8b\x08zipped", "compressed"), (b"", "no lines"), (b" \r\n\r\n", "no lines")],
)
def test_a_bad_file_is_quarantined_with_its_reason_and_stops_no_other(scene: DepositsScene, content: bytes, reason: str) -> None:
    scene.deliver("a-bad.csv", content)
    scene.deliver("b-good.csv", "10.1/a\n")
    report = scene.take_in()
    assert report.new == 1
    [refused] = report.refused
    assert reason in refused.reason
    assert (scene.inbox / refused.quarantined).read_bytes() == content
    assert reason in (scene.inbox / f"{refused.quarantined}.reason.txt").read_text()
    assert scene.take_in().refused == []


def test_a_file_that_is_still_written_is_left(tmp_path: Path) -> None:
    with DepositsScene(tmp_path, inbox_quiet="10s") as scene:
        scene.deliver("list.csv", "10.1/a\n", age_s=0)
        assert scene.take_in().growing == ["list.csv"]
        scene.deliver("list.csv", "10.1/a\n", age_s=20)
        assert scene.take_in().new == 1


def test_a_file_that_is_replaced_while_it_is_read_stays_for_the_next_time(scene: DepositsScene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.deliver("list.csv", "10.1/a\n")
    submit = scene.ledger.submit_list

    def replaced(*args: object, **more: object) -> mp.ListReport:
        report = submit(*args, **more)  # type: ignore[arg-type]
        scene.deliver("list.csv", "10.1/a\n10.1/b\n")
        return report

    monkeypatch.setattr(scene.ledger, "submit_list", replaced)
    assert scene.take_in().taken[0].archived == ""
    monkeypatch.undo()
    scene.take_in()
    assert scene.keys() == ["10.1/a", "10.1/b"]
    assert len(scene.archived()) == 1


def test_other_files_are_ignored_and_named(scene: DepositsScene) -> None:
    scene.deliver("list.xlsx", b"PK")
    assert scene.take_in().ignored == ["list.xlsx"]
    assert (scene.inbox / "list.xlsx").exists()


def test_a_missing_inbox_changes_nothing_and_says_so(tmp_path: Path) -> None:
    with DepositsScene(tmp_path, inbox=str(tmp_path / "nowhere")) as scene, pytest.raises(mp.MilepostError, match="nowhere"):
        scene.take_in()


def test_a_ledger_that_is_not_available_leaves_the_list(scene: DepositsScene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.deliver("list.csv", "10.1/a\n")

    def unavailable(*_: object, **__: object) -> mp.ListReport:
        raise mp.LedgerError("the disk is gone")

    monkeypatch.setattr(scene.ledger, "submit_list", unavailable)
    with pytest.raises(mp.LedgerError):
        take_in_lists(scene.ledger, scene.settings)
    assert (scene.inbox / "list.csv").exists()


def test_what_vanished_from_the_master_list_is_reported(scene: DepositsScene) -> None:
    scene.deliver("1.csv", "10.1/a\n10.1/b\n")
    scene.take_in()
    scene.deliver("2.csv", "10.1/b\n")
    [taken] = scene.take_in().taken
    assert taken.report.vanished == ["10.1/a"]
