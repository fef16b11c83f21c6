"""Alert rules: which troubles of a route are reported, and to which receivers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from shlex import quote
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

from msgspec import Struct, convert, to_builtins

from milepost.core.errors import UsageError
from milepost.core.routes.mistakes import check_name
from milepost.core.values.durations import Span, span_ms

log = logging.getLogger(__name__)


class AlertSubject(Struct, frozen=True):
    """The subject of an alert: failures of one cause, an open breaker, or a pause."""

    kind: str
    """`failures`, `breaker` or `pause`."""
    route: str
    stage: str
    lane: str
    """Empty: the stage has one lane, or the alert is about many."""
    group: str
    """The group of similar errors, as `milepost groups` names it; empty for a breaker and a pause,
    and if there are many."""


class AlertPointer(Struct, frozen=True):
    """Where people see more of an alert: a command, and a page of the dashboard (its path)."""

    command: str
    page: str


def usual_pointer(subject: AlertSubject) -> AlertPointer:
    """The general command and page for items of any route. Pure."""
    if subject.kind != "failures":
        return AlertPointer("milepost doctor", "/system")
    chosen = {
        name: value for name, value in (("lane", subject.lane), ("group", subject.group)) if value
    }
    options = "".join(f" --{name} {quote(value)}" for name, value in chosen.items())
    return AlertPointer(
        f"milepost list {subject.route} --status failed{options}",
        f"/items/{url_quote(subject.route, safe='')}?{urlencode({'status': 'failed', **chosen})}",
    )


class AlertRule(Struct, frozen=True, kw_only=True):
    """Alerts about a route: one notice when items of a lane begin to fail for good by one cause,
    when a lane's breaker opens, or when one of `pauses_by` pauses a lane; and one notice when it is
    over. There is one alert for each cause and lane, however many items fail.

    `name` names the rule for good: its alerts are kept under it. `to` has the addresses of
    subscribers: "log", a URL, "email:…" (see `milepost.subscribers.open_subscriber`). Failures are
    over when none has come for `quiet`, or when no item is left that failed by the cause; a breaker
    or a pause is over when it has been gone for `settled`. `items` and `lane` are the words for
    both in the notices' texts. A notice names a command and a page that show more: `pointer` gives
    others than the general ones, and with `dashboard`, the URL at which people open the dashboard,
    the notice has a link to the page.
    """

    name: str
    to: Sequence[str]
    route: str | None = None
    """None: all routes."""
    failures: bool = True
    breakers: bool = True
    pauses_by: Sequence[str] = ()
    """Operators' names; a program that pauses by itself has one too. A person who pauses knows of
    it."""
    quiet: Span = "15m"
    settled: Span = "1m"
    items: str = "items"
    lane: str = "lane"
    pointer: Callable[[AlertSubject], AlertPointer] = usual_pointer
    dashboard: str = ""

    def __post_init__(self) -> None:
        check_name(self.name, "an alert rule's name", "alerts")
        for field, of in (("to", "addresses"), ("pauses_by", "names")):
            if isinstance(getattr(self, field), str):
                raise UsageError(
                    f"AlertRule({self.name!r}): `{field}` is a list of {of}, not one text"
                )
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

    def pointer_to(self, subject: AlertSubject) -> AlertPointer:
        """The rule's pointer to an alert. If its function fails, the general one: an alert must be
        sent in any case."""
        try:
            return convert(to_builtins(self.pointer(subject)), AlertPointer)
        except Exception:
            log.exception(
                "AlertRule(%r): pointer failed for %s; the general command and page are named",
                self.name,
                subject,
            )
            return usual_pointer(subject)

    def covers(self, route: str) -> bool:
        """Whether the rule is about this route."""
        return self.route is None or self.route == route
