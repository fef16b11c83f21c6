"""The client of ScoutAM's API, against a stand-in that speaks real HTTP and can misbehave."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.postingest.tape_scene import QUICK, Scene, scene_of

import milepost as mp
from milepost_postingest.scoutam.api import (
    AuthenticationFailed,
    FileState,
    NotThere,
    ScoutAM,
    ScoutAMError,
    Unavailable,
    Unreadable,
    read_state,
)
from milepost_postingest.standins.scoutam import FILES, LOGIN

ROOT = "/archive"
A = f"{ROOT}/a"


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of() as scene:
        scene.on_tape("a")
        yield scene


# One login for all --------------------------------------------------------------------------------
def test_one_login_and_one_connection_serve_many_requests(scene: Scene) -> None:
    for _ in range(20):
        assert scene.client.file(A) == FileState(True, {"1": (), "2": (), "3": ("L00000",)})
    assert (scene.standin.logins, scene.standin.connections) == (1, 1)


def test_a_token_that_has_run_out_is_renewed(scene: Scene) -> None:
    scene.standin.token_uses = 3
    for _ in range(10):
        assert scene.client.file(A).archdone
    assert scene.standin.logins == 4


def test_threads_share_the_login_that_one_of_them_makes() -> None:
    """All start together with a token that is no good any more: one asks for a new one, the others
    wait for it."""
    with scene_of(client={"concurrency": 8}) as scene:
        scene.on_tape("a")
        scene.client.file(A)
        scene.standin._tokens.clear()
        together = threading.Barrier(8)

        def look(_: int) -> bool:
            together.wait()
            return scene.client.file(A).archdone

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(look, range(8)))
        assert scene.standin.logins == 2


def test_a_second_401_after_a_fresh_login_is_an_error_and_no_loop(scene: Scene) -> None:
    scene.standin.fail("status", 401, where=FILES)
    with pytest.raises(
        AuthenticationFailed, match=r"^Authentication failed with status code: 401$"
    ):
        scene.client.file(A)
    assert (scene.standin.logins, scene.standin.asked[A]) == (2, 2)


def test_a_login_that_is_refused_is_told_and_not_repeated_for_a_minute(scene: Scene) -> None:
    """A wrong password, tried again for each of a hundred thousand assets, would lock the
    account."""
    scene.standin.password = "another"
    for _ in range(5):
        with pytest.raises(
            AuthenticationFailed, match=r"^Authentication failed with status code: 401$"
        ) as caught:
            scene.client.file(A)
        assert caught.value.http_status == 401
    assert scene.standin.logins == 1
    scene.standin.password = "milepost"
    scene.hands.now += 61
    assert scene.client.file(A).archdone


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"response": null}',
        b'{"response": ""}',
        b'{"response": "a\\r\\nb"}',
    ],
)
def test_a_login_answer_that_cannot_be_read_is_told_without_its_content(
    scene: Scene, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.standin, "log_in", lambda _: (200, body))
    with pytest.raises(
        AuthenticationFailed, match="Failed to parse authentication response"
    ) as caught:
        scene.client.file(A)
    assert body == b"" or body.decode() not in str(caught.value)


def test_any_password_arrives_as_it_is() -> None:
    odd = 'a"b\\c\nü😀'
    with scene_of(password=odd, user='"') as scene:
        scene.on_tape("a")
        assert scene.client.file(A).archdone


def test_password_and_token_are_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = "correct-horse"
    said = []
    with caplog.at_level(logging.DEBUG), scene_of(password=secret) as scene:
        scene.on_tape("a")
        scene.client.file(A)
        said.append(repr(scene.client))
        for kind, status in (("status", 401), ("status", 500), ("garbage", 200), ("reset", 200)):
            scene.standin.mend()
            scene.standin.fail(kind, status, where=FILES)  # type: ignore[arg-type]
            scene.hands.now += 120
            with pytest.raises(ScoutAMError) as caught:
                scene.client.file(A)
            said += [str(caught.value), repr(caught.value), str(vars(caught.value))]
            said.append(str(scene.tape.check({"filePaths": ["a"]})))
    assert len(said) == 17
    for text in [*said, caplog.text]:
        assert secret not in text
        assert "token-" not in text


# What is asked ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["a b", "a+b", "ü/Ärger 50%", "a&path=b", "日本語#?;=~*", "e\u0301 and \u00e9"]
)
def test_a_path_arrives_as_it_is(scene: Scene, name: str) -> None:
    scene.standin.put(name, "L1")
    assert scene.client.file(f"{ROOT}/{name}").volumes("3") == ("L1",)
    assert scene.standin.asked[f"{ROOT}/{name}"] == 1


def test_the_api_may_be_below_a_path_and_its_url_may_end_in_a_slash(scene: Scene) -> None:
    with ScoutAM(f"{scene.standin.url}/", scene.standin.user, scene.standin.password) as client:
        assert client.file(A).archdone
    with ScoutAM(
        f"{scene.standin.url}/tape/api/", scene.standin.user, scene.standin.password
    ) as client:
        with pytest.raises(AuthenticationFailed, match="404"):
            client.file(A)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "scoutam",
        "ftp://scoutam",
        "http://",
        "http://me:pw@scoutam",
        "http://h/?a=b",
        "http://h:99999",
        "http://h/a b",
    ],
)
def test_what_is_no_url_of_an_api_is_refused(url: str) -> None:
    with pytest.raises(mp.UsageError) as caught:
        ScoutAM(url, "u", "p")
    assert "pw" not in str(caught.value)


def test_a_folder_is_known_though_it_is_no_file(scene: Scene) -> None:
    assert scene.client.knows(ROOT)
    assert not scene.client.knows("/elsewhere")


# What is answered ---------------------------------------------------------------------------------
def test_a_file_that_is_not_known_is_not_there(scene: Scene) -> None:
    with pytest.raises(NotThere):
        scene.client.file(f"{ROOT}/b")


@pytest.mark.parametrize("kind", ["garbage", "html", "huge"])
def test_an_answer_that_is_not_what_was_promised_is_unreadable(scene: Scene, kind: Any) -> None:
    scene.standin.fail(kind, times=1, where=FILES)
    with pytest.raises(Unreadable):
        scene.client.file(A)
    assert scene.client.file(A).archdone, "the next one is read from its own beginning"


@pytest.mark.parametrize("status", [206, 302, 400, 403, 405])
def test_a_status_that_was_not_promised_is_unreadable_and_no_redirect_is_followed(
    scene: Scene, status: int
) -> None:
    scene.standin.fail(
        "status",
        status,
        headers={"Location": f"{scene.standin.url}/v1/file?path={ROOT}/b"},
        where=FILES,
    )
    with pytest.raises(Unreadable, match=f"status code: {status}"):
        scene.client.file(A)
    assert scene.standin.asked == {A: 1}


@pytest.mark.parametrize(("status", "after"), [(500, None), (503, "7"), (429, "7"), (408, None)])
def test_not_now_is_unavailable_with_what_it_said(
    scene: Scene, status: int, after: str | None
) -> None:
    scene.standin.fail(
        "status", status, headers={"Retry-After": after} if after else None, where=FILES
    )
    with pytest.raises(Unavailable, match=rf"^{status}$") as caught:
        scene.client.file(A)
    assert (caught.value.http_status, caught.value.retry_after) == (status, 7.0 if after else None)


def test_a_date_to_come_back_at_is_read_by_the_servers_clock(scene: Scene) -> None:
    scene.standin.fail(
        "status",
        503,
        times=1,
        headers={"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"},
        where=FILES,
    )
    with pytest.raises(Unavailable) as caught:
        scene.client.file(A)
    assert caught.value.retry_after == 86_400, "at most a day"
    scene.hands.now += 60
    scene.standin.fail("status", 503, times=1, headers={"Retry-After": "soon"}, where=FILES)
    with pytest.raises(Unavailable) as caught:
        scene.client.file(A)
    assert caught.value.retry_after is None


@pytest.mark.parametrize("where", [FILES, LOGIN])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hang", "no whole answer within 0.25 s"),
        ("drip", "no whole answer within 0.25 s"),
        ("reset", "closed before"),
        ("cut", "cut off"),
    ],
)
def test_an_answer_that_does_not_come_whole_in_time_is_unavailable(
    kind: Any, said: str, where: str | None
) -> None:
    with scene_of(client={"timeout": QUICK} if "within" in said else {}) as scene:
        scene.on_tape("a")
        scene.standin.fail(kind, where=where)
        with pytest.raises(Unavailable, match=said) as caught:
            scene.client.file(A)
        assert caught.value.http_status is None


def test_nobody_listening_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with ScoutAM(f"http://127.0.0.1:{taken.getsockname()[1]}", "u", "p") as client:
            with pytest.raises(Unavailable, match="connection refused"):
                client.file(A)


def test_a_kept_connection_that_the_server_has_closed_is_no_trouble(scene: Scene) -> None:
    scene.client.file(A)
    scene.standin._server.cut()
    assert scene.client.file(A).archdone
    assert scene.standin.connections == 2


@pytest.mark.parametrize(
    "said",
    [
        [],
        "text",
        {},
        {"archdone": "true"},
        {"archdone": 1},
        {"archdone": None},
        {"archdone": True, "copies": {"3": []}},
        {"archdone": True, "copies": ["3"]},
        {"archdone": True, "copies": [{"sections": []}]},
        {"archdone": True, "copies": [{"copy": ""}]},
        {"archdone": True, "copies": [{"copy": True}]},
        {"archdone": True, "copies": [{"copy": "3"}, {"copy": 3}]},
        {"archdone": True, "copies": [{"copy": "3", "sections": "L1"}]},
        {"archdone": True, "copies": [{"copy": "3", "sections": ["L1"]}]},
        {"archdone": True, "copies": [{"copy": "3", "sections": [{"volume": 7}]}]},
        {"archdone": True, "copies": [{"copy": "3", "damaged": "no"}]},
        {"archdone": True, "checksum": 7},
        {"archdone": True, "damaged": 0},
    ],
)
def test_a_state_of_another_shape_is_unreadable(said: object) -> None:
    with pytest.raises(Unreadable, match="not as specified"):
        read_state(json.dumps(said).encode())


@pytest.mark.parametrize("volumes", [[], [None], [""], [" "], ["L1", None], ["L1", ""]])
def test_a_copy_with_a_section_on_no_volume_is_on_no_tape(volumes: list[object]) -> None:
    sections = [{"volume": volume} for volume in volumes]
    assert (
        read_state(
            json.dumps({"archdone": True, "copies": [{"copy": "3", "sections": sections}]}).encode()
        ).volumes("3")
        == ()
    )


def test_a_state_says_which_copy_is_damaged() -> None:
    section = {"volume": "L1"}
    copies = [
        {"copy": 1, "damaged": True, "sections": [section]},
        {"copy": "3", "sections": [section]},
    ]
    state = read_state(json.dumps({"archdone": True, "copies": copies, "damaged": True}).encode())
    assert (
        state.is_damaged("1"),
        state.is_damaged("3"),
        state.volumes("1"),
        state.volumes("3"),
    ) == (True, False, (), ("L1",))
    copies[1]["sections"] = [section, {"volume": "L2", "damaged": True}]
    assert read_state(json.dumps({"archdone": True, "copies": copies}).encode()).volumes("3") == ()
    anyone = read_state(
        json.dumps(
            {"archdone": True, "copies": [{"copy": "3", "sections": [section]}], "damaged": True}
        ).encode()
    )
    assert anyone.volumes("3") == (), "whichever copy is meant, it may be this one"


# Being considerate --------------------------------------------------------------------------------
def test_no_more_requests_are_under_way_than_allowed() -> None:
    """Ten threads, and two may ask: a gate in the stand-in shows that a third never comes, and that
    two do."""
    with scene_of(client={"concurrency": 2}) as scene:
        scene.on_tape("a")
        scene.client.file(A)
        both, look = threading.Barrier(2), scene.standin.look

        def at_the_gate(path: str, token: str) -> tuple[int, Any]:
            both.wait(60)
            return look(path, token)

        scene.standin.look = at_the_gate  # type: ignore[method-assign]
        with ThreadPoolExecutor(10) as pool:
            assert all(state.archdone for state in pool.map(scene.client.file, [A] * 10))
        assert scene.standin.most_at_once == 2


def test_no_more_requests_are_begun_than_the_rate_allows() -> None:
    with scene_of(client={"rate": 4.0}) as scene:
        scene.on_tape("a")
        for _ in range(8):
            scene.client.file(A)
        assert scene.hands.paused == [0.25] * 8, "the login is a request as well"
        scene.hands.now += 100
        scene.client.file(A)
        assert len(scene.hands.paused) == 8, "what was not used is not owed"
        scene.client.file(A)
        assert len(scene.hands.paused) == 9


def test_after_three_failures_in_a_row_it_is_left_alone_for_a_while(scene: Scene) -> None:
    scene.client.file(A)
    scene.standin.fail("status", 500, where=FILES)
    for _ in range(10):
        with pytest.raises(Unavailable, match=r"^500$"):
            scene.client.file(A)
    assert scene.standin.asked[A] == 4
    scene.hands.now += 5
    with pytest.raises(Unavailable):
        scene.client.file(A)
    with pytest.raises(Unavailable):
        scene.client.file(A)
    assert scene.standin.asked[A] == 5, "one look, and it is left alone again"
    scene.standin.mend()
    scene.hands.now += 5
    assert scene.client.file(A).archdone
    assert scene.client.file(A).archdone


def test_one_file_that_always_fails_stops_no_other(scene: Scene) -> None:
    scene.standin.fail("status", 500, where=f"{ROOT}/bad")
    for _ in range(10):
        with pytest.raises(Unavailable):
            scene.client.file(f"{ROOT}/bad")
        assert scene.client.file(A).archdone
    assert scene.standin.asked[f"{ROOT}/bad"] == 10


def test_who_says_when_to_come_back_is_left_alone_until_then_and_a_minute_at_most(
    scene: Scene,
) -> None:
    scene.client.file(A)
    scene.standin.fail("status", 503, times=1, headers={"Retry-After": "30"}, where=FILES)
    for _ in range(2):
        with pytest.raises(Unavailable):
            scene.client.file(A)
        scene.hands.now += 29
    scene.hands.now -= 27
    assert scene.client.file(A).archdone
    scene.standin.fail("status", 503, times=1, headers={"Retry-After": "86400"}, where=FILES)
    with pytest.raises(Unavailable):
        scene.client.file(A)
    scene.hands.now += 60
    assert scene.client.file(A).archdone


def test_settings_that_cannot_be_are_refused() -> None:
    for settings in ({"concurrency": 0}, {"timeout": 0}, {"rate": 0}, {"rest": -1}):
        with pytest.raises(mp.UsageError, match="more than nothing"):
            ScoutAM("http://127.0.0.1:1", "u", "p", **settings)  # type: ignore[arg-type]
