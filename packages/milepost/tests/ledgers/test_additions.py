"""Additions, which a ledger asks for one batch after the other, against the form before it, which
called the ledger back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from milepost.core.status import Status
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import Additions, KnownKey, NewItem, Refused
from milepost_testing.contract.world import World

WORLD = World(MemoryLedger())
KEYS = ["a", "b", "c"]
SEALED = {
    key: KnownKey(key, Status.COMPLETED, b"digest", sealed=True, head=b"head") for key in KEYS
}
Answers = list[KnownKey | Refused | None]


def with_callback(
    new_items: Sequence[NewItem],
    known: Mapping[str, KnownKey],
    write: Callable[[list[NewItem]], Sequence[KnownKey | Refused | None]],
) -> Answers:
    """The form before: `ports.items.add_unknown`."""
    answers: Answers = [None] * len(new_items)
    places: Sequence[int] = range(len(new_items))
    while places:
        first: dict[str, int] = {}
        later: list[int] = []
        for place in places:
            new_item = new_items[place]
            key = new_item.change.after.key
            if key in first:
                later.append(place)
            elif (known_key := known.get(key)) is not None and not new_item.passes(known_key):
                answers[place] = known_key
            else:
                first[key] = place
        written = write([new_items[place] for place in first.values()])
        for place, answer in zip(first.values(), written, strict=True):
            answers[place] = answer
        refused: list[int] = []
        for place in later:
            row = new_items[first[new_items[place].change.after.key]].change.after
            answer = answers[first[row.key]]
            if isinstance(answer, Refused):
                refused.append(place)
            else:
                answers[place] = answer or KnownKey(
                    row.key, row.status, row.input_digest, row.stage, row.list_id, head=row.head
                )
        places = refused
    return answers


def in_batches(
    new_items: Sequence[NewItem],
    known: Mapping[str, KnownKey],
    write: Callable[[list[NewItem]], Sequence[KnownKey | Refused | None]],
) -> Answers:
    additions = Additions(new_items, known)
    while batch := additions.next_batch():
        additions.record(write(batch))
    return additions.answers


class Storage:
    """Takes items with different keys; refuses large ones, and knows keys that have a row."""

    def __init__(self, rows: set[str]) -> None:
        self.rows = set(rows)
        self.batches: list[list[NewItem]] = []

    def write(self, batch: list[NewItem]) -> Answers:
        keys = [new_item.change.after.key for new_item in batch]
        assert len(set(keys)) == len(keys)
        if batch:
            self.batches.append(batch)
        return [self._write(new_item) for new_item in batch]

    def _write(self, new_item: NewItem) -> KnownKey | Refused | None:
        row = new_item.change.after
        if new_item.input.get("large"):
            return Refused("it is too large")
        if row.key in self.rows:
            return KnownKey.of(row)
        self.rows.add(row.key)
        return None


@given(
    wanted=st.lists(st.tuples(st.sampled_from(KEYS), st.booleans(), st.booleans()), max_size=12),
    sealed=st.sets(st.sampled_from(KEYS)),
    rows=st.sets(st.sampled_from(KEYS)),
)
def test_items_are_written_and_answered_as_with_a_callback(
    wanted: list[tuple[str, bool, bool]], sealed: set[str], rows: set[str]
) -> None:
    new_items: list[NewItem] = []
    for number, (key, large, passes) in enumerate(wanted):
        content = {"number": number, "large": large}
        change = WORLD.new_item(key, **content).change
        new_items.append(NewItem(change, content, b"head" if passes else None))
    known = {key: SEALED[key] for key in sealed}
    before, after = Storage(rows), Storage(rows)
    assert in_batches(new_items, known, after.write) == with_callback(
        new_items, known, before.write
    )
    assert after.batches == before.batches
