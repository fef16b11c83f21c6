"""The pages of lists, as the server makes them: which there were, what each held, and nothing of what one may not see."""

from __future__ import annotations

import re

import pytest
from tests.http.dashboard.pages import seen, shown
from tests.http.live_server import Visitor

from milepost.engine.auth.keys import make_key
from milepost.http.dashboard.pages import lists as lists_page
from milepost.ports.documents import LIST

CSV = {"Content-Type": "text/csv"}


def hand_over(door: Visitor, name: str, body: bytes, route: str = "parcels", *, full: bool = False) -> str:
    answer = door.call("POST", f"/api/v1/routes/{route}/items?name={name}&full={str(full).lower()}", body, headers=CSV)
    return str(answer.body["id"])


@pytest.fixture
def delivered(door: Visitor) -> tuple[Visitor, str, str]:
    """Two full lists: in the second one item is gone, one is changed, one is new, and one line is broken."""
    march = hand_over(door, "march.csv", b"id,n\nP-1,1\nP-2,2\n", full=True)
    april = hand_over(door, "april.csv", b"id,n\nP-2,9\nP-3,3\n,4\n", full=True)
    return door, march, april


def test_a_list_has_a_page_with_what_it_held_and_where_its_items_are(delivered: tuple[Visitor, str, str]) -> None:
    door, _, april = delivered
    page = shown(door, f"/lists/{april}")
    told = door.call("GET", f"/api/v1/lists/{april}").body
    assert told["digest"] in page
    text = seen(page)
    for words in (
        "new 1 accepted",
        "changed 1 known with different content",
        "malformed 1 refused",
        "vanished 1 in the previous full list",
    ):
        assert words in text
    assert "By local" in text
    assert f'href="/items/parcels?list={april}&amp;status=failed"' in page
    assert f'href="/lists/{april}"' in shown(door, "/lists")


def test_what_has_vanished_is_shown_when_asked_for(delivered: tuple[Visitor, str, str]) -> None:
    door, march, april = delivered
    assert "P-1" not in shown(door, f"/lists/{april}")
    assert '<a href="/items/parcels/P-1">P-1</a>' in shown(door, f"/lists/{april}?vanished=true")
    assert "Vanished keys" not in shown(door, f"/lists/{march}?vanished=true")


def test_keys_that_cannot_be_read_any_more_are_said_to_be(delivered: tuple[Visitor, str, str]) -> None:
    door, march, april = delivered
    document = door.ctx.ledger.read(LIST)[march]
    door.ctx.ledger.write(LIST, march, {**document.value, "keys_blob": "lists/gone"})
    assert f"the keys of list &#39;{march}&#39;" in shown(door, f"/lists/{april}?vanished=true")


def test_the_same_file_handed_over_again_is_seen_to_be_the_same(delivered: tuple[Visitor, str, str]) -> None:
    door, march, _ = delivered
    again = hand_over(door, "march-again.csv", b"id,n\nP-1,1\nP-2,2\n")
    assert f'href="/lists/{march}"' in shown(door, f"/lists/{again}").partition("The same file")[2]
    assert f'href="/lists/{again}"' in shown(door, f"/lists/{march}").partition("The same file")[2]


def test_a_list_that_was_cut_off_says_what_to_do(delivered: tuple[Visitor, str, str]) -> None:
    door, march, _ = delivered
    document = door.ctx.ledger.read(LIST)[march]
    door.ctx.ledger.write(LIST, march, {**document.value, "keys_blob": "", "counts": {}, "digest": ""})
    assert "not finished It is being accepted now, or was cut off. If it was cut off, submit the same file again" in seen(
        shown(door, f"/lists/{march}")
    )
    assert "not finished" in shown(door, "/lists")


def test_many_lists_come_in_pages(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_page, "SHOWN", 2)
    for number in range(5):
        hand_over(door, f"list-{number}.csv", b"id\nP-1\n")

    def names(page: str) -> list[str]:
        return re.findall(r">list-(\d)\.csv<", page)

    first, second, last = (shown(door, f"/lists?page={number}") for number in (1, 2, 3))
    assert [names(page) for page in (first, second, last)] == [["4", "3"], ["2", "1"], ["0"]]
    assert "3 to 4 of 5" in seen(second)
    assert [re.findall(r'rel="(\w+)"', page.partition("<main")[2]) for page in (first, second, last)] == [
        ["next"],
        ["prev", "next"],
        ["prev"],
    ]
    assert "There are no earlier ones." in shown(door, "/lists?page=9")
    assert door.call("GET", "/lists?page=0").status == 400


def test_a_key_for_one_route_sees_nothing_of_anothers_lists(door: Visitor) -> None:
    mine = hand_over(door, "mine.csv", b"id\nP-1\n")
    other = hand_over(door, "other.csv", b"id\nL-1\n", "letters")
    _, key = make_key(door.ctx, "state", ["read", "submit"], by="ops", reason="a test", routes=["parcels"])
    page = shown(door, "/lists", key=key)
    assert "mine.csv" in page
    assert "other.csv" not in page
    assert "letters" not in page
    assert door.call("GET", f"/lists/{mine}", key=key).status == 200
    assert door.call("GET", f"/lists/{other}", key=key).status == 404


@pytest.mark.parametrize(("scopes", "may"), [(["read"], False), (["read", "submit"], True)])
def test_only_who_may_submit_is_offered_to_hand_one_over(door: Visitor, scopes: list[str], may: bool) -> None:
    _, key = make_key(door.ctx, "state", scopes, by="ops", reason="a test")
    assert ("data-upload" in shown(door, "/lists", key=key)) is may
