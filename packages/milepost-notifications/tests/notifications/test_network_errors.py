"""Partners that fail below HTTP, redirect, or stand at addresses that must not be called."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.net.partner import PATIENCE, Line, hang
from tests.net.test_http_failures import drip_body
from tests.net.test_http_tls import Authority
from tests.notifications.partners import (
    LOOPBACK,
    Partner,
    Service,
    VirtualClock,
    answers,
    message,
    service,
)

import milepost_net as net
from milepost_net.resolver import SystemResolver
from milepost_notifications.settings import DestinationSettings, TimeoutSettings

SHORT = {"connect": 5, "read": 0.3, "total": 5}
"""For partners that never answer; no test needs an answer within it."""


def reset_at_once(line: Line) -> None:
    line.read()
    line.reset()


def reset_in_the_body(line: Line) -> None:
    line.read()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
    line.reset()


def short_body(line: Line) -> None:
    """Say 100 bytes, send 4, and close."""
    line.read()
    line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")


def nonsense(line: Line) -> None:
    line.read()
    line.send(b"SSH-2.0-OpenSSH_9.0\r\n\r\n")


def one_try(at: Service, target: str, **fields: Any) -> dict[str, Any]:
    """The message after its first try."""
    sent = message(target, **fields)
    assert at.post(sent).status == 200
    at.work()
    return at.item(sent)


def category(item: dict[str, Any]) -> tuple[str, str]:
    return item["status"], item["error"]["category"]


@pytest.mark.parametrize(
    ("script", "timeouts", "wanted", "unknown"),
    [
        (reset_at_once, {}, "CONNECTION_RESET", True),
        (reset_in_the_body, {}, "INVALID_ANSWER", True),
        (short_body, {}, "INVALID_ANSWER", True),
        (hang, SHORT, "READ_TIMEOUT", True),
        (drip_body, {"connect": 5, "read": 5, "total": 0.5}, "TIMEOUT", True),
        (nonsense, {}, "INVALID_ANSWER", True),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_s22_a_partner_that_fails_after_the_request_has_its_own_category_and_is_tried_again(
    script: Callable[[Line], None], timeouts: dict[str, Any], wanted: str, unknown: bool
) -> None:
    clock = VirtualClock()
    with Partner(script) as partner, service(clock=clock, timeouts=timeouts) as at:
        item = one_try(at, partner.url)
        assert category(item) == ("RETRY_SCHEDULED", wanted)
        assert item["error"]["details"]["family"] == "NETWORK_ERROR"
        partner.script = answers(200)
        at.state.destinations.put(
            "patient", DestinationSettings(url=partner.url, timeouts=TimeoutSettings(60, 60, 60))
        )
        sent = message(partner.url)
        at.see_through(clock, sent)
        assert at.item(sent)["status"] == "COMPLETED"
        assert [one.headers.get("x-previous-outcome") for one in partner.requests] == [
            None,
            "unknown",
        ]


def test_s22_a_refused_connection_and_an_unknown_name_are_tried_again_and_nothing_was_sent() -> (
    None
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    clock = VirtualClock()

    async def nowhere(host: str) -> list[Any]:
        raise OSError("no such name")

    with service(clock=clock) as at:
        assert category(one_try(at, f"http://127.0.0.1:{port}/")) == (
            "RETRY_SCHEDULED",
            "CONNECTION_REFUSED",
        )
        at.state.deliverer.use(net.Client(allow_cidrs=LOOPBACK, resolver=nowhere))
        item = one_try(at, "http://nowhere.example/")
        assert category(item) == ("RETRY_SCHEDULED", "DNS_FAILURE")
        with Partner(
            lambda line: bool(line.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) and None
        ) as partner:
            at.state.deliverer.use(net.Client(allow_cidrs=LOOPBACK))
            plain = partner.url.replace("http:", "https:")
            assert category(one_try(at, plain, messageId="tls")) == (
                "RETRY_SCHEDULED",
                "TLS_FAILURE",
            )


def test_s22_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "office")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("127.0.0.1"))
    with Partner(answers(200), context=context) as partner, service(clock=VirtualClock()) as at:
        assert category(one_try(at, partner.url)) == ("RETRY_SCHEDULED", "CERTIFICATE_REFUSED")
    trusted = {"office": {"url": "", "tls": {"ca_file": str(authority.file)}}}
    with Partner(answers(200), context=context) as partner:
        trusted["office"]["url"] = partner.url
        with service(destinations=trusted) as at:
            assert one_try(at, partner.url)["status"] == "COMPLETED"


def test_an_endless_answer_counts_by_its_status_and_is_recorded_up_to_the_limit() -> None:
    def endless(line: Line) -> None:
        line.read()
        line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while line.send(b"400\r\n" + b"x" * 1024 + b"\r\n"):
            pass

    with Partner(endless) as partner, service(response_bytes=100) as at:
        item = one_try(at, partner.url)
        assert item["status"] == "COMPLETED"
        recorded = item["results"]["deliver"]["response"]
        assert (recorded["body"], recorded["cut"]) == ("x" * 100, True)


def test_s23_a_redirect_is_not_followed() -> None:
    with Partner(answers(200)) as second:
        for number, location in enumerate(("http://169.254.169.254/latest/meta-data", second.url)):
            with Partner(answers((302, b"", f"Location: {location}"))) as first, service() as at:
                item = one_try(at, first.url, messageId=f"m-{number}")
                assert (category(item), item["error"]["http_status"]) == (
                    ("REJECTED", "UNKNOWN_STATUS"),
                    302,
                )
                assert item["error"]["message"].startswith(
                    "HTTP 302 Found: the redirect is not followed ("
                )
                assert len(first.requests) == 1
        assert second.requests == []


def test_s23_a_redirect_that_is_allowed_passes_the_guard_too() -> None:
    with Partner(answers((302, b"", "Location: http://169.254.169.254/"))) as partner:
        own = {"url": partner.url, "redirects": {"hosts": ["169.254.169.254"]}}
        with service(destinations={"office": own}) as at:
            assert category(one_try(at, partner.url, method="GET", body=None)) == (
                "REJECTED",
                "INVALID_TARGET",
            )
    with (
        Partner(answers(200)) as second,
        Partner(answers((302, b"", f"Location: {second.url}"))) as first,
    ):
        with service(
            destinations={"office": {"url": first.url, "redirects": {"hosts": ["127.0.0.1"]}}}
        ) as at:
            assert one_try(at, first.url, method="GET", body=None)["status"] == "COMPLETED"
            assert len(second.requests) == 1


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::7f00:1]",
        "192.168.0.1",
        "0.0.0.0",
    ],
)
def test_s24_addresses_that_are_not_public_are_refused(host: str) -> None:
    with service(allow_cidrs=[]) as at:
        sent = message(f"http://{host}:9/")
        answer = at.post(sent)
        assert (answer.status, answer.body["error"]) == (400, "VALIDATION_ERROR")
        assert re.match(
            r"Invalid targetUrl: requests to its address are refused \(.+\)", answer.body["message"]
        )
        assert at.milepost.items("notifications") == []
        # One of a list, or of another program, is refused when it is due.
        at.milepost.submit("notifications", sent)
        at.work()
        assert category(at.item(sent)) == ("REJECTED", "INVALID_TARGET")


def test_an_address_within_an_allowed_network_and_a_name_are_accepted() -> None:
    with service(allow_cidrs=["10.1.0.0/16"]) as at:
        assert [
            at.post(message(f"http://{host}/")).status
            for host in ("10.1.2.3", "10.2.2.3", "office.internal")
        ] == [200, 400, 200]


@pytest.mark.parametrize("host", ["0x7f.1", "127.1", "2130706433", "0177.0.0.1"])
def test_s24_addresses_in_other_spellings_are_refused_at_once(host: str) -> None:
    with service() as at:
        answer = at.post(message(f"http://{host}/"))
        assert (answer.status, answer.body["error"]) == (400, "VALIDATION_ERROR")


def test_s24_a_name_is_looked_up_and_vetted_on_every_retry() -> None:
    clock, found = VirtualClock(), ["127.0.0.1", "10.0.0.1"]

    async def rebinding(host: str) -> list[Any]:
        return [ip_address(found.pop(0))]

    with Partner(answers((503, b"", "Connection: close"))) as partner, service(clock=clock) as at:
        at.state.deliverer.use(net.Client(allow_cidrs=LOOPBACK, resolver=rebinding))
        sent = message(f"http://partner.example:{partner.port}/")
        at.post(sent)
        at.see_through(clock, sent)
        assert category(at.item(sent)) == ("REJECTED", "INVALID_TARGET")
        assert (len(partner.requests), found) == (1, [])


def test_s24_a_network_that_is_allowed_can_be_called() -> None:
    with Partner(answers(200)) as partner, service(allow_cidrs=["127.0.0.1/32"]) as at:
        assert one_try(at, partner.url)["status"] == "COMPLETED"


def test_a_kept_connection_serves_many_messages() -> None:
    with (
        Partner(answers(200)) as partner,
        service(destinations={"office": {"url": partner.url, "concurrency": 1}}) as at,
    ):
        for number in range(5):
            at.post(message(partner.url, messageId=str(number)))
        at.work()
        assert (len(partner.requests), partner.connections) == (5, 1)


def test_slow_names_of_one_sender_cost_the_messages_of_another_no_attempt() -> None:
    clock, go = VirtualClock(), threading.Event()

    def lookup(host: str) -> list[str]:
        if host.startswith("slow"):
            go.wait(PATIENCE)
        return ["127.0.0.1"]

    with (
        Partner(answers(204)) as partner,
        service(clock=clock, timeouts={"connect": 0.3, "read": 5, "total": 5}) as at,
    ):
        at.state.deliverer.use(
            net.Client(allow_cidrs=LOOPBACK, resolver=SystemResolver(lookup), connections=128)
        )
        slow = [
            message(f"http://slow{n}.test:{partner.port}/", senderId="one", messageId=f"s{n}")
            for n in range(150)
        ]
        good = [
            message(f"http://fast{n}.test:{partner.port}/", senderId="two", messageId=f"g{n}")
            for n in range(20)
        ]
        for sent in (*slow, *good):
            assert at.post(sent).status == 200
        at.work()
        assert {(at.item(sent)["status"], at.item(sent)["total_attempts"]) for sent in good} == {
            ("COMPLETED", 0)
        }
        ended = Counter((item["status"], item["total_attempts"]) for item in map(at.item, slow))
        # Those that were looked up are charged to their own names; those that had no slot wait,
        # uncounted.
        assert set(ended) == {("RETRY_SCHEDULED", 1), ("WAITING", 0)}
        assert {
            at.item(sent)["error"]["category"] for sent in slow if at.item(sent)["total_attempts"]
        } == {"DNS_FAILURE"}
        [waiting, *_] = [item for item in map(at.item, slow) if item["status"] == "WAITING"]
        assert "too many other names" in waiting["history"][-1]["note"]
        go.set()
