"""Tracebacks of handlers: complete if they fit, redacted, stored in the history alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.engine.events.recording_subscribers import RecordingSubscriber

import milepost as mp
from milepost.core.outcome import TRACEBACK_LIMIT, bounded_traceback, outcome_of_exception
from milepost.runners.logs import logs


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/m.db"}[request.param]


SECRET = "hunter" + str(2)


def ask_the_partner(password: str) -> None:
    raise ConnectionError(f"refused: password={password}")


def failing(item: mp.Item) -> mp.Outcome:
    try:
        ask_the_partner(SECRET)
    except ConnectionError as error:
        raise RuntimeError("the partner is away") from error
    return mp.Done()


async def failing_async(item: mp.Item) -> mp.Outcome:
    return failing(item)


def failing_batch(items: list[mp.Item]) -> list[mp.Outcome]:
    return [failing(item) for item in items]


def route(handler: Any, **options: Any) -> mp.Route:
    made = mp.Route("letters", key="id")
    made.stage("send", retry=mp.Backoff(attempts=2, base=0), **options)(handler)
    return made


def failed_lines(post: mp.Milepost, key: str = "L-1") -> list[dict[str, Any]]:
    story = post.show("letters", key)
    assert story is not None
    return [line for line in story["history"] if "attempt_number" in line]


@pytest.mark.parametrize(
    ("handler", "options"), [(failing, {}), (failing_async, {}), (failing_batch, {"batch": 5})]
)
def test_each_failed_try_has_its_traceback_in_the_history_and_nowhere_else(
    url: str, handler: Any, options: dict[str, Any]
) -> None:
    ear = RecordingSubscriber()
    with mp.open(url, [route(handler, **options)], subscribers=[ear]) as post:
        post.submit("letters", {"id": "L-1"})
        post.run(until_idle=0)
        lines = failed_lines(post)
        assert len(lines) == 2
        for line in lines:
            trace = line["traceback"]
            assert trace.startswith("Traceback (most recent call last):")
            assert "in ask_the_partner" in trace
            assert "direct cause of the following exception" in trace
            assert trace.endswith("RuntimeError: the partner is away")
            assert "execute.py" not in trace, "the engine's own frame"
            assert "hunter2" not in trace
        shown = post.show("letters", "L-1")
        assert shown is not None
        assert "Traceback" not in json.dumps(shown["error"])
        assert "Traceback" not in json.dumps(ear.heard)


def test_a_handler_may_give_a_traceback_of_its_own(url: str) -> None:
    with mp.open(
        url, [route(lambda item: mp.Reject("no", traceback="line 12 of their script\ntoken=abc"))]
    ) as post:
        post.submit("letters", {"id": "L-1"})
        post.run(until_idle=0)
        assert [line["traceback"] for line in failed_lines(post)] == [
            "line 12 of their script\ntoken=…"
        ]


def deep(n: int) -> None:
    if n:
        deep(n - 1)
    raise ValueError("deep" + "x" * 100_000)


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    try:
        deep(400)
    except ValueError as error:
        outcome = outcome_of_exception(error)
    trace = outcome.traceback
    assert trace is not None
    assert len(trace) <= TRACEBACK_LIMIT
    assert trace.startswith("Traceback (most recent call last):")
    assert "characters in all" in trace
    assert bounded_traceback(trace) == trace


def test_a_secret_is_taken_out_before_the_text_is_cut() -> None:
    for length in range(8 * TRACEBACK_LIMIT - 50, 8 * TRACEBACK_LIMIT + 50, 7):
        text = "x " * (length // 2) + "password=hunter2hunter2 " + "y " * (3 * TRACEBACK_LIMIT)
        assert "hunter" not in bounded_traceback(text)


def test_an_error_that_cannot_be_printed_has_no_traceback_and_still_counts(url: str) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise TypeError("no")

    def handler(item: mp.Item) -> mp.Outcome:
        raise Odd

    with mp.open(url, [route(handler)]) as post:
        post.submit("letters", {"id": "L-1"})
        post.run(until_idle=0)
        assert len(failed_lines(post)) == 2


def test_failed_tries_are_warnings_with_the_items_name(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with mp.open(url, [route(failing)]) as post:
        post.submit("letters", {"id": "L-1"}, {"id": "L-2"})
        with caplog.at_level(logging.WARNING, "milepost"):
            post.run(until_idle=0)
    told = [record for record in caplog.records if "failed:" in record.getMessage()]
    assert {record.levelname for record in told} == {"WARNING"}
    assert {(r.route, r.key, r.stage, r.attempt) for r in told} == {
        ("letters", f"L-{n}", "send", t) for n in (1, 2) for t in (1, 2)
    }  # type: ignore[attr-defined]
    [first, last] = [record.getMessage() for record in told if record.key == "L-1"]  # type: ignore[attr-defined]
    assert first.startswith(
        "letters/L-1: attempt 1 at 'send' failed: EXCEPTION: RuntimeError: the partner is away; retry in "
    )
    assert last.endswith("; no attempts left")


def test_a_log_in_json_has_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mp.open("memory:", [route(failing)]) as post:
        post.submit("letters", {"id": "L-1"})
        with logs("json"):
            post.run(until_idle=0)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    first = next(line for line in lines if line.get("attempt") == 1)
    assert (first["level"], first["route"], first["key"], first["stage"]) == (
        "warning",
        "letters",
        "L-1",
        "send",
    )
    assert "in ask_the_partner" in first["traceback"]
    assert "hunter2" not in json.dumps(lines)


def test_a_done_item_logs_nothing(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with mp.open(url, [route(lambda item: mp.Done())]) as post:
        post.submit("letters", {"id": "L-1"})
        post.run(until_idle=0)
    assert [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("milepost.engine")
    ] == []
