"""Messages that are delivered by AWS Lambda: the functions run here, on the model of AWS, one container each for all calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.applications.notifications.partners import ROUTE, Partner, answers, key_of, message
from tests.lambdas.deployment import PARCELS, Deployment

from milepost.applications.notifications.message import read_message
from milepost.engine.intake import submit
from milepost.ports.documents import HOLD


@pytest.fixture
def partner() -> Any:
    with Partner(answers(200)) as opened:
        yield opened


@pytest.fixture
def stack(endpoint: str, prefix: str, tmp_path: Path, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The functions of a stack whose only settings are variables of the environment."""
    monkeypatch.setenv("MILEPOST_APPLICATIONS", ROUTE)
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_ALLOW_CIDRS", '["127.0.0.0/8"]')
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_RETRY", '{"base": "0.05s"}')
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_DESTINATIONS", json.dumps({"crm": {"url": partner.url, "concurrency": 1}}))
    opened = Deployment(endpoint, prefix, tmp_path, PARCELS, monkeypatch)
    assert opened.plan.name == ROUTE
    yield opened
    opened.close()


def hand_over(stack: Deployment, *sent: dict[str, Any]) -> None:
    contents = [read_message(json.dumps(one).encode(), 262_144).content for one in sent]
    assert {receipt.answer for receipt in submit(stack.opened.ctx, ROUTE, contents)} == {"new"}


def ended(stack: Deployment, sent: list[dict[str, Any]], status: str) -> bool:
    return {stack.row(key_of(one)).status.value for one in sent} == {status}


def test_calls_of_a_container_share_one_event_loop_and_its_connections(stack: Deployment, partner: Partner) -> None:
    for round_number in range(2):
        sent = [message(partner.url, messageId=f"{round_number}-{number}") for number in range(4)]
        hand_over(stack, *sent)
        stack.run(until=lambda sent=sent: ended(stack, sent, "COMPLETED"))  # type: ignore[misc]
    assert (len(partner.requests), partner.connections) == (8, 1)


def test_a_410_pauses_the_destination_for_all_functions(stack: Deployment, partner: Partner) -> None:
    partner.script = answers(410)
    gone, waiting = message(partner.url, messageId="a"), message(partner.url, messageId="b")
    hand_over(stack, gone)
    stack.run(until=lambda: ended(stack, [gone], "REJECTED"))
    assert list(stack.opened.ledger.read(HOLD)) == [f"{ROUTE}/deliver/crm"]
    stack.clock.advance("1m")  # pauses are read again every few seconds
    hand_over(stack, waiting)
    stack.run()
    assert (stack.row(key_of(waiting)).status.value, stack.row(key_of(waiting)).attempts, len(partner.requests)) == ("QUEUED", 0, 1)


def test_failed_tries_are_repeated_and_end_as_dead_letters(stack: Deployment, partner: Partner) -> None:
    partner.script = answers(503)
    sent = message(partner.url)
    hand_over(stack, sent)
    stack.run(until=lambda: ended(stack, [sent], "MAX_RETRIES_EXCEEDED"))
    assert [one.headers["x-delivery-attempt"] for one in partner.requests] == ["1", "2", "3"]
