"""Secrets in a sender's headers reach the partner, and are shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.cli.conftest import Shell
from tests.notifications.partners import ROUTE, Partner, Service, answers, key_of, message, service

import milepost as mp
from milepost.core.values import redaction
from milepost.evidence.verify import verify

SECRET = "SENDERSECRET"
SHOWN = {"Authorization": "…", "X-Colour": "red", "Content-Type": "text/plain"}
HEADERS = {**SHOWN, "Authorization": f"Bearer {SECRET}"}


def everything_shown(at: Service, sent: dict[str, object]) -> dict[str, str]:
    """All views of this message over HTTP, by their addresses."""
    key = quote(key_of(sent), safe="")
    above = f"/api/v1/routes/{ROUTE}"
    found = {}
    for address in (
        f"/items/{ROUTE}/{key}",
        f"/notifications/messages/{key}",
        f"/api/v1/notifications/messages/{key}",
        f"{above}/items/{key}",
        f"{above}/history/{key}",
        f"{above}/story/{key}",
        f"{above}/evidence/{key}",
        "/api/v1/events",
    ):
        answer = at.call("GET", address)
        assert answer.status == 200, (address, answer)
        found[address] = answer.raw.decode()
    return found


def test_no_view_shows_a_secret_of_the_sender_and_the_partner_gets_it() -> None:
    with service() as at, Partner(answers(200)) as partner:
        sent = message(partner.url, headers=HEADERS)
        assert at.post(sent).status == 200
        at.milepost.replace(
            ROUTE,
            {**at.item(sent)["input"], "body": "other"},
            by="ops",
            reason="the body was wrong",
        )
        at.work()
        assert partner.requests[0].headers["authorization"] == HEADERS["Authorization"]
        for address, text in everything_shown(at, sent).items():
            assert SECRET not in text, address
        item = at.call("GET", f"/api/v1/routes/{ROUTE}/items/{quote(key_of(sent), safe='')}").body
        assert item["input"]["headers"] == SHOWN
        assert item["replaced"][0]["content"]["headers"] == SHOWN
        assert at.item(sent)["input"]["headers"] == HEADERS, (
            "a program with the ledger reads the real value"
        )


def test_content_that_a_person_has_edited_keeps_what_was_hidden() -> None:
    with service() as at, Partner(answers(200)) as partner:
        sent = message(partner.url, headers=HEADERS)
        at.post(sent)
        key = key_of(sent)
        shown = at.call("GET", f"/api/v1/routes/{ROUTE}/items/{quote(key, safe='')}").body["input"]
        asked = {
            "verb": "replace",
            "keys": [key],
            "content": {
                **shown,
                "body": "other",
                "headers": {**shown["headers"], "X-Colour": "blue"},
            },
            "reason": "a test",
        }
        preview = at.call("POST", f"/api/v1/routes/{ROUTE}/acts", {**asked, "dry_run": True})
        assert preview.status == 200, preview
        assert sorted(one["field"] for one in preview.body["difference"]) == [
            "body",
            "headers.X-Colour",
        ]
        assert at.call("POST", f"/api/v1/routes/{ROUTE}/acts", asked).status == 200
        at.work()
        assert (partner.requests[0].body, partner.requests[0].headers["x-colour"]) == (
            b"other",
            "blue",
        )
        assert partner.requests[0].headers["authorization"] == HEADERS["Authorization"]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.write(
        "milepost.toml", 'ledger = "sqlite:///milepost.db"\napplications = ["notifications"]\n'
    )
    return made


def test_commands_show_and_export_no_secret_unless_it_is_asked_for(shell: Shell) -> None:
    shell.ok(
        "notifications",
        "send",
        "https://crm.example/",
        "--id",
        "m-1",
        "--header",
        f"Authorization: Bearer {SECRET}",
    )
    [key] = [json.loads(line)["key"] for line in shell.ok("export", ROUTE).out.splitlines()]
    for command in (
        ("show", ROUTE, key),
        ("show", ROUTE, key, "--json"),
        ("export", ROUTE, "--history"),
        ("export", ROUTE, "--format", "csv"),
        ("export", ROUTE, "--evidence"),
        ("notifications", "show", "m-1", "--json"),
    ):
        assert SECRET not in shell.ok(*command).out, command
    assert SECRET in shell.ok("export", ROUTE, "--secrets").out
    assert "--secrets is not for evidence" in shell("export", ROUTE, "--evidence", "--secrets").err


def test_evidence_without_an_output_that_holds_a_secret_can_be_verified(tmp_path: Path) -> None:
    route = mp.Route("logins", key="id")

    @route.stage("login")
    def login(item: mp.Item) -> mp.Outcome:
        return mp.Done({"token": SECRET})

    route.stage("leave")(lambda item: mp.Done({"said": item.results["login"]["token"][::-1]}))
    shell = Shell(tmp_path)
    with mp.open(f"sqlite:///{tmp_path / 'milepost.db'}", routes=[route]) as milepost:
        milepost.submit("logins", {"id": "a"})
        milepost.run(until_idle=0)
    assert shell.ok(
        "export",
        "logins",
        "--evidence",
        "--out",
        "evidence.jsonl",
        "--ledger",
        f"sqlite:///{tmp_path / 'milepost.db'}",
    )
    text = (tmp_path / "evidence.jsonl").read_text()
    assert SECRET not in text
    stages = json.loads(text.splitlines()[1])["record"]["stages"]
    assert ["output" in entry for entry in stages] == [False, True]
    assert verify(tmp_path / "evidence.jsonl").holds


def test_further_headers_may_hold_secrets_by_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_named", set())
    try:
        with (
            service(secret_headers=["X-Auth"]) as at,
            Partner(answers((404, SECRET.encode()))) as partner,
        ):
            sent = message(partner.url, headers={"x-auth": SECRET, "X-Colour": "red"})
            assert at.post(sent).status == 200
            at.work()
            for address, text in everything_shown(at, sent).items():
                assert SECRET not in text, address
            assert partner.requests[0].headers["x-auth"] == SECRET
            assert (
                at.call(
                    "GET", f"/api/v1/notifications/messages/{quote(key_of(sent), safe='')}"
                ).body["headers"]["X-Colour"]
                == "red"
            )
    finally:
        redaction.is_secret.cache_clear()


def test_a_secret_in_a_target_url_is_in_no_log_no_reason_and_no_target_url_of_a_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with service() as at, Partner(answers(410)) as partner:
        sent = message(f"{partner.url}services/T0A1B2C3D/abc123def456?token={SECRET}")
        assert at.post(sent).status == 200
        at.work()
        said = caplog.text + at.app.pauses(ROUTE)[0].reason
        for secret in ("T0A1B2C3D", "abc123def456", SECRET):
            assert secret not in said
        assert f"{mp.url_in_key(sent['targetUrl'])} answered 410 Gone" in said
        [listed] = at.call("GET", "/api/v1/notifications/messages").body["messages"]
        assert listed["targetUrl"] == mp.url_in_key(sent["targetUrl"])
        assert listed["targetUrl"].startswith(f"{partner.url}services/…/…?token=…~")
        shown = at.call(
            "GET", f"/api/v1/notifications/messages/{quote(listed['key'], safe='')}"
        ).body
        assert shown["targetUrl"] == sent["targetUrl"]
