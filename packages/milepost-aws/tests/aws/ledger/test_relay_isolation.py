"""One bad row never stops the others: a refused or damaged row is set aside, and the relay
continues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger

from milepost.core.errors import LedgerBusy, LedgerReadOnly
from milepost.core.outcome import Reject
from milepost.core.routes.route import Route
from milepost.ports.items import Query, Refused
from milepost_aws.ledger import apply
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.documents import kind_query
from milepost_testing.contract.world import World


def set_aside(ledger: SynchronousLedger) -> list[dict[str, Any]]:
    queues = ledger.store.queues
    return [message.body for message in queues.receive(queues.quarantine(), 100, 60)]


def test_a_write_that_aws_refuses_sets_aside_that_row_alone(
    ledger: SynchronousLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apply.update_of

    def refusing(change: Any, *args: Any) -> Any:
        if change.before.key == "bad":
            raise RowRefused("dynamodb update_item: ValidationException: no", "ValidationException")
        return real(change, *args)

    monkeypatch.setattr(apply, "update_of", refusing)
    world = World(ledger)
    world.add("a", "bad", "c")
    assert {key: world.row(key).status.value for key in ("a", "bad", "c")} == {
        "a": "QUEUED",
        "bad": "PENDING",
        "c": "QUEUED",
    }
    (found,) = set_aside(ledger)
    assert "cannot be written" in found["reason"]
    assert found["content"]["new"]["id"] == "bad"


def test_a_damaged_blob_sets_aside_its_row_alone(ledger: SynchronousLedger) -> None:
    world = World(ledger)
    ledger.follower.plans.clear()
    new_items = [world.new_item("a"), world.new_item("bad", text="x" * 9000), world.new_item("c")]
    ledger.ledger.add(world.plan, new_items, world.now)
    image = ledger.store.images("parcels", ["bad"])["bad"]
    ledger.store.values._blobs.write(image["input"]["M"]["blob"]["S"], [b'"something else"'])
    ledger.follower.load_route(world.plan)
    ledger.follower.follow(world.now)
    assert {
        key: world.ledger.peek("parcels", [key])[0].status.value for key in ("a", "bad", "c")
    } == {
        "a": "QUEUED",
        "bad": "PENDING",
        "c": "QUEUED",
    }
    (found,) = set_aside(ledger)
    assert "digest differs" in found["reason"]


@pytest.mark.parametrize(
    "again", [False, True], ids=["and stays away", "and its key has come again"]
)
def test_blobs_go_with_an_ended_row(ledger: SynchronousLedger, again: bool) -> None:
    world = World(ledger)
    world.add("big", text="x" * 9000)
    world.settle(world.take("big"), Reject("no"))
    image = ledger.store.images("parcels", ["big"])["big"]
    ledger.store.requests.call(
        "dynamodb",
        "delete_item",
        TableName=ledger.store.names.rows("parcels"),
        Key={"id": {"S": "big"}},
    )
    if again:
        ledger.store.requests.call(
            "dynamodb", "put_item", TableName=ledger.store.names.rows("parcels"), Item=image
        )
    ledger.follower.follow(world.now)
    if again:
        assert world.item("big").input["text"] == "x" * 9000
    else:
        with pytest.raises(FileNotFoundError):
            ledger.store.values.decode(image["input"])


def test_a_partners_answer_that_names_a_blob_of_another_row_removes_nothing(
    ledger: SynchronousLedger,
) -> None:
    world, store = World(ledger), ledger.store
    world.add("theirs", text="x" * 9000)
    world.add("ours")
    reference = store.images("parcels", ["theirs"])["theirs"]["input"]
    change = Update(store.load_route(world.plan), "ours")
    change.set("ingested_delivered", reference)
    assert change.written(store.requests)
    ledger.follower.follow(world.now)
    claimed = {item.key: item for item in world.claim("weigh").items}
    world.settle(claimed["ours"], Reject("no"))
    store.requests.call(
        "dynamodb", "delete_item", TableName=store.names.rows("parcels"), Key={"id": {"S": "ours"}}
    )
    ledger.follower.follow(world.now)
    assert world.item("theirs").input["text"] == "x" * 9000


@pytest.mark.parametrize("word", ["of", "blob"])
def test_a_map_of_another_program_is_no_reference(ledger: SynchronousLedger, word: str) -> None:
    """Milepost writes {"of": stage} for a payload that equals a result, and {"blob": name, …} for a
    large value."""
    world, store = World(ledger, external_route()), ledger.store
    ledger.prepare(world.plan)
    ledger.follower.load_route(world.plan)
    given = {"M": {word: {"S": "x"}, "id": {"S": "a"}}}
    store.requests.call(
        "dynamodb",
        "put_item",
        TableName=store.names.rows("parcels"),
        Item={"id": {"S": "a"}, "input": given},
    )
    ledger.follower.follow(world.now)
    assert world.item("a").payload == {word: "x", "id": "a"}
    change = Update(store.load_route(world.plan), "a")
    change.set("input", {"S": '{"rewritten": true}'})
    assert change.written(store.requests)
    ledger.follower.follow(world.now)
    assert world.item("a").payload == {word: "x", "id": "a"}
    change = Update(store.load_route(world.plan), "a")
    change.set("ingested_first", {"M": {word: {"S": "y"}}})
    assert change.written(store.requests)
    ledger.follower.follow(world.now)
    assert (world.row("a").stage, world.item("a").results) == ("second", {"first": {word: "y"}})


def external_route() -> Route:
    route = Route("parcels", key="id")
    route.external("first")
    route.external("second")
    return route


def test_an_answer_that_is_nested_too_deeply_sets_aside_its_row_alone(
    ledger: SynchronousLedger,
) -> None:
    world, store = World(ledger, external_route()), ledger.store
    world.add("a", "deep", "c")
    for key, answer in (("deep", "[" * 5000 + "]" * 5000), ("c", "yes")):
        change = Update(store.load_route(world.plan), key)
        change.set("ingested_first", {"S": answer})
        assert change.written(store.requests)
    ledger.follower.follow(world.now)
    assert [world.row(key).stage for key in ("a", "c")] == ["first", "second"]
    (found,) = set_aside(ledger)
    assert (
        "nested more than 200 levels deep" in found["reason"]
        or "nested too deeply" in found["reason"]
    )
    page = ledger.find(Query(route="parcels"))
    assert (sorted(item.key for item in page.items), [one.key for one in page.refused]) == (
        ["a", "c"],
        ["deep"],
    )
    assert isinstance(ledger.get([("parcels", "deep")])[0], Refused)


def test_a_blob_store_that_cannot_be_reached_sets_no_row_aside(
    ledger: SynchronousLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a problem of AWS, not of a row: the relay reads the same records again, and a claim is
    tried again."""
    world, blobs = World(ledger), ledger.store.blobs

    def fail(name: str, *args: Any) -> Any:
        raise OSError(f"the blob {name!r} cannot be reached: timed out")

    def deny(name: str) -> Any:
        raise PermissionError(f"the blob {name!r} cannot be read: access denied")

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "write", fail)
        with pytest.raises(LedgerBusy, match="cannot be reached"):
            ledger.ledger.add(world.plan, [world.new_item("a", text="x" * 9000)], world.now)
    ledger.ledger.add(
        world.plan, [world.new_item("a", text="x" * 9000), world.new_item("b")], world.now
    )
    ledger.follower.load_route(world.plan)
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "read", fail)
        with pytest.raises(LedgerBusy, match="cannot be reached"):
            ledger.follower.follow(world.now)
    ledger.follower.follow(world.now)
    assert [world.row(key).status.value for key in ("a", "b")] == ["QUEUED", "QUEUED"]
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "read", fail)
        assert [item.key for item in world.claim("weigh").items] == ["b"]
        with pytest.raises(LedgerBusy, match="cannot be reached"):
            world.item("a")
    with monkeypatch.context() as patch:
        patch.setattr(blobs, "read", deny)
        with pytest.raises(LedgerReadOnly, match="access denied"):
            world.item("a")
    assert set_aside(ledger) == []


def test_blobs_that_cannot_be_looked_after_do_not_have_the_batch_counted_again(
    ledger: SynchronousLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = World(ledger), ledger.store
    world.add("big", text="x" * 9000)
    world.settle(world.take("big"), Reject("no"))
    store.requests.call(
        "dynamodb", "delete_item", TableName=store.names.rows("parcels"), Key={"id": {"S": "big"}}
    )

    def fail(*_: Any) -> Any:
        raise LedgerBusy("not now")

    with monkeypatch.context() as patch:
        patch.setattr(store, "images", fail)
        ledger.follower.follow(world.now)
    ledger.follower.follow(world.now)
    assert [
        cell["n"]
        for cell in store.requests.query(store.names.control, **kind_query("count#parcels"))
        if cell["n"] != {"N": "0"}
    ] == []


def test_a_foreign_row_whose_message_sqs_never_accepts_is_set_aside_alone(
    ledger: SynchronousLedger,
) -> None:
    made = Route("parcels", key="id")
    made.external(
        "tape",
        message=lambda offer: {"key": offer["key"], "text": "x" * offer["payload"]["length"]},
    )
    world = World(ledger, made)
    ledger.follower.load_route(world.plan)
    world.add("known", length=1)
    layout = ledger.store.layout("parcels")
    assert layout is not None
    for key, length in (("a", 1), ("big", 2_000_000), ("c", 1)):
        content = {"S": f'{{"id": "{key}", "length": {length}}}'}
        ledger.store.requests.call(
            "dynamodb",
            "put_item",
            TableName=layout.table,
            Item={**layout.naming(key), "input": content},
        )
    ledger.follower.follow(world.now)
    assert {key: world.row(key).status.value for key in ("a", "c")} == {
        "a": "QUEUED",
        "c": "QUEUED",
    }
    (found,) = set_aside(ledger)
    assert "its message cannot be sent" in found["reason"]
    assert found["content"]["row"]["id"] == "big"
