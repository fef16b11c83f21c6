"""Destinations that were added over HTTP hold for every command that sends a message, as they do
for POST /message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shell
from tests.notifications.partners import ROUTE, Partner, Service, answers, message, service

ADDED = "/api/v1/notifications/destinations/hook"


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner(answers(200)) as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return _configured(Shell(tmp_path))


def _configured(shell: Shell, more: str = "") -> Shell:
    shell.write(
        "milepost.toml",
        f'ledger = "sqlite:///n.db"\napplications = ["notifications"]\n[notifications]\nallow_cidrs = ["127.0.0.0/8"]\n{more}',
    )
    return shell


@contextmanager
def served(shell: Shell, **settings: Any) -> Iterator[Service]:
    """The service on the ledger of the commands."""
    with service(f"sqlite:///{shell.folder}/n.db", **settings) as at:
        yield at


def lane(shell: Shell, wanted: str) -> str:
    [found] = [
        one
        for one in shell.ok("notifications", "list", "--json").json["messages"]
        if one["messageId"] == wanted
    ]
    return str(found["destination"])


def test_a_message_goes_to_the_added_destination_by_whichever_way_it_comes(
    shell: Shell, partner: Partner
) -> None:
    with served(shell) as at:
        assert at.call("PUT", ADDED, {"url": partner.url}).status == 200
        assert at.call("POST", f"{ADDED}/pause", {"reason": "a test"}).status == 200
        at.post(message(f"{partner.url}1", messageId="posted"))
    sent = shell.ok("notifications", "send", f"{partner.url}1", "--id", "sent")
    assert sent.out.startswith("sent is accepted.\nhook holds its messages back: a test (by ")
    shell.ok(
        "submit",
        ROUTE,
        "-",
        "--format",
        "jsonl",
        stdin=json.dumps(message(f"{partner.url}1", messageId="listed")),
    )
    shell.ok(
        "submit", ROUTE, "--item", json.dumps(message(f"{partner.url}1", messageId="submitted"))
    )
    assert {lane(shell, one) for one in ("posted", "sent", "listed", "submitted")} == {"hook"}
    shell.ok("work", "--until-idle", "0")
    assert partner.requests == []


def test_a_message_that_is_sent_again_goes_to_the_added_destination(
    shell: Shell, partner: Partner
) -> None:
    for one in ("again", "edited", "retried"):
        shell.ok("notifications", "send", f"{partner.url}1", "--id", one)
        shell.signed("cancel", ROUTE, "--status", "live")
    with served(shell) as at:
        assert at.call("PUT", ADDED, {"url": partner.url}).status == 200
    assert shell.signed("notifications", "replay", "again").code == 0
    assert shell.signed("notifications", "replay", "edited", "--body", "new").code == 0
    assert shell.signed("retry", ROUTE, "--status", "CANCELLED").code == 0
    assert {lane(shell, one) for one in ("again", "edited", "retried")} == {"hook"}


def test_a_command_refuses_unregistered_targets_as_the_service_does(
    shell: Shell, partner: Partner
) -> None:
    _configured(shell, 'unregistered = "refuse"\n')
    refused = shell("notifications", "send", partner.url)
    assert (refused.code, "belongs to no destination" in refused.err) == (2, True)
    with served(shell, unregistered="refuse") as at:
        assert at.call("PUT", ADDED, {"url": partner.url}).status == 200
    assert shell.ok("notifications", "send", partner.url, "--id", "m-1").out == "m-1 is accepted.\n"
    assert lane(shell, "m-1") == "hook"
