"""Lists delivered to the bucket: submitted like any other, reported, and never retried for ever."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import boto3
import pytest
from tests.aws.lambdas.deployment import Countdown, Deploy, Deployment, deployments
from tests.aws.lambdas.event_source_mapping import Context

from milepost.core.errors import MilepostError
from milepost.engine.views.items import lists as records
from milepost_aws.aws_model import Faults
from milepost_aws.lambdas import lists

Put = Callable[..., dict[str, Any]]


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


@pytest.fixture
def one(deploy: Deploy) -> Deployment:
    return deploy()


class Bucket:
    def __init__(self, endpoint: str, name: str) -> None:
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.name = name
        self.s3.create_bucket(
            Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        self._puts = 0

    def put(self, key: str, body: bytes) -> dict[str, Any]:
        """What S3 tells the function of an object that was put."""
        self.s3.put_object(Bucket=self.name, Key=key, Body=body)
        return self.event(key)

    def event(self, key: str) -> dict[str, Any]:
        self._puts += 1
        told = {
            "bucket": {"name": self.name},
            "object": {"key": quote_plus(key, safe="/"), "sequencer": f"{self._puts:016X}"},
        }
        return {"Records": [{"eventName": "ObjectCreated:Put", "s3": told}]}

    def report(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        )
        return found


@pytest.fixture
def bucket(endpoint: str, prefix: str) -> Iterator[Bucket]:
    made = Bucket(endpoint, f"{prefix}-lists")
    yield made
    made.s3.close()


def test_a_list_is_taken_in_and_told_about(one: Deployment, bucket: Bucket) -> None:
    body = b"id,grams\n" + b"".join(b"p%d,%d\n" % (n, n) for n in range(30)) + b"p1,1,too many\n"
    answer = lists.handler(bucket.put("lists/parcels/monday morning+1.csv", body), Context())
    (record,) = records(one.opened.ctx, "parcels")
    assert answer == {"lists/parcels/monday morning+1.csv": record.id}
    assert (record.name, record.full) == ("monday morning+1.csv", False)
    report = bucket.report("reports/parcels/monday morning+1.csv.json")
    assert report["counts"] == record.counts
    assert (report["counts"]["new"], report["counts"]["malformed"]) == (30, 1)
    assert report["malformed"][0]["line"] == 32
    one.run(lambda: one.row("p17").status == "COMPLETED")


def test_a_whole_master_list_tells_what_has_vanished(one: Deployment, bucket: Bucket) -> None:
    lists.handler(bucket.put("lists/parcels/full/monday.txt", b"a\nb\nc\n"), Context())
    lists.handler(bucket.put("lists/parcels/full/tuesday.txt", b"b\nc\nd\n"), Context())
    report = bucket.report("reports/parcels/full/tuesday.txt.json")
    assert (report["counts"]["new"], report["counts"]["in_progress"], report["vanished"]) == (
        1,
        2,
        ["a"],
    )


def test_the_same_told_twice_is_taken_in_once(one: Deployment, bucket: Bucket) -> None:
    event = bucket.put("lists/parcels/a.txt", b"a\n")
    lists.handler(event, Context())
    assert lists.handler(event, Context()) == {"lists/parcels/a.txt": "taken in before"}
    assert len(records(one.opened.ctx, "parcels")) == 1
    # Put again, it is another delivery.
    lists.handler(bucket.put("lists/parcels/a.txt", b"a\n"), Context())
    assert [record.counts["new"] for record in records(one.opened.ctx, "parcels")] == [1, 0]


@pytest.mark.parametrize(
    ("key", "body", "reason"),
    [
        ("lists/others/a.txt", b"a\n", "there is no route 'others'"),
        ("lists/a.txt", b"a\n", "names no route"),
        ("lists/parcels/a.csv", b"\x1f\x8bpacked", "compressed"),
        ("lists/parcels/a.json", b'[{"id": "a"}]', "one JSON array"),
    ],
)
def test_a_list_that_can_never_be_taken_in_is_set_aside(
    one: Deployment, bucket: Bucket, key: str, body: bytes, reason: str
) -> None:
    lists.handler(bucket.put(key, body), Context())
    (found,) = one.aside()
    assert (found["kind"], found["content"]["key"]) == ("list", key)
    assert reason in found["reason"]
    assert reason in bucket.report(f"reports/{key.removeprefix('lists/')}.json")["error"]


def test_folders_and_empty_and_removed_lists(one: Deployment, bucket: Bucket) -> None:
    assert lists.handler(bucket.put("lists/parcels/", b""), Context()) == {
        "lists/parcels/": "a folder"
    }
    lists.handler(bucket.put("lists/parcels/empty.txt", b""), Context())
    assert "is empty" in bucket.report("reports/parcels/empty.txt.json")["error"]
    [empty] = one.aside()
    assert empty["content"]["key"] == "lists/parcels/empty.txt"
    event = bucket.put("lists/parcels/a.txt", b"a\n")
    bucket.s3.delete_object(Bucket=bucket.name, Key="lists/parcels/a.txt")
    assert "removed" in lists.handler(event, Context())["lists/parcels/a.txt"]
    assert one.aside() == []


def test_a_long_list_is_read_part_by_part(
    one: Deployment, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PART", 1000)
    body = b"".join(b"part-%05d\n" % n for n in range(500))
    lists.handler(bucket.put("lists/parcels/long.txt", body), Context())
    assert bucket.report("reports/parcels/long.txt.json")["counts"]["new"] == 500
    assert one.store.requests.counts["s3", "get_object"] > 5


def test_a_list_that_is_replaced_while_it_is_read_is_left_to_its_successor(
    one: Deployment, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PART", 1000)
    event = bucket.put("lists/parcels/long.txt", b"".join(b"part-%05d\n" % n for n in range(500)))
    source = lists.Object(one.store.requests, bucket.name, "lists/parcels/long.txt")
    assert source.read(100)
    bucket.put("lists/parcels/long.txt", b"a\n" * 2000)
    with pytest.raises(lists.ObjectGone, match="replaced"):
        while source.read(10_000):
            pass
    assert len(event["Records"]) == 1


def test_too_long_for_one_call_goes_on_in_the_next(one: Deployment, bucket: Bucket) -> None:
    event = bucket.put("lists/parcels/long.txt", b"".join(b"part-%06d\n" % n for n in range(3000)))

    class Short(Context):
        asked = 0

        def get_remaining_time_in_millis(self) -> int:
            self.asked += 1
            return 60_000 if self.asked < 3 else 1

    with pytest.raises(MilepostError, match="the next call continues"):
        lists.handler(event, Short())
    lists.handler(event, Countdown(600_000))
    counts = bucket.report("reports/parcels/long.txt.json")["counts"]
    assert counts["new"] + counts["in_progress"] == 3000
    assert counts["in_progress"] > 0


def test_what_passes_is_raised_so_that_it_comes_again(one: Deployment, bucket: Bucket) -> None:
    event = bucket.put("lists/parcels/a.txt", b"a\n")
    faults = Faults()
    faults.attach(one.store.requests)
    one.store.requests.deadline_s = 0.0
    faults.plan("PutItem", "throttle", times=9)
    with pytest.raises(MilepostError):
        lists.handler(event, Context())
    faults.clear()
    lists.handler(event, Context())
    assert bucket.report("reports/parcels/a.txt.json")["lines"] == 1
    assert one.aside() == []
