"""Acts of people on deposits: requeue, abandon, and mark as deposited by hand, from every stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.submit_scene import DSS, SubmitScene, submit_scene

import milepost as mp
from milepost_deposits.acts import abandon, handle_of, mark_deposited, may_be_deposited, requeue
from milepost_deposits.digest.mail import advice_of

DOI = "10.1002/abcd.20417"
WHO = {"by": "ann", "reason": "seen in DSpace"}


@pytest.fixture(params=["sqlite", "aws"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, request.param) as made:
        yield made


def failed(scene: SubmitScene, doi: str = DOI) -> None:
    """A DOI that DSpace refuses for good."""
    scene.dspace.fail("status", 422, where="POST */core/items", times=1)
    scene.take_in(doi)
    assert scene.state(doi)[1] == "REJECTED"


def test_a_failed_doi_is_requeued_with_all_its_tries(scene: SubmitScene) -> None:
    failed(scene)
    assert requeue(scene.app, [f"doi:{DOI.upper()}", "10.1/unknown"], **WHO) == {
        "10.1/unknown": "there is no item with this key"
    }
    scene.work()
    assert scene.state(DOI)[1] == "COMPLETED"
    line = next(line for line in scene.view(DOI)["history"] if line["reason"] == "operator-retry")
    assert (line["by"], line["why"]) == ("ann", "seen in DSpace")
    assert "COMPLETED" in requeue(scene.app, [DOI], **WHO)[DOI], (
        "a deposited DOI is not deposited again"
    )


def test_a_failed_doi_is_abandoned_and_can_be_requeued(scene: SubmitScene) -> None:
    failed(scene)
    assert abandon(scene.app, [DOI], **WHO) == {}
    assert scene.state(DOI)[1] == "CANCELLED"
    assert scene.ledger.items("deposits", statuses=["failed"]) == []
    requeue(scene.app, [DOI], **WHO)
    scene.work()
    assert scene.state(DOI)[1] == "COMPLETED"


def test_a_failed_doi_is_marked_as_deposited(scene: SubmitScene) -> None:
    failed(scene)
    mark_deposited(scene.app, DOI, "https://hdl.handle.net/1721.1/400778", **WHO)
    view = scene.view(DOI)
    result = view["results"]["submit"]
    assert (view["status"], result["handle"], result["via"], result["by"]) == (
        "COMPLETED",
        "1721.1/400778",
        "hand",
        "ann",
    )
    assert view["history"][-1]["why"] == "seen in DSpace"
    with pytest.raises(mp.ActRefused, match=r"deposited already, as 1721\.1/400778"):
        mark_deposited(scene.app, DOI, "1721.1/2", **WHO)
    scene.work("1h")
    assert scene.dspace.having(DOI) == []


@pytest.mark.parametrize("stage", ["metadata", "content"])
@pytest.mark.parametrize("status", ["REJECTED", "RETRY_SCHEDULED", "CANCELLED"])
def test_a_doi_that_never_got_to_submit_is_marked_as_deposited(
    tmp_path: Path, stage: str, status: str
) -> None:
    with submit_scene(tmp_path, "sqlite") as scene:
        outcome = mp.Reject("no") if status == "REJECTED" else mp.Retry("not now", after="1h")
        scene.refuse = stage, outcome
        scene.take_in(DOI)
        if status == "CANCELLED":
            abandon(scene.app, [DOI], **WHO)
        assert scene.state(DOI)[:2] == (stage, status)
        mark_deposited(scene.app, DOI, "1721.1/400778", **WHO)
        assert scene.view(DOI)["results"]["submit"]["handle"] == "1721.1/400778"
        assert scene.state(DOI)[1] == "COMPLETED"
        scene.work("1d")
        assert scene.dspace.requests == []


def test_a_doi_that_waits_for_its_result_is_marked_as_deposited(tmp_path: Path) -> None:
    """A result that comes later changes only the history."""
    with submit_scene(tmp_path, "sqlite", dss=DSS) as scene:
        scene.take_in(DOI)
        mark_deposited(scene.app, DOI, "1721.1/400778", **WHO)
        assert scene.state(DOI)[1] == "COMPLETED"
        scene.service.run()
        scene.apply()
        assert scene.view(DOI)["results"]["submit"]["handle"] == "1721.1/400778"
        assert scene.reasons(DOI)[-1] == "noted"


def test_a_doi_that_was_abandoned_while_the_service_had_it_is_not_sent_twice(
    tmp_path: Path,
) -> None:
    with submit_scene(tmp_path, "sqlite", dss=DSS) as scene:
        scene.take_in(DOI)
        abandon(scene.app, [DOI], **WHO)
        requeue(scene.app, [DOI], **WHO)
        scene.work("1h")
        assert scene.messages() == 1
        scene.service.run()
        scene.work("5h")
        assert scene.state(DOI)[1] == "COMPLETED", "found by a search"
        assert len(scene.dspace.having(DOI)) == 1


@pytest.mark.parametrize("stage", ["metadata", "content"])
@pytest.mark.parametrize("value", [True, "done", {"handle": "1/2"}, {"file": "a.pdf"}])
def test_a_stage_that_stores_a_file_is_not_confirmed_without_one(
    make_scene: MakeScene, stage: str, value: object
) -> None:
    scene = make_scene()
    scene.deliver("list.csv", f"{DOI}\n")
    scene.take_in()
    with pytest.raises(
        mp.ActRefused,
        match="needs the stored file; note a deposit by hand with 'milepost deposits deposited'",
    ):
        scene.ledger.confirm("deposits", DOI, stage, value, by="ann")
    assert scene.row(DOI)["stage"] == "metadata"
    mark_deposited(scene.app, DOI, "1721.1/400778", **WHO)
    assert scene.word(DOI) == "Success"


@pytest.mark.parametrize("how", ["skipped", "confirmed"])
def test_a_doi_whose_files_are_not_stored_needs_a_person_at_once(
    make_scene: MakeScene, how: str
) -> None:
    scene = make_scene()
    scene.deliver("list.csv", f"{DOI}\n")
    scene.take_in()
    for stage in ("metadata", "content"):
        if how == "skipped":
            scene.ledger.act("skip", "deposits", keys=[DOI], **WHO)
        else:
            scene.ledger.confirm(
                "deposits", DOI, stage, True, by="ann", force=True, reason="seen in DSpace"
            )
    scene.round()
    found = scene.row(DOI)
    assert (found["status"], found["attempts"], scene.submission.seen) == ("REJECTED", 1, [])
    assert "it has no stored metadata or no PDF" in found["error"]["message"]
    assert advice_of(found["error"], "submit") == "Deposit it by hand.", "it cannot be in DSpace"


def test_mistakes_are_named(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory") as scene:
        with pytest.raises(mp.ActRefused, match="not known"):
            mark_deposited(scene.app, DOI, "1/2", **WHO)
        with pytest.raises(mp.UsageError, match="not a handle"):
            mark_deposited(scene.app, DOI, "see DSpace", **WHO)
        with pytest.raises(mp.UsageError, match="not a DOI"):
            abandon(scene.app, ["thesis 7"], **WHO)


def test_handles_as_people_write_them() -> None:
    assert handle_of(" http://hdl.handle.net/1721.1/400778 ") == "1721.1/400778"
    assert handle_of("123456789/2") == "123456789/2"


def test_after_which_failures_people_search_first() -> None:
    assert may_be_deposited({"category": "NO_ANSWER"}, "submit")
    assert not may_be_deposited({"category": "NO_PDF"}, "content")
    assert not may_be_deposited({"category": "DSPACE_FORBIDDEN"}, "submit")
    assert not may_be_deposited(None, "submit")
