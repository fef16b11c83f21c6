"""Which hosts the HTTP client calls: the guard on real connections, rebinding, redirects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.net.partner import OPEN, Line, Partner, always, failure

import milepost_net as net
from milepost_net import SendState


# The address guard --------------------------------------------------------------------------------
def test_without_leave_no_request_goes_to_this_machine() -> None:
    with Partner(always()) as partner, net.Client() as client:
        for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
            error = failure(client, f"http://{host}:{partner.port}/s3cret")
            assert (type(error), error.kind, error.sent) == (
                net.AddressRefused,
                "address-refused",
                SendState.NOT_SENT,
            )
            assert "allow_cidrs" in str(error)
        assert partner.connections == 0


def test_a_name_is_resolved_once_and_the_vetted_address_is_used() -> None:
    """DNS rebinding: the second answer to the same question is a private address. It is never asked
    for."""
    asked: list[str] = []

    async def resolver(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.66"]

    with (
        Partner(always()) as partner,
        net.Client(allow_cidrs=["127.0.0.1/32"], resolver=resolver) as client,
    ):
        url = f"http://Partner.Example.:{partner.port}/"
        assert client.request("GET", url).status == 200
        assert asked == ["partner.example"]
        assert partner.requests[0].headers["host"] == f"partner.example:{partner.port}"
        client.close()
        assert isinstance(failure(client, url), net.AddressRefused), (
            "a new connection is vetted anew"
        )
        assert asked == ["partner.example"] * 2


def test_of_a_names_addresses_only_those_that_may_be_used_are() -> None:
    async def resolver(host: str) -> list[str]:
        return ["127.0.0.66", "169.254.169.254", "10.0.0.1", "127.0.0.1"]

    with (
        Partner(always()) as partner,
        net.Client(allow_cidrs=["127.0.0.1/32"], resolver=resolver) as client,
    ):
        assert client.request("GET", f"http://partner.example:{partner.port}/").status == 200


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async def resolver(host: str) -> list[str]:
        return ["127.0.0.66", "127.0.0.1"]

    with Partner(always()) as partner, net.Client(allow_cidrs=OPEN, resolver=resolver) as client:
        assert client.request("GET", f"http://partner.example:{partner.port}/").status == 200


def test_an_ipv6_address_is_called_as_well() -> None:
    try:
        partner = Partner(always(), host="::1")
    except OSError:
        pytest.skip("there is no IPv6 here")
    with (
        partner,
        net.Client(allow_cidrs=["::1/128"]) as client,
        net.Client(allow_cidrs=["127.0.0.0/8"]) as other,
    ):
        assert client.request("GET", partner.url).status == 200
        assert partner.requests[0].headers["host"] == f"[::1]:{partner.port}"
        assert isinstance(failure(other, partner.url), net.AddressRefused)


# Redirects ----------------------------------------------------------------------------------------
def to(location: str, status: int = 302) -> Callable[[Line], None]:
    return always(status, b"", f"Location: {location}")


def test_redirects_are_answers_unless_they_are_asked_for(client: net.Client) -> None:
    with Partner(to("http://127.0.0.66/")) as partner:
        assert client.request("GET", partner.url).status == 302
        assert (
            client.request("POST", partner.url, redirects=net.Redirects(["*.example"])).status
            == 302
        )


def paths(line: Line) -> None:
    while (request := line.read()) is not None:
        number = int(request.target.rpartition("/")[2] or 0)
        if number:
            line.answer(302, b"", f"Location: ../hop/{number - 1}")
        else:
            line.answer(200, b"there")


def test_redirects_on_the_same_host_are_followed_up_to_a_number(client: net.Client) -> None:
    with Partner(paths) as partner:
        answer = client.request(
            "GET",
            f"{partner.url}hop/3",
            headers={"Authorization": "Bearer x"},
            redirects=net.Redirects(most=3),
        )
        assert (answer.body, answer.url) == (b"there", f"{partner.url}hop/0")
        assert [request.headers["authorization"] for request in partner.requests] == [
            "Bearer x"
        ] * 4
        error = failure(client, f"{partner.url}hop/4", redirects=net.Redirects(most=3))
    assert isinstance(error, net.RedirectRefused)
    assert error.response is not None
    assert (error.sent, error.response.status) == (SendState.ANSWERED, 302)


def test_another_host_must_be_in_the_list_and_gets_no_credentials() -> None:
    async def resolver(host: str) -> list[str]:
        return ["127.0.0.1"]

    with (
        Partner(always(200, b"file")) as files,
        Partner(to(f"http://cdn.files.example:{files.port}/x")) as partner,
    ):
        with net.Client(allow_cidrs=OPEN, resolver=resolver) as client:
            url = f"http://publisher.example:{partner.port}/"
            headers = {
                "Authorization": "Bearer x",
                "Cookie": "a",
                "X-Api-Key": "k",
                "Accept": "application/pdf",
            }
            for hosts in (
                (),
                ("files.example",),
                ("*.cdn.files.example",),
                ("les.example",),
                ("*.example.org",),
            ):
                assert isinstance(
                    failure(client, url, headers=headers, redirects=net.Redirects(hosts)),
                    net.RedirectRefused,
                )
            assert files.requests == []
            for allowed in ("cdn.files.example", "*.files.example", "CDN.Files.Example."):
                assert (
                    client.request(
                        "GET", url, headers=headers, redirects=net.Redirects([allowed])
                    ).body
                    == b"file"
                )
            assert files.requests[0].headers["accept"] == "application/pdf"
            assert not {"authorization", "cookie", "x-api-key"} & set(files.requests[0].headers)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest",
        "http://2852039166/",
        "file:///etc/passwd",
        "http://a@b/",
        "//[::ffff:a9fe:a9fe]/",
        "http://[",
        "\\\\x",
    ],
)
def test_each_hop_passes_the_guard(client: net.Client, location: str) -> None:
    with Partner(to(location)) as partner:
        everything = net.Redirects(["169.254.169.254", "::ffff:a9fe:a9fe", "b"])
        error = failure(client, partner.url, redirects=everything)
    assert isinstance(error, (net.AddressRefused, net.RedirectRefused))


@pytest.mark.parametrize(
    "options",
    [{"hosts": [""]}, {"hosts": ["http://a/"]}, {"hosts": [7]}, {"hosts": ["*."]}, {"most": 0}],
)
def test_redirects_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(net.NetUsageError, match="Redirects"):
        net.Redirects(**options)
