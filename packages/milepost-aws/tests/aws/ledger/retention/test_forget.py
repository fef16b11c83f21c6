"""Forget on AWS: a call that is cut off anywhere is continued, and what other processes write
meanwhile stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.aws.ledger.repair.repair_scene import Scene, scene_at
from tests.aws.ledger.synchronous_ledger import carry_out

from milepost.core.errors import LedgerReadOnly
from milepost.core.outcome import Reject
from milepost.core.status import TERMINAL
from milepost.ports.documents import FORGET
from milepost.ports.items import KnownKey
from milepost.ports.retention import DeliveredLines, ForgetRequest, Forgotten, PruneCriteria
from milepost_aws.ledger.forget import TOO_EARLY
from milepost_aws.ledger.stream import HandledBatch, StreamRecord
from milepost_aws.ledger.tables.documents import kind_query
from milepost_aws.ledger.tables.journal import JOURNAL, Journal
from milepost_testing.contract.forget import give_secret, name_of

LARGE = "x" * 9_000


class Died(Exception):
    """The process died here."""


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as made:
        give_secret(made)
        yield made


def ended(scene: Scene, *keys: str) -> None:
    """Items that failed two hours ago, whose lines and payloads are partly in blobs."""
    scene.add(*keys, text=LARGE)
    scene.follow()
    for item in scene.claim().items:
        scene.settle(item, Reject(f"no {item.key}: {LARGE}"))
    scene.follow()
    scene.clock.advance("2h")


def forget(scene: Scene, key: str) -> Forgotten:
    return scene.aws.forget(ForgetRequest("parcels", key, name_of(key), scene.now))


def traces(scene: Scene, text: str) -> list[str]:
    names = scene.store.names
    tables = (scene.table, names.history, names.seen, names.control)
    rows = [
        table
        for table in tables
        for image in scene.store.requests.scan(table, ConsistentRead=True)
        if text in repr(image)
    ]
    return rows + [name for name, body in scene.blobs.held.items() if text.encode() in body]


def test_a_call_that_dies_at_any_request_is_continued(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = scene.store.requests.attempt
    finished, n = False, 0
    while not finished:
        n += 1
        key = f"Jane-{n}-Roe"
        ended(scene, key)
        left = n

        def dying(budget: Any, service: str, operation: str, params: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died
            return attempt(budget, service, operation, params)

        with monkeypatch.context() as patched:
            patched.setattr(scene.store.requests, "attempt", dying)
            try:
                finished = forget(scene, key).refused == ""
            except Died:
                finished = False
        scene.follow()
        assert forget(scene, key).refused == ""
        scene.follow()
        assert traces(scene, key) == [], f"it died at request {n}"
        [known] = scene.aws.peek("parcels", [key])
        assert known is not None
        assert known.forgotten
    assert n > 8
    assert scene.count() == {}


def test_an_item_is_forgotten_an_hour_after_its_end(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.settle(scene.take("a"), Reject("no"))
    assert forget(scene, "a").refused == TOO_EARLY, "its line is not in the journal"
    scene.follow()
    scene.clock.advance("59m")
    assert forget(scene, "a").refused == TOO_EARLY
    assert scene.item("a").input == {"id": "a"}
    scene.clock.advance("1m")
    assert forget(scene, "a").refused == ""


def test_lines_of_one_block_are_forgotten_by_two_processes_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(scene, "a", "b")
    rename = Journal._rename_in_block
    again = True

    def late(self: Journal, *args: Any) -> None:
        nonlocal again
        if again:
            again = False
            forget(scene, "b")
        rename(self, *args)

    monkeypatch.setattr(Journal, "_rename_in_block", late)
    assert forget(scene, "a").lines == 2
    blocks = list(scene.store.requests.query(scene.store.names.control, **kind_query(JOURNAL)))
    assert not any('"a"' in image["lines"]["S"] or '"b"' in image["lines"]["S"] for image in blocks)
    fed = scene.aws.feed(0, 100)
    assert [line.seq for line in fed] == [1, 2, 3, 4]
    assert {line.key for line in fed} == {name_of("a"), name_of("b")}


def test_a_row_that_is_put_again_for_a_forgotten_key_goes_to_quarantine(scene: Scene) -> None:
    ended(scene, "a")
    forget(scene, "a")
    scene.follow()
    scene.put("a", input={"S": '{"id": "a"}'})
    scene.follow()
    [entry] = scene.aws.quarantine.entries(10)[0]
    assert "its content was removed by 'milepost forget'" in entry.reason


def test_records_that_are_read_again_bring_no_content_back(scene: Scene) -> None:
    """Those of a reader that died after a batch, before it wrote its position."""
    handled: list[StreamRecord] = []

    def handle(records: list[StreamRecord]) -> HandledBatch:
        handled.extend(records)
        return carry_out(scene.store, scene.relay, records, scene.now)

    scene.add("Jane", text=LARGE)
    while scene.stream.poll(handle, scene.clock):
        pass
    scene.settle(scene.take("Jane"), Reject(f"no Jane: {LARGE}"))
    while scene.stream.poll(handle, scene.clock):
        pass
    scene.clock.advance("2h")
    assert forget(scene, "Jane").refused == ""
    scene.follow()
    before = scene.aws.feed(0, 100)
    batch = scene.relay.carry_out(handled, scene.now)
    assert batch.changes, "they are counted: perhaps they were not before"
    assert traces(scene, "Jane") == []
    assert scene.aws.feed(0, 100) == before
    assert scene.quarantined() == []


def test_a_role_that_may_not_read_the_secret_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is of a stack that was deployed before there was `milepost forget`."""
    read_one = scene.store.control.read_one

    def denied(kind: str, name: str) -> Any:
        if kind == FORGET:
            raise LedgerReadOnly("denied")
        return read_one(kind, name)

    monkeypatch.setattr(scene.store.control, "read_one", denied)
    assert scene.add("a") == [None]
    assert "may not read the secret of forgotten keys" in caplog.text


def test_the_lines_of_a_forgotten_item_are_pruned_by_its_seal(scene: Scene) -> None:
    ended(scene, "a")
    assert forget(scene, "a").lines == 2
    scene.follow()
    criteria = PruneCriteria(
        "parcels", TERMINAL, scene.now, None, DeliveredLines(scene.store.journal.last_seq()), 100
    )
    assert scene.aws.prune(criteria).lines == 1
    assert scene.aws.feed(0, 100) == []
    [known] = scene.aws.peek("parcels", ["a"])
    assert isinstance(known, KnownKey)
    assert known.forgotten
