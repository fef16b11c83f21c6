"""The quarantine queue, to which partners may write: whatever is there is listed, and keeps no
other entry from being replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at

HOSTILE = [
    "[" * 100_000,
    "[" * 5_000 + "]" * 5_000,
    json.dumps({"requestContext": {}, "requestPayload": {"Records": [{"s3": {}}]}}),
    json.dumps({"requestContext": {}, "requestPayload": {"Records": 7}}),
    json.dumps({"requestContext": {}, "DDBStreamBatchInfo": 7}),
    json.dumps({"kind": "stream batch", "reason": "x", "content": {}}),
    json.dumps({"kind": "stream batch", "reason": "x", "content": {"DDBStreamBatchInfo": 7}}),
    json.dumps(
        {"kind": "message", "reason": "x", "content": {"url": "u", "body": "b", "attributes": [1]}}
    ),
    json.dumps(
        {
            "kind": "message",
            "reason": "x",
            "content": {"url": "https://elsewhere.example/1/queue", "body": "b"},
        }
    ),
    json.dumps({"kind": "row", "reason": "x", "content": {"route": "parcels", "row": 7}}),
]


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        yield made


def test_hostile_entries_are_listed_and_refused_alone(scene: Scene) -> None:
    queues = scene.store.queues
    scene.add("a")
    target = queues.url("parcels", "weigh")
    queues.set_aside_message(target, "m-1", '{"a": "message"}', "it came too early")
    for body in HOSTILE:
        scene.process.call("sqs", "send_message", QueueUrl=queues.quarantine(), MessageBody=body)
    entries, _ = scene.aws.quarantine.entries(100)
    assert len(entries) == len(HOSTILE) + 1
    before = sum(queues.depth(target))
    answers = scene.aws.quarantine.replay(
        {"parcels": scene.plan}, [entry.id for entry in entries], scene.now, by="ops", why="a test"
    )
    done = [answer.done for answer in answers]
    assert done == [entry.reason == "it came too early" for entry in entries], [
        answer.why for answer in answers
    ]
    assert sum(queues.depth(target)) == before + 1
