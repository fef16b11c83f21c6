"""Exact numbers of items by lane, and of those that entered a stage by a time: counted in indexes,
so that no row of a live item is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from milepost.core.forecast import LaneCount
from milepost.core.status import FAILED, Status
from milepost.ledgers.sqlite.rows.codec import CODES, HANDED_OVER, json_text
from milepost.ledgers.sqlite.rows.due_rows import FREE, HELD
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction

_IN_ROUTE = "place IN (SELECT value FROM json_each(?1))"
# One pass along each index, in the order of its places: SQLite need not sort.
_DUE = (
    "SELECT place, count(*) FILTER (WHERE due_at <= ?2), count(*) FILTER (WHERE due_at > ?2), min(CASE WHEN due_at > ?2 THEN due_at END)"
    f" FROM item INDEXED BY {{index}} WHERE {_IN_ROUTE} AND {{condition}} GROUP BY place"
)
_FREE = _DUE.format(index="item_due", condition=f"due_at IS NOT NULL AND {FREE}")
_WITH_PARTNER = _DUE.format(index="item_handed_over", condition=f"flags & {HANDED_OVER}")
_CLAIMED = f"SELECT place, count(*) FROM item INDEXED BY item_held WHERE {_IN_ROUTE} AND {HELD} GROUP BY place"
_ENTERED = f"SELECT count(*) FROM item INDEXED BY item_age WHERE {_IN_ROUTE} AND due_at IS NOT NULL AND entered_at <= ?2"


def _codes(*statuses: Status) -> str:
    return f"({','.join(str(CODES[status]) for status in sorted(statuses))})"


_PARTNER_HAS_IT = f"due_at IS NOT NULL AND {FREE} AND flags & {HANDED_OVER}"
_OURS = f"due_at IS NOT NULL AND {FREE} AND NOT flags & {HANDED_OVER}"
_LISTED = (
    f"SELECT place, sum(status = {CODES[Status.COMPLETED]}), sum(status IN {_codes(*FAILED)}), sum(status = {CODES[Status.CANCELLED]}),"
    f" count(*) FILTER (WHERE {HELD}), count(*) FILTER (WHERE {_PARTNER_HAS_IT}), count(*) FILTER (WHERE {_OURS} AND due_at <= ?2),"
    f" count(*) FILTER (WHERE {_OURS} AND due_at > ?2), min(CASE WHEN {_OURS} AND due_at > ?2 THEN due_at END)"
    f" FROM item INDEXED BY item_list WHERE {_IN_ROUTE} AND list_id IN (SELECT value FROM json_each(?3)) GROUP BY place"
)


def live(tx: Transaction, route: str, now: int) -> list[LaneCount]:
    """The items of a route that have not ended, by lane."""
    places = json_text(_places(tx.names, route))
    claimed = dict(tx.execute(_CLAIMED, (places,)).fetchall())
    with_partner = {
        place: (due, later) for place, due, later, _ in tx.execute(_WITH_PARTNER, (places, now))
    }
    free = {place: counted for place, *counted in tx.execute(_FREE, (places, now))}
    return [
        _live_count(
            tx.names,
            place,
            claimed.get(place, 0),
            with_partner.get(place, (0, 0)),
            free.get(place, (0, 0, None)),
        )
        for place in sorted({*claimed, *free})
    ]


def _live_count(
    names: NameNumbers, place: int, claimed: int, with_partner: tuple[int, int], free: Any
) -> LaneCount:
    """`with_partner`: due and later items that were handed over; `free`: all due and later items
    without a claim, those among them."""
    at = names.by_id[place]
    due, later, next_at = free
    return LaneCount(
        at.stage,
        at.lane,
        claimed=claimed,
        with_partner=sum(with_partner),
        ready=due - with_partner[0],
        later=later - with_partner[1],
        next_at=next_at if later > with_partner[1] else None,
    )


def listed(tx: Transaction, route: str, now: int, lists: Collection[str]) -> list[LaneCount]:
    """All items that these lists brought, by lane."""
    asked = (json_text(_places(tx.names, route)), now, json_text(sorted(lists)))
    return [
        LaneCount(tx.names.by_id[place].stage, tx.names.by_id[place].lane, *counted)
        for place, *counted in tx.execute(_LISTED, asked)
    ]


def entered_by(tx: Transaction, route: str, stage: str, until: int) -> int:
    found: int = tx.execute(
        _ENTERED, (json_text(_places(tx.names, route, stage)), until)
    ).fetchone()[0]
    return found


def _places(names: NameNumbers, route: str, stage: str | None = None) -> list[int]:
    return [
        number
        for number, place in names.by_id.items()
        if place.route == route and stage in (None, place.stage)
    ]
