"""`milepost deposits run` as cron runs it: a process with the smallest configuration, its words, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.applications.deposits.test_deposits_settings import SAMPLE

from milepost.applications.deposits.dspace.standin import PASSWORD, USER, DSpaceStandIn
from milepost.applications.deposits.standins.crossref import CrossrefStandIn
from milepost.applications.deposits.standins.mailbox import MailboxStandIn
from milepost.applications.deposits.standins.publisher import PublisherStandIn


@pytest.fixture
def dspace() -> Iterator[DSpaceStandIn]:
    with DSpaceStandIn() as standin:
        yield standin


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[MailboxStandIn]:
    with MailboxStandIn(tmp_path / "mails") as standin:
        yield standin


@pytest.fixture
def folder(tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, dspace: DSpaceStandIn, mailbox: MailboxStandIn) -> Path:
    text = f'applications = ["deposits"]\n{SAMPLE}'
    for port, origin in {"9101": crossref.origin, "9102": publisher.origin, "9103": dspace.origin}.items():
        text = text.replace(f"http://127.0.0.1:{port}", origin)
    text = text.replace("smtp://127.0.0.1:2525", mailbox.url)
    (tmp_path / "milepost.toml").write_text(text.replace('inbox = "inbox"', 'inbox = "inbox"\ninbox_quiet = "0s"'))
    (tmp_path / "inbox").mkdir()
    return tmp_path


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    secrets = {"DSPACE_USER": USER, "DSPACE_PASSWORD": PASSWORD}
    given = {**{name: value for name, value in os.environ.items() if not name.startswith("MILEPOST")}, **secrets, **environment}
    command = [sys.executable, "-m", "milepost", "deposits", *words]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=120)


def test_rounds_until_a_doi_needs_a_manual_deposit(
    folder: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, dspace: DSpaceStandIn, mailbox: MailboxStandIn
) -> None:
    crossref.put("10.1002/good")
    publisher.put("10.1002/good")
    (folder / "inbox" / "march.csv").write_text("DOI\nhttps://doi.org/10.1002/GOOD\n10.1002/bad\nnonsense\n")
    first = run(folder, "run")
    assert first.returncode == 0, first.stderr
    assert "march.csv: 3 lines: 2 new, 1 malformed" in first.stdout
    assert "line 4: no DOI: 'nonsense'" in first.stdout
    assert "retry when it is sent again" in first.stderr
    assert [item.handle for item in dspace.items.values()] == ["123456789/101"]
    assert run(folder, "run").returncode == 0
    third = run(folder, "run")
    assert third.returncode == 1
    assert "10.1002/bad: at metadata: Crossref has no record of 10.1002/bad" in third.stdout
    assert crossref.count("GET *bad") == 3
    assert json.loads(run(folder, "status", "--json").stdout) == {
        "Processing": 0,
        "Success": 1,
        "Failed and will retry": 0,
        "Failed after too many attempts": 1,
    }
    assert len(dspace.items) == 1
    assert "digests mailed: 1" in first.stdout
    assert len(mailbox.files) == 3


def test_a_mail_server_that_is_down_is_said_and_loses_nothing(
    folder: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, mailbox: MailboxStandIn
) -> None:
    crossref.everything = publisher.everything = True
    config = folder / "milepost.toml"
    right = config.read_text()
    config.write_text(right.replace(mailbox.url, "smtp://127.0.0.1:9"))
    (folder / "inbox" / "march.csv").write_text("10.1002/good\n")
    said = run(folder, "run")
    assert said.returncode == 1
    assert "digests not mailed yet: 1; they are kept, and the next run tries again: the mail server 127.0.0.1:9" in said.stdout
    config.write_text(right)
    assert run(folder, "run").returncode == 0
    [mail] = mailbox.files
    assert "10.1002/good" in mail.read_text()


def test_everything_that_is_missing_is_said_before_any_partner_is_asked(folder: Path, crossref: CrossrefStandIn) -> None:
    (folder / "inbox" / "march.csv").write_text("10.1002/good\n")
    config = folder / "milepost.toml"
    config.write_text(config.read_text().replace('mailto = "library@example.org"\n', "").replace('collection = "123456789/2"\n', ""))
    said = run(folder, "run", DSPACE_USER="")
    assert said.returncode == 2
    for missing in ("mailto", "collection", "DSPACE_USER"):
        assert missing in said.stderr
    assert crossref.requests == []
    assert (folder / "inbox" / "march.csv").exists()


def test_a_missing_inbox_is_an_error(folder: Path) -> None:
    (folder / "inbox").rmdir()
    said = run(folder, "run")
    assert said.returncode == 1
    assert "inbox" in said.stderr


def test_a_file_that_is_no_list_needs_people(folder: Path) -> None:
    (folder / "inbox" / "bad.csv").write_text("title\nFoam\n")
    said = run(folder, "run", "--json")
    assert said.returncode == 1
    [refused] = json.loads(said.stdout)["intake"]["refused"]
    assert "no column" in refused["reason"]
