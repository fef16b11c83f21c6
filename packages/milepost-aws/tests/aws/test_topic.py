"""Events on an SNS topic: messages in a queue behind it, an answer for each event, and the
relay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from tests.aws.topic_scene import Scene, accepted, fails, parcels

import milepost as mp
from milepost.cli.config import CliSettings
from milepost.core.errors import ConfigMistake, EventRefused, MilepostError
from milepost.core.events import Envelope
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.parked_events import release
from milepost_aws.topic import AT_ONCE, ENTRIES, LARGEST, Topic
from milepost_testing import SeededChance, VirtualClock, drain


@pytest.fixture
def scene(client: Callable[[str], Any]) -> Scene:
    return Scene(client)


# What arrives -------------------------------------------------------------------------------------
def test_an_event_is_a_message_with_four_attributes(scene: Scene) -> None:
    envelopes = accepted("P-1", "ü")
    assert scene.topic.tell(envelopes) == [None, None]
    messages = scene.received()
    assert [json.loads(message["Body"]) for message in messages] == envelopes
    assert "ü" in messages[1]["Body"]
    assert '": ' not in messages[0]["Body"], "compact"
    attributes = {
        name: (value["DataType"], value["StringValue"])
        for name, value in messages[0]["MessageAttributes"].items()
    }
    assert attributes == {
        "route": ("String", "parcels"),
        "stage": ("String", "weigh"),
        "status": ("String", "QUEUED"),
        "kind": ("String", "accepted"),
    }


def test_subscriptions_filter_by_the_attributes(scene: Scene) -> None:
    ended = scene.queue("ended", {"kind": ["completed"], "route": ["parcels"]})
    stamped = scene.queue(
        "stamped", {"stage": ["stamp"], "status": [{"anything-but": "COMPLETED"}]}
    )
    elsewhere = scene.queue("elsewhere", {"route": ["letters"]})
    clock = VirtualClock()
    with mp.open("memory:", routes=[parcels()], clock=clock, subscribers=[scene.topic]) as post:
        post.submit("parcels", {"id": "a"}, {"id": "b"})
        drain(post, clock)
    assert sorted(scene.ids(ended)) == ["parcels/a/3/completed", "parcels/b/3/completed"]
    assert scene.ids(stamped) == []
    assert scene.ids(elsewhere) == []
    assert len(scene.ids()) == 6


def test_an_event_in_a_form_of_its_own_has_the_same_attributes(scene: Scene) -> None:
    ours = scene.queue(
        "ours",
        {"route": ["parcels"], "kind": ["accepted"], "status": ["QUEUED"], "stage": ["weigh"]},
    )
    envelopes = accepted(
        "P-1", form=lambda envelope: {"parcel": envelope["subject"], "data": ["none of ours"]}
    )
    assert scene.topic.tell(envelopes) == [None]
    assert [message["Body"] for message in scene.received(ours)] == [
        '{"parcel":"P-1","data":["none of ours"]}'
    ], "in the form's own order"


def test_the_same_event_is_the_same_bytes(scene: Scene) -> None:
    first = accepted("P-1")[0]
    turned = Envelope(dict(reversed(first.items())), first.event)
    for envelopes in ([first], [turned], accepted("P-1")):
        assert scene.topic.tell(envelopes) == [None]
    bodies = {message["Body"] for message in scene.received()}
    assert len(bodies) == 1


def test_any_text_can_be_told(scene: Scene) -> None:
    odd = "\x00 \x1f \x7f \u2028 \ufffe \uffff 😀 \\ufffe"
    envelopes = accepted(
        "P-1", form=lambda envelope: {"text": odd, "more": {7: "a number for a name"}}
    )
    assert scene.topic.tell(envelopes) == [None]
    (message,) = scene.received()
    assert json.loads(message["Body"]) == {"text": odd, "more": {"7": "a number for a name"}}
    allowed = {
        0x9,
        0xA,
        0xD,
        *range(0x20, 0xD800),
        *range(0xE000, 0xFFFE),
        *range(0x10000, 0x110000),
    }
    assert {ord(character) for character in message["Body"]} <= allowed


# How it is asked ----------------------------------------------------------------------------------
def test_ten_to_a_request(scene: Scene) -> None:
    envelopes = accepted(*(f"P-{n}" for n in range(25)))
    assert scene.topic.tell(envelopes) == [None] * 25
    assert sorted(len(request) for request in scene.requests) == [5, 10, 10]
    assert all(len(set(request)) == len(request) for request in scene.requests)
    # (Requests go out in parallel: only the events of one item have an order.)
    assert sorted(scene.ids()) == sorted(envelope["id"] for envelope in envelopes)


def test_offers_need_not_be_published(scene: Scene) -> None:
    """Where an external stage has a queue of its own, the topic need not repeat what is sent
    there."""
    route = mp.Route("assets", key="id")
    route.external("tape")
    with mp.open("memory:", routes=[route], clock=VirtualClock(), chance=SeededChance(1)) as post:
        post.submit("assets", *({"id": f"a{number}"} for number in range(10)))
        told = (
            EventRelay(post.context, Topic(scene.arn, client=scene.sns, offers=False), "p1")
            .run_once()
            .delivered
        )
        assert told == 20, "all are done with"
        assert scene.by_item() == {f"a{number}": ["accepted"] for number in range(10)}
        assert [len(request) for request in scene.requests] == [10]
        EventRelay(post.context, Topic(scene.arn, name="all", client=scene.sns), "p1").run_once()
        assert scene.by_item() == {f"a{number}": ["accepted", "offered"] for number in range(10)}


def test_no_request_is_larger_than_the_topic_takes(scene: Scene) -> None:
    envelopes = accepted(*"abcde", form=lambda envelope: {**envelope, "pad": "ü" * 50_000})
    assert scene.topic.tell(envelopes) == [None] * 5
    assert sorted(len(request) for request in scene.requests) == [1, 2, 2]
    # (Requests go out in parallel: only the events of one item have an order.)
    assert sorted(scene.ids()) == sorted(envelope["id"] for envelope in envelopes)


@pytest.mark.wire
def test_the_largest_is_taken_and_a_larger_one_refused_alone(scene: Scene) -> None:
    def sized(envelope: dict[str, Any]) -> dict[str, Any]:
        key = envelope["subject"]
        bare = len(json.dumps({"id": key, "subject": key, "pad": ""}, separators=(",", ":")))
        attributes = "routeStringparcelsstageStringweighstatusStringQUEUEDkindStringaccepted"
        return {
            "id": key,
            "subject": key,
            "pad": "x" * (LARGEST - bare - len(attributes) + (key == "b")),
        }

    taken, refused, also = scene.topic.tell(accepted("a", "b", "c", form=sized))
    assert (taken, also) == (None, None)
    assert isinstance(refused, EventRefused)
    assert (
        "this event has 262,145 bytes; the topic prod-events accepts at most 262,144; let the route's form"
        in str(refused)
    )
    assert sorted(scene.ids()) == ["a", "c"]
    roomy = Topic(scene.arn, client=scene.sns, largest=LARGEST + 1)
    answer = roomy.tell(accepted("b", form=sized))[0]
    assert isinstance(answer, EventRefused), "the topic itself says that it is too large"
    assert "Message too long" in str(answer)


def test_what_is_no_json_is_refused_alone(scene: Scene) -> None:
    envelopes = accepted(
        "a",
        "b",
        form=lambda envelope: (
            {**envelope, "data": object()} if envelope["subject"] == "a" else None
        ),
    )
    refused, taken = scene.topic.tell(envelopes)
    assert isinstance(refused, EventRefused)
    assert "correct the form of route 'parcels'" in str(refused)
    assert taken is None
    assert scene.ids() == ["parcels/b/1/accepted"]


def test_a_form_that_gives_no_object_is_told() -> None:
    with pytest.raises(
        TypeError, match="the form of route 'parcels' gave str; it must give a dict, or None"
    ):
        accepted("a", form=lambda envelope: "text")  # type: ignore[arg-type, return-value]


# What is answered ---------------------------------------------------------------------------------
def test_each_entry_is_answered_for_by_itself(scene: Scene) -> None:
    scene.lose(
        {
            "b": {"Code": "InternalError", "Message": "try again", "SenderFault": False},
            "c": {"Code": "InvalidParameter", "Message": "it is wrong", "SenderFault": True},
            "d": {"Code": "KMS.ThrottlingException", "SenderFault": True},
            "e": None,
        }
    )
    answers = scene.topic.tell(accepted(*"abcdef"))
    assert [type(answer) for answer in answers] == [
        type(None),
        MilepostError,
        EventRefused,
        MilepostError,
        MilepostError,
        type(None),
    ]
    assert "(InternalError: try again)" in str(answers[1])
    assert "refuses this event (InvalidParameter: it is wrong)" in str(answers[2])
    assert "KMS.ThrottlingException" in str(answers[3])
    assert "did not answer for this event" in str(answers[4])
    assert scene.ids() == ["parcels/a/1/accepted", "parcels/f/1/accepted"]


@pytest.mark.parametrize(
    "error",
    [(400, "Throttling"), (503, "ServiceUnavailable"), ReadTimeoutError(endpoint_url="sns")],
    ids=["throttle", "503", "timeout"],
)
def test_a_request_that_fails_as_a_whole_is_raised(
    scene: Scene, error: Exception | tuple[int, str]
) -> None:
    fails(scene.sns, at=1, error=error)
    with pytest.raises((ClientError, ReadTimeoutError)):
        scene.topic.tell(accepted(*"abc"))
    assert scene.ids() == []


def test_a_request_that_fails_as_a_whole_does_not_stop_the_others(scene: Scene) -> None:
    fails(scene.sns, at=2, error=(503, "ServiceUnavailable"))
    answers = scene.topic.tell(accepted(*(f"P-{n}" for n in range(25))))
    assert sorted(len(request) for request in scene.requests) == [5, 10, 10]
    assert answers.count(None) in (5, 10), "those of the one request that succeeded"
    assert len(scene.ids()) == answers.count(None)
    assert all(isinstance(answer, ClientError) for answer in answers if answer is not None)


def test_requests_go_out_at_the_same_time(scene: Scene) -> None:
    """Each waits until all of them are under way."""
    all_there = Barrier(AT_ONCE, timeout=30)

    def wait(**_: Any) -> None:
        all_there.wait()

    scene.sns.meta.events.register("before-send.sns.PublishBatch", wait)
    assert scene.topic.batch == ENTRIES * AT_ONCE
    keys = [f"P-{n}" for n in range(scene.topic.batch)]
    assert scene.topic.tell(accepted(*keys)) == [None] * len(keys)
    assert len(scene.ids()) == len(keys)


def test_failed_requests_halve_the_number_that_go_out_at_once(scene: Scene) -> None:
    stop = fails(scene.sns, at=1, error=(400, "Throttling"))
    for left in (8, 4, 2, 1, 1):
        with pytest.raises(ClientError):
            scene.topic.tell(accepted("a"))
        assert scene.topic.batch == ENTRIES * left
    stop()
    scene.topic.tell(accepted("a"))
    assert scene.topic.batch == ENTRIES * 2


def test_a_topic_that_counts_otherwise_refuses_the_one_that_is_too_large(scene: Scene) -> None:
    fails(scene.sns, at=1, error=(400, "BatchRequestTooLong"))
    with pytest.raises(ClientError, match="BatchRequestTooLong"):
        scene.topic.tell(accepted("a", "b"))
    (answer,) = scene.topic.tell(accepted("a"))
    assert isinstance(answer, EventRefused)
    assert "let the route's form leave out large values" in str(answer)


def test_a_topic_that_is_not_there_says_so(scene: Scene) -> None:
    with pytest.raises(ClientError, match="NotFound"):
        Topic(f"{scene.arn}-not", client=scene.sns).tell(accepted("a"))


# FIFO ---------------------------------------------------------------------------------------------
def test_on_a_fifo_topic_an_item_is_a_group_and_a_repeat_is_dropped(
    client: Callable[[str], Any],
) -> None:
    scene = Scene(client, "prod-events.fifo")
    assert scene.topic.name == "prod-events.fifo"
    envelopes = accepted(
        "P-1", "with a space", "P-2", form=lambda envelope: {"id": envelope["subject"]}
    )
    for _ in range(2):
        assert scene.topic.tell(envelopes) == [None] * 3
    messages = scene.received()
    assert sorted(json.loads(message["Body"])["id"] for message in messages) == [
        "P-1",
        "P-2",
        "with a space",
    ]
    groups = {
        json.loads(message["Body"])["id"]: message["Attributes"]["MessageGroupId"]
        for message in messages
    }
    assert (groups["P-1"], groups["P-2"]) == ("parcels/P-1", "parcels/P-2")
    assert len(groups["with a space"]) == 64
    assert len({message["Attributes"]["MessageDeduplicationId"] for message in messages}) == 3


# With the relay -----------------------------------------------------------------------------------
@pytest.mark.parametrize("ledger", ["memory", "sqlite"])
def test_through_the_relay_in_order_and_what_was_parked_comes_later(
    scene: Scene, ledger: str, tmp_path: Path
) -> None:
    failures: dict[str, dict[str, Any] | None] = {
        "b": {"Code": "InternalError", "SenderFault": False},
        "c": {"Code": "InvalidParameter", "SenderFault": True},
    }
    scene.lose(failures)
    clock = VirtualClock()
    url = "memory:" if ledger == "memory" else f"sqlite:///{tmp_path}/ledger.db"
    kinds = ["accepted", "advanced", "completed"]
    with mp.open(url, routes=[parcels()], clock=clock, chance=SeededChance(1)) as post:
        relay = EventRelay(post.context, scene.topic, "p1")
        post.submit("parcels", *({"id": key} for key in "abcdef"))
        relay.run_once()
        assert scene.by_item() == {key: ["accepted"] for key in "adef"}
        drain(post, clock)
        relay.run_once()
        assert scene.by_item() == dict.fromkeys("adef", kinds[1:])
        failures.clear()
        clock.advance("1h")
        relay.run_once()
        assert scene.by_item() == {"b": kinds}, (
            "what failed comes when it is due, what was refused when it is released"
        )
        assert release(post.context, "prod-events", by="ops", reason="it was not wrong at all") == 1
        relay.run_once()
        assert scene.by_item() == {"c": kinds}


def test_an_outage_loses_nothing(scene: Scene) -> None:
    clock = VirtualClock()
    with mp.open("memory:", routes=[parcels()], clock=clock, chance=SeededChance(1)) as post:
        relay = EventRelay(post.context, scene.topic, "p1")
        post.submit("parcels", *({"id": f"P-{n}"} for n in range(12)))
        stop = fails(scene.sns, at=1, error=(400, "Throttling"))
        assert "Throttling" in (relay.run_once().standing_by or "")
        assert scene.ids() == []
        stop()
        clock.advance("1m")
        assert relay.run_once().delivered == 12
    assert sorted(scene.ids()) == sorted(f"parcels/P-{n}/1/accepted" for n in range(12))


# How it is named ----------------------------------------------------------------------------------
@pytest.mark.wire
def test_milepost_up_tells_a_topic(scene: Scene, endpoint: str, tmp_path: Path) -> None:
    (tmp_path / "milepost.toml").write_text(
        f'routes = ["parcels.py"]\nsubscribers = ["sns:{scene.arn}"]\n'
    )
    (tmp_path / "parcels.py").write_text(
        "import milepost as mp\nparcels = mp.Route('parcels')\nparcels.external('delivered')\n"
    )
    for command in (["submit", "parcels", "--item", '{"id": "A"}'], ["up", "--until-idle"]):
        subprocess.run(
            [sys.executable, "-m", "milepost", *command],
            cwd=tmp_path,
            env={**os.environ, "AWS_ENDPOINT_URL": endpoint},
            check=True,
            capture_output=True,
            timeout=60,
        )
    assert scene.ids() == ["parcels/A/1/accepted", "parcels/A/1/offered"]


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        (["sns:prod-events"], "'prod-events' is not the ARN of an SNS topic, such as arn:aws:sns:"),
        (["sns:arn:aws:sqs:eu-west-2:123456789012:prod-events"], "is not the ARN of an SNS topic"),
        (
            ["sns:arn:aws:sns:eu-west-2:123456789012:prod-events:11-22"],
            "the topic's is arn:aws:sns:eu-west-2:123456789012:prod-events",
        ),
        (
            [f"sns:arn:aws:sns:eu-west-2:123456789012:{'x' * 65}"],
            r"write  events = Topic\(arn, name='…'\)",
        ),
        (
            [
                "sns:arn:aws:sns:eu-west-2:123456789012:prod-events",
                "sns:arn:aws:sns:eu-west-1:123456789012:prod-events",
            ],
            "two subscribers are called 'prod-events'",
        ),
        (["fax"], "sns:ARN"),
    ],
)
def test_a_wrong_name_is_told(
    specs: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("milepost.toml").write_text(f"subscribers = {json.dumps(specs)}\n")
    with pytest.raises(ConfigMistake, match=said):
        CliSettings().subscribers()


def test_its_region_and_its_name_are_those_of_the_arn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("milepost.toml").write_text(
        'subscribers = ["log", "sns:arn:aws-cn:sns:cn-north-1:123456789012:prod-events.fifo"]\n'
    )
    log, topic = CliSettings().subscribers()
    assert (log.name, topic.name) == ("log", "prod-events.fifo")
    assert isinstance(topic, Topic)
    assert topic._client.meta.region_name == "cn-north-1"
    assert topic._client.meta.config.retries["total_max_attempts"] == 1
