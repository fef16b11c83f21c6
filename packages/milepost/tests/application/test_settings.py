"""Settings of an application: typed, from its table and the environment; a mistake names the field
and what would be right."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import milepost as mp
import milepost.application as mpa


class Retry(mpa.AppSettings, frozen=True):
    attempts: int = 3
    base: str = "1s"


class Destination(mpa.AppSettings, frozen=True):
    url: str


class Wishes(mpa.AppSettings, frozen=True):
    inbox: str
    mode: Literal["fast", "slow"] = "slow"
    limit: int = 10
    retry: Retry = Retry()
    hosts: list[str] = []
    destinations: dict[str, Destination] = {}
    queues: str | list[dict[str, Any]] | None = None


def read(table: dict[str, Any], **environment: str) -> Wishes:
    return mpa.Application("mail-box", Wishes).configured(table, environment).settings


def test_a_table_with_tables_in_it_becomes_a_typed_value() -> None:
    found = read(
        {
            "inbox": "in",
            "retry": {"attempts": 5},
            "destinations": {"crm": {"url": "http://127.0.0.1/"}},
        }
    )
    assert found == Wishes(
        inbox="in",
        retry=Retry(attempts=5),
        destinations={"crm": Destination(url="http://127.0.0.1/")},
    )


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            {},
            "milepost.toml: [mail-box] inbox: Object missing required field `inbox`; expected inbox, mode, limit, retry",
        ),
        (
            {"inbox": "in", "limt": 3},
            "milepost.toml: [mail-box] limt: Object contains unknown field `limt`; expected inbox, mode, limit",
        ),
        ({"inbox": 3}, "milepost.toml: [mail-box] inbox: expected text, got a whole number"),
        (
            {"inbox": "in", "mode": "quick"},
            "milepost.toml: [mail-box] mode: Invalid enum value 'quick'; expected fast or slow",
        ),
        (
            {"inbox": "in", "retry": {"attempts": "3"}},
            "[mail-box] retry.attempts: expected a whole number, got text",
        ),
        (
            {"inbox": "in", "retry": {"atempts": 3}},
            "[mail-box] retry.atempts: Object contains unknown field `atempts`; expected attempts, base",
        ),
        (
            {"inbox": "in", "destinations": {"erp": {"url": "x"}, "crm": {}}},
            "[mail-box] destinations.crm.url: Object missing required field `url`; expected url",
        ),
    ],
)
def test_a_mistake_names_the_field_and_what_would_be_right(
    table: dict[str, Any], told: str
) -> None:
    with pytest.raises(mp.ConfigMistake) as found:
        read(table)
    assert told in str(found.value)


def test_the_environment_has_precedence_field_by_field() -> None:
    found = read(
        {"inbox": "in", "limit": 3, "hosts": ["a"]},
        MILEPOST_MAIL_BOX_LIMIT="7",
        MILEPOST_MAIL_BOX_HOSTS='["b", "c"]',
        MILEPOST_MAIL_BOX_RETRY='{"attempts": 1}',
        MILEPOST_MAIL_BOX_QUEUES="queues.json",
    )
    assert found == Wishes(
        inbox="in", limit=7, hosts=["b", "c"], retry=Retry(attempts=1), queues="queues.json"
    )


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(
        mp.ConfigMistake, match=r"MILEPOST_MAIL_BOX_LIMIT: expected a whole number, got text$"
    ):
        read({"inbox": "in"}, MILEPOST_MAIL_BOX_LIMIT="many")
    with pytest.raises(
        mp.ConfigMistake,
        match=r"MILEPOST_MAIL_BOX_RETRY attempts: expected a whole number, got text$",
    ):
        read({"inbox": "in"}, MILEPOST_MAIL_BOX_RETRY='{"attempts": "x"}')


@pytest.mark.parametrize("name", ["", "Mail", "mail box", "9mail", "mail_box", "m" * 41])
def test_a_name_that_can_be_no_table_and_no_command_is_refused(name: str) -> None:
    with pytest.raises(mp.UsageError, match="an application cannot be called"):
        mpa.Application(name, mpa.AppSettings)


def test_settings_must_be_declared_as_such() -> None:
    with pytest.raises(mp.UsageError, match="write a subclass of"):
        mpa.Application("mail", dict)  # type: ignore[type-var]


class Caller(mpa.AppSettings, frozen=True):
    allow_cidrs: tuple[str, ...] = ()


def test_an_application_adds_to_the_networks_that_requests_may_go_to() -> None:
    application = mpa.Application("caller", Caller)
    found = application.configured(
        {"allow_cidrs": ["10.1.0.0/16"]}, {}, allow_cidrs=["127.0.0.0/8"]
    )
    assert found.settings == Caller(allow_cidrs=("127.0.0.0/8", "10.1.0.0/16"))
    assert application.configured({}, {}, allow_cidrs=["127.0.0.0/8"]).settings == Caller(
        allow_cidrs=("127.0.0.0/8",)
    )
    by_variable = application.configured(
        {}, {"MILEPOST_CALLER_ALLOW_CIDRS": '["10.1.0.0/16"]'}
    ).settings
    assert by_variable == Caller(allow_cidrs=("10.1.0.0/16",))
    without = mpa.Application("mail-box", Wishes).configured(
        {"inbox": "in"}, {}, allow_cidrs=["127.0.0.0/8"]
    )
    assert without.settings == Wishes(inbox="in")


def test_a_network_that_cannot_be_is_named_with_its_field() -> None:
    with pytest.raises(
        mp.ConfigMistake,
        match=r"milepost.toml: \[caller\] allow_cidrs\[1\] is '10.0.0.1/8', .* write '10.0.0.0/8'",
    ):
        mpa.Application("caller", Caller).configured({"allow_cidrs": ["::1/128", "10.0.0.1/8"]}, {})
