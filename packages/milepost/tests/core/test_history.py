"""History lines, outcomes and digests: they read back as written, and changes are detected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.item_lives import START, claimed, make_plan, new_item, outcomes, settled

from milepost.core.decide import decide
from milepost.core.events import cloud_event, event_id, events_of
from milepost.core.history import (
    Attempt,
    Line,
    decode_line,
    encode_line,
    line_to_public,
    link,
    origin,
    verify_chain,
)
from milepost.core.item import digest_of
from milepost.core.outcome import (
    Done,
    HandedOver,
    NotYet,
    Outcome,
    Retry,
    outcome_from_builtins,
    outcome_to_builtins,
)
from milepost.core.status import Reason, Status
from milepost.core.values.json import canonical_json

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
START_OF_CHAIN = origin("parcels", "k", digest_of({"id": "k"}))
maybe_text = st.none() | st.text(max_size=20)
maybe_number = st.none() | st.integers(0, 4 * 10**12)
attempts = st.builds(
    Attempt, st.integers(0, 99), st.text(max_size=9), st.text(max_size=50), values, maybe_number, maybe_number, maybe_number, maybe_number,
    st.none() | st.integers(-1000, 1000), maybe_number,
)  # fmt: skip
lines = st.builds(
    Line, st.integers(1, 10**6), st.integers(0, 4 * 10**12), st.sampled_from(Reason), st.text(min_size=1, max_size=9), st.sampled_from(Status),
    maybe_text, maybe_text, maybe_number, maybe_text, maybe_text, st.none() | attempts, maybe_text, maybe_text, values,
)  # fmt: skip


@given(lines)
def test_a_line_reads_back_as_it_was_written(line: Line) -> None:
    body = encode_line(line)
    assert decode_line(body) == line
    assert encode_line(decode_line(body)) == body


@pytest.mark.parametrize("damage", [b"", b"\xff", b'"\xff"', b"[" * 100_000, b'"\xed\xa0\x80"'])
def test_a_damaged_line_is_read_as_a_note(damage: bytes) -> None:
    body = encode_line(Line(3, 5, Reason.NOTED, "weigh", Status.QUEUED, note="here")).replace(
        b'"here"', damage
    )
    read = decode_line(body)
    assert (read.version, read.reason, read.note["unreadable"]) == (
        0,
        Reason.NOTED,
        body[:200].decode(errors="replace"),
    )


@given(st.lists(lines, min_size=1, max_size=6), st.data())
def test_a_chain_holds_until_it_is_tampered_with(chain: list[Line], data: st.DataObject) -> None:
    links, head = [], START_OF_CHAIN
    for line in chain:
        links.append((head, encode_line(line)))
        head = link(*links[-1])
    assert verify_chain(links, START_OF_CHAIN, head) is None
    place = data.draw(st.integers(0, len(links) - 1))
    previous, body = links[place]
    byte = data.draw(st.integers(0, len(body) - 1))
    changed = [
        *links[:place],
        (previous, body[:byte] + bytes([body[byte] ^ 1]) + body[byte + 1 :]),
        *links[place + 1 :],
    ]
    found = verify_chain(changed, START_OF_CHAIN, head)
    assert found is not None
    assert found == place + 2, (
        "the line after the changed one does not fit any more (or is missing)"
    )
    assert verify_chain(links[:-1], START_OF_CHAIN, head) is not None
    assert verify_chain(links[1:], START_OF_CHAIN, head) is not None
    assert verify_chain([*links, links[-1]], START_OF_CHAIN, head) is not None


def test_an_empty_chain_ends_where_it_begins() -> None:
    assert verify_chain([], START_OF_CHAIN, START_OF_CHAIN) is None
    assert verify_chain([], START_OF_CHAIN, b"x" * 32) == 1


def test_a_chain_says_whose_it_is() -> None:
    """Lines of one item cannot pass for another's, nor for those of other content."""
    assert (
        len(
            {
                origin("a", "b", b"1"),
                origin("a", "c", b"1"),
                origin("c", "b", b"1"),
                origin("a", "b", b"2"),
            }
        )
        == 4
    )


@given(outcomes)
def test_an_outcome_reads_back_as_it_was_kept(outcome: Outcome) -> None:
    assert outcome_from_builtins(outcome_to_builtins(outcome)) == outcome


def test_a_kept_done_tells_no_payload_from_a_payload_of_none() -> None:
    assert (
        outcome_from_builtins(outcome_to_builtins(Done(payload=None)))
        == Done(payload=None)
        != Done()
    )


@pytest.mark.parametrize(
    "make", [lambda: NotYet("soon"), lambda: HandedOver(-1), lambda: Retry("x", after="x")]
)
def test_an_outcome_with_a_wrong_span_is_refused_where_it_is_made(make: Any) -> None:
    with pytest.raises(Exception, match="it must be a number of seconds"):
        make()


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_the_same_content_has_the_same_digest_in_any_order(content: dict[str, Any]) -> None:
    turned = dict(reversed(list(content.items())))
    assert canonical_json(content) == canonical_json(turned)
    assert digest_of(content) == digest_of(turned)
    assert digest_of(content) != digest_of({**content, "one more field": 1})


@given(lines)
def test_every_line_can_be_shown(line: Line) -> None:
    public = line_to_public(line, "c-1")
    assert {"version", "at", "reason", "stage", "status"} <= public.keys()
    if line.attempt is not None:
        assert public["attempt_number"] == line.attempt.number
        assert public["correlation_id"] == "c-1"


def test_a_failed_try_is_shown_with_all_fields_of_the_retry_document() -> None:
    plan = make_plan()
    change = decide(
        claimed(new_item(plan), plan),
        Retry("busy", http_status=503),
        plan,
        START,
        0.5,
        response_ms=7,
    )
    assert change.line is not None
    public = line_to_public(change.line, "c-1")
    assert {
        "attempt_number", "timestamp", "error_category", "error_details", "response_time", "http_status", "retry_delay_seconds",
        "exponential_delay", "jitter_applied", "next_retry_timestamp", "correlation_id",
    } <= public.keys()  # fmt: skip
    assert (
        public["exponential_delay"],
        public["jitter_applied"],
        public["retry_delay_seconds"],
    ) == (1.0, 0.125, 1.125)


@given(lines)
def test_an_events_id_follows_from_what_it_names_alone(line: Line) -> None:
    once, again = (
        events_of(line, "parcels", "k", "c"),
        events_of(decode_line(encode_line(line)), "parcels", "k", "c"),
    )
    assert [event.id for event in once] == [event.id for event in again]
    assert all(event.id == event_id("parcels", "k", line.version, event.kind) for event in once)
    assert len({event.id for event in once}) == len(once)
    for event in once:
        envelope = cloud_event(event)
        assert (envelope["specversion"], envelope["id"], envelope["subject"]) == (
            "1.0",
            event.id,
            "k",
        )


def test_an_offer_is_an_event_of_its_own_with_the_payload() -> None:
    plan = make_plan()
    item = settled(claimed(new_item(plan), plan), Done(), plan)
    change = decide(claimed(item, plan), Done({"x": 1}), plan, START, 0.0)
    assert change.line is not None
    advanced, offered = events_of(change.line, "parcels", "p1", "c", {"x": 1})
    assert (advanced.kind, offered.kind, offered.stage, offered.payload) == (
        "advanced",
        "offered",
        "delivered",
        {"x": 1},
    )
    data = cloud_event(offered, plan)["data"]
    assert (data["payload"], data["work_id"]) == ({"x": 1}, change.line.offered)
    assert "milepost confirm parcels p1 --stage delivered" in data["confirm"]
