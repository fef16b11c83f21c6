"""Record of runs: what each run took in, tried and mailed; a mail that could not be sent goes out
with the next run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.deposits.deposits_service import DEPOSITED, NO_PDF, deposits_service

from milepost_deposits.runs import KEPT, LONGEST, NAMED, RunRecord, end_run, runs
from milepost_deposits.status_names import FAILED


def test_each_run_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with deposits_service(tmp_path, monkeypatch, attempts={"content": 2}) as service:
        service.deliver(DEPOSITED, NO_PDF)
        (service.inbox / "broken.csv").write_text("no identifiers here\n")
        assert service.round().needs_people
        service.round()
        assert not service.round().digests
        last, second, first = runs(service.app)
        assert (first.lists, first.new, first.tried_again) == (["list.csv"], 2, 0)
        assert [name for name, _ in first.refused] == ["broken.csv"]
        assert first.changes == {"Success": 1, "Failed and will retry": 1}
        assert (second.tried_again, second.changes) == (1, {"Failed and will retry": -1, FAILED: 1})
        assert (last.new, last.changes, last.digests) == (0, {}, [])
        assert [
            service.milepost.show("deposits-digests", key)["status"]
            for key in first.digests + second.digests
        ] == ["COMPLETED"] * 2  # type: ignore[index]
        assert len(service.mailbox.files) == 2
        for number in range(KEPT):
            end_run(service.app, replace(last, id=f"{number}"))
        end_run(service.app, replace(last, id="0"))
        assert len(runs(service.app)) == KEPT


def test_a_mail_that_could_not_be_sent_goes_out_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = {
        "smtp": "smtp://127.0.0.1:9",
        "sender": "deposits@example.org",
        "to": ["librarian@example.org"],
    }
    with deposits_service(tmp_path, monkeypatch, mail=silent) as service:
        service.deliver(DEPOSITED)
        report = service.round()
        assert (report.digests, report.unmailed, report.needs_people) == (1, 1, True)
    (tmp_path / "inbox" / "list.csv").unlink(missing_ok=True)
    (tmp_path / "inbox").rename(tmp_path / "before")
    with deposits_service(tmp_path, monkeypatch) as service:
        report = service.round()
        assert (report.unmailed, report.needs_people) == (0, False)
        [mail] = service.mailbox.files
        assert DEPOSITED in mail.read_text()


def test_runs_with_many_long_names_fit_into_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deposits_service(tmp_path, monkeypatch) as service:
        long = RunRecord(
            "2026-11-18T06:00:00Z",
            refused=[(f"{number}{'é' * 290}", "x" * LONGEST) for number in range(NAMED)],
        )
        for number in range(KEPT):
            end_run(service.app, replace(long, id=f"{number}", at=f"2026-11-18T06:00:{number:02}Z"))
        found = runs(service.app)
        assert 10 < len(found) < KEPT
        assert found[0].id == f"{KEPT - 1}", "the latest ones are kept"
