"""Lists submitted as a stream: taken in as they arrive, in bounded memory, and cut off cleanly."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from tests.http.live_server import LiveServer

from milepost.engine.auth import make_key
from milepost.http.api import lists
from milepost.http.api.lists import Body
from milepost.http.state.state import LISTS, LISTS_OF_ONE

ITEMS = "/api/v1/routes/parcels/items"
NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(first: int, n: int) -> Iterator[bytes]:
    """In pieces of a thousand lines: http.client sends them as chunks."""
    for start in range(first, first + n, 1000):
        yield b"".join(
            b'{"id": "k%06d"}\n' % number for number in range(start, min(start + 1000, first + n))
        )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-ndjson", b'{"id": "a"}\nnot json\n\n{"id": "b"}\n{"id": "a"}'),
        ("text/csv; charset=utf-8", b"id,n\na,1\nonly-one\nb,2\na,1\n"),
        ("text/plain", b"a\n\xff\nb\n# nothing\na\n"),
    ],
)
def test_a_list_of_every_kind_is_taken_in_and_reconciled(
    live_server: LiveServer, kind: str, body: bytes
) -> None:
    report = live_server.call(
        "POST", f"{ITEMS}?name=morning", body, headers={"Content-Type": kind}
    ).body
    assert {word: n for word, n in report["counts"].items() if n} == {
        "new": 2,
        "repeated": 1,
        "malformed": 1,
    }
    assert (report["name"], report["lines"], len(report["malformed"])) == ("morning", 4, 1)
    told = live_server.call("GET", f"/api/v1/lists/{report['id']}").body
    assert (told["name"], told["finished"], told["counts"], told["digest"]) == (
        "morning",
        True,
        report["counts"],
        report["digest"],
    )
    again = live_server.call("POST", ITEMS, body, headers={"Content-Type": kind}).body
    assert again["counts"]["in_progress"] == 2
    assert [one["id"] for one in live_server.call("GET", "/api/v1/lists").body["lists"]] == [
        again["id"],
        report["id"],
    ]


def test_a_csv_without_the_keys_column_is_refused_unless_it_is_said_to_have_no_header(
    live_server: LiveServer,
) -> None:
    body, csv = b"a,1\nb,2\na,3\n", {"Content-Type": "text/csv"}
    refused = live_server.call("POST", ITEMS, body, headers=csv)
    assert refused.status == 400
    assert "the header lacks the column 'id'" in refused.body["detail"]
    assert live_server.milepost.status()["routes"]["parcels"]["total"] == 0
    report = live_server.call("POST", f"{ITEMS}?no_header=true", body, headers=csv).body
    assert {word: n for word, n in report["counts"].items() if n} == {"new": 2, "changed": 1}
    assert report["changed"] == [{"line": 3, "key": "a"}]


def test_a_hundred_thousand_lines_are_taken_in_from_a_stream(live_server: LiveServer) -> None:
    report = live_server.call("POST", ITEMS, lines(0, 100_000), headers=NDJSON).body
    assert (report["lines"], report["counts"]["new"]) == (100_000, 100_000)
    assert live_server.milepost.status()["routes"]["parcels"]["total"] == 100_000


def test_a_dry_run_says_what_would_happen_and_writes_nothing(live_server: LiveServer) -> None:
    report = live_server.call("POST", f"{ITEMS}?dry_run=true", lines(0, 3), headers=NDJSON).body
    assert (report["id"], report["counts"]["new"]) == ("", 3)
    assert live_server.milepost.status()["routes"]["parcels"]["total"] == 0
    assert live_server.call("GET", "/api/v1/lists").body["lists"] == []


def test_a_full_list_says_what_has_vanished(live_server: LiveServer) -> None:
    live_server.call(
        "POST", f"{ITEMS}?full=true", b"a\nb\nc\n", headers={"Content-Type": "text/plain"}
    )
    report = live_server.call(
        "POST", f"{ITEMS}?full=true", b"a\nc\n", headers={"Content-Type": "text/plain"}
    ).body
    assert (report["vanished"], report["counts"]["vanished"]) == (["b"], 1)


def test_which_keys_have_vanished_is_not_told_to_one_who_may_only_submit(
    live_server: LiveServer,
) -> None:
    plain, signed = {"Content-Type": "text/plain"}, {"by": "ops", "reason": "a test"}
    live_server.call("POST", f"{ITEMS}?full=true", b"a\nb\nc\n", headers=plain)
    for scopes, told in ((["submit"], []), (["submit", "read"], ["b"])):
        _, key = make_key(live_server.ctx, "-".join(scopes), scopes, **signed)
        report = live_server.call(
            "POST", f"{ITEMS}?full=true&dry_run=true", b"a\nc\n", headers=plain, key=key
        ).body
        assert (report["vanished"], report["counts"]["vanished"]) == (told, 1)


def test_an_empty_list_is_refused(live_server: LiveServer) -> None:
    answer = live_server.call("POST", ITEMS, b"", headers=NDJSON)
    assert (answer.status, answer.body["code"]) == (400, "wrong-value")
    assert "is empty: no line of it holds an item" in answer.body["detail"]


def test_what_is_no_list_is_refused(live_server: LiveServer) -> None:
    answer = live_server.call("POST", ITEMS, b"\x1f\x8b compressed", headers=NDJSON)
    assert (answer.status, answer.body["code"]) == (400, "wrong-value")
    assert "unpack it" in answer.body["detail"]


def test_a_list_that_does_not_exist_is_not_found(live_server: LiveServer) -> None:
    answer = live_server.call("GET", "/api/v1/lists/nobody")
    assert (answer.status, answer.body["code"]) == (404, "unknown-list")


def begun(live_server: LiveServer, body: bytes, key: str | None = None) -> socket.socket:
    """A list whose sender stops after this much of a body that is to be longer."""
    sent = socket.create_connection(("127.0.0.1", live_server.port), timeout=30)
    signed = "" if key is None else f"Authorization: Bearer {key}\r\n"
    head = f"POST {ITEMS} HTTP/1.1\r\nHost: localhost\r\n{signed}Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n"
    sent.sendall(head.encode() + body)
    return sent


def places_taken(live_server: LiveServer, n: int) -> None:
    """Wait until so many lists are being taken in, no more and no fewer."""
    slots, pause = live_server.opened.state.list_slots, threading.Event()
    while slots.taken != n:
        pause.wait(0.005)


def test_a_client_that_goes_away_leaves_what_was_taken_in(live_server: LiveServer) -> None:
    with begun(live_server, b"".join(lines(0, 50_000))):
        while live_server.milepost.show("parcels", "k000000") is None:
            places_taken(live_server, 1)
    places_taken(live_server, 0)
    assert live_server.milepost.status()["routes"]["parcels"]["total"] >= 10_000
    [record] = live_server.call("GET", "/api/v1/lists").body["lists"]
    assert record["finished"] is False


def test_a_client_that_falls_silent_is_told_so_and_what_it_had_sent_stays(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SILENT_S", 0.05)
    with begun(live_server, b'{"id": "a"}\n') as sent:
        answer = http.client.HTTPResponse(sent)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["code"]) == (408, "too-slow")
        answer.close()
    assert live_server.milepost.show("parcels", "a") is not None


def test_lists_beyond_those_that_can_be_taken_in_at_once_are_asked_to_come_again(
    live_server: LiveServer,
) -> None:
    with ExitStack() as open_ones:
        for _ in range(LISTS):
            open_ones.enter_context(begun(live_server, b""))
        places_taken(live_server, LISTS)
        answer = live_server.call("POST", ITEMS, b'{"id": "a"}\n', headers=NDJSON)
        assert (answer.status, answer.body["code"]) == (503, "busy")
        assert int(answer.headers["retry-after"]) > 0
        assert live_server.call("POST", ITEMS, {"id": "b"}).status == 201
    places_taken(live_server, 0)
    assert live_server.call("POST", ITEMS, b'{"id": "a"}\n', headers=NDJSON).status == 200


def test_slow_lists_of_one_key_leave_slots_for_those_of_another(live_server: LiveServer) -> None:
    signed = {"by": "ops", "reason": "a test"}
    _, slow = make_key(live_server.ctx, "slow", ["submit"], **signed)
    _, honest = make_key(live_server.ctx, "honest", ["submit"], **signed)
    with ExitStack() as open_ones:
        for _ in range(LISTS_OF_ONE):
            open_ones.enter_context(begun(live_server, b"", slow))
        places_taken(live_server, LISTS_OF_ONE)
        refused = live_server.call("POST", ITEMS, b'{"id": "a"}\n', headers=NDJSON, key=slow)
        assert (refused.status, refused.body["code"]) == (503, "busy")
        assert "lists of yours" in refused.body["detail"]
        assert (
            live_server.call("POST", ITEMS, b'{"id": "a"}\n', headers=NDJSON, key=honest).status
            == 200
        )
    places_taken(live_server, 0)


class Drip:
    """A body that comes in pieces, each after so many seconds of a clock of its own."""

    def __init__(self, piece: bytes, seconds: float, pieces: int) -> None:
        self.piece, self.seconds, self.left = piece, seconds, pieces
        self.now = 0.0

    def ticks(self) -> float:
        return self.now

    async def stream(self) -> AsyncIterator[bytes]:
        while self.left:
            self.left -= 1
            self.now += self.seconds
            yield self.piece

    def read(self, busy_s: float = 0.0) -> tuple[int, str]:
        """Read in pieces, with so much time of the reader's own between them; the bytes received,
        and the code of the problem."""

        async def read_all() -> tuple[int, str]:
            loop = asyncio.get_running_loop()
            body, total = Body(self.stream(), loop, 30.0, self.ticks), 0
            try:
                while data := await loop.run_in_executor(None, body.read, 1):
                    total += len(data)
                    self.now += busy_s
            except OSError:
                pass
            return total, "" if body.cut_off is None else body.cut_off.problem.code

        return asyncio.run(read_all())


def test_a_list_that_comes_a_byte_at_a_time_is_cut_off_after_half_a_minute() -> None:
    assert Drip(b" ", 4.0, 100).read() == (8, "too-slow")


def test_a_list_that_comes_at_the_slowest_rate_is_taken_in() -> None:
    assert Drip(b"x" * 4_200, 4.0, 100).read() == (420_000, "")


def test_the_time_that_the_ledger_takes_is_not_the_clients() -> None:
    assert Drip(b"x" * 100, 0.05, 100).read(busy_s=60.0) == (10_000, "")


def test_a_short_list_may_come_slowly() -> None:
    assert Drip(b"x", 7.0, 4).read() == (4, "")


def test_a_body_is_read_no_faster_than_it_is_taken_in() -> None:
    given = 0

    async def stream() -> AsyncIterator[bytes]:
        nonlocal given
        while True:
            given += 1
            yield b"x" * 1000

    async def read_twice() -> tuple[int, int, int]:
        loop = asyncio.get_running_loop()
        body = Body(stream(), loop, 30.0)
        first = await loop.run_in_executor(None, body.read, 5000)
        after = given
        second = await loop.run_in_executor(None, body.read, 5000)
        return len(first), after, len(second)

    assert asyncio.run(read_twice()) == (5000, 5, 5000)


def test_a_reader_whose_server_has_stopped_does_not_wait() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(OSError, match="stopped"):
        Body(nothing(), loop, 30.0).read(10)
