"""Intake: write new items; a key that has a row or a seal is known."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.errors import RouteChanged
from milepost.core.routes.plan import Plan
from milepost.ledgers.sqlite import read
from milepost.ledgers.sqlite.admission import Admission
from milepost.ledgers.sqlite.errors import RowRefused
from milepost.ledgers.sqlite.rows.changes import CounterDeltas, row_savepoint
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ledgers.sqlite.rows.new_items import write_new
from milepost.ports.items import Additions, KnownKey, NewItem, Refused


def add(
    tx: Transaction, plan: Plan, new_items: Sequence[NewItem]
) -> list[KnownKey | Refused | None]:
    """Write these items together. If one of them cannot be written, this raises `ROW_REFUSED`."""
    _check_route(tx, plan)
    tally = CounterDeltas()
    answers = _add(tx, plan, new_items, tally)
    tally.write(tx)
    return answers


def add_each(
    tx: Transaction, plan: Plan, new_items: Sequence[NewItem]
) -> list[KnownKey | Refused | None]:
    """Write these items one by one: those that cannot be written are refused."""
    _check_route(tx, plan)
    tally = CounterDeltas()
    answers: list[KnownKey | Refused | None] = []
    for new_item in new_items:
        try:
            with row_savepoint(tx):
                answers += _add(tx, plan, [new_item], tally)
        except RowRefused as refusal:
            answers.append(Refused(str(refusal)))
    tally.write(tx)
    return answers


def _check_route(tx: Transaction, plan: Plan) -> None:
    """Raise RouteChanged if the ledger holds another version of the route; give the route its
    number."""
    if Admission(tx.connection).outdated(plan.name, plan.version):
        raise RouteChanged(
            f"route {plan.name!r} was changed in the ledger after this process started; restart it with the new route"
        )
    tx.names.route(tx.connection, plan.name)


def _add(
    tx: Transaction, plan: Plan, new_items: Sequence[NewItem], tally: CounterDeltas
) -> list[KnownKey | Refused | None]:
    additions = Additions(new_items, _sealed(tx, plan, new_items))
    while batch := additions.next_batch():
        additions.record(_write(tx, plan, batch, tally))
    return additions.answers


def _sealed(tx: Transaction, plan: Plan, new_items: Sequence[NewItem]) -> dict[str, KnownKey]:
    """Those of their keys that have a seal, as they are known."""
    keys = [new_item.change.after.key for new_item in new_items]
    sealed = list(read.seals(tx, plan.name, keys))
    if not sealed:
        return {}
    return {known.key: known for known in read.known(tx, plan.name, sealed) if known is not None}


def _write(
    tx: Transaction, plan: Plan, new_items: Sequence[NewItem], tally: CounterDeltas
) -> list[KnownKey | None]:
    """Write items with different keys. There is no look-up before: the write itself shows which
    keys have a row."""
    answers: list[KnownKey | None] = [None] * len(new_items)
    places = write_new(tx, new_items, tally)
    if places:
        keys = [new_items[place].change.after.key for place in places]
        for place, known in zip(places, read.known(tx, plan.name, keys), strict=True):
            answers[place] = known
    return answers
