"""A key for one route reveals nothing about another: on no page, in no file, by no id and by no
error."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.http.guarded_server import SIGNED, GuardedServer, guarded_server
from tests.http.live_server import HttpAnswer, sample_route

import milepost as mp
from milepost.core.errors import EventRefused, LedgerBusy
from milepost.core.events import Envelope
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import limit, pause
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.events.deliver import EventRelay
from milepost.http.api import events as stream
from milepost.http.protocol.endpoint import Endpoint
from milepost.http.server.assembly import all_pages
from milepost.ports.documents import PROCESS, Process

SECRET = "secretive"
"""Whatever there is of the other route has this in its name."""
OTHER, KEY, LIST, ACT = f"{SECRET}-route", f"{SECRET}-key", f"{SECRET}-list", f"{SECRET}-act"


class Office:
    """A subscriber that takes nothing of the other route."""

    name, batch = "office", 10

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        return [
            EventRefused(f"no {envelope['subject']}") if SECRET in envelope["subject"] else None
            for envelope in envelopes
        ]


def failing(name: str) -> mp.Route:
    route = mp.Route(name, key="id")

    @route.stage(f"{SECRET}-stage", retry=mp.Backoff(attempts=1))
    def stage(item: mp.Item) -> mp.Outcome:
        return mp.Reject(f"{SECRET} error of {item.key}")

    return route


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """Two routes. Of the other one there is everything: failures, a list, pauses, limits, acts,
    what is parked, slow handlers."""
    folder: Path = tmp_path_factory.mktemp("two-routes")
    with guarded_server(
        f"sqlite:///{folder}/ledger.db", [sample_route(), failing(OTHER)]
    ) as opened:
        ctx = opened.ctx
        opened.milepost.submit("parcels", {"id": "a"})
        (folder / "list.txt").write_text(f"{KEY}\n{SECRET}-two\n")
        opened.milepost.submit_list(OTHER, str(folder / "list.txt"), name=LIST)
        opened.work()
        EventRelay(ctx, Office(), "p1").run_once()
        act(ctx, select(ctx, OTHER, keys=[KEY, f"{SECRET}-two"]), RetryVerb(), act_id=ACT, **SIGNED)
        pause(ctx, OTHER, f"{SECRET}-stage", f"{SECRET}-lane", **SIGNED)
        limit(ctx, OTHER, f"{SECRET}-stage", rate="1/s", **SIGNED)
        slow = [{"route": OTHER, "stage": f"{SECRET}-stage", "key": KEY, "seconds": 90}]
        process = Process("host:1", "host", 1, 0, ctx.clock.now(), {}, 1, slow, [OTHER])
        ctx.ledger.write(PROCESS, "host:1", msgspec.to_builtins(process))
        yield opened


@pytest.fixture(scope="module")
def limited(at: GuardedServer) -> str:
    return at.key("admin", name="limited", routes=["parcels"], rate=100_000)


@pytest.fixture(scope="module")
def everything(at: GuardedServer) -> str:
    return at.key("admin", name="everything", rate=100_000)


def look(at: GuardedServer, path: str, key: str) -> HttpAnswer:
    return at.call("GET", path, key=key, headers={"Accept": "text/html"})


def paths_of(endpoint: Endpoint, ids: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda part: ids.get(part[1], "a"), endpoint.path)


def test_no_page_tells_a_key_for_one_route_of_another(
    at: GuardedServer, limited: str, everything: str
) -> None:
    telling = set()
    for endpoint in all_pages():
        if endpoint.path in ("/live", "/static/{version}/{name}"):
            continue
        path = paths_of(endpoint, {"route": "parcels", "form": "csv", "key": "a"})
        if SECRET.encode() in look(at, path, everything).raw:
            telling.add(endpoint.path)
        assert SECRET.encode() not in look(at, path, limited).raw, path
    # Else the test would show nothing.
    assert telling == {"/", "/items/{route}", "/lists", "/events", "/acts", "/system"}


def told_of(at: GuardedServer, path: str, key: str, name: str) -> tuple[int, str | None, bytes]:
    """What is said, without the name that was asked for, and without the moment."""
    answer = look(at, path, key)
    said = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"", answer.raw.replace(name.encode(), b"NAME"))
    return answer.status, (answer.headers.get("location") or "").replace(name, "NAME"), said


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/items/{}", OTHER),
        ("/items/{}?list=x&stage=y", OTHER),
        ("/items/{}/a", OTHER),
        ("/export/{}.csv", OTHER),
        ("/export/{}.other", OTHER),
        ("/events?route={}", OTHER),
        ("/acts?route={}", OTHER),
        ("/acts/{}", ACT),
        ("/items/parcels/{}", KEY),
        ("/items/parcels?list={}", LIST),
        ("/items/parcels?stage={}", f"{SECRET}-stage"),
        ("/find?q={}", KEY),
        ("/api/v1/acts/{}", ACT),
        ("/api/v1/acts?route={}", OTHER),
        ("/api/v1/lists?route={}", OTHER),
        ("/api/v1/events?route={}", OTHER),
        ("/api/v1/routes/{}/evidence/a", OTHER),
        ("/api/v1/routes/parcels/evidence/{}", KEY),
        ("/api/v1/routes/parcels/items?list={}", LIST),
    ],
)
def test_what_is_of_another_route_is_as_what_is_not_there(
    at: GuardedServer, limited: str, path: str, there: str
) -> None:
    nothing = "x" * len(there)
    assert told_of(at, path.format(there), limited, there) == told_of(
        at, path.format(nothing), limited, nothing
    )


def test_lists_and_error_groups_of_another_route_are_not_there(
    at: GuardedServer, limited: str, everything: str
) -> None:
    [known] = at.call("GET", "/api/v1/lists", key=everything).body["lists"]
    [group, *_] = at.call("GET", f"/api/v1/routes/{OTHER}/groups", key=everything).body["groups"]
    for path in (
        "/lists/{}",
        "/api/v1/lists/{}",
        "/items/parcels?list={}",
        "/export/parcels.csv?list={}",
    ):
        nothing = "x" * len(known["id"])
        assert told_of(at, path.format(known["id"]), limited, known["id"]) == told_of(
            at, path.format(nothing), limited, nothing
        )
    nothing = "x" * len(group["group"])
    path = "/items/parcels?group={}"
    assert told_of(at, path.format(group["group"]), limited, group["group"]) == told_of(
        at, path.format(nothing), limited, nothing
    )


def test_a_place_among_the_items_of_another_route_is_no_place_here(
    at: GuardedServer, limited: str, everything: str
) -> None:
    page = at.call("GET", f"/api/v1/routes/{OTHER}/items?limit=1", key=everything).body
    answer = at.call(
        "GET", f"/api/v1/routes/parcels/items?limit=1&after={page['next']}", key=limited
    )
    assert (answer.status, "belongs to another search" in answer.body["detail"]) == (400, True)


@pytest.mark.parametrize("verb", ["retry", "cancel"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_the_id_of_an_act_on_another_route_tells_nothing_of_that_act(
    at: GuardedServer, limited: str, verb: str, dry_run: bool
) -> None:
    body: dict[str, Any] = {
        "verb": verb,
        "keys": ["a"],
        "reason": "a test",
        "id": ACT,
        "dry_run": dry_run,
    }
    answer = at.call("POST", "/api/v1/routes/parcels/acts", body, key=limited)
    assert (answer.status, answer.body["code"], answer.body["field"]) == (400, "wrong-value", "id")
    assert json.dumps(answer.body).replace(ACT, "").count(SECRET) == 0
    assert "retry" not in answer.raw.decode()
    answer = at.call(
        "POST", f"/api/v1/routes/parcels/acts/{ACT}/go-on", {"reason": "a test"}, key=limited
    )
    assert (answer.status, answer.body["code"]) == (404, "unknown-act")


def changes(
    at: GuardedServer, method: str, key: str
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=30)
    connection.request(method, "/live", headers={"Authorization": f"Bearer {key}"})
    return connection, connection.getresponse()


def blocks(answer: http.client.HTTPResponse) -> Iterator[str]:
    """What a page is told, block by block, until it is told no more."""
    block = ""
    while line := answer.readline().decode():
        if line == "\n":
            yield block
            block = ""
        block += line


def test_a_page_hears_of_changes_of_its_own_route_alone_and_of_none_after_its_key_was_revoked(
    at: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.http.api.events.CHECK_S", 0.0)
    monkeypatch.setattr(at.opened.state.feed, "heartbeat_s", 0.2)
    key = at.key("read", name="page", routes=["parcels"])
    connection, answer = changes(at, "GET", key)
    told = blocks(answer)
    assert [next(told).strip(), next(told).strip()] == [
        "retry: 2000",
        f"event: changed\ndata: {at.ctx.ledger.last_seq()}",
    ]
    at.milepost.submit(OTHER, {"id": f"{SECRET}-three"})
    at.milepost.submit("parcels", {"id": "b"})
    heard = next(block for block in told if "data" in block)
    assert heard.strip() == f"event: changed\ndata: {at.ctx.ledger.last_seq()}"
    at.revoke("page")
    at.ticks.now += 4
    at.milepost.submit("parcels", {"id": "c"})
    assert [block for block in told if "changed" in block] == []
    connection.close()


def test_who_asks_only_for_the_head_of_changes_is_no_listener(
    at: GuardedServer, everything: str
) -> None:
    connection, answer = changes(at, "HEAD", everything)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, stream.STREAM)
    assert answer.read() == b""
    # The same connection serves the next call: nothing of the first is still under way.
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    assert at.opened.state.feed.listeners == 0
    connection.close()


def test_where_the_ledger_is_is_not_told_when_it_fails(
    at: GuardedServer, limited: str, everything: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **options: Any) -> Any:
        raise LedgerBusy("/secretive/ledger.db: other processes have held the ledger for too long")

    monkeypatch.setattr(at.ctx.ledger, "counts", fails)
    told = [at.call("GET", "/api/v1/status", key=key) for key in (limited, everything)]
    assert [
        (answer.status, answer.body["code"], SECRET in answer.body["detail"]) for answer in told
    ] == [
        (503, "busy", False),
        (503, "busy", True),
    ]
    # Nobody can be recognised without the keys, and whoever it is has not shown that they may know.
    monkeypatch.setattr(at.ctx.ledger, "read", fails)
    at.ticks.now += 4
    for key in (None, everything):
        answer = at.call("GET", "/api/v1/status", key=key)
        assert (answer.status, answer.body["code"], SECRET in answer.raw.decode()) == (
            503,
            "busy",
            False,
        )
