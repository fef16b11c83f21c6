"""Settings of deposits: the sample of the guide is read, and everything that is missing is named at
once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost_deposits.application import application
from milepost_deposits.dspace.api import open_dspace
from milepost_deposits.fetch.content import ContentStage
from milepost_deposits.fetch.metadata import MetadataStage
from milepost_deposits.files import FileStore
from milepost_deposits.settings import DepositsSettings, check_settings

SAMPLE = """
[deposits]
inbox = "inbox"
crossref = "http://127.0.0.1:9101"
content = "http://127.0.0.1:9102/pdf/{doi}"
allow_cidrs = ["127.0.0.0/8"]
mailto = "library@example.org"
files = "files"
content_redirects = ["127.0.0.1"]
attempts = { metadata = 3, content = 3, submit = 3 }
[deposits.submit]
dspace = "http://127.0.0.1:9103/server"
collection = "123456789/2"
user_env = "DSPACE_USER"
password_env = "DSPACE_PASSWORD"
[deposits.mail]
smtp = "smtp://127.0.0.1:2525"
sender = "deposits@example.org"
to = ["librarian@example.org"]
"""


def test_the_smallest_configuration_is_read() -> None:
    settings: DepositsSettings = application.configured(
        tomllib.loads(SAMPLE)["deposits"], {}
    ).settings
    assert settings.attempts.content == 3
    assert settings.submit.collection == "123456789/2"
    assert settings.metadata_form == "dspace8"
    assert settings.mail is not None
    assert settings.mail.to == ("librarian@example.org",)
    check_settings(settings, {"DSPACE_USER": "u", "DSPACE_PASSWORD": "p"})


def test_everything_that_is_missing_is_named_in_one_error() -> None:
    table = tomllib.loads(SAMPLE)["deposits"]
    del table["mailto"], table["content"], table["submit"]["collection"]
    with pytest.raises(mp.ConfigMistake) as raised:
        check_settings(application.configured(table, {}).settings, {})
    said = str(raised.value)
    for missing in ("content", "mailto", "collection", "DSPACE_USER", "DSPACE_PASSWORD"):
        assert missing in said


def test_the_address_of_the_dashboard_is_a_url() -> None:
    table = tomllib.loads(SAMPLE)["deposits"]
    table["mail"]["dashboard"] = "milepost.example.org"
    with pytest.raises(
        mp.ConfigMistake,
        match=r"\[deposits.mail\] dashboard is 'milepost.example.org': write the URL that people open",
    ):
        check_settings(application.configured(table, {}).settings)


def test_the_submission_service_needs_a_place_to_search() -> None:
    table = tomllib.loads(SAMPLE)["deposits"]
    table["submit"] = {
        "dss": {"queue": "q", "results": "r", "system": "DSpace@MIT", "source": "wiley"},
        "collection": "1/2",
    }
    settings = application.configured(table, {}).settings
    assert settings.metadata_form == "dspace8", "that of today's service"
    table["submit"]["dss"]["metadata"] = "old"
    assert application.configured(table, {}).settings.metadata_form == "old"
    with pytest.raises(mp.ConfigMistake, match="search"):
        check_settings(settings, {})


@pytest.mark.parametrize("stage", [MetadataStage, ContentStage])
def test_no_item_is_claimed_where_a_setting_is_missing(
    stage: type[MetadataStage | ContentStage], tmp_path: Path
) -> None:
    table = tomllib.loads(SAMPLE)["deposits"]
    stage(application.configured(table, {}).settings, FileStore(str(tmp_path))).ready()
    del table["mailto"]
    with pytest.raises(mp.ConfigMistake, match="mailto"):
        stage(application.configured(table, {}).settings, FileStore(str(tmp_path))).ready()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"allow_cidrs": ["10.0.0.1/8"]}, r"\[deposits\] allow_cidrs\[0\]"),
        ({"content_redirects": ["a/b"]}, "give host names"),
        ({"content_largest": -1}, "largest=… not less than 0"),
        (
            {"submit": {"dspace": "repository.example.org", "collection": "1/2"}},
            "begins with https",
        ),
        (
            {"submit": {"dspace": "https://me:pw@repository.example.org", "collection": "1/2"}},
            "no user and password",
        ),
        (
            {"submit": {"dspace": "https://repository.example.org/?a=b", "collection": "1/2"}},
            "without '?'",
        ),
    ],
)
def test_a_setting_that_the_client_refuses_is_a_usage_error(
    wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(mp.UsageError, match=said) as caught:
        settings: DepositsSettings = application.configured(
            tomllib.loads(SAMPLE)["deposits"] | wrong, {}
        ).settings
        for stage in (MetadataStage, ContentStage):
            _ = stage(settings, FileStore(str(tmp_path)))._client
        open_dspace(settings, {}, settings.submit.dspace or "")
    assert "me:pw" not in str(caught.value)


def test_a_route_with_a_setting_that_the_client_refuses_is_not_made() -> None:
    table = tomllib.loads(SAMPLE)["deposits"] | {"content_redirects": [""]}
    with pytest.raises(mp.UsageError, match="give host names"):
        _ = application.configured(table, {}).routes
