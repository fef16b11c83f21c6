"""News about delivered files for the next digest: files that were refused or ignored, and malformed
lines of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from milepost_deposits.intake import IntakeReport
from milepost_deposits.settings import DepositsApp

NEWS = "file-news"
"""Name of the document that holds the sentences until a digest has them."""
SHOWN_LINES = 20
MOST = 200
LONGEST = 400


class FileNews(msgspec.Struct, frozen=True):
    """Sentences that no digest has yet, and names of ignored files that one has, or has among
    these."""

    sentences: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def sentences_of(report: IntakeReport) -> list[str]:
    """What people have to know about the files of one intake, without the ignored ones."""
    said = [
        f"{file.name} was not taken in: {file.reason.removeprefix(f'{file.name}: ')}"
        for file in (*report.refused, *report.unread)
    ]
    for taken in report.taken:
        count = taken.report.counts.get("malformed", 0)
        if count:
            lines = "; ".join(
                f"line {bad.line}: {bad.reason}" for bad in taken.report.malformed[:SHOWN_LINES]
            )
            more = (
                ""
                if count <= SHOWN_LINES
                else f"; all are in {taken.archived}.report.json in the inbox"
            )
            said.append(
                f"{taken.name} has {count:,} malformed {'line' if count == 1 else 'lines'}: {lines}{more}"
            )
    return [sentence[: LONGEST * SHOWN_LINES] for sentence in said]


def note_files(app: DepositsApp, report: IntakeReport) -> None:
    """Keep the news of an intake for the next digest. An ignored file is named once, as long as it
    is there."""
    if app.settings.mail is None:
        return

    def added(news: FileNews) -> FileNews:
        ignored = [
            f"{name} was ignored: it is neither .csv nor .txt nor .xlsx"
            for name in report.ignored
            if name not in news.ignored
        ]
        sentences = (
            *news.sentences,
            *(
                sentence
                for sentence in (*sentences_of(report), *ignored)
                if sentence not in news.sentences
            ),
        )
        return FileNews(sentences[:MOST], tuple(report.ignored[:MOST]))

    _change(app, added)


def pending_news(app: DepositsApp) -> tuple[str, ...]:
    """The sentences that no digest has yet."""
    document = app.documents.get(NEWS)
    return () if document is None else msgspec.convert(document.value, FileNews).sentences


def mark_mailed(app: DepositsApp, sentences: Iterable[str]) -> None:
    """Note that a digest has these sentences."""
    mailed = set(sentences)
    _change(
        app,
        lambda news: msgspec.structs.replace(
            news, sentences=tuple(text for text in news.sentences if text not in mailed)
        ),
    )


def _change(app: DepositsApp, change: Callable[[FileNews], FileNews]) -> None:
    def changed(news: FileNews | None) -> FileNews | None:
        before = news or FileNews()
        after = change(before)
        return news if after == before else after

    app.documents.update(NEWS, FileNews, changed)
