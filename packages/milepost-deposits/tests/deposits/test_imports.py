"""Import of what another system has finished: nothing is fetched, nothing is deposited again, and
it is on record."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deposits.deposits_scene import DepositsScene
from tests.deposits.workbooks import workbook

import milepost as mp
from milepost_deposits.commands import import_lines
from milepost_deposits.digest.mail import entry_of, latest_lines
from milepost_deposits.imports import ImportReport, import_dois
from milepost_deposits.people.worklist import worklist_page
from milepost_deposits.twins import needs_second_search

TABLE = """doi;status;handle;attempts
10.1/done;SUCCESS;https://hdl.handle.net/1721.1/7;2
10.1/bare;3;;
10.1/failed;FAILED;;20
10.1/sent;MESSAGE_SENT;;1
10.1/new;UNPROCESSED;;
nonsense;SUCCESS;;
10.1/odd;MAYBE;;
10.1/odd;SUCCESS;no handle;

10.1/DONE;FAILED;;
"""


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DepositsScene]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/import.db"
    with DepositsScene(tmp_path, url) as made:
        yield made


def run_import(
    scene: DepositsScene,
    content: str | bytes = TABLE,
    name: str = "old.csv",
    *,
    dry_run: bool = False,
) -> ImportReport:
    stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
    return import_dois(
        scene.app,
        stream,
        name,
        by="ann",
        reason="from the table of wiley-deposits",
        dry_run=dry_run,
    )


def test_finished_dois_are_as_they_ended(scene: DepositsScene) -> None:
    report = run_import(scene)
    assert (report.deposited, report.failed, report.unfinished, report.known, report.refused) == (
        2,
        1,
        2,
        0,
        {},
    )
    assert [bad.line for bad in report.malformed] == [7, 8, 9]
    assert scene.keys() == ["10.1/bare", "10.1/done", "10.1/failed"]
    done = scene.row("10.1/done")
    assert (
        done["status"],
        done["results"]["submit"]["handle"],
        done["results"]["submit"]["attempts"],
    ) == ("COMPLETED", "1721.1/7", 2)
    assert scene.word("10.1/bare") == "Success"
    assert scene.word("10.1/failed") == "Failed after too many attempts"
    [manual] = worklist_page(scene.app).deposits
    assert (
        manual.error
        == "the system before had failed after 20 attempts (from the table of wiley-deposits)"
    )


def test_a_list_with_imported_dois_deposits_only_the_others(scene: DepositsScene) -> None:
    run_import(scene)
    scene.deliver("master.csv", "10.1/done\n10.1/bare\n10.1/failed\n10.1/new\n")
    [taken] = scene.take_in().taken
    assert taken.report.counts["new"] == 1
    assert scene.submission.seen == []


def test_an_import_is_on_record(scene: DepositsScene) -> None:
    report = run_import(scene)
    assert report.id
    assert scene.row("10.1/done")["list_name"] == "old.csv (import)"
    lines = scene.row("10.1/done")["history"]
    assert {line.get("by") for line in lines if line["reason"] == "confirmed"} == {"ann"}


def test_a_repeat_changes_nothing(scene: DepositsScene) -> None:
    run_import(scene)
    dois = scene.keys()
    before = [scene.row(doi)["version"] for doi in dois]
    report = run_import(scene)
    assert (report.deposited, report.failed, report.known) == (0, 0, 3)
    assert [scene.row(doi)["version"] for doi in dois] == before


def test_an_interrupted_import_is_completed_by_the_next_one(scene: DepositsScene) -> None:
    scene.ledger.submit("deposits", {"doi": "10.1/done"}, not_before="1d")
    scene.ledger.confirm("deposits", "10.1/done", "metadata", {"by_hand": True}, by="ann")
    assert run_import(scene).deposited == 2
    assert scene.word("10.1/done") == "Success"


def test_a_dry_run_changes_nothing(scene: DepositsScene) -> None:
    report = run_import(scene, dry_run=True)
    assert (report.deposited, report.failed, report.id) == (2, 1, "")
    assert scene.keys() == []


def test_imported_deposits_are_no_news_and_are_not_searched_for_again(scene: DepositsScene) -> None:
    run_import(scene)
    lines = latest_lines((entry.public() for entry in scene.ledger.feed(0, 1000)), "deposits")
    entries = [entry_of(line, scene.row(doi), rounds=True) for doi, line in lines.items()]
    assert [entry.doi for entry in entries if entry is not None] == ["10.1/failed"]
    assert not needs_second_search(scene.row("10.1/done"))


def test_a_spreadsheet_is_imported(scene: DepositsScene) -> None:
    report = run_import(
        scene, workbook([["DOI", "Status", "Handle"], ["10.1/a", "Success", "1/2"]]), "old.xlsx"
    )
    assert report.deposited == 1
    assert scene.row("10.1/a")["results"]["submit"]["handle"] == "1/2"


def test_a_file_without_the_columns_is_refused(scene: DepositsScene) -> None:
    with pytest.raises(mp.UsageError, match="must name the columns doi and status"):
        run_import(scene, "doi\n10.1/a\n")


def test_the_report_is_like_that_of_a_list(scene: DepositsScene) -> None:
    said = list(import_lines(run_import(scene)))
    assert (
        said[0]
        == "old.csv: 8 lines: 2 deposited, 1 failed, 2 unfinished, and left out, 3 malformed"
    )
    assert said[1].startswith("  line 7: 'nonsense' is not a DOI")
