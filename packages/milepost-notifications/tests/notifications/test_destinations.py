"""Destinations: which one a target belongs to, how its settings resolve, and how it is called."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.net.partner import Line
from tests.net.test_http_tls import Authority
from tests.notifications.partners import Partner, VirtualClock, answers, message, service

import milepost as mp
import milepost_net as net
from milepost_notifications import application
from milepost_notifications.deliver import Deliverer
from milepost_notifications.destinations import Destinations, LaneLimits
from milepost_notifications.route import notifications_route
from milepost_notifications.settings import DestinationSettings, NotificationsSettings


def registry(**urls: str) -> Destinations:
    settings = {name: DestinationSettings(url=url) for name, url in urls.items()}
    return Destinations(NotificationsSettings(destinations=settings))


@pytest.mark.parametrize(
    ("target", "lane"),
    [
        ("https://crm.example/", "crm"),
        ("https://CRM.example:443/anything?x=1", "crm"),
        ("https://crm.example/v1", "v1"),
        ("https://crm.example/v1/", "v1"),
        ("https://crm.example/v1?x=/v1/people", "v1"),
        ("https://crm.example/v1/people/7", "people"),
        ("https://crm.example/v1/people", "people"),
        ("https://crm.example/v1/peoples", "v1"),
        ("https://crm.example/v10", "crm"),
        ("http://crm.example/v1", "crm.example:80"),
        ("https://crm.example:8443/", "crm.example:8443"),
        ("https://crm.example.org/", "crm.example.org:443"),
        ("https://[2001:db8::1]/", "[2001:db8::1]:443"),
    ],
)
def test_prefixes_match_by_component_and_the_longest_wins(target: str, lane: str) -> None:
    found = registry(
        crm="https://crm.example/",
        v1="https://crm.example/v1/",
        people="https://crm.example/v1/people",
    )
    assert found.lane_of(target) == lane


def test_what_a_destination_does_not_say_is_as_in_the_application() -> None:
    table: dict[str, Any] = {
        "retry": {"attempts": 5, "base": "2s"},
        "timeouts": {"connect": "1s", "read": "2s", "total": "3s"},
        "destinations": {
            "plain": {"url": "https://plain.example"},
            "own": {
                "url": "https://own.example",
                "retry": {"attempts": 9},
                "rate": "10/s",
                "concurrency": 2,
                "breaker": {"failures": 2},
            },
        },
    }
    configured = application.configured(table, environment={})
    lanes = LaneLimits(configured.state.destinations)
    plain, own, other = lanes["plain"], lanes["own"], lanes["elsewhere.example:443"]
    assert plain.retry == other.retry == mp.Backoff(attempts=5, base="2s", cap="60s")
    assert (plain.rate, plain.concurrency, other.concurrency) == (None, 16, 16)
    assert (own.retry, own.rate, own.concurrency) == (
        mp.Backoff(attempts=9, base="1s", cap="60s"),
        "10/s",
        2,
    )
    assert (own.breaker, plain.breaker) == (mp.Breaker(failures=2), mp.Breaker())
    assert configured.state.destinations.all["plain"].timeouts.total == 3.0
    assert sorted(lanes) == ["own", "plain"]


def test_destinations_may_be_added_replaced_and_removed_at_run_time() -> None:
    found = registry(crm="https://crm.example/")
    lanes = LaneLimits(found)
    found.put("crm", DestinationSettings(url="https://crm.example/v2", concurrency=3))
    found.put("new", DestinationSettings(url="https://new.example/", retry_statuses=(404,)))
    assert [
        found.lane_of(url)
        for url in ("https://crm.example/", "https://crm.example/v2/a", "https://new.example/x")
    ] == [
        "crm.example:443",
        "crm",
        "new",
    ]
    assert (lanes["crm"].concurrency, found.all["new"].retry_statuses) == (3, frozenset({404}))
    assert found.remove("crm")
    assert not found.remove("crm")
    assert (found.lane_of("https://crm.example/"), lanes["crm"].concurrency) == ("crm", 16)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"url": "ftp://a"}, r"destinations\.crm\.url: a URL begins with https"),
        ({"url": "https://a.example/?x=1"}, "has a query"),
        (
            {"url": "https://a.example", "headers": {"Host": "b"}},
            "header Host is set by the client",
        ),
        ({"url": "https://a.example", "retry": {"attempts": 0}}, "attempts=0"),
        ({"url": "https://a.example", "timeouts": {"total": 0}}, "total"),
        ({"url": "https://a.example", "rate": "often"}, "rate"),
        (
            {"url": "https://a.example", "retry_statuses": ["9xx"]},
            "retry_statuses: '9xx' is no status",
        ),
        ({"url": "https://a.example", "breaker": {"failures": 0}}, "failures=0"),
        ({"url": "https://a.example", "auth": {"kind": "magic"}}, "magic"),
        ({"url": "https://a.example", "sining_secret_env": "X"}, "sining_secret_env"),
        ({"url": "https://a.example", "concurrency": 0}, "concurrency is 0"),
        ({"url": "https://a.example", "response_bytes": -1}, "response_bytes is -1"),
        (
            {"url": "https://a.example", "signing_secret_env": "A", "signing_secret_file": "a"},
            "signing_secret_env and signing_secret_file name",
        ),
        (
            {
                "url": "https://a.example",
                "auth": {"kind": "bearer", "token_env": "A", "token_file": "a"},
            },
            r"auth\.token_env and auth\.token_file name the same secret; give one of them",
        ),
        (
            {
                "url": "https://a.example",
                "auth": {"kind": "headers", "env": {"X-Key": "A"}, "file": {"x-key": "a"}},
            },
            r"auth\.env and auth\.file both name a secret for the header x-key",
        ),
        (
            {
                "url": "https://a.example",
                "auth": {"kind": "oauth2", "token_url": "ftp://a", "client_id": "b"},
            },
            "a URL begins with https",
        ),
    ],
)
def test_a_wrong_setting_is_named(own: dict[str, Any], said: str) -> None:
    with pytest.raises(mp.ConfigMistake, match=said) as caught:
        _ = application.configured({"destinations": {"crm": own}}, environment={}).routes
    assert "crm" in str(caught.value)


def test_two_destinations_of_the_configuration_cannot_have_one_url() -> None:
    both = {"crm": {"url": "https://a.example/v1"}, "old": {"url": "https://A.example:443/v1/"}}
    with pytest.raises(
        mp.ConfigMistake, match=r"destinations\.old\.url: the destination crm has the same URL"
    ):
        _ = application.configured({"destinations": both}, environment={}).routes


def sent_to(own: dict[str, Any], **fields: Any) -> dict[str, str]:
    """The headers that a partner with these settings gets."""
    with (
        Partner(answers(200)) as partner,
        service(destinations={"crm": {"url": partner.url, **own}}) as at,
    ):
        at.post(message(partner.url, **fields))
        at.work()
        [request] = partner.requests
        return request.headers


def test_headers_of_the_destination_come_before_those_of_the_sender() -> None:
    got = sent_to({"headers": {"X-Team": "sales", "X-Colour": "red"}}, headers={"x-colour": "blue"})
    assert (got["x-team"], got["x-colour"], got["user-agent"]) == ("sales", "blue", "milepost")


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ({"kind": "bearer", "token_env": "CRM_TOKEN"}, "authorization", "Bearer s3cret"),
        (
            {"kind": "basic", "username": "ann", "password_env": "CRM_TOKEN"},
            "authorization",
            f"Basic {base64.b64encode(b'ann:s3cret').decode()}",
        ),
        ({"kind": "headers", "env": {"X-Api-Key": "CRM_TOKEN"}}, "x-api-key", "s3cret"),
    ],
)
def test_credentials_win_over_the_sender_and_are_never_stored(
    auth: dict[str, Any], header: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cret")
    with Partner(answers((500, value.encode() + b"? no"), 200)) as partner:
        clock = VirtualClock()
        with service(clock=clock, destinations={"crm": {"url": partner.url, "auth": auth}}) as at:
            sent = message(partner.url, headers={header: "of the sender"})
            at.post(sent)
            at.see_through(clock, sent)
            assert [one.headers[header] for one in partner.requests] == [value, value]
            assert "s3cret" not in json.dumps(at.item(sent))
            assert at.attempts(sent)[0]["error_details"]["response"]["body"].endswith("…? no")


@pytest.mark.parametrize(
    "own",
    [
        {"signing_secret_env": "CRM_SIGN"},
        {"previous_signing_secret_env": "CRM_SIGN", "signing_secret_env": "CRM_SIGN_NEW"},
        {"auth": {"kind": "basic", "username": "ann", "password_env": "CRM_SIGN"}},
    ],
)
def test_a_secret_that_a_partner_repeats_is_hidden(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = net.new_secret()
    monkeypatch.setenv("CRM_SIGN", secret)
    monkeypatch.setenv("CRM_SIGN_NEW", net.new_secret())
    with Partner(answers((400, f"wrong: {secret}".encode()))) as partner:
        with service(destinations={"crm": {"url": partner.url, **own}}) as at:
            sent = message(partner.url)
            at.post(sent)
            at.work()
            assert len(partner.requests) == 1
            [attempt] = at.attempts(sent)
            assert attempt["error_details"]["response"]["body"].startswith("wrong: ")
            assert secret.removeprefix("whsec_") not in json.dumps(at.item(sent))


def test_oauth2_fetches_one_token_keeps_it_and_fetches_anew_when_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")
    tokens = iter(["first", "second"])

    def token_endpoint(line: Line) -> None:
        while (request := line.read()) is not None:
            assert (
                request.headers["authorization"]
                == f"Basic {base64.b64encode(b'shop:s3cret').decode()}"
            )
            line.answer(
                200, json.dumps({"access_token": next(tokens), "expires_in": 3600}).encode()
            )

    refused: set[str] = set()

    def api(line: Line) -> None:
        while (request := line.read()) is not None:
            line.answer(401 if request.headers["authorization"] in refused else 200)

    with Partner(token_endpoint) as issuer, Partner(api) as partner:
        auth = {
            "kind": "oauth2",
            "token_url": issuer.url,
            "client_id": "shop",
            "client_secret_env": "CRM_CLIENT",
            "scope": "notify",
        }
        with service(destinations={"crm": {"url": partner.url, "auth": auth}}) as at:
            for number in range(5):
                at.post(message(partner.url, messageId=str(number)))
            at.work()
            assert [one.body for one in issuer.requests] == [
                b"grant_type=client_credentials&scope=notify"
            ]
            assert {one.headers["authorization"] for one in partner.requests} == {"Bearer first"}
            refused.add("Bearer first")
            sent = message(partner.url, messageId="later")
            at.post(sent)
            at.work()
            assert (at.item(sent)["status"], at.item(sent)["attempts"]) == ("COMPLETED", 0)
            assert partner.requests[-1].headers["authorization"] == "Bearer second"


def test_a_token_endpoint_that_refuses_is_a_failed_try_and_nothing_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")
    with (
        Partner(answers((400, b'{"error": "invalid_client"}'), (200, b"[]"))) as issuer,
        Partner(answers(200)) as partner,
    ):
        auth = {
            "kind": "oauth2",
            "token_url": issuer.url,
            "client_id": "shop",
            "client_secret_env": "CRM_CLIENT",
        }
        clock = VirtualClock()
        with service(
            clock=clock,
            destinations={"crm": {"url": partner.url, "auth": auth}},
            retry={"attempts": 2},
        ) as at:
            sent = message(partner.url)
            at.post(sent)
            at.see_through(clock, sent)
            assert [one["error_category"] for one in at.attempts(sent)] == [
                "TOKEN_REFUSED",
                "TOKEN_REFUSED",
            ]
            assert partner.requests == []


def test_mutual_tls_shows_the_destinations_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "office")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("127.0.0.1"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(str(authority.file))
    certificate, key = authority.certificate("client")
    tls = {"ca_file": str(authority.file), "certificate_file": certificate, "key_file": key}
    with Partner(answers(200), context=context) as partner:
        with service(destinations={"crm": {"url": partner.url, "tls": tls}}) as at:
            sent = message(partner.url)
            at.post(sent)
            at.work()
            assert at.item(sent)["status"] == "COMPLETED"


def test_the_health_check_names_the_destination_whose_secret_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CRM_TOKEN", raising=False)
    own = {
        "crm": {"url": "https://crm.example", "auth": {"kind": "bearer", "token_env": "CRM_TOKEN"}},
        "other": {"url": "https://other.example"},
    }
    with service(destinations=own) as at:
        [finding] = at.findings()
        assert (finding.level, "crm" in finding.what, "CRM_TOKEN" in finding.what) == (
            "bad",
            True,
            True,
        )
        monkeypatch.setenv("CRM_TOKEN", "x")
        assert [one.level for one in at.findings()] == ["ok"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/crm/../admin",
        "/v1/crm/%2e%2E/admin",
        "/v1/crm/.%2e",
        "/v1/crm/..%2fadmin",
        "/v1/crm/..;x/admin",
        "/v1/crm/a%5c..%5cadmin",
    ],
)
def test_a_path_that_climbs_out_of_a_prefix_gets_no_credentials_of_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cret")
    with Partner(answers(200)) as partner:
        own = {"url": f"{partner.url}v1/crm", "auth": {"kind": "bearer", "token_env": "CRM_TOKEN"}}
        with service(destinations={"crm": own}) as at:
            at.post(message(f"{partner.url}v1/crm/..a/b...", messageId="m-0"))
            at.post(message(f"{partner.url.rstrip('/')}{path}"))
            at.work()
        assert sorted(
            (one.target, "authorization" in one.headers) for one in partner.requests
        ) == sorted([("/v1/crm/..a/b...", True), (path, False)])
        with service(destinations={"crm": own}, unregistered="refuse") as strict:
            assert strict.post(message(f"{partner.url.rstrip('/')}{path}")).status == 400


def test_rows_of_dead_letters_leave_after_the_retention_too() -> None:
    settings = NotificationsSettings(retention="30d")
    resolved = Destinations(settings)
    route = notifications_route(settings, resolved, Deliverer(settings, resolved))
    failed = (mp.Status.MAX_RETRIES_EXCEEDED, mp.Status.REJECTED)
    assert route.keep == dict.fromkeys(
        (mp.Status.COMPLETED, *failed, mp.Status.CANCELLED), 30 * 86_400_000
    )


def retry(**given: Any) -> mp.Backoff:
    return application.configured(
        {"retry": given} if given else {}, environment={}
    ).state.destinations.unregistered.retry


def test_the_usual_schedule_lasts_about_a_day_and_the_seeds_is_a_preset() -> None:
    usual = retry()
    delays = [usual.delay(failures, 0.0).ms for failures in range(usual.attempts - 1)]
    assert (delays[0], 20 * 3_600_000 < sum(delays) < 28 * 3_600_000) == (1_000, True)
    assert retry(schedule="day") == usual
    assert retry(schedule="seed") == mp.Backoff(
        attempts=3, base="1s", factor=2.0, cap="60s", jitter=0.25
    )
    assert retry(schedule="day", attempts=5) == mp.Backoff(attempts=5, delays=usual.delays)


def test_settings_of_before_that_give_a_part_of_the_schedule_keep_theirs() -> None:
    assert retry(attempts=9) == mp.Backoff(attempts=9, base="1s", factor=2.0, cap="60s")
    assert retry(base="5s") == mp.Backoff(attempts=3, base="5s", factor=2.0, cap="60s")
    assert retry(jitter=0.0) == mp.Backoff(attempts=3, base="1s", factor=2.0, cap="60s", jitter=0.0)
    assert retry(attempts=8, delays=["5s", "5m"]) == mp.Backoff(
        attempts=8, base="1s", cap="60s", delays=("5s", "5m")
    )
    # As an earlier version has stored a destination that was added over HTTP.
    stored = {
        "attempts": 3,
        "base": "1s",
        "factor": 2.0,
        "cap": "60s",
        "jitter": 0.25,
        "delays": [],
    }
    assert retry(**stored) == retry(schedule="seed")
