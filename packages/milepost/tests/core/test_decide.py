"""decide: the row after each outcome, and which outcomes count as attempts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.item_lives import (
    LEASE,
    START,
    after,
    at_stage,
    claimed,
    make_plan,
    new_item,
    outcomes,
    settled,
    walk,
)

from milepost.core.change import FREE, Change
from milepost.core.confirmations import confirm
from milepost.core.decide import (
    MAX_LOSSES,
    NOTE_LIMIT,
    OUTCOME_LIMIT,
    cut_note,
    decide,
    given_back,
    late,
    undecided,
)
from milepost.core.failures import CANNOT_BE_STORED, MESSAGE_LIMIT, group_of
from milepost.core.history import Line, encode_line, link, origin, verify_chain
from milepost.core.item import Content, Failure, Item, Row, work_id
from milepost.core.outcome import (
    Done,
    HandedOver,
    NotYet,
    Outcome,
    Reject,
    Retry,
    as_outcome,
    outcome_from_builtins,
    outcome_of_exception,
)
from milepost.core.status import Reason, Status

PLAN = make_plan()


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_counted_attempts_never_pass_the_threshold_nor_losses_theirs(data: st.DataObject) -> None:
    for _, change, _ in walk(data, PLAN, 40):
        row = change.after
        assert row.attempts <= PLAN.by_name[row.stage].retry.attempts
        assert row.attempts <= row.total_attempts
        assert row.losses <= MAX_LOSSES


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_no_stage_is_skipped_or_entered_twice_unless_a_person_says_so(data: st.DataObject) -> None:
    for step, change, _ in walk(data, PLAN, 40):
        was, now = PLAN.position[change.before.stage], PLAN.position[change.after.stage]
        assert now - was in (
            (0, -1, -2) if step in ("send-back", "rerun", "replace") else (0, 1)
        ), step


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_nothing_is_claimed_or_offered_before_its_time(data: st.DataObject) -> None:
    for step, change, item in walk(data, PLAN, 40):
        earliest = item.row.not_before or 0
        if step == "claim" and change.after.status is Status.PROCESSING:
            assert change.after.claimed_at is not None
            assert change.after.claimed_at >= earliest
        if change.line is not None and change.line.offered is not None and step != "reschedule":
            assert change.line.at >= earliest, step


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_whole_life_is_one_unbroken_chain_with_contiguous_versions(data: st.DataObject) -> None:
    lived = walk(data, PLAN, 40)
    first = new_item(PLAN)
    assert first.row.version == 1
    head, version = first.row.head, 1
    for _, change, _ in lived:
        if change.line is None:
            assert (change.after.version, change.after.head) == (version, head)
        else:
            version += 1
            assert change.line.version == change.after.version == version
            head = link(head, change.body)
            assert change.after.head == head


EVERY_FIELD = Row(
    "parcels", "p1", "weigh", Status.PROCESSING, 7, b"h" * 32, 1, 2, 3, "c-1", b"i" * 32, lane="north", look_at=4, overdue_at=5,
    lease="t", holder="worker", claimed_at=6, attempts=1, total_attempts=8, looks=2, losses=3, round=4, pass_no=5, unknown=True,
    alone=True, handed_over=True, again=True, list_id="L1", note="old", error=Failure("X", "old", 1, "g"), kept={"delivered": {}},
    undecided={"type": "done"}, handle=9, not_before=START - 1, content_digest=b"d" * 32, settled="abc", life=12, epoch=13,
)  # fmt: skip
"""A row with no field as it is by default."""
WHICH_ITEM = frozenset(
    [
        "route",
        "key",
        "created_at",
        "correlation_id",
        "input_digest",
        "list_id",
        "handle",
        "content_digest",
        "life",
        "epoch",
    ]
)
WRITTEN = frozenset(["status", "version", "head", "updated_at", "entered_at"])
OF_ONE_CLAIM = frozenset(
    [
        "look_at",
        "overdue_at",
        "lease",
        "holder",
        "claimed_at",
        "handed_over",
        "undecided",
        "settled",
    ]
)


def test_nothing_of_the_stage_before_counts_at_the_next() -> None:
    fresh = Row("", "", "", Status.PENDING, 0, b"", 0, 0, 0, "", b"")
    row = decide(Item(EVERY_FIELD, Content({"lane": "north"})), Done(), PLAN, START, 0.0).after
    of_the_stage = {"stage": "stamp", "lane": "", "look_at": START, "overdue_at": START + 3_600_000}
    for name in Row.__struct_fields__:
        assert getattr(EVERY_FIELD, name) != getattr(fresh, name), name
        if name in WHICH_ITEM | {"total_attempts", "pass_no", "again", "kept"}:
            assert getattr(row, name) == getattr(EVERY_FIELD, name), name
        elif name not in WRITTEN:
            assert getattr(row, name) == of_the_stage.get(name, getattr(fresh, name)), name


def test_an_item_ends_with_its_counts_and_nothing_due() -> None:
    fresh = Row("", "", "", Status.PENDING, 0, b"", 0, 0, 0, "", b"")
    held = replace(EVERY_FIELD, stage="delivered", kept={"weigh": {}})
    row = decide(Item(held, Content({"lane": "north"})), Done(), PLAN, START, 0.0).after
    for name in Row.__struct_fields__:
        if name in OF_ONE_CLAIM | {"error"}:
            assert getattr(row, name) == getattr(fresh, name), name
        elif name not in WRITTEN:
            assert getattr(row, name) == getattr(held, name), name


@given(outcomes, st.floats(-1, 1))
def test_what_takes_an_item_out_of_a_workers_hands_frees_the_lease(
    outcome: Outcome, jitter: float
) -> None:
    row = decide(claimed(new_item(PLAN), PLAN), outcome, PLAN, START, jitter).after
    assert {name: getattr(row, name) for name in FREE} == FREE


@given(st.lists(st.sampled_from([NotYet(), NotYet(note="n"), HandedOver("1s")]), max_size=30))
def test_not_yet_and_handed_over_are_never_counted(given_outcomes: list[Outcome]) -> None:
    item, now = new_item(PLAN), START
    for outcome in given_outcomes:
        item = settled(claimed(item, PLAN, now), outcome, PLAN, now)
        assert (item.row.attempts, item.row.total_attempts, item.row.status) == (
            0,
            0,
            Status.WAITING,
        )
        item = Item(replace(item.row, look_at=START, handed_over=False), item.content)
        now += LEASE


def test_attempts_are_numbered_from_one_and_the_last_ends_it() -> None:
    item, now, numbers = new_item(PLAN), START, []
    for _ in range(3):
        change = decide(
            claimed(item, PLAN, now), Retry("busy", http_status=503), PLAN, now, 0.5, response_ms=12
        )
        assert change.line is not None
        attempt = change.line.attempt
        assert attempt is not None
        numbers.append(attempt.number)
        assert (attempt.response_ms, attempt.http_status, attempt.message) == (12, 503, "busy")
        if change.after.status is Status.RETRY_SCHEDULED:
            assert attempt.delay_ms is not None
            assert attempt.next_at == now + attempt.delay_ms == change.after.due_at
        item = Item(change.after, item.content)
        now = item.row.due_at or now
    assert numbers == [1, 2, 3]
    assert (item.row.status, item.row.due_at) == (Status.MAX_RETRIES_EXCEEDED, None)


def test_the_handlers_attempt_counts_from_one() -> None:
    item = new_item(PLAN)
    assert item.attempt == 1
    item = settled(claimed(item, PLAN), Retry("busy"), PLAN)
    assert item.attempt == 2


def test_counts_return_to_zero_on_advance_and_the_total_stays() -> None:
    item = settled(claimed(new_item(PLAN), PLAN), Retry("busy"), PLAN)
    due = item.row.due_at
    assert due is not None
    item = settled(claimed(item, PLAN, due), Done(), PLAN, due)
    assert (item.stage, item.row.attempts, item.row.total_attempts, item.row.error) == (
        "stamp",
        0,
        1,
        None,
    )


def test_a_partners_after_is_a_floor() -> None:
    row = settled(claimed(new_item(PLAN), PLAN), Retry("busy", after="10m"), PLAN).row
    assert row.due_at is not None
    assert row.due_at >= START + 600_000


def test_an_after_of_not_yet_wins_over_the_schedule_which_doubles() -> None:
    item, pauses = at_stage("stamp", PLAN), []
    now = START
    for after_span in (None, None, None, None, "2s", None):
        item = settled(claimed(item, PLAN, now), NotYet(after_span), PLAN, now)
        assert item.row.look_at is not None
        pauses.append(item.row.look_at - now)
        now = item.row.look_at
    assert pauses == [10_000, 20_000, 40_000, 60_000, 2_000, 60_000]


def test_a_not_yet_that_says_nothing_new_makes_no_line() -> None:
    item = settled(claimed(new_item(PLAN), PLAN), NotYet(note="a"), PLAN)
    held = claimed(item, PLAN, START + LEASE)
    assert decide(held, NotYet(note="a"), PLAN, START + LEASE, 0.0).line is None
    assert decide(held, NotYet(note="b"), PLAN, START + LEASE, 0.0).line is not None


@given(outcomes, outcomes)
def test_a_kept_outcome_beats_the_workers(kept: Outcome, workers: Outcome) -> None:
    held = claimed(new_item(PLAN), PLAN)
    change = confirm(held, "weigh", kept, PLAN, START, 0.0, by="partner")
    if not isinstance(change, Change):
        return
    held = after(held, change)
    mine = decide(held, workers, PLAN, START, 0.0)
    assert mine.after.status is decide(held, kept, PLAN, START, 0.0, outside=True).after.status
    assert mine.after.kept == {}
    assert mine.line is not None
    assert (mine.line.by, mine.line.kept) == ("partner", True)


def test_output_becomes_result_and_next_payload_unless_told_otherwise() -> None:
    plain = settled(claimed(new_item(PLAN), PLAN), Done({"g": 1}), PLAN)
    assert (plain.payload, plain.results) == ({"g": 1}, {"weigh": {"g": 1}})
    told = settled(claimed(new_item(PLAN), PLAN), Done({"g": 1}, payload={"p": 2}), PLAN)
    assert (told.payload, told.results) == ({"p": 2}, {"weigh": {"g": 1}})
    nothing = settled(claimed(plain, PLAN), Done(), PLAN)
    assert (nothing.payload, nothing.results) == ({"g": 1}, {"weigh": {"g": 1}})


def test_work_id_is_the_same_on_every_try_and_differs_by_stage() -> None:
    item = new_item(PLAN)
    again = settled(claimed(item, PLAN), Retry("busy"), PLAN)
    assert item.work_id == again.work_id == work_id("parcels", "p1", "weigh", 1)
    assert settled(claimed(item, PLAN), Done(), PLAN).work_id != item.work_id


def test_an_external_stage_is_offered_by_the_write_that_brings_the_item_there() -> None:
    change = decide(claimed(at_stage("stamp", PLAN), PLAN), Done(), PLAN, START, 0.0)
    assert change.line is not None
    assert change.line.offered == work_id("parcels", "p1", "delivered", 1)
    assert (change.after.status, change.after.due_at) == (Status.QUEUED, START + 86_400_000)


def test_notes_change_neither_status_nor_counts() -> None:
    held = claimed(new_item(PLAN), PLAN)
    note = late(held.row, Retry("x" * 5000), START, by="slow")
    assert note.line is not None
    assert note.line.note == {"refused": "Retry", "error": "x" * MESSAGE_LIMIT}
    assert (note.after.status, note.after.attempts, note.after.lease) == (
        Status.PROCESSING,
        0,
        held.row.lease,
    )
    kept = undecided(held.row, Done(1), START, by="old").after
    assert (kept.status, kept.lease, kept.due_at, kept.undecided) == (
        Status.PROCESSING,
        None,
        START,
        {"type": "done", "output": 1},
    )
    back = given_back(held.row, START, why="stop", unknown=True).after
    assert (back.status, back.attempts, back.unknown, back.due_at) == (
        Status.QUEUED,
        0,
        True,
        START,
    )


def test_like_errors_are_one_group_and_unlike_ones_are_not() -> None:
    assert group_of("s", "E", "item 17 not in 'a'") == group_of("s", "E", "item 4 not in 'bcd'")
    assert (
        len(
            {
                group_of("s", "E", "x"),
                group_of("t", "E", "x"),
                group_of("s", "F", "x"),
                group_of("s", "E", "y"),
            }
        )
        == 4
    )


def test_long_messages_are_cut() -> None:
    row = settled(claimed(new_item(PLAN), PLAN), Reject("x" * 10_000), PLAN).row
    assert row.error is not None
    assert len(row.error.message) == MESSAGE_LIMIT


def test_a_raised_exception_is_a_retry_or_if_permanent_a_reject() -> None:
    error = ValueError("no")
    assert isinstance(outcome_of_exception(error), Retry)
    error.permanent = True  # type: ignore[attr-defined]
    assert isinstance(outcome_of_exception(error), Reject)
    slow = RuntimeError()
    slow.retry_after, slow.http_status = 30, 503  # type: ignore[attr-defined]
    told = outcome_of_exception(slow)
    assert isinstance(told, Retry)
    assert (told.after, told.http_status, told.error, told.category) == (
        30,
        503,
        "RuntimeError",
        "EXCEPTION",
    )
    slow.retry_after = "nonsense"  # type: ignore[attr-defined]
    nonsense = outcome_of_exception(slow)
    assert isinstance(nonsense, Retry)
    assert (nonsense.after, nonsense.unknown) == (None, False)
    slow.unknown = True  # type: ignore[attr-defined]
    assert outcome_of_exception(slow).unknown  # type: ignore[union-attr]


def test_an_answer_that_is_no_outcome_says_what_was_expected() -> None:
    told = as_outcome(None)
    assert isinstance(told, Retry)
    assert told.category == "WRONG_ANSWER"
    assert "NoneType" in told.error
    assert "Done()" in told.error


def test_the_chain_begins_with_the_item_and_its_input() -> None:
    row = new_item(PLAN).row
    body = encode_line(Line(1, START, Reason.ACCEPTED, "weigh", Status.QUEUED))
    start = origin(row.route, row.key, row.input_digest)
    assert verify_chain([(start, body)], start, row.head) is None


def test_a_long_note_is_cut_and_says_so() -> None:
    for outcome in (NotYet(after="1h", note="x" * 450_000), HandedOver("1h", note="x" * 450_000)):
        change = decide(claimed(new_item(PLAN), PLAN), outcome, PLAN, START, 0.0)
        note = change.after.note
        assert note is not None
        assert len(note) == NOTE_LIMIT
        assert note.endswith("… (cut: 450,000 characters)")
        assert change.line is not None
        assert change.line.note == note
    assert cut_note("x" * NOTE_LIMIT) == "x" * NOTE_LIMIT
    assert cut_note(None) is None


def test_the_same_long_note_again_says_nothing_new() -> None:
    said = NotYet(after="1h", note="x" * 450_000)
    waiting = settled(claimed(new_item(PLAN), PLAN), said, PLAN)
    later = START + 3_600_000
    assert decide(claimed(waiting, PLAN, later), said, PLAN, later, 0.0).line is None


def test_an_outcome_that_is_too_large_is_not_kept_undecided() -> None:
    held = claimed(new_item(PLAN), PLAN)
    kept = undecided(held.row, Done("x" * OUTCOME_LIMIT), START, by="old").after
    outcome = outcome_from_builtins(kept.undecided)
    assert isinstance(outcome, Retry)
    assert (outcome.category, outcome.unknown) == (CANNOT_BE_STORED, True)
    assert "1,048,603 bytes" in outcome.error
