"""The repair scan: finds by the rows what lost stream records would have caused, and leaves sound
rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.aws.ledger.repair.repair_scene import DAY, Scene, scene_at
from tests.aws.ledger.synchronous_ledger import PROMPT, Moment
from tests.aws.ledger.table_scene import Died, Process
from tests.standins import REGION

from milepost.core.change import Change
from milepost.core.errors import RouteChanged, UsageError
from milepost.core.operators import cancel
from milepost.core.outcome import Done, NotYet, Reject, Retry
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost_aws.ledger.claim.paused_lanes import HeldLanes
from milepost_aws.ledger.ledger import AwsLedger, parse
from milepost_aws.ledger.names import due_shard, iso, ms
from milepost_aws.ledger.repair.repair import PACE, Repair, ScanPace
from milepost_aws.ledger.tables.documents import kind_query


@pytest.fixture
def scene(endpoint: str, prefix: str) -> Iterator[Scene]:
    with scene_at(endpoint, prefix) as scene:
        yield scene


def delivered(scene: Scene, *keys: str) -> None:
    """Items that are through every stage but the last, somebody else's."""
    scene.add(*keys)
    for stage in ("weigh", "stamp"):
        scene.follow()
        for item in scene.claim(stage).items:
            assert scene.settle(item, Done({"by": stage})) is None
    scene.follow()


# What nobody has read -----------------------------------------------------------------------------
def test_a_sound_table_needs_nothing(scene: Scene) -> None:
    delivered(scene, "a", "b", "c")
    scene.add("d", "e", "f", "g")
    scene.follow()
    waits, fails, ends, held = scene.claim().items
    scene.settle(waits, NotYet())
    scene.settle(fails, Retry("no scales"))
    scene.settle(ends, Reject("not a parcel"))
    scene.confirm("a", "delivered")
    scene.follow()
    before = [scene.image(key) for key in "abcdefg"]
    assert scene.mended() == {}
    assert [scene.image(key) for key in "abcdefg"] == before
    assert held.row.status is Status.PROCESSING
    scene.whole()


def test_a_row_that_somebody_put_is_taken_in(scene: Scene) -> None:
    scene.put("a", input={"S": '{"id":"a"}'}, correlationId={"S": "theirs"})
    scene.lose()
    assert scene.mended() == {"adopted": 1}
    assert scene.item("a").correlation_id == "theirs"
    scene.whole()
    assert scene.row("a").status is Status.QUEUED
    assert scene.reasons("a") == ["accepted"]


def test_a_row_that_is_known_by_its_seal_goes_again(scene: Scene) -> None:
    delivered(scene, "a")
    scene.confirm("a", "delivered")
    scene.follow()
    scene.process.call(
        "dynamodb", "delete_item", TableName=scene.table, Key=scene.layout.key_image("a")
    )
    scene.put("a", input={"S": '{"id":"a"}'})
    scene.lose()
    assert scene.mended() == {"known": 1, "counters": 1}
    assert scene.store.images(scene.plan.name, ["a"]) == {}
    scene.whole()


def test_what_is_no_row_to_be_taken_in_is_set_aside_once(scene: Scene) -> None:
    scene.add("broken")
    scene.follow()
    scene.put("ghost", ingested_weigh={"S": "true"})
    scene.damage("broken", enteredAt={"S": "yesterday"})
    scene.lose()
    first = scene.run()
    assert first.found.mended == {"set aside": 2, "counters": 1}
    assert first.found.left == {"set aside": 1}
    reasons = {
        body["content"]["row"]["id" if "id" in body["content"]["row"] else "key"]: body["reason"]
        for body in scene.quarantined()
    }
    assert "no input" in reasons["ghost"]
    assert "cannot be read" in reasons["broken"]

    scene.clock.advance("1d")
    second = scene.run()
    assert second.found.mended == {}
    assert second.found.left == {"set aside": 2}
    assert sorted(example.partition(":")[0] for example in second.found.examples) == [
        "broken",
        "ghost",
    ]
    assert scene.quarantined() == []

    # Another row under the same key is another matter, and one that is mended is forgotten.
    scene.damage("ghost", ingested_stamp={"S": "true"})
    scene.damage("broken", enteredAt={"S": iso(scene.now - DAY)})
    scene.lose()
    assert scene.mended() == {"set aside": 1, "counters": 1}
    assert len(scene.quarantined()) == 1
    assert sorted(scene.store.control.read(f"aside#{scene.plan.name}")) == ["ghost"]


def test_what_the_relay_set_aside_is_not_set_aside_again(scene: Scene) -> None:
    scene.put("ghost", ingested_weigh={"S": "true"})
    scene.follow()
    assert len(scene.quarantined()) == 1
    assert scene.mended() == {}
    assert scene.quarantined() == []


def test_lines_that_nobody_was_told_of_are_written_to_the_journal(scene: Scene) -> None:
    scene.add("a", "b")
    scene.follow()
    waits, fails = scene.claim().items
    scene.settle(waits, NotYet())
    scene.settle(fails, Retry("no scales"))
    scene.lose()
    assert [scene.versions_told(item.key) for item in (waits, fails)] == [[1], [1]]
    # Gone from QUEUED, counted as WAITING and as RETRY_SCHEDULED, and its error's group.
    assert scene.mended() == {"lines": 2, "counters": 4}
    assert [scene.versions_told(item.key) for item in (waits, fails)] == [[1, 2], [1, 2]]
    assert "trail" not in scene.image(waits.key)
    scene.whole()


def test_a_line_lost_between_others_is_told_and_those_after_it_again(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.settle(scene.take("a"), NotYet())
    scene.lose()
    scene.clock.advance("1m")
    scene.resend()
    scene.settle(scene.take("a"), NotYet(note="belt stands still"))
    scene.follow()
    assert scene.versions_told("a") == [1, 3]
    read = scene.aws.last_seq()
    assert scene.mended() == {"lines": 1, "counters": 2}
    assert [line.line.version for line in scene.aws.feed(read, 100)] == [2, 3], (
        "a subscriber that has read the third gets it again"
    )
    assert scene.versions_told("a") == [1, 2, 3], "a new one gets each once, in order"
    scene.whole()


def test_a_line_lost_before_the_relay_moves_the_row_on_is_told_by_the_relay(scene: Scene) -> None:
    """The relay lets lines leave the row only when they are in the journal, whoever should have
    brought them there."""
    scene.add("a", "b")
    scene.follow()
    for item in scene.claim().items:
        scene.settle(item, NotYet())
    scene.lose()
    scene.clock.advance("1m")
    scene.resend()
    first, second = scene.claim().items
    scene.settle(first, Done())
    scene.settle(second, Reject("not a parcel"))
    scene.follow()
    assert [scene.versions_told(item.key) for item in (first, second)] == [[1, 2, 3]] * 2
    scene.mended()
    scene.whole()


def test_an_external_offer_is_told_with_its_payload(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.settle(scene.take("a"), Done())
    scene.follow()
    scene.settle(scene.take("a", "stamp"), Done({"stamp": 7}))
    scene.lose()
    assert scene.row("a").stage == "delivered"
    assert scene.mended()["lines"] == 1
    scene.clock.advance("15m")
    scene.resend()
    scene.whole()
    told = [written for written in scene.aws.feed(0, 100) if written.line.offered]
    assert [written.payload for written in told] == [{"stamp": 7}]


# Rows that nobody would find ----------------------------------------------------------------------
@pytest.mark.parametrize("removed", [("dueShard",), ("dueAt",), ("dueShard", "dueAt")])
def test_a_row_that_is_in_no_index_is_put_back(scene: Scene, removed: tuple[str, ...]) -> None:
    scene.add("a", "b", "c", "d")
    scene.follow()
    processing, waiting, retry = scene.claim(want=3, lease=2 * DAY).items
    scene.settle(waiting, NotYet())
    scene.settle(retry, Retry("no scales"))
    scene.follow()
    due = {key: scene.row(key).due_at for key in "abcd"}
    for key in "abcd":
        scene.damage(key, *removed)
    scene.lose()
    assert scene.mended() == {"indexed": 4}
    queued = next(key for key in "abcd" if scene.row(key).status is Status.QUEUED)
    for key in "abcd":
        image = scene.image(key)
        assert image["dueShard"]["S"] == due_shard("weigh", key)
        if key in (processing.key, retry.key) or (key == waiting.key and "dueAt" not in removed):
            assert ms(image["dueAt"]["S"]) == due[key]
    # Nobody can know whether its message is still there: it is called again at the next look.
    assert ms(scene.image(queued)["dueAt"]["S"]) <= scene.now
    scene.whole()


def test_a_row_in_no_index_whose_lease_end_is_no_time_is_set_aside_alone(scene: Scene) -> None:
    scene.add("a", "b")
    scene.follow()
    assert len(scene.claim(want=2, lease=2 * DAY).items) == 2
    scene.damage("a", "dueAt", "dueShard", leaseUntil={"S": "soon"})
    scene.damage("b", "dueAt", "dueShard")
    scene.lose()
    scene.clock.advance("1d")
    found = scene.run().found
    assert (found.mended["indexed"], found.mended["set aside"]) == (1, 1)
    assert found.left == {"set aside": 1}
    assert "'soon' is not a time" in found.examples[0]


def test_a_row_in_the_wrong_partition_is_moved(scene: Scene) -> None:
    scene.add("a", "b")
    scene.follow()
    scene.damage("a", dueShard={"S": "stamp#0"})
    scene.damage("b", dueShard={"S": "failed#1"})
    scene.lose()
    assert scene.mended() == {"indexed": 2}
    scene.resend()
    scene.follow()
    assert len({item.key for item in scene.claim().items}) == 2
    scene.whole()


def test_a_row_that_stands_apart_in_a_lane_that_nobody_resumes(scene: Scene) -> None:
    scene.add("a", lane="north")
    scene.add("b")
    scene.follow()
    scene.hold("parcels/weigh/north")
    assert [item.key for item in scene.claim().items] == ["b"]
    assert scene.image("a")["dueShard"]["S"].startswith("held#weigh#north#")
    scene.follow()
    assert scene.mended() == {}
    scene.release("parcels/weigh/north")
    scene.store.control.write("holding", "parcels/weigh/north", None)
    assert HeldLanes(scene.store).resume(scene.clock).rows == 0
    assert scene.mended() == {"held": 1}
    assert HeldLanes(scene.store).resume(scene.clock).rows == 1
    scene.follow()
    assert [item.key for item in scene.claim().items if item.key == "a"] == ["a"]


def test_a_row_apart_in_a_lane_that_is_not_its_own(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.damage("a", dueShard={"S": "held#sort#north#0"})
    scene.lose()
    assert scene.mended() == {"indexed": 1}
    scene.resend()
    scene.follow()
    scene.take("a")


def test_a_live_row_does_not_leave_by_its_time_to_live(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.damage("a", ttl={"N": str(scene.now // 1000 + 3 * 86_400)})
    scene.lose()
    assert scene.mended() == {"kept": 1}
    assert "ttl" not in scene.image("a")
    scene.whole()


def test_the_time_to_live_that_an_earlier_version_gave_to_a_failed_row_is_taken_off(
    scene: Scene,
) -> None:
    scene.add("a")
    scene.follow()
    scene.settle(scene.take("a"), Reject("not a parcel"))
    scene.follow()
    scene.damage("a", ttl={"N": "1800000000"})
    scene.lose()
    assert scene.mended() == {"ended": 1}
    assert "ttl" not in scene.image("a")
    scene.whole()


# Rows that have ended -----------------------------------------------------------------------------
@pytest.mark.parametrize("outcome", [None, Reject("not a parcel")])
def test_an_end_that_nobody_was_told_of(scene: Scene, outcome: Reject | None) -> None:
    delivered(scene, "a")
    if outcome is None:
        scene.confirm("a", "delivered")
    else:
        scene.confirm("a", "delivered", outcome)
    scene.lose()
    ended = scene.row("a")
    assert ended.terminal
    assert scene.store.seals(scene.plan.name, ["a"]) == {}
    assert scene.mended() == {
        "lines": 1,
        "sealed": 1,
        "ended": 1,
        "counters": 2 + (outcome is not None),
    }
    seal = scene.store.seals(scene.plan.name, ["a"])["a"]
    assert (seal.status, seal.head) == (ended.status, ended.head)
    scene.whole()
    image = scene.image("a")
    assert "trail" not in image
    assert (
        ("dueShard" not in image)
        if outcome is None
        else image["dueShard"]["S"].startswith("failed#")
    )


def test_a_seal_that_is_not_there_or_tells_of_an_earlier_end(scene: Scene) -> None:
    scene.add("a", "b")
    scene.follow()
    for item in scene.claim().items:
        scene.settle(item, Reject("not a parcel"))
    scene.follow()
    scene.remove_seal("a")
    told = scene.store.seal_image(scene.plan.name, "b")
    scene.process.batch_write(scene.store.names.seen, [{**(told or {}), "head": {"S": "A" * 43}}])
    assert scene.mended() == {"sealed": 2}
    seals = scene.store.seals(scene.plan.name, "ab")
    assert [seals[key].head for key in "ab"] == [scene.row(key).head for key in "ab"]
    scene.whole()


def test_a_route_that_forgets_is_not_made_to_remember(endpoint: str, prefix: str) -> None:
    route = Route("notes", remember="2d")
    route.stage("read")(lambda item: Done())
    with scene_at(endpoint, prefix, route) as scene:
        scene.add("a")
        scene.follow()
        scene.settle(scene.take("a", "read"), Done())
        scene.follow()
        scene.remove_seal("a")
        assert scene.mended() == {"sealed": 1}
        scene.remove_seal("a")
        assert scene.mended() == {}


# Outside answers ----------------------------------------------------------------------------------
def test_a_confirmation_that_nobody_applied(scene: Scene) -> None:
    delivered(scene, "a", "b")
    scene.damage("a", ingested_delivered={"S": '{"signed":"desk"}'})
    scene.lose()
    assert scene.mended() == {"confirmed": 1}
    assert scene.row("a").status is Status.COMPLETED
    assert scene.item("a").results["delivered"] == {"signed": "desk"}
    assert scene.row("b").status is Status.QUEUED
    scene.whole()


def test_a_confirmation_while_a_worker_holds_the_item_is_left_to_its_outcome(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    item = scene.take("a", lease=3 * DAY)
    scene.follow()
    scene.damage("a", ingested_weigh={"S": "true"})
    scene.lose()
    assert scene.mended() == {}
    assert scene.row("a").lease == item.row.lease


def test_an_answer_for_a_stage_that_is_behind_is_noted(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.settle(scene.take("a"), Done())
    scene.follow()
    scene.damage("a", ingested_weigh={"S": '{"kg":3}'})
    scene.lose()
    assert scene.mended() == {"noted": 1}
    scene.whole()
    assert scene.reasons("a")[-1] == "noted"


def test_a_row_at_a_stage_that_the_route_does_not_have_is_reported(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.damage("a", "dueAt", queue={"S": "sort"})
    scene.lose()
    before = scene.image("a")
    scene.clock.advance("1d")
    progress = scene.run()
    assert progress.found.left == {"unknown stage": 1}
    assert "'sort'" in progress.found.examples[0]
    assert "routes apply" in progress.found.examples[0]
    assert scene.image("a") == before


# Counters -----------------------------------------------------------------------------------------
def test_counters_and_groups_are_set_right(scene: Scene) -> None:
    scene.add("a", "b", "c")
    scene.follow()
    first, second, third = scene.claim().items
    scene.settle(first, Retry("no scales"))
    scene.settle(second, Retry("no scales"))
    scene.settle(third, Done())
    scene.lose()
    with pytest.raises(AssertionError, match="counters say"):
        scene.audit()
    scene.mended()
    assert scene.count("weigh") == {"RETRY_SCHEDULED": 2}
    assert [(group.now, group.total) for group in scene.aws.groups(scene.plan.name)] == [(2, 2)]
    counted = scene.store.requests.query(scene.store.names.control, **kind_query("counted"))
    assert [cell["asOf"]["S"] for cell in counted] == [iso(scene.now)]
    scene.resend()
    scene.whole()


def test_what_changes_during_a_run_is_counted_once(scene: Scene) -> None:
    """Rows move on before and after they are gone through, and are counted as the stream tells: not
    by the repair too."""
    scene.add(*(f"k{n}" for n in range(12)))
    scene.follow()
    repair = scene.repair(page=4)
    for _ in range(3):
        progress = repair.step(scene.clock)
        scene.clock.advance_to(progress.next_at or 0)
        for item in scene.claim(want=4).items:
            scene.settle(item, Done())
    scene.follow()
    while not progress.done:
        scene.clock.advance_to(progress.next_at or 0)
        progress = repair.step(scene.clock)
    scene.follow()
    scene.audit()
    assert sum(scene.count("stamp").values()) == 12


# Runs ---------------------------------------------------------------------------------------------
def broken(scene: Scene, n: int) -> None:
    """So many sound rows, every tenth of which is in no index."""
    keys = [f"k{number:04d}" for number in range(n)]
    scene.add(*keys)
    scene.follow()
    for key in keys[::10]:
        scene.damage(key, "dueShard")
    scene.lose()
    scene.clock.advance("1h")


def test_another_process_goes_on_where_one_died(scene: Scene) -> None:
    broken(scene, 50)
    dying = scene.open(Process(scene.endpoint))
    doomed = Repair(dying.store, scene.plan, lambda: 0.0, page=10)
    first = doomed.step(scene.clock)
    assert (first.found.rows, first.done) == (10, False)
    scene.clock.advance_to(first.next_at or 0)
    # It dies in the middle of its second page: rows are mended, its place is not written.
    dying.store.requests.at("update_item", lambda: None)
    dying.store.requests.die_at("update_item")
    with pytest.raises(Died):
        for _ in range(5):
            scene.clock.advance_to(doomed.step(scene.clock).next_at or 0)

    missing = sum("dueShard" not in scene.image(f"k{n:04d}") for n in range(50))
    other = scene.repair(page=10)
    waits = other.step(scene.clock)
    assert waits.standing_by == "another process is repairing it"
    scene.clock.advance_to(waits.next_at or 0)
    scene.clock.advance("1m")
    progress = scene.run(other)
    assert (progress.found.rows, progress.started) == (50, first.started)
    assert 0 < missing <= progress.found.mended["indexed"] <= 5
    scene.whole()


def test_two_never_run_at_once(scene: Scene) -> None:
    broken(scene, 30)
    one, other = scene.repair(page=10), scene.repair(page=10)
    first = one.step(scene.clock)
    assert first.found.rows == 10
    assert other.step(scene.clock).standing_by == "another process is repairing it"
    # Whoever was away for too long finds that its run has been taken over, and writes nothing down.
    scene.clock.advance_to((first.next_at or 0) + 60_000)
    taken = other.step(scene.clock)
    assert (taken.found.rows, taken.standing_by) == (20, None)
    assert one.step(scene.clock).standing_by == "another process is repairing it"
    assert scene.run(other).found.rows == 30
    scene.whole()


def test_a_page_that_takes_minutes_leaves_the_run_leased_to_its_process(scene: Scene) -> None:
    broken(scene, 30)
    one, other = scene.repair(page=10), scene.repair(page=10)
    scene.process.at("scan", lambda: scene.clock.advance("3m"))
    first = one.step(scene.clock)
    assert first.next_at is not None
    assert first.next_at >= scene.now, "the pace is kept from the end of the page"
    assert other.step(scene.clock).standing_by == "another process is repairing it"


def test_a_run_taken_over_during_a_page_is_not_moved_on_twice(scene: Scene) -> None:
    broken(scene, 30)
    one, other = (
        scene.repair(page=10),
        Repair(scene.open(Process(scene.endpoint)).store, scene.plan, lambda: 0.0, page=10),
    )
    first = one.step(scene.clock)
    scene.clock.advance_to(first.next_at or 0)
    late = (first.next_at or 0) + 120_000
    scene.process.at("scan", lambda: other.step(Moment(late)))
    assert one.step(scene.clock).standing_by == "another process has taken over this run"
    scene.clock.advance_to(late)
    progress = scene.run(other)
    assert (progress.found.rows, progress.found.mended) == (30, {"indexed": 3})
    scene.whole()


def test_a_row_that_changes_between_reading_and_mending_loses_nothing(scene: Scene) -> None:
    delivered(scene, "a")
    scene.add("b")
    scene.follow()
    scene.settle(scene.take("b"), NotYet())
    scene.lose()
    scene.damage("b", "dueShard")
    scene.damage("a", ingested_delivered={"S": "true"})
    scene.lose()
    scene.clock.advance("1d")
    other = scene.open(Process(scene.endpoint))

    def taken_off() -> None:
        for item in other.get([("parcels", "a"), ("parcels", "b")]):
            assert item is not None
            change = cancel(item, scene.plan, scene.now, by="ops", why="test")
            assert isinstance(change, Change)
            assert other.apply([change], scene.now) == [None]

    scene.process.at("update_item", taken_off)
    scene.run()
    assert [scene.row(key).status for key in "ab"] == [Status.CANCELLED] * 2
    scene.follow()
    scene.mended()
    scene.whole()
    assert scene.reasons("b") == ["accepted", "not-yet", "cancelled"]


def by_the_hour(scene: Scene, hours: int) -> None:
    """Items of so many hours, each in a counter's cell of its own: more than a control document
    should carry."""
    for hour in range(hours):
        scene.add(f"k{hour:04d}")
        scene.clock.advance("1h")
    scene.follow()


def test_a_long_tally_is_kept_apart_and_goes_with_the_run(scene: Scene) -> None:
    by_the_hour(scene, 130)
    repair = scene.repair(page=50)
    held: list[int] = []
    while not (progress := repair.step(scene.clock)).done:
        held.append(len(scene.blobs.held))
        scene.clock.advance_to(progress.next_at or 0)
    # What the counters were at the beginning, and from the last page on what the rows add up to.
    assert held == [1, 1, 2]
    assert scene.blobs.held == {}
    assert progress.found.mended == {}
    scene.whole()


def test_a_run_whose_tally_is_gone_begins_again(scene: Scene) -> None:
    by_the_hour(scene, 130)
    repair = scene.repair(page=130)
    first = repair.step(scene.clock)
    scene.blobs.held.clear()
    scene.clock.advance_to(first.next_at or 0)
    again = repair.step(scene.clock)
    assert (again.found.rows, again.done) == (0, False)
    assert scene.run(repair).found.rows == 130
    scene.whole()


def test_a_newer_version_of_the_route_is_left_to_those_who_know_it(scene: Scene) -> None:
    scene.put("a", input={"S": '{"id":"a"}'})
    scene.set_version(2)
    with pytest.raises(RouteChanged):
        scene.repair().step(scene.clock)
    assert "version" not in scene.image("a")


def test_it_keeps_its_pace(scene: Scene) -> None:
    broken(scene, 20)
    repair = scene.repair(page=10, pace=1.0)
    first = repair.step(scene.clock)
    assert first.next_at is not None
    assert first.next_at >= scene.now + 1000
    early = repair.step(scene.clock)
    assert (early.found.rows, early.next_at) == (10, first.next_at)
    assert early.standing_by is not None
    scene.clock.advance_to(first.next_at)
    assert repair.step(scene.clock).found.rows == 20


def test_when_it_is_due(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    repair = scene.repair()
    assert repair.due(scene.now)
    repair.step(scene.clock)
    assert scene.repair().due(scene.now)
    scene.run(repair)
    assert not repair.due(scene.now)
    scene.store.control.write("gap", "parcels", {"shard-1": scene.now})
    assert repair.due(scene.now)
    scene.run(repair)
    assert not repair.due(scene.now)
    assert repair.due(scene.now + DAY)


def test_records_lost_during_a_run_ask_for_another(scene: Scene) -> None:
    scene.add("a")
    scene.follow()
    scene.store.control.write("gap", "parcels", {"shard-1": scene.now})
    repair = scene.repair()
    repair.step(scene.clock)
    scene.store.control.write("gap", "parcels", {"shard-1": scene.now, "shard-2": scene.now})
    scene.run(repair)
    assert repair.due(scene.now)


def test_a_large_table_is_read_faster_so_that_the_scan_ends_in_time(scene: Scene) -> None:
    """A store that should be repaired within 10 s; at one unit a second its 40 rows would take over
    40 s."""
    settings = replace(PROMPT, repair_within_ms=10_000)
    store = AwsLedger(scene.process, scene.prefix, scene.blobs, settings=settings).store
    store.load_route(scene.plan)
    scene.add(*(f"k{n:02}" for n in range(40)))
    scene.follow()
    scene.clock.advance("1h")
    repair, began = Repair(store, scene.plan, lambda: 0.0, pace=1.0, page=10), scene.now
    while (progress := repair.step(scene.clock)).found.rows < 40:
        scene.clock.advance_to(progress.next_at or 0)
        scene.clock.advance("300ms")
    assert scene.now - began <= 10_000
    # The counters follow when the stream reader has had its time.
    while not progress.done:
        scene.clock.advance_to(progress.next_at or 0)
        progress = repair.step(scene.clock)
    assert progress.found.mended == {}


@pytest.mark.parametrize(
    ("rows", "hours", "page", "pause_ms"),
    [
        (0, 6, 200, 4_000),  # not known, or a table that has grown since: by its units
        (1_000_000, 6, 200, 4_000),
        (2_000_000, 6, 200, 2_160),
        (14_000_000, 6, 649, 309),
        (100_000_000, 6, 1000, 43),
        (100_000_000, 0, 1000, 0),
    ],
)
def test_the_pace_follows_the_size_of_the_table(
    rows: int, hours: int, page: int, pause_ms: int
) -> None:
    pace = ScanPace(rows, hours * 3_600_000)
    assert (pace.page, pace.pause_ms(200, 400, PACE)) == (page, pause_ms)


def test_the_time_for_the_repair_is_part_of_the_ledgers_address(scene: Scene) -> None:
    address = f"dynamodb://{REGION}/{scene.prefix}?endpoint={scene.endpoint}&repair-within=12h"
    opened = AwsLedger.open(parse(address), scene.blobs)
    assert opened.store.settings.repair_within_ms == 12 * 3_600_000
    opened.close()
    assert scene.store.settings.repair_within_ms == 6 * 3_600_000
    with pytest.raises(UsageError, match="repair-within of the ledger"):
        parse(f"dynamodb://{REGION}/{scene.prefix}?repair-within=soon")


@pytest.mark.slow
def test_several_pages_and_what_each_costs(scene: Scene) -> None:
    keys = [f"k{number:04d}" for number in range(600)]
    for start in range(0, 600, 100):
        scene.add(*keys[start : start + 100])
    scene.follow()
    for item in scene.claim(want=100).items:
        scene.settle(item, NotYet() if int(item.key[1:]) % 2 else Reject("not a parcel"))
    scene.follow()
    scene.clock.advance("1h")
    assert scene.run().found.mended == {}

    fresh = scene.open(Process(scene.endpoint))
    fresh.prepare(scene.plan)
    repair = Repair(fresh.store, scene.plan, lambda: 0.0)
    counts = fresh.store.requests.counts
    pages: list[Counter[tuple[str, str]]] = []
    while True:
        before = counts.copy()
        progress = repair.step(scene.clock)
        pages.append(counts - before)
        if progress.done:
            break
        scene.clock.advance_to(progress.next_at or 0)
    assert progress.found.rows == 600
    assert progress.found.mended == {}
    # The first begins the run, the last sets the counters right; a page of 200 rows takes a handful
    # of requests and one write.
    for page in pages[1:3]:
        assert page["dynamodb", "scan"] == 1
        assert page["dynamodb", "update_item"] == 1
        assert page.total() <= 10, page
        assert {operation for _, operation in page} <= {
            "scan",
            "update_item",
            "batch_get_item",
            "query",
            "get_item",
        }
