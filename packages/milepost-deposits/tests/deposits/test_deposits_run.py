"""`milepost deposits run` as cron runs it: a process with the smallest configuration, its words,
and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deposits.sample_folder import sample_folder

from milepost_deposits.standins.dspace import PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn


@pytest.fixture
def dspace() -> Iterator[DSpaceStandIn]:
    with DSpaceStandIn() as standin:
        yield standin


@pytest.fixture
def mailbox(tmp_path: Path) -> Iterator[MailboxStandIn]:
    with MailboxStandIn(tmp_path / "mails") as standin:
        yield standin


@pytest.fixture
def folder(
    tmp_path: Path,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    dspace: DSpaceStandIn,
    mailbox: MailboxStandIn,
) -> Path:
    return sample_folder(tmp_path, crossref, publisher, dspace, mailbox).path


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return milepost(folder, "deposits", *words, **environment)


def milepost(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    secrets = {"DSPACE_USER": USER, "DSPACE_PASSWORD": PASSWORD}
    given = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MILEPOST")},
        **secrets,
        **environment,
    }
    command = [sys.executable, "-m", "milepost", *words]
    return subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, timeout=120
    )


def test_rounds_until_a_doi_needs_a_manual_deposit(
    folder: Path,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    dspace: DSpaceStandIn,
    mailbox: MailboxStandIn,
) -> None:
    crossref.put("10.1002/good")
    publisher.put("10.1002/good")
    (folder / "inbox" / "march.csv").write_text(
        "DOI\nhttps://doi.org/10.1002/GOOD\n10.1002/bad\nnonsense\n"
    )
    first = run(folder, "run")
    assert first.returncode == 1, "a line is malformed"
    assert "march.csv: 3 lines: 2 new, 1 malformed" in first.stdout
    assert "line 4: no DOI: 'nonsense'" in first.stdout
    said = first.stderr.splitlines()
    assert any(line.endswith("retry at the next round") for line in said), said
    assert all(" WARNING " in line for line in said), "the report is on standard output"
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
    assert (
        "digests not mailed yet: 1; they are kept, and the next run tries again: the mail server 127.0.0.1:9"
        in said.stdout
    )
    config.write_text(right)
    assert run(folder, "run").returncode == 0
    [mail] = mailbox.files
    assert "10.1002/good" in mail.read_text()


def test_a_wrong_password_is_said_and_after_the_resume_the_next_round_deposits_all(
    folder: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, dspace: DSpaceStandIn
) -> None:
    crossref.everything = publisher.everything = True
    (folder / "inbox" / "march.csv").write_text(
        "".join(f"10.1002/good.{number}\n" for number in range(9))
    )
    said = run(folder, "run", DSPACE_PASSWORD="wrong")
    refused = (
        f"DSpace refused the login of {USER} (401): put the right password into DSPACE_PASSWORD"
    )
    assert said.returncode == 1
    assert refused in said.stdout
    assert "9 DOIs wait, and no try is counted" in said.stdout
    assert dspace.count("POST */authn/login") == 1
    doctor = milepost(folder, "doctor")
    shown = " ".join(doctor.stdout.split())
    assert (doctor.returncode, shown.count(refused)) == (1, 2), (
        "as the pause, and as what is wrong with deposits"
    )
    resume = ["resume", "deposits", "submit", "--by", "ann", "--reason", "corrected"]
    assert " ".join(resume).replace("ann", "YOU") in shown
    assert milepost(folder, *resume).returncode == 0
    mended = run(folder, "run")
    assert (mended.returncode, len(dspace.items)) == (0, 9), mended.stdout
    assert "Success                                 9" in mended.stdout


def test_everything_that_is_missing_is_said_before_any_partner_is_asked(
    folder: Path, crossref: CrossrefStandIn
) -> None:
    (folder / "inbox" / "march.csv").write_text("10.1002/good\n")
    config = folder / "milepost.toml"
    config.write_text(
        config.read_text()
        .replace('mailto = "library@example.org"\n', "")
        .replace('collection = "123456789/2"\n', "")
    )
    said = run(folder, "run", DSPACE_USER="")
    assert said.returncode == 2
    for missing in ("mailto", "collection", "DSPACE_USER"):
        assert missing in said.stderr
    assert crossref.requests == []
    assert (folder / "inbox" / "march.csv").exists()


def test_a_missing_inbox_is_said_and_does_not_stop_the_rest_of_the_round(
    folder: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn, mailbox: MailboxStandIn
) -> None:
    (folder / "inbox" / "march.csv").write_text("10.1002/good\n")
    assert run(folder, "run").returncode == 0, "Crossref has no record: it will be retried"
    crossref.everything = publisher.everything = True
    (folder / "inbox").rename(folder / "elsewhere")
    said = run(folder, "run")
    assert said.returncode == 1
    assert (
        "inbox: not taken in; the next round tries again: [deposits] inbox: there is no folder"
        in said.stdout
    )
    assert "Success                                 1" in said.stdout
    assert "digests mailed: 1" in said.stdout
    [record, _] = json.loads(run(folder, "runs", "--json").stdout)
    assert (record["state"], record["refused"][0][0]) == ("finished", "inbox")


def test_a_file_that_is_no_list_needs_people(folder: Path) -> None:
    (folder / "inbox" / "bad.csv").write_text("title\nFoam\n")
    said = run(folder, "run", "--json")
    assert said.returncode == 1
    [refused] = json.loads(said.stdout)["intake"]["refused"]
    assert "no column" in refused["reason"]
