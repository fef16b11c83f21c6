"""Evidence on AWS: kept where the seal is written, long before the row leaves by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger, open_synchronous_ledger
from tests.cli.aws_command_line import ROUTES, AwsCommandLine, address
from tests.standins import REGION

from milepost.blobs.memory import MemoryBlobs
from milepost.composition import open_context
from milepost.core.errors import ConfigMistake, LedgerBusy
from milepost.core.outcome import Done, Reject
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.engine.context import Context
from milepost.engine.evidence import evidence_of, keeper, scrub
from milepost.evidence.record import blob_name, differences
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_aws.ledger.tables.journal import line_key
from milepost_testing.contract.world import World, sample_route


class Place(MemoryBlobs):
    """A bucket that cannot be reached for a while."""

    refuses = False

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        if self.refuses and name.startswith("evidence/"):
            raise OSError("timed out")
        super().write(name, chunks)


@pytest.fixture
def world(endpoint: str, prefix: str) -> Iterator[World]:
    ledger = open_synchronous_ledger(endpoint, prefix, REGION)
    ledger.ledger.store.blobs = Place()
    route = sample_route()
    route.evidence = True
    yield World(ledger, route)  # type: ignore[arg-type]
    ledger.close()


def place(world: World) -> Place:
    return followed(world).ledger.store.blobs  # type: ignore[return-value]


def followed(world: World) -> SynchronousLedger:
    return world.ledger  # type: ignore[return-value]


def record(world: World, key: str) -> dict[str, Any]:
    ctx = Context(world.ledger, {"parcels": world.plan}, world.clock, world.chance, place(world))
    found = evidence_of(ctx, "parcels", key)
    assert found is not None
    return found.record


def remove_row(world: World, key: str) -> None:
    """As DynamoDB does when a row's time to live is over."""
    store = followed(world).ledger.store
    layout = store.layout("parcels")
    assert layout is not None
    store.requests.call(
        "dynamodb", "delete_item", TableName=layout.table, Key=layout.key_image(key)
    )
    followed(world).follower.follow()


def test_the_record_of_a_row_that_has_left_by_itself_is_the_one_it_had(world: World) -> None:
    world.add("p1", torn=True)
    world.settle(world.take("p1"), Done({"grams": 340}))
    world.settle(world.take("p1", "stamp"), Reject("no"))
    before = record(world, "p1")
    assert before["stages"][0]["output"] == {"grams": 340}
    assert blob_name("parcels", "p1") in place(world).held
    remove_row(world, "p1")
    assert world.ledger.get([("parcels", "p1")]) == [None]
    assert record(world, "p1") == before
    assert differences(before) == []


def test_an_item_on_its_way_is_not_kept_and_one_that_ends_again_is_kept_again(world: World) -> None:
    from milepost.core.operators import cancel, retry

    world.add("p1")
    assert place(world).held == {}
    for expected in ("CANCELLED", "REJECTED"):
        if expected == "CANCELLED":
            world.apply(cancel(world.item("p1"), world.plan, world.now, by="ops"))
        else:
            world.apply(retry(world.item("p1"), world.plan, world.now, by="ops"))
            world.settle(world.take("p1"), Reject("no"))
        present = record(world, "p1")
        assert present["status"] == expected
        remaining = place(world).held[blob_name("parcels", "p1")]
        assert present["chain"]["head"].encode() in remaining


def test_what_cannot_be_kept_is_not_sealed_and_comes_again(world: World) -> None:
    world.add("p1")
    place(world).refuses = True
    with pytest.raises(LedgerBusy, match="it is sealed later: timed out"):
        world.settle(world.take("p1"), Reject("no"))
    assert followed(world).ledger.store.seal_image("parcels", "p1") is None
    place(world).refuses = False
    followed(world).follower.follow(world.now)
    assert followed(world).ledger.store.seal_image("parcels", "p1") is not None
    assert record(world, "p1")["status"] == "REJECTED"


def test_a_route_that_wants_none_keeps_none_and_its_lines_speak_for_it(world: World) -> None:
    world.plan.route.evidence = False
    world.add("p1")
    world.settle(world.take("p1"), Reject("no"))
    before = record(world, "p1")
    remove_row(world, "p1")
    assert place(world).held == {}
    assert record(world, "p1") == before


def test_pruning_keeps_it_too_for_rows_that_were_sealed_before_that_was_wanted(
    world: World,
) -> None:
    world.plan.route.evidence = False
    world.add("p1")
    world.settle(world.take("p1"), Reject("no"))
    world.add("anchor")
    before = record(world, "p1")
    world.clock.advance("3h")
    gone = world.ledger.prune(
        PruneCriteria(
            "parcels",
            TERMINAL,
            world.now,
            None,
            DeliveredLines(world.ledger.last_seq()),
            10,
            keeper(place(world)),
        )
    )
    assert gone.items == 1
    assert world.ledger.history("parcels", "p1") == []
    assert record(world, "p1") == before


GONE = {"M": {"blob": {"S": "lost/blob"}, "sha256": {"S": "00"}, "size": {"N": "1"}}}
SPOILT = {
    "its input is lost": ("rows", "input", GONE),
    "a line is lost": ("history", "body", GONE),
    "a line is another one": ("history", "body", {"S": "{}"}),
    "it does not say what was copied out": ("rows", "copied", {"S": "?"}),
}


def spoil(world: World, key: str, how: str) -> None:
    store = followed(world).ledger.store
    layout = store.layout("parcels")
    assert layout is not None
    what, attribute, value = SPOILT[how]
    table, place = (
        (layout.table, layout.key_image(key))
        if what == "rows"
        else (store.names.history, line_key("parcels", key, 1))
    )
    store.requests.call(
        "dynamodb",
        "update_item",
        TableName=table,
        Key=place,
        UpdateExpression="SET #a = :v",
        ExpressionAttributeNames={"#a": attribute},
        ExpressionAttributeValues={":v": value},
    )


def test_kept_records_are_compared_with_their_seals(world: World) -> None:
    for key in ("p1", "p2", "p3"):
        world.add(key)
        world.settle(world.take(key), Reject("no"))
    for key in ("p1", "p2", "p3"):
        remove_row(world, key)
    ctx = Context(world.ledger, {"parcels": world.plan}, world.clock, world.chance, place(world))
    assert scrub(ctx, "parcels").faults == {}
    place(world).remove(blob_name("parcels", "p2"))
    assert list(scrub(ctx, "parcels").faults) == ["p2"]


def test_pruning_lets_go_of_nothing_that_cannot_be_read_and_of_all_else(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.plan.route.evidence = False
    sound = {"first", "last"}
    for key in (*sound, *SPOILT):
        world.add(key)
        world.settle(world.take(key), Reject("no"))
    world.add("anchor")
    world.clock.advance("3h")
    for key in SPOILT:
        spoil(world, key, key)
    gone = world.ledger.prune(
        PruneCriteria(
            "parcels",
            TERMINAL,
            world.now,
            None,
            DeliveredLines(world.ledger.last_seq()),
            10,
            keeper(place(world)),
        )
    )
    assert gone.items == len(sound)
    assert place(world).held.keys() == {blob_name("parcels", key) for key in sound}
    store = followed(world).ledger.store
    assert store.images("parcels", [*sound, *SPOILT]).keys() == SPOILT.keys()
    for key in SPOILT:
        assert len(world.ledger.history("parcels", key)) == 2
        assert (
            f"cannot read {key} of {store.names.rows('parcels')}, so it is not removed"
            in caplog.text
        )


def test_without_a_place_for_it_evidence_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, prefix: str
) -> None:
    from milepost.blobs.addresses import NoBlobs
    from milepost_aws import opening

    monkeypatch.setattr(opening, "open_blobs", lambda *_: NoBlobs("set MILEPOST_BLOBS"))
    route = Route("parcels", evidence=True)
    route.external("delivered")
    with pytest.raises(ConfigMistake, match="evidence needs a blob store: set MILEPOST_BLOBS"):
        open_context(f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}", [route])


def test_evidence_goes_along_when_a_ledger_is_moved(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endpoint: str,
    prefix: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILEPOST_LEDGER", raising=False)
    command_line = AwsCommandLine(tmp_path, capsys, "sqlite:///milepost.db")
    command_line.write("parcels.py", ROUTES.replace('key="id"', 'key="id", evidence=True'))

    def exported(*keys: str) -> list[Any]:
        return [
            json.loads(line).get("record")
            for line in command_line.ok("export", "parcels", *keys, "--evidence").out.splitlines()
        ][1:-1]

    command_line.submit({"id": "gone", "torn": True})
    command_line.up()
    command_line.submit({"id": "torn", "torn": True}, {"id": "fresh"})
    command_line.signed("prune", "parcels", "--older-than", "0s", "--status", "failed")
    command_line.up()
    here = exported("gone", "torn", "fresh")
    assert here[0]["chain"]["lines"], "more than the seal"
    assert (
        command_line.signed("move", "--to", address(endpoint, prefix), "--json").json["blobs"] == 1
    )
    command_line.settle(address(endpoint, prefix))
    assert exported("gone", "torn", "fresh") == here
