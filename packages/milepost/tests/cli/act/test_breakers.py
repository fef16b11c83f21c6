"""Circuit breakers from the command line: opened by failures, shown, and closed with name and
reason."""

from __future__ import annotations

import pytest

ROUTE = """
import milepost as mp

calls = mp.Route("calls", key="id")


@calls.stage("deliver", breaker=mp.Breaker(failures=2, cooldown="1h"), retry=mp.Backoff(attempts=5, base="1h"), lane=lambda c: c["to"])
def deliver(item):
    return mp.Retry("connection refused")
"""


@pytest.fixture
def opened(bare):
    """A ledger in which one lane's breaker has opened."""
    bare.write("calls.py", ROUTE)
    bare.write("milepost.toml", 'routes = ["calls.py"]\n')
    bare.ok("submit", "calls", "--item", '{"id": "A", "to": "b"}')
    bare.ok("submit", "calls", "--item", '{"id": "B", "to": "b"}')
    bare.ok("work", "--until-idle", "0.1")
    bare.ok("submit", "calls", "--item", '{"id": "C", "to": "b"}')
    return bare


def test_it_is_shown_and_closed(opened) -> None:
    [one] = opened.ok("breakers", "--json").json["breakers"]
    assert (one["scope"], one["state"]) == ("calls/deliver/b", "open")
    listed = opened.ok("breakers").out
    assert "calls/deliver/b" in listed
    assert " once " in listed
    assert "The breaker of calls/deliver/b is open until" in opened.ok("status").out
    shown = " ".join(opened.ok("show", "calls", "C").out.split())
    assert "connection refused" in shown
    assert "uses no attempts" in shown
    assert opened("breakers", "close", "calls", "deliver").code == 2
    assert opened.signed("breakers", "close", "calls", "deliver", "--lane", "a").code == 1
    assert opened.signed("breakers", "close", "calls", "deliver", "--lane", "b", "--json").json == {
        "closed": ["calls/deliver/b"]
    }
    assert "No breaker is open." in opened.ok("breakers").out
    assert "close-breaker" in opened.ok("acts").out
