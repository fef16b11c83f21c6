"""Settings and messages that the HTTP client refuses: a command ends with one line, an endpoint
answers 4xx, a message waits or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.cli.conftest import Shell
from tests.notifications.partners import TIME, message, service

import milepost as mp
from milepost_notifications import application
from milepost_notifications.operate.collector import figures_of

API = "/api/v1/notifications"
URL = "https://a.example/"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"allow_cidrs": ["10.0.0.1/8"]}, r"\[notifications\] allow_cidrs\[0\]"),
        ({"timeouts": {"read": 0}}, r"milepost.toml: \[notifications\].*read=0"),
        ({"concurrency": 0}, "at least 1"),
        (
            {"destinations": {"crm": {"url": "ftp://a"}}},
            r"destinations\.crm\.url: a URL begins with https",
        ),
        (
            {"destinations": {"crm": {"url": URL, "timeouts": {"total": 0}}}},
            r"destinations\.crm: .*total=0",
        ),
        (
            {"destinations": {"crm": {"url": URL, "headers": {"Host": "b"}}}},
            r"destinations\.crm: the header Host",
        ),
        (
            {"destinations": {"crm": {"url": URL, "tls": {"key_file": "key.pem"}}}},
            r"destinations\.crm: .*needs certificate_file",
        ),
        (
            {"destinations": {"crm": {"url": URL, "redirects": {"hosts": ["a/b"]}}}},
            r"destinations\.crm: .*give host names",
        ),
        (
            {"destinations": {"crm": {"url": URL, "redirects": {"most": 0}}}},
            r"destinations\.crm: .*most=0",
        ),
        (
            {
                "destinations": {
                    "crm": {
                        "url": URL,
                        "auth": {"kind": "oauth2", "token_url": "ftp://a", "client_id": "b"},
                    }
                }
            },
            r"destinations\.crm: a URL begins with https",
        ),
    ],
)
def test_a_setting_that_the_client_refuses_is_a_usage_error(
    table: dict[str, Any], said: str
) -> None:
    with pytest.raises(mp.UsageError, match=said):
        _ = application.configured(table, environment={}).routes


def test_a_command_names_the_wrong_setting_in_one_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write(
        "milepost.toml",
        'applications = ["notifications"]\n[notifications.destinations.crm]\nurl = "https://a.example:0/"\n',
    )
    answer = shell.started("status")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err.startswith(
        "milepost: milepost.toml: [notifications] destinations.crm.url: port 0 does not exist"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "https://me:pw@a.example/"},
        {"url": URL, "timeouts": {"total": 0}},
        {"url": URL, "tls": {"key_file": "key.pem"}},
        {"url": URL, "redirects": {"most": 0}},
    ],
)
def test_a_destination_that_the_client_refuses_is_refused_with_400(wrong: dict[str, Any]) -> None:
    with service() as at:
        answer = at.call("PUT", f"{API}/destinations/crm", wrong)
        assert (answer.status, answer.body["code"]) == (400, "wrong-value")
        assert "crm" in answer.body["detail"]
        assert "me:pw" not in answer.body["detail"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            {"tls": {"ca_file": "nowhere.pem"}},
            r"destinations\.crm\.tls: .*nowhere.pem.*No such file",
        ),
        (
            {"signing_secret_env": "CRM_SECRET"},
            r"destinations\.crm\.signing_secret_env: the variable CRM_SECRET: .* base64",
        ),
        (
            {"auth": {"kind": "headers", "env": {"Host": "CRM_SECRET"}}},
            r"destinations\.crm\.auth: the header Host",
        ),
    ],
)
def test_a_secret_or_a_certificate_that_the_client_refuses_makes_messages_wait(
    own: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_SECRET", "not base64!")
    with service(destinations={"crm": {"url": URL, **own}}) as at:
        fault = at.state.deliverer.fault(at.state.destinations.all["crm"])
        with pytest.raises(mp.ConfigMistake, match=said):
            raise mp.ConfigMistake(fault)
        sent = message(f"{URL}hooks")
        assert at.post(sent).status == 200
        at.work()
        assert (at.item(sent)["status"], at.item(sent)["total_attempts"]) == ("WAITING", 0)


@pytest.mark.parametrize(
    "wrong",
    [{"targetUrl": "ftp://a.example/"}, {"headers": {"Host": "b"}}, {"headers": {"X-A": "a\nb"}}],
)
def test_a_message_that_the_client_refuses_is_refused_with_400(wrong: dict[str, Any]) -> None:
    with service() as at:
        answer = at.post(message(URL, **wrong))
        assert (answer.status, answer.body["error"]) == (400, "VALIDATION_ERROR")


def test_a_url_of_a_list_that_is_none_stops_no_figures_and_no_page() -> None:
    with service() as at:
        url = "ftp://a.example/"
        content = {
            "messageId": "m-1",
            "timestamp": TIME,
            "senderId": "shop",
            "targetUrl": url,
            "method": "POST",
            "headers": {},
            "body": None,
        }
        [receipt] = at.milepost.submit("notifications", content, not_before="1h")
        at.state.collector.turn(at.app)
        assert "(invalid)" in figures_of(at.app).destinations
        for path in (
            f"/notifications/messages/{quote(receipt.key, safe='')}",
            f"{API}/messages/{quote(receipt.key, safe='')}",
        ):
            assert at.call("GET", path).status < 500
