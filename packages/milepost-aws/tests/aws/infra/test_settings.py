"""Settings that are refused before synthesis, and numbers derived from a stage. Runs without the
CDK."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.aws.infra.templates import ASSETS, EMAIL, TOPIC

import milepost as mp
import milepost.application as mpa
from milepost.core.errors import ConfigMistake
from milepost.core.routes.route import Route, Stage
from milepost.route_files import load_application
from milepost_aws.infra.app import main, places_in_code, services_of, variables_of
from milepost_aws.infra.bundle import copy_routes, route_files
from milepost_aws.infra.settings import (
    Settings,
    at_once,
    object_place,
    queue_arn,
    run_seconds,
    visibility_seconds,
)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    (tmp_path / "growing.py").write_text(ASSETS)
    (tmp_path / "code").mkdir()
    return [
        "--routes",
        str(tmp_path / "growing.py"),
        "--prefix",
        "test",
        "--code",
        str(tmp_path / "code"),
        "--out",
        str(tmp_path / "out"),
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "alarms would have no receiver"),
        (["--alarm-email", "ops"], "--alarm-email is 'ops'"),
        (["--alarm-topic", "ops"], "--alarm-topic is 'ops'"),
        (["--alarm-email", EMAIL, "--alarm-topic", TOPIC], "not both"),
        (
            ["--alarm-email", EMAIL, "--key", "mine"],
            "--key is 'mine'; give 'new', or an ARN such as arn:aws:kms:",
        ),
        (["--alarm-email", EMAIL, "--secret", "PASSWORD"], "--secret is 'PASSWORD='"),
        (["--alarm-email", EMAIL, "--prefix", "Test"], "the prefix is 'Test'"),
        (
            ["--alarm-email", EMAIL, "--prefix", "a-prefix-that-is-too-long"],
            "2 to 20 small letters",
        ),
        (["--alarm-email", EMAIL, "--code", "no/such/folder"], "there is no folder no/such/folder"),
        (["--alarm-email", EMAIL, "--relay-at-once", "0"], "--relay-at-once is 0"),
        (["--alarm-email", EMAIL, "--stream-window", "301"], "give 0 to 300 seconds"),
        (
            ["--alarm-email", EMAIL, "--warm-throughput", "1000"],
            "a new table has 4,000 write units a second: give more",
        ),
        (["--alarm-email", EMAIL, "--repair-within", "soon"], "--repair-within"),
        (["--alarm-email", EMAIL, "--routes", "no_such.py"], "there is no route file no_such.py"),
    ],
)
def test_refused(
    arguments: list[str],
    tmp_path: Path,
    more: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*arguments, *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ("one = mp.Route('one')", "has no stages"),
        (
            "one = mp.Route('one')\n@one.stage('a', timeout='15m')\ndef a(item): ...",
            "its timeout is 900 s, and a function is ended after 900 s",
        ),
        (
            "one = mp.Route('heads', evidence=True)\none.external('a')",
            "the route name 'heads' is reserved",
        ),
        (
            "one = mp.Route('one')\none.external('a', queue='theirs')",
            "a queue's address is https://sqs.",
        ),
        (
            "one = mp.Route('a-b')\none.external('c')\ntwo = mp.Route('a')\ntwo.external('b-c')",
            "would both use the queue 'test-a-b-c'",
        ),
    ],
)
def test_routes_that_cannot_be_deployed(
    arguments: list[str], tmp_path: Path, routes: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "growing.py").write_text(f"import milepost as mp\n{routes}\n")
    assert main([*arguments, "--alarm-email", EMAIL]) == 2
    assert said in capsys.readouterr().err


def stage(**options: object) -> Stage:
    route = Route("route")
    route.stage("stage", **options)(lambda item: mp.Done())
    return route.stages[0]


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 300),
        ({"timeout": "20s"}, 50),
        # Ten messages, four at a time: three turns.
        ({"timeout": "20s", "concurrency": 4}, 90),
        ({"timeout": "20s", "concurrency": 1, "batch": 100}, 50),
        ({"timeout": "10m", "concurrency": 1}, 900),
    ],
)
def test_how_long_a_worker_may_run(options: dict[str, object], seconds: int) -> None:
    assert run_seconds(stage(**options)) == seconds
    assert visibility_seconds(stage(**options)) > 6 * seconds


def test_how_many_workers_at_once() -> None:
    assert [at_once(stage(concurrency=n)) for n in (1, 2, 16, 5000)] == [2, 2, 16, 1000]


def test_where_the_functions_find_their_routes() -> None:
    assert (
        places_in_code(["examples/archive.py", "a/b.py:one", "package.module:two"])
        == "routes/archive.py,routes/b.py:one,package.module:two"
    )


def test_route_files_are_laid_beside_what_they_import(tmp_path: Path) -> None:
    for place in ("one/a.py", "two/a.py", "one/helpers/__init__.py", "one/words.txt"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(place)
    files = route_files([str(tmp_path / "one/a.py:name"), "package.module"])
    copy_routes(files, [tmp_path / "one/helpers", tmp_path / "one/words.txt"], tmp_path / "out")
    found = {
        str(path.relative_to(tmp_path / "out")): path.read_text()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert found == {
        "a.py": "one/a.py",
        "helpers/__init__.py": "one/helpers/__init__.py",
        "words.txt": "one/words.txt",
    }
    with pytest.raises(ConfigMistake, match=r"two route files are called a\.py"):
        route_files([str(tmp_path / "one/a.py"), str(tmp_path / "two/a.py")])
    with pytest.raises(ConfigMistake, match="there is no"):
        copy_routes([], [tmp_path / "gone"], tmp_path / "out")


def test_the_functions_are_given_the_settings_of_their_applications() -> None:
    environment = {
        "MILEPOST_POST_INGEST_QUEUES": "[]",
        "MILEPOST_LEDGER": "memory:",
        "MILEPOST_OTHER_A": "1",
        "HOME": "/",
    }
    assert variables_of(["post-ingest"], environment) == {"MILEPOST_POST_INGEST_QUEUES": "[]"}
    assert variables_of([], environment) == {}


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (mpa.AwsAccess(sends_to=("their queue",)), "uses the queue 'their queue'"),
        (mpa.AwsAccess(objects=("files",)), "give s3://BUCKET/PREFIX"),
        (mpa.AwsAccess(publishes_to=("ops",)), "publishes to 'ops'"),
        (mpa.AwsAccess(secrets=("DSPACE_PASSWORD",)), "give --secret DSPACE_PASSWORD=NAME"),
    ],
)
def test_what_an_application_uses_must_be_named(
    tmp_path: Path, access: mpa.AwsAccess, said: str
) -> None:
    route = mp.Route("desk")
    route.external("answer")
    with pytest.raises(ConfigMistake, match=said):
        Settings("test", (route,), "", tmp_path, access=(access,), alarm_emails=(EMAIL,))


def test_receivers_of_alerts_are_among_what_an_application_uses() -> None:
    topic = "arn:aws:sns:eu-west-2:123456789012:ops"
    to = ["log", f"sns:{topic}", "email:ses://eu-west-2?from=a@example.org&to=b@example.org"]
    configured = load_application("notifications").configured({"alerts": {"to": to}}, {})
    assert [(one.publishes_to, one.sends_mail) for one in configured.aws] == [((topic,), True)]
    assert services_of([configured])["notifications-alerts"] == 60_000
    assert load_application("notifications").configured({}, {}).aws == []


def test_deposits_declare_queues_and_places() -> None:
    dss = {
        "queue": "dss-input",
        "results": "https://sqs.us-east-1.amazonaws.com/123456789012/dss-out",
        "system": "IR-8",
        "source": "wiley",
    }
    table = {
        "inbox": "s3://wiley/inbox",
        "files": "s3://wiley/files",
        "submit": {"dss": dss, "collection": "1/2"},
    }
    application = load_application("deposits").configured(table, {})
    with pytest.MonkeyPatch.context() as patch:
        # Where a template is made, boto3 is not installed.
        patch.setitem(sys.modules, "boto3", None)
        assert [route.name for route in application.routes] == ["deposits"]
    [access] = application.aws
    assert (access.sends_to, access.receives_from) == (("dss-input",), (dss["results"],))
    assert access.objects == ("s3://wiley/inbox", "s3://wiley/files")
    assert (access.sends_mail, access.secrets) == (False, ())
    direct = {"submit": {"dspace": "https://dspace.example/server", "collection": "1/2"}}
    assert load_application("deposits").configured(direct, {}).aws[0].secrets == (
        "DSPACE_USER",
        "DSPACE_PASSWORD",
    )
    assert queue_arn(access.receives_from[0]) == ("us-east-1", "123456789012", "dss-out")
    assert object_place(access.objects[0]) == ("wiley", "inbox")
