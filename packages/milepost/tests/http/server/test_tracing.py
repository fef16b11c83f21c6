"""The correlation id: from the request to the item, the answer and the log."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any

import pytest
from tests.http.live_server import LiveServer

from milepost.http.api.operators import acts
from milepost.ports.observer import ABOUT
from milepost.runners.logs import logs

ITEMS = "/api/v1/routes/parcels/items"
NAME = "x-correlation-id"


def correlation(live_server: LiveServer, key: str) -> str:
    shown = live_server.milepost.show("parcels", key)
    assert shown is not None
    return str(shown["correlation_id"])


def test_an_id_that_is_given_comes_back_and_goes_with_the_item(live_server: LiveServer) -> None:
    answer = live_server.call("POST", ITEMS, {"id": "a"}, headers={NAME: "order-17"})
    assert (answer.headers[NAME], correlation(live_server, "a")) == ("order-17", "order-17")
    answer = live_server.call(
        "POST", ITEMS, [{"id": "b"}, {"none": 1}, {"id": "c"}], headers={NAME: "order-18"}
    )
    assert [correlation(live_server, key) for key in "bc"] == ["order-18", "order-18"]


def test_without_one_an_id_is_made_for_each_call(live_server: LiveServer) -> None:
    made = [live_server.call("POST", ITEMS, {"id": key}).headers[NAME] for key in "ab"]
    assert made == [correlation(live_server, key) for key in "ab"]
    assert len(set(made)) == 2
    assert live_server.call("GET", "/nowhere").headers[NAME] not in made


@pytest.mark.parametrize("given", ["two words", "x" * 129, "naïve"])
def test_an_id_that_cannot_be_carried_on_is_replaced(live_server: LiveServer, given: str) -> None:
    answer = live_server.call("POST", ITEMS, {"id": "a"}, headers={NAME: given})
    assert answer.status == 201
    assert answer.headers[NAME] == correlation(live_server, "a") != given


def test_submits_at_the_same_time_each_keep_their_own_id(live_server: LiveServer) -> None:
    def hand_over(key: str) -> None:
        live_server.call(
            "POST",
            ITEMS,
            {"id": key} if key != "k7" else {"none": 1},
            headers={NAME: f"id-of-{key}"},
        )

    threads = [threading.Thread(target=hand_over, args=(f"k{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {correlation(live_server, f"k{number}") for number in range(20) if number != 7} == {
        f"id-of-k{n}" for n in range(20) if n != 7
    }


def test_the_log_names_the_call_in_every_line_that_it_caused(
    live_server: LiveServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = live_server.ctx.ledger.history

    def history(*given: str) -> object:
        logging.getLogger("deep.inside").warning("looked into it")
        return real(*given)

    live_server.call("POST", ITEMS, {"id": "a"})
    monkeypatch.setattr(live_server.ctx.ledger, "history", history)
    with logs("json"):
        live_server.call("GET", f"{ITEMS}/a", headers={NAME: "asked-1"})
        live_server.call("GET", "/healthz", headers={NAME: "asked-2"})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["logger"], line["correlation_id"]) for line in lines] == [
        ("deep.inside", "asked-1"),
        ("milepost.http.server.tracing", "asked-1"),
    ]
    assert {name: lines[1][name] for name in ("method", "path", "status")} == {
        "method": "GET",
        "path": f"{ITEMS}/a",
        "status": 200,
    }


def test_an_act_runs_in_a_thread_of_its_own_under_the_id_of_its_call(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = acts.act, []

    def noted(*args: Any, **how: Any) -> Any:
        seen.append((threading.current_thread().name.startswith("http-act"), ABOUT.get()))
        return real(*args, **how)

    monkeypatch.setattr(acts, "act", noted)
    live_server.call("POST", ITEMS, {"id": "a"})
    wanted = {"keys": ["a"], "reason": "a test"}
    answer = live_server.call(
        "POST", "/api/v1/routes/parcels/acts", {"verb": "cancel", **wanted}, headers={NAME: "act-1"}
    )
    assert (answer.status, seen) == (200, [(True, "act-1")])
