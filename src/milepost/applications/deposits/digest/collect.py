"""Collection of digests: reads the history since the last one, and submits a mail item for each owner."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.digest.entries import Digest, digests_of, entry_of, latest_lines
from milepost.applications.deposits.words import counts_by_word

CURSOR = "digest"
"""Name of the document that says up to which history line people have been informed."""
PORTION = 1_000
BY = "deposits digest"


def digests_route_name(settings_route: str) -> str:
    """The route of the mails."""
    return f"{settings_route}-digests"


def collect_digests(app: DepositsApp) -> list[str]:
    """Submit a mail for what has become of DOIs since the last digest; the keys of the mail items. None, if there is nothing to say or no
    address.

    The first mail of a collection has a key that follows from the place where the collection began, and holds the others. Where another
    process has recorded it first, or this one died before it moved the cursor, the recorded one counts: no DOI is mailed twice, and none
    is left out."""
    settings = app.settings
    if settings.mail is None:
        return []
    document = app.documents.get(CURSOR)
    after = 0 if document is None else int(document.value["after"])
    route = digests_route_name(settings.route)
    begun = app.show(route, f"{after}")
    keys: list[str] = []
    upto = after
    if begun is None:
        upto, found = _collected(app, after)
        if found:
            _submit(app, _first_mail(after, upto, found))
            begun = app.show(route, f"{after}")
    if begun is not None:
        upto = int(begun["input"]["upto"])
        others = [{"id": f"{after}-{place}", "digest": one} for place, one in enumerate(begun["input"].get("others", ()), 1)]
        if others:
            _submit(app, *others)
        keys = [f"{after}", *(other["id"] for other in others)]
    if upto > after:
        cursor = {"after": upto, "at": app.now().isoformat()}
        # False: another process has moved it, by the same recorded mails.
        app.documents.put(CURSOR, cursor, expect=0 if document is None else document.version)
    return keys


def collect_when_due(app: DepositsApp) -> list[str]:
    """`collect_digests`, if the last collection is longer ago than [deposits.mail] every."""
    document = app.documents.get(CURSOR)
    if app.settings.mail is not None and document is not None:
        every = timedelta(milliseconds=mp.span_ms(app.settings.mail.every, "[deposits.mail] every"))
        if app.now() - datetime.fromisoformat(document.value["at"]) < every:
            return []
    return collect_digests(app)


def _collected(app: DepositsApp, after: int) -> tuple[int, list[Digest]]:
    """The digests since this history line, and the line up to which they go."""
    settings = app.settings
    assert settings.mail is not None
    upto = after

    def lines() -> Iterator[dict[str, Any]]:
        nonlocal upto
        while portion := app.feed(upto, PORTION):
            upto = portion[-1]["seq"]
            yield from portion

    last = latest_lines(lines(), settings.route)
    rounds = settings.mode == "rounds"
    entries = [entry for key, line in last.items() if (entry := entry_of(line, app.show(settings.route, key), rounds=rounds)) is not None]
    counts = counts_by_word(app.status()["routes"].get(settings.route, {}).get("statuses", {}))
    return upto, digests_of(entries, f"{settings.route}-{after}", settings.mail.to, settings.mail.owners, counts)


def _first_mail(after: int, upto: int, digests: list[Digest]) -> dict[str, Any]:
    """The first mail item of a collection, with the digests of the others: one write, whole or not at all, decides what is mailed."""
    first, *others = map(msgspec.to_builtins, digests)
    return {"id": f"{after}", "upto": upto, "digest": first, "others": others}


def _submit(app: DepositsApp, *mails: dict[str, Any]) -> None:
    """Record mails. Raises if one is not recorded: the cursor must stay, so that the next collection tries again."""
    for receipt in app.submit(digests_route_name(app.settings.route), *mails, by=BY):
        if receipt.answer == "malformed":
            raise mp.MilepostError(f"the digest {receipt.key!r} cannot be recorded: {receipt.error}")


def undelivered(app: DepositsApp) -> list[dict[str, Any]]:
    """Mails that could not be sent so far, or were refused for good."""
    if app.settings.mail is None:
        return []
    return app.items(digests_route_name(app.settings.route), statuses=["failed", mp.Status.RETRY_SCHEDULED], limit=100)
