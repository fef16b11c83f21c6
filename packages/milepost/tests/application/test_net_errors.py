"""Errors of the HTTP client, where Milepost hands it settings: people see a UsageError or a
MilepostError, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.cli.commands import WEIGHED
from tests.cli.conftest import Shell
from tests.http.live_server import LiveServer

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost.core.outcome import outcome_of_exception
from milepost.http.server.assembly import HttpServer
from milepost.net_errors import milepost_error
from milepost.subscribers import WebhookSubscriber, open_subscriber
from milepost.subscribers.email import Mail
from milepost.subscribers.email.smtp import SmtpTransport

OFFICE = "https://office.example/"
MAIL = Mail(id="1", sender="a@example.org", to=["b@example.org"], subject="1", text="1")


class Settings(mpa.AppSettings, frozen=True):
    allow_cidrs: list[str] = []
    url: str = OFFICE
    timeout: float = 1.0


class Partner:
    """What an application makes of its settings."""

    def __init__(self, settings: Settings) -> None:
        self.url = net.parse_url(settings.url)
        self.client = net.Client(
            allow_cidrs=settings.allow_cidrs, timeouts=net.Timeouts(total=settings.timeout)
        )


def parts_of(**settings: Any) -> tuple[Partner, list[mp.Route]]:
    """The state and the routes of an application with these settings, of which both make a
    client."""
    application = mpa.Application("desk", Settings, state=Partner)

    @application.routes
    def routes(own: Settings) -> Iterator[mp.Route]:
        Partner(own)
        yield mp.Route("parcels", key="id")

    configured = application.configured(settings, environment={})
    try:
        return configured.state, configured.routes
    except mp.UsageError:
        with pytest.raises(mp.UsageError):
            _ = configured.routes
        raise


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "webhook url": (lambda: WebhookSubscriber("ftp://office.example"), "begins with https"),
    "webhook network": (
        lambda: WebhookSubscriber(OFFICE, allow_cidrs=["10.0.0.1/8"]),
        r"allow_cidrs\[0\].*10.0.0.0/8",
    ),
    "webhook header": (
        lambda: WebhookSubscriber(OFFICE, headers={"Host": "b"}),
        "WebhookSubscriber: the header Host",
    ),
    "webhook secret": (
        lambda: WebhookSubscriber(OFFICE, secret="sesame"),
        "WebhookSubscriber: a webhook secret",
    ),
    "subscriber url": (
        lambda: open_subscriber("https://me:pw@office.example"),
        "the subscriber 'https.*no user and password",
    ),
    "subscriber network": (
        lambda: open_subscriber(OFFICE, allow_cidrs=["here"]),
        r"the subscriber 'https.*allow_cidrs\[0\]",
    ),
    "mail authority": (
        lambda: SmtpTransport(
            "127.0.0.1", 9, encryption="tls", tls=net.Tls(ca_file="nowhere.pem")
        ).send(MAIL),
        "nowhere.pem.*No such file",
    ),
    "application network": (lambda: parts_of(allow_cidrs=["here"]), r"\[desk\] allow_cidrs\[0\]"),
    "application url": (lambda: parts_of(url="ftp://office.example"), "begins with https"),
    "application timeout": (lambda: parts_of(timeout=0), r"Timeouts\(total=0.0\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_setting_that_the_client_refuses_is_a_usage_error(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(mp.UsageError, match=message):
        make()


# What a command says ------------------------------------------------------------------------------
DESK = """
from __future__ import annotations

import milepost.application as mpa
import milepost_net as net

application = mpa.Application("desk", mpa.AppSettings)


@application.command(ledger="none")
def url(app: mpa.AppContext[mpa.AppSettings]) -> None:
    net.parse_url("ftp://office.example")


@application.command(ledger="none")
def secret(app: mpa.AppContext[mpa.AppSettings]) -> None:
    net.webhook_headers("sesame", "1", b"")


@application.command(ledger="none")
def call(app: mpa.AppContext[mpa.AppSettings]) -> None:
    with net.Client() as client:
        client.request("GET", "http://127.0.0.1:9/")
"""
ROUTE = """
from __future__ import annotations

import milepost as mp
import milepost_net as net

parcels = mp.Route("parcels", key="id")
TIMEOUTS = net.Timeouts(total=0)
"""


@pytest.mark.parametrize(
    ("toml", "command", "code", "message"),
    [
        (
            'allow_cidrs = ["10.0.0.1/8"]',
            ["status"],
            2,
            "milepost: milepost.toml: allow_cidrs[0] is '10.0.0.1/8'",
        ),
        (
            'routes = ["sound.py"]\nsubscribers = ["https://office.example:99999/"]',
            ["up", "--until-idle", "0", "--no-listen"],
            2,
            "milepost: the subscriber 'https://office.example:99999/': port 99999 does not exist",
        ),
        (
            'routes = ["parcels.py"]',
            ["status"],
            2,
            "milepost: parcels.py, line 8: Timeouts(total=0): give seconds",
        ),
        (
            'applications = ["desk.py"]',
            ["desk", "url"],
            2,
            "milepost: a URL begins with https:// or http://",
        ),
        ('applications = ["desk.py"]', ["desk", "secret"], 2, "milepost: a webhook secret"),
        ('applications = ["desk.py"]', ["desk", "call"], 1, "milepost: 127.0.0.1:9: "),
    ],
)
def test_a_command_ends_with_one_line_and_its_exit_code(
    tmp_path: Path, toml: str, command: list[str], code: int, message: str
) -> None:
    shell = Shell(tmp_path)
    shell.write("parcels.py", ROUTE)
    shell.write("sound.py", WEIGHED)
    shell.write("desk.py", DESK)
    shell.write("milepost.toml", toml)
    answer = shell.started(*command)
    assert (answer.code, answer.err.count("\n")) == (code, 1)
    assert answer.err.startswith(message)


# What a server answers ----------------------------------------------------------------------------
class Hook(Struct):
    url: str


def test_an_endpoint_that_gets_a_wrong_url_answers_400_and_a_failed_call_is_no_internal_error() -> (
    None
):
    application = mpa.Application("desk", mpa.AppSettings)

    @application.endpoint("POST", "/hook", scope="submit", body=Hook, summary="Check a URL")
    def hook(app: mpa.AppContext[Any], call: mpa.Call) -> mpa.Answer:
        net.parse_url(call.body.url)
        return mpa.Answer({})

    @application.endpoint("POST", "/hook/async", scope="submit", body=Hook, summary="Call a URL")
    async def ask(app: mpa.AppContext[Any], call: mpa.Call) -> mpa.Answer:
        async with net.Client() as client:
            await client.request_async("GET", call.body.url)
        return mpa.Answer({})

    configured = application.configured({}, environment={})
    with mp.open("memory:", applications=[configured]) as desk:
        door = HttpServer(desk.context, "127.0.0.1", 0, applications=[configured])
        door.open()
        try:
            live = LiveServer(desk, door)
            for path in ("/hook", "/hook/async"):
                answer = live.call("POST", path, {"url": "ftp://office.example"})
                assert (answer.status, answer.body["code"]) == (400, "wrong-value")
                assert answer.body["detail"].startswith("a URL begins with https")
            refused = live.call("POST", "/hook/async", {"url": "http://127.0.0.1:9/"})
            assert refused.body["detail"].startswith("127.0.0.1:9: ")
            assert live.call("POST", "/hook", {"url": OFFICE}).status == 200
        finally:
            door.close()


# The translation itself ---------------------------------------------------------------------------
ANSWER = net.Response(503, net.HeaderList([("Retry-After", "7")]), b"", 0, OFFICE)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (net.NetUsageError("no such secret"), mp.UsageError),
        (net.InvalidRequest("no URL", kind="invalid-url"), mp.UsageError),
        (net.SignatureRefused("no signature matches"), mp.MilepostError),
        (net.AddressRefused("loopback"), mp.MilepostError),
        (net.NoAnswer("silent", sent=net.SendState.MAYBE_SENT), mp.MilepostError),
        (net.InvalidAnswer("cut", sent=net.SendState.ANSWERED, response=ANSWER), mp.MilepostError),
    ],
)
def test_an_error_is_translated_and_its_outcome_is_the_same(
    error: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(mp.MilepostError) as caught, mpa.translated_net_errors():
        raise error
    assert type(caught.value) is kind
    assert (str(caught.value), caught.value.__cause__) == (str(error), error)
    before, after = outcome_of_exception(error), outcome_of_exception(caught.value)
    assert type(after) is type(before)
    for fact in ("http_status", "unknown", "after"):
        assert getattr(after, fact, None) == getattr(before, fact, None)


@pytest.mark.parametrize("error", [ValueError("a"), mp.NotFound("b"), KeyboardInterrupt()])
def test_other_errors_go_through_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, mpa.translated_net_errors():
        raise error
    assert caught.value is error
    assert milepost_error(error) is None


def test_it_decorates_a_function_and_changes_no_result() -> None:
    @mpa.translated_net_errors()
    def host(url: str) -> str:
        return net.parse_url(url).host

    assert [host(OFFICE), host(OFFICE)] == ["office.example"] * 2
    with pytest.raises(mp.UsageError):
        host("ftp://office.example")
