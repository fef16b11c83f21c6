"""Events as POSTs to a URL: what arrives at a real HTTP server, and what its answers mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import milepost as mp
import milepost_net as net
from milepost.cli.config import CliSettings
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.parked_events import release
from milepost.ports.documents import CURSOR
from milepost.subscribers import WebhookSubscriber
from milepost.subscribers.webhook import webhook_subscriber
from milepost_testing import SeededChance, VirtualClock, drain
from milepost_testing.http_standin import FaultKind, spoil

Form = Callable[[dict[str, Any]], dict[Any, Any] | None]
HERE = ["127.0.0.0/8"]


class Office(ThreadingHTTPServer):
    """Takes POSTs and answers each with the next of `answers` for its item, or 204: a status, or a
    way to break."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.posts: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: dict[str, list[int | FaultKind]] = {}
        self.connections = 0
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/events?key=s3cret"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.posts]

    @property
    def ids(self) -> list[str]:
        return [unquote(headers["webhook-id"]) for _, headers, _ in self.posts]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has hung up is nothing to print."""


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Office

    def do_POST(self) -> None:
        office = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        office.posts.append((self.path, headers, body))
        key = unquote(headers["webhook-id"]).split("/")[1]
        answer = office.answers[key].pop(0) if office.answers.get(key) else 204
        if isinstance(answer, int):
            self.send_response(answer)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.close_connection = True
            spoil(answer, self.connection, b"{}", office.closing)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed: what came is kept."""


@pytest.fixture
def office() -> Iterator[Office]:
    with Office() as office:
        thread = threading.Thread(target=office.serve_forever, args=(0.02,))
        thread.start()
        yield office
        office.closing.set()
        office.shutdown()
        thread.join()


@pytest.fixture
def hook(office: Office) -> Iterator[WebhookSubscriber]:
    hook = WebhookSubscriber(office.url, allow_cidrs=HERE, name="office")
    yield hook
    hook.close()


def parcels(form: Form | None = None) -> mp.Route:
    route = mp.Route("parcels", key="id", form=form)
    route.stage("weigh")(lambda item: mp.Done({"grams": 340}))
    return route


class Post:
    """A ledger in memory with parcels on it, and a relay for one subscriber."""

    def __init__(self, subscriber: WebhookSubscriber, *keys: str, form: Form | None = None) -> None:
        self.clock = VirtualClock()
        self.system = mp.open(
            "memory:", routes=[parcels(form)], clock=self.clock, chance=SeededChance(1)
        )
        self.relay = EventRelay(self.system.context, subscriber, "p1")
        self.system.submit("parcels", *({"id": key} for key in keys))

    def tell(self) -> Any:
        return self.relay.run_once()

    def parked(self) -> dict[str, str]:
        """What is parked, and why."""
        documents = self.system.context.ledger.read("parked")
        return {document.value["key"]: document.value["error"] for document in documents.values()}


# What arrives -------------------------------------------------------------------------------------
def test_an_event_is_one_post_of_its_envelope(office: Office, hook: WebhookSubscriber) -> None:
    post = Post(hook, "P-1", "ü 5%")
    assert post.tell().delivered == 2
    assert [path for path, _, _ in office.posts] == ["/events?key=s3cret"] * 2
    assert (
        [body["id"] for body in office.bodies]
        == office.ids
        == ["parcels/P-1/1/accepted", "parcels/ü 5%/1/accepted"]
    )
    headers = office.posts[1][1]
    assert headers["content-type"] == "application/cloudevents+json"
    assert headers["webhook-id"] == "parcels/%C3%BC%205%25/1/accepted"
    assert office.bodies[1]["subject"] == "ü 5%"
    assert "webhook-signature" not in headers
    assert office.connections == 1, "the connection is kept"


def test_an_event_in_a_form_of_the_routes_own_is_plain_json(
    office: Office, hook: WebhookSubscriber
) -> None:
    Post(
        hook, "P-1", form=lambda envelope: {"parcel": envelope["subject"], 7: "a number for a name"}
    ).tell()
    assert office.bodies == [{"parcel": "P-1", "7": "a number for a name"}]
    assert office.posts[0][1]["content-type"] == "application/json"
    assert office.ids == ["parcels/P-1/1/accepted"]


def test_headers_of_ones_own_are_sent(office: Office) -> None:
    hook = WebhookSubscriber(
        office.url,
        allow_cidrs=HERE,
        headers={"Authorization": "Bearer abc", "Content-Type": "text/plain"},
    )
    Post(hook, "P-1").tell()
    hook.close()
    headers = office.posts[0][1]
    assert headers["authorization"] == "Bearer abc"
    assert headers["content-type"] == "application/cloudevents+json", (
        "what is in it, we know better"
    )


def test_with_a_secret_the_receiver_can_see_who_sent_it_and_when(office: Office) -> None:
    first, second, at = net.new_secret(), net.new_secret(), 1_700_000_000.9
    for secrets in (first, [first], [second, first]):
        hook = WebhookSubscriber(office.url, allow_cidrs=HERE, secret=secrets, clock=lambda: at)
        Post(hook, "P.1").tell()
        hook.close()
    for _, headers, body in office.posts:
        assert headers["webhook-timestamp"] == "1700000000"
        assert (
            net.verify(first, headers, body, now=at)
            == headers["webhook-id"]
            == "parcels/P%2E1/1/accepted"
        )
    assert len({body for _, _, body in office.posts}) == 1, "a repeat is the same bytes"
    assert [len(headers["webhook-signature"].split()) for _, headers, _ in office.posts] == [
        1,
        1,
        2,
    ]


def test_the_receivers_own_library_of_standard_webhooks_accepts_the_signature(
    office: Office,
) -> None:
    secret, other = net.new_secret(), net.new_secret()
    hook = WebhookSubscriber(office.url, allow_cidrs=HERE, secret=[other, secret])
    Post(hook, "P.1 ü").tell()
    hook.close()
    [(_, headers, body)] = office.posts
    assert Webhook(secret).verify(body, headers) == json.loads(body)
    assert Webhook(other).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(net.new_secret()).verify(body, headers)


def test_milepost_verifies_what_the_library_of_standard_webhooks_signs() -> None:
    secret, now = net.new_secret(), datetime.now(UTC)
    signature = Webhook(secret).sign("msg_1", now, '{"a": 1}')
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    assert net.verify(secret, headers, b'{"a": 1}') == "msg_1"


def test_an_address_names_the_variables_of_its_secrets(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = net.new_secret(), net.new_secret()
    monkeypatch.setenv("OFFICE_NEW", new)
    monkeypatch.setenv("OFFICE_OLD", old)
    hook = webhook_subscriber(f"{office.url}#secret_env=OFFICE_NEW&secret_env=OFFICE_OLD", HERE)
    Post(hook, "P-1").tell()
    hook.close()
    [(path, headers, body)] = office.posts
    assert "#" not in path
    assert [net.verify(secret, headers, body) for secret in (new, old)] == [
        "parcels/P-1/1/accepted"
    ] * 2
    assert hook.name == WebhookSubscriber(office.url, allow_cidrs=HERE).name, (
        "with a secret it is the same subscriber"
    )
    assert webhook_subscriber(f"{office.url}#name=office", HERE).name == "office"


@pytest.mark.parametrize(
    ("options", "said"),
    [("secret_env=NOT_SET", "NOT_SET"), ("secret=abc", "secret_env"), ("chapter", "secret_env")],
)
def test_options_of_an_address_that_cannot_be_are_said(options: str, said: str) -> None:
    with pytest.raises(mp.UsageError, match=said):
        webhook_subscriber(f"https://office.example/#{options}")


def test_an_event_is_not_sent_to_this_machine_unless_that_is_allowed(office: Office) -> None:
    hook = WebhookSubscriber(office.url, name="office")
    post = Post(hook, "P-1")
    post.tell()
    hook.close()
    assert office.connections == 0
    assert (
        "refused (loopback); to allow them, add its network to allow_cidrs" in post.parked()["P-1"]
    )
    assert "s3cret" not in str(post.parked())


# What is answered ---------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [400, 404, 405, 409, 410, 413, 415, 422])
def test_an_event_that_is_refused_parks_its_item_alone_until_it_is_released(
    office: Office, hook: WebhookSubscriber, status: int
) -> None:
    office.answers["b"] = [status]
    post = Post(hook, *"abc")
    assert post.tell().delivered == 2
    said = post.parked()["b"]
    assert (
        f"refuses this event for good ({status}); when the cause is corrected, 'milepost subscribers release'"
        in said
    )
    assert "s3cret" not in said
    post.clock.advance("30d")
    post.tell()
    assert len(office.posts) == 3, "it is not tried by itself"
    assert release(post.system.context, "office", by="ops", reason="it was not wrong at all") == 1
    assert post.tell().delivered == 1
    assert post.parked() == {}


@pytest.mark.parametrize("answer", [301, 307, 401, 403, 408, 425, 429, 500, 503, "reset"])
def test_not_now_is_tried_again_by_itself(
    office: Office, hook: WebhookSubscriber, answer: Any
) -> None:
    # One that breaks a kept connection is asked once more on a new one.
    office.answers["b"] = [answer] * (2 if answer == "reset" else 1)
    post = Post(hook, *"abc")
    assert post.tell().delivered == 2
    assert "b" in post.parked()
    assert "s3cret" not in str(post.parked())
    post.clock.advance("1m")
    assert post.tell().delivered == 1
    assert set(office.ids) == {f"parcels/{key}/1/accepted" for key in "abc"}


@pytest.mark.parametrize("kind", ["hang", "drip"])
def test_a_server_that_is_too_slow_is_given_up_on(office: Office, kind: FaultKind) -> None:
    hook = WebhookSubscriber(office.url, allow_cidrs=HERE, name="office", timeout=0.25)
    office.answers["b"] = [kind]
    post = Post(hook, *"b")
    post.tell()
    assert "no whole answer within 0.25 s" in post.parked()["b"]
    hook.close()


def test_what_was_said_to_be_taken_is_taken_though_the_rest_of_the_answer_is_cut_off(
    office: Office, hook: WebhookSubscriber
) -> None:
    office.answers["b"] = ["cut"]
    post = Post(hook, *"abc")
    assert post.tell().delivered == 3
    assert (post.parked(), len(office.posts), office.connections) == ({}, 3, 2)


def test_a_kept_connection_that_the_server_has_closed_is_no_trouble(
    office: Office, hook: WebhookSubscriber
) -> None:
    office.answers["b"] = ["reset"]
    post = Post(hook, *"abc")
    assert post.tell().delivered == 3
    assert office.connections == 2


def test_an_outage_loses_nothing_and_keeps_the_order(
    office: Office, hook: WebhookSubscriber
) -> None:
    keys = [f"P-{number}" for number in range(8)]
    office.answers = {key: [503] for key in keys}
    post = Post(hook, *keys)
    assert "503" in post.tell().standing_by
    drain(post.system, post.clock, subscribers=[hook])
    by_item = {
        key: [name.rsplit("/", 1)[1] for name in office.ids if name.split("/")[1] == key]
        for key in keys
    }
    for key in keys:
        assert [
            kind for number, kind in enumerate(by_item[key]) if kind not in by_item[key][:number]
        ] == ["accepted", "completed"]


def test_what_is_no_json_is_refused_alone(office: Office, hook: WebhookSubscriber) -> None:
    post = Post(
        hook,
        *"ab",
        form=lambda envelope: {"data": object()} if envelope["subject"] == "a" else None,
    )
    assert post.tell().delivered == 1
    assert "correct the form of route 'parcels'" in post.parked()["a"]
    assert office.ids == ["parcels/b/1/accepted"]


# How it is named ----------------------------------------------------------------------------------
def test_milepost_up_tells_a_url(office: Office, tmp_path: Path) -> None:
    (tmp_path / "milepost.toml").write_text(
        f'routes = ["parcels.py"]\nsubscribers = ["{office.url}"]\nallow_cidrs = ["127.0.0.0/8"]\n'
    )
    (tmp_path / "parcels.py").write_text(
        "import milepost as mp\nparcels = mp.Route('parcels')\nparcels.external('delivered')\n"
    )
    for command in (["submit", "parcels", "--item", '{"id": "A"}'], ["up", "--until-idle", "0"]):
        subprocess.run(
            [sys.executable, "-m", "milepost", *command],
            cwd=tmp_path,
            env=dict(os.environ),
            check=True,
            capture_output=True,
            timeout=60,
        )
    assert office.ids == ["parcels/A/1/accepted", "parcels/A/1/offered"]


def test_its_name_stays_the_same_and_does_not_tell_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = [
        "https://hooks.example.org/T0/s3cret",
        "https://hooks.example.org/T1/s3cret",
        "http://[::1]:8080/",
        f"http://{'x' * 60}.org",
    ]
    Path("milepost.toml").write_text(f"subscribers = {json.dumps(urls)}\n")
    hooks = CliSettings().subscribers()
    assert hooks[0].name == "hooks.example.org-518ec218"
    assert len({hook.name for hook in hooks}) == 4
    assert "s3cret" not in repr(hooks[0])
    with mp.open("memory:", routes=[parcels()], clock=VirtualClock()) as system:
        for hook in hooks:
            EventRelay(system.context, hook, "p1").run_once()
        assert set(system.context.ledger.read(CURSOR)) == {hook.name for hook in hooks}


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["https://"], "name a host"),
        (["https://me:pw@office.example/"], "no user and password in it"),
        (["http://office.example:port/"], "name a host"),
        (["https://office.example/a b"], "without spaces"),
        (["https://office.example/", "https://office.example/"], "two subscribers are called"),
        (["fax"], "https://…"),
    ],
)
def test_a_url_that_cannot_be_is_told(
    specs: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("milepost.toml").write_text(f"subscribers = {json.dumps(specs)}\n")
    with pytest.raises(mp.ConfigMistake, match=said):
        CliSettings().subscribers()


@pytest.mark.parametrize(
    ("cidrs", "said"),
    [
        (
            '"127.0.0.0/8"',
            "milepost.toml: allow_cidrs is '127.0.0.0/8'; it must be a list of texts",
        ),
        (
            '["10.0.0.0/8", "127.0.0.1"]',
            r"milepost.toml: allow_cidrs\[1\] is '127.0.0.1'; give a network such as",
        ),
        (
            '["10.0.0.1/8"]',
            r"milepost.toml: allow_cidrs\[0\] is '10.0.0.1/8', .*write '10.0.0.0/8'",
        ),
    ],
)
def test_an_allowed_network_that_cannot_be_is_named_with_its_field(
    cidrs: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("milepost.toml").write_text(f"allow_cidrs = {cidrs}\n")
    with pytest.raises(mp.ConfigMistake, match=said):
        CliSettings().subscribers()


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": 15},
        {"headers": {"Auth": "a\nb"}},
        {"headers": {"Aüth": "a"}},
        {"headers": {"Host": "elsewhere"}},
        {"secret": "sesame"},
        {"secret": []},
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(mp.UsageError, match="WebhookSubscriber") as caught:
        WebhookSubscriber("https://office.example/", **options)
    assert "a\nb" not in str(caught.value)
    assert "sesame" not in str(caught.value)
