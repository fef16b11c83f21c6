"""Rules of alerts: raised once, counted, over once, and each notice delivered once to each
receiver."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.engine.alerts import record as rules
from milepost.engine.alerts.record import AlertRecord, Trouble
from milepost.engine.alerts.rule import AlertRule

RULE = AlertRule(
    name="post", to=["log"], quiet="10m", settled="1m", items="parcels", lane="carrier"
)
TO = ["log", "mail"]
MINUTE = 60_000


def failure(at: int, key: str = "P-1") -> Trouble:
    return Trouble("failures", "parcels", "send", "crm", at, "HTTP 500", "SERVER_ERROR", "g1", key)


BREAKER = Trouble("breaker", "parcels", "send", "crm", 5, "HTTP 500")


def notices(record: AlertRecord) -> list[tuple[str, int]]:
    return [(notice.kind, notice.number) for notice in record.notices]


def test_a_cause_is_reported_once_however_often_it_fails() -> None:
    record = rules.seen(None, failure(0), RULE, TO, 0)
    for number in range(1, 100):
        record = rules.seen(record, failure(number, f"P-{number}"), RULE, TO, number)
    assert notices(record) == [("raised", 1)]
    assert record.count == 100
    assert [delivery.to for delivery in record.notices[0].left] == TO
    assert (
        record.notices[0].data["title"] == "parcels: parcels at 'send' for crm fail: SERVER_ERROR"
    )


def test_failures_are_over_after_a_quiet_time_and_may_begin_again() -> None:
    record = rules.seen(None, failure(0), RULE, TO, 0)
    record = rules.seen(record, failure(MINUTE), RULE, TO, MINUTE)
    assert rules.after_look(record, RULE, TO, 11 * MINUTE - 1, there=False) == record
    over = rules.after_look(record, RULE, TO, 11 * MINUTE, there=False)
    assert notices(over) == [("raised", 1), ("over", 1)]
    assert over.notices[1].data["follows"] == rules.envelope_of(over, over.notices[0])["id"]
    assert over.notices[1].data["facts"]["Failed"] == "2"
    assert rules.after_look(over, RULE, TO, 99 * MINUTE, there=False) == over, "it ends once"
    assert rules.seen(over, failure(MINUTE), RULE, TO, 12 * MINUTE) == over, (
        "an event that is delivered again raises nothing"
    )
    again = rules.seen(over, failure(20 * MINUTE), RULE, TO, 20 * MINUTE)
    assert notices(again) == [("raised", 1), ("over", 1), ("raised", 2)]
    assert again.count == 1


def test_failures_are_over_at_once_when_no_failed_item_is_left() -> None:
    record = rules.seen(None, failure(0), RULE, TO, 0)
    assert not rules.after_look(record, RULE, TO, 1, there=False, cleared=True).raised


def test_a_breaker_that_flaps_is_one_alert() -> None:
    record = rules.seen(None, BREAKER, RULE, TO, 0)
    for at in range(0, 60 * MINUTE, 10_000):
        record = rules.after_look(record, RULE, TO, at, there=at % 40_000 == 0)
    assert notices(record) == [("raised", 1)]
    assert notices(rules.after_look(record, RULE, TO, 99 * MINUTE, there=False)) == [
        ("raised", 1),
        ("over", 1),
    ]


def test_without_receivers_there_is_no_notice() -> None:
    assert rules.seen(None, failure(0), RULE, [], 0).notices == []


def test_a_later_notice_waits_for_an_earlier_one_of_the_same_receiver() -> None:
    record = rules.after_look(
        rules.seen(None, failure(0), RULE, TO, 0), RULE, TO, 1, there=False, cleared=True
    )
    first = record.notices[0]
    assert [(notice.kind, one.to) for notice, one in rules.due(record, 1)] == [
        ("raised", "log"),
        ("raised", "mail"),
    ]
    record = rules.delivered(record, first, "log")
    assert [(notice.kind, one.to) for notice, one in rules.due(record, 1)] == [
        ("raised", "mail"),
        ("over", "log"),
    ]
    record = rules.not_delivered(record, first, first.left[1], "down", 1)
    assert [(notice.kind, one.to) for notice, one in rules.due(record, 1)] == [("over", "log")]
    [(notice, one)] = rules.due(rules.delivered(record, record.notices[1], "log"), 60 * MINUTE)
    assert (notice.kind, one.to, one.tries, one.error) == ("raised", "mail", 1, "down")


def test_a_delivery_that_was_begun_is_left_alone_for_a_while_and_then_repeated_with_the_same_id() -> (
    None
):
    record = rules.seen(None, failure(0), RULE, ["log"], 0)
    [(notice, one)] = rules.due(record, 0)
    begun = rules.taken(record, notice, one, 0)
    assert rules.due(begun, rules.TAKEN_MS - 1) == []
    [(again, _)] = rules.due(begun, rules.TAKEN_MS)
    assert rules.envelope_of(begun, again) == rules.envelope_of(record, notice)


def test_a_record_goes_long_after_its_end_when_everyone_has_its_notices() -> None:
    over = rules.after_look(
        rules.seen(None, failure(0), RULE, ["log"], 0), RULE, ["log"], 1, there=False, cleared=True
    )
    assert not rules.finished({"a": over}, rules.KEEP_MS * 2), "a notice is left"
    told = rules.delivered(rules.delivered(over, over.notices[0], "log"), over.notices[1], "log")
    assert not rules.finished({"a": told}, rules.KEEP_MS)
    assert rules.finished({"a": told}, rules.KEEP_MS * 2)


STEP = st.tuples(
    st.sampled_from(["fail", "repeat", "look", "cleared"]), st.integers(0, 20 * MINUTE)
)


@given(st.lists(STEP, max_size=60))
def test_raised_and_over_alternate_whatever_happens(steps: list[tuple[str, int]]) -> None:
    record: AlertRecord | None = None
    told: list[str] = []
    now, first = 0, None
    for what, wait in steps:
        now += wait
        before = 0 if record is None else len(record.notices)
        if what == "fail" or (what == "repeat" and first is not None):
            trouble = failure(now) if what == "fail" or first is None else first
            first = first or trouble
            record = rules.seen(record, trouble, RULE, ["log"], now)
        elif record is not None:
            record = rules.after_look(
                record, RULE, ["log"], now, there=False, cleared=what == "cleared"
            )
        if record is not None:
            told += [notice.kind for notice in record.notices[before:]]
            assert record.raised == (told[-1] == "raised")
    assert told == ["raised", "over"] * (len(told) // 2) + ["raised"] * (len(told) % 2)


def test_a_receiver_that_is_down_for_a_week_does_not_make_the_record_grow_for_ever() -> None:
    record, at = None, 0
    for _ in range(700):
        record = rules.seen(record, failure(at + 1), RULE, TO, at + 1)
        at += 15 * MINUTE
        record = rules.after_look(record, RULE, TO, at, there=False)
    assert record is not None
    assert len(record.notices) == rules.MOST_NOTICES
    assert notices(record)[-2:] == [("raised", 700), ("over", 700)]
    assert notices(record)[0][0] == "raised", "what is left begins with a beginning"


def test_a_clock_that_was_ahead_for_a_while_neither_keeps_an_alert_for_ever_nor_silences_the_next() -> (
    None
):
    day = 24 * 60 * MINUTE
    ahead = rules.seen(None, failure(day), RULE, TO, day)
    back = rules.after_look(ahead, RULE, TO, MINUTE, there=False)
    assert not rules.after_look(back, RULE, TO, 12 * MINUTE, there=False).raised
    over = rules.after_look(ahead, RULE, TO, day + 11 * MINUTE, there=False)
    assert not over.raised
    again = rules.seen(over, failure(5 * MINUTE), RULE, TO, 5 * MINUTE)
    assert again.raised
    waiting = rules.not_delivered(ahead, ahead.notices[0], ahead.notices[0].left[0], "down", day)
    assert [one.to for _, one in rules.due(waiting, MINUTE)] == TO


def test_hundreds_of_open_breakers_are_one_alert_together_beyond_a_number() -> None:
    many = [
        Trouble("breaker", "parcels", "send", f"host-{number}:443", number, "HTTP 500")
        for number in range(10_000)
    ]
    found = rules.bounded(many, {many[9_999].name}, 5)
    assert len(found) == rules.MOST + 1
    assert many[9_999] in found, "what is reported stays reported"
    together = rules.seen(None, found[-1], RULE, TO, 5)
    assert together.notices[0].data["title"] == "parcels: parcels of more than 200 lanes wait"
    assert rules.bounded(many[:3], set(), 5) == many[:3]
