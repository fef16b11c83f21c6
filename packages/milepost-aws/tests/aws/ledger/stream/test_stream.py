"""Reading a table's stream: in order, without gaps, one poller per shard, through splits and dead
pollers."""

from __future__ import annotations

import base64
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.aws.ledger.stream.scripted_stream import Reader
from tests.aws.ledger.synchronous_ledger import Moment

from milepost.core.errors import ConfigMistake, LedgerBusy, LedgerError, LedgerMissing
from milepost.ports.documents import Document
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.stream import (
    DAY_MS,
    LEASE_MS,
    LOOK_MS,
    SILENCE_MS,
    HandledBatch,
    Stream,
    StreamRecord,
    clear_lost,
    from_event,
    lost_records,
)
from milepost_aws.ledger.tables.documents import Control

T0 = 1_800_000_000_000
STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


@pytest.fixture
def requests(endpoint: str) -> Iterator[Requests]:
    made = Requests("eu-central-1", endpoint)
    yield made
    made.close()


@pytest.fixture
def control(requests: Requests, client: Callable[[str], Any], prefix: str) -> Control:
    names = ResourceNames(prefix)
    client("dynamodb").create_table(
        TableName=names.control,
        KeySchema=[
            {"AttributeName": "kind", "KeyType": "HASH"},
            {"AttributeName": "name", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("kind", "name")
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    return Control(requests, names)


class Poller:
    """A poller and what it was given."""

    def __init__(
        self,
        reader: Any,
        control: Control,
        holder: str = "a",
        route: str = "orders",
        table: str = "rows",
    ) -> None:
        self.stream = Stream(reader, control, route, table, holder)
        self.control, self.route = control, route
        self.given: list[StreamRecord] = []
        self.batches: list[int] = []

    def poll(self, now: int) -> int:
        return self.stream.poll(self.take, Moment(now))

    def take(self, records: list[StreamRecord]) -> str | None:
        self.given += records
        self.batches.append(len(records))
        return None

    @property
    def held(self) -> list[str]:
        return list(self.stream.shards.held)

    @property
    def lost(self) -> Document | None:
        return lost_records(self.control, self.route)

    @property
    def keys(self) -> list[str]:
        return [record.keys["key"]["S"] for record in self.given]


def refuse(records: list[StreamRecord]) -> HandledBatch:
    return HandledBatch(again=records[0].seq)


def shard_documents(control: Control) -> dict[str, Any]:
    return {name: document.value for name, document in control.read("shard").items()}


# One shard ----------------------------------------------------------------------------------------
def test_all_records_in_order_in_batches_and_each_once(control: Control) -> None:
    reader = Reader("s1")
    written = [reader.write("s1", f"k{n % 7}") for n in range(1234)]
    poller = Poller(reader, control)
    assert [poller.poll(T0), poller.poll(T0 + 1), poller.poll(T0 + 2)] == [1000, 234, 0]
    assert [record.seq for record in poller.given] == written
    assert max(poller.batches) == 100
    assert shard_documents(control)["orders/s1"]["seq"] == written[-1]


def test_an_idle_poll_asks_once_per_shard(control: Control, requests: Requests) -> None:
    reader = Reader("s1", "s2", "s3")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.counts.clear()
    requests.counts.clear()
    for after in range(1, LOOK_MS, 1000):
        poller.poll(T0 + after)
    assert reader.counts == {"get_records": 15}
    assert not requests.counts


def test_the_list_of_shards_is_read_every_few_seconds_at_most(control: Control) -> None:
    reader = Reader("s1", "s2", "s3")
    poller = Poller(reader, control)
    for after in range(0, 2 * LEASE_MS, 1000):
        poller.poll(T0 + after)
    looks = 2 * LEASE_MS // LOOK_MS
    assert reader.counts["describe_stream"] == 2 * looks, "three shards take two pages"
    assert reader.counts["describe_table"] == 2
    assert reader.counts["get_shard_iterator"] == 3


def test_what_a_record_says(control: Control) -> None:
    reader = Reader("s1")
    reader.write(
        "s1",
        "k",
        userIdentity={"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"},
        eventName="REMOVE",
    )
    seq = reader.write("s1", "k", userIdentity={"PrincipalId": "somebody", "Type": "Service"})
    poller = Poller(reader, control)
    poller.poll(T0)
    first, second = poller.given
    assert (first.name, second.name) == ("REMOVE", "INSERT")
    assert (second.route, second.seq, second.at) == ("orders", seq, 1_794_771_000_000)
    assert (second.keys, second.old, second.new) == (
        {"key": {"S": "k"}},
        None,
        {"key": {"S": "k"}, "n": {"N": seq}},
    )


def test_a_shard_goes_on_from_the_record_that_must_be_read_again(control: Control) -> None:
    reader = Reader("s1", "s2")
    for n in range(150):
        reader.write("s1", f"a{n}")
        reader.write("s2", f"b{n}")
    poller = Poller(reader, control)
    refused = {"a0", "a120"}

    def handle(records: list[StreamRecord]) -> HandledBatch | None:
        for record in records:
            if record.keys["key"]["S"] in refused:
                refused.remove(record.keys["key"]["S"])
                return HandledBatch(again=record.seq)
            poller.given.append(record)
        return None

    assert poller.stream.poll(handle, Moment(T0)) == 150
    assert sorted({key[0] for key in poller.keys}) == ["b"], "the other shard was not held up"
    assert poller.stream.poll(handle, Moment(T0 + 1)) == 120
    assert poller.stream.poll(handle, Moment(T0 + 2)) == 30
    assert [key for key in poller.keys if key[0] == "a"] == [f"a{n}" for n in range(150)]


def test_an_error_of_the_handler_moves_nothing_on_and_is_raised_after_the_other_shards(
    control: Control,
) -> None:
    reader = Reader("s1", "s2")
    for n in range(150):
        reader.write("s1", f"a{n}")
        reader.write("s2", f"b{n}")
    poller = Poller(reader, control)

    def handle(records: list[StreamRecord]) -> HandledBatch | None:
        if any(record.keys["key"]["S"] == "a120" for record in records):
            raise RuntimeError("the queue is away")
        return poller.take(records)

    with pytest.raises(RuntimeError, match="the queue is away"):
        poller.stream.poll(handle, Moment(T0))
    assert sorted(poller.keys) == sorted(
        [f"a{n}" for n in range(100)] + [f"b{n}" for n in range(150)]
    )
    with pytest.raises(RuntimeError, match="the queue is away"):
        poller.stream.poll(handle, Moment(T0 + 1))
    assert poller.poll(T0 + 2) == 50
    assert poller.keys[-50:] == [f"a{n}" for n in range(100, 150)]


def test_an_interrupt_goes_straight_through_and_what_was_done_stays_done(control: Control) -> None:
    reader = Reader("s1")
    for n in range(150):
        reader.write("s1", f"k{n}")
    poller = Poller(reader, control)

    def handle(records: list[StreamRecord]) -> HandledBatch | None:
        if poller.batches:
            raise KeyboardInterrupt
        return poller.take(records)

    with pytest.raises(KeyboardInterrupt):
        poller.stream.poll(handle, Moment(T0))
    assert poller.poll(T0 + 1) == 50
    assert poller.keys == [f"k{n}" for n in range(150)]


def test_an_answer_that_names_no_record_of_the_batch_is_an_error(control: Control) -> None:
    reader = Reader("s1")
    reader.write("s1", "k")
    with pytest.raises(ValueError, match="not in list"):
        Poller(reader, control).stream.poll(lambda records: HandledBatch(again="1"), Moment(T0))
    assert "seq" not in shard_documents(control)["orders/s1"]


def test_an_expired_iterator_is_asked_for_again(control: Control) -> None:
    reader = Reader("s1")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.expire_iterators()
    reader.write("s1", "early")
    poller.poll(T0 + 1)
    reader.expire_iterators()
    reader.write("s1", "late")
    poller.poll(T0 + 2)
    assert poller.keys == ["early", "late"]
    assert poller.lost is None


def test_what_stops_the_look_around_does_not_stop_the_reading(control: Control) -> None:
    reader = Reader("s1")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.write("s1", "k")
    reader.failing["describe_stream"] = LedgerBusy("throttled")
    with pytest.raises(LedgerBusy, match="throttled"):
        poller.poll(T0 + LOOK_MS)
    assert poller.keys == ["k"]


@pytest.mark.parametrize("view", [None, "KEYS_ONLY"])
def test_a_table_without_the_right_stream_is_named(control: Control, view: str | None) -> None:
    reader = Reader("s1")
    reader.view = view
    with pytest.raises(
        LedgerError, match=r"'rows' of route 'orders' .* view type NEW_AND_OLD_IMAGES"
    ):
        Poller(reader, control).poll(T0)


# Shards that divide, close and leave --------------------------------------------------------------
def test_parents_are_read_to_their_end_before_their_children(control: Control) -> None:
    reader = Reader("p")
    for n in range(1500):
        reader.write("p", f"p{n}")
    reader.split("p", "c1", "c2")
    reader.write("c1", "c1")
    reader.split("c1", "g")
    reader.write("g", "g")
    reader.write("c2", "c2")
    poller = Poller(reader, control)
    for after in range(6):
        poller.poll(T0 + after)
    assert poller.keys[:1500] == [f"p{n}" for n in range(1500)]
    assert poller.keys[1500:] in (["c1", "c2", "g"], ["c2", "c1", "g"])
    assert sorted(poller.held) == ["c2", "g"]


def test_children_wait_for_a_parent_that_another_poller_reads(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "p")
    slow, quick = Poller(reader, control, "slow"), Poller(reader, control, "quick")
    slow.stream.poll(refuse, Moment(T0))
    reader.split("p", "c1", "c2")
    reader.write("c1", "c")
    quick.poll(T0 + 1)
    quick.poll(T0 + LOOK_MS + 1)
    assert quick.given == []
    slow.poll(T0 + LOOK_MS + 2)
    quick.poll(T0 + 2 * LOOK_MS + 2)
    slow.poll(T0 + 2 * LOOK_MS + 3)
    assert (slow.keys[0], sorted(slow.keys + quick.keys)) == ("p", ["c", "p"])
    assert len(slow.held) == len(quick.held) == 1


def test_children_of_a_parent_that_left_before_our_time_are_read_at_once(control: Control) -> None:
    reader = Reader("p")
    reader.split("p", "c")
    reader.write("c", "k")
    del reader.shards["p"]
    poller = Poller(reader, control)
    assert poller.poll(T0) == 1
    assert poller.lost is None


def test_a_shard_that_leaves_before_it_was_read_is_a_gap(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "read")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.write("p", "lost")
    reader.split("p", "c")
    reader.write("c", "k")
    del reader.shards["p"]
    with pytest.raises(LedgerMissing):
        poller.poll(T0 + 1)
    with pytest.raises(LedgerMissing):
        poller.poll(T0 + 2)
    assert poller.lost is None
    assert poller.keys == ["read"], "its child waits until it is certain"
    poller.poll(T0 + 2 + LEASE_MS)
    assert poller.lost is not None
    assert poller.lost.value == {"p": T0 + 2 + LEASE_MS}
    assert poller.keys == ["read", "k"]


def test_an_incomplete_list_is_no_gap_and_lets_no_child_go_first(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "first")
    poller, other = Poller(reader, control), Poller(reader, control, "b")
    poller.stream.poll(refuse, Moment(T0))
    reader.split("p", "c")
    reader.write("c", "second")
    reader.hidden = {"p"}
    other.poll(T0 + LOOK_MS)
    poller.stream.poll(refuse, Moment(T0 + LOOK_MS))
    reader.hidden = set()
    poller.poll(T0 + 2 * LOOK_MS)
    poller.poll(T0 + 3 * LOOK_MS)
    other.poll(T0 + 3 * LOOK_MS)
    assert (poller.keys + other.keys, poller.lost) == (["first", "second"], None)


def test_a_shard_that_somebody_reads_is_not_called_lost_by_others(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "k")
    poller, other = Poller(reader, control), Poller(reader, control, "b")
    for after in range(0, 3 * LEASE_MS, LOOK_MS):
        reader.hidden = set()
        poller.stream.poll(refuse, Moment(T0 + after))
        reader.hidden = {"p"}
        other.poll(T0 + after)
    assert (poller.held, other.lost) == (["p"], None)


def test_documents_of_shards_that_are_long_gone_are_removed(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "k")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.split("p", "c")
    poller.poll(T0 + 1)
    gone = reader.shards.pop("p")
    after = T0
    while after < T0 + DAY_MS:
        assert set(shard_documents(control)) >= {"orders/p"}
        after += SILENCE_MS // 2
        poller.poll(after)
    poller.poll(after + LEASE_MS)
    assert gone.closed
    assert set(shard_documents(control)) == {"orders/c"}
    assert poller.lost is None


def test_pollers_that_are_long_gone_are_forgotten(control: Control) -> None:
    reader = Reader("s1")
    Poller(reader, control, "gone").poll(T0)
    poller = Poller(reader, control, "here")
    poller.poll(T0 + DAY_MS // 2)
    assert set(control.read("poller")) == {"orders/gone", "orders/here"}
    poller.poll(T0 + DAY_MS + 2 * LEASE_MS)
    assert set(control.read("poller")) == {"orders/here"}


def test_an_ended_shard_that_is_still_listed_is_not_read_again(control: Control) -> None:
    reader = Reader("p")
    reader.write("p", "k")
    reader.split("p", "c")
    poller = Poller(reader, control)
    for after in range(0, 2 * DAY_MS, SILENCE_MS // 2):
        poller.poll(T0 + after)
        poller = Poller(reader, control, f"holder {after}")
    assert shard_documents(control)["orders/p"]["ended"] == T0
    assert poller.poll(T0 + 2 * DAY_MS) == 0


# Records that are gone ----------------------------------------------------------------------------
@pytest.mark.parametrize("same", [True, False], ids=["iterator kept", "iterator asked for"])
def test_trimmed_records_are_a_gap_and_reading_goes_on_with_the_oldest(
    control: Control, same: bool
) -> None:
    reader = Reader("s1", "s2")
    reader.write("s1", "read")
    poller = Poller(reader, control)
    poller.poll(T0)
    for n in range(5):
        reader.write("s1", f"k{n}")
    reader.trim("s1", left=2)
    later = poller if same else Poller(reader, control, "b")
    later.poll(T0 + LEASE_MS)
    assert (poller.keys + later.keys)[-2:] == ["k3", "k4"]
    assert later.lost is not None
    assert later.lost.value == {"s1": T0 + LEASE_MS}


def test_a_gap_is_noticed_once_even_if_nothing_is_left(control: Control) -> None:
    reader = Reader("s1")
    reader.write("s1", "read")
    Poller(reader, control).poll(T0)
    reader.trim("s1")
    poller = Poller(reader, control)
    poller.poll(T0 + 1)
    assert poller.lost is not None
    clear_lost(control, poller.route, poller.lost.version)
    reader.expire_iterators()
    reader.write("s1", "k")
    heir = Poller(reader, control)
    heir.poll(T0 + 2)
    assert (heir.keys, heir.lost) == (["k"], None)


def test_a_gap_is_known_to_others_until_it_is_mended(control: Control) -> None:
    reader = Reader("s1", "s2")
    for shard in ("s1", "s2"):
        reader.write(shard, "read")
    first = Poller(reader, control)
    first.poll(T0)
    reader.write("s1", "lost")
    reader.trim("s1")
    first.poll(T0 + 1)
    seen = first.lost
    assert seen is not None
    assert list(seen.value) == ["s1"]
    other = Poller(reader, control, "b")
    other.poll(T0 + 2)
    assert other.lost == seen
    reader.write("s2", "lost")
    reader.trim("s2")
    first.poll(T0 + 3)
    clear_lost(control, other.route, seen.version)
    assert other.lost == first.lost, "noticed after the scan had begun"
    assert other.lost is not None
    assert list(other.lost.value) == ["s1", "s2"]
    clear_lost(control, other.route, other.lost.version)
    assert other.lost is None
    first.poll(T0 + LOOK_MS)
    assert first.lost is None


def test_a_long_silence_is_a_gap_even_if_all_that_is_known_had_been_read(control: Control) -> None:
    reader = Reader("p")
    reader.split("p", "c")
    poller = Poller(reader, control)
    poller.poll(T0)
    reader.split("c", "d")
    reader.shards = {"d": reader.shards["d"]}
    poller = Poller(reader, control, "b")
    poller.poll(T0 + LEASE_MS + SILENCE_MS + 1)
    assert poller.lost is not None


def test_another_stream_of_the_table_is_read_from_its_start(control: Control) -> None:
    reader = Reader("s1")
    reader.write("s1", "read")
    poller = Poller(reader, control)
    poller.poll(T0)
    again = Reader("s1")
    again.label = "2026-11-15T20:30:00.123"
    again.write("s1", "anew")
    reader.__dict__.update(again.__dict__)
    with pytest.raises(LedgerError):
        poller.poll(T0 + LOOK_MS)
    poller.poll(T0 + LOOK_MS + 1)
    assert poller.keys == ["read", "anew"]
    assert poller.lost is not None
    assert poller.lost.value == {"s1": T0 + LOOK_MS + 1}


# Several pollers ----------------------------------------------------------------------------------
def test_a_shard_is_taken_over_when_its_lease_has_run_out(control: Control) -> None:
    reader = Reader("s1")
    for n in range(150):
        reader.write("s1", f"k{n}")
    dead, heir = Poller(reader, control, "dead"), Poller(reader, control, "heir")

    class Killed(BaseException):
        pass

    def die(records: list[StreamRecord]) -> HandledBatch | None:
        dead.take(records)
        if len(dead.given) == 150:
            raise Killed
        return None

    with pytest.raises(Killed):
        dead.stream.poll(die, Moment(T0))
    assert heir.poll(T0 + LEASE_MS - 1) == 0
    assert heir.poll(T0 + LEASE_MS + LOOK_MS) == 50, (
        "what had been given out but not been written down"
    )
    assert heir.keys == [f"k{n}" for n in range(100, 150)]


def test_who_comes_back_late_is_given_nothing_of_a_shard_that_was_taken(control: Control) -> None:
    reader = Reader("s1")
    late, heir = Poller(reader, control, "late"), Poller(reader, control, "heir")
    late.poll(T0)
    heir.poll(T0 + LEASE_MS)
    reader.write("s1", "k")
    assert late.poll(T0 + LEASE_MS + 1) == 0
    assert (late.held, heir.poll(T0 + LEASE_MS + 2)) == ([], 1)


def test_who_was_overtaken_by_a_faster_clock_is_told_at_the_next_look(control: Control) -> None:
    reader = Reader("s1")
    slow, ahead = Poller(reader, control, "slow"), Poller(reader, control, "ahead")
    slow.poll(T0)
    ahead.poll(T0 + LEASE_MS)
    reader.write("s1", "k")
    assert (slow.poll(T0 + LOOK_MS), slow.keys, slow.held) == (0, [], [])


def test_who_is_overtaken_while_handling_hands_out_no_more_and_writes_nothing(
    control: Control,
) -> None:
    reader = Reader("s1")
    for n in range(250):
        reader.write("s1", f"k{n}")
    slow, heir = Poller(reader, control, "slow"), Poller(reader, control, "heir")

    def overtaken(records: list[StreamRecord]) -> HandledBatch | None:
        if slow.batches:
            heir.poll(T0 + LEASE_MS)
        return slow.take(records)

    assert slow.stream.poll(overtaken, Moment(T0)) == 200
    assert slow.batches == [100, 100], "the third batch stayed unread"
    assert heir.keys == [f"k{n}" for n in range(100, 250)]
    assert slow.poll(T0 + 1) == 0
    document = shard_documents(control)["orders/s1"]
    assert (document["holder"], document["seq"]) == ("heir", heir.given[-1].seq)


def test_a_lease_is_kept_by_polling(control: Control) -> None:
    reader = Reader("s1")
    keeper, other = Poller(reader, control, "keeper"), Poller(reader, control, "other")
    for after in range(0, 5 * LEASE_MS, LEASE_MS // 3):
        keeper.poll(T0 + after)
        other.poll(T0 + after)
        assert (keeper.held, other.held) == (["s1"], [])


def test_a_process_that_starts_anew_under_its_name_reads_on_at_once(control: Control) -> None:
    reader = Reader("s1")
    Poller(reader, control, "a").poll(T0)
    reader.write("s1", "k")
    assert Poller(reader, control, "a").poll(T0 + 1) == 1


def test_who_leaves_lets_others_read_on_at_once(control: Control) -> None:
    reader = Reader("s1", "s2")
    first, second = Poller(reader, control, "a"), Poller(reader, control, "b")
    first.poll(T0)
    first.stream.shards.leave(T0 + 1)
    for shard in ("s1", "s2"):
        reader.write(shard, "k")
    assert second.poll(T0 + 2) == 2
    assert first.held == []


@pytest.mark.parametrize(
    ("shards", "pollers", "expected"), [(7, 2, [3, 4]), (4, 3, [1, 1, 2]), (2, 3, [0, 1, 1])]
)
def test_newcomers_get_their_share_one_shard_at_a_time(
    control: Control, shards: int, pollers: int, expected: list[int]
) -> None:
    reader = Reader(*(f"s{n}" for n in range(shards)))
    all_pollers = [Poller(reader, control, f"p{n}") for n in range(pollers)]
    all_pollers[0].poll(T0)
    assert len(all_pollers[0].held) == shards
    before = shards
    for turn in range(1, 20):
        for poller in all_pollers:
            poller.poll(T0 + turn * LOOK_MS)
        held = len(all_pollers[0].held)
        assert before - held <= 1
        before = held
    owners = [shard for poller in all_pollers for shard in poller.held]
    assert sorted(owners) == sorted(reader.shards)
    assert sorted(len(poller.held) for poller in all_pollers) == expected
    versions = {name: document.version for name, document in control.read("shard").items()}
    for poller in all_pollers:
        poller.poll(T0 + 20 * LOOK_MS)
    moved = [
        name
        for name, document in control.read("shard").items()
        if document.value["until"] <= T0 + 20 * LOOK_MS
    ]
    assert (moved, set(versions)) == ([], {f"orders/{shard}" for shard in reader.shards}), (
        "nothing goes to and fro"
    )


def test_what_was_given_up_is_left_to_the_others_while_they_live(control: Control) -> None:
    reader = Reader(*(f"s{n}" for n in range(4)))
    generous, absent = Poller(reader, control, "generous"), Poller(reader, control, "absent")
    generous.poll(T0)
    absent.poll(T0 + 1)
    held, let_go = [], []
    for after in range(LOOK_MS, 2 * LEASE_MS, LOOK_MS):
        generous.poll(T0 + after)
        held.append(len(generous.held))
        let_go += [
            document.value["until"]
            for document in control.read("shard").values()
            if "holder" not in document.value
        ]
    living = LEASE_MS // LOOK_MS
    assert held[:living] == [3] * living, "one, and no second one before the first is taken"
    assert held[living:] == [4] * (len(held) - living)
    assert let_go == [T0 + LOOK_MS] * living, "it did not go to and fro"


def test_all_shards_of_a_dead_poller_are_taken_over(control: Control) -> None:
    reader = Reader(*(f"s{n}" for n in range(6)))
    dead, heir = Poller(reader, control, "dead"), Poller(reader, control, "heir")
    for turn in range(6):
        dead.poll(T0 + turn * LOOK_MS)
        heir.poll(T0 + turn * LOOK_MS)
    assert len(dead.held) == len(heir.held) == 3
    for turn in range(6, 20):
        heir.poll(T0 + turn * LOOK_MS)
    assert sorted(heir.held) == sorted(reader.shards)


def test_routes_do_not_see_each_others_shards(control: Control) -> None:
    orders, returns = Reader("s1"), Reader("s1")
    orders.write("s1", "order")
    returns.write("s1", "return")
    first, second = (
        Poller(orders, control, route="orders"),
        Poller(returns, control, route="returns"),
    )
    assert (first.poll(T0), second.poll(T0)) == (1, 1)
    assert set(shard_documents(control)) == {"orders/s1", "returns/s1"}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_record_is_given_and_no_item_goes_backwards(
    control: Control, seed: int
) -> None:
    """Pollers come, fail, stand still and vanish while shards divide; first tellings of each item
    are in its order."""
    chance = random.Random(seed)
    reader = Reader("s0")
    pollers = [Poller(reader, control, "p0")]
    told: dict[str, list[str]] = defaultdict(list)
    written: dict[str, list[str]] = defaultdict(list)
    home = {f"k{n}": "s0" for n in range(6)}
    made = 1
    now = T0

    def handle(records: list[StreamRecord]) -> HandledBatch | None:
        for record in records:
            fate = chance.random()
            if fate < 0.02:
                raise RuntimeError("failed")
            if fate < 0.05:
                return HandledBatch(again=record.seq)
            told[record.keys["key"]["S"]].append(record.seq)
        return None

    def poll(poller: Poller) -> None:
        try:
            poller.stream.poll(handle, Moment(now))
        except RuntimeError:
            pass

    for step in range(120):
        for _ in range(chance.randrange(12)):
            key = chance.choice(list(home))
            written[key].append(reader.write(home[key], key))
        if chance.random() < 0.06:
            parent = chance.choice(sorted(set(home.values())))
            children = [f"s{made}", f"s{made + 1}"]
            made += 2
            reader.split(parent, *children)
            home |= {key: chance.choice(children) for key, shard in home.items() if shard == parent}
        if chance.random() < 0.05:
            pollers.append(Poller(reader, control, f"p{step}"))
        if chance.random() < 0.04 and len(pollers) > 1:
            pollers.remove(chance.choice(pollers))
        if chance.random() < 0.1:
            reader.expire_iterators()
        now += chance.choice([0, 500, 3_000, 7_000, LEASE_MS])
        for poller in pollers:
            if chance.random() < 0.7:
                poll(poller)
    for _ in range(40):
        if all(set(seqs) <= set(told[key]) for key, seqs in written.items()):
            break
        now += LEASE_MS // 4
        for poller in pollers:
            poll(poller)
    for key, seqs in written.items():
        assert list(dict.fromkeys(told[key])) == seqs
    assert all(poller.lost is None for poller in pollers)


# The real thing -----------------------------------------------------------------------------------
def test_two_pollers_on_a_real_table_one_of_which_dies(
    control: Control, requests: Requests, client: Callable[[str], Any]
) -> None:
    dynamodb = client("dynamodb")
    dynamodb.create_table(
        TableName="rows",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=STREAM,
    )
    first, second = Poller(requests, control, "a"), Poller(requests, control, "b")
    unwritten: list[StreamRecord] = []

    def write(start: int, end: int) -> None:
        for n in range(start, end):
            dynamodb.put_item(
                TableName="rows", Item={"key": {"S": f"k{n % 20}"}, "n": {"N": str(n)}}
            )

    def die(records: list[StreamRecord]) -> HandledBatch | None:
        unwritten.extend(records)
        raise KeyboardInterrupt

    write(0, 120)
    assert first.poll(T0) + second.poll(T0) == 120
    write(120, 200)
    with pytest.raises(KeyboardInterrupt):
        first.stream.poll(die, Moment(T0 + 1000))
    write(200, 300)
    assert second.poll(T0 + LEASE_MS - 1) == 0
    assert second.poll(T0 + LEASE_MS - 1 + LOOK_MS) == 180
    assert second.given[:80] == [replace(record, again=True) for record in unwritten]
    assert {record.again for record in second.given[100:]} == {False}
    in_order: dict[str, list[int]] = defaultdict(list)
    for record in first.given + second.given:
        assert record.new is not None
        in_order[record.keys["key"]["S"]].append(int(record.new["n"]["N"]))
    assert in_order == {f"k{n}": list(range(n, 300, 20)) for n in range(20)}
    changed = second.given[-1]
    assert changed.old == {"key": {"S": "k19"}, "n": {"N": "279"}}
    assert (changed.name, changed.route, first.given[0].old) == ("MODIFY", "orders", None)
    assert (
        abs(
            changed.at
            - int(
                dynamodb.describe_table(TableName="rows")["Table"]["CreationDateTime"].timestamp()
                * 1000
            )
        )
        < DAY_MS
    )
    requests.counts.clear()
    assert second.poll(T0 + LEASE_MS + LOOK_MS) == 0
    assert requests.counts == {("dynamodbstreams", "get_records"): 1}


# Lambda -------------------------------------------------------------------------------------------
def lambda_event(**record: Any) -> dict[str, Any]:
    change = {
        "ApproximateCreationDateTime": 1_794_771_000.0,
        "Keys": {"key": {"S": "k"}},
        "SequenceNumber": "111",
        "SizeBytes": 26,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    return {
        "Records": [
            {
                "eventID": "1",
                "eventName": "MODIFY",
                "eventSource": "aws:dynamodb",
                "eventSourceARN": "arn:aws:dynamodb:eu-central-1:000000000000:table/shop-orders/stream/2026-11-15T19:30:00.123",
                **record,
                "dynamodb": change | record.get("dynamodb", {}),
            }
        ]
    }


def test_an_event_is_read_with_its_bytes_as_bytes_and_its_numbers_as_text() -> None:
    def b(content: bytes) -> str:
        return base64.b64encode(content).decode()

    image = {
        "key": {"S": "k"},
        "n": {"N": "12345678901234567890.5"},
        "raw": {"B": b(b"\x00\xff")},
        "set": {"BS": [b(b"a"), b(b"")]},
        "list": {
            "L": [{"B": b(b"in list")}, {"NULL": True}, {"M": {"deep": {"L": [{"B": b(b"deep")}]}}}]
        },
        "B": {
            "M": {
                "S": {"B": b(b"named like a type")},
                "NS": {"NS": ["1", "2"]},
                "yes": {"BOOL": False},
            }
        },
        "empty": {"M": {}},
    }
    [record] = from_event(
        lambda_event(dynamodb={"NewImage": image, "OldImage": {"key": {"S": "k"}}}),
        {"shop-orders": "orders"},
    )
    assert record == StreamRecord(
        route="orders",
        name="MODIFY",
        keys={"key": {"S": "k"}},
        old={"key": {"S": "k"}},
        new={
            "key": {"S": "k"},
            "n": {"N": "12345678901234567890.5"},
            "raw": {"B": b"\x00\xff"},
            "set": {"BS": [b"a", b""]},
            "list": {
                "L": [{"B": b"in list"}, {"NULL": True}, {"M": {"deep": {"L": [{"B": b"deep"}]}}}]
            },
            "B": {
                "M": {
                    "S": {"B": b"named like a type"},
                    "NS": {"NS": ["1", "2"]},
                    "yes": {"BOOL": False},
                }
            },
            "empty": {"M": {}},
        },
        seq="111",
        at=1_794_771_000_000,
    )


def test_an_event_of_a_foreign_table_is_a_mistake() -> None:
    with pytest.raises(ConfigMistake, match="table/shop-orders/stream"):
        from_event(lambda_event(), {"shop-returns": "returns"})
