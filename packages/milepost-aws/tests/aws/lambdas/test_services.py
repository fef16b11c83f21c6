"""Applications in functions: named by the environment, with their routes, and their services called
by a schedule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.aws.infra.access_check import Watch, allowed_of, denied
from tests.aws.infra.code_folder import synthesise
from tests.aws.lambdas.deployment import named
from tests.aws.lambdas.event_source_mapping import Context
from tests.postingest.aws_scene import WallClock
from tests.standins import REGION

from milepost.core.errors import MilepostError
from milepost.operations import Operations
from milepost_aws.lambdas import services, start

SOURCE = """
import milepost as mp
import milepost.application as mpa


class Settings(mpa.AppSettings, frozen=True):
    fails: bool = False


application = mpa.Application("desk", Settings)


@application.routes
def routes(settings):
    route = mp.Route("desk", key="id")
    route.external("answer")
    return [route]


@application.alerts
def alerts(settings):
    return [mpa.AlertRule(name="desk", to=["log"], route="desk", pauses_by=["robot"])]


@application.service("poll", every="1m")
def poll(app):
    if app.settings.fails:
        raise ValueError("the inbox is away")
    app.submit("desk", {"id": "polled"})


@application.service("count", every="1m")
def count(app):
    app.submit("desk", {"id": "counted"}, {"id": "large", "text": "x" * 9000})
    app.submit("desk", {"id": "large", "text": "other"})
    app.show("desk", "counted")
    app.documents.put("last", {"at": 1})
"""


@pytest.fixture(autouse=True)
def environment(
    endpoint: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    path = tmp_path / f"desk_{prefix.replace('-', '_')}.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}")
    monkeypatch.setenv("MILEPOST_BLOBS", str(tmp_path / "blobs"))
    monkeypatch.setenv("MILEPOST_APPLICATIONS", str(path))
    monkeypatch.delenv("MILEPOST_ROUTES", raising=False)
    start.forget()
    yield
    start.forget()


def keys() -> list[str]:
    opened = start.opened()
    return [
        key
        for key, item in zip(
            ("polled", "counted"),
            opened.ledger.get([("desk", "polled"), ("desk", "counted")]),
            strict=True,
        )
        if item
    ]


def call() -> Context:
    return named(Context(), "desk-services")


def test_each_service_has_a_turn_or_the_one_that_is_named() -> None:
    assert services.handler({"service": "desk-count"}, call()) == {"ran": ["desk-count"]}
    assert keys() == ["counted"]
    assert services.handler({}, call()) == {"ran": ["desk-poll", "desk-count", "desk-alerts"]}
    assert keys() == ["polled", "counted"]


def test_alerts_are_watched_for_by_a_turn_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    Operations(start.opened().ctx).pause("desk", "answer", by="robot", reason="the desk is closed")
    for _ in range(2):
        assert services.handler({"service": "desk-alerts"}, call()) == {"ran": ["desk-alerts"]}
    told = [
        json.loads(line)
        for line in capsys.readouterr().out.splitlines()
        if "milepost.alert" in line
    ]
    assert [one["data"]["title"] for one in told] == ["desk/answer is paused"]


def test_a_service_that_fails_hinders_no_other_and_the_run_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILEPOST_DESK_FAILS", "true")
    with pytest.raises(MilepostError, match="these services failed; the log says why: desk-poll"):
        services.handler({}, call())
    assert keys() == ["counted"]


@pytest.mark.slow
@pytest.mark.wire
def test_the_function_does_only_what_its_role_allows(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = synthesise(tmp_path / "stack", "desk.py", SOURCE, "--application")
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test?endpoint={endpoint}")
    Operations(start.opened().ctx).pause("desk", "answer", by="robot", reason="the desk is closed")
    # From now on as deployed: everything is there, and nothing is made.
    start.forget()
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("MILEPOST_LEDGER", f"dynamodb://{REGION}/test")
    watch = Watch(monkeypatch, WallClock())
    called = watch.over("test-services", services.handler)
    for _ in range(2):
        called({}, named(Context(), "test-services"))
    for container in watch.containers.values():
        container.ledger.close()
    used = watch.uses["test-services"]
    assert ("dynamodb:PutItem", "table test-desk") in {(use.action, use.place) for use in used}
    assert ("dynamodb:UpdateItem", frozenset({"alert"})) in {
        (use.action, use.leading) for use in used
    }
    refused = denied(used, allowed_of(template, template.statements("test-services").values()))
    assert not refused, f"the services may not: {refused}"
