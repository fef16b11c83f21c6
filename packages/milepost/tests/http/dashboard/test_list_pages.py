"""The pages of lists as the server renders them: all lists, one list, and nothing that a key may
not read."""

from __future__ import annotations

import re

import pytest
from tests.http.dashboard.pages import seen, shown
from tests.http.live_server import LiveServer

from milepost.engine.auth import make_key
from milepost.http.dashboard.pages import lists as lists_page
from milepost.ports.documents import LIST

CSV = {"Content-Type": "text/csv"}


def hand_over(
    live_server: LiveServer, name: str, body: bytes, route: str = "parcels", *, full: bool = False
) -> str:
    answer = live_server.call(
        "POST",
        f"/api/v1/routes/{route}/items?name={name}&full={str(full).lower()}",
        body,
        headers=CSV,
    )
    return str(answer.body["id"])


@pytest.fixture
def delivered(live_server: LiveServer) -> tuple[LiveServer, str, str]:
    """Two full lists: in the second one item is gone, one is changed, one is new, and one line is
    broken."""
    march = hand_over(live_server, "march.csv", b"id,n\nP-1,1\nP-2,2\n", full=True)
    april = hand_over(live_server, "april.csv", b"id,n\nP-2,9\nP-3,3\n,4\n", full=True)
    return live_server, march, april


def test_a_list_has_a_page_with_what_it_held_and_where_its_items_are(
    delivered: tuple[LiveServer, str, str],
) -> None:
    live_server, _, april = delivered
    page = shown(live_server, f"/lists/{april}")
    told = live_server.call("GET", f"/api/v1/lists/{april}").body
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
    assert f'href="/lists/{april}"' in shown(live_server, "/lists")


def test_what_has_vanished_is_shown_when_asked_for(delivered: tuple[LiveServer, str, str]) -> None:
    live_server, march, april = delivered
    assert "P-1" not in shown(live_server, f"/lists/{april}")
    assert '<a href="/items/parcels/P-1">P-1</a>' in shown(
        live_server, f"/lists/{april}?vanished=true"
    )
    assert "Vanished keys" not in shown(live_server, f"/lists/{march}?vanished=true")


def test_keys_that_cannot_be_read_any_more_are_said_to_be(
    delivered: tuple[LiveServer, str, str],
) -> None:
    live_server, march, april = delivered
    document = live_server.ctx.ledger.read(LIST)[march]
    live_server.ctx.ledger.write(LIST, march, {**document.value, "keys_blob": "lists/gone"})
    assert f"the keys of list &#39;{march}&#39;" in shown(
        live_server, f"/lists/{april}?vanished=true"
    )


def test_the_same_file_handed_over_again_is_seen_to_be_the_same(
    delivered: tuple[LiveServer, str, str],
) -> None:
    live_server, march, _ = delivered
    again = hand_over(live_server, "march-again.csv", b"id,n\nP-1,1\nP-2,2\n")
    assert (
        f'href="/lists/{march}"'
        in shown(live_server, f"/lists/{again}").partition("The same file")[2]
    )
    assert (
        f'href="/lists/{again}"'
        in shown(live_server, f"/lists/{march}").partition("The same file")[2]
    )


def test_a_list_that_was_cut_off_says_what_to_do(delivered: tuple[LiveServer, str, str]) -> None:
    live_server, march, _ = delivered
    document = live_server.ctx.ledger.read(LIST)[march]
    live_server.ctx.ledger.write(
        LIST, march, {**document.value, "keys_blob": "", "counts": {}, "digest": ""}
    )
    assert (
        "not finished It is being accepted now, or was cut off. If it was cut off, submit the same file again"
        in seen(shown(live_server, f"/lists/{march}"))
    )
    assert "not finished" in shown(live_server, "/lists")


def test_many_lists_come_in_pages(live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_page, "SHOWN", 2)
    for number in range(5):
        hand_over(live_server, f"list-{number}.csv", b"id\nP-1\n")

    def names(page: str) -> list[str]:
        return re.findall(r">list-(\d)\.csv<", page)

    first, second, last = (shown(live_server, f"/lists?page={number}") for number in (1, 2, 3))
    assert [names(page) for page in (first, second, last)] == [["4", "3"], ["2", "1"], ["0"]]
    assert "3 to 4 of 5" in seen(second)
    assert [
        re.findall(r'rel="(\w+)"', page.partition("<main")[2]) for page in (first, second, last)
    ] == [
        ["next"],
        ["prev", "next"],
        ["prev"],
    ]
    assert "There are no earlier ones." in shown(live_server, "/lists?page=9")
    assert live_server.call("GET", "/lists?page=0").status == 400


def test_a_key_for_one_route_sees_nothing_of_anothers_lists(live_server: LiveServer) -> None:
    mine = hand_over(live_server, "mine.csv", b"id\nP-1\n")
    other = hand_over(live_server, "other.csv", b"id\nL-1\n", "letters")
    _, key = make_key(
        live_server.ctx, "state", ["read", "submit"], by="ops", reason="a test", routes=["parcels"]
    )
    page = shown(live_server, "/lists", key=key)
    assert "mine.csv" in page
    assert "other.csv" not in page
    assert "letters" not in page
    assert live_server.call("GET", f"/lists/{mine}", key=key).status == 200
    assert live_server.call("GET", f"/lists/{other}", key=key).status == 404


@pytest.mark.parametrize(("scopes", "may"), [(["read"], False), (["read", "submit"], True)])
def test_only_who_may_submit_is_offered_to_hand_one_over(
    live_server: LiveServer, scopes: list[str], may: bool
) -> None:
    _, key = make_key(live_server.ctx, "state", scopes, by="ops", reason="a test")
    assert ("data-upload" in shown(live_server, "/lists", key=key)) is may
