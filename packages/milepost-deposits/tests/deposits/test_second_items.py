"""A DOI gets no second item where DSpace's index lacks items, and where it gets one nevertheless,
people hear of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import DSS, ENVIRONMENT, SubmitScene, submit_scene

import milepost as mp
from milepost_deposits.acts import mark_deposited
from milepost_deposits.controls import end_waits, partner_waits
from milepost_deposits.digest.mail import digests_of, latest_lines, subject_of, text_of, twins_entry
from milepost_deposits.people.worklist import claim, worklist_page
from milepost_deposits.settings import DepositsSettings, SubmitSettings, check_settings
from milepost_deposits.twins import find_twins, twins

DOI, OLD = "10.1002/new.1", "10.1002/old.1"
NEVER = 1e12


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, "sqlite") as made:
        yield made


def article(scene: SubmitScene, doi: str) -> Any:
    """An item of a DOI that another program made, with a file."""
    item = scene.dspace.put(
        {
            "dc.title": [{"value": "t"}],
            "dc.relation.isversionof": [{"value": f"https://doi.org/{doi}"}],
        }
    )
    item.add_file("a.pdf", b"%PDF-1.4 old")
    return item


def large_repository(scene: SubmitScene) -> None:
    """More items than one page of DSpace's own list has."""
    for number in range(120):
        article(scene, f"10.9/{number}")


def empty_index(scene: SubmitScene) -> None:
    """As at the beginning of `dspace index-discovery -b`."""
    for item in scene.dspace.items.values():
        item.searchable_at = NEVER


def rebuilt_index(scene: SubmitScene) -> None:
    for item in scene.dspace.items.values():
        item.searchable_at = 0


def resume(scene: SubmitScene) -> None:
    scene.ledger.resume("deposits", "submit", by="ann", reason="the index is back")
    scene.work("1d")


def check_waits(scene: SubmitScene, doi: str, *words: str) -> None:
    """The DOI waits, no try is counted, and the pause says why."""
    assert scene.state(doi)[1] not in ("COMPLETED", "REJECTED", "MAX_RETRIES_EXCEEDED")
    assert scene.view(doi)["total_attempts"] == 0
    [wait] = partner_waits(scene.app)
    assert wait.needs_people
    for word in words:
        assert word in wait.text


def test_an_article_that_a_rebuilt_index_does_not_show_gets_no_second_item(
    scene: SubmitScene,
) -> None:
    scene.take_in("10.1002/ours")
    scene.work("2d")
    article(scene, OLD)
    empty_index(scene)
    scene.take_in(OLD)
    check_waits(
        scene,
        OLD,
        "does not find 10.1002/ours",
        "being rebuilt",
        "1 DOI waits",
        "no try is counted",
    )
    assert len(scene.dspace.having(OLD)) == 1
    rebuilt_index(scene)
    resume(scene)
    assert scene.view(OLD)["results"]["submit"]["found"] is True
    assert len(scene.dspace.having(OLD)) == 1


def test_in_a_small_repository_the_list_of_items_stands_in_for_the_index(
    scene: SubmitScene,
) -> None:
    article(scene, OLD)
    empty_index(scene)
    scene.take_in(OLD)
    assert scene.view(OLD)["results"]["submit"]["found"] is True
    assert len(scene.dspace.having(OLD)) == 1


def test_without_an_own_deposit_an_item_of_dspaces_list_is_the_witness(scene: SubmitScene) -> None:
    large_repository(scene)
    scene.clock.advance("2d")
    article(scene, OLD)
    empty_index(scene)
    scene.take_in(OLD)
    check_waits(scene, OLD, "DSpace's search does not find 123456789/")
    rebuilt_index(scene)
    resume(scene)
    assert len(scene.dspace.having(OLD)) == 1
    scene.take_in(DOI)
    assert scene.state(DOI)[1] == "COMPLETED"


def test_items_that_are_younger_than_a_day_prove_nothing(scene: SubmitScene) -> None:
    large_repository(scene)
    scene.take_in(DOI)
    check_waits(scene, DOI, "younger than a day")
    scene.clock.advance("1d")
    resume(scene)
    assert scene.state(DOI)[1] == "COMPLETED"


def test_the_setting_names_a_canary(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", canary=f"https://doi.org/{OLD}") as scene:
        large_repository(scene)
        scene.take_in(DOI)
        check_waits(scene, DOI, f"does not find {OLD} ([deposits.submit] canary)")
        article(scene, OLD)
        resume(scene)
        assert scene.state(DOI)[1] == "COMPLETED"


def test_a_canary_that_is_no_doi_is_a_mistake() -> None:
    submit = SubmitSettings(
        dspace="https://dspace.example.org/server", collection="1/2", canary="none"
    )
    with pytest.raises(mp.ConfigMistake, match="canary is 'none'"):
        check_settings(
            DepositsSettings(
                content="https://example.org/{doi}", mailto="a@example.org", submit=submit
            )
        )


def test_a_deposit_that_was_removed_from_dspace_is_no_fault_of_the_index(
    scene: SubmitScene,
) -> None:
    scene.take_in("10.1002/ours")
    scene.work("2d")
    scene.dspace.items.clear()
    scene.take_in(DOI)
    assert scene.state(DOI)[1] == "COMPLETED"


def test_without_a_login_and_a_deposit_the_canary_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.setitem(ENVIRONMENT, name, "")
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:
        scene.take_in(DOI)
        check_waits(scene, DOI, "set [deposits.submit] canary")
        assert scene.messages() == 0


def test_a_second_search_of_an_unknown_try_does_not_count_while_the_index_is_rebuilt(
    scene: SubmitScene,
) -> None:
    scene.take_in("10.1002/ours")
    scene.work("2d")
    scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    scene.take_in(DOI)
    empty_index(scene)
    scene.work("10m")
    assert "DSpace's search does not find" in partner_waits(scene.app)[0].text
    scene.work("5h")
    assert len(scene.dspace.having(DOI)) == 1
    rebuilt_index(scene)
    end_waits(scene.app)
    scene.work("1d")
    assert scene.state(DOI)[1] == "COMPLETED"
    assert len(scene.dspace.having(DOI)) == 1


# An index that is behind --------------------------------------------------------------------------
def lagging(scene: SubmitScene) -> None:
    """The answer to the creation is lost, and the index, which has older items, is ten minutes
    behind: more than `apart`."""
    scene.take_in("10.1002/ours")
    scene.work("2d")
    scene.dspace.index_lag = 600
    scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    scene.take_in(DOI)
    scene.work("30m")
    assert scene.state(DOI)[1] == "COMPLETED"


def test_a_second_item_that_an_index_behind_has_caused_is_on_the_worklist_hours_later(
    scene: SubmitScene,
) -> None:
    lagging(scene)
    handles = sorted(item.handle for item in scene.dspace.having(DOI))
    assert len(handles) == 2, "the limit that the guide states"
    assert find_twins(scene.app, scene.submission.dspace) == [], "not yet: the index may be behind"
    scene.clock.advance("6h")
    assert find_twins(scene.app, scene.submission.dspace) == [DOI]
    assert find_twins(scene.app, scene.submission.dspace) == [], "once"
    page = worklist_page(scene.app)
    [entry] = page.deposits
    assert (page.waiting, entry.doi, entry.error) == (
        1,
        DOI,
        f"DSpace has two items of this DOI: {', '.join(handles)}",
    )
    assert "Delete the wrong item" in entry.advice
    assert claim(scene.app, DOI, name="ann").name == "ann"


def test_twins_are_mailed_once(scene: SubmitScene) -> None:
    lagging(scene)
    scene.clock.advance("6h")
    before = scene.ledger.feed(0, 1000)[-1].seq
    find_twins(scene.app, scene.submission.dspace)
    [line] = latest_lines(
        (entry.public() for entry in scene.ledger.feed(before, 1000)), "deposits"
    ).values()
    entry = twins_entry(line, scene.view(DOI), twins(scene.app)[DOI])
    assert entry is not None
    [digest] = digests_of([entry], "d", ("a@example.org",), {}, {"Success": 1})
    assert subject_of(digest) == "Deposits: 1 has two items in DSpace"
    assert "DSpace has two items of this DOI" in text_of(digest)


def test_twins_leave_the_worklist_when_one_is_deleted(scene: SubmitScene) -> None:
    lagging(scene)
    scene.clock.advance("6h")
    find_twins(scene.app, scene.submission.dspace)
    [first, _] = scene.dspace.having(DOI)
    del scene.dspace.items[first.uuid]
    find_twins(scene.app, scene.submission.dspace)
    assert worklist_page(scene.app).waiting == 0
    assert "noted" in scene.reasons(DOI)[-1:]


def test_a_person_says_which_twin_is_right(scene: SubmitScene) -> None:
    lagging(scene)
    scene.clock.advance("6h")
    find_twins(scene.app, scene.submission.dspace)
    handle = scene.dspace.having(DOI)[0].handle
    mark_deposited(scene.app, DOI, handle, by="ann", reason="both are wanted")
    assert worklist_page(scene.app).waiting == 0
    scene.clock.advance("1d")
    assert find_twins(scene.app, scene.submission.dspace) == []
    assert scene.state(DOI)[1] == "COMPLETED"


def test_a_longer_time_apart_makes_no_second_item(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", apart="15m") as scene:
        lagging(scene)
        assert len(scene.dspace.having(DOI)) == 1


def test_a_deposit_without_a_failed_try_is_not_searched_for_again(scene: SubmitScene) -> None:
    scene.take_in(DOI)
    scene.clock.advance("1d")
    searches = scene.dspace.count("GET */discover/*")
    assert find_twins(scene.app, scene.submission.dspace) == []
    assert scene.dspace.count("GET */discover/*") == searches


@pytest.mark.parametrize("kind", ["sqlite", "aws"])
def test_a_second_item_that_the_submission_service_makes_is_on_the_worklist(
    tmp_path: Path, kind: str
) -> None:
    """The service dies after it has made the item, reads the message again, and reports the second
    one."""
    with submit_scene(tmp_path, kind, dss=DSS) as scene:
        scene.plan(DOI, "dies-made", "success")
        scene.take_in(DOI)
        scene.service.run()
        scene.clock.advance("1m")
        scene.service.run()
        scene.apply()
        assert scene.state(DOI)[1] == "COMPLETED"
        first, second = sorted(item.handle for item in scene.dspace.having(DOI))
        scene.work("1m")
        scene.clock.advance("7h")
        assert find_twins(scene.app, scene.submission.dspace) == [DOI]
        assert (
            worklist_page(scene.app).deposits[0].error
            == f"DSpace has two items of this DOI: {first}, {second}"
        )


def test_a_second_search_that_fails_is_made_again(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:
        scene.plan(DOI, "dies-made", "success")
        scene.take_in(DOI)
        scene.service.run()
        scene.clock.advance("1m")
        scene.service.run()
        scene.apply()
        scene.clock.advance("7h")
        scene.dspace.fail("status", 500, where="GET */discover/*", times=1)
        assert find_twins(scene.app, scene.submission.dspace) == []
        assert find_twins(scene.app, scene.submission.dspace) == [DOI]
