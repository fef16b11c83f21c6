"""Deposits to DSpace itself: whatever DSpace does, each DOI has one item there or an error that
people see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import SubmitScene, pdf_of, submit_scene

from milepost_deposits.controls import end_waits, partner_waits
from milepost_deposits.settings import SubmitSettings
from milepost_deposits.stuck import find_late_deposits, stuck_deposits

DOI = "10.1002/abcd.20417"


@pytest.fixture(params=["sqlite", "aws"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, request.param) as made:
        yield made


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[SubmitScene]:
    """On the ledger in memory, for tests that no ledger makes a difference to."""
    with submit_scene(tmp_path, "memory") as made:
        yield made


def whole(scene: SubmitScene, doi: str = DOI) -> None:
    """DSpace has one public item of the DOI with its PDF."""
    [item] = scene.dspace.having(doi)
    assert item.discoverable
    assert [file.content for file in item.files] == [pdf_of(doi)]


def older_deposit(scene: SubmitScene) -> None:
    """An item that the index has. Without one the search reads DSpace's own list, which is never
    behind."""
    scene.take_in("10.1002/first")
    scene.work("5m")


def test_a_doi_is_deposited_with_its_pdf(scene: SubmitScene) -> None:
    scene.take_in(DOI)
    whole(scene)
    view = scene.view(DOI)
    [item] = scene.dspace.having(DOI)
    assert view["status"] == "COMPLETED"
    result = view["results"]["submit"]
    assert (result["handle"], result["last_modified"]) == (item.handle, item.last_modified)
    assert result["files"][0]["checksum"] == view["results"]["content"]["file"]["md5"]


@pytest.mark.parametrize("kind", ["reset", "cut", "html"])
def test_an_item_whose_answer_was_lost_is_found_and_completed(
    scene: SubmitScene, kind: str
) -> None:
    scene.dspace.fail(kind, where="POST */core/items", times=1, acted=True)  # type: ignore[arg-type]
    scene.take_in(DOI)
    scene.work("2d")
    whole(scene)
    assert scene.state(DOI)[1] == "COMPLETED"
    assert scene.dspace.count("POST */core/items") == 1


def test_a_deposit_takes_five_requests(quick: SubmitScene) -> None:
    quick.take_in("10.1002/first")
    quick.work("5m")
    before = len(quick.dspace.requests)
    quick.take_in(DOI)
    made = [line.split("/")[-1] for line in quick.dspace.requests[before:]]
    assert len(made) == 5, made
    assert [made[0], made[1], made[3]] == ["objects", "items", "bitstreams"]


def test_an_item_that_was_never_made_is_made_after_two_searches(scene: SubmitScene) -> None:
    scene.dspace.fail("reset", where="POST */core/items", times=1)
    scene.take_in(DOI)
    assert scene.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)
    assert stuck_deposits(scene.app) == [], "no result is awaited"
    scene.work("2d")
    whole(scene)
    assert scene.dspace.count("POST */core/items") == 2
    assert scene.dspace.count("GET */discover/*") >= 3, (
        "before the first try, right after it, and before the second"
    )


def test_the_index_is_behind_when_the_first_search_is_made(scene: SubmitScene) -> None:
    """A process dies after DSpace has made the item, and another one begins at once."""
    scene.dspace.index_lag = 60
    scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    scene.take_in(DOI)
    scene.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="at once")
    scene.work("2d")
    whole(scene)
    assert scene.dspace.count("POST */core/items") == 1


@pytest.mark.parametrize("where", ["POST */bundles", "POST */bitstreams"])
@pytest.mark.parametrize("kind", ["status", "reset"])
def test_a_half_made_item_is_deleted(quick: SubmitScene, where: str, kind: str) -> None:
    quick.dspace.fail(kind, where=where, times=1)  # type: ignore[arg-type]
    quick.take_in(DOI)
    assert quick.dspace.having(DOI) == []
    assert quick.view(DOI)["error"]["category"] == "DSPACE_UNAVAILABLE"
    quick.work("2d")
    whole(quick)


def test_a_half_made_item_that_cannot_be_deleted_is_completed_by_the_next_try(
    quick: SubmitScene,
) -> None:
    older_deposit(quick)
    quick.dspace.fail("status", 500, where="POST */bitstreams", times=1)
    quick.dspace.fail("status", 503, where="DELETE *", times=1)
    quick.take_in(DOI)
    [left] = quick.dspace.having(DOI)
    assert not left.discoverable, "no search of readers shows it"
    assert quick.view(DOI)["error"]["details"]["uuid"] == left.uuid
    quick.work("2d")
    whole(quick)
    assert quick.dspace.having(DOI) == [left]


def test_a_wrong_checksum_is_a_failed_try_and_the_item_goes(quick: SubmitScene) -> None:
    quick.dspace.wrong_checksum = True
    quick.take_in(DOI)
    assert quick.dspace.having(DOI) == []
    assert quick.view(DOI)["error"]["category"] == "CHECKSUM_MISMATCH"
    quick.dspace.wrong_checksum = False
    quick.work("2d")
    whole(quick)


def test_a_publication_whose_answer_was_lost(quick: SubmitScene) -> None:
    quick.dspace.fail("reset", where="PATCH *", times=1, acted=True)
    quick.take_in(DOI)
    quick.work("2d")
    whole(quick)
    assert quick.dspace.count("POST */core/items") == 1


def test_a_doi_that_dspace_has_already_is_not_deposited_again(quick: SubmitScene) -> None:
    quick.take_in(DOI)
    [item] = quick.dspace.having(DOI)
    with_upper_case = DOI.upper()
    quick.take_in("10.1002/other")
    quick.dspace.items[item.uuid].metadata["dc.identifier.doi"] = [{"value": with_upper_case}]
    quick.ledger.rerun("deposits", DOI, by="ops", reason="a test", stage="submit")
    quick.work("1d")
    whole(quick)
    assert quick.view(DOI)["results"]["submit"]["found"] is True


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dc.identifier.uri", f"https://onlinelibrary.wiley.com/doi/full/{DOI}"),
        ("dc.relation.isversionof", f"https://doi.org/{DOI.replace('/', '%2F')}"),
        ("dc.identifier.other", DOI),
        (
            "dc.identifier.citation",
            f"Okafor, A. (2020). On foam. Journal of Examples, 12(4). https://doi.org/{DOI}.",
        ),
    ],
)
def test_a_doi_is_found_in_each_form_and_in_each_field_of_the_settings(
    tmp_path: Path, field: str, value: str
) -> None:
    fields = (*SubmitSettings().doi_fields, "dc.identifier.other", "dc.identifier.citation")
    with submit_scene(tmp_path, "memory", doi_fields=fields) as scene:
        older_deposit(scene)
        item = scene.dspace.put({"dc.title": [{"value": "t"}], field: [{"value": value}]})
        item.metadata[field] = [{"value": value}]
        item.add_file("a.pdf", pdf_of(DOI))
        scene.take_in(DOI)
        assert scene.view(DOI)["results"]["submit"]["handle"] == item.handle
        assert scene.dspace.count("POST */core/items") == 1, "only the older deposit"


def test_a_longer_doi_in_a_citation_is_another_one(tmp_path: Path) -> None:
    with submit_scene(
        tmp_path, "memory", doi_fields=("dc.identifier.citation", "dc.identifier.uri")
    ) as scene:
        older_deposit(scene)
        item = scene.dspace.put(
            {"dc.identifier.citation": [{"value": f"On foam. https://doi.org/{DOI}.5"}]}
        )
        item.add_file("a.pdf", b"%PDF-")
        scene.take_in(DOI)
        assert scene.view(DOI)["results"]["submit"]["handle"] != item.handle


def test_a_hidden_item_of_a_librarian_is_left_alone(quick: SubmitScene) -> None:
    theirs = quick.dspace.put(
        {"dc.identifier.doi": [{"value": DOI}], "dc.title": [{"value": "under embargo"}]},
        discoverable=False,
    )
    quick.take_in(DOI)
    assert (quick.state(DOI)[1], quick.view(DOI)["error"]["category"]) == (
        "REJECTED",
        "HIDDEN_ITEM",
    )
    assert quick.dspace.having(DOI) == [theirs]
    assert (theirs.discoverable, theirs.files) == (False, [])


def test_a_withdrawn_item_and_one_without_a_file_need_people(quick: SubmitScene) -> None:
    withdrawn = quick.dspace.put({"dc.identifier.doi": [{"value": DOI}]})
    withdrawn.withdrawn = True
    quick.dspace.put({"dc.identifier.doi": [{"value": "10.1002/bare"}]})
    quick.take_in(DOI, "10.1002/bare")
    assert quick.view(DOI)["error"]["category"] == "WITHDRAWN"
    assert quick.view("10.1002/bare")["error"]["category"] == "INCOMPLETE_ITEM"


def test_a_search_that_fails_stops_the_deposit(quick: SubmitScene) -> None:
    quick.dspace.fail("status", 500, where="GET */discover/*", times=1)
    quick.take_in(DOI)
    assert quick.dspace.items == {}
    quick.work("2d")
    whole(quick)


def check_held(scene: SubmitScene, dois: list[str], *words: str) -> None:
    """All of them wait, no try is counted, and the pause of the stage says why."""
    [wait] = partner_waits(scene.app)
    assert wait.needs_people
    assert wait.dois == len(dois)
    for word in words:
        assert word in wait.text
    assert {scene.view(doi)["total_attempts"] for doi in dois} == {0}


def test_a_denied_right_pauses_the_stage_and_counts_no_try(quick: SubmitScene) -> None:
    dois = [f"10.1002/{number}" for number in range(9)]
    quick.dspace.fail(
        "status", 403, where="POST */core/items", body={"message": "Access is denied"}
    )
    quick.take_in(*dois)
    check_held(
        quick,
        dois,
        "DSpace answered 403: Access is denied: give deposits@example.org the right to do this in DSpace",
    )
    assert quick.dspace.count("POST */core/items") <= 3, "those that ran at the same time"
    quick.dspace.mend()
    quick.work("1h")
    end_waits(quick.app)
    quick.work("1h")
    assert {quick.state(doi)[1] for doi in dois} == {"COMPLETED"}


def test_a_right_that_is_missing_for_files_leaves_no_item_behind(quick: SubmitScene) -> None:
    quick.dspace.fail(
        "status", 403, where="POST */bitstreams", body={"message": "Access is denied"}
    )
    quick.take_in(DOI)
    check_held(quick, [DOI], "Access is denied")
    assert quick.dspace.having(DOI) == []


def test_a_403_of_a_proxy_is_the_failure_of_one_doi(quick: SubmitScene) -> None:
    """A firewall refuses one article for a word in its title: the others go on."""
    quick.dspace.fail(
        "status", 403, where="POST */core/items", times=1, body=b"<html>Blocked</html>"
    )
    quick.take_in(DOI, "10.1002/other")
    assert sorted(quick.state(doi)[1] for doi in (DOI, "10.1002/other")) == [
        "COMPLETED",
        "REJECTED",
    ]
    assert partner_waits(quick.app) == []


def test_a_server_that_is_down_ends_after_the_threshold(quick: SubmitScene) -> None:
    quick.dspace.fail("status", 503, where="POST */authn/login")
    quick.take_in(DOI)
    quick.work("10d")
    assert quick.state(DOI) == ("submit", "MAX_RETRIES_EXCEEDED", 3)


def test_an_unknown_collection_pauses_the_stage_and_names_the_setting(tmp_path: Path) -> None:
    dois = [f"10.1002/{number}" for number in range(9)]
    with submit_scene(tmp_path, "memory", collection="1/404") as scene:
        scene.take_in(*dois)
        check_held(
            scene, dois, "DSpace knows no collection '1/404'; check [deposits.submit] collection"
        )
        assert scene.dspace.items == {}


def test_a_missing_file_is_a_failed_try(quick: SubmitScene) -> None:
    quick.dspace.fail("status", 503, where="POST */authn/login", times=1)
    quick.take_in(DOI)
    quick.files.remove(quick.view(DOI)["results"]["content"]["file"]["name"])
    quick.work("10d")
    assert quick.state(DOI)[1] == "MAX_RETRIES_EXCEEDED"
    assert quick.dspace.having(DOI) == []


def test_a_csrf_token_that_is_refused_again_and_again_is_no_lack_of_a_right(
    quick: SubmitScene,
) -> None:
    refusal = {"status": 403, "message": "Access is denied. Invalid CSRF token."}
    quick.dspace.fail("status", 403, where="POST */core/items", times=2, body=refusal)
    quick.take_in(DOI)
    assert quick.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)
    quick.work("2d")
    whole(quick)


def test_an_error_that_is_not_foreseen_is_followed_by_a_search(
    quick: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick.dspace.index_lag = 90
    create = quick.submission.dspace.create

    def broken(*args: Any, **more: Any) -> None:
        create(*args, **more)
        raise RecursionError("its JSON is nested deeply")

    with monkeypatch.context() as patch:
        patch.setattr(quick.submission.dspace, "create", broken)
        quick.take_in(DOI)
    quick.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="at once")
    quick.work("2d")
    whole(quick)


def test_a_search_before_the_last_submission_does_not_count_for_it(quick: SubmitScene) -> None:
    """An operator sends it as new between the two searches, its answer is lost, and the index is
    behind."""
    quick.dspace.index_lag = 60
    quick.dspace.fail("reset", where="POST */core/items", times=1)
    quick.take_in(DOI)
    quick.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="at once")
    quick.work("1s")
    assert quick.state(DOI)[1] == "WAITING"
    quick.clock.advance("3m")
    quick.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    quick.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="as new", as_new=True)
    quick.work("1s")
    quick.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="at once")
    quick.work("2d")
    whole(quick)


def test_a_search_that_dspace_refuses_stops_no_other(quick: SubmitScene) -> None:
    dois = ("10.1002/a", "10.1002/b")
    older_deposit(quick)
    quick.dspace.fail("reset", where="POST */core/items", acted=True)
    quick.take_in(*dois)
    quick.dspace.fail("status", 500, where="GET */discover/*")
    quick.work("2d")
    quick.dspace.mend()
    assert {quick.state(doi)[1] for doi in dois} == {"MAX_RETRIES_EXCEEDED"}
    for item in quick.dspace.items.values():
        item.discoverable = True
        item.add_file("a.pdf", b"%PDF-")
    quick.dspace.fail("status", 400, where="GET */discover/*", times=1)
    assert len(find_late_deposits(quick.app, quick.submission.dspace)) == 1


def test_an_answer_that_cannot_be_stored_is_followed_by_a_search(quick: SubmitScene) -> None:
    """DSpace's error has half of a character in it, and DSpace has made the item nevertheless."""
    quick.dspace.index_lag = 90
    quick.dspace.fail(
        "status",
        500,
        where="POST */core/items",
        times=1,
        acted=True,
        body={"message": "half \ud800"},
    )
    quick.take_in(DOI)
    quick.ledger.act("retry", "deposits", keys=[DOI], by="ops", reason="at once")
    quick.work("2d")
    whole(quick)
