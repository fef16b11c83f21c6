"""Remote workers: the work they receive, fences around their outcomes, and answers to wrong
requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.samples import Page, blocks
from tests.http.live_server import LiveServer
from tests.http.remote_workers import CLAIMS, RemoteWorkers, images, lease_of, open_remote_workers
from tests.http.servers_on_ledgers import new_aws_ledger, server_over
from tests.project import ROOT

import milepost as mp
from milepost.core.errors import RouteMistake
from milepost.engine.health.doctor import doctor
from milepost.engine.views.story import story
from milepost_testing import VirtualClock


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    with server_over("memory:", images()) as visitor:
        yield visitor


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteWorkers]:
    with open_remote_workers(f"sqlite:///{tmp_path}/ledger.db") as opened:
        yield opened


# What a worker is given, and what becomes of its outcome ------------------------------------------
def test_a_claimed_item_brings_all_that_its_worker_needs(remote: RemoteWorkers) -> None:
    remote.submit("a", file="a.png")
    [work] = remote.claim()
    shown = remote.show("a")
    assert work["payload"] == work["input"] == {"id": "a", "file": "a.png"}
    assert (work["work_id"], work["correlation_id"]) == (shown["work_id"], shown["correlation_id"])
    assert (work["attempt"], work["results"], work["unknown"], work["alone"]) == (
        1,
        {},
        False,
        False,
    )
    assert work["lease_until"] == "2033-11-14T22:14:20.000Z", "a minute from now"
    assert (shown["status"], shown["held_by"]) == ("PROCESSING", "w1 (local)")


def test_a_settled_item_goes_on_and_its_history_names_the_worker(remote: RemoteWorkers) -> None:
    remote.submit("a")
    assert remote.settle(*remote.claim()) == ["written"]
    shown = remote.show("a")
    assert (shown["stage"], shown["results"]) == ("publish", {"resize": {"width": 80}})
    assert (shown["history"][-1]["reason"], shown["history"][-1]["by"]) == (
        "advanced",
        "w1 (local)",
    )


def test_a_failed_try_counts_and_the_last_one_ends_the_item(remote: RemoteWorkers) -> None:
    remote.submit("a")
    remote.settle(*remote.claim(), outcome={"type": "retry", "error": "no memory"})
    assert (remote.show("a")["status"], remote.claim()) == ("RETRY_SCHEDULED", [])
    remote.clock.advance("1h")
    [work] = remote.claim()
    assert work["attempt"] == 2
    remote.settle(work, outcome={"type": "retry", "error": "no memory"})
    assert remote.show("a")["status"] == "MAX_RETRIES_EXCEEDED"


def test_our_own_workers_leave_a_remote_stage_alone_and_do_not_wait_for_it(
    remote: RemoteWorkers,
) -> None:
    remote.submit("a")
    remote.visitor.work()
    assert (remote.show("a")["stage"], remote.show("a")["status"]) == ("resize", "QUEUED")


def test_people_are_told_that_it_waits_for_a_worker_elsewhere(remote: RemoteWorkers) -> None:
    remote.submit("a")
    told = story(remote.visitor.ctx, "images", "a")
    assert told is not None
    assert "Waiting for a remote worker." in told.why
    assert not any("milepost work" in sentence for sentence in told.next)
    remote.clock.advance("1h")
    [late] = [finding for finding in doctor(remote.visitor.ctx).findings if finding.about == "late"]
    assert "waits for a worker (remote)" in late.what


# Leases -------------------------------------------------------------------------------------------
def test_an_outcome_under_a_lost_lease_is_refused_and_noted(remote: RemoteWorkers) -> None:
    remote.submit("a")
    [first] = remote.claim("w1", lease="30s")
    remote.clock.advance("31s")
    [second] = remote.claim("w2")
    assert (second["unknown"], second["alone"], second["attempt"]) == (True, True, 1)
    assert remote.settle(first) == ["refused"]
    assert [line["reason"] for line in remote.show("a")["history"]][-2:] == ["lost", "late"]
    assert remote.settle(second) == ["written"]


def test_one_lost_lease_does_not_hinder_its_neighbours(remote: RemoteWorkers) -> None:
    remote.submit("a", "b")
    works = remote.claim(want=2)
    remote.call(
        "POST",
        "/api/v1/routes/images/acts",
        {"verb": "cancel", "keys": ["a"], "reason": "not wanted"},
    )
    assert dict(zip([work["key"] for work in works], remote.settle(*works), strict=True)) == {
        "a": "refused",
        "b": "written",
    }


def test_a_look_that_found_nothing_new_is_told_from_a_refused_one(remote: RemoteWorkers) -> None:
    nothing = {"type": "not-yet", "after": "1s"}
    remote.submit("a", "b")
    remote.settle(*remote.claim(want=2), outcome=nothing)
    remote.clock.advance("1s")
    works = remote.claim(want=2)
    remote.call(
        "POST",
        "/api/v1/routes/images/acts",
        {"verb": "cancel", "keys": ["a"], "reason": "not wanted"},
    )
    answers = remote.settle(*works, outcome=nothing)
    assert dict(zip([work["key"] for work in works], answers, strict=True)) == {
        "a": "refused",
        "b": "written",
    }


def test_the_same_said_again_has_the_same_answer_and_something_else_is_refused(
    remote: RemoteWorkers,
) -> None:
    remote.submit("a")
    [work] = remote.claim()
    assert remote.settle(work) == remote.settle(work) == ["written"]
    assert remote.settle(work, outcome={"type": "reject"}) == ["refused"]
    assert len(remote.show("a")["history"]) == 2


@pytest.mark.parametrize("lease", ["", "0123456789abcdef"])
def test_a_lease_that_was_never_given_out_does_nothing(remote: RemoteWorkers, lease: str) -> None:
    remote.submit("a")
    [work] = remote.claim()
    assert remote.settle({**work, "lease": lease}) == ["refused"]
    assert remote.settle({**work, "key": "b"}) == ["refused"]
    assert remote.show("a")["status"] == "PROCESSING"


def test_an_extended_lease_holds_on(remote: RemoteWorkers) -> None:
    remote.submit("a", "b")
    a, b = remote.claim(want=2, lease="60s")
    for _ in range(3):
        remote.clock.advance("40s")
        answered = remote.call(
            "POST", f"{CLAIMS}/extend", {"leases": [lease_of(a)], "lease": "60s"}
        )
    assert answered.body["leases"] == [{"key": "a", "lease_until": "2033-11-14T22:16:20.000Z"}]
    assert [work["key"] for work in remote.claim("w2", want=2)] == ["b"]
    answered = remote.call("POST", f"{CLAIMS}/extend", {"leases": [lease_of(a), lease_of(b)]})
    assert [one["lease_until"] is None for one in answered.body["leases"]] == [False, True]
    assert remote.settle(a, b) == ["written", "refused"]


def test_what_is_given_back_is_free_at_once_and_uncounted(remote: RemoteWorkers) -> None:
    remote.submit("a")
    [work] = remote.claim()
    back = {"leases": [lease_of(work)], "reason": "shutting down", "unknown": True}
    assert remote.call("POST", f"{CLAIMS}/give-back", back).body == {"given_back": 1}
    assert remote.call("POST", f"{CLAIMS}/give-back", back).body == {"given_back": 0}
    [again] = remote.claim("w2")
    assert (again["attempt"], again["unknown"]) == (1, True)
    assert remote.settle(work) == ["refused"]


def test_a_lease_of_another_server_is_honoured(remote: RemoteWorkers, tmp_path: Path) -> None:
    remote.submit("a", "b")
    a, b = remote.claim(want=2)
    with server_over(f"sqlite:///{tmp_path}/ledger.db", images(), remote.clock) as other:
        remote.clock.advance("40s")
        answered = other.call("POST", f"{CLAIMS}/extend", {"leases": [lease_of(a)]})
        assert answered.body["leases"][0]["lease_until"] is not None
        remote.clock.advance("30s")
        assert RemoteWorkers(other, remote.clock).settle(a, {**b, "key": "nobody"}) == [
            "written",
            "refused",
        ]
    assert remote.show("a")["stage"] == "publish"


# What is wrong ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "body", "status", "code", "field"),
    [
        (CLAIMS, {"worker": "w", "want": 101}, 400, "wrong-value", "want"),
        (CLAIMS, {"worker": "w", "wait": 21}, 400, "wrong-value", "wait"),
        (CLAIMS, {"worker": "w", "lease": "13h"}, 400, "wrong-value", "lease"),
        (CLAIMS, {"worker": ""}, 400, "wrong-value", "worker"),
        (CLAIMS.replace("resize", "nope"), {"worker": "w"}, 404, "unknown-stage", "stage"),
        (CLAIMS.replace("resize", "publish"), {"worker": "w"}, 409, "refused", "stage"),
        (
            f"{CLAIMS}/settle",
            {"outcomes": [{"key": "a", "lease": "x", "outcome": {"type": "fine"}}]},
            400,
            "wrong-value",
            None,
        ),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(
    shared: LiveServer, path: str, body: Any, status: int, code: str, field: str | None
) -> None:
    answered = shared.call("POST", path, body)
    assert (answered.status, answered.body["code"]) == (status, code), answered
    assert field is None or answered.body["field"] == field


def test_a_stage_of_our_own_workers_is_claimed_by_no_other(shared: LiveServer) -> None:
    told = shared.call("POST", CLAIMS.replace("resize", "publish"), {"worker": "w"}).body
    assert (told["title"], told["expected"]) == (
        "It is not possible in the present state",
        "a stage declared with remote=True",
    )


def test_a_remote_stage_takes_no_handler_and_nothing_that_only_a_handler_has() -> None:
    route = mp.Route("images")
    with pytest.raises(RouteMistake, match="it has no handler here"):
        route.stage("resize", remote=True)(lambda item: mp.Done())
    for options in ({"timeout": "5s"}, {"verify": lambda item: True}, {"claims": False}):
        with pytest.raises(RouteMistake, match="is remote"):
            route.stage("other", remote=True, **options)


# The page on workers ------------------------------------------------------------------------------
def test_the_workers_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs/workers.md").read_text(encoding="utf-8")
    [code] = [block.body for block in blocks(text) if block.options.get("file") == "gallery.py"]
    names: dict[str, Any] = {}
    exec(code, names)
    page = tmp_path / "workers.md"
    page.write_text(
        text.replace("```console no-run\n$ curl", "```console\n$ curl").replace(
            "```console no-run\n$ LEASE", "```console\n$ LEASE"
        )
    )
    with server_over("memory:", names["images"]) as visitor, pytest.MonkeyPatch.context() as patch:
        url = f"{visitor.url}/api/v1/routes/images"
        patch.setenv("URL", url)
        assert Page(page, tmp_path, {"URL": url}).run() == 10


# On AWS -------------------------------------------------------------------------------------------
def test_workers_are_served_from_a_ledger_on_aws() -> None:
    with new_aws_ledger() as ledger, server_over(ledger, images()) as visitor:
        remote = RemoteWorkers(visitor, VirtualClock())
        remote.submit("a", "b", "c")
        visitor.work()
        works: list[dict[str, Any]] = []
        while len(works) < 3:
            works += remote.claim(want=3, wait=10, lease="60s")
        a, b, c = sorted(works, key=lambda work: str(work["key"]))
        assert (a["payload"], a["attempt"], remote.claim("w2")) == ({"id": "a"}, 1, [])
        answered = remote.call(
            "POST", f"{CLAIMS}/extend", {"leases": [lease_of(a), {**lease_of(b), "lease": "x"}]}
        )
        assert [one["lease_until"] is None for one in answered.body["leases"]] == [False, True]
        remote.call(
            "POST",
            "/api/v1/routes/images/acts",
            {"verb": "cancel", "keys": ["c"], "reason": "not wanted"},
        )
        assert remote.settle(a, c) == ["written", "refused"]
        assert remote.settle(a) == ["written"]
        back = {"leases": [lease_of(b)]}
        assert remote.call("POST", f"{CLAIMS}/give-back", back).body == {"given_back": 1}
        [again] = remote.claim("w2", wait=10)
        assert again["key"] == "b"
        assert remote.settle(again) == ["written"]
        assert (remote.show("a")["stage"], remote.show("b")["stage"]) == ("publish", "publish")
        queues = visitor.ctx.ledger.store.queues  # type: ignore[attr-defined]
        assert queues.depth(queues.url("images", "resize")) == (0, 1, 0), (
            "only what was cancelled has left a message"
        )
