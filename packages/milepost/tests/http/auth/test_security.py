"""Access without a key, security headers, and rules for every endpoint, present or future."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.guarded_server import ITEMS, READ, GuardedServer, guarded_server
from tests.http.live_server import sample_route

from milepost.engine.act_log import all_acts
from milepost.engine.acts.controls import pause
from milepost.engine.auth import SCOPES
from milepost.http.auth.origins import address_of, from_elsewhere, not_local
from milepost.http.protocol.endpoint import ENDPOINTS, Answer, Call, Endpoint
from milepost.http.protocol.endpoint import endpoint as declare
from milepost.http.server.application import POLICY, make_app
from milepost.http.server.assembly import all_endpoints
from milepost.http.server.listener import Server
from milepost.http.state.state import ServerState

HERE = ("127.0.0.1", 8321)
OPEN_WRITES = {"/login", "/logout"}
"""What anybody may call though it changes something; each looks by itself who it is."""
HIDDEN = "hidden-route"


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    routes = [sample_route(), sample_route(HIDDEN)]
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", routes) as opened:
        opened.milepost.submit("parcels", {"id": "a"})
        opened.milepost.submit(HIDDEN, {"id": "hidden-item"})
        opened.work()
        yield opened


@pytest.fixture(scope="module")
def unlocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """A door without keys, for tests that leave nothing behind."""
    with guarded_server(f"sqlite:///{tmp_path_factory.mktemp('unlocked')}/ledger.db") as opened:
        opened.milepost.submit("parcels", {"id": "a"})
        yield opened


def address(endpoint: Endpoint, route: str = "parcels") -> str:
    """A path of the endpoint, its parts filled in."""
    return re.sub(
        r"\{(\w+)(:path)?\}", lambda part: route if part[1] == "route" else "a", endpoint.path
    )


# Every endpoint -----------------------------------------------------------------------------------


def test_a_key_that_reads_can_write_nowhere(at: GuardedServer) -> None:
    key = at.key("read", rate=100_000)
    writes = [
        endpoint
        for endpoint in all_endpoints()
        if endpoint.writes and endpoint.path not in OPEN_WRITES
    ]
    assert len(writes) > 0
    answers = {(one.method, one.path): at.call(one.method, address(one), key=key) for one in writes}
    assert {
        called: answer.status for called, answer in answers.items() if answer.status != 403
    } == {}
    assert all(answer.body["code"] == "not-allowed" for answer in answers.values())


def test_no_endpoint_but_those_that_are_open_is_called_without_a_key(at: GuardedServer) -> None:
    at.key("read")
    at.ticks.now += 5
    closed = [endpoint for endpoint in all_endpoints() if endpoint.scope is not None]
    statuses = {(one.method, one.path): at.call(one.method, address(one)).status for one in closed}
    assert {called: status for called, status in statuses.items() if status != 401} == {}


def test_what_is_open_to_all_changes_nothing() -> None:
    assert {endpoint.scope for endpoint in all_endpoints()} <= {*SCOPES, None}
    assert {
        endpoint.path for endpoint in all_endpoints() if endpoint.scope is None and endpoint.writes
    } == OPEN_WRITES
    assert [
        endpoint.path
        for endpoint in all_endpoints()
        if endpoint.method == "GET" and endpoint.writes
    ] == []


def test_a_key_of_one_route_hears_nothing_of_another_anywhere(
    at: GuardedServer, tmp_path: Path
) -> None:
    pause(at.ctx, HIDDEN, "weigh", None, by="ops", reason="a test")
    (tmp_path / "list.txt").write_text("hidden-item\nother-item\n")
    at.milepost.submit_list(HIDDEN, str(tmp_path / "list.txt"), name=f"{HIDDEN}.txt")
    everything, limited = (
        at.key("admin", rate=100_000),
        at.key("admin", name="limited", routes=["parcels"], rate=100_000),
    )
    tell = set()
    for endpoint in all_endpoints():
        if endpoint.method != "GET":
            continue
        if "{route}" in endpoint.path:
            answer = at.call("GET", address(endpoint, HIDDEN), key=limited)
            assert (answer.status, answer.body["code"]) == (404, "unknown-route"), endpoint.path
        else:
            if HIDDEN.encode() in at.call("GET", address(endpoint), key=everything).raw:
                tell.add(endpoint.path)
            assert HIDDEN.encode() not in at.call("GET", address(endpoint), key=limited).raw, (
                endpoint.path
            )
    # Else the test would show nothing.
    assert tell >= {"/api/v1/status", "/api/v1/lists", "/api/v1/acts", "/api/v1/events", "/metrics"}


def test_every_write_to_another_route_is_to_one_that_is_not_there(at: GuardedServer) -> None:
    limited = at.key("admin", routes=["parcels"], rate=100_000)
    before = at.milepost.show(HIDDEN, "hidden-item")
    for endpoint in all_endpoints():
        if endpoint.writes and "{route}" in endpoint.path:
            kind = {"Content-Type": endpoint.types[0]} if endpoint.body is not None else {}
            answer = at.call(
                endpoint.method,
                address(endpoint, HIDDEN),
                b"{}" if kind else None,
                key=limited,
                headers=kind,
            )
            assert (answer.status, answer.body["code"], answer.body["expected"]) == (
                404,
                "unknown-route",
                "parcels",
            ), endpoint.path
    assert at.milepost.show(HIDDEN, "hidden-item") == before


# Without keys: this machine -----------------------------------------------------------------------


def test_without_keys_this_machine_may_do_everything(at: GuardedServer) -> None:
    assert at.call("POST", ITEMS, {"id": "b"}).status == 201
    for host in ("localhost", f"127.0.0.1:{at.port}", "LOCALHOST:80", "[::1]:8321"):
        assert at.call("GET", READ, headers={"Host": host}).status == 200
    shown = at.milepost.show("parcels", "b")
    assert shown is not None
    assert shown["history"][0]["by"] == "local"


@pytest.mark.parametrize(
    "host",
    [
        "elsewhere.example",
        "elsewhere.example:8321",
        "127.0.0.1.elsewhere.example",
        "localhost@elsewhere",
        "[",
        "",
    ],
)
def test_a_name_that_somebody_has_pointed_at_this_machine_opens_nothing(
    unlocked: GuardedServer, host: str
) -> None:
    answer = unlocked.call("GET", READ, headers={"Host": host})
    assert (answer.status, answer.body["code"]) == (403, "not-local")


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"]
)
def test_what_a_proxy_has_passed_on_is_not_from_this_machine(
    unlocked: GuardedServer, header: str
) -> None:
    assert unlocked.call("GET", READ, headers={header: "127.0.0.1"}).status == 403


@pytest.mark.parametrize(
    "said",
    [{"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_another_sites_page_in_a_browser_here_can_write_nothing(
    unlocked: GuardedServer, said: dict[str, str]
) -> None:
    answer = unlocked.call("POST", ITEMS, {"id": "b"}, headers=said)
    assert (answer.status, answer.body["code"]) == (403, "bad-origin")
    assert unlocked.milepost.show("parcels", "b") is None


def test_a_page_of_ours_can_write(at: GuardedServer) -> None:
    said = {"Origin": f"http://127.0.0.1:{at.port}", "Sec-Fetch-Site": "same-origin"}
    assert at.call("POST", ITEMS, {"id": "b"}, headers=said).status == 201


def test_a_key_where_there_are_none_is_not_taken_for_a_good_one(unlocked: GuardedServer) -> None:
    assert unlocked.call("GET", READ, key=f"mp_{'0' * 12}_x").status == 401


@pytest.mark.parametrize(
    ("server", "client", "headers", "local"),
    [
        (HERE, HERE, {"host": "127.0.0.1:8321"}, True),
        (("::1", 8321), ("::1", 9), {"host": "[::1]:8321"}, True),
        (("127.3.2.1", 1), HERE, {"host": "localhost"}, True),
        (("10.0.0.5", 8321), ("10.0.0.9", 9), {"host": "127.0.0.1"}, False),
        (("10.0.0.5", 8321), HERE, {"host": "127.0.0.1"}, False),
        (HERE, ("10.0.0.9", 9), {"host": "127.0.0.1"}, False),
        (None, HERE, {"host": "127.0.0.1"}, False),
        (HERE, None, {"host": "127.0.0.1"}, False),
        (HERE, HERE, {}, False),
        (HERE, HERE, {"host": "10.0.0.5"}, False),
        (HERE, HERE, {"host": "localhost", "x-forwarded-for": "10.0.0.9"}, False),
    ],
)
def test_a_call_is_local_only_if_all_of_it_is(
    server, client, headers: dict[str, str], local: bool
) -> None:
    assert (not_local(server, client, headers) is None) is local


@pytest.mark.parametrize(
    ("headers", "elsewhere"),
    [
        ({"host": "a:1"}, False),
        ({"host": "a:1", "origin": "http://A:1"}, False),
        ({"host": "a:1", "origin": "http://a:2"}, True),
        ({"host": "a:1", "origin": "null"}, True),
        ({"host": "", "origin": "null"}, True),
        ({"host": "a", "sec-fetch-site": "none"}, False),
        ({"host": "a", "sec-fetch-site": "same-site", "origin": "http://a"}, True),
        ({"host": "a", "sec-fetch-site": "same-origin", "origin": "http://b"}, True),
    ],
)
def test_browsers_say_where_a_call_comes_from(headers: dict[str, str], elsewhere: bool) -> None:
    assert from_elsewhere(headers) is elsewhere


def test_addresses_of_one_ipv6_network_are_counted_as_one() -> None:
    assert address_of(("2001:db8:1:2:aaaa::1", 1)) == address_of(("2001:db8:1:2::9", 2))
    assert address_of(("2001:db8:1:3::1", 1)) != address_of(("2001:db8:1:2::1", 1))
    assert address_of(("::ffff:10.0.0.5", 1)) == "10.0.0.5"
    assert (address_of(("10.0.0.5", 1)), address_of(("somewhere", 1)), address_of(None)) == (
        "10.0.0.5",
        "somewhere",
        "",
    )


# Every answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", READ, 200),
        ("GET", "/nowhere", 404),
        ("PATCH", ITEMS, 405),
        ("POST", ITEMS, 415),
        ("GET", "/login", 200),
    ],
)
def test_every_answer_has_the_headers(
    unlocked: GuardedServer, method: str, path: str, status: int
) -> None:
    answer = unlocked.call(method, path)
    assert answer.status == status
    check_headers(answer.headers)
    assert answer.headers["cache-control"] == "no-store"


def check_headers(headers: dict[str, str]) -> None:
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "camera=()" in headers["permissions-policy"]
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_what_pages_are_made_of_is_kept_by_a_browser_for_as_long_as_it_is_the_same(
    unlocked: GuardedServer,
) -> None:
    [sheet] = re.findall(
        r'href="(/static/\w{12}/look.css)"', unlocked.call("GET", "/login").raw.decode()
    )
    answer, older = unlocked.call("GET", sheet), unlocked.call("GET", "/static/older/look.css")
    assert (answer.headers["cache-control"], older.headers["cache-control"]) == (
        "public, max-age=31536000, immutable",
        "no-cache",
    )
    assert answer.raw == older.raw
    check_headers(answer.headers)


@declare("GET", "/broken", scope="read", summary="x")
def broken(state: ServerState, call: Call) -> Answer:
    raise ZeroDivisionError("password=hunter2")


@declare("GET", "/kept", scope="read", summary="x")
def kept(state: ServerState, call: Call) -> Answer:
    return Answer({}, headers={"Cache-Control": "max-age=60", "Server": "x/1.0"})


def test_a_failure_has_the_headers_and_tells_nothing_of_itself(at: GuardedServer) -> None:
    server = Server(make_app(at.opened.state, ENDPOINTS[__name__]), "127.0.0.1", 0)
    # The state's authenticator belongs to one event loop at a time, and the other server is not
    # called meanwhile.
    server.start()
    try:
        found = {}
        for path in ("/broken", "/kept"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", path)
            answer = connection.getresponse()
            found[path] = (
                answer.status,
                {name.lower(): value for name, value in answer.getheaders()},
                answer.read(),
            )
            connection.close()
    finally:
        server.stop()
    status, headers, body = found["/broken"]
    assert status == 500
    check_headers(headers)
    assert b"hunter2" not in body
    assert b"ZeroDivision" not in body
    check_headers(found["/kept"][1])
    assert found["/kept"][1]["cache-control"] == "max-age=60"


# On record ----------------------------------------------------------------------------------------


def test_what_comes_through_the_door_is_on_record_under_the_keys_name(at: GuardedServer) -> None:
    key = at.key("submit", name="ingest")
    assert at.call("POST", ITEMS, {"id": "b"}, key=key).status == 201
    assert at.call("POST", ITEMS, [{"id": "c"}], key=key).status == 200
    for item in ("b", "c"):
        shown = at.milepost.show("parcels", item)
        assert shown is not None
        assert shown["history"][0]["by"] == "ingest"
    assert [act.verb for act in all_acts(at.ctx)] == ["new-key"]
