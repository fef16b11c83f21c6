"""Every endpoint of Milepost and of its applications, called with every kind of key: a table says
who may call it.

The endpoints are those of the running server, so that a new one without an entry in the table
fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from tests.http.live_server import HttpAnswer, LiveServer, sample_route

import milepost as mp
from milepost.engine.auth import make_key
from milepost.http.protocol.endpoint import Endpoint
from milepost.http.server.applications import application_endpoints
from milepost.http.server.assembly import HttpServer, all_endpoints, all_pages
from milepost_deposits import application as deposits
from milepost_notifications import application as notifications
from milepost_postingest import application as postingest

SIGNED = {"by": "ops", "reason": "a test"}
WHY = {"reason": "a test"}
FORM = "application/x-www-form-urlencoded"
TIME = "2026-01-31T08:00:00.000Z"
TARGET = "https://partner.example/hook"
BODY = "content-of-billing"
KEY = f"m-1#billing#{TIME}#{TARGET}"
ENDLESS = ("/live", "/api/v1/events")


class KeyKind(NamedTuple):
    """A kind of key: its scopes, the sender that it names, and its routes."""

    scopes: tuple[str, ...]
    sender: str | None = None
    routes: tuple[str, ...] | None = None


KINDS: dict[str, KeyKind | None] = {
    "no key": None,
    "reader": KeyKind(("read",)),
    "submitter": KeyKind(("submit",)),
    "submitter that reads": KeyKind(("submit", "read")),
    "worker": KeyKind(("work",)),
    "operator": KeyKind(("operate",)),
    "operator that reads": KeyKind(("operate", "read")),
    "admin": KeyKind(("admin",)),
    "shop": KeyKind(("submit",), "shop"),
    "shop that reads": KeyKind(("submit", "read", "work"), "shop"),
    "shop that operates": KeyKind(("submit", "read", "operate"), "shop"),
    "billing": KeyKind(("submit",), "billing"),
    "billing that reads": KeyKind(("submit", "read"), "billing"),
    "gateway": KeyKind(("submit",), "*"),
    "gateway that reads": KeyKind(("submit", "read"), "*"),
    "key for another route": KeyKind(("read", "submit", "work", "operate"), None, ("parcels",)),
}
SPEAK_FOR_NONE = {"submitter", "submitter that reads"}
SPEAK_FOR_SHOP = {"shop", "shop that reads"}
BOUND = {*SPEAK_FOR_NONE, *SPEAK_FOR_SHOP, "billing", "billing that reads"}
"""Keys to which the general API does not show the messages' route."""
MAY_SUBMIT_GENERALLY = {"admin", "gateway", "gateway that reads"}
MAY_SEND_FOR_BILLING = {"admin", "billing", "billing that reads", "gateway", "gateway that reads"}
MAY_READ_BILLING = {
    "reader", "operator that reads", "admin", "shop that operates", "billing that reads", "gateway that reads"
}  # fmt: skip

OPEN, SHARED, ROUTE, ALL, APP, SENDER, OF_MESSAGE, SEND = (
    "open",
    "shared",
    "route",
    "all",
    "app",
    "sender",
    "of message",
    "send",
)
"""Who is refused beside those without the scope: nobody needs a key; nobody else; keys that do not
see the messages' route (404), or not all routes (403); those that do not see all routes of the
application (403); also those that speak for no sender (403); also those that speak for another
sender than the message's (404); those that may not send as its sender (403)."""


class Entry(NamedTuple):
    """One endpoint: the scope that it needs, who else is refused, and a call. `also`: statuses
    beside success that a permitted call may get."""

    scope: str | None
    rule: str
    body: Any = None
    query: str = ""
    also: tuple[int, ...] = ()


MESSAGE = {
    "messageId": "m-1",
    "timestamp": TIME,
    "senderId": "billing",
    "targetUrl": TARGET,
    "body": {"text": BODY},
    "deliverAt": "2099-01-01T00:00:00Z",
}
OTHER_CONTENT = {**MESSAGE, "method": "POST", "headers": {}, "body": "another"}
REPLACE = {"verb": "replace", "keys": [KEY], "content": OTHER_CONTENT, "dry_run": True}
LEASE = {"key": KEY, "lease": "p/1"}
OUTCOME = {"type": "done"}
ROUTES, NOTES, PAGES = "/api/v1/routes/{route}", "/api/v1/notifications", "/notifications"

TABLE: dict[str, Entry] = {
    # The general API
    f"POST {ROUTES}/items": Entry("submit", ROUTE, MESSAGE, also=(409,)),
    f"GET {ROUTES}/items/{{key:path}}": Entry("read", ROUTE),
    f"GET {ROUTES}/history/{{key:path}}": Entry("read", ROUTE),
    f"GET {ROUTES}/story/{{key:path}}": Entry("read", ROUTE),
    f"GET {ROUTES}/evidence/{{key:path}}": Entry("read", ROUTE, also=(409,)),
    f"GET {ROUTES}/items": Entry("read", ROUTE, query="scan=true"),
    f"GET {ROUTES}/volumes/{{volume:path}}": Entry("read", ROUTE, query="scan=true"),
    "GET /api/v1/status": Entry("read", SHARED),
    f"GET {ROUTES}/counts": Entry("read", ROUTE),
    f"GET {ROUTES}/forecast": Entry("read", ROUTE),
    f"POST {ROUTES}/forget": Entry("operate", ROUTE, {"key": "none", **WHY}, also=(404,)),
    "GET /api/v1/subscribers/{name}/parked": Entry("read", SHARED, also=(404,)),
    f"GET {ROUTES}/groups": Entry("read", ROUTE),
    "GET /api/v1/alerts": Entry("read", SHARED),
    "GET /api/v1/lists": Entry("read", SHARED),
    "GET /api/v1/lists/{id}": Entry("read", SHARED, also=(404,)),
    f"POST {ROUTES}/confirmations": Entry(
        "work", ROUTE, {"key": "none", "stage": "deliver", "value": True}, also=(404,)
    ),
    f"POST {ROUTES}/acts": Entry("operate", ROUTE, REPLACE),
    f"POST {ROUTES}/acts/{{id}}/go-on": Entry("operate", ROUTE, WHY, also=(404,)),
    "GET /api/v1/acts": Entry("read", SHARED),
    "GET /api/v1/acts/{id}": Entry("read", SHARED, also=(404,)),
    f"POST {ROUTES}/prune": Entry("operate", ROUTE, {"older_than": "1d", "dry_run": True}),
    f"POST {ROUTES}/redate": Entry("operate", ROUTE, {"dry_run": True}),
    f"GET {ROUTES}/holds": Entry("read", ROUTE),
    f"PUT {ROUTES}/holds": Entry("operate", ROUTE, WHY),
    f"PUT {ROUTES}/holds/{{stage}}": Entry("operate", ROUTE, WHY),
    f"PUT {ROUTES}/holds/{{stage}}/{{lane:path}}": Entry("operate", ROUTE, WHY),
    f"DELETE {ROUTES}/holds": Entry("operate", ROUTE, query="reason=x"),
    f"DELETE {ROUTES}/holds/{{stage}}": Entry("operate", ROUTE, query="reason=x"),
    f"DELETE {ROUTES}/holds/{{stage}}/{{lane:path}}": Entry("operate", ROUTE, query="reason=x"),
    f"GET {ROUTES}/limits": Entry("read", ROUTE),
    f"PUT {ROUTES}/limits/{{stage}}": Entry("operate", ROUTE, {"rate": "9/s", **WHY}),
    f"PUT {ROUTES}/limits/{{stage}}/{{lane:path}}": Entry("operate", ROUTE, {"rate": "9/s", **WHY}),
    f"DELETE {ROUTES}/limits/{{stage}}": Entry("operate", ROUTE, query="reason=x"),
    f"DELETE {ROUTES}/limits/{{stage}}/{{lane:path}}": Entry("operate", ROUTE, query="reason=x"),
    f"GET {ROUTES}/breakers": Entry("read", ROUTE),
    f"DELETE {ROUTES}/breakers/{{stage}}": Entry("operate", ROUTE, query="reason=x"),
    f"DELETE {ROUTES}/breakers/{{stage}}/{{lane:path}}": Entry("operate", ROUTE, query="reason=x"),
    f"POST {ROUTES}/stages/{{stage}}/claims": Entry(
        "work", ROUTE, {"worker": "w"}, also=(400, 409)
    ),
    f"POST {ROUTES}/stages/{{stage}}/claims/extend": Entry(
        "work", ROUTE, {"leases": [LEASE]}, also=(400, 409)
    ),
    f"POST {ROUTES}/stages/{{stage}}/claims/settle": Entry(
        "work", ROUTE, {"outcomes": [{**LEASE, "outcome": OUTCOME}]}, also=(400, 409)
    ),
    f"POST {ROUTES}/stages/{{stage}}/claims/give-back": Entry(
        "work", ROUTE, {"leases": [LEASE]}, also=(400, 409)
    ),
    "GET /api/v1/events": Entry("read", SHARED),
    "GET /api/v1/subscribers": Entry("read", SHARED),
    "POST /api/v1/subscribers/{name}/release": Entry("operate", SHARED, WHY, also=(404,)),
    "POST /api/v1/subscribers/{name}/replay": Entry(
        "operate", ALL, {"since": "1d", "dry_run": True}, also=(404,)
    ),
    "POST /api/v1/subscribers/{name}/forget": Entry("admin", SHARED, WHY, also=(404,)),
    "GET /api/v1/quarantine": Entry("read", ALL),
    "POST /api/v1/quarantine/replay": Entry("operate", ALL, {"all": True, **WHY}),
    "POST /api/v1/quarantine/drop": Entry("operate", ALL, {"all": True, **WHY}),
    "GET /api/v1/processes": Entry("read", SHARED),
    "GET /api/v1/doctor": Entry("read", ALL),
    "GET /healthz": Entry(None, OPEN),
    "GET /readyz": Entry(None, OPEN, also=(503,)),
    "GET /metrics": Entry("read", SHARED),
    "GET /login": Entry(None, OPEN),
    "POST /login": Entry(None, OPEN, {"key": "wrong"}, also=(401, 429)),
    "POST /logout": Entry(None, OPEN, {"csrf_token": ""}, also=(403,)),
    "GET /api/openapi.json": Entry(None, OPEN),
    "GET /api/docs": Entry(None, OPEN),
    # The dashboard
    "GET /": Entry("read", SHARED),
    "GET /find": Entry("read", SHARED, query=urlencode({"q": KEY}), also=(404,)),
    "GET /items": Entry("read", SHARED),
    "GET /items/{route}": Entry("read", ROUTE),
    "GET /export/{route}.{form}": Entry("read", ROUTE, query="scan=true"),
    "GET /items/{route}/{key:path}": Entry("read", ROUTE),
    "GET /lists": Entry("read", SHARED),
    "GET /lists/{id}": Entry("read", SHARED, also=(404,)),
    "GET /events": Entry("read", SHARED),
    "GET /acts": Entry("read", SHARED),
    "GET /acts/{id}": Entry("read", SHARED, also=(404,)),
    "GET /system": Entry("read", SHARED),
    "GET /live": Entry("read", SHARED),
    "GET /static/{version}/{name}": Entry(None, OPEN, also=(404,)),
    # Deposits
    "GET /deposits": Entry("read", APP),
    "GET /deposits/find": Entry("read", APP, query="doi=10.1/x"),
    "GET /deposits/digests/{key}": Entry("read", APP, also=(404,)),
    "POST /deposits/send-again": Entry("operate", APP, {"key": "none", **WHY}, also=(400, 404)),
    "GET /deposits/worklist": Entry("read", APP),
    "GET /deposits/worklist.csv": Entry("read", APP),
    "GET /deposits/dois/{doi:path}": Entry("read", APP, also=(404,)),
    "POST /deposits/claim": Entry("operate", APP, {"doi": "10.1/x"}, also=(400, 404, 409)),
    "POST /deposits/release": Entry("operate", APP, {"doi": "10.1/x"}, also=(400, 404, 409)),
    "POST /deposits/deposited": Entry(
        "operate", APP, {"doi": "10.1/x", "handle": "1/2", **WHY}, also=(400, 404, 409)
    ),
    "POST /deposits/requeue": Entry("operate", APP, {"doi": "10.1/x", **WHY}, also=(400, 404, 409)),
    "POST /deposits/abandon": Entry("operate", APP, {"doi": "10.1/x", **WHY}, also=(400, 404, 409)),
    "GET /api/v1/deposits/worklist": Entry("read", APP),
    "GET /api/v1/deposits/runs": Entry("read", APP),
    # Notifications
    "POST /message": Entry("submit", SEND, MESSAGE),
    "OPTIONS /message": Entry(None, OPEN),
    f"GET {NOTES}/messages": Entry("read", SENDER, query="sender=billing&scan=true"),
    f"GET {NOTES}/messages/{{key:path}}": Entry("read", OF_MESSAGE),
    f"POST {NOTES}/cancel": Entry("submit", OF_MESSAGE, {"key": KEY, **WHY}, also=(409,)),
    f"POST {NOTES}/replay": Entry("operate", SENDER, {"key": KEY, **WHY}, also=(409,)),
    f"POST {NOTES}/replays": Entry("operate", SENDER, {"dry_run": True}),
    f"GET {NOTES}/dead-letters": Entry("read", SENDER),
    f"GET {NOTES}/destinations": Entry("read", SENDER),
    f"GET {NOTES}/destinations/{{name}}": Entry("read", SENDER),
    f"PUT {NOTES}/destinations/{{name}}": Entry("admin", SENDER, {"url": "https://crm.example"}),
    f"DELETE {NOTES}/destinations/{{name}}": Entry("admin", SENDER),
    f"POST {NOTES}/destinations/{{name}}/pause": Entry("operate", SENDER, WHY),
    f"POST {NOTES}/destinations/{{name}}/resume": Entry("operate", SENDER, WHY),
    f"POST {NOTES}/destinations/{{name}}/outage": Entry(
        "operate", SENDER, {"until": "2h", **WHY}, also=(409,)
    ),
    f"GET {NOTES}/senders": Entry("read", SENDER),
    "GET /health": Entry(None, OPEN, also=(503,)),
    f"GET {PAGES}": Entry("read", SENDER),
    f"GET {PAGES}/destinations/{{name}}": Entry("read", SENDER),
    f"POST {PAGES}/destinations/{{name}}/pause": Entry("operate", SENDER, WHY),
    f"POST {PAGES}/destinations/{{name}}/outage": Entry(
        "operate", SENDER, {"until": "2h", **WHY}, also=(400,)
    ),
    f"POST {PAGES}/destinations/{{name}}/resume": Entry("operate", SENDER, WHY),
    f"GET {PAGES}/messages": Entry("read", SENDER, query="sender=billing"),
    f"GET {PAGES}/messages/{{key:path}}": Entry("read", OF_MESSAGE),
    f"POST {PAGES}/cancel": Entry("operate", SENDER, {"key": KEY, **WHY}, also=(409,)),
    f"POST {PAGES}/send-now": Entry("operate", SENDER, {"key": KEY, **WHY}, also=(409,)),
    f"POST {PAGES}/give-up": Entry("operate", SENDER, {"key": KEY, **WHY}, also=(409,)),
    f"POST {PAGES}/replay-one": Entry("operate", SENDER, {"key": KEY, **WHY}, also=(409,)),
    f"GET {PAGES}/dead-letters": Entry("read", SENDER),
    f"GET {PAGES}/replay": Entry("operate", SENDER),
    f"POST {PAGES}/replay": Entry("operate", SENDER, WHY),
}
PARTS = {
    "route": "notifications", "stage": "deliver", "lane:path": "crm", "name": "crm", "key:path": quote(KEY, safe=""), "form": "json",
    "doi:path": "10.1/x",
}  # fmt: skip


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


class Office(LiveServer):
    """A server with all applications, a message of the sender billing that is due in many years,
    and a key of each kind."""

    def __init__(
        self, milepost: mp.Milepost, opened: HttpServer, endpoints: list[Endpoint]
    ) -> None:
        super().__init__(milepost, opened)
        self.endpoints = {name_of(endpoint): endpoint for endpoint in endpoints}
        self.keys = {
            name: None if kind is None else self._key(name, kind) for name, kind in KINDS.items()
        }

    def _key(self, name: str, kind: KeyKind) -> str:
        attributes = {} if kind.sender is None else {"sender": kind.sender}
        return make_key(
            self.ctx,
            name,
            kind.scopes,
            routes=kind.routes,
            attributes=attributes,
            rate=1e5,
            **SIGNED,
        )[1]

    def send(self) -> None:
        assert self.call("POST", "/message", MESSAGE, key=self.keys["admin"]).status == 200

    def try_as(self, who: str, name: str) -> HttpAnswer:
        endpoint, entry = self.endpoints[name], TABLE[name]
        path = re.sub(
            r"\{(\w+)(:path)?\}",
            lambda part: PARTS.get(part[1] + (part[2] or ""), "none"),
            endpoint.path,
        )
        key, query = self.keys[who], f"?{entry.query}" if entry.query else ""
        if entry.body is None or not (endpoint.page or FORM in endpoint.types):
            return self.call(endpoint.method, path + query, entry.body, key=key)
        return self.call(
            endpoint.method,
            path + query,
            urlencode(entry.body).encode(),
            key=key,
            headers={"Content-Type": FORM},
        )

    def recorded(self) -> tuple[int, Any]:
        """The last line of history, and the message."""
        return self.ctx.ledger.last_seq(), self.milepost.show("notifications", KEY)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder: Path = tmp_path_factory.mktemp("office")
    configured = [
        notifications.configured(
            {"destinations": {"crm": {"url": "https://crm.example"}}}, environment={}
        ),
        deposits.configured({"inbox": str(folder), "files": str(folder)}, environment={}),
        postingest.configured({}, environment={}),
    ]
    with mp.open("memory:", routes=[sample_route()], applications=configured) as milepost:
        opened = HttpServer(milepost.context, "127.0.0.1", 0, applications=configured)
        own = [*all_endpoints(), *all_pages()]
        opened.open()
        try:
            yield Office(milepost, opened, [*own, *application_endpoints(configured, own)])
        finally:
            opened.close()


def refusal(who: str, entry: Entry, *, page: bool) -> int | None:
    """The status with which a call is refused; None: it is permitted."""
    kind = KINDS[who]
    if entry.scope is None:
        return None
    if kind is None:
        return 303 if page else 401
    if not {entry.scope, "admin"} & set(kind.scopes):
        return 403
    hidden = kind.routes is not None or who in BOUND
    if entry.scope == "submit":
        hidden = who not in MAY_SUBMIT_GENERALLY
    of_application = entry.rule in (APP, SENDER, OF_MESSAGE, SEND)
    refused = {
        404: (entry.rule == ROUTE and hidden)
        or (entry.rule == OF_MESSAGE and who in SPEAK_FOR_SHOP),
        403: (entry.rule == ALL and hidden)
        or (of_application and kind.routes is not None)
        or (entry.rule in (SENDER, OF_MESSAGE) and who in SPEAK_FOR_NONE)
        or (entry.rule == SEND and who not in MAY_SEND_FOR_BILLING),
    }
    return next((status for status, holds in refused.items() if holds), None)


def test_every_endpoint_is_in_the_table_with_its_scope(office: Office) -> None:
    assert {name: endpoint.scope for name, endpoint in office.endpoints.items()} == {
        name: entry.scope for name, entry in TABLE.items()
    }


def test_a_refused_call_changes_and_shows_nothing(office: Office) -> None:
    office.send()
    before = office.recorded()
    tried, wrong = 0, []
    for name, entry in TABLE.items():
        for who in KINDS:
            status = refusal(who, entry, page=office.endpoints[name].page)
            if status is not None:
                answer = office.try_as(who, name)
                tried += 1
                if answer.status != status or BODY.encode() in answer.raw:
                    wrong.append(f"{name} with {who}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert office.recorded() == before
    assert tried > 900


def test_a_permitted_call_succeeds_and_shows_content_to_readers_of_that_sender_alone(
    office: Office,
) -> None:
    office.send()
    tried, wrong, shown = 0, [], set()
    for name, entry in TABLE.items():
        if office.endpoints[name].path in ENDLESS:
            continue
        for who in KINDS:
            if refusal(who, entry, page=office.endpoints[name].page) is None:
                answer = office.try_as(who, name)
                tried += 1
                content = BODY.encode() in answer.raw
                shown |= {name} if content else set()
                if (answer.status >= 400 and answer.status not in entry.also) or (
                    content and who not in MAY_READ_BILLING
                ):
                    wrong.append(f"{name} with {who}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert tried > 300
    # Else the test would show nothing: the content can be seen in many places.
    assert {
        f"GET {NOTES}/messages/{{key:path}}",
        f"GET {ROUTES}/items/{{key:path}}",
        f"GET {PAGES}/messages/{{key:path}}",
    } <= shown


@pytest.mark.parametrize(
    "who", ["billing", "billing that reads", "operator that reads", "admin", "gateway"]
)
def test_a_cancelled_message_is_shown_with_its_content_to_readers_alone(
    office: Office, who: str
) -> None:
    kind = KINDS[who]
    assert kind is not None
    own = {**MESSAGE, "messageId": f"to cancel as {who}"}
    assert office.call("POST", "/message", own, key=office.keys["admin"]).status == 200
    given = {"key": KEY.replace("m-1", own["messageId"]), **WHY}  # type: ignore[type-var]
    answer = office.call("POST", f"{NOTES}/cancel", given, key=office.keys[who])
    if "submit" not in kind.scopes and "admin" not in kind.scopes:
        assert answer.status == 403
        return
    assert (answer.status, answer.body["status"], answer.body["senderId"]) == (
        200,
        "CANCELLED",
        "billing",
    )
    assert (BODY.encode() in answer.raw) == ("read" in kind.scopes or "admin" in kind.scopes)
    assert ("body" in answer.body) == ("read" in kind.scopes or "admin" in kind.scopes)
