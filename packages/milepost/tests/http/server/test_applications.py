"""Endpoints, pages and metrics of an application, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.application.parcels_application import Settings, application
from tests.http.event_listener import Listener
from tests.http.guarded_server import SIGNED
from tests.http.live_server import LiveServer, sample_route
from tests.http.page_text import text_of

import milepost as mp
import milepost.application as mpa
from milepost.engine.auth import make_key
from milepost.http.server.assembly import HttpServer

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SHOP = "https://shop.example"


@contextmanager
def served(*others: mpa.Application[Any], base: str = "", **settings: Any) -> Iterator[LiveServer]:
    applications = [
        application.with_settings(Settings(**settings)),
        *(one.configured() for one in others),
    ]
    with mp.open("memory:", routes=[sample_route()], applications=applications) as desk:
        server = HttpServer(desk.context, "127.0.0.1", 0, base=base, applications=applications)
        server.open()
        try:
            yield LiveServer(desk, server)
        finally:
            server.close()


@pytest.fixture
def at() -> Iterator[LiveServer]:
    with served(origins=[SHOP]) as live_server:
        yield live_server


def key(at: LiveServer, *scopes: str, routes: list[str] | None = None) -> str:
    return make_key(at.ctx, "-".join([*scopes, *(routes or [])]), scopes, routes=routes, **SIGNED)[
        1
    ]


def test_an_endpoint_reads_its_body_and_answers(at: LiveServer) -> None:
    answer = at.call("POST", "/parcel", {"id": "a", "grams": 3})
    assert (answer.status, answer.body) == (201, {"id": "a", "answer": "new"})
    assert at.milepost.show("weighed", "a")["input"] == {"id": "a", "grams": 3}  # type: ignore[index]
    wrong = at.call("POST", "/parcel", {"id": "a", "grams": "3"})
    assert (wrong.status, wrong.body["field"], wrong.body["expected"]) == (
        400,
        "grams",
        "a whole number",
    )
    assert at.call("GET", "/parcel").status == 405


def test_it_asks_for_the_scope_and_for_all_routes_of_the_application(at: LiveServer) -> None:
    allowed, reader, other = (
        key(at, "submit"),
        key(at, "read"),
        key(at, "submit", routes=["parcels"]),
    )
    assert at.call("POST", "/parcel", {"id": "a"}).status == 401
    assert [
        at.call("POST", "/parcel", {"id": "a"}, key=one).status for one in (allowed, reader, other)
    ] == [201, 403, 403]
    assert (
        at.call("POST", "/parcel", {"id": "a"}, key=key(at, "submit", routes=["weighed"])).status
        == 201
    )
    assert at.call("GET", "/parcels-desk", key=key(at, "read", routes=["parcels"])).status == 403


def test_it_sees_the_attributes_of_the_callers_key() -> None:
    desk = mpa.Application("desk", Settings)

    @desk.endpoint("GET", "/who", scope="read", summary="Who calls")
    def who(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Answer:
        return mpa.Answer({"name": call.caller.name, "attributes": dict(call.caller.attributes)})

    with served(desk) as at:
        assert at.call("GET", "/who").body == {"name": "local", "attributes": {}}
        shop = make_key(at.ctx, "shop", ["read"], attributes={"sender": "shop"}, **SIGNED)[1]
        assert at.call("GET", "/who", key=shop).body == {
            "name": "shop",
            "attributes": {"sender": "shop"},
        }


def test_a_key_that_is_bound_to_some_of_its_items_still_receives_the_stream_of_the_other_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milepost.http.api.events.CHECK_S", 0.0)
    desk = mpa.Application("desk", Settings, bound_by="sender")

    @desk.routes
    def routes(settings: Settings) -> list[mp.Route]:
        return [sample_route("letters")]

    with served(desk) as at:
        shop = make_key(at.ctx, "shop", ["read"], attributes={"sender": "shop"}, **SIGNED)[1]
        listener = Listener(at, key=shop)
        for route, name in (("letters", "a"), ("parcels", "b"), ("letters", "c"), ("parcels", "d")):
            at.milepost.submit(route, {"id": name})
        assert [heard.data["subject"] for heard in listener.take(2)] == ["b", "d"]
        listener.close()


def test_a_shape_of_its_own_for_what_it_takes_and_for_every_error(at: LiveServer) -> None:
    answer = at.call("POST", "/parcel/raw", b"<a/>", headers={"Content-Type": "text/xml"})
    assert answer.body == {"success": True, "size": 4, "kind": "text/xml"}
    large = at.call("POST", "/parcel/raw", b"x" * 21)
    assert (large.status, large.body) == (
        413,
        {
            "success": False,
            "message": "the body of the request has more than 20 bytes",
            "code": "too-large",
        },
    )
    assert at.call("POST", "/parcel/raw", b"fails").body == {
        "success": False,
        "message": "there is no id",
        "code": "malformed-item",
    }
    wrong = at.call("GET", "/parcel/raw")
    assert (wrong.status, wrong.headers["allow"]) == (405, "OPTIONS, POST")
    assert wrong.body == {
        "success": False,
        "message": "GET is not possible at /parcel/raw",
        "code": "wrong-method",
    }
    key(at, "submit")
    refused = at.call("POST", "/parcel/raw", b"x")
    assert (refused.status, refused.body["code"], refused.headers["www-authenticate"]) == (
        401,
        "no-key",
        "Bearer",
    )


def test_pages_of_origins_in_the_settings_may_call_it_and_others_may_not(at: LiveServer) -> None:
    asked = {"Origin": SHOP, "Access-Control-Request-Method": "POST"}
    allowed = at.call("OPTIONS", "/parcel/raw", headers=asked)
    assert (
        allowed.status,
        allowed.headers["access-control-allow-origin"],
        allowed.headers["access-control-allow-methods"],
    ) == (
        204,
        SHOP,
        "POST",
    )
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    other = at.call("OPTIONS", "/parcel/raw", headers={**asked, "Origin": "https://other.example"})
    assert (
        other.status,
        "access-control-allow-origin" in other.headers,
        other.headers["vary"],
    ) == (204, False, "Origin")
    assert at.call("OPTIONS", "/parcel", headers=asked).status == 405
    called = at.call("POST", "/parcel/raw", b"x", headers={"Origin": SHOP})
    assert (called.status, called.headers["access-control-allow-origin"]) == (200, SHOP)
    refused = at.call("POST", "/parcel/raw", b"x", headers={"Origin": "https://other.example"})
    assert (refused.status, refused.body["code"]) == (403, "bad-origin")


def test_a_page_has_the_layout_and_stands_in_the_menu(at: LiveServer) -> None:
    at.call("POST", "/parcel", {"id": "a"})
    page = at.call("GET", "/parcels-desk")
    assert page.status == 200
    assert "1 in all, at most 1,000 g, <b>heavy</b>" in text_of(page)
    assert b"<b>heavy" not in page.raw
    assert b'<a href="/parcels-desk" aria-current="page">Parcels</a>' in page.raw
    assert b'<a href="/parcels-desk">Parcels</a>' in at.call("GET", "/").raw


def test_a_histogram_of_an_application_is_in_the_metrics() -> None:
    desk = mpa.Application("desk", Settings)

    @desk.metrics
    def latency(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
        found = mpa.Histogram.empty((0.5, 1.0))
        for seconds in (0.25, 0.75, 3.0):
            found.add(seconds)
        yield mpa.Metric(
            "latency_seconds", "How long it takes.", {("shop",): found}, ("sender",), "histogram"
        )

    with served(desk) as at:
        shown = at.call("GET", "/metrics").raw.decode()
    assert 'milepost_desk_latency_seconds_bucket{sender="shop",le="1.0"} 2' in shown
    assert 'milepost_desk_latency_seconds_bucket{sender="shop",le="+Inf"} 3' in shown
    assert 'milepost_desk_latency_seconds_sum{sender="shop"} 4.0' in shown


def test_a_metric_that_comes_twice_is_left_out_because_prometheus_would_refuse_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = mpa.Application("desk", Settings)

    @desk.metrics
    def parcels(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
        yield mpa.Metric("parcels", "By sender.", {("shop",): 1.0}, ("sender",))

    @desk.metrics
    def more(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
        yield mpa.Metric("parcels", "By sender.", {("office",): 1.0}, ("sender",))

    with served(desk) as at:
        shown = at.call("GET", "/metrics").raw.decode()
    assert shown.count("# TYPE milepost_desk_parcels ") == 1
    assert "two metrics are called milepost_desk_parcels" in caplog.text


@pytest.mark.parametrize(
    "metric",
    [
        ("wrong", "It has a label too many.", {("shop", "one too many"): 1.0}, ("sender",)),
        ("wrong", "It is no number.", {("shop",): "not a number"}, ("sender",)),
        ("wrong", "It is no number either.", {("shop",): float("nan")}, ("sender",)),
        ("wrong-name", "It has no name for Prometheus.", {("shop",): 1.0}, ("sender",)),
        ("wrong", "Its label has none.", {("shop",): 1.0}, ("the sender",)),
    ],
)
def test_a_metric_that_cannot_be_written_is_left_out_and_hides_no_other(
    metric: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = mpa.Application("desk", Settings)

    @desk.metrics
    def wrong(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
        yield mpa.Metric(*metric)

    @desk.metrics
    def sound(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
        yield mpa.Metric("sound", "It can.", {("shop",): 1.0}, ("sender",))

    with served(desk) as at:
        shown = at.call("GET", "/metrics").raw.decode()
    assert "milepost_desk_wrong" not in shown
    assert 'milepost_desk_sound{sender="shop"} 1.0' in shown
    assert "the metrics of application 'desk' could not be read" in caplog.text


def test_a_form_is_read_and_leads_back_to_a_page(at: LiveServer) -> None:
    sent = at.call(
        "POST", "/parcels-desk/new", urlencode({"key": "a", "grams": "7"}).encode(), headers=FORM
    )
    assert (sent.status, sent.headers["location"]) == (303, "/parcels-desk")
    assert at.milepost.show("weighed", "a")["input"]["grams"] == 7  # type: ignore[index]
    wrong = at.call(
        "POST", "/parcels-desk/new", urlencode({"key": "a", "grams": "x"}).encode(), headers=FORM
    )
    assert (wrong.status, "the form is wrong" in text_of(wrong)) == (400, True)
    elsewhere = at.call(
        "POST",
        "/parcels-desk/new",
        b"key=b&grams=1",
        headers={**FORM, "Origin": "https://other.example"},
    )
    assert elsewhere.status == 403


def test_behind_a_proxy_all_of_it_has_the_base_path() -> None:
    with served(base="/milepost") as at:
        assert (
            b'<a href="/milepost/parcels-desk" aria-current="page">'
            in at.call("GET", "/milepost/parcels-desk").raw
        )
        sent = at.call("POST", "/milepost/parcels-desk/new", b"key=a&grams=7", headers=FORM)
        assert sent.headers["location"] == "/milepost/parcels-desk"


def test_its_endpoints_are_described_with_the_others(at: LiveServer) -> None:
    told = at.call("GET", "/api/openapi.json").body
    operation = told["paths"]["/parcel"]["post"]
    assert (operation["operationId"], operation["tags"]) == (
        "parcels-desk_hand_in_over_http",
        ["parcels-desk"],
    )
    assert operation["description"].startswith("The parcel is on disk when this is answered.")
    assert operation["responses"]["201"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/parcels-desk.SubmitAnswer"
    }
    assert {"SubmitAnswer", "parcels-desk.SubmitAnswer"} <= set(told["components"]["schemas"])
    assert "/parcels-desk" not in told["paths"]
    assert "options" not in told["paths"]["/parcel/raw"]
    assert "Hand in a parcel" in text_of(at.call("GET", "/api/docs"))


def test_its_metrics_stand_beside_the_others_and_its_faults_hide_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served() as at:
        text = at.call("GET", "/metrics").raw.decode()
        assert 'milepost_parcels_desk_heaviest_grams{scale="scale-1"} 1000' in text
    with served(fault="raises") as at:
        text = at.call("GET", "/metrics").raw.decode()
        assert "milepost_items" in text
        assert "parcels_desk" not in text
    assert "the metrics of application 'parcels-desk' could not be read" in caplog.text


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/items/{name}"), ("POST", "/parcel"), ("GET", "/healthz")]
)
def test_a_path_that_is_taken_is_a_mistake(method: str, path: str) -> None:
    other = mpa.Application("other", mpa.AppSettings)

    @other.endpoint(method, path, scope=None, summary="Taken")
    def taken(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> mpa.Answer:
        return mpa.Answer()

    with (
        pytest.raises(
            mp.ConfigMistake, match=f"the application 'other' has {method} .* is taken by"
        ),
        served(other),
    ):
        pass


def test_a_function_that_returns_something_else_is_a_failure_of_this_call_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = mpa.Application("other", mpa.AppSettings)

    @other.endpoint("GET", "/other", scope=None, summary="Wrong")
    def wrong(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> Any:
        return {"status": "fine"}

    with served(other) as at:
        assert at.call("GET", "/other").status == 500
        assert at.call("GET", "/healthz").status == 200
    assert (
        "GET /other of 'other' returned dict; return an Answer, a Page, a Redirect or a Download"
        in caplog.text
    )


def test_a_page_may_be_a_file_and_a_form_reads_what_it_has_written() -> None:
    other = mpa.Application("other", mpa.AppSettings)

    @other.page("/other/table.csv")
    def table(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> mpa.Download:
        return mpa.Download("größe.csv", b"a,b\r\n", "text/csv; charset=utf-8")

    @other.page("/other/count", scope="operate", form=Settings)
    def count(app: mpa.AppContext[mpa.AppSettings], call: mpa.Call) -> mpa.Redirect:
        for _ in range(2):
            held = app.documents.get("count")
            version, number = (0, 0) if held is None else (held.version, held.value)
            assert app.documents.put("count", number + 1, expect=version)
        return mpa.Redirect("/other")

    with served(other) as at:
        file = at.call("GET", "/other/table.csv")
        assert (
            file.headers["content-disposition"]
            == "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe.csv"
        )
        assert file.headers["content-type"] == "text/csv; charset=utf-8"
        assert at.call("POST", "/other/count", b"", headers=FORM).status == 303
