"""Accept function: requests of API Gateway to endpoints that submit items, answered from the
ledger."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.aws.infra.access_check import Watch, allowed_of, denied
from tests.aws.infra.code_folder import synthesise
from tests.aws.lambdas.deployment import named
from tests.aws.lambdas.event_source_mapping import Context as LambdaCall
from tests.postingest.aws_scene import WallClock
from tests.standins import REGION

from milepost.core.errors import ConfigMistake, LedgerBusy
from milepost.engine.auth import make_key
from milepost.engine.context import Context
from milepost.ports.documents import PROCESS
from milepost_aws.lambdas import accept, start

MESSAGE = {
    "messageId": "m-1",
    "timestamp": "2026-11-18T12:00:00Z",
    "senderId": "orders",
    "targetUrl": "https://partner.example/events",
    "body": {"order": 7},
}


@pytest.fixture(autouse=True)
def environment(
    endpoint: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}")
    monkeypatch.setenv("MILEPOST_BLOBS", str(tmp_path / "blobs"))
    monkeypatch.setenv("MILEPOST_APPLICATIONS", "notifications")
    monkeypatch.setenv("MILEPOST_NOTIFICATIONS_ORIGINS", '["https://shop.example"]')
    monkeypatch.delenv("MILEPOST_ROUTES", raising=False)
    start.forget()
    yield
    start.forget()


def secret(ctx: Context, name: str, scope: str) -> str:
    return make_key(ctx, name, [scope], by="ops", reason="a test", attributes={"sender": name})[1]


@pytest.fixture
def key() -> str:
    ready = start.opened()
    return secret(ready.ctx, "orders", "submit")


def request(
    method: str = "POST",
    path: str = "/message",
    body: Any = None,
    key: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A request as API Gateway hands it over."""
    headers = {
        "host": "abc.execute-api.eu-west-2.amazonaws.com",
        "content-type": "application/json",
        **more.pop("headers", {}),
    }
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {
            "stage": "$default",
            "domainName": headers["host"],
            "http": {
                "method": method,
                "path": path,
                "sourceIp": "203.0.113.7",
                "protocol": "HTTP/1.1",
            },
        },
        "body": None if body is None else body if isinstance(body, str) else json.dumps(body),
        "isBase64Encoded": False,
        **more,
    }


def called(event: dict[str, Any]) -> tuple[int, Any]:
    answer = accept.handler(event, named(LambdaCall(), "test-accept"))
    return answer["statusCode"], json.loads(answer["body"]) if answer["body"] else None


def test_a_message_is_in_the_ledger_before_the_answer_and_a_repeat_is_known(key: str) -> None:
    status, accepted = called(request(body=MESSAGE, key=key))
    assert (status, accepted["duplicateDetected"], accepted["queued"]) == (200, False, False)
    assert accepted["storedMessage"]["status"] == "PENDING"
    [item] = start.opened().ledger.get(
        [("notifications", "m-1#orders#2026-11-18T12:00:00.000Z#https://partner.example/events")]
    )
    assert item is not None
    status, repeated = called(request(body=MESSAGE, key=key))
    assert (status, repeated["duplicateDetected"], repeated["messageId"]) == (200, True, "m-1")
    assert called(request(body={**MESSAGE, "body": {"order": 8}}, key=key))[0] == 409


def test_an_accepted_message_is_answered_though_no_heartbeat_can_be_written(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, failed = start.opened(), []
    write = ready.ledger.write

    def fail(kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        if kind == PROCESS:
            failed.append(name)
            raise LedgerBusy("throttled")
        return write(kind, name, value, expect)

    monkeypatch.setattr(ready.ledger, "write", fail)
    assert called(request(body=MESSAGE, key=key))[0] == 200
    assert failed == ["test-accept"]


def test_who_has_no_key_is_refused_in_the_shape_of_the_endpoint() -> None:
    status, problem = called(request(body=MESSAGE))
    assert (status, problem["error"]) == (403, "FORBIDDEN")
    secret(start.opened().ctx, "ops", "admin")
    start.forget()
    status, problem = called(request(body=MESSAGE))
    assert (status, problem["error"]) == (401, "UNAUTHORIZED")


def test_a_body_in_base64_and_a_named_stage_are_read(key: str) -> None:
    event = request(
        key=key,
        path="/prod/message",
        body=base64.b64encode(json.dumps(MESSAGE).encode()).decode(),
        isBase64Encoded=True,
    )
    event["requestContext"]["stage"] = "prod"
    assert called(event)[0] == 200


def test_malformed_requests_are_answered_and_pages_for_people_are_not_served(key: str) -> None:
    assert called(request(body="{", key=key))[1]["error"] == "INVALID_JSON"
    status, refused = called(request("GET", "/message", key=key))
    assert (status, refused["error"]) == (405, "METHOD_NOT_ALLOWED")
    for path in ("/", "/api/v1/status", "/login", "/metrics"):
        assert called(request("GET", path, key=key))[0] == 404


def test_a_browser_may_ask_first() -> None:
    asks = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    answer = accept.handler(request("OPTIONS", headers=asks), named(LambdaCall(), "test-accept"))
    assert (answer["statusCode"], answer["headers"]["access-control-allow-origin"]) == (
        204,
        "https://shop.example",
    )


def test_answers_that_are_no_text_are_in_base64() -> None:
    answer = accept.response_of(200, [(b"vary", b"a"), (b"Vary", b"b")], b"\xff")
    assert (answer["headers"], answer["body"], answer["isBase64Encoded"]) == (
        {"vary": "a, b"},
        "/w==",
        True,
    )


def test_without_an_endpoint_that_submits_the_function_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "bare_application.py"
    file.write_text(
        "import milepost as mp\nimport milepost.application as mpa\napplication = mpa.Application('bare', mpa.AppSettings)\n"
        "@application.routes\ndef routes(settings):\n    route = mp.Route('bare', key='id')\n    route.external('a')\n    return [route]\n"
    )
    monkeypatch.setenv("MILEPOST_APPLICATIONS", str(file))
    with pytest.raises(
        ConfigMistake,
        match="no application of MILEPOST_APPLICATIONS has an endpoint with the scope 'submit'",
    ):
        called(request(body=MESSAGE))


@pytest.mark.slow
@pytest.mark.wire
def test_the_function_does_only_what_its_role_allows(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = synthesise(tmp_path / "stack", "notifications", None, "--application")
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test?endpoint={endpoint}")
    key = secret(start.opened().ctx, "orders", "submit")
    start.forget()
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test")
    watch = Watch(monkeypatch, WallClock())
    handler = watch.over("test-accept", accept.handler)
    large = {**MESSAGE, "messageId": "m-2", "body": "x" * 20_000}
    for body in (MESSAGE, MESSAGE, large, {**MESSAGE, "body": "other"}, {"messageId": "malformed"}):
        handler(request(body=body, key=key), named(LambdaCall(), "test-accept"))
    for container in watch.containers.values():
        container.ledger.close()
    used = watch.uses["test-accept"]
    assert ("dynamodb:PutItem", "table test-notifications") in {
        (use.action, use.place) for use in used
    }
    assert ("dynamodb:UpdateItem", frozenset({"tally"})) in {
        (use.action, use.leading) for use in used
    }
    assert not any(
        "application" in use.leading for use in used if use.action != "dynamodb:Query"
    ), "destinations are read alone"
    refused = denied(used, allowed_of(template, template.statements("test-accept").values()))
    assert not refused, f"the accept function may not: {refused}"
