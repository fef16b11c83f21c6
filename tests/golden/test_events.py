"""Events as subscribers receive them: on the log, by webhook, on an SNS topic, and as a Python
function is called."""

from __future__ import annotations

import json
from typing import Any

from tests.golden import internals
from tests.golden.history import WEB_SECRET, History
from tests.golden.masks import masked, steady
from tests.golden.recording import Recorder

import milepost as mp


def one_of_each(events: list[dict[str, Any]], kind_of: str = "type") -> list[dict[str, Any]]:
    """The first event of each kind, by route and subject: the order in which items happened to be
    worked on does not matter."""
    ordered = sorted(
        events,
        key=lambda event: (
            str(event.get("source")),
            str(event.get("subject", event)),
            int(event.get("sequence", 0)),
        ),
    )
    kinds: dict[str, dict[str, Any]] = {}
    for event in ordered:
        kinds.setdefault(str(event.get(kind_of)), event)
    return [kinds[kind] for kind in sorted(kinds)]


def test_every_kind_of_event_is_made_as_recorded(golden: Recorder) -> None:
    """From a line with every field, for every reason."""
    made = internals.event_of_every_kind()
    assert {kind for kind, _ in made} == {reason.value for reason in mp.Reason}
    golden.json("events/kinds.json", dict(made))


def test_alerts_are_made_and_stored_as_recorded(golden: Recorder) -> None:
    golden.json("events/alerts.json", internals.alerts_of_every_kind())


def test_a_mail_is_made_as_recorded(golden: Recorder) -> None:
    golden.text("events/mail.txt", internals.mail_of_an_event())


def test_lines_of_the_log_are_as_recorded(history: History, golden: Recorder) -> None:
    """The names in an event stand in the order in which they are written."""
    lines = history.log.getvalue().splitlines()
    chosen = one_of_each([json.loads(line) | {"line": line} for line in lines])
    golden.text("events/log.jsonl", steady("\n".join(event["line"] for event in chosen)))


def test_webhook_calls_are_as_recorded(history: History, golden: Recorder) -> None:
    """Path, headers and body of one call for each kind of event."""
    calls = [{**json.loads(call["body"]), "call": call} for call in history.web.requests]
    chosen = [event["call"] for event in one_of_each(calls)]
    for call in chosen:
        call["headers"] = {name: _header(name, value) for name, value in call["headers"].items()}
    golden.json(
        "events/webhook.json", [{**call, "body": steady(call["body"])} for call in masked(chosen)]
    )


def _header(name: str, value: str) -> str:
    if name == "webhook-signature":
        return f"{value.partition(',')[0]},HMAC"
    return "LENGTH" if name == "Content-Length" else value


def test_a_webhooks_signature_is_made_as_recorded(golden: Recorder) -> None:
    golden.text(
        "events/signature.txt",
        internals.webhook_signature(
            WEB_SECRET, "parcels/done/2/advanced", 2_015_619_200, b'{"a":1}'
        ),
    )


def test_messages_of_the_topic_are_as_recorded(history: History, golden: Recorder) -> None:
    entries = [
        {
            **json.loads(entry["Message"]),
            "entry": {name: value for name, value in entry.items() if name != "Id"},
        }
        for request in history.topic.published
        for entry in request["PublishBatchRequestEntries"]
    ]
    assert {tuple(sorted(request)) for request in history.topic.published} == {
        ("PublishBatchRequestEntries", "TopicArn")
    }
    golden.json("events/topic.json", masked([event["entry"] for event in one_of_each(entries)]))


def test_calls_of_a_function_are_as_recorded(history: History, golden: Recorder) -> None:
    golden.json("events/function.json", masked(one_of_each(history.heard)))
