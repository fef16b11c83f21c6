"""The OpenAPI description: valid, complete, and kept by the server for generated requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.requests import Request
from tests.http.live_server import LiveServer

from milepost.http.auth.authenticator import ANONYMOUS
from milepost.http.openapi import described, document, rendered
from milepost.http.protocol.endpoint import Call
from milepost.http.protocol.problems import TITLES
from milepost.http.server.assembly import all_endpoints
from milepost.ports.documents import CURSOR, Cursor

CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
PER_OPERATION = 6
STREAMS = ("/api/v1/events",)
"""What does not end by itself."""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return document(all_endpoints(), "0")


def operations(told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_endpoint_for_programs_is_described_once(told: dict[str, Any]) -> None:
    names = [name for name, _ in operations(told)]
    served = [
        f"{endpoint.method} {re.sub(r':path', '', endpoint.path)}"
        for endpoint in described(all_endpoints())
    ]
    assert sorted(names) == sorted(served)
    ids = [operation["operationId"] for _, operation in operations(told)]
    assert len(ids) == len(set(ids))


def test_every_operation_says_what_it_does_and_what_may_go_wrong(told: dict[str, Any]) -> None:
    for name, operation in operations(told):
        assert operation["summary"], name
        assert len(operation["description"].splitlines()) > 1, f"{name} has no docstring"
        problems = [
            status
            for status, answer in operation["responses"].items()
            if "application/problem+json" in answer.get("content", {})
        ]
        assert {"400", "500", "503"} <= set(problems), name
        assert ("401" in problems) == bool(operation["security"]), name


def test_every_code_of_a_problem_is_in_its_schema(told: dict[str, Any]) -> None:
    assert told["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == sorted(TITLES)


def test_the_page_for_people_has_every_operation_and_no_script_of_its_own(
    shared_server: LiveServer, told: dict[str, Any]
) -> None:
    page = shared_server.call("GET", "/api/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    text = page.raw.decode()
    assert text.count('<section class="card" id=') == sum(1 for _ in operations(told)) + 1
    assert re.findall(r"<script[^>]*>[^<]", text) == []
    assert "style=" not in text
    assert [place for place in re.findall(r'(?:href|src)="([^"]*)"', text) if "//" in place] == []
    assert set(re.findall(r'href="#([^"]*)"', text)) - {"main"} <= set(
        re.findall(r' id="([^"]*)"', text)
    )
    assert "`" not in text


def test_the_page_shows_nothing_of_a_description_as_markup(
    told: dict[str, Any], shared_server: LiveServer
) -> None:
    call = Call(ANONYMOUS, {}, raw=Request({"type": "http", "headers": []}))
    page = rendered(
        shared_server.opened.state,
        call,
        {**told, "info": {"version": "0", "description": "<b>bold</b>"}},
    ).body
    assert b"<b>bold</b>" not in page.body
    assert b"&lt;b&gt;bold" in page.body


def test_whatever_is_sent_the_answers_are_as_described(shared_server: LiveServer) -> None:
    """Made-up calls of every operation, the same ones each time: none breaks the server, none is
    answered otherwise than described."""
    shared_server.milepost.submit("parcels", {"id": "a"}, {"id": "b/c", "weigh": "reject"})
    shared_server.work()
    shared_server.ctx.ledger.write(CURSOR, "office", Cursor(2, 0))
    served = shared_server.call("GET", "/api/openapi.json").body
    for path in STREAMS:
        served["paths"].pop(path, None)
    for _, operation in operations(served):
        for parameter in operation["parameters"]:
            if parameter["name"] == "route":
                parameter["schema"] = {"enum": ["parcels", "letters", "nowhere"]}
            if parameter["name"] == "stage" and parameter["in"] == "path":
                parameter["schema"] = {"enum": ["weigh", "deliver", "nowhere"]}
            if parameter["name"] == "name" and parameter["in"] == "path":
                parameter["schema"] = {"enum": ["office", "nobody"]}
            if parameter["name"] == "key":
                parameter["schema"] = {
                    "anyOf": [{"enum": ["a", "b/c"]}, {"type": "string", "minLength": 1}]
                }
    schema = schemathesis.openapi.from_dict(served)
    schema.config.update(base_url=shared_server.url)
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(
            case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
            | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        )
        @settings(
            max_examples=PER_OPERATION,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def attempt(case: schemathesis.Case) -> None:
            nonlocal tried
            tried += 1
            answer = case.call(timeout=30)
            assert answer.status_code != 500, case.as_curl_command()
            case.validate_response(answer, checks=CHECKS)

        attempt()
    assert tried > PER_OPERATION
