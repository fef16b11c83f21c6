"""Workers in other languages: the limits that hold for them, and how they wait for work."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.http.remote_workers import CLAIMS, RemoteWorkers, open_remote_workers
from tests.polling import wait_until

import milepost as mp
from milepost.http.state import waiting_workers


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteWorkers]:
    with open_remote_workers(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


# The same limits as for our own -------------------------------------------------------------------
def test_a_paused_stage_gives_nothing_until_it_is_resumed(remote: RemoteWorkers) -> None:
    remote.submit("a")
    remote.call("PUT", "/api/v1/routes/images/holds/resize", {"reason": "the disk is full"})
    assert remote.claim() == []
    remote.call("DELETE", "/api/v1/routes/images/holds/resize?reason=emptied")
    assert len(remote.claim()) == 1


def test_a_rate_holds_for_all_workers_together() -> None:
    with open_remote_workers("memory:", rate="60/m") as remote:
        remote.submit(*"abc")
        assert [len(remote.claim(worker, want=3)) for worker in ("w1", "w2")] == [1, 0]
        remote.clock.advance("1s")
        assert len(remote.claim("w2", want=3)) == 1


def test_a_worker_holds_no_more_than_the_stage_allows() -> None:
    with open_remote_workers("memory:", concurrency=2) as remote:
        remote.submit(*"abcdef")
        works = remote.claim(want=5)
        assert (len(works), remote.claim(want=5), len(remote.claim("w2", want=1))) == (2, [], 1)
        remote.settle(works[0])
        assert len(remote.claim(want=5)) == 1
        remote.call(
            "PUT",
            "/api/v1/routes/images/limits/resize",
            {"concurrency": 3, "reason": "more memory"},
        )
        remote.clock.advance("1s")
        assert len(remote.claim(want=5)) == 1


def test_a_lane_has_a_limit_of_its_own() -> None:
    with open_remote_workers(
        "memory:", lane=lambda content: content["to"], lanes={"slow": mp.Limits(concurrency=1)}
    ) as remote:
        remote.submit("s1", "s2", "s3", to="slow")
        remote.submit("f1", "f2", to="fast")
        works = remote.claim(want=5)
        assert sorted(work["lane"] for work in works) == ["fast", "fast", "slow"]
        assert remote.claim(want=5) == []


def test_an_item_that_took_two_workers_with_it_is_given_alone(remote: RemoteWorkers) -> None:
    remote.submit("poison")
    for _ in range(2):
        assert len(remote.claim(lease="10s")) == 1
        remote.clock.advance("11s")
    remote.submit("a", "b")
    [sound] = remote.claim("w1", want=1)
    assert sound["key"] == "a"
    assert [work["key"] for work in remote.claim("w1", want=5)] == ["b"], "its hands are not empty"
    assert [work["key"] for work in remote.claim("w2", want=5)] == ["poison"]
    remote.submit("c")
    assert remote.claim("w2", want=5) == [], "nothing beside it"
    assert [work["key"] for work in remote.claim("w3", want=5)] == ["c"]


# Waiting for work ---------------------------------------------------------------------------------
def test_a_worker_that_waits_is_answered_when_work_comes(remote: RemoteWorkers) -> None:
    line = remote.visitor.opened.state.waiting
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(remote.claim, "w1", wait=20)
        wait_until(lambda: line.waiting == 1)
        remote.submit("a")
        assert [work["key"] for work in answer.result()] == ["a"]
    wait_until(lambda: line.waiting == 0)


def test_a_worker_that_waited_in_vain_is_given_an_empty_list(remote: RemoteWorkers) -> None:
    assert remote.claim(wait=0.1) == []


def test_many_who_wait_are_each_given_their_own(remote: RemoteWorkers) -> None:
    line, keys = remote.visitor.opened.state.waiting, {f"k{n}" for n in range(30)}
    with ThreadPoolExecutor(len(keys)) as threads:
        answers = [threads.submit(remote.claim, f"w{n}", wait=20) for n in range(len(keys))]
        wait_until(lambda: line.waiting == len(keys))
        remote.submit(*keys)
        given = [work["key"] for answer in answers for work in answer.result()]
    assert sorted(given) == sorted(keys)


def test_a_worker_that_has_gone_is_given_nothing(remote: RemoteWorkers) -> None:
    line = remote.visitor.opened.state.waiting
    connection = http.client.HTTPConnection("127.0.0.1", remote.visitor.port)
    connection.request(
        "POST",
        CLAIMS,
        json.dumps({"worker": "w1", "wait": 20}),
        {"Content-Type": "application/json"},
    )
    wait_until(lambda: line.waiting == 1)
    connection.close()
    wait_until(lambda: line.waiting == 0)
    remote.submit("a")
    assert [work["key"] for work in remote.claim("w2")] == ["a"]


def test_a_server_that_stops_lets_go_of_those_who_wait(remote: RemoteWorkers) -> None:
    line = remote.visitor.opened.state.waiting
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(remote.claim, "w1", wait=20)
        wait_until(lambda: line.waiting == 1)
        line.end()
        assert answer.result() == []
    assert remote.claim(wait=20) == []


def test_no_more_wait_than_there_is_room_for(
    remote: RemoteWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_workers, "MOST", 0)
    answered = remote.call("POST", CLAIMS, {"worker": "w1", "wait": 5})
    assert (answered.status, answered.body["code"], "retry-after" in answered.headers) == (
        429,
        "too-many",
        True,
    )
