"""Content of mails about events and alerts: subject, text, and HTML for a phone's width."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from shlex import quote

import msgspec
from msgspec import Struct

from milepost.core.events import Envelope, Event
from milepost.core.sentences import line_sentence
from milepost.core.status import STATUS_MEANING, Status

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


class MailWords(Struct, frozen=True):
    """The parts of a mail: a headline, sentences, facts by name, and the command and the link that show more."""

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
        parts = [self.headline, *self.sentences, "\n".join(f"{name:<{width}}  {value}" for name, value in self.facts)]
        if self.content:
            parts.append(self.content)
        if self.command:
            parts.append("\n  ".join(["More, and what can be done about it:", *filter(None, [self.link, self.command])]))
        return "\n\n".join(part for part in parts if part) + "\n"

    @property
    def html(self) -> str:
        """The mail for programs that show HTML: no pictures, nothing from elsewhere, one column."""
        rows = "".join(
            f'<tr><td style="padding:2px 12px 2px 0;color:#555;vertical-align:top;white-space:nowrap">{escape(name)}</td>'
            f'<td style="padding:2px 0;word-break:break-word">{escape(value)}</td></tr>'
            for name, value in self.facts
        )
        sentences = "".join(f'<p style="margin:0 0 12px">{escape(sentence)}</p>' for sentence in self.sentences)
        block = '<pre style="background:#f4f4f4;padding:8px;white-space:pre-wrap;word-break:break-word;font-size:13px">{}</pre>'
        content = block.format(escape(self.content)) if self.content else ""
        link = f'<p><a href="{escape(self.link)}">{escape(self.link)}</a></p>' if self.link else ""
        command = f"<p>More, and what can be done about it:</p>{link}{block.format(escape(self.command))}" if self.command else ""
        return (
            '<!doctype html><html><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"></head>'
            '<body style="margin:0;padding:16px;font:15px/1.4 system-ui,sans-serif;color:#111;background:#fff">'
            f'<div style="max-width:600px;overflow-wrap:anywhere"><h1 style="font-size:18px;margin:0 0 12px">{escape(self.headline)}</h1>'
            f'{sentences}<table style="border-collapse:collapse;margin:0 0 12px">{rows}</table>{content}{command}</div></body></html>\n'
        )


def words_of(envelope: Envelope) -> MailWords:
    """The words for an event of an item, or for an alert."""
    event = envelope.event
    when = f"{datetime.fromtimestamp(event.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if not isinstance(event, Event):
        data = envelope["data"]
        facts = [(str(name), str(value)) for name, value in data.get("facts", {}).items()]
        named = [*facts, ("When", when), ("Id", event.id)]
        return MailWords(data["title"], [data["text"]], named, data.get("command", ""), link=data.get("link", ""))
    happened = _HEADLINES.get(event.kind, event.kind)
    key = event.key if len(event.key) <= LONGEST_KEY else f"{event.key[: LONGEST_KEY - 1]}…"
    sentence = line_sentence(event.line)
    if event.kind == "offered":
        sentence = f"offered to '{event.stage}'; the work id is {event.line.offered}"
    status = Status(event.status)
    facts = [
        ("Item", f"{event.route} / {event.key}"),
        ("Stage", event.stage),
        ("Status", f"{status.value}, {STATUS_MEANING[status]}"),
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
    return MailWords(f"{event.route}: {happened}: {key}", [f"{sentence[0].upper()}{sentence[1:]}."], facts, command, content)
