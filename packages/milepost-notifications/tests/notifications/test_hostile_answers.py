"""Hostile answers and wrong secrets: each message ends as the partner's status says, or waits, and
nothing secret is recorded."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from tests.net.partner import Line
from tests.notifications.partners import Partner, VirtualClock, answers, key_of, message, service

import milepost_net as net
from milepost_notifications.credentials import Credentials, TokenRefused
from milepost_notifications.destinations import Destinations
from milepost_notifications.settings import DestinationSettings, NotificationsSettings, OAuth2Auth

API = "/api/v1/notifications"

AUTH = OAuth2Auth(token_url="https://id.example/", client_id="shop", client_secret_env="CRM_CLIENT")
CRM = Destinations(NotificationsSettings()).resolve(
    "crm", DestinationSettings(url="https://crm.example/", auth=AUTH)
)
HOSTILE = {
    "half of a surrogate pair": b'{"message": "\\ud800"}',
    "half of a surrogate pair as a name": b'{"details": {"\\ud800": 1}}',
    "an infinite number": b'{"code": 1e999}',
    "no number": b'{"code": NaN}',
    "a large integer": b'{"code": ' + b"9" * 400 + b"}",
    "a larger integer": b'{"code": ' + b"9" * 5000 + b"}",
    "deep": b'{"details": ' + b"[" * 240 + b"]" * 240 + b"}",
    "deeper": b'{"details": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "NUL and escapes": b'{"message": "\\u0000\\u001b[2J<script>alert(1)</script>\\u202e"}',
    "no text": b"\xff\xfe\x00\x80",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("ledger", ["memory:", "sqlite"])
def test_a_hostile_answer_is_recorded_and_shown(name: str, ledger: str, tmp_path: Any) -> None:
    with Partner(answers((400, HOSTILE[name]))) as partner:
        with service(f"sqlite:///{tmp_path}/n.db" if ledger == "sqlite" else ledger) as at:
            sent = message(partner.url)
            at.post(sent)
            at.work()
            item = at.item(sent)
            assert (item["status"], item["error"]["category"], len(partner.requests)) == (
                "REJECTED",
                "CLIENT_ERROR",
                1,
            )
            shown = at.call(
                "GET", f"{API}/messages/{key_of(sent).replace('#', '%23').replace('/', '%2F')}"
            )
            assert shown.status == 200
            assert shown.body["finalFailureDetails"]["lastHttpStatus"] == 400


ESCAPED = [
    r"wrong: ab\/cd+ef==",
    r"wrong: ab\u002fcd+ef==",
    "wrong: ab/cd+ef==",
    "wrong: ab%2Fcd%2Bef%3D%3D",
]


@pytest.mark.parametrize("said", ESCAPED)
def test_a_secret_is_hidden_however_json_writes_it(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "ab/cd+ef==")
    body = f'{{"message": "{said}", "errors": ["{said}"]}}'.encode()
    with Partner(answers((400, body))) as partner:
        auth = {"kind": "headers", "env": {"X-Api-Key": "CRM_TOKEN"}}
        with service(destinations={"crm": {"url": partner.url, "auth": auth}}) as at:
            sent = message(partner.url)
            at.post(sent)
            at.work()
            recorded = json.dumps(at.item(sent))
            assert "wrong: " in recorded
            for one in ("ab/cd", r"ab\\/cd", r"ab\\u002fcd", "ab%2Fcd"):
                assert one not in recorded, one


@pytest.mark.parametrize(
    "own",
    [
        {"auth": {"kind": "bearer", "token_env": "CRM_TOKEN"}},
        {"auth": {"kind": "headers", "env": {"X-Api-Key": "CRM_TOKEN"}}},
        {"auth": {"kind": "headers", "env": {"Host": "GOOD"}}},
        {"tls": {"ca_file": "/nowhere/ca.pem"}},
    ],
)
def test_credentials_that_cannot_be_sent_wait_uncounted_and_are_reported(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_TOKEN", "gehe\u00efm\nX: 1")
    monkeypatch.setenv("GOOD", "x")
    with service(destinations={"crm": {"url": "https://127.0.0.1:9/", **own}}) as at:
        sent = message("https://127.0.0.1:9/a")
        at.post(sent)
        at.work()
        item = at.item(sent)
        assert (item["status"], item["attempts"]) == ("WAITING", 0)
        assert "crm" in item["note"]
        assert "gehe" not in json.dumps(item)
        assert [one.level for one in at.findings()] == ["bad"]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"access_token": null}',
        b'{"access_token": ""}',
        b'{"access_token": {"a": 1}}',
        b'{"access_token": "a b\\r\\nX-Evil: 1"}',
        b'{"access_token": "\\ud800"}',
    ],
)
def test_an_answer_without_a_usable_token_is_refused(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")
    with Partner(answers((200, answer))) as issuer, Partner(answers(200)) as partner:
        auth = {
            "kind": "oauth2",
            "token_url": issuer.url,
            "client_id": "shop",
            "client_secret_env": "CRM_CLIENT",
        }
        with service(
            clock=VirtualClock(), destinations={"crm": {"url": partner.url, "auth": auth}}
        ) as at:
            sent = message(partner.url)
            at.post(sent)
            at.work()
            assert [one["error_category"] for one in at.attempts(sent)] == ["TOKEN_REFUSED"]
            assert partner.requests == []


def test_a_token_endpoint_that_breaks_off_leaves_no_doubt_about_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")

    tokens = iter([None, b'{"access_token": "t"}'])

    def breaks_off_once(line: Line) -> None:
        while line.read() is not None:
            answer = next(tokens)
            if answer is None or not line.answer(200, answer):
                return

    clock = VirtualClock()
    with Partner(breaks_off_once) as issuer, Partner(answers(200)) as partner:
        auth = {
            "kind": "oauth2",
            "token_url": issuer.url,
            "client_id": "shop",
            "client_secret_env": "CRM_CLIENT",
        }
        with service(clock=clock, destinations={"crm": {"url": partner.url, "auth": auth}}) as at:
            sent = message(partner.url)
            at.post(sent)
            at.see_through(clock, sent)
            assert [one["error_category"] for one in at.attempts(sent)] == ["TOKEN_REFUSED"]
            [request] = partner.requests
            assert "x-previous-outcome" not in request.headers


@pytest.mark.parametrize("life", ["NaN", "1e999", "-1e999", "null", "1" + "0" * 400, "0"])
def test_a_token_with_an_odd_life_is_used_and_fetched_anew_in_time(
    life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")
    issuer, now = _Issuer(200), [0.0]
    credentials = Credentials(issuer, lambda: now[0])  # type: ignore[arg-type]
    issuer.body = f'{{"access_token": "t", "expires_in": {life}}}'.encode()

    async def two_days() -> None:
        issuer.go.set()
        if life.startswith("10"):
            with pytest.raises(TokenRefused):
                await credentials.headers(CRM)
            return
        assert await credentials.headers(CRM) == {"Authorization": "Bearer t"}
        now[0] = 2 * 86_400.0
        await credentials.headers(CRM)
        assert issuer.calls == 2

    asyncio.run(two_days())


def test_a_destination_that_is_replaced_does_not_get_the_token_of_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")

    def token(text: str) -> Any:
        return answers((200, json.dumps({"access_token": text, "expires_in": 3600}).encode()))

    with (
        Partner(token("old")) as before,
        Partner(token("new")) as after,
        Partner(answers(200)) as partner,
        service() as at,
    ):
        for number, issuer in enumerate((before, after)):
            auth = {
                "kind": "oauth2",
                "token_url": issuer.url,
                "client_id": "shop",
                "client_secret_env": "CRM_CLIENT",
            }
            assert (
                at.call("PUT", f"{API}/destinations/crm", {"url": partner.url, "auth": auth}).status
                == 200
            )
            at.post(message(partner.url, messageId=f"m-{number}"))
            at.work()
        assert [one.headers["authorization"] for one in partner.requests] == [
            "Bearer old",
            "Bearer new",
        ]


class _Issuer:
    """Stands for the client at a token endpoint: it holds every call until it is let go."""

    def __init__(self, status: int = 500) -> None:
        self.calls, self.status, self.go = 0, status, asyncio.Event()
        self.body = b'{"access_token": "t", "expires_in": 60}'

    async def request_async(self, *_: Any, **__: Any) -> net.Response:
        self.calls += 1
        await self.go.wait()
        return net.Response(self.status, net.HeaderList(), self.body)


def test_tries_that_wait_for_one_token_share_its_failure_and_its_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRM_CLIENT", "s3cret")
    issuer = _Issuer()
    credentials = Credentials(issuer, lambda: 0.0)  # type: ignore[arg-type]

    async def many(status: int) -> list[Any]:
        issuer.go, issuer.status, issuer.calls = asyncio.Event(), status, 0
        tries = [asyncio.create_task(credentials.headers(CRM)) for _ in range(16)]
        await asyncio.sleep(0)
        tries[0].cancel()  # its worker has stopped; the others still want the token
        for _ in range(5):
            await asyncio.sleep(0)
        issuer.go.set()
        return (await asyncio.gather(*tries, return_exceptions=True))[1:]

    refused = asyncio.run(many(500))
    assert issuer.calls == 1, "a token endpoint that hangs is not asked 16 times in turn"
    assert all(isinstance(one, TokenRefused) for one in refused)
    # Another event loop, as after a restart of the worker in the same process.
    assert asyncio.run(many(200)) == [{"Authorization": "Bearer t"}] * 15
    assert issuer.calls == 1


def test_a_secret_of_the_sender_is_hidden_where_the_partner_repeats_it() -> None:
    said = b'{"message": "the key sender-key-4711 is wrong, so is s1d-c00kie"}'
    with Partner(answers((400, said))) as partner, service() as at:
        sent = message(
            partner.url,
            headers={
                "Authorization": "Bearer sender-key-4711",
                "Cookie": "s1d-c00kie",
                "X-Token": "is",
            },
        )
        at.post(sent)
        at.work()
        item = at.item(sent)
        recorded = json.dumps([item["error"], item["history"]])
        assert "so is" in recorded, "what is too short to be a secret is left"
        assert not any(one in recorded for one in ("sender-key-4711", "s1d-c00kie"))


def test_a_secret_in_a_header_that_is_no_utf_8_is_hidden_and_the_message_is_delivered() -> None:
    with (
        Partner(answers((200, b"", "Location: /for?name=Ren%E9&key=sender%2Dkey"))) as partner,
        service() as at,
    ):
        sent = message(partner.url, headers={"Authorization": "Bearer sender-key"})
        at.post(sent)
        at.work()
        item = at.item(sent)
        location = item["results"]["deliver"]["response"]["headers"]["Location"]
        assert (item["status"], location) == ("COMPLETED", "/for?name=Ren\ufffd&key=…")


@pytest.mark.parametrize("status", [200, 400])
def test_the_headers_of_an_answer_are_recorded_up_to_a_limit(status: int) -> None:
    def script(line: Line) -> None:
        while line.read() is not None:
            many = "".join(f"X-{number}: {'y' * 1_000}\r\n" for number in range(50))
            line.send(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{many}\r\n".encode())

    with Partner(script) as partner, service() as at:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        item = at.item(sent)
        answer = (
            item["results"]["deliver"]["response"]
            if status == 200
            else at.attempts(sent)[0]["error_details"]["response"]
        )
        assert (answer["cut"], list(answer["headers"])[:2], len(answer["headers"])) == (
            True,
            ["Content-Length", "X-0"],
            9,
        )
        assert len(json.dumps(item)) < 30_000


def test_a_put_on_a_connection_that_is_cut_is_a_try_of_its_own_when_it_is_repeated() -> None:
    """The partner may have acted on the first one: the second must say so."""

    def script(line: Line) -> None:
        while line.read() is not None:
            if len(partner.requests) == 2:
                line.reset()
                return
            line.answer(200)

    with (
        Partner(script) as partner,
        service(clock=(clock := VirtualClock()), destination_concurrency=1) as at,
    ):
        first, second = (
            message(partner.url, messageId=name, method="PUT") for name in ("first", "second")
        )
        at.post(first)
        at.post(second)
        for one in (first, second):
            at.see_through(clock, one)
        tries = [
            (one.headers["x-delivery-attempt"], one.headers.get("x-previous-outcome"))
            for one in partner.requests
        ]
        assert tries == [("1", None), ("1", None), ("2", "unknown")]


@pytest.mark.parametrize("whole", [True, False])
def test_a_compressed_error_is_recorded_as_text(whole: bool) -> None:
    packed = gzip.compress(b'{"message": "no such customer", "more": "' + b"x" * 100_000 + b'"}')
    body = packed if whole else b"\x1f\x8b broken"
    with Partner(answers((404, body, "Content-Encoding: gzip"))) as partner, service() as at:
        sent = message(partner.url)
        at.post(sent)
        at.work()
        said = at.attempts(sent)[0]["error_details"]["response"]["body"]
        assert said.startswith('{"message": "no such customer"' if whole else "\x1f\ufffd")
