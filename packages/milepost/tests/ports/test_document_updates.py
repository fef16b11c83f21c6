"""`update`: a document is changed on the condition that nobody has written it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerBusy, LedgerDamaged
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.documents import (
    LIMIT,
    TRIES,
    Document,
    LedgerDocuments,
    Updated,
    read_as,
    read_versioned,
    update,
)
from milepost.ports.ledger import Ledger

NAME = "parcels/press"
OTHER_FORM = {"n": "no number"}
"""A value that is no Counted."""


class Counted(Struct, frozen=True):
    """A small document."""

    n: int
    by: str = ""


Change = Callable[[Counted | None], Counted | None]


class Watched:
    """The documents of a ledger; what they are asked for is noted, and another process writes its
    values right before this one does: one before each try."""

    def __init__(self, ledger: LedgerDocuments, others: Iterable[Any] = ()) -> None:
        self._ledger = ledger
        self._others = iter(others)
        self.calls: list[str] = []

    def read(self, kind: str) -> dict[str, Document]:
        return self._ledger.read(kind)

    def read_one(self, kind: str, name: str) -> Document | None:
        self.calls.append("read")
        return self._ledger.read_one(kind, name)

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        self.calls.append("write")
        for other in self._others:
            self._ledger.write(kind, name, other)
            break
        return self._ledger.write(kind, name, value, expect=expect)


def one_more(counted: Counted | None) -> Counted:
    return Counted(1) if counted is None else replace(counted, n=counted.n + 1)


def removed(counted: Counted | None) -> None:
    return None


def stored(ledger: LedgerDocuments) -> Counted | None:
    return read_versioned(ledger, LIMIT, NAME, Counted)[0]


# What it does -------------------------------------------------------------------------------------
def test_a_document_is_made_changed_and_removed(ledger: Ledger) -> None:
    made = update(ledger, LIMIT, NAME, Counted, one_more)
    assert made == Updated(None, Counted(1), 0, written=True)
    changed = update(ledger, LIMIT, NAME, Counted, one_more)
    assert (changed.before, changed.after, changed.written) == (Counted(1), Counted(2), True)
    assert stored(ledger) == Counted(2)
    gone = update(ledger, LIMIT, NAME, Counted, removed)
    assert (gone.before, gone.after, gone.written) == (Counted(2), None, True)
    assert ledger.read_one(LIMIT, NAME) is None


def test_a_write_raises_the_version_that_it_reports_by_one(ledger: Ledger) -> None:
    update(ledger, LIMIT, NAME, Counted, one_more)
    changed = update(ledger, LIMIT, NAME, Counted, one_more)
    document = ledger.read_one(LIMIT, NAME)
    assert document is not None
    assert document.version == changed.version + 1


@pytest.mark.parametrize("present", [None, Counted(3, "ops")])
def test_an_equal_value_is_not_written(ledger: Ledger, present: Counted | None) -> None:
    ledger.write(LIMIT, NAME, present)
    before = ledger.read_one(LIMIT, NAME)
    watched = Watched(ledger)
    left = update(
        watched, LIMIT, NAME, Counted, lambda value: None if value is None else replace(value)
    )
    assert (left.before, left.after, left.written) == (present, present, False)
    assert watched.calls == ["read"]
    assert ledger.read_one(LIMIT, NAME) == before


def test_the_first_try_goes_by_what_the_caller_knows(ledger: Ledger) -> None:
    ledger.write(LIMIT, NAME, Counted(3))
    known = read_versioned(ledger, LIMIT, NAME, Counted)
    watched = Watched(ledger)
    assert update(watched, LIMIT, NAME, Counted, one_more, known=known).after == Counted(4)
    assert watched.calls == ["write"]
    outdated = Watched(ledger)
    assert update(outdated, LIMIT, NAME, Counted, one_more, known=known).after == Counted(5)
    assert outdated.calls == ["write", "read", "write"]


def test_an_error_of_the_change_leaves_the_document(ledger: Ledger) -> None:
    ledger.write(LIMIT, NAME, Counted(3))

    def refused(_: Counted | None) -> Counted:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        update(ledger, LIMIT, NAME, Counted, refused)
    assert stored(ledger) == Counted(3)


# Races --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "other", "after"),
    [
        (None, Counted(5), Counted(6)),
        (Counted(1), Counted(5), Counted(6)),
        (Counted(1), Counted(1), Counted(2)),
        (Counted(1), None, Counted(1)),
    ],
)
def test_after_a_write_of_another_process_the_change_is_made_of_the_newer_value(
    ledger: Ledger, before: Counted | None, other: Counted | None, after: Counted
) -> None:
    ledger.write(LIMIT, NAME, before)
    changed = update(Watched(ledger, [other]), LIMIT, NAME, Counted, one_more)
    assert (changed.before, changed.after, changed.written) == (other, after, True)
    assert stored(ledger) == after


def test_a_removal_of_another_process_leaves_nothing_to_remove(ledger: Ledger) -> None:
    ledger.write(LIMIT, NAME, Counted(1))
    gone = update(Watched(ledger, [None]), LIMIT, NAME, Counted, removed)
    assert (gone.before, gone.after, gone.written) == (None, None, False)


def test_a_change_that_another_process_has_made_already_is_not_written(ledger: Ledger) -> None:
    ledger.write(LIMIT, NAME, Counted(1))
    watched = Watched(ledger, [Counted(7)])
    left = update(watched, LIMIT, NAME, Counted, lambda _: Counted(7))
    assert (left.before, left.after, left.written) == (Counted(7), Counted(7), False)
    assert watched.calls == ["read", "write", "read"]


def test_no_change_is_lost_while_each_try_but_the_last_fails(ledger: Ledger) -> None:
    others = [Counted(10 * n) for n in range(1, 6)]
    watched = Watched(ledger, others)
    assert update(watched, LIMIT, NAME, Counted, one_more).after == Counted(51)
    assert watched.calls.count("write") == 6


def test_the_repeats_are_bounded_and_the_error_names_the_document() -> None:
    ledger = MemoryLedger()
    watched = Watched(ledger, (Counted(n) for n in range(10 * TRIES)))
    with pytest.raises(LedgerBusy, match=f"the document limit '{NAME}' is changed all the time"):
        update(watched, LIMIT, NAME, Counted, one_more)
    assert watched.calls.count("write") == TRIES
    assert stored(ledger) == Counted(TRIES - 1), "the last one is of the other process"


# Damaged documents --------------------------------------------------------------------------------
def test_a_damaged_document_is_not_changed(ledger: Ledger) -> None:
    ledger.write(LIMIT, NAME, OTHER_FORM)
    with pytest.raises(LedgerDamaged, match="Counted"):
        update(ledger, LIMIT, NAME, Counted, one_more)
    document = ledger.read_one(LIMIT, NAME)
    assert document is not None
    assert document.value == OTHER_FORM


@pytest.mark.parametrize(("stand_in", "after"), [(None, Counted(1)), (Counted(8), Counted(9))])
def test_a_value_may_stand_for_a_damaged_document(
    ledger: Ledger, stand_in: Counted | None, after: Counted
) -> None:
    ledger.write(LIMIT, NAME, OTHER_FORM)
    changed = update(ledger, LIMIT, NAME, Counted, one_more, damaged=stand_in)
    assert (changed.before, changed.after, changed.written) == (stand_in, after, True)
    assert stored(ledger) == after


def test_a_damaged_document_is_left_if_the_value_that_stands_for_it_is_kept(
    ledger: Ledger,
) -> None:
    ledger.write(LIMIT, NAME, OTHER_FORM)
    left = update(ledger, LIMIT, NAME, Counted, lambda value: value, damaged=Counted(8))
    assert not left.written
    document = ledger.read_one(LIMIT, NAME)
    assert document is not None
    assert document.value == OTHER_FORM


# Against the loops that it replaces ---------------------------------------------------------------
def by_endless_loop(documents: LedgerDocuments, change: Change) -> Counted | None:
    while True:
        value, version = read_versioned(documents, LIMIT, NAME, Counted)
        changed = change(value)
        if changed == value:
            return value
        if documents.write(LIMIT, NAME, changed, expect=version):
            return changed


def by_counted_loop(documents: LedgerDocuments, change: Change) -> Counted | None:
    for _ in range(20):
        document = documents.read_one(LIMIT, NAME)
        value = None if document is None else read_as(Counted, document.value)
        changed = change(value)
        if changed == value:
            return value
        if documents.write(
            LIMIT, NAME, changed, expect=0 if document is None else document.version
        ):
            return changed
    raise LedgerBusy("changed by many processes")


def by_loop_on_the_write(documents: LedgerDocuments, change: Change) -> Counted | None:
    value, version = read_versioned(documents, LIMIT, NAME, Counted)
    changed = change(value)
    while changed != value and not documents.write(LIMIT, NAME, changed, expect=version):
        value, version = read_versioned(documents, LIMIT, NAME, Counted)
        changed = change(value)
    return changed


VALUES = st.one_of(st.none(), st.builds(Counted, st.integers(0, 3), st.sampled_from(["", "ops"])))
RULES = st.sampled_from(["one more", "at most 2", "remove", "remove even ones", "keep", "sign"])


def change_by(rule: str) -> Change:
    """A change that is made, left or a removal, as the present value is."""

    def changed(value: Counted | None) -> Counted | None:
        if rule == "keep":
            return value
        if rule == "remove" or (rule == "remove even ones" and value and value.n % 2 == 0):
            return None
        if rule == "sign":
            return None if value is None else replace(value, by="ops")
        if rule == "at most 2" and value is not None and value.n >= 2:
            return value
        return one_more(value)

    return changed


@pytest.mark.parametrize("loop", [by_endless_loop, by_counted_loop, by_loop_on_the_write])
@given(before=VALUES, others=st.lists(VALUES, max_size=6), rules=st.lists(RULES, max_size=4))
def test_it_gives_and_stores_the_same_as_each_of_the_loops(
    loop: Callable[[LedgerDocuments, Change], Counted | None],
    before: Counted | None,
    others: list[Counted | None],
    rules: list[str],
) -> None:
    """Several changes follow one another, and another process writes before each try of them."""
    old, new = MemoryLedger(), MemoryLedger()
    old_watched, new_watched = Watched(old, others), Watched(new, others)
    for ledger in (old, new):
        ledger.write(LIMIT, NAME, before)
    for rule in rules:
        change = change_by(rule)
        given_by_loop = loop(old_watched, change)
        assert update(new_watched, LIMIT, NAME, Counted, change).after == given_by_loop
        assert new.read_one(LIMIT, NAME) == old.read_one(LIMIT, NAME)
    assert new_watched.calls == old_watched.calls
