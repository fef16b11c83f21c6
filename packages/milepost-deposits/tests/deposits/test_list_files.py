"""Files as librarians make them: spreadsheets and UTF-16 are lists; what is no list is in
quarantine, and people are mailed about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.deposits.deposits_scene import DepositsScene
from tests.deposits.workbooks import HEAD, MAIN, workbook

from milepost_deposits.digest.file_news import pending_news
from milepost_deposits.digest.mail import Digest, html_of, subject_of, text_of
from milepost_deposits.settings import MailSettings

ROWS = [
    ["Title", "Article DOI", "Year"],
    ["Foam; wet", "10.1/a", "2020"],
    [],
    ["[Sand]", "https://doi.org/10.1/B", "2021"],
]
MAIL = MailSettings(smtp="smtp://127.0.0.1:9", sender="d@example.org", to=("a@example.org",))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DepositsScene]:
    with DepositsScene(tmp_path) as made:
        yield made


@pytest.fixture
def mailed(tmp_path: Path) -> Iterator[DepositsScene]:
    with DepositsScene(tmp_path, mail=MAIL) as made:
        yield made


def digests(scene: DepositsScene) -> list[Digest]:
    rows = scene.ledger.items("deposits-digests")
    views = [scene.ledger.show("deposits-digests", row["key"]) for row in rows]
    return [msgspec.convert(view["input"]["digest"], Digest) for view in views if view is not None]


# Forms of lists -----------------------------------------------------------------------------------
@pytest.mark.parametrize("shared", [True, False])
def test_a_spreadsheet_is_a_list(scene: DepositsScene, shared: bool) -> None:
    scene.deliver("list.xlsx", workbook(ROWS, shared=shared))
    [taken] = scene.take_in().taken
    assert scene.keys() == ["10.1/a", "10.1/b"]
    assert taken.name == "list.xlsx"
    assert [name.rpartition("-")[2] for name in scene.archived()] == ["list.xlsx"], (
        "as it was delivered"
    )


def test_the_number_of_a_malformed_line_is_that_of_the_row(scene: DepositsScene) -> None:
    scene.deliver("list.xlsx", workbook([["DOI"], ["10.1/a"], [], ["nonsense"]]))
    [taken] = scene.take_in().taken
    assert [bad.line for bad in taken.report.malformed] == [4]


def test_the_first_sheet_with_a_doi_counts(scene: DepositsScene) -> None:
    scene.deliver(
        "list.xlsx",
        workbook([["Read me"]], *([[["DOI"], ["10.1/a"]]] * 2), [["DOI"], ["10.1/other"]]),
    )
    scene.take_in()
    assert scene.keys() == ["10.1/a"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_a_byte_order_mark_is_a_list(scene: DepositsScene, encoding: str) -> None:
    text = (
        "\ufeff"
        + "Title\tDOI\r\n"
        + "".join(f"Größe {number} 😀\t10.1/{number}\r\n" for number in range(9_000))
    )
    scene.deliver("list.txt", text.encode(encoding))
    assert scene.take_in().new == 9_000


def test_line_ends_of_an_old_mac_are_read(scene: DepositsScene) -> None:
    scene.deliver("list.csv", "Title,DOI\rFoam,10.1/a\rSand,10.1/b\r")
    assert scene.take_in().new == 2


def test_a_line_with_the_delimiter_of_excel_is_no_line_of_the_list(scene: DepositsScene) -> None:
    scene.deliver("list.csv", "\ufeffsep=;\r\nTitle;DOI\r\nFoam;10.1/a\r\n?;nonsense\r\n")
    [taken] = scene.take_in().taken
    assert scene.keys() == ["10.1/a"]
    assert [bad.line for bad in taken.report.malformed] == [4]


def test_the_reason_for_a_compressed_file_is_for_librarians(scene: DepositsScene) -> None:
    scene.deliver("list.csv", b"\x1f\x8b\x08zipped")
    [refused] = scene.take_in().refused
    assert refused.reason == "list.csv is compressed; unpack it first and deliver it again"


DOCTYPE = '<!DOCTYPE x [<!ENTITY a "10.1/x"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 broken", "cannot be read"),
        (
            workbook(
                ROWS,
                parts={
                    "xl/sharedStrings.xml": f'{HEAD}{DOCTYPE}<sst xmlns="{MAIN}"><si><t>&b;</t></si></sst>'
                },
            ),
            "document type",
        ),
        (
            workbook(ROWS, parts={"xl/worksheets/sheet1.xml": "<worksheet><sheetData>"}),
            "cannot be read",
        ),
        (
            workbook(
                ROWS,
                parts={"xl/worksheets/sheet1.xml": '<worksheet><row r="2000000"/></worksheet>'},
            ),
            "out of order",
        ),
        (
            workbook(
                ROWS,
                parts={
                    "xl/worksheets/sheet1.xml": '<worksheet><row r="1"><c r="ZZZZZ1"/></row></worksheet>'
                },
            ),
            "last column",
        ),
        (
            workbook(
                ROWS,
                parts={
                    "xl/worksheets/sheet1.xml": '<worksheet><row r="1"><c r="A1" t="s"><v>99</v></c></row></worksheet>'
                },
            ),
            "cannot be",
        ),
        (workbook([["Title"], ["Foam"]]), "no column holds 'doi'"),
        (b"10.1/a\n", ""),
    ],
)
def test_a_spreadsheet_that_cannot_be_read_is_in_quarantine(
    scene: DepositsScene, content: bytes, reason: str
) -> None:
    scene.deliver("list.xlsx", content)
    report = scene.take_in()
    if not reason:
        assert report.new == 1, "a text with the wrong name is a list"
        return
    assert reason in report.refused[0].reason
    assert scene.keys() == []


def test_a_spreadsheet_that_unpacks_to_more_than_the_limit_is_refused(
    scene: DepositsScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost_deposits.list_files.LARGEST_CONTENT", 1 << 20)
    scene.deliver("list.xlsx", workbook([["DOI"], ["10.1/a"], ["x" * (2 << 20)]]))
    assert "unpacked it has more than 1 MB" in scene.take_in().refused[0].reason


# No DOI at all ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content",
    [
        '[{"doi":"x"}]\n',
        'DOI\n"=HYPERLINK(""https://doi.org/10.1/x"",""10.1/x"")"\n',
        "DOI\nnonsense\n",
        "DOI\n",
        '{"doi": "x"}\n',
    ],
)
def test_a_file_without_a_valid_doi_is_no_list(scene: DepositsScene, content: str) -> None:
    scene.deliver("master.csv", "10.1/a\n")
    scene.take_in()
    scene.deliver("nodoi.csv", content)
    report = scene.take_in()
    assert report.taken == []
    assert [refused.name for refused in report.refused] == ["nodoi.csv"]
    assert len(scene.archived()) == 1, "no DOI is reported as vanished"


# Several columns ----------------------------------------------------------------------------------
def test_a_column_with_the_same_doi_on_all_lines_is_not_that_of_the_articles(
    scene: DepositsScene,
) -> None:
    scene.deliver(
        "list.csv",
        "Journal DOI,Article DOI,Title\n"
        + "".join(f"10.1/journal,10.1/{number},T\n" for number in range(5)),
    )
    assert scene.take_in().new == 5
    assert scene.keys() == [f"10.1/{number}" for number in range(5)]


def test_the_column_with_most_different_dois_is_taken(scene: DepositsScene) -> None:
    scene.deliver(
        "list.csv",
        "Book DOI,Chapter DOI\n"
        + "".join(f"10.1/book{number // 3},10.1/c{number}\n" for number in range(9)),
    )
    scene.take_in()
    assert scene.keys() == [f"10.1/c{number}" for number in range(9)]


def test_two_columns_that_may_be_meant_are_for_people_and_the_setting_decides(
    tmp_path: Path,
) -> None:
    content = "Book DOI,Chapter DOI\n10.1/b1,10.1/c1\n10.1/b2,10.1/c2\n"
    (tmp_path / "first").mkdir()
    with DepositsScene(tmp_path / "first") as scene:
        scene.deliver("list.csv", content)
        [refused] = scene.take_in().refused
        assert "'Book DOI' and 'Chapter DOI'".lower() in refused.reason.lower()
        assert "[deposits] doi_column" in refused.reason
    with DepositsScene(tmp_path, doi_column="chapter doi") as scene:
        scene.deliver("list.csv", content)
        scene.deliver("other.csv", "Title,DOI\nFoam,10.1/x\n")
        report = scene.take_in()
        assert scene.keys() == ["10.1/c1", "10.1/c2"]
        assert "no column of the list is called 'chapter doi'" in report.refused[0].reason


# News for people ----------------------------------------------------------------------------------
def test_refused_and_ignored_files_are_mailed_and_the_round_needs_people(
    mailed: DepositsScene,
) -> None:
    mailed.deliver("bad.csv", "title\nFoam\n")
    mailed.deliver("old.ods", b"PK")
    report = mailed.round()
    assert report.needs_people
    [digest] = digests(mailed)
    assert subject_of(digest) == "Deposits: 2 files need attention"
    text = text_of(digest)
    assert "FILES\n  bad.csv was not taken in: " in text
    assert "old.ods was ignored: it is neither .csv nor .txt nor .xlsx" in text
    assert "old.ods was ignored" in html_of(digest)
    report = mailed.round()
    assert report.needs_people, "the ignored file is still there"
    assert (report.digests, len(digests(mailed))) == (0, 1), "each is named once"


def test_malformed_lines_are_in_the_digest_of_the_round(mailed: DepositsScene) -> None:
    mailed.deliver("list.csv", "DOI\n10.1/a\nnonsense\n")
    report = mailed.round()
    assert report.needs_people
    files = [sentence for digest in digests(mailed) for sentence in digest.files]
    assert files == [
        "list.csv has 1 malformed line: line 3: no DOI: 'nonsense' is not a DOI, such as 10.1002/abcd.20417"
    ]
    assert pending_news(mailed.app) == ()
    assert not mailed.round().intake.malformed


def test_a_round_with_only_an_ignored_file_needs_people(scene: DepositsScene) -> None:
    scene.deliver("old.ods", b"PK")
    assert scene.round().needs_people
