"""The quarantine over HTTP: list, replay, drop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from tests import standins
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import LiveServer

from milepost_aws.ledger.names import ResourceNames

QUARANTINE = "/api/v1/quarantine"


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


def test_where_nothing_is_set_aside_nothing_is_replayed_or_dropped(at: GuardedServer) -> None:
    assert at.call("GET", QUARANTINE).body == {"set_aside": [], "more": False}
    assert at.call("POST", f"{QUARANTINE}/replay", {"all": True, "reason": "x"}).body == {
        "replayed": []
    }
    assert at.call("POST", f"{QUARANTINE}/drop", {"all": True, "reason": "x"}).body == {
        "dropped": []
    }


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "x"},
        {"reason": "x", "all": True, "ids": ["a"]},
        {"reason": " ", "all": True},
        {"all": True},
    ],
)
@pytest.mark.parametrize("act", ["replay", "drop"])
def test_it_is_said_which_and_why(
    shared_server: LiveServer, act: str, body: dict[str, Any]
) -> None:
    answered = shared_server.call("POST", f"{QUARANTINE}/{act}", body)
    assert (answered.status, answered.body["code"]) == (400, "wrong-value")


def test_it_is_for_those_who_see_all_routes_and_may_operate(at: GuardedServer) -> None:
    limited, reader = (
        at.key("admin", name="limited", routes=["parcels"]),
        at.key("read", name="reader"),
    )
    for method, path, body in (
        ("GET", QUARANTINE, None),
        ("POST", f"{QUARANTINE}/replay", {"all": True, "reason": "x"}),
        ("POST", f"{QUARANTINE}/drop", {"all": True, "reason": "x"}),
    ):
        assert at.call(method, path, body, key=limited).body["code"] == "not-allowed"
        assert at.call(method, path, body, key=reader).status == (200 if method == "GET" else 403)


def test_on_aws_a_message_goes_back_to_its_queue_or_is_thrown_away(aws_server: LiveServer) -> None:
    place = urlsplit(aws_server.ctx.ledger.url)
    names = ResourceNames(place.path.strip("/"))
    sqs = boto3.client(
        "sqs", region_name=standins.REGION, endpoint_url=parse_qs(place.query)["endpoint"][0]
    )
    url = sqs.get_queue_url(QueueName=names.queue("parcels", "weigh"))["QueueUrl"]

    def strange() -> dict[str, Any]:
        """What is set aside, once our workers have met a message that nobody can read."""
        aws_server.work()
        [found] = aws_server.call("GET", QUARANTINE).body["set_aside"]
        return dict(found)

    sqs.send_message(QueueUrl=url, MessageBody="what is this?")
    aside = strange()
    assert (aside["kind"], aside["content"]["body"], aside["at"][-1]) == (
        "message",
        "what is this?",
        "Z",
    )
    answered = aws_server.call(
        "POST",
        f"{QUARANTINE}/replay",
        {"ids": [aside["id"], "nothing"], "reason": "x", "for": "ops"},
    )
    assert [(one["key"], one["done"]) for one in answered.body["replayed"]] == [
        (aside["id"], True),
        ("nothing", False),
    ]
    assert aws_server.call("GET", QUARANTINE).body == {"set_aside": [], "more": False}
    again = strange()
    assert aws_server.call("POST", f"{QUARANTINE}/drop", {"all": True, "reason": "x"}).body == {
        "dropped": [again["id"]]
    }
    assert aws_server.call("GET", QUARANTINE).body["set_aside"] == []
    acts = aws_server.call("GET", "/api/v1/acts").body["acts"]
    assert [(act["verb"], act["by"], act["done"]) for act in acts] == [
        ("drop", "local", 1),
        ("replay", "local for ops", 1),
    ]
