"""Secrets in the path and the query of target URLs reach the partner, and are shown by no door but
the record of their message."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from tests.cli.conftest import Shell
from tests.net.partner import Line
from tests.notifications.partners import LOOPBACK, ROUTE, Partner, Service, key_of, message, service
from tests.notifications.test_sender_isolation import STATUS
from tests.standins import REGION
from tests.subscribers.mail_server import MailServer

import milepost as mp
from milepost.application.installation import services
from milepost.core.errors import EventRefused
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.alerts.watch import AlertWatch
from milepost.engine.auth import make_key
from milepost.http.protocol.endpoint import Endpoint
from milepost.http.server.applications import application_endpoints
from milepost.http.server.assembly import HttpServer, all_endpoints, all_pages
from milepost.subscribers import CallSubscriber, EmailSubscriber, LogSubscriber, WebhookSubscriber
from milepost.subscribers.email import mail_transport
from milepost_aws.topic import Topic
from milepost_client import MessageClient, check_message
from milepost_notifications import application
from milepost_notifications.destinations import url_pause
from milepost_notifications.operate.collector import figures_of
from milepost_testing import VirtualClock

TEAM, TOKEN, QUERY = "T0A1B2C3D", "b7Kq2mX9pLw4Zr6T", "q8Vn3sD5%2FhJ1yGf0c"
SECRETS = (TEAM, TOKEN, QUERY, "q8Vn3sD5/hJ1yGf0c")
BY = {"by": "ops", "reason": "a test"}


def echoing(line: Line) -> None:
    """A path `/s404…` is answered with 404, and so on, and with the whole address in a header and
    in the body."""
    while (request := line.read()) is not None:
        named = STATUS.match(request.target.encode())
        body = json.dumps(
            {"message": f"no hook at {request.target}", "address": request.target}
        ).encode()
        if not line.answer(
            int(named[1]) if named else 200,
            body,
            f"X-Address: {request.target}\r\nContent-Type: application/json\r\n",
        ):
            return


@dataclass
class Sns:
    """A client of SNS that keeps what is published."""

    published: list[str] = field(default_factory=list)

    def publish_batch(self, **request: Any) -> dict[str, Any]:
        self.published.append(json.dumps(request))
        return {
            "Successful": [{"Id": entry["Id"]} for entry in request["PublishBatchRequestEntries"]],
            "Failed": [],
        }


@dataclass
class Scene:
    """A service that has seen messages through to every end, and everything that it has sent."""

    at: Service
    shell: Shell
    sent: dict[str, dict[str, Any]]
    told: dict[str, str]
    """By channel: all that came through it."""

    def filled(self, path: str) -> list[str]:
        """The addresses of an endpoint's path, for every key, act, list and destination that there
        is."""
        keys = [quote(item["key"], safe="") for item in self.at.app.items(ROUTE)]
        values = {
            "route": [ROUTE],
            "key:path": keys,
            "form": ["csv", "json"],
            "name": ["refuses"]
            if "subscribers" in path
            else [quote(one["name"], safe="") for one in self.destinations()],
            "id": [
                one["id"]
                for one in self.get("/api/v1/lists" if "lists" in path else "/api/v1/acts")
            ],
            "volume:path": ["none"],
        }
        addresses = [path]
        for name, texts in values.items():
            addresses = [
                address.replace(f"{{{name}}}", text)
                for address in addresses
                for text in (texts if f"{{{name}}}" in address else [""])
            ]
        return addresses

    def destinations(self) -> list[dict[str, Any]]:
        return list(self.at.call("GET", "/api/v1/notifications/destinations").body["destinations"])

    def get(self, path: str) -> list[dict[str, Any]]:
        [entries] = [
            value for value in self.at.call("GET", path).body.values() if isinstance(value, list)
        ]
        return list(entries)


def target(partner: Partner, path: str) -> str:
    return f"{partner.url}{path}/{TEAM}/{TOKEN}?token={QUERY}"


def refuse(envelope: dict[str, Any]) -> None:
    raise EventRefused("this subscriber takes nothing")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder, clock = tmp_path_factory.mktemp("scene"), VirtualClock()
    log, events, sns = io.StringIO(), io.StringIO(), Sns()
    handler = logging.StreamHandler(log)
    handler.setFormatter(AllFields())
    with Partner(echoing) as partner, Partner(echoing) as office, MailServer() as mailbox:
        settings: dict[str, Any] = {
            "allow_cidrs": list(LOOPBACK),
            "alerts": {
                "to": [
                    f"email:smtp://127.0.0.1:{mailbox.port}?from=milepost@example.org&to=ops@example.org"
                ]
            },
            "destinations": {
                "crm": {"url": f"{partner.url}s404"},
                "team": {"url": f"{partner.url}s200/T9Z8Y7X6W"},
            },
            "retry": {"schedule": "seed"},
        }
        mails = EmailSubscriber(
            mail_transport(f"smtp://127.0.0.1:{mailbox.port}"),
            sender="a@example.org",
            to=["b@example.org"],
            kinds=["all"],
        )
        subscribers = [
            WebhookSubscriber(f"{office.url}events", allow_cidrs=LOOPBACK),
            LogSubscriber(events),
            Topic(f"arn:aws:sns:{REGION}:000000000000:events", client=sns),
            CallSubscriber(refuse, name="refuses"),
            mails,
        ]
        shell = Shell(folder)
        shell.write("milepost.toml", configuration(partner))
        logging.getLogger().addHandler(handler)
        logging.getLogger("milepost").setLevel(logging.DEBUG)
        with opened(f"sqlite:///{folder / 'milepost.db'}", settings, clock, subscribers) as at:
            sent = see_through_all(at, partner, clock, folder)
            [watch] = [
                one
                for one in services(at.milepost.context, [at.configured])
                if isinstance(one, AlertWatch)
            ]
            watch.run_once()
            told = {
                "webhook": "".join(
                    f"{one.line}{one.headers}{one.body.decode()}" for one in office.requests
                ),
                "log subscriber": events.getvalue(),
                "topic": "".join(sns.published),
                "mails and alerts": "".join(
                    f"{mail.message['Subject']}{mail.message.get_body(('plain',)).get_content()}"
                    for mail in mailbox.mails
                ),  # type: ignore[union-attr]
                "log": log.getvalue(),
            }
            try:
                yield Scene(at, shell, sent, told)
            finally:
                logging.getLogger().removeHandler(handler)
                logging.getLogger("milepost").setLevel(logging.NOTSET)


class AllFields(logging.Formatter):
    """A record with all its fields."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {vars(record)}"


def configuration(partner: Partner) -> str:
    return (
        'ledger = "sqlite:///milepost.db"\napplications = ["notifications"]\n[notifications]\nallow_cidrs = ["127.0.0.0/8"]\n'
        f'[notifications.destinations]\ncrm = {{ url = "{partner.url}s404" }}\nteam = {{ url = "{partner.url}s200/T9Z8Y7X6W" }}\n'
    )


@contextmanager
def opened(
    ledger: str, settings: dict[str, Any], clock: VirtualClock, subscribers: list[Any]
) -> Iterator[Service]:
    configured = application.configured(settings, environment={})
    with mp.open(ledger, applications=[configured], clock=clock, subscribers=subscribers) as desk:
        door = HttpServer(desk.context, "127.0.0.1", 0, applications=[configured])
        door.open()
        try:
            yield Service(desk, door, configured)
        finally:
            door.close()


def see_through_all(
    at: Service, partner: Partner, clock: VirtualClock, folder: Path
) -> dict[str, dict[str, Any]]:
    """Send messages whose targets hold secrets: one for each end, and for each act that an operator
    can do."""
    paths = {
        "delivered": "s200",
        "refused": "s404",
        "exhausted": "s500",
        "gone": "s410",
        "replayed": "s404/replayed",
        "unread": "s301",
    }
    sent = {name: message(target(partner, path), messageId=name) for name, path in paths.items()}
    for one in sent.values():
        assert at.post(one).status == 200
    for _ in range(4):
        at.work()
        clock.advance("10s")
    late = {
        "paused": message(target(partner, "s410"), messageId="paused"),
        "retried": message(target(partner, "s503"), messageId="retried"),
        "cancelled": message(
            target(partner, "s200"), messageId="cancelled", deliverAt="2100-01-01T00:00:00Z"
        ),
        "given up": message(
            target(partner, "s200/x"), messageId="given-up", deliverAt="2100-01-01T00:00:00Z"
        ),
    }
    for one in late.values():
        assert at.post(one).status == 200
    assert at.post({**sent["delivered"], "method": "PUT"}).status == 409
    at.work()
    above = "/api/v1/notifications"
    assert (
        at.call(
            "POST", f"{above}/cancel", {"key": key_of(late["cancelled"]), "reason": "a test"}
        ).status
        == 200
    )
    replay = {"key": key_of(sent["replayed"]), "reason": "a test", "changes": {"body": "other"}}
    assert at.call("POST", f"{above}/replay", replay).status == 200
    asked = {
        "verb": "cancel",
        "filter": {"part": [f"targetUrl={late['given up']['targetUrl']}"], "status": ["live"]},
        "reason": "a test",
    }
    answer = at.call("POST", f"/api/v1/routes/{ROUTE}/acts", asked)
    assert (answer.status, answer.body["done"]) == (200, 1), answer
    listed = folder / "messages.jsonl"
    listed.write_text(
        "".join(
            json.dumps({**sent["delivered"], **more}) + "\n"
            for more in ({}, {"body": "x"}, {"messageId": ""})
        )
    )
    at.milepost.submit_list(ROUTE, str(listed), by="ops")
    at.work()
    at.state.collector.turn(at.app)
    statuses = {name: at.item(one)["status"] for name, one in {**sent, **late}.items()}
    assert statuses == {
        "delivered": "COMPLETED",
        "refused": "REJECTED",
        "exhausted": "MAX_RETRIES_EXCEEDED",
        "gone": "REJECTED",
        "replayed": "REJECTED",
        "unread": "REJECTED",
        "paused": "WAITING",
        "retried": "RETRY_SCHEDULED",
        "cancelled": "CANCELLED",
        "given up": "CANCELLED",
    }
    return {**sent, **late}


def all_gets() -> list[Endpoint]:
    own = [*all_endpoints(), *all_pages()]
    configured = application.configured({}, environment={})
    return [one for one in [*own, *application_endpoints([configured], own)] if one.method == "GET"]


WITH_THE_INPUT = (
    "/items/{route}/{key:path}",
    "/api/v1/routes/{route}/items/{key:path}",
    "/notifications/messages/{key:path}",
    "/api/v1/notifications/messages/{key:path}",
)
"""The doors that show a message's content to those who may read it."""
WITHOUT_DATA = ("/live", "/static/{version}/{name}", "/login", "/api/docs")
"""A stream that says only that something has changed, files of the program, and pages without
data."""
GETS = [one.path for one in all_gets() if one.path not in (*WITH_THE_INPUT, *WITHOUT_DATA)]


def assert_no_secret(text: str, door: str) -> None:
    for secret in SECRETS:
        at = text.find(secret)
        assert at < 0, f"{door} shows {secret}: …{text[max(0, at - 200) : at + 60]}…"


@pytest.mark.parametrize("path", GETS)
def test_no_page_and_no_answer_shows_a_secret_of_a_target(scene: Scene, path: str) -> None:
    for address in scene.filled(path):
        answer = scene.at.call("GET", address)
        assert answer.status in (200, 303, 307, 404, 503), (address, answer)
        assert_no_secret(f"{answer.headers}{answer.raw.decode()}", address)


@pytest.mark.parametrize(
    "channel", ["webhook", "log subscriber", "topic", "mails and alerts", "log"]
)
def test_no_event_no_alert_and_no_log_holds_a_secret_of_a_target(
    scene: Scene, channel: str
) -> None:
    assert "refused" in scene.told[channel] or "CLIENT_ERROR" in scene.told[channel], (
        "something came"
    )
    assert_no_secret(scene.told[channel], channel)


COMMANDS = [
    ("list", ROUTE),
    ("list", ROUTE, "--json"),
    ("list", ROUTE, "--status", "failed", "--json"),
    ("groups", ROUTE, "--json"),
    ("status", "--json"),
    ("forecast", ROUTE),
    ("alerts", "--json"),
    ("acts", "--json"),
    ("acts",),
    ("lists", "--json"),
    ("doctor",),
    ("breakers",),
    ("subscribers", "--json"),
    ("export", ROUTE),
    ("export", ROUTE, "--history"),
    ("export", ROUTE, "--format", "csv"),
    ("export", ROUTE, "--evidence"),
    ("notifications", "list"),
    ("notifications", "list", "--json"),
    ("notifications", "dead-letters"),
    ("notifications", "dead-letters", "--json"),
    ("notifications", "destinations"),
    ("notifications", "destinations", "--json"),
    ("notifications", "senders", "--json"),
    ("notifications", "replay", "--all", "--dry-run", "--json"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_but_show_prints_a_secret_of_a_target(
    scene: Scene, command: tuple[str, ...]
) -> None:
    answer = scene.shell(*command)
    assert answer.out, answer
    assert_no_secret(answer.out + answer.err, " ".join(command))


def test_the_record_of_a_message_has_the_whole_url(scene: Scene) -> None:
    sent = scene.sent["refused"]
    url = sent["targetUrl"]
    whole, formed = key_of(sent), scene.at.item(sent)["key"]
    for key in (whole, formed):
        for path in WITH_THE_INPUT:
            address = path.replace("{route}", ROUTE).replace("{key:path}", quote(key, safe=""))
            assert TOKEN in scene.at.call("GET", address).raw.decode(), address
        assert url in scene.shell.ok("notifications", "show", key, "--json").out
        assert TOKEN in scene.shell.ok("show", ROUTE, key, "--json").out
    assert url in scene.shell.ok("export", ROUTE, formed, "--secrets").out
    with MessageClient(scene.at.url, sender="shop") as client:
        assert client.read(whole).record["targetUrl"] == url
        assert client.read(formed).key == formed


def test_acts_on_a_message_reach_it_by_the_whole_url(scene: Scene) -> None:
    sent = {name: scene.sent[name] for name in ("refused", "exhausted")}
    for one in sent.values():
        answer = scene.at.call(
            "POST", "/api/v1/notifications/replay", {"key": key_of(one), "reason": "a test"}
        )
        assert answer.status == 200, answer
        assert answer.body["key"] == scene.at.item(one)["key"]
        scene.at.work()
    [found] = scene.at.app.items(ROUTE, parts=[f"targetUrl={sent['refused']['targetUrl']}"])
    assert found["key"] == scene.at.item(sent["refused"])["key"]
    answer = scene.at.call("GET", f"/find?q={quote(key_of(sent['refused']), safe='')}")
    assert answer.status in (303, 307)
    assert_no_secret(answer.headers["location"], "/find")


def test_an_answer_to_a_key_that_may_not_read_has_no_secret_of_the_target(tmp_path: Path) -> None:
    with Partner(echoing) as partner, service(f"sqlite:///{tmp_path / 'milepost.db'}") as at:
        sent = message(target(partner, "s200"), deliverAt="2100-01-01T00:00:00Z")
        assert at.post(sent).status == 200
        _, key = make_key(at.ctx, "shop", ["submit"], attributes={"sender": "shop"}, **BY)
        answer = at.call(
            "POST",
            "/api/v1/notifications/cancel",
            {"key": key_of(sent), "reason": "a test"},
            key=key,
        )
        assert (answer.status, answer.body["status"]) == (200, "CANCELLED")
        assert_no_secret(answer.raw.decode(), "cancel")


def test_figures_are_of_the_destination_whose_path_is_hidden_in_keys() -> None:
    """Two teams of one partner differ in a part of the path that keys hide."""
    with Partner(echoing) as partner:
        teams = {
            name: {"url": f"{partner.url}services/{path}"}
            for name, path in (("red", "T0A1B2C3D"), ("blue", "T0A1B2C3E"))
        }
        with service(destinations=teams) as at:
            for number, name in enumerate(("red", "blue", "blue")):
                assert (
                    at.post(
                        message(f"{teams[name]['url']}/{TOKEN}{number}", messageId=f"m-{number}")
                    ).status
                    == 200
                )
            at.work()
            at.state.collector.turn(at.app)
            assert {
                name: one.delivered for name, one in figures_of(at.app).destinations.items()
            } == {"red": 1, "blue": 2}


def test_a_pause_of_a_url_ends_for_the_messages_that_wait_for_it() -> None:
    clock = VirtualClock()
    with Partner(echoing) as partner, service(clock=clock) as at:
        first, waiting = (
            message(target(partner, "s410"), messageId=name) for name in ("first", "waiting")
        )
        for one in (first, waiting):
            assert at.post(one).status == 200
            at.work()
        assert at.item(waiting)["status"] == "WAITING"
        at.milepost.resume(
            ROUTE,
            "deliver",
            url_pause(f"127.0.0.1:{partner.port}", "shop", first["targetUrl"]),
            **BY,
        )
        at.work()
        assert at.item(waiting)["status"] == "REJECTED", "it was tried at once"


def test_two_urls_that_differ_only_in_what_is_hidden_are_two_messages() -> None:
    with Partner(echoing) as partner, service() as at:
        url = target(partner, "s200")
        for one in (url, f"{url}x", url.replace(TOKEN, f"{TOKEN}x")):
            assert at.post(message(one)).body["duplicateDetected"] is False
            assert at.post(message(one)).body["duplicateDetected"] is True
        at.work()
        assert len(partner.requests) == 3


@pytest.mark.parametrize("ledger", ["sqlite", "aws"])
def test_a_message_of_an_earlier_version_is_known_shown_and_cancelled(
    ledger: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if ledger == "aws":
        endpoint, prefix = request.getfixturevalue("endpoint"), request.getfixturevalue("prefix")
        url = f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    else:
        url = f"sqlite:///{tmp_path / 'milepost.db'}"
    with Partner(echoing) as partner:
        early, other = (
            message(target(partner, path), deliverAt="2100-01-01T00:00:00Z")
            for path in ("s200", "s200/y")
        )
        with service(url) as at:
            at.ctx.plan(ROUTE).route.key_forms = {}
            for one in (early, other):
                assert at.post(one).status == 200
        with service(url) as at:
            assert at.item(early)["key"] == key_of(early)
            assert at.post(early).body["duplicateDetected"] is True
            assert at.post({**early, "method": "PUT"}).status == 409
            with MessageClient(at.url, sender="shop") as client:
                assert client.read(check_message(early).key).key == key_of(early)
            answer = at.call(
                "POST", "/api/v1/notifications/cancel", {"key": key_of(early), "reason": "a test"}
            )
            assert (answer.status, answer.body["status"]) == (200, "CANCELLED"), answer
            assert at.item(other)["status"] == "PENDING"
            assert (
                act(at.ctx, select(at.ctx, ROUTE, keys=[key_of(other)]), CancelVerb(), **BY).done
                == 1
            )
            assert len(at.app.items(ROUTE)) == 2


def test_a_row_of_another_program_is_the_message_that_was_accepted(
    endpoint: str, prefix: str, tmp_path: Path
) -> None:
    """In either form of its key; a row that would be a second message is set aside."""
    table = boto3.resource("dynamodb", region_name=REGION, endpoint_url=endpoint).Table(
        f"{prefix}-{ROUTE}"
    )

    def put(sent: dict[str, Any]) -> None:
        parts = key_of(sent).split("#")
        content = {"targetUrl": sent["targetUrl"], "method": "POST", "body": "x"}
        table.put_item(
            Item={
                "pk": "#".join(parts[:2]),
                "sk": "#".join(parts[2:]),
                "input": json.dumps(content),
            }
        )

    url = f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    with Partner(echoing) as partner, service(url) as at:
        foreign, ours = (
            message(target(partner, "s200"), messageId=name) for name in ("foreign", "ours")
        )
        put(foreign)
        assert at.post(ours).status == 200
        at.milepost.run(until_idle=1)
        put(ours)
        at.milepost.run(until_idle=1)
        assert [at.item(one)["status"] for one in (foreign, ours)] == ["COMPLETED", "COMPLETED"]
        assert at.post(foreign).status == 409, "known, with another content"
        assert sorted(one.headers["x-message-id"] for one in partner.requests) == [
            "foreign",
            "ours",
        ]
        [aside], _ = at.ctx.ledger.quarantine.entries(10)
        assert "was accepted before" in aside.reason


def test_a_csv_of_items_names_each_message_without_its_secret(scene: Scene) -> None:
    rows = list(csv.DictReader(io.StringIO(scene.shell.ok("export", ROUTE, "--format", "csv").out)))
    assert {row["key"] for row in rows} == {item["key"] for item in scene.at.app.items(ROUTE)}
