"""Random rows, messages, stream records and failures on AWS: each asset in each batch has the
notifications update, update, complete in this order, with the same ids when repeated, and complete
only when every stage was confirmed."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.postingest.aws_scene import AHEAD, Postingest, Sent, assets, opener, text
from tests.postingest.scenarios.sequence_scene import FILES, Oracle, confirmations, on_tape

from milepost.core.errors import LedgerBusy
from milepost.core.values.key_text import key_parts
from milepost_testing.clock import VirtualClock

FAULT = st.none() | st.tuples(st.integers(0, 25), st.sampled_from(["before", "after"]))
"""Which request fails, and whether it was carried out."""
ANY_STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), st.booleans()),
    confirmations(),
    confirmations(),
    st.tuples(st.just("take_off"), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("answer"), st.integers(0, 1), st.integers(0, 50)),
    st.tuples(st.just("lose"), st.integers(0, 1)),
    st.tuples(st.just("follow"), FAULT),
    st.tuples(st.just("follow"), FAULT),
    st.tuples(st.just("resend"), FAULT),
    st.tuples(st.just("repeat"), st.integers(0, 50)),
    st.tuples(st.just("deafen"), st.booleans()),
)


class World:
    """The route on a stand-in for AWS, and what happens to it."""

    def __init__(self, post: Postingest, dialect: str) -> None:
        self.post = post
        self.oracle = Oracle(dialect)
        self.stages = ("CC", self.oracle.last)
        self.messages: dict[str, list[Sent]] = {stage: [] for stage in self.stages}

    def do(self, name: str, *values: Any) -> None:
        getattr(self, f"_{name}")(*values)
        self.oracle.check(self.post.told.notifications, self.results())

    # What happens ---------------------------------------------------------------------------------
    def _put(self, number: int, other: bool) -> None:
        """The step function's, which knows no condition."""
        asset, batch = key_parts(self.oracle.keys[number])
        self.post.put(
            asset, json.dumps({"preservationSystemId": "another" if other else asset}), batch
        )

    def _confirm(self, number: int, place: int, value: Any) -> None:
        key, stage = self.oracle.keys[number], self.stages[place]
        asset, batch = key_parts(key)
        try:
            self.post.confirm(stage, text(value), asset, batch=batch)
        except self.post.dynamodb.exceptions.ConditionalCheckFailedException:
            return  # no such row
        self.oracle.say(key, stage, value)

    def _take_off(self, number: int, place: int) -> None:
        asset, batch = key_parts(self.oracle.keys[number])
        if self.post.dynamodb.get_item(
            TableName=self.post.table, Key=self.post.key(asset, batch)
        ).get("Item"):
            self.post.take_off(self.post.prefix + self.stages[place], asset, batch)

    def _answer(self, place: int, number: int) -> None:
        """Somebody comes upon an old message, or a new one, and does what it asks for."""
        messages = self.messages[self.stages[place]]
        messages += self.post.received(self.stages[place])
        if messages:
            message = messages[number % len(messages)]
            payload = message.body["payload"] if self.oracle.dialect == "today" else message.body
            key = "#".join(message.key.values())
            self._confirm(
                self.oracle.keys.index(key), place, FILES[0] if place == 0 else on_tape(payload)
            )

    def _lose(self, place: int) -> None:
        self.post.received(self.stages[place])

    def _follow(self, fault: tuple[int, str] | None) -> None:
        self._through(self.post.follow, fault)

    def _resend(self, fault: tuple[int, str] | None) -> None:
        """Two weeks later."""
        self.post.clock.advance("14d")
        self._through(self.post.resend, fault)

    def _repeat(self, number: int) -> None:
        """A batch of the stream comes again."""
        batches = self.post.batches
        if batches:
            self.post.relay.handle(batches[number % len(batches)], self.post.clock.now())

    def _deafen(self, deaf: bool) -> None:
        self.post.told.deaf = deaf

    def _through(self, work: Callable[[], object], fault: tuple[int, str] | None) -> None:
        if fault is None:
            work()
            return
        self.oracle.repeats = True
        requests, (failing, when) = itertools.count(), fault

        def fail(*_: Any) -> None:
            if next(requests) == failing:
                raise LedgerBusy("it does not answer")

        with (
            self.post.before_each_call(fail)
            if when == "before"
            else self.post.after_each_call(fail)
        ):
            try:
                work()
            except LedgerBusy:
                pass

    # What must hold -------------------------------------------------------------------------------
    def results(self) -> dict[str, dict[str, Any]]:
        items = self.post.ledger.get([(self.post.route, key) for key in self.oracle.keys])
        return {
            key: item.results
            for key, item in zip(self.oracle.keys, items, strict=True)
            if item is not None
        }

    def calm_down(self) -> None:
        """No more trouble: what is missing is put, and each stage gets the answer that it waits
        for."""
        post, keys = self.post, self.oracle.keys
        post.told.deaf = False
        for number, item in enumerate(post.ledger.get([(post.route, key) for key in keys])):
            if item is None:
                self._put(number, other=False)
        for _ in range(3):
            post.clock.advance("2h")
            post.follow()
            for number, item in enumerate(post.ledger.get([(post.route, key) for key in keys])):
                assert item is not None
                if not item.row.terminal:
                    place = self.stages.index(item.stage)
                    self._confirm(number, place, FILES[0] if place == 0 else on_tape(item.payload))
        post.clock.advance("2h")
        post.follow()
        self.oracle.check_end(post.told.notifications, self.results())
        assert {
            item and item.row.status.value
            for item in post.ledger.get([(post.route, key) for key in keys])
        } == {"COMPLETED"}
        # A row that was confirmed before anybody had been asked is shown to people; nothing else
        # is.
        assert {
            aside["reason"].partition(" ingested_")[0].partition(" result_")[0]
            for aside in post.aside()
        } <= {"it was created with"}


@pytest.mark.parametrize("dialect", ["seed", "today"])
@given(steps=st.lists(ANY_STEP, min_size=4, max_size=20))
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
def test_update_update_complete_whatever_happens(
    endpoint: str, dialect: str, steps: list[tuple[Any, ...]]
) -> None:
    # Names of this example's own: the fixture that gives them is made once for all.
    with opener(endpoint, f"t{secrets.token_hex(4)}") as open_at:
        world = World(open_at(VirtualClock(AHEAD), route=assets(dialect=dialect)), dialect)
        for step in steps:
            world.do(*step)
        world.calm_down()
