"""Route files of the tests, and a template as they look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ASSETS = """
from __future__ import annotations

import milepost as mp

assets = mp.Route("assets", key=["assetId", "batchId"])
assets.external("CC")
# another
assets.external("Scout", overdue="30d")
"""

REMOTE = """
assets.external("Remote", resend_after="7d")
"""

CHECK = """

@assets.stage("check", timeout="20s", concurrency=4)
def check(item: mp.Item) -> mp.Outcome:
    return mp.Done()
"""

DEPOSITS = """
from __future__ import annotations

import milepost as mp

deposits = mp.Route("deposits", key="doi", dialect="today")


@deposits.stage("metadata", timeout="20s", concurrency=4, checks=mp.Checks(every="1h", overdue="2d"))
def metadata(item: mp.Item) -> mp.Outcome:
    return mp.Done()


@deposits.stage("content", batch=50, pauses=True)
def content(items: list[mp.Item]) -> list[mp.Outcome]:
    return [mp.Done() for _ in items]


deposits.external("submit")
deposits.external("theirs", queue="https://sqs.eu-west-2.amazonaws.com/123456789012/their-queue")
"""

APPLICATION = """
from __future__ import annotations

import milepost as mp
import milepost.application as mpa

application = mpa.Application("desk", mpa.AppSettings)


@application.routes
def routes(settings: mpa.AppSettings) -> list[mp.Route]:
    route = mp.Route("desk", key="id")
    route.external("answer")
    return [route]


@application.alerts
def alerts(settings: mpa.AppSettings) -> list[mpa.AlertRule]:
    return [mpa.AlertRule(name="desk", to=["log", "sns:arn:aws:sns:eu-west-2:123456789012:ops"], route="desk")]


@application.aws
def aws(settings: mpa.AppSettings) -> mpa.AwsAccess:
    theirs = "https://sqs.us-east-1.amazonaws.com/123456789012/their-input"
    return mpa.AwsAccess(sends_to=(theirs,), receives_from=("our-results",), objects=("s3://desk-files/in/box/",), sends_mail=True, secrets=("DESK_PASSWORD",))


@application.endpoint("POST", "/ask", scope="submit", summary="Ask")
async def ask(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> mpa.Answer:
    return mpa.Answer({})


@application.endpoint("GET", "/asked/{key}", scope="read", summary="Read")
async def asked(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> mpa.Answer:
    return mpa.Answer({})


@application.service("poll", every="5m")
def poll(app: mpa.AppContext[mpa.AppSettings]) -> None:
    app.submit("desk", {"id": "polled"})
"""

EMAIL = "ops@example.org"
KEY = "arn:aws:kms:eu-west-2:123456789012:key/0a1b2c3d-0000-4000-8000-0123456789ab"
TOPIC = "arn:aws:sns:eu-west-2:123456789012:ops"

DSS = {"queue": "dss-input", "results": "dss-output", "system": "DSpace@MIT", "source": "wiley"}
VARIABLES = {
    "MILEPOST_DEPOSITS_CONTENT": "https://publisher.example/pdf/{doi}",
    "MILEPOST_DEPOSITS_INBOX": "s3://wiley-stage/inbox",
    "MILEPOST_DEPOSITS_FILES": "s3://wiley-stage/files",
    "MILEPOST_DEPOSITS_MODE": "continuous",
    "MILEPOST_DEPOSITS_SUBMIT": json.dumps(
        {"dss": DSS, "search": "https://dspace.example/server", "collection": "1721.1/2"}
    ),
}
"""Settings of the application of the case "deposits", in the environment in which the templates are
made."""

CASES: dict[str, tuple[dict[str, str], list[str]]] = {
    "assets": ({"assets.py": ASSETS}, ["--alarm-email", EMAIL]),
    "remote": ({"assets.py": ASSETS.replace("# another", REMOTE)}, ["--alarm-email", EMAIL]),
    "check": ({"assets.py": ASSETS.replace("# another", CHECK)}, ["--alarm-email", EMAIL]),
    "both": ({"assets.py": ASSETS, "deposits.py": DEPOSITS}, ["--alarm-email", EMAIL]),
    "older": (
        {"assets.py": ASSETS, "deposits.py": DEPOSITS},
        ["--alarm-email", EMAIL, "--tables-format", "1"],
    ),
    "evidence": (
        {"assets.py": ASSETS.replace('"batchId"]', '"batchId"], evidence=True')},
        ["--alarm-email", EMAIL],
    ),
    "key": ({"assets.py": ASSETS}, ["--alarm-email", EMAIL, "--key", "new", "--no-reserve"]),
    "given": ({"assets.py": ASSETS}, ["--alarm-email", EMAIL, "--key", KEY]),
    "topic": (
        {"assets.py": ASSETS},
        [
            *("--alarm-topic", TOPIC, "--relay-at-once", "40", "--stream-window", "2"),
            *("--warm-throughput", "10000", "--repair-within", "12h"),
        ],
    ),
    "application": (
        {"desk.py": APPLICATION},
        ["--alarm-email", EMAIL, "--secret", "DESK_PASSWORD=desk/password"],
    ),
    "deposits": ({}, ["--application", "deposits", "--alarm-email", EMAIL]),
}
"""What is made of them, by the name of the test's fixture: files and how alarms reach somebody."""

HANDLER = """
def handler(event, context):
    return {"batchItemFailures": [], "handler": __name__}
"""


def write_case(folder: Path, name: str) -> list[str]:
    """The case's route files, and placeholders for the functions' code; answers the arguments of
    `python -m milepost_aws.infra`."""
    files, alarms = CASES[name]
    arguments = [
        "--prefix",
        "test",
        "--out",
        str(folder / "out"),
        "--code",
        str(folder / "code"),
        *alarms,
    ]
    lambdas = folder / "code" / "milepost_aws" / "lambdas"
    lambdas.mkdir(parents=True)
    for handler in ("worker", "relay", "resender", "lists", "services", "accept"):
        (lambdas / f"{handler}.py").write_text(HANDLER)
    (lambdas / "__pycache__").mkdir()
    for python in ("313", "311"):
        (lambdas / "__pycache__" / f"worker.cpython-{python}.pyc").write_bytes(b"compiled")
    for file, text in files.items():
        (folder / file).write_text(text)
        arguments += [
            "--application" if "mpa.Application(" in text else "--routes",
            str(folder / file),
        ]
    return arguments


class Template:
    """A CloudFormation template. References are written as the logical id that they name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "test-milepost.template.json"
        self.resources: dict[str, dict[str, Any]] = json.loads(self.path.read_text())["Resources"]

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties by logical id."""
        return {
            id: plain(resource.get("Properties", {}))
            for id, resource in self.resources.items()
            if resource["Type"] == f"AWS::{kind}"
        }

    def ids(self, kind: str) -> set[str]:
        return set(self.of(kind))

    def named(self, kind: str, attribute: str) -> dict[str, dict[str, Any]]:
        """Properties by the name that AWS will show."""
        return {properties[attribute]: properties for properties in self.of(kind).values()}

    def id_of(self, kind: str, attribute: str, name: str) -> str:
        (found,) = (id for id, properties in self.of(kind).items() if properties[attribute] == name)
        return found

    def statements(self, function: str) -> dict[str, dict[str, Any]]:
        """What a function may do, by the statement's id; actions and resources are lists."""
        role = self.named("Lambda::Function", "FunctionName")[function]["Role"]
        return statements(self.of("IAM::Role")[role])


def statements(role: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = [
        statement
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
    return {
        one["Sid"]: {**one, "Action": listed(one["Action"]), "Resource": listed(one["Resource"])}
        for one in found
    }


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def plain(value: Any) -> Any:
    """References become the id that is referred to, and joined texts one text."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return value["Ref"]
    if set(value) == {"Fn::GetAtt"}:
        id, attribute = value["Fn::GetAtt"]
        return id if attribute in ("Arn", "QueueName") else f"{id}.{attribute}"
    if set(value) == {"Fn::Join"}:
        return value["Fn::Join"][0].join(str(plain(one)) for one in value["Fn::Join"][1])
    return {name: plain(one) for name, one in value.items()}
