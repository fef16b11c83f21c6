"""Bookshelf: finds a shelf for each book."""

from __future__ import annotations

from collections.abc import Iterator

import click
from msgspec import Struct

import milepost as mp
import milepost.application as mpa


class Settings(mpa.AppSettings, frozen=True):
    """The table [bookshelf] of milepost.toml."""

    shelves: dict[str, str] = {}
    """The shelf of each subject."""


application = mpa.Application("bookshelf", Settings, summary="Shelves for books.")


@application.routes
def routes(settings: Settings) -> list[mp.Route]:
    books = mp.Route("books", key="id")

    @books.stage("place")
    def place(item: mp.Item) -> mp.Outcome:
        subject = item.input["subject"]
        if subject not in settings.shelves:
            return mp.Reject(f"no shelf for the subject {subject!r}")
        return mp.Done({"shelf": settings.shelves[subject]})

    return [books]


class Book(Struct):
    """The body of `POST /books`."""

    id: str
    title: str
    subject: str


class Added(Struct):
    id: str
    answer: str


@application.endpoint(
    "POST", "/books", scope="submit", body=Book, answers={202: Added}, summary="Add a book"
)
def add_over_http(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Answer:
    """The book is in the ledger when this is answered."""
    return mpa.Answer(Added(call.body.id, submit(app, call.body)), 202)


@application.command(ledger="write")
@click.argument("id")
@click.argument("title")
@click.argument("subject")
def add(app: mpa.AppContext[Settings], id: str, title: str, subject: str) -> None:
    """Add a book."""
    click.echo(f"{id}: {submit(app, Book(id, title, subject))}")


def submit(app: mpa.AppContext[Settings], book: Book) -> str:
    """Add the book to the ledger; returns "new", or "known" for one that is there."""
    content = {"id": book.id, "title": book.title, "subject": book.subject}
    [receipt] = app.submit("books", content)
    return str(receipt.answer)


@application.check("shelves")
def check_shelves(app: mpa.AppContext[Settings]) -> Iterator[mpa.Finding]:
    """`milepost doctor` shows this."""
    if app.settings.shelves:
        yield mpa.Finding("ok", "bookshelf", f"{len(app.settings.shelves)} subjects have a shelf")
    else:
        yield mpa.Finding(
            "warn",
            "bookshelf",
            "no subject has a shelf, so every book is rejected",
            "add [bookshelf.shelves] to milepost.toml",
        )
