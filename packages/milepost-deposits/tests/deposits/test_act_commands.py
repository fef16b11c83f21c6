"""Commands by which people act on deposits, as they type them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deposits.sample_folder import Folder, sample_folder

from milepost_deposits.standins.dspace import DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

SIGNED = ("--by", "ann", "--reason", "a test")


@pytest.fixture
def folder(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> Iterator[Folder]:
    """Three DOIs that DSpace refuses."""
    crossref.everything = publisher.everything = True
    with DSpaceStandIn() as dspace, MailboxStandIn(tmp_path / "mails") as mailbox:
        made = sample_folder(tmp_path, crossref, publisher, dspace, mailbox)
        (tmp_path / "inbox" / "march.csv").write_text("10.1002/a\n10.1002/b\n10.1002/c\n")
        dspace.fail("status", 422, where="POST */core/items")
        assert made("run").code == 1
        dspace.mend()
        yield made


def test_requeue_abandon_and_deposited(folder: Folder) -> None:
    unsigned = folder("abandon", "10.1002/a", "--by", "ann")
    assert (unsigned.code, "--reason TEXT missing" in unsigned.err) == (2, True)
    assert folder("requeue", "https://doi.org/10.1002/A", *SIGNED).out == "requeued: 1 of 1\n"
    assert folder("abandon", "10.1002/b", *SIGNED).out == "abandoned: 1 of 1\n"
    by_hand = folder(
        "deposited", "10.1002/c", "--handle", "https://hdl.handle.net/1721.1/7", *SIGNED
    )
    assert (by_hand.code, by_hand.out) == (0, "10.1002/c is deposited as 1721.1/7\n")
    assert folder("run").code == 0, "nothing needs people any more"
    refused = folder("requeue", "10.1002/a", "10.1002/x", *SIGNED)
    assert refused.code == 1
    assert refused.out == "requeued: 0 of 2\n"
    assert "10.1002/x: there is no item with this key" in refused.err
    assert "10.1002/a: it is COMPLETED" in refused.err
    again = folder("deposited", "10.1002/c", "--handle", "1721.1/8", *SIGNED)
    assert (again.code, "deposited already, as 1721.1/7" in again.err) == (1, True)


def test_nothing_is_stuck_and_there_is_no_submission_service(folder: Folder) -> None:
    assert (folder("stuck", "--search").code, folder("set-aside").out) == (0, "")
    nothing = folder("set-aside", "--drop", "m-1")
    assert (nothing.code, nothing.err) == (1, "no message m-1 is set aside\n")
    results = folder("results")
    assert (results.code, "there is no submission service" in results.err) == (2, True)


def test_the_worklist_and_a_claim_by_command(folder: Folder) -> None:
    folder("abandon", "10.1002/b", "10.1002/c", *SIGNED)
    assert (
        folder("claim", "doi:10.1002/A", "--by", "Ann Lee").out
        == "10.1002/a is claimed by Ann Lee\n"
    )
    refused = folder("claim", "10.1002/a", "--by", "Bob")
    assert refused.code != 0
    assert "claimed by Ann Lee" in refused.err
    printed = folder("worklist")
    assert "milepost deposits deposited DOI --handle HANDLE --by YOU" in printed.err
    assert "milepost deposits requeue DOI --by YOU" in printed.err
    shown = printed.out
    assert "at submit: DSpace answered 422" in shown
    assert "claimed by Ann Lee since" in shown
    page = json.loads(folder("worklist", "--json").out)
    [entry] = page["deposits"]
    assert (page["waiting"], page["found"], page["after"]) == (1, 1, None)
    assert (entry["doi"], entry["claim"]["name"], entry["search_first"]) == (
        "10.1002/a",
        "Ann Lee",
        False,
    )
    assert "10.1002/a," in folder("worklist", "--csv").out
    assert (
        folder("release", "10.1002/a", "--by", "Carl").out
        == "10.1002/a is released; it was claimed by Ann Lee\n"
    )
    assert folder("release", "10.1002/a", "--by", "Carl").code == 1


def test_the_worklist_goes_on_page_by_page_and_finds_a_doi(folder: Folder) -> None:
    first = json.loads(folder("worklist", "--limit", "2", "--json").out)
    assert (first["waiting"], first["first"], len(first["deposits"])) == (3, 1, 2)
    printed = folder("worklist", "--limit", "2")
    assert "3 DOIs need a manual deposit; 1 to 2 are shown" in printed.err
    assert f"next: milepost deposits worklist --limit 2 --after '{first['after']}'" in printed.err
    second = json.loads(folder("worklist", "--limit", "2", "--after", first["after"], "--json").out)
    assert (second["first"], second["after"]) == (3, None)
    assert sorted(one["doi"] for page in (first, second) for one in page["deposits"]) == [
        "10.1002/a",
        "10.1002/b",
        "10.1002/c",
    ]
    found = json.loads(folder("worklist", "--search", "https://doi.org/10.1002/B", "--json").out)
    assert (found["waiting"], found["found"], [one["doi"] for one in found["deposits"]]) == (
        3,
        1,
        ["10.1002/b"],
    )
    assert len(folder("worklist", "--limit", "1", "--csv").out.splitlines()) == 4, (
        "the export has all of them"
    )
    wrong = folder("worklist", "--after", "yesterday")
    assert (wrong.code, "'yesterday' is no place in the worklist" in wrong.err) == (2, True)
