"""Every page, every reading endpoint and the main acts on an AWS ledger with an item in every
status."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.http.event_listener import Listener
from tests.http.items_in_every_state import ACTS, CLAIMS, ITEMS, ROUTE, STATES, WHY, Scene, parcels
from tests.http.live_server import HttpAnswer
from tests.http.page_text import text_of
from tests.http.remote_workers import lease_of
from tests.http.servers_on_ledgers import new_aws_ledger, server_over

from milepost.core.status import Status
from milepost.http.api import find
from milepost.http.server.assembly import all_endpoints, all_pages
from milepost_aws.ledger.requests.client import Requests, RetryBudget


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        # Where the ledger is told of no bucket, its blobs are in the folder where it is opened.
        patch.chdir(tmp_path_factory.mktemp("aws"))
        with new_aws_ledger() as ledger, server_over(ledger, parcels()) as live_server:
            yield Scene(live_server)


def told(answered: HttpAnswer) -> tuple[int, str]:
    return answered.status, answered.body["answer"] if answered.status < 300 else answered.body[
        "code"
    ]


# Looking ------------------------------------------------------------------------------------------
SEEN: dict[str, dict[str, list[str]]] = {
    "/": {
        "/": [
            "9 items 5 in progress 1 completed 2 failed 1 cancelled",
            "1 queued, 1 processing, 1 waiting, 1 retrying, 2 completed",
            "The quarantine has entries.",
        ]
    },
    "/items": {"/items": ["/items/parcels"]},
    "/items/{route}": {
        "/items/parcels": [*STATES, "retry scheduled", "REJECTED: too heavy"],
        "/items/parcels?nearest=true": [
            "offered; not confirmed yet",
            "held by w1 (local)",
            "no paper is left",
        ],
        "/items/parcels?overdue=true": ["No items match."],
        "/items/parcels?list=monday": ["listed wrap queued"],
    },
    "/items/{route}/{key:path}": {
        "/items/parcels/through": [
            "COMPLETED",
            "'deliver' confirmed",
            "Each of its 4 lines holds the digest of the one before",
        ],
        "/items/parcels/retrying": ["attempt 1 at 'wrap' failed", "no paper is left"],
    },
    "/find": {
        "/find?q=through": ["/items/parcels/through"],
        "/find?q=wai": ["/items/parcels?prefix=wai"],
    },
    "/export/{route}.{form}": {
        "/export/parcels.csv": ["through,deliver,COMPLETED", "heavy,weigh,REJECTED"],
        "/export/parcels.json?status=failed": ['"key":"away"', '"key":"heavy"'],
    },
    "/lists": {"/lists": ["monday full parcels", "1 new 1 in progress 1 malformed"]},
    "/lists/{id}": {"/lists/LIST": ["the whole master list", "malformed 1 refused"]},
    "/events": {
        "/events": [
            "office",
            "confirmed parcels / through at deliver",
            "cancelled parcels / gone at weigh",
        ]
    },
    "/acts": {"/acts": ["cancel", "1 item by key", "a test"]},
    "/acts/{id}": {"/acts/cancel-one": ["1 cancelled"]},
    "/system": {
        "/system": ["nobody can read it", "Lanes of a stage share a queue"],
        "/system?doctor=1": ["Some things need attention", "up to date"],
    },
    "/static/{version}/{name}": {"/static/any/look.css": ["--accent"]},
    "/login": {"/login": ["Log in"]},
    "/healthz": {"/healthz": ["alive"]},
    "/readyz": {"/readyz": ["ready"]},
    "/metrics": {
        "/metrics": ['milepost_items{route="parcels",stage="deliver",status="COMPLETED"} 1']
    },
    "/api/openapi.json": {"/api/openapi.json": ["/api/v1/quarantine"]},
    "/api/docs": {"/api/docs": ["Submit an item"]},
    "/api/v1/status": {
        "/api/v1/status": [
            '"total":9',
            '"wrap":{"QUEUED":1,"PROCESSING":1,"WAITING":1,"RETRY_SCHEDULED":1}',
        ]
    },
    "/api/v1/routes/{route}/forecast": {
        f"{ROUTE}/forecast": ['"moving":2', '"waiting":3', "There is no forecast"]
    },
    "/api/v1/routes/{route}/counts": {
        f"{ROUTE}/counts": ['"total":9,"done":1,"failed":2,"cancelled":1']
    },
    "/api/v1/routes/{route}/groups": {
        f"{ROUTE}/groups": ["the scale is away", "too heavy", "no paper is left"]
    },
    "/api/v1/routes/{route}/items": {
        f"{ITEMS}?status=failed": ['"key":"away"', '"key":"heavy"'],
        f"{ITEMS}?status=live&limit=1000": ['"key":"held"', '"key":"offered"'],
    },
    "/api/v1/routes/{route}/items/{key:path}": {
        f"{ITEMS}/through": ['"results":{"deliver":"on the step"', '"verified":true']
    },
    "/api/v1/routes/{route}/history/{key:path}": {
        f"{ROUTE}/history/away": ['"reason":"exhausted"', '"verified":true']
    },
    "/api/v1/routes/{route}/story/{key:path}": {f"{ROUTE}/story/waiting": ["'wrap'"]},
    "/api/v1/routes/{route}/evidence/{key:path}": {
        f"{ROUTE}/evidence/through": ['"status":"COMPLETED"', "milepost.evidence-end/1"]
    },
    "/api/v1/routes/{route}/volumes/{volume:path}": {
        f"{ROUTE}/volumes/V1?scan=true": ['"items":[]']
    },
    "/api/v1/routes/{route}/holds": {f"{ROUTE}/holds": ['"holds":[]']},
    "/api/v1/routes/{route}/breakers": {f"{ROUTE}/breakers": ['"breakers":[]']},
    "/api/v1/routes/{route}/limits": {f"{ROUTE}/limits": ['"limits":[]']},
    "/api/v1/alerts": {"/api/v1/alerts": ['"alerts":[]']},
    "/api/v1/lists": {"/api/v1/lists": ['"name":"monday"']},
    "/api/v1/lists/{id}": {"/api/v1/lists/LIST": ['"malformed":1']},
    "/api/v1/acts": {"/api/v1/acts": ['"id":"cancel-one"']},
    "/api/v1/acts/{id}": {"/api/v1/acts/cancel-one": ['"verb":"cancel"', '"done":1']},
    "/api/v1/events": {"/api/v1/events": ["parcels/gone/2/cancelled"]},
    "/api/v1/subscribers": {"/api/v1/subscribers": ['"name":"office"', '"behind":0']},
    "/api/v1/subscribers/{name}/parked": {"/api/v1/subscribers/office/parked": ['"parked":[]']},
    "/api/v1/quarantine": {"/api/v1/quarantine": ["what is this?", '"kind":"message"']},
    "/api/v1/processes": {"/api/v1/processes": ['"stopped":true', "relay-office"]},
    "/api/v1/doctor": {
        "/api/v1/doctor": [
            '"lacks":["backup","change counter","exact counts","fair lanes","lane counts","one step","proof of death"]',
            "in quarantine",
        ]
    },
}
"""By endpoint: addresses, and what their answers must hold."""


def test_every_page_and_every_endpoint_that_reads_answers_from_aws(scene: Scene) -> None:
    there = {one.path for one in (*all_endpoints(), *all_pages()) if one.method == "GET"}
    assert set(SEEN) == there - {"/live"}, "and that one does not end: see below"
    for addresses in SEEN.values():
        for address, words in addresses.items():
            answered = scene.call("GET", address.replace("LIST", scene.listed.body["id"]))
            html = "html" in answered.headers.get("content-type", "")
            text = answered.headers.get("location") or (
                text_of(answered) if html else answered.raw.decode()
            )
            assert answered.status in (200, 303), (address, text)
            assert [word for word in words if word not in text] == [], (address, text)


def test_an_item_is_in_every_state(scene: Scene) -> None:
    assert {key: scene.row(key)["status"] for key in STATES} == STATES
    found = scene.call("GET", f"{ITEMS}?limit=4").body
    rest = scene.call("GET", f"{ITEMS}?after={quote(found['next'])}").body
    assert {item["key"] for item in (*found["items"], *rest["items"])} >= STATES.keys()


class Counted:
    """Requests to AWS, by what they ask for."""

    def __init__(self, scene: Scene, patch: pytest.MonkeyPatch) -> None:
        self._scene, self._made = scene, list[str]()
        attempt = Requests.attempt

        def counted(
            requests: Requests,
            patience: RetryBudget,
            service: str,
            operation: str,
            params: dict[str, Any],
        ) -> dict[str, Any]:
            values = params.get("ExpressionAttributeValues", {})
            self._made.append(
                " ".join(
                    [
                        operation,
                        *(values[name]["S"] for name in (":kind", ":shard") if name in values),
                    ]
                )
            )
            return attempt(requests, patience, service, operation, params)

        patch.setattr(Requests, "attempt", counted)

    def of(self, address: str, **headers: str) -> Counter[str]:
        self._made.clear()
        assert self._scene.call("GET", address, headers=headers).status == 200
        assert "query key" in self._made, "while there are no keys, every call asks for them"
        return Counter(asked for asked in self._made if asked != "query key")


def test_looking_costs_few_requests_and_no_page_that_moves_reads_the_rows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/aws.md has the numbers."""
    counted = Counted(scene, monkeypatch)
    # Which keys there are, and what was set aside, is asked for once in a while: not meanwhile.
    monkeypatch.setattr("milepost.http.auth.authenticator.FRESH_S", 600.0)
    monkeypatch.setattr("milepost.engine.views.caches.KEEP_S", 600.0)
    counted.of("/")
    overview, live = counted.of("/"), counted.of("/system", **{"x-live": "1"})
    assert (overview.total(), live.total()) == (16, 8)
    # The one that is no query is for the pace of the stages.
    assert {asked for asked in overview if not asked.startswith("query")} == {"get_item"}
    twice = {asked: n for asked, n in overview.items() if n > 1}
    # The routes that are counted are looked up for counts and for causes; what a filter would cost
    # is told from the counts.
    assert twice == {"query counted": 2, "query count#parcels": 2}
    assert counted.of("/items/parcels").total() == 9
    assert counted.of("/items/parcels/offered") == {
        "batch_get_item": 2,
        "query": 1,
        "query hold": 1,
        "query hold#parcels": 1,
        "query hold#heads": 1,
    }
    for address in ("/events", "/acts", "/lists", "/system"):
        assert {
            asked: n
            for asked, n in counted.of(address).items()
            if n > 1 and asked.startswith("query") and "journal" not in asked
        } == {}, address


# Acting -------------------------------------------------------------------------------------------
def test_how_the_items_came_to_where_they_are(scene: Scene) -> None:
    assert [receipt["answer"] for receipt in scene.taken.body["receipts"]] == ["new"] * 8
    assert {kind: n for kind, n in scene.listed.body["counts"].items() if n} == {
        "new": 1,
        "in_progress": 1,
        "malformed": 1,
    }
    assert [bad["line"] for bad in scene.listed.body["malformed"]] == [3]
    assert {key: (work["attempt"], work["payload"]) for key, work in scene.works.items()}[
        "held"
    ] == (1, {"grams": 340})
    assert [one["answer"] for one in scene.settled.body["outcomes"]] == ["written"] * 4
    assert scene.extended.body["leases"][0]["lease_until"] > scene.works["held"]["lease_until"]
    assert scene.given_back.body == {"given_back": 1}
    assert (told(scene.early), told(scene.confirmed)) == ((202, "kept"), (200, "applied"))


def test_what_is_handed_over_is_new_known_or_a_conflict(scene: Scene) -> None:
    assert told(scene.call("POST", ITEMS, {"id": "another"})) == (201, "new")
    assert told(scene.call("POST", ITEMS, {"id": "another"})) == (200, "known")
    assert told(scene.call("POST", ITEMS, {"id": "through", "other": 1})) == (409, "conflict")
    assert told(scene.call("POST", ITEMS, {"name": "no key"})) == (422, "malformed-item")


def test_what_is_confirmed_is_known_a_conflict_ended_or_unknown(scene: Scene) -> None:
    assert told(scene.confirm("through")) == (200, "known")
    assert told(scene.confirm("through", "elsewhere")) == (409, "conflict")
    late = {
        "key": "heavy",
        "stage": "weigh",
        "outcome": {"type": "retry", "error": "weigh it again"},
    }
    assert told(scene.call("POST", f"{ROUTE}/confirmations", late)) == (409, "ended")
    assert told(scene.confirm("nobody")) == (404, "unknown-item")
    assert scene.row("through")["results"]["deliver"] == "on the step"


def test_an_outcome_under_an_old_lease_is_refused(scene: Scene) -> None:
    late = {**lease_of(scene.works["listed"]), "outcome": {"type": "done"}}
    assert (
        scene.call("POST", f"{CLAIMS}/settle", {"outcomes": [late]}).body["outcomes"][0]["answer"]
        == "refused"
    )
    assert scene.row("listed")["stage"] == "wrap"


def test_acts_by_key_and_by_filter_say_first_what_they_would_do(scene: Scene) -> None:
    scene.call("POST", ITEMS, [{"id": f"act{n}"} for n in range(3)])
    chosen = {"verb": "cancel", "filter": {"prefix": "act", "status": ["live"]}}
    assert scene.call("POST", ACTS, {**chosen, "dry_run": True}).body["matched"] == 3
    assert scene.row("act0")["status"] == Status.PENDING
    done = scene.call("POST", ACTS, {**chosen, **WHY}).body
    assert (done["done"], done["refused"]) == (3, [])
    assert scene.call("POST", ACTS, {"verb": "retry", "keys": ["act0"], **WHY}).body["done"] == 1
    assert [scene.row(f"act{n}")["status"] for n in range(3)] == [
        Status.PENDING,
        Status.CANCELLED,
        Status.CANCELLED,
    ]
    again = {"verb": "retry", "filter": {"prefix": "act", "status": ["CANCELLED"]}}
    assert scene.call("POST", ACTS, {**again, "dry_run": True}).body["matched"] == 2
    assert scene.row("act1")["status"] == Status.CANCELLED
    assert scene.call("POST", ACTS, {**again, **WHY}).body["done"] == 2
    assert {scene.row(f"act{n}")["status"] for n in range(3)} == {Status.PENDING}
    refused = scene.call("POST", ACTS, {"verb": "retry", "keys": ["through"], **WHY}).body
    assert (refused["done"], refused["refused"][0][0]) == (0, "through")


def test_what_no_index_serves_is_said_before_it_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "WARN_ROWS", 1)
    monkeypatch.setattr(find, "CONFIRM_ROWS", 5)
    asked = scene.call("GET", f"{ITEMS}?stage=wrap")
    assert (told(asked), asked.body["rows"] >= 9) == ((400, "costly"), True)
    assert "no index serves this: all" in asked.body["detail"]
    assert told(
        scene.call("POST", ACTS, {"verb": "retry", "filter": {"stage": ["wrap"]}, "dry_run": True})
    ) == (400, "costly")
    page = scene.call("GET", "/items/parcels?stage=wrap")
    assert (
        page.status,
        "No index serves this: all" in text_of(page),
        "scan=true" in page.raw.decode(),
    ) == (400, True, True)
    assert (
        scene.call("GET", f"{ITEMS}?status=failed").status
        == scene.call("GET", f"{ITEMS}?stage=wrap&scan=true").status
        == 200
    )
    # Nor are they read again whenever something happens; the first of all items are no more than a
    # page.
    moves = {
        address: 'data-live="items"' in scene.call("GET", f"/items/parcels{address}").raw.decode()
        for address in ("", "?stage=wrap&scan=true")
    }
    assert moves == {"": True, "?stage=wrap&scan=true": False}
    assert "So this page is not updated automatically" in text_of(
        scene.call("GET", "/items/parcels?stage=wrap&scan=true")
    )


def test_the_feed_is_the_same_in_pages_and_as_a_stream(scene: Scene) -> None:
    first = scene.call("GET", "/api/v1/events?limit=5").body
    rest = scene.call("GET", f"/api/v1/events?limit=1000&after={first['next']}").body
    assert (len(first["events"]), first["more"], rest["more"]) == (5, True, False)
    listener = Listener(scene.live_server, "?after=0")
    assert [one.data["id"] for one in listener.take(7)] == [
        one["id"] for one in (*first["events"], *rest["events"][:2])
    ]
    listener.close()


def next_event(answer: http.client.HTTPResponse) -> bytes:
    while not (line := answer.readline()).startswith(b"event:"):
        assert line, "the stream has ended"
    return line


def test_an_open_page_hears_that_something_has_happened(scene: Scene) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", scene.live_server.port, timeout=30)
    try:
        connection.request("GET", "/live")
        answer = connection.getresponse()
        assert (answer.status, answer.readline()) == (200, b"retry: 2000\n")
        assert next_event(answer) == b"event: changed\n", "it is listened for"
        scene.call("POST", ITEMS, {"id": "heard"})
        scene.work()
        assert next_event(answer) == b"event: changed\n"
    finally:
        connection.close()


def test_a_subscriber_can_be_told_again(scene: Scene) -> None:
    again = {"after": 0, "dry_run": True}
    lines = scene.call("POST", "/api/v1/subscribers/office/replay", again).body["lines"]
    assert lines == scene.live_server.ctx.ledger.last_seq()
    assert scene.call("POST", "/api/v1/subscribers/office/release", WHY).body == {
        "subscriber": "office",
        "released": 0,
    }


def test_what_was_set_aside_goes_back_or_is_thrown_away(scene: Scene) -> None:
    queues = scene.live_server.ctx.ledger.store.queues  # type: ignore[attr-defined]
    queues.set_aside("row", {"route": "parcels", "row": {"id": "ghost"}}, "it has no input")
    [ghost] = [
        one
        for one in scene.call("GET", "/api/v1/quarantine").body["set_aside"]
        if one["kind"] == "row"
    ]
    [answer] = scene.call("POST", "/api/v1/quarantine/replay", {"ids": [ghost["id"]], **WHY}).body[
        "replayed"
    ]
    assert (answer["done"], "the row of ghost no longer exists" in answer["why"]) == (False, True)
    assert scene.call("POST", "/api/v1/quarantine/drop", {"ids": [ghost["id"]], **WHY}).body == {
        "dropped": [ghost["id"]]
    }


def test_pauses_and_limits_stand_until_they_are_lifted(scene: Scene) -> None:
    for place in ("holds", "holds/wrap", "holds/deliver/north"):
        assert scene.call("PUT", f"{ROUTE}/{place}", WHY).body["paused"] is True
    assert scene.call("PUT", f"{ROUTE}/limits/weigh", {"rate": "5/s", **WHY}).body["rate"] == "5/s"
    shown = text_of(scene.call("GET", "/system"))
    assert all(word in shown for word in ("parcels/wrap", "parcels/deliver/north", "5/s"))
    assert "3 pauses are in force." in text_of(scene.call("GET", "/"))
    left = [
        scene.call("DELETE", f"{ROUTE}/{place}?reason=x").body["still_paused"]
        for place in ("holds/deliver/north", "holds/wrap", "holds")
    ]
    assert left == [["parcels", "parcels/wrap"], ["parcels"], []]
    assert scene.call("DELETE", f"{ROUTE}/limits/weigh?reason=x").body["rate"] is None
