"""The list of items as the server renders it: filters, mistakes in them, and exports."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer
from tests.http.page_text import text_of

import milepost as mp
from milepost.engine.lists.reconcile import submit_list
from milepost.http.api import find
from milepost.http.dashboard.pages import items
from milepost_testing import VirtualClock

MARKUP = "<img src=x>"


def parcels() -> mp.Route:
    route = mp.Route("parcels", key="id")

    @route.stage(
        "weigh",
        lane=lambda content: content.get("depot", ""),
        lanes={"north": mp.Limits(concurrency=2)},
    )
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Reject(f"too heavy {MARKUP}") if item.input.get("heavy") else mp.Done()

    route.external("deliver", overdue="2h")
    return route


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Two that failed, two that are late at `deliver`, and one that has just come there."""
    clock, folder = VirtualClock(), tmp_path_factory.mktemp("items")
    with guarded_server(f"sqlite:///{folder}/ledger.db", [parcels()], clock) as opened:
        opened.milepost.submit(
            "parcels",
            *({"id": f"F-{n}", "heavy": True} for n in (1, 2)),
            {"id": "P-1"},
            {"id": "P-2", "depot": "north"},
        )
        opened.work()
        clock.advance("5h")
        (folder / "march.txt").write_text("P-3\n")
        submit_list(opened.ctx, "parcels", str(folder / "march.txt"), by="ops")
        opened.work()
        yield opened


def keys(live_server: LiveServer, question: str) -> list[str]:
    answered = live_server.call("GET", f"/items/parcels?{question}")
    assert answered.status == 200, answered
    return re.findall(r'data-key="([^"]*)"', answered.raw.decode())


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("", ["F-1", "F-2", "P-1", "P-2", "P-3"]),
        (
            "status=&stage=&prefix=&older_than=&list=&group=&lane=",
            ["F-1", "F-2", "P-1", "P-2", "P-3"],
        ),
        ("status=PENDING,QUEUED", ["P-1", "P-2", "P-3"]),
        ("stage=weigh,deliver&status=failed", ["F-1", "F-2"]),
        ("older_than=1h&status=live", ["P-1", "P-2"]),
        ("lane=north&status=live", []),
        ("list=march.txt", ["P-3"]),
        ("overdue=true", ["P-1", "P-2"]),
        ("nearest=true&prefix=P-", ["P-1", "P-2", "P-3"]),
    ],
)
def test_the_filter_is_the_address(at: GuardedServer, question: str, wanted: list[str]) -> None:
    assert sorted(keys(at, question)) == wanted


def test_what_there_is_to_choose_from_is_offered(at: GuardedServer) -> None:
    page = at.call("GET", "/items/parcels?status=PENDING,QUEUED").raw.decode()
    assert '<option value="PENDING,QUEUED" selected>pending, queued</option>' in page
    assert '<option value="march.txt">' in page
    assert '<option value="north">' in page
    [(group, cause)] = re.findall(r'<option value="([^"]+)">(REJECTED at weigh[^<]*)', page)
    assert MARKUP in html.unescape(cause)
    assert sorted(keys(at, f"group={group}")) == ["F-1", "F-2"]


@pytest.mark.parametrize("age", ["banana", "-3", "1e99"])
def test_a_wrong_age_is_told_beside_the_field(at: GuardedServer, age: str) -> None:
    answered = at.call("GET", f"/items/parcels?prefix=P-&older_than={age}")
    page = answered.raw.decode()
    assert answered.status == 400
    assert f'value="{age}"' in page
    assert 'value="P-"' in page
    assert 'aria-describedby="wrong-age"' in page
    assert "Write a span of time, such as 30m, 6h or 2d." in text_of(answered)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("stage=paint", "Route 'parcels' has no stage 'paint'; its stages are weigh, deliver."),
        ("status=lost", "There is no status 'lost'"),
        ("group=none", "There is no error group 'none'"),
        ("list=april.txt", "Route 'parcels' has no list 'april.txt'"),
        ("after=x", "The token of the next page is invalid, or belongs to another search"),
        (f"list={quote(MARKUP)}", f"has no list '{MARKUP}'"),
    ],
)
def test_a_filter_that_makes_no_sense_is_told_on_the_page_itself(
    at: GuardedServer, question: str, told: str
) -> None:
    answered = at.call("GET", f"/items/parcels?{question}")
    assert answered.status == 400
    assert told in text_of(answered)
    assert MARKUP not in answered.raw.decode()


def test_ages_and_next_looks_are_spans(at: GuardedServer) -> None:
    all_of_them = at.call("GET", "/items/parcels?prefix=P-1")
    assert "P-1 deliver queued 5 h" in text_of(all_of_them)
    assert 'datetime="2033-11-14T22:13:20.000Z" data-span>5 h' in all_of_them.raw.decode()
    late = at.call("GET", "/items/parcels?overdue=true")
    assert "Overdue by" in text_of(late)
    assert "P-1 deliver queued 3 h" in text_of(late)
    assert 'datetime="2033-11-15T00:13:20.000Z" data-span>3 h' in late.raw.decode()
    assert "offered; not confirmed yet" in text_of(late)


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("", "5 items, 2 shown"),
        ("stage=deliver", "3 items match, 2 shown"),
        ("stage=deliver&status=live", "3 items match, 2 shown"),
        ("status=failed", "2 items match"),
        ("prefix=P-3", "1 item matches"),
        ("prefix=P-", "2 shown, more follow"),
        ("nearest=true", "2 shown, more follow"),
    ],
)
def test_how_many_match_is_said_where_it_is_known(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch, question: str, told: str
) -> None:
    monkeypatch.setattr(items, "SHOWN", 2)
    assert f"{told} Export" in text_of(at.call("GET", f"/items/parcels?{question}"))


def test_the_last_page_of_what_was_not_counted_says_so(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "SHOWN", 2)
    [further] = re.findall(
        r'rel="next" href="([^"]*)"', at.call("GET", "/items/parcels?prefix=P-").raw.decode()
    )
    assert "1 shown, the last of them" in text_of(
        at.call("GET", f"/items/parcels{html.unescape(further)}")
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Two routes, with an item on the second."""
    with guarded_server(f"sqlite:///{tmp_path_factory.mktemp('two')}/ledger.db") as opened:
        opened.milepost.submit("letters", {"id": "L/1"})
        yield opened


def test_items_lead_to_the_first_route_and_from_there_to_any_other(two: GuardedServer) -> None:
    reader = two.key("read", name="reader")
    assert two.call("GET", "/items", key=reader).headers["location"] == "/items/parcels"
    page = two.call("GET", "/items/parcels?status=live&stage=weigh", key=reader).raw.decode()
    assert '<a href="/items" aria-current="page">Items</a>' in page
    assert '<a href="/items/letters?status=live">letters</a>' in page, (
        "with what means the same there"
    )
    part = two.key("read", name="part", routes=["letters"])
    assert two.call("GET", "/items", key=part).headers["location"] == "/items/letters"
    assert "parcels" not in two.call("GET", "/items/letters", key=part).raw.decode()


def test_a_key_is_looked_for_on_every_route_that_one_sees(two: GuardedServer) -> None:
    reader, part = (
        two.key("read", name="seeker"),
        two.key("read", name="one of them", routes=["parcels"]),
    )
    assert two.call("GET", "/find?q=L/1", key=reader).headers["location"] == "/items/letters/L%2F1"
    assert two.call("GET", "/find?q=L", key=reader).headers["location"] == "/items/letters?prefix=L"
    assert two.call("GET", "/find?q=+", key=reader).headers["location"] == "/items"
    nowhere = two.call("GET", f"/find?q={quote(MARKUP)}", key=reader)
    assert (nowhere.status, MARKUP in nowhere.raw.decode()) == (404, False)
    assert (
        f"{MARKUP} No route that you see has an item with this key, or with one that begins with it"
        in text_of(nowhere)
    )
    assert "All items of parcels , letters" in text_of(nowhere)
    unseen = two.call("GET", "/find?q=L/1", key=part)
    assert "No route that you see" in text_of(unseen)
    assert "letters" not in unseen.raw.decode()


def test_who_may_only_look_is_offered_no_verbs(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as opened:
        opened.milepost.submit("parcels", {"id": "a"})
        page = opened.call("GET", "/items/parcels", key=opened.key("read")).raw.decode()
    assert ("data-verb" in page, 'type="checkbox"' in page, "CSV" in page) == (False, False, True)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("status=PENDING,QUEUED", ["P-1", "P-2", "P-3"]),
        ("overdue=true", ["P-1", "P-2"]),
        ("overdue=true&prefix=P-2", ["P-2"]),
        ("nearest=true&older_than=1h", ["P-1", "P-2"]),
    ],
)
def test_what_is_shown_is_what_is_exported(
    at: GuardedServer, question: str, wanted: list[str]
) -> None:
    page = at.call("GET", f"/items/parcels?{question}").raw.decode()
    [sheet, text] = [html.unescape(path) for path in re.findall(r'href="(/export/[^"]*)"', page)]
    rows = json.loads(at.call("GET", text).raw)
    assert sorted(row["key"] for row in rows) == wanted
    lines = list(csv.DictReader(io.StringIO(at.call("GET", sheet).raw.decode())))
    assert [line["key"] for line in lines] == [row["key"] for row in rows]
    assert {line["why"] for line in lines} == (
        {"offered; not confirmed yet"} if "status" not in question else {""}
    )


def test_on_aws_what_costs_much_is_asked_about_first(
    aws_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws_server.milepost.submit("parcels", *({"id": f"p{n}"} for n in range(4)))
    aws_server.work()
    monkeypatch.setattr(find, "WARN_ROWS", 2)
    monkeypatch.setattr(find, "CONFIRM_ROWS", 3)
    refused = aws_server.call("GET", "/items/parcels?stage=deliver")
    assert refused.status == 400
    assert "No index serves this: all 4 rows of parcels are read" in text_of(refused)
    assert aws_server.call("GET", "/export/parcels.json?stage=deliver").status == 400
    sought = aws_server.call("GET", "/find?q=p")
    assert "was not complete: Search parcels No index serves this: all 4 rows" in text_of(sought)
    assert 'href="/items/parcels?prefix=p"' in sought.raw.decode()
    [again] = re.findall(r'href="([^"]*scan=true)"', refused.raw.decode())
    shown = aws_server.call("GET", f"/items/parcels{html.unescape(again)}")
    assert "p3 deliver" in text_of(shown)
    [text] = [
        html.unescape(path)
        for path in re.findall(r'href="(/export/[^"]*json[^"]*)"', shown.raw.decode())
    ]
    assert len(json.loads(aws_server.call("GET", text).raw)) == 4
