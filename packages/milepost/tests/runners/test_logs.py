"""The log: one format for all lines, with their subject, and without secrets."""

from __future__ import annotations

import json
import logging
import sys

import pytest

import milepost as mp
from milepost.ports.observer import ABOUT
from milepost.runners.logs import logs

log = logging.getLogger("some.part")


@pytest.fixture(autouse=True)
def about_nothing() -> None:
    ABOUT.set(None)


def test_each_line_is_an_object_with_what_was_given_beside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logs("json"):
        log.info("looked at %s", "it", extra={"items": 3, "odd": object})
        log.debug("not this")
    [line] = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found.pop("at").endswith("Z")
    assert found.pop("odd") == repr(object)
    assert found == {"level": "info", "logger": "some.part", "message": "looked at it", "items": 3}


def test_an_error_is_one_line_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with logs("json"):
        try:
            raise ValueError("two\nlines")
        except ValueError:
            log.exception("it failed")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["error"].endswith("ValueError: two\nlines")


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_left_out(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with logs(form):
        log.warning(
            "called with password=hunter2",
            extra={"api_key": "hunter2", "more": {"token": "hunter2"}},
        )
        try:
            raise ValueError("Authorization: Bearer hunter2hunter2")
        except ValueError:
            log.exception("failed")
    err = capsys.readouterr().err
    assert "called with password=" in err
    assert "hunter2" not in err


def test_lines_of_a_handler_name_its_item(capsys: pytest.CaptureFixture[str]) -> None:
    route = mp.Route("parcels", key="id")

    @route.stage("weigh")
    async def weigh(item: mp.Item) -> mp.Outcome:
        log.warning("weighing")
        return mp.Done()

    @route.stage("stamp")
    def stamp(item: mp.Item) -> mp.Outcome:
        log.warning("stamping")
        return mp.Done()

    with mp.open("memory:", routes=[route]) as milepost:
        milepost.submit("parcels", {"id": "a"}, correlation_id="order-1")
        with logs("json"):
            milepost.run(until_idle=0)
            log.warning("after")
    *lines, last = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    names = ("message", "route", "stage", "key", "correlation_id")
    assert [tuple(line[name] for name in names) for line in lines] == [
        ("weighing", "parcels", "weigh", "a", "order-1"),
        ("stamping", "parcels", "stamp", "a", "order-1"),
    ]
    assert "correlation_id" not in last


def test_text_is_for_people_and_only_what_is_worth_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with logs("text"):
        log.info("not this")
        ABOUT.set("order-1")
        log.warning("look")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING look [order-1]")


def test_afterwards_everything_is_as_before() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    with logs("json"):
        assert root.level == logging.INFO
    assert (root.handlers, root.level) == before


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise OSError("gone")

        def flush(self) -> None: ...

    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(sys, "stderr", Gone())
    with logs("json"):
        log.warning("into the void")
