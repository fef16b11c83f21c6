"""Scopes hold everywhere: reading changes nothing, and a key without `read` gets no page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.guarded_server import SIGNED, GuardedServer, guarded_server
from tests.http.live_server import HttpAnswer
from tests.polling import wait_until

from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.auth import SCOPES, all_keys, last_uses
from milepost.http.protocol.endpoint import Endpoint
from milepost.http.server.assembly import all_endpoints, all_pages
from milepost.ports import documents

KINDS = {
    value for name, value in vars(documents).items() if name.isupper() and isinstance(value, str)
} - {documents.PROBE}
"""Of all documents that a ledger keeps beside its items. The probe is written by whoever asks
whether all is ready."""
ENDLESS = ("/live",)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    folder: Path = tmp_path_factory.mktemp("scopes")
    with guarded_server(f"sqlite:///{folder}/ledger.db") as opened:
        opened.milepost.submit("parcels", {"id": "a"}, {"id": "b", "weigh": "reject"})
        (folder / "list.txt").write_text("c\nd\n")
        opened.milepost.submit_list("parcels", str(folder / "list.txt"), name="night", full=True)
        opened.work()
        act(
            opened.ctx,
            select(opened.ctx, "parcels", keys=["b", "x"]),
            RetryVerb(),
            act_id="night",
            **SIGNED,
        )
        yield opened


def gets() -> list[Endpoint]:
    return [
        one
        for one in (*all_endpoints(), *all_pages())
        if one.method == "GET" and one.path not in ENDLESS
    ]


def address(endpoint: Endpoint, at: GuardedServer) -> str:
    of_list = "lists" in endpoint.path
    known = {
        "route": "parcels",
        "form": "csv",
        "id": next(iter(at.ctx.ledger.read(documents.LIST))) if of_list else "night",
    }
    return re.sub(r"\{(\w+)(:path)?\}", lambda part: known.get(part[1], "a"), endpoint.path)


def look(at: GuardedServer, path: str, key: str, method: str = "GET") -> HttpAnswer:
    return at.call(method, path, key=key, headers={"Accept": "text/html"})


def state(at: GuardedServer) -> object:
    """All that a ledger holds: the last line, every item, and every document."""
    ledger = at.ctx.ledger
    rows = [row for row in ledger.get([("parcels", key) for key in "abcd"]) if row is not None]
    return (
        ledger.last_seq(),
        [row.row for row in rows],
        {kind: dict(ledger.read(kind)) for kind in KINDS},
    )


def test_looking_changes_nothing(at: GuardedServer) -> None:
    key = at.key("read", name="reader", rate=100_000)
    look(at, "/", key)
    # That a key was used is written once, and behind the call.
    wait_until(
        lambda: any(
            known.name == "reader" and known.id in last_uses(at.ctx) for known in all_keys(at.ctx)
        )
    )
    before, seen = state(at), set()
    paths = [address(endpoint, at) for endpoint in gets()]
    asking = [
        "/system?doctor=true",
        "/lists/x?vanished=true",
        "/items/parcels?overdue=true",
        "/export/parcels.json?nearest=true&scan=true",
    ]
    for path in (*paths, *asking):
        for method in ("GET", "HEAD"):
            seen.add(look(at, path, key, method).status)
    assert state(at) == before
    # Else the test would show nothing: nearly all of them had something to show.
    assert seen <= {200, 303, 404, 503}


@pytest.mark.parametrize("scope", sorted(set(SCOPES) - {"read", "admin"}))
def test_who_may_not_look_is_shown_nothing(at: GuardedServer, scope: str) -> None:
    key = at.key(scope, name=f"only-{scope}", rate=100_000)
    for endpoint in gets():
        if endpoint.scope is not None:
            answer = look(at, address(endpoint, at), key)
            assert answer.status == 403, endpoint.path
            assert b"night" not in answer.raw.replace(b"/night", b""), endpoint.path


@pytest.mark.parametrize("scope", ["read", "submit", "work"])
def test_a_preview_of_an_act_is_for_those_who_may_act(at: GuardedServer, scope: str) -> None:
    key = at.key(scope, name=f"preview-{scope}", rate=100_000)
    before = at.ctx.ledger.last_seq()
    body = {"verb": "cancel", "filter": {"status": ["live"]}, "dry_run": True}
    for path, given in (
        ("/api/v1/routes/parcels/acts", body),
        ("/api/v1/routes/parcels/acts/night/go-on", {"dry_run": True}),
        ("/api/v1/subscribers/x/replay", {"since": "1d", "dry_run": True}),
    ):
        assert at.call("POST", path, given, key=key).status == 403
    assert at.ctx.ledger.last_seq() == before
