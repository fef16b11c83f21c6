"""Alert rules: which troubles of a route are reported, and to whom."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.routes.mistakes import check_name
from milepost.core.values.durations import Span, span_ms


class AlertRule(Struct, frozen=True, kw_only=True):
    """Alerts about a route: one when a cause begins to fail items of a lane for good, when a lane's breaker opens, or when one of
    `pauses_by` pauses a lane; and one when it is over. However many items fail, it is one alert for each cause and lane.

    `name` names the rule for good: its alerts are kept under it. `to` has the addresses of subscribers: "log", a URL, "email:…" (see
    `milepost.subscribers.open_subscriber`). Failures are over when none has come for `quiet`, or when no item is left that failed by the cause; a breaker
    or a pause is over when it has been gone for `settled`. `items` and `lane` are the words for both in the notices' texts.
    """

    name: str
    to: Sequence[str]
    route: str | None = None
    """None: all routes."""
    failures: bool = True
    breakers: bool = True
    pauses_by: Sequence[str] = ()
    """Operators' names; a program that pauses by itself has one too. A person who pauses knows of it."""
    quiet: Span = "15m"
    settled: Span = "1m"
    items: str = "items"
    lane: str = "lane"

    def __post_init__(self) -> None:
        check_name(self.name, "an alert rule's name", "alerts")
        if isinstance(self.to, str):
            raise UsageError(f"AlertRule({self.name!r}): `to` is a list of addresses, not one text")
        for field in ("quiet", "settled"):
            span_ms(getattr(self, field), f"AlertRule({self.name!r}): {field}")

    @property
    def quiet_ms(self) -> int:
        """`quiet` in milliseconds."""
        return span_ms(self.quiet, "quiet")

    @property
    def settled_ms(self) -> int:
        """`settled` in milliseconds."""
        return span_ms(self.settled, "settled")

    @property
    def watch_name(self) -> str:
        """The name of the service that watches for it, and of its cursor."""
        return f"{self.name}-alerts"

    def covers(self, route: str) -> bool:
        """Is the rule about this route?"""
        return self.route is None or self.route == route
