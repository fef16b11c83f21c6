"""E-mail as a subscriber: each event of the chosen kinds is one mail in plain words: subject, text,
and HTML for a phone's width."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from shlex import quote
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from milepost.core.errors import EventRefused, MilepostError, UsageError
from milepost.core.events import KINDS, Envelope, Event
from milepost.core.history import line_sentence
from milepost.core.status import Status
from milepost.subscribers.email.message import Mail, MailNotSent, MailRefused, plain_address
from milepost.subscribers.email.transport import MailTransport, mail_transport
from milepost.subscribers.route_formats import CURE

NEED_PEOPLE = ("exhausted", "rejected", "overdue")
"""Kinds of events that a person should know of: the default."""
LONGEST = 14.0
"""Seconds: less than the relay's lease has left at the beginning of a call."""
PREFIX = "email:"
FORM = "email:smtp://HOST?from=ADDRESS&to=ADDRESS"
LONGEST_SUBJECT = 120
LONGEST_KEY = 60
"""Characters of a key in the headline; the whole key stands below."""
LONGEST_CONTENT = 4_000
"""Characters of a route's own form, or of an offered payload, that a mail shows."""

_HEADLINES = {
    "exhausted": "failed, no attempts left",
    "rejected": "failed for good",
    "retry": "failed, will be tried again",
}

log = logging.getLogger(__name__)


class MailWords(Struct, frozen=True):
    """The parts of a mail: a headline, sentences, facts by name, and the command and the link that
    show more."""

    headline: str
    sentences: list[str]
    facts: list[tuple[str, str]]
    command: str = ""
    content: str = ""
    link: str = ""

    @property
    def subject(self) -> str:
        """The headline on one line."""
        line = " ".join("".join(c if c.isprintable() else " " for c in self.headline).split())
        return line if len(line) <= LONGEST_SUBJECT else f"{line[: LONGEST_SUBJECT - 1]}…"

    @property
    def text(self) -> str:
        """The mail for programs that show text."""
        width = max((len(name) for name, _ in self.facts), default=0)
        parts = [
            self.headline,
            *self.sentences,
            "\n".join(f"{name:<{width}}  {value}" for name, value in self.facts),
        ]
        if self.content:
            parts.append(self.content)
        if self.command:
            parts.append(
                "\n  ".join(
                    [
                        "More, and what can be done about it:",
                        *filter(None, [self.link, self.command]),
                    ]
                )
            )
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def html(self) -> str:
        """The mail for programs that show HTML: no pictures, nothing from elsewhere, one column."""
        rows = "".join(
            f'<tr><td style="padding:2px 12px 2px 0;color:#555;vertical-align:top;white-space:nowrap">{escape(name)}</td>'
            f'<td style="padding:2px 0;word-break:break-word">{escape(value)}</td></tr>'
            for name, value in self.facts
        )
        sentences = "".join(
            f'<p style="margin:0 0 12px">{escape(sentence)}</p>' for sentence in self.sentences
        )
        block = '<pre style="background:#f4f4f4;padding:8px;white-space:pre-wrap;word-break:break-word;font-size:13px">{}</pre>'
        content = block.format(escape(self.content)) if self.content else ""
        link = f'<p><a href="{escape(self.link)}">{escape(self.link)}</a></p>' if self.link else ""
        command = (
            f"<p>More, and what can be done about it:</p>{link}{block.format(escape(self.command))}"
            if self.command
            else ""
        )
        return (
            '<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"></head>'
            '<body style="margin:0;padding:16px;font:15px/1.4 system-ui,sans-serif;color:#111;background:#fff">'
            f'<div style="max-width:600px;overflow-wrap:anywhere"><h1 style="font-size:18px;margin:0 0 12px">{escape(self.headline)}</h1>'
            f'{sentences}<table style="border-collapse:collapse;margin:0 0 12px">{rows}</table>{content}{command}</div></body></html>\n'
        )


class EmailSubscriber:
    """Sends each event of the given `kinds` (by default those that need a person: exhausted,
    rejected, overdue; "all" for every one) as a mail from `sender` to all of `to`; events of other
    kinds count as delivered. Alerts are always sent.

    A refusal of 5xx parks the event; everything else means "not now". Where a server refuses some
    recipients for now, only these get the repeat, as long as the process runs. The Message-ID
    follows from the event's id, so that a repeat can be recognised. The cursor's name is made of
    the recipients unless `name` is given.
    """

    batch = 1

    def __init__(
        self,
        transport: MailTransport,
        *,
        sender: str,
        to: Sequence[str],
        kinds: Iterable[str] = NEED_PEOPLE,
        name: str | None = None,
    ) -> None:
        if isinstance(to, str) or not to:
            raise UsageError("EmailSubscriber(to=…): give a list of mail addresses")
        wanted = set(kinds)
        unknown = sorted(wanted - KINDS - {"all"})
        if unknown:
            raise UsageError(
                f"EmailSubscriber(kinds=…): there is no event {unknown[0]!r}; events are {', '.join(sorted(KINDS))}, and all"
            )
        plain = sorted(plain_address(address) for address in to)
        self._sender, self._to = sender, list(to)
        plain_address(sender)
        self._kinds = KINDS if "all" in wanted else frozenset(wanted)
        self._transport = transport
        self._accepted: dict[str, set[str]] = {}
        """By event id: recipients that need no repeat, while others of the same mail were refused
        for now."""
        self.name = (
            name
            or f"email-{sha256(' '.join([plain_address(sender), *plain]).encode()).hexdigest()[:8]}"
        )

    def __repr__(self) -> str:
        return f"<EmailSubscriber {self.name}>"

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            if not isinstance(envelope.event, Event) or envelope.event.kind in self._kinds:
                self._send(envelope)

    def _send(self, envelope: Envelope) -> None:
        event_id = envelope.event.id
        has_it = self._accepted.get(event_id, set())
        missing = [address for address in self._to if plain_address(address) not in has_it]
        try:
            receipt = self._transport.send(self._mail(envelope, missing))
        except MailRefused as error:
            raise EventRefused(f"{error}; when the cause is corrected, {CURE}") from error
        except MailNotSent as error:
            raise MilepostError(str(error)) from error
        later = [one for one in receipt.refused if not one.permanent]
        for one in receipt.refused:
            if one.permanent:
                log.error(
                    "the mail about %s was refused for good for %s: %d %s",
                    event_id,
                    one.address,
                    one.code,
                    one.text,
                )
        if later:
            # Recipients that were refused for good are not tried again either.
            self._accepted[event_id] = has_it | {
                *receipt.accepted,
                *(one.address for one in receipt.refused if one.permanent),
            }
            raise MilepostError(
                f"the mail was refused for now for {later[0].address} ({later[0].code} {later[0].text})"
            )
        self._accepted.pop(event_id, None)

    def _mail(self, envelope: Envelope, to: Sequence[str]) -> Mail:
        words = words_of(envelope)
        return Mail(
            id=envelope.event.id,
            sender=self._sender,
            to=to,
            subject=words.subject,
            text=words.text,
            html=words.html,
            date=datetime.fromtimestamp(envelope.event.at / 1000, UTC),
            follows=envelope.get("data", {}).get("follows")
            if not isinstance(envelope.event, Event)
            else None,
        )


def email_subscriber(address: str) -> EmailSubscriber:
    """The subscriber of an address such as
    `email:smtps://USER@HOST?from=a@example.org&to=b@example.org`. `to` may stand several times;
    `kinds` has the kinds of events with commas between them, `password_env` names the environment
    variable with the password, `name` names the cursor. All other options are the transport's (see
    `mail_transport`)."""
    parts = urlsplit(address.removeprefix(PREFIX))
    given: dict[str, list[str]] = {}
    for option, value in parse_qsl(parts.query, keep_blank_values=True):
        given.setdefault(option, []).append(value)
    senders, to = given.pop("from", []), given.pop("to", [])
    own = {
        option: given.pop(option)[-1]
        for option in ("kinds", "password_env", "name")
        if option in given
    }
    if len(senders) != 1 or not to:
        raise UsageError(f"it needs from=ADDRESS and to=ADDRESS; write {FORM}")
    rest = urlencode([(option, value) for option, values in given.items() for value in values])
    transport = mail_transport(
        urlunsplit(parts._replace(query=rest)),
        password_env=own.get("password_env"),
        timeout=LONGEST,
    )
    kinds = own["kinds"].split(",") if "kinds" in own else NEED_PEOPLE
    return EmailSubscriber(transport, sender=senders[0], to=to, kinds=kinds, name=own.get("name"))


def words_of(envelope: Envelope) -> MailWords:
    """The words for an event of an item, or for an alert."""
    event = envelope.event
    when = f"{datetime.fromtimestamp(event.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not isinstance(event, Event):
        data = envelope["data"]
        facts = [(str(name), str(value)) for name, value in data.get("facts", {}).items()]
        named = [*facts, ("When", when), ("Id", event.id)]
        return MailWords(
            data["title"], [data["text"]], named, data.get("command", ""), link=data.get("link", "")
        )
    happened = _HEADLINES.get(event.kind, event.kind)
    key = event.key if len(event.key) <= LONGEST_KEY else f"{event.key[: LONGEST_KEY - 1]}…"
    sentence = line_sentence(event.line)
    if event.kind == "offered":
        sentence = f"offered to '{event.stage}'; the work id is {event.line.offered}"
    status = Status(event.status)
    facts = [
        ("Item", f"{event.route} / {event.key}"),
        ("Stage", event.stage),
        ("Status", f"{status.value}, {status.meaning}"),
        ("When", when),
        ("Correlation", event.correlation_id),
        ("Id", event.id),
    ]
    content = ""
    if envelope.formed or event.kind == "offered":
        shown = dict(envelope) if envelope.formed else event.payload
        content = msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
        if len(content) > LONGEST_CONTENT:
            content = f"{content[:LONGEST_CONTENT]}\n… cut: {len(content):,} characters in all"
    command = f"milepost show {event.route} {quote(event.key)}"
    return MailWords(
        f"{event.route}: {happened}: {key}",
        [f"{sentence[0].upper()}{sentence[1:]}."],
        facts,
        command,
        content,
    )
