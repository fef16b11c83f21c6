"""Collection of digests: reads the history since the last one, and submits an item for each owner
on the route of mails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost.subscribers.email import MailNotSent, MailRefused, MailTransport, mail_transport
from milepost_deposits.common_cause import common_cause
from milepost_deposits.controls import PartnerWait, partner_waits
from milepost_deposits.digest.file_news import mark_mailed, pending_news
from milepost_deposits.digest.mail import (
    Digest,
    DigestEntry,
    digests_of,
    entry_of,
    first_note,
    latest_lines,
    mail_of,
    recipients_of,
    twins_entry,
)
from milepost_deposits.feed_places import place_at
from milepost_deposits.runs import interruption_text, mark_reported, unreported
from milepost_deposits.settings import DepositsApp, DepositsSettings, MailSettings
from milepost_deposits.status_names import result_in, word_counts
from milepost_deposits.twins import twins_note, twins_of

CURSOR = "digest"
"""Name of the document that says up to which history line people have been informed."""
PORTION = 1_000
MOST_UNMAILED = 1_000
COLLECTIONS = 10
"""Most collections of one call: the later ones follow those that other processes had recorded and
not finished."""
BY = "deposits digest"


def collect_digests(app: DepositsApp) -> list[str]:
    """Submit a mail for what has become of DOIs since the last digest; the keys of the mail items.
    None, if there is nothing to say or no address.

    The first mail of a collection has a key that follows from the place where the collection began,
    and holds the others. Where another process has recorded it first, or one died before it moved
    the cursor, the recorded one counts, and what came later is collected after it: no DOI is mailed
    twice, and none is left out."""
    if app.settings.mail is None:
        return []
    keys: list[str] = []
    for _ in range(COLLECTIONS):
        found, recorded_before = _collect(app, place_cursor(app))
        keys += found
        if not recorded_before:
            break
    return keys + _mail_files(app)


def _mail_files(app: DepositsApp) -> list[str]:
    """Submit a mail for news about files that no other digest has taken: there is no history line
    about them. Its key."""
    files = pending_news(app)
    if not files:
        return []
    assert app.settings.mail is not None
    id = f"files-{app.time():.0f}"
    [digest] = digests_of(
        [], f"{app.settings.route}-{id}", app.settings.mail.to, {}, word_counts(app), files=files
    )
    _submit(app, {"id": id, "upto": 0, "digest": msgspec.to_builtins(digest)})
    mark_mailed(app, files)
    return [id]


class DigestCursor(msgspec.Struct, frozen=True):
    """The place in the history up to which people have been informed, when it was set, and the
    version of the document that says so."""

    after: int
    at: str
    since: str | None = None
    """Set for the first digest of a ledger with an older history: what happened before this time is
    not mailed."""
    version: int = 0
    waits: tuple[str, ...] = ()
    """Names of the waits for partners then: people have heard of them."""


def place_cursor(app: DepositsApp) -> DigestCursor:
    """The place up to which people have been informed. The first time it is set to where the first
    digest begins, [deposits.mail] first ago: a ledger may hold years of history."""
    assert app.settings.mail is not None
    document = app.documents.get(CURSOR)
    if document is None:
        since = app.now() - timedelta(
            milliseconds=mpa.span_ms(app.settings.mail.first, "[deposits.mail] first")
        )
        after = place_at(app, since)
        # False: another process has set it.
        begins = since.isoformat()
        app.documents.put(
            CURSOR, {"after": after, "at": begins, "since": begins if after else None}, expect=0
        )
        document = app.documents.get(CURSOR)
        assert document is not None
    return msgspec.convert({**document.value, "version": document.version}, DigestCursor)


def _collect(app: DepositsApp, cursor: DigestCursor) -> tuple[list[str], bool]:
    """One collection from the cursor: the keys of its mails, and whether they had been recorded
    before."""
    after = cursor.after
    route = app.settings.digests_route
    begun = app.show(route, f"{after}")
    recorded_before = begun is not None
    keys: list[str] = []
    upto = after
    waits = partner_waits(app)
    if begun is None:
        upto, interrupted, found = _collected(app, cursor, waits)
        if found:
            # The first mail holds the digests of the others: one write, whole or not at all,
            # decides what is mailed.
            first, *rest = map(msgspec.to_builtins, found)
            _submit(
                app,
                {
                    "id": f"{after}",
                    "upto": upto,
                    "digest": first,
                    "others": rest,
                    "runs": interrupted,
                },
            )
            begun = app.show(route, f"{after}")
    if begun is not None:
        upto = int(begun["input"]["upto"])
        others = [
            {"id": f"{after}-{place}", "digest": one}
            for place, one in enumerate(begun["input"].get("others", ()), 1)
        ]
        if others:
            _submit(app, *others)
        keys = [f"{after}", *(other["id"] for other in others)]
        mark_mailed(
            app,
            (
                one
                for digest in (begun["input"]["digest"], *begun["input"].get("others", ()))
                for one in digest.get("files", ())
            ),
        )
        mark_reported(app, begun["input"].get("runs", ()))
    if upto > after:
        # False: another process has moved it, by the same recorded mails.
        moved = {"after": upto, "at": app.now().isoformat(), "waits": [one.name for one in waits]}
        app.documents.put(CURSOR, moved, expect=cursor.version)
    return keys, recorded_before


def collect_when_due(app: DepositsApp) -> list[str]:
    """`collect_digests`, if the last collection is longer ago than [deposits.mail] every."""
    document = app.documents.get(CURSOR)
    if app.settings.mail is not None and document is not None:
        every = timedelta(
            milliseconds=mpa.span_ms(app.settings.mail.every, "[deposits.mail] every")
        )
        # A time in the future is that of a clock that was set back.
        if abs(app.now() - datetime.fromisoformat(document.value["at"])) < every:
            return []
    return collect_digests(app)


def _collected(
    app: DepositsApp, cursor: DigestCursor, waits: list[PartnerWait]
) -> tuple[int, list[str], list[Digest]]:
    """The line up to which the digests since the cursor go, the interrupted runs that they name,
    and the digests."""
    settings = app.settings
    assert settings.mail is not None
    upto = after = cursor.after
    since = None if cursor.since is None else datetime.fromisoformat(cursor.since)

    def lines() -> Iterator[dict[str, Any]]:
        nonlocal upto
        while portion := app.feed(upto, PORTION):
            upto = portion[-1].seq
            yield from (
                entry.public()
                for entry in portion
                if since is None or entry.line.at >= since.timestamp() * 1000
            )

    last = latest_lines(lines(), settings.route)
    entries = [entry for line in last.values() if (entry := _entry(app, line)) is not None]
    counts = word_counts(app)
    interrupted = unreported(app)
    # A mail about files alone has a key of its own: see _mail_files.
    files = pending_news(app) if upto > after else ()
    cause = common_cause(app, after)
    notes = [] if cause is None else [f"{cause.text}."]
    notes += [f"{one.text}." for one in waits]
    # A wait has a line in the history. Without a line there is no mail: its key follows from the
    # place in the history.
    news = upto > after and any(one.name not in cursor.waits for one in waits)
    if since is not None:
        notes.append(first_note(since))
    notes += [
        f"{interruption_text(run)} This digest names what it left unreported."
        for run in interrupted
    ]
    found = digests_of(
        entries,
        f"{settings.route}-{after}",
        settings.mail.to,
        settings.mail.owners,
        counts,
        notes,
        news=news,
        files=files,
    )
    return upto, [run.id for run in interrupted], found


def _entry(app: DepositsApp, line: dict[str, Any]) -> DigestEntry | None:
    view = app.show(app.settings.route, line["key"])
    if twins_note(line):
        return twins_entry(line, view, twins_of(app, line["key"]))
    return entry_of(line, view, rounds=app.settings.mode == "rounds")


def _submit(app: DepositsApp, *mails: dict[str, Any]) -> None:
    """Record mails. Raises if one is not recorded: the cursor must stay, so that the next
    collection tries again."""
    for receipt in app.submit(app.settings.digests_route, *mails, by=BY):
        if receipt.answer == "malformed":
            raise mp.MilepostError(
                f"the digest {receipt.key!r} cannot be recorded: {receipt.error}"
            )


def unmailed_keys(app: DepositsApp) -> set[str]:
    """The keys of mails that are recorded and not sent yet, whether or not they were tried."""
    if app.settings.mail is None:
        return set()
    return {
        row["key"]
        for row in app.items(app.settings.digests_route, statuses=["failed", "live"], limit=1_000)
    }


class UnmailedDigests(msgspec.Struct, frozen=True):
    """Mails that could not be sent. The next run sends those that `wait`; of those that were
    `refused` for good, or tried too often, none is tried until a person asks for it."""

    wait: int = 0
    wait_error: str = ""
    refused: int = 0
    refused_error: str = ""

    @property
    def count(self) -> int:
        return self.wait + self.refused


def unmailed(app: DepositsApp) -> UnmailedDigests:
    """The mails that could not be sent, with the error of one of each kind."""
    if app.settings.mail is None:
        return UnmailedDigests()
    route = app.settings.digests_route
    wait = app.items(route, statuses=[mp.Status.RETRY_SCHEDULED], limit=MOST_UNMAILED)
    refused = app.items(route, statuses=["failed"], limit=MOST_UNMAILED)
    return UnmailedDigests(len(wait), _first_error(wait), len(refused), _first_error(refused))


def refused_recipients(app: DepositsApp, key: str) -> list[str]:
    """The recipients of a mail that were refused although others have it, each with the reason."""
    view = app.show(app.settings.digests_route, key)
    return [str(reason) for reason in result_in(view, "mail").get("refused") or ()]


def send_again_command(settings: DepositsSettings) -> str:
    """The command that sends refused digests again."""
    return f"milepost retry {settings.digests_route} --status failed --by YOU --reason corrected"


def _first_error(rows: list[dict[str, Any]]) -> str:
    errors = [(row["error"] or {}).get("message", "no error is recorded") for row in rows[:1]]
    return errors[0] if errors else ""


# The route of mails -------------------------------------------------------------------------------
def digests_route(settings: DepositsSettings) -> mp.Route:
    """The route of mails. It opens the transport at the first mail."""
    route = mp.Route(settings.digests_route, key="id")

    @route.stage(
        "mail", retry=mp.Backoff(attempts=40, base="1m", factor=2, cap="6h"), concurrency=1
    )
    def send(item: mp.Item) -> mp.Outcome:
        mail = settings.mail
        if mail is None:
            return mp.NotYet(after="1h", note="[deposits.mail] is not set")
        digest = msgspec.convert(item.input["digest"], Digest)
        try:
            transport = mail_transport(
                mail.smtp or f"ses://{mail.ses}", password_env=mail.password_env
            )
            return _sent(digest, mail, transport)
        except MailRefused as error:
            return mp.Reject(str(error), category="MAIL_REFUSED")
        except MailNotSent as error:
            return mp.Retry(str(error), category="MAIL_NOT_SENT")

    return route


def _sent(digest: Digest, mail: MailSettings, transport: MailTransport) -> mp.Outcome:
    """Send a digest to the addresses that the settings have now; where those of an owner are
    refused, to everyone in `to`."""
    to = recipients_of(digest.owner, mail)
    refused: list[str] = []
    try:
        receipt = transport.send(mail_of(digest, to, mail.sender, mail.dashboard))
    except MailRefused as error:
        if to == mail.to:
            raise
        refused.append(f"the owners of {digest.owner}: {error}")
        note = f"This digest is for the owners of {digest.owner} ({', '.join(to)}), to whom it could not be mailed: {error}."
        passed_on = msgspec.structs.replace(digest, notes=(note, *digest.notes))
        receipt = transport.send(mail_of(passed_on, mail.to, mail.sender, mail.dashboard))
    refused += [f"{one.address}: {one.text}" for one in receipt.refused]
    return mp.Done({"accepted": list(receipt.accepted), "refused": refused})
