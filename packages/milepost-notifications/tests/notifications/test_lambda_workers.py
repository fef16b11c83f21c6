"""Messages that are delivered by AWS Lambda: the functions run here, on the model of AWS, one
container each for all calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.aws.infra.access_check import Watch, allowed_of, denied
from tests.aws.infra.code_folder import synthesise
from tests.aws.lambdas.deployment import PARCELS, Deployment, named
from tests.aws.lambdas.event_source_mapping import Context
from tests.aws.lambdas.test_accept import request
from tests.notifications.partners import ROUTE, Partner, answers, key_of, message
from tests.standins import REGION

from milepost.engine.auth import make_key
from milepost.engine.intake import submit
from milepost.ports.documents import HOLD
from milepost.route_files import load_application
from milepost_aws.lambdas import accept, relay, services, start
from milepost_notifications.destinations import removed_reason, url_pause
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.figures import Figures
from milepost_notifications.operate.messages import read_message


@pytest.fixture
def partner() -> Any:
    with Partner(answers(200)) as opened:
        yield opened


@pytest.fixture
def stack(
    endpoint: str, prefix: str, tmp_path: Path, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The functions of a stack whose only settings are variables of the environment."""
    monkeypatch.setenv("MILEPOST_APPLICATIONS", ROUTE)
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_ALLOW_CIDRS", '["127.0.0.0/8"]')
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_RETRY", '{"base": "0.05s"}')
    monkeypatch.setenv(
        "MILEPOST_NOTIFICATIONS_DESTINATIONS",
        json.dumps({"crm": {"url": partner.url, "concurrency": 1}}),
    )
    opened = Deployment(endpoint, prefix, tmp_path, PARCELS, monkeypatch)
    assert opened.plan.name == ROUTE
    yield opened
    opened.close()


def hand_over(stack: Deployment, *sent: dict[str, Any]) -> None:
    contents = [read_message(json.dumps(one).encode(), 262_144).content for one in sent]
    assert {receipt.answer for receipt in submit(stack.opened.ctx, ROUTE, contents)} == {"new"}


def ended(stack: Deployment, sent: list[dict[str, Any]], status: str) -> bool:
    return {stack.row(key_of(one)).status.value for one in sent} == {status}


def test_calls_of_a_container_share_one_event_loop_and_its_connections(
    stack: Deployment, partner: Partner
) -> None:
    for round_number in range(2):
        sent = [message(partner.url, messageId=f"{round_number}-{number}") for number in range(4)]
        hand_over(stack, *sent)
        stack.run(until=lambda sent=sent: ended(stack, sent, "COMPLETED"))  # type: ignore[misc]
    assert (len(partner.requests), partner.connections) == (8, 1)


def test_a_410_pauses_the_url_for_all_functions(stack: Deployment, partner: Partner) -> None:
    partner.script = answers(410)
    gone, waiting = message(partner.url, messageId="a"), message(partner.url, messageId="b")
    hand_over(stack, gone)
    stack.run(until=lambda: ended(stack, [gone], "REJECTED"))
    assert list(stack.opened.ledger.read(HOLD)) == [
        f"{ROUTE}/deliver/{url_pause('crm', 'shop', partner.url)}"
    ]
    stack.clock.advance("1m")  # pauses are read again every few seconds
    hand_over(stack, waiting)
    stack.run(until=lambda: ended(stack, [waiting], "WAITING"))
    assert (stack.row(key_of(waiting)).attempts, len(partner.requests)) == (0, 1)


def test_failed_tries_are_repeated_and_end_as_dead_letters(
    stack: Deployment, partner: Partner
) -> None:
    partner.script = answers(503)
    sent = message(partner.url)
    hand_over(stack, sent)
    stack.run(until=lambda: ended(stack, [sent], "MAX_RETRIES_EXCEEDED"))
    assert [one.headers["x-delivery-attempt"] for one in partner.requests] == ["1", "2", "3"]


def ask(stack: Deployment, sent: dict[str, Any], key: str) -> int:
    """POST /message, as API Gateway hands it over."""
    event = request(body=sent, key=key)
    return int(accept.handler(event, named(Context(), f"{stack.prefix}-accept"))["statusCode"])


def counted(stack: Deployment) -> Figures:
    """The figures after a call of the schedule."""
    called = services.handler(
        {"service": "notifications-figures"}, named(Context(), f"{stack.prefix}-services")
    )
    assert called == {"ran": ["notifications-figures"]}
    [configured] = stack.opened.applications
    return figures_of(configured.on(stack.opened.ctx))


def test_s34_functions_count_the_figures_of_senders_and_destinations(
    stack: Deployment, partner: Partner
) -> None:
    partner.script = answers(200, 404, 503, 200)
    key = make_key(
        stack.opened.ctx,
        "shop",
        ["submit"],
        by="ops",
        reason="a test",
        attributes={"sender": "shop"},
    )[1]
    sent = [message(partner.url, messageId=f"m-{number}") for number in range(3)]
    for number, one in enumerate(sent):
        assert ask(stack, one, key) == 200
        stack.run(until=lambda number=number: stack.row(key_of(sent[number])).terminal)  # type: ignore[misc]
    for wrong in ({"timestamp": "yesterday"}, {"targetUrl": "ftp://x/"}):
        assert ask(stack, {**sent[0], **wrong}, key) == 400
    stack.run()  # the relay copies the last lines
    [configured] = stack.opened.applications
    tally = configured.on(stack.opened.ctx).tallies.get("malformed")
    assert tally is not None
    assert tally.value == {"shop": 1}, (
        "added with the answer; the second one waits for a later call"
    )
    figures = counted(stack)
    shop, crm = figures.senders["shop"], figures.destinations["crm"]
    assert (shop.accepted, shop.delivered, shop.failed, shop.malformed, sum(shop.starts)) == (
        3,
        2,
        1,
        2,
        3,
    )
    assert (crm.accepted, crm.delivered, crm.failed, sum(one.succeeded for one in crm.hours), sum(one.failed for one in crm.hours)) == (
        3, 2, 1, 2, 2,
    )  # fmt: skip
    late = message(partner.url, messageId="late")
    assert ask(stack, late, key) == 200
    stack.stream.poll()
    figures = counted(stack)
    assert figures.senders["shop"].accepted == 4
    start.forget()  # another container counts on
    stack.open()
    stack.clock.advance("1m")
    stack.run(until=lambda: stack.row(key_of(late)).terminal)
    stack.run()
    figures = counted(stack)
    assert (figures.senders["shop"].delivered, sum(figures.senders["shop"].starts)) == (3, 4), (
        "the time of the one that waited too"
    )
    assert counted(stack) == figures, "nothing is counted twice"


def test_a_service_for_its_own_process_has_no_schedule() -> None:
    configured = load_application(ROUTE).configured({}, {})
    assert [part.name for part in configured.application.services if part.per_process] == [
        "destinations"
    ]


@pytest.mark.slow
@pytest.mark.wire
def test_worker_and_services_do_only_what_their_roles_allow(
    endpoint: str, tmp_path: Path, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to a destination that was added at run time: the worker reads it from the ledger,
    and a 410 pauses it."""
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_ALLOW_CIDRS", '["127.0.0.0/8"]')
    template = synthesise(tmp_path / "stack", ROUTE, None, "--application")
    monkeypatch.setenv("MILEPOST_APPLICATIONS", ROUTE)
    one = Deployment(endpoint, "test", tmp_path, PARCELS, monkeypatch)
    [configured] = one.opened.applications
    configured.on(one.opened.ctx).documents.put(
        "destination/crm", {"url": partner.url, "headers": {"X-Team": "sales"}}
    )
    # From now on as deployed: everything is there, and nothing is made.
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test")
    monkeypatch.delenv("MILEPOST_ROUTES")
    start.forget()
    one.open()
    watch = Watch(monkeypatch, one.clock)
    queue, name = one.queues["deliver"], f"test-{ROUTE}-deliver"
    queue._caller.handler = watch.over(name, queue._caller.handler, ROUTE)
    one.stream._caller.handler = watch.over("test-relay", relay.handler)
    count = watch.over("test-services", services.handler)
    partner.script = answers(200, 410)
    good, gone = message(partner.url, messageId="good"), message(partner.url, messageId="gone")
    hand_over(one, good)
    one.run(until=lambda: ended(one, [good], "COMPLETED"))
    hand_over(one, gone)
    one.run(until=lambda: ended(one, [gone], "REJECTED"))
    app = configured.on(one.opened.ctx)
    assert app.resume(
        ROUTE, "deliver", url_pause("crm", "shop", partner.url), by="ops", reason="a test"
    ), "the 410 has paused it"
    app.pause(ROUTE, "deliver", "crm", by="notifications", reason=removed_reason("crm"))
    count({}, named(Context(), "test-services"))
    assert f"{ROUTE}/deliver/crm" not in one.opened.ledger.read(HOLD), "the services may resume it"
    assert partner.requests[0].headers["x-team"] == "sales", (
        "the worker knows the destination of the ledger"
    )
    for container in watch.containers.values():
        container.ledger.close()
    one.close()
    for function, used in watch.uses.items():
        refused = denied(used, allowed_of(template, template.statements(function).values()))
        assert not refused, f"{function} may not: {refused}"
    written = {
        (function, *use.leading)
        for function, uses in watch.uses.items()
        for use in uses
        if use.action == "dynamodb:UpdateItem"
    }
    assert (name, "hold#notifications") in written
    assert ("test-services", "application") in written
