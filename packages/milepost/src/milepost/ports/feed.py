"""Feed: the history lines of all items in the order written, and the counters that are kept with
them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from msgspec import Struct

from milepost.core.forecast import LaneCount
from milepost.core.history import Line, decode_line, line_to_public, link, removed_line
from milepost.core.status import Status


class HistoryEntry(Struct, frozen=True):
    """A history line as stored. `seq` is its place in the order of all lines of the ledger."""

    seq: int
    route: str
    key: str
    correlation_id: str
    previous: bytes
    body: bytes
    payload: Any = None
    """The payload that this line offered to an external stage: stored with the line, so later
    changes do not affect it."""

    @property
    def line(self) -> Line:
        """The line, decoded at each call."""
        return decode_line(self.body)

    @property
    def removed(self) -> bool:
        """Whether its content was removed (see `LedgerRetention.forget`): only its place, version,
        time and digest are left."""
        return removed_line(self.body) is not None

    @property
    def digest(self) -> bytes:
        """The digest of the line, on which the next line and the daily heads rest."""
        removed = removed_line(self.body)
        return link(self.previous, self.body) if removed is None else bytes.fromhex(removed.removed)

    def public(self) -> dict[str, Any]:
        """The line with the fields that `show` gives it, its place `seq`, `route`, `key` and
        `correlation_id`, and `life` where the route forgets keys (the time of acceptance in
        milliseconds)."""
        line = self.line
        about = {
            "seq": self.seq,
            "route": self.route,
            "key": self.key,
            "correlation_id": self.correlation_id,
            "life": line.life,
        }
        return about | line_to_public(line, self.correlation_id)


class Count(Struct, frozen=True):
    route: str
    stage: str
    status: Status
    hour: int
    """Hour, since 1970, in which these items entered their stage, or ended."""
    n: int


class Group(Struct, frozen=True):
    """A group of similar errors. `now` items have it at present; `total` items ever had it."""

    route: str
    stage: str
    group: str
    category: str
    sample: str
    now: int
    total: int
    first_at: int
    last_at: int


class LedgerFeed(Protocol):
    """Each line has one place in the feed, for good: a reader that continues after a place misses
    no line and reads none twice."""

    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        """Lines of all items in the order written, after the place `after`, with the payloads they
        offered."""

    def last_seq(self) -> int:
        """The place of the newest line."""

    def counts(self, route: str | None = None) -> list[Count]:
        """Maintained counters, never a scan. They are written with the rows and agree with them,
        except on a ledger that lacks "exact counts": there they follow with a short delay, and no
        decision may use them."""

    def groups(self, route: str | None = None) -> list[Group]:
        """Groups of similar errors that an item has or had."""

    def lane_counts(
        self, route: str, now: int, lists: Collection[str] = ()
    ) -> list[LaneCount] | None:
        """Exact numbers of a route's items by lane, as of `now`: of those that have not ended, or,
        with `lists`, of all that these lists brought. None: the ledger lacks "lane counts".
        Quarantined rows are not counted."""

    def entered_by(self, route: str, stage: str, until: int) -> int | None:
        """Exact number of the items that have not ended and have been at this stage since `until`
        or longer. None: as above."""
