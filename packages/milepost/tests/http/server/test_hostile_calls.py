"""Hostile requests: odd URLs, bodies that are not text, numbers out of range, markup and formulas
in values."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pytest
from tests.http.live_server import JSON, HttpAnswer, LiveServer, running_server, sample_route

import milepost as mp
from milepost.core.errors import EventRefused
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import pause
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.events.deliver import EventRelay
from milepost.http.dashboard.pages.items import cell
from milepost.ports.documents import PROCESS, Process
from milepost.subscribers import CallSubscriber

ITEMS = "/api/v1/routes/parcels/items"
ACTS = "/api/v1/routes/parcels/acts"
FORM = "application/x-www-form-urlencoded"


def send(
    live_server: LiveServer, path: str, body: bytes, kind: str = JSON, **more: str
) -> HttpAnswer:
    return live_server.call(
        "POST",
        path,
        body,
        headers={
            "Content-Type": kind,
            **{name.replace("_", "-"): value for name, value in more.items()},
        },
    )


# Addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/healthz", f"{ITEMS}/here", "/items/parcels/here", f"{ITEMS}", "/static/any/look.css"]
)
def test_an_address_with_a_line_end_is_not_the_one_without(
    shared_server: LiveServer, path: str
) -> None:
    shared_server.milepost.submit("parcels", {"id": "here"})
    assert shared_server.call("GET", path).status == 200
    assert shared_server.call("GET", f"{path}%0A").status == 404


def test_an_act_on_a_lane_with_a_line_end_is_none_on_the_lane_without(
    shared_server: LiveServer,
) -> None:
    assert (
        shared_server.call(
            "PUT", "/api/v1/routes/parcels/holds/weigh/north%0A", {"reason": "a test"}
        ).status
        == 404
    )
    assert shared_server.call("GET", "/api/v1/routes/parcels/holds").body == {"holds": []}


@pytest.mark.parametrize(
    "name", ["a" * 5_000 + ".css", "%00.css", "..%2flook.css", "%2e%2e%2f%2e%2e%2frendering.py", ".", "..", "..%5clook.css", "look.css%00.js", "look"]
)  # fmt: skip
def test_a_file_that_is_none_of_ours_is_not_there(
    shared_server: LiveServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    assert shared_server.call("GET", f"/static/any/{name}").status == 404
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "key",
    [
        "k" * 10_000,
        "%00",
        "%0A",
        "%FF",
        "%ED%A0%80",
        "a%2Fb%2F..%2F..",
        "%F4%8F%BF%BF",
        "e%CC%81",
        "",
        ".",
    ],
)
def test_a_key_that_cannot_be_is_not_there_and_nothing_breaks(
    shared_server: LiveServer, key: str
) -> None:
    for path in (
        f"{ITEMS}/",
        "/items/parcels/",
        "/api/v1/routes/parcels/story/",
        "/api/v1/routes/parcels/evidence/",
    ):
        assert shared_server.call("GET", path + key).status == 404, path
    assert shared_server.call("GET", f"/find?q={key}").status == (
        404 if unquote(key).strip() else 303
    )
    assert shared_server.call("GET", f"/items/parcels?prefix={key}").status == 200


def test_a_search_cannot_write_headers(shared_server: LiveServer) -> None:
    answer = shared_server.call("GET", "/find?q=x%0d%0aSet-Cookie:%20a=b")
    assert (answer.status, "set-cookie" in answer.headers) == (404, False)


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"id": "\xff"}', "malformed"),
        (b'{"\xff": "a"}', "malformed"),
        (b'{"id": "\\ud800"}', "malformed"),
        (b'{"id": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed"),
        (b'{"id": "a", "x": NaN}', "malformed"),
        (b'{"id": "a", "x": 1e400}', "wrong-value"),
        (b'{"id": "a", "x": ' + b"9" * 5_000 + b"}", "wrong-value"),
        (b'{"id": "' + b"k" * 10_000 + b'"}', "malformed-item"),
        (b'{"id": "a\\u0000"}', "malformed-item"),
        (b'{"id": "a\\nb"}', "malformed-item"),
        (b'{"id": 1e300}', "malformed-item"),
    ],
)
def test_a_body_that_cannot_be_is_the_callers_mistake(
    shared_server: LiveServer, body: bytes, code: str
) -> None:
    answer = send(shared_server, ITEMS, body)
    assert (answer.status in (400, 422), answer.body["code"]) == (True, code)


@pytest.mark.parametrize("kind", [JSON, "application/x-ndjson"])
def test_half_a_character_is_called_that(shared_server: LiveServer, kind: str) -> None:
    for text in (b"\\ud800", b"\\uDBFFx", b"\\\\\\ud800"):
        answer = send(shared_server, ITEMS, b'{"id": "' + text + b'"}', kind)
        assert b"is half of a surrogate pair and no character by itself" in answer.raw
    cut = send(shared_server, ITEMS, b'{"id": "\\\\ud800', kind)
    assert b"half of a pair" not in cut.raw, "a backslash that stands for itself"
    assert b"truncated" in cut.raw


@pytest.mark.parametrize(
    "body", [b'{"id": "D", "id": "E"}', b'{"id": "D", "of": {"x": 1, "x": 2}}']
)
def test_a_body_that_gives_a_name_twice_is_refused(shared_server: LiveServer, body: bytes) -> None:
    answer = send(shared_server, ITEMS, body)
    assert (answer.status, answer.body["code"]) == (400, "malformed")
    assert "twice" in answer.body["detail"]


def test_what_is_nested_too_deeply_to_be_read_is_told_how_deep_it_may_be(
    shared_server: LiveServer,
) -> None:
    told = send(
        shared_server, ITEMS, b'{"id": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    ).body
    assert (told["code"], told["detail"]) == (
        "malformed",
        "the body is nested too deeply to be read",
    )
    assert told["expected"] == "JSON of at most 200 levels"


VERBS = "cancel or confirm or replace or rerun or reschedule or resend or retry or skip"
OUTCOMES = "done or not-yet or checked or handed-over or retry or reject"


@pytest.mark.parametrize(
    ("path", "body", "field", "expected"),
    [
        ("acts", {"verb": "blow", "keys": ["a"], "reason": "x"}, "verb", VERBS),
        ("acts", {"verb": 3}, "verb", VERBS),
        (
            "acts",
            {"verb": "retry", "keys": [], "reason": "x"},
            "keys",
            "a list from 1 to 10000 long",
        ),
        ("acts", {"verb": "retry", "keys": ["a", 1], "reason": "x"}, "keys[1]", "text"),
        ("acts", {"verb": "retry", "dry_run": "no"}, "dry_run", "true or false"),
        (
            "acts",
            {"verb": "retry", "filter": {"colour": 1}},
            "filter.colour",
            "status, stage, lane, group, list, prefix, part, older_than",
        ),
        (
            "confirmations",
            {"key": "a", "stage": "deliver", "outcome": {"type": "fine"}},
            "outcome.type",
            OUTCOMES,
        ),
        (
            "confirmations",
            {"key": "a", "stage": "deliver", "outcome": {}},
            "outcome.type",
            OUTCOMES,
        ),
        ("confirmations", {"key": "a", "stage": "deliver", "outcome": 7}, "outcome", "an object"),
        (
            "acts",
            {"verb": "retry", "reason": "x" * 1001},
            "reason",
            "text, at most 1000 characters long",
        ),
        (
            "confirmations",
            {"key": "", "stage": "deliver", "value": 1},
            "key",
            "text that is not empty",
        ),
    ],
)
def test_a_wrong_field_is_named_with_what_would_be_right(
    shared_server: LiveServer, path: str, body: Any, field: str, expected: str
) -> None:
    answer = shared_server.call("POST", f"/api/v1/routes/parcels/{path}", body)
    assert (answer.status, answer.body["code"]) == (400, "wrong-value"), answer
    assert (answer.body["field"], answer.body["expected"]) == (field, expected)


def test_large_numbers_keep_all_their_digits(live_server: LiveServer) -> None:
    numbers = b'{"id": "a", "n": [9007199254740993, 18446744073709551617, -123456789012345678901234567890]}'
    assert send(live_server, ITEMS, numbers).status == 201
    assert live_server.call("GET", f"{ITEMS}/a").body["input"] == json.loads(numbers)
    page = live_server.call("GET", "/items/parcels/a").raw
    assert all(
        number in page
        for number in (
            b"9007199254740993",
            b"18446744073709551617",
            b"-123456789012345678901234567890",
        )
    )


DEEP = b"[" * 970 + b"]" * 970
"""So deep that the door can just read it."""


def remote_route() -> mp.Route:
    """A stage of workers elsewhere, one of our own, and one outside."""
    route = mp.Route("parcels", key="id")
    route.stage("scan", remote=True)
    route.stage("weigh")(lambda item: mp.Done())
    route.external("deliver")
    return route


@pytest.mark.parametrize("kind", [JSON, "application/x-ndjson"])
def test_an_item_that_is_deep_is_not_taken_in_and_hinders_no_other(
    live_server: LiveServer, kind: str
) -> None:
    items = [b'{"id": "deep", "x": ' + DEEP + b"}", b'{"id": "plain"}']
    answer = send(
        live_server,
        ITEMS,
        b"[" + b",".join(items) + b"]" if kind == JSON else b"\n".join(items),
        kind,
    )
    assert (answer.status, b"nested more than 200 levels deep" in answer.raw) == (200, True)
    live_server.work()
    assert live_server.call("GET", f"{ITEMS}/plain").body["stage"] == "deliver"
    assert send(live_server, ITEMS, items[0]).body["code"] == "malformed-item"
    assert [
        told["subject"] for told in live_server.call("GET", "/api/v1/events").body["events"]
    ] == ["plain"] * 3


def test_what_is_said_of_an_item_is_not_kept_if_it_is_deep(tmp_path: Path) -> None:
    with running_server(tmp_path, remote_route()) as live_server:
        live_server.milepost.submit("parcels", {"id": "a"}, {"id": "b"})
        claims = "/api/v1/routes/parcels/stages/scan/claims"
        work = {
            one["key"]: one["lease"]
            for one in live_server.call("POST", claims, {"worker": "w", "want": 2}).body["items"]
        }
        done = b'{"type": "done", "output": ' + DEEP + b"}"
        said = [
            b'{"key": "%b", "lease": "%b", "outcome": %b}' % (key.encode(), lease.encode(), done)
            for key, lease in work.items()
        ]
        answers = [
            send(live_server, f"{claims}/settle", b'{"outcomes": [' + b",".join(said) + b"]}"),
            send(
                live_server,
                "/api/v1/routes/parcels/confirmations",
                b'{"key": "a", "stage": "deliver", "value": ' + DEEP + b"}",
            ),
            send(
                live_server,
                "/api/v1/routes/parcels/confirmations",
                b'{"key": "a", "stage": "deliver", "outcome": ' + done + b"}",
            ),
            send(
                live_server,
                ACTS,
                b'{"verb": "confirm", "keys": ["a"], "reason": "x", "stage": "deliver", "outcome": '
                + done
                + b"}",
            ),
        ]
        assert [(answer.status, answer.body["field"]) for answer in answers] == [
            (400, "outcomes[0].outcome"),
            (400, "value"),
            (400, "outcome"),
            (400, "outcome"),
        ]
        assert all(
            "nested more than 200 levels deep" in answer.body["detail"] for answer in answers
        )
        assert live_server.call("GET", f"{ITEMS}/a").body["results"] == {}


@pytest.mark.parametrize("kind", [JSON, "text/plain", "text/csv"])
@pytest.mark.parametrize("packed", ["gzip", "deflate", "br", "GZIP, identity"])
def test_what_is_packed_is_not_taken_for_what_is_in_it(
    shared_server: LiveServer, kind: str, packed: str
) -> None:
    answer = send(
        shared_server, ITEMS, b"\x78\x9cK\x04\x00\x00b\x00b", kind, Content_Encoding=packed
    )
    assert (answer.status, answer.body["code"], answer.body["field"]) == (
        415,
        "wrong-type",
        "Content-Encoding",
    )


def test_a_body_may_say_that_it_is_as_it_is(shared_server: LiveServer) -> None:
    assert send(shared_server, ITEMS, b'{"id": "plain"}', Content_Encoding="identity").status == 201


def test_a_form_of_many_fields_is_the_callers_mistake(shared_server: LiveServer) -> None:
    answer = send(shared_server, "/login", b"&".join([b"a=1"] * 200), FORM)
    assert (answer.status, answer.body["code"]) == (400, "malformed")


@pytest.mark.parametrize("id", ["night\n", "night run", "", "n" * 65, "<b>", "../x"])
def test_an_act_has_a_plain_id(shared_server: LiveServer, id: str) -> None:
    answer = shared_server.call(
        "POST", ACTS, {"verb": "retry", "keys": ["nobody"], "reason": "a test", "id": id}
    )
    assert (answer.status, answer.body["field"]) == (400, "id")


@pytest.mark.parametrize("worker", ["w\n", "\n", "w\r\nx", "w\x00"])
def test_a_workers_name_is_one_line(shared_server: LiveServer, worker: str) -> None:
    answer = shared_server.call(
        "POST", "/api/v1/routes/parcels/stages/weigh/claims", {"worker": worker}
    )
    assert (answer.status, answer.body["field"]) == (400, "worker")


@pytest.mark.parametrize("before", ["1%0A", "%D9%A1", "1e3", "-1"])
def test_a_place_among_the_events_is_written_in_plain_digits(
    shared_server: LiveServer, before: str
) -> None:
    assert shared_server.call("GET", f"/events?before={before}").status == 400


# Answers that fail --------------------------------------------------------------------------------


def test_a_file_that_breaks_off_is_not_taken_for_whole(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_server.milepost.submit("parcels", {"id": "a"})

    def rows(*given: Any) -> Iterator[dict[str, Any]]:
        yield {"key": "a"}
        raise RuntimeError("a disk with a secret name")

    monkeypatch.setattr("milepost.http.dashboard.pages.items._rows", rows)
    with pytest.raises(Exception, match=r"IncompleteRead|more expected") as cut:
        live_server.call("GET", "/export/parcels.json")
    assert "secret" not in str(cut.value)
    assert live_server.call("GET", "/healthz").status == 200


# Markup and formulas ------------------------------------------------------------------------------

MARKUP = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Of a page: elements that none of ours has, and attributes that would run or style
    something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.odd: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (
            tag == "img"
            or (tag == "script" and "src" not in given)
            or any(name.startswith("on") or name == "style" for name in given)
        ):
            self.odd.append(self.get_starttag_text() or tag)


def noted(item: mp.Item) -> mp.Outcome:
    return mp.NotYet(MARKUP) if item.key.startswith("wait") else mp.Reject(MARKUP)


def test_markup_is_shown_as_text_wherever_it_comes_from(tmp_path: Path) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh", retry=mp.Backoff(attempts=1), lane=lambda item: MARKUP)(noted)
    with running_server(tmp_path, route) as live_server:
        (tmp_path / "list.txt").write_text(f"{MARKUP}\nwait{MARKUP}\n")
        live_server.milepost.submit_list("parcels", str(tmp_path / "list.txt"), name=MARKUP)
        live_server.call(
            "POST",
            f"{ITEMS}?name={quote(MARKUP)}",
            b'{"wrong": "' + MARKUP[2:].encode() + b'"}\n',
            headers={"Content-Type": "application/x-ndjson"},
        )
        live_server.work()

        def hook(event: object) -> None:
            raise EventRefused(MARKUP)

        EventRelay(live_server.ctx, CallSubscriber(hook), "p1").run_once()
        act(
            live_server.ctx,
            select(live_server.ctx, "parcels", keys=[MARKUP, "other"]),
            RetryVerb(),
            by=f"ops for {MARKUP}",
            reason=MARKUP,
        )
        act(
            live_server.ctx,
            select(live_server.ctx, "parcels", keys=[f"wait{MARKUP}"]),
            CancelVerb(),
            by=MARKUP,
            reason=MARKUP,
        )
        pause(live_server.ctx, "parcels", "weigh", MARKUP, by=MARKUP, reason=MARKUP)
        slow = [{"route": "parcels", "stage": MARKUP, "key": MARKUP, "seconds": 90}]
        process = Process(
            MARKUP, MARKUP, 1, 0, live_server.ctx.clock.now(), {MARKUP: 1}, 1, slow, [MARKUP]
        )
        live_server.ctx.ledger.write(PROCESS, MARKUP, msgspec.to_builtins(process))
        [one, *_] = live_server.call("GET", "/api/v1/acts").body["acts"]
        lists = [
            f"/lists/{found['id']}"
            for found in live_server.call("GET", "/api/v1/lists").body["lists"]
        ]
        said = quote(MARKUP, safe="")
        for path in (
            "/", "/items/parcels", f"/items/parcels/{said}", f"/items/parcels/wait{said}", f"/items/parcels/{said}x", "/lists", *lists, "/events",
            "/acts", f"/acts/{one['id']}", "/system?doctor=true", f"/items/parcels?lane={said}&prefix={said}", f"/items/parcels?list={said}",
            f"/items/parcels?status={said}", f"/acts?by={said}", f"/acts/{said}", f"/{said}", f"/login?then=/{said}", f"/events?kind={said}",
        ):  # fmt: skip
            page = live_server.call("GET", path, headers={"Accept": "text/html"})
            text = page.raw.decode()
            assert "text/html" in page.headers["content-type"]
            assert Elements(text).odd == [], path
            if "login" not in path:
                assert "&lt;script&gt;" in text or path == "/", path


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@x",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1",
        "\u00a0=1",
        "＝1",
        "＋1",
        "－1",
        "＠x",
        " ＝1",
    ],
)
def test_no_cell_of_a_file_is_a_formula(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["", "a=1", "a-b", "10.1/x", " a", 3, None, -3])
def test_what_is_no_formula_is_left_as_it_is(value: Any) -> None:
    assert cell(value) == value


def test_a_files_rows_stay_rows_whatever_is_in_them(live_server: LiveServer) -> None:
    keys = ['a"b', "a,b", "＝cmd", "=cmd", "a;b", "a\u2028b"]
    live_server.milepost.submit("parcels", *({"id": key} for key in keys))
    answer = live_server.call("GET", "/export/parcels.csv")
    rows = list(csv.reader(io.StringIO(answer.raw.decode())))
    assert sorted(row[0] for row in rows[1:]) == sorted(
        f"'{key}" if key[0] in "=＝" else key for key in keys
    )
    assert answer.headers["content-disposition"] == 'attachment; filename="parcels.csv"'


def test_a_file_is_named_after_its_route_in_any_writing(tmp_path: Path) -> None:
    with running_server(tmp_path, sample_route("päckchen-小包")) as live_server:
        named = live_server.call("GET", f"/export/{quote('päckchen-小包')}.csv").headers[
            "content-disposition"
        ]
        assert named == f"attachment; filename*=UTF-8''{quote('päckchen-小包')}.csv"
