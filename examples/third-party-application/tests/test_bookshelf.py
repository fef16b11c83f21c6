"""Books get the shelf of their subject."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import milepost as mp
import milepost.application as mpa
from milepost_bookshelf import Book, Settings, add_over_http, application, check_shelves
from milepost_testing import VirtualClock, assert_item, drain

configured = application.with_settings(Settings(shelves={"history": "A1"}))
CLOCK = VirtualClock()


@pytest.fixture
def books() -> Iterator[mp.Milepost]:
    with mp.open("memory:", applications=[configured], clock=CLOCK) as opened:
        yield opened


def test_a_book_gets_the_shelf_of_its_subject(books: mp.Milepost) -> None:
    books.submit("books", {"id": "B-1", "title": "The Histories", "subject": "history"})
    books.submit("books", {"id": "B-2", "title": "Almagest", "subject": "astronomy"})
    drain(books, CLOCK)
    placed = assert_item(books, "books", "B-1", status="COMPLETED")
    assert placed.results == {"place": {"shelf": "A1"}}
    assert_item(books, "books", "B-2", status="REJECTED")


def test_the_endpoint_says_whether_the_book_is_new(books: mp.Milepost) -> None:
    caller = mpa.Caller("library", frozenset({"submit"}))
    call = mpa.Call(caller, {}, body=Book("B-1", "The Histories", "history"))
    answers = [add_over_http(configured.on(books.context), call) for _ in range(2)]
    assert [(answer.status, answer.body.answer) for answer in answers] == [
        (202, "new"),
        (202, "known"),
    ]


@pytest.mark.parametrize(("shelves", "level"), [({}, "warn"), ({"history": "A1"}, "ok")])
def test_the_check_warns_without_shelves(shelves: dict[str, str], level: str) -> None:
    app = application.with_settings(Settings(shelves=shelves)).on(None)
    [finding] = check_shelves(app)
    assert finding.level == level
