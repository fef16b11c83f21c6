"""Senders: which sender a caller may speak as, whose messages it may see, and how often a sender
may send."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import milepost as mp
import milepost.application as mpa
from milepost_client import KEY, MessageRefused
from milepost_notifications.destinations import paused_at, sender_lane
from milepost_notifications.operate.figures import SENDER_COUNTS, Figures
from milepost_notifications.settings import NotificationsSettings

ATTRIBUTE = "sender"
"""The attribute of a key that names its sender: `milepost keys new shop --scope submit --attribute
sender=shop`."""
ANYONE = "*"
"""A key with this sender may speak as anyone: a gateway that has checked its callers itself."""
WITHOUT_READING = (*KEY, "key", "destination", "requestId", "status", "createdAt", "lastUpdatedAt")
"""Fields of a record that the answer to an act has for a key that may not read."""


def check_sender(caller: mpa.Caller, sender: str) -> None:
    """Refuse a message if the caller may not speak as its sender. Without any keys, and with the
    scope `admin`, a caller may speak as anyone."""
    bound = caller.attributes.get(ATTRIBUTE)
    if bound in (sender, ANYONE) or (bound is None and caller.may("admin")):
        return
    if bound is None:
        text = _speaks_for_none(caller)
    else:
        text = f"Invalid senderId: key {caller.name!r} speaks for {bound!r} alone"
    raise MessageRefused("FORBIDDEN", text, status=403, sender=bound)


def own_sender(caller: mpa.Caller) -> str | None:
    """The one sender for which the caller speaks; None: it speaks for none, or for all."""
    bound = caller.attributes.get(ATTRIBUTE)
    return None if bound == ANYONE else bound


def seen_sender(caller: mpa.Caller) -> str | None:
    """The sender whose messages alone the caller may read and cancel; None: it may do so with those
    of all, since it operates, speaks for all, or cannot submit anything and has the scope `read`
    for people. Raises NotAllowed for a program's key that speaks for no sender."""
    if caller.may("operate"):
        return None
    if caller.may("submit") and ATTRIBUTE not in caller.attributes:
        raise mp.NotAllowed(_speaks_for_none(caller))
    return own_sender(caller)


def shown_record(caller: mpa.Caller, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The record of a message after an act on it: without the scope `read` its identity and its
    status alone, without what may be secret in its URL."""
    known = {} if record is None else record
    if caller.may("read"):
        return dict(known)
    bare = {name: known[name] for name in WITHOUT_READING if name in known}
    return bare | ({"targetUrl": mp.url_in_key(bare["targetUrl"])} if "targetUrl" in bare else {})


def shown_destination(caller: mpa.Caller, view: Mapping[str, Any]) -> dict[str, Any]:
    """A destination as the caller may see it: errors quote partners' answers, which may be about
    another sender's message."""
    if caller.may("read") and seen_sender(caller) is None:
        return dict(view)
    breaker = view["breaker"]
    return {
        **view,
        "last_error": None,
        "paused_urls": [],
        "breaker": None if breaker is None else {**breaker, "error": "", "probes": []},
    }


def shown_destinations(
    caller: mpa.Caller, views: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The destinations that the caller may see, as it may see them: of unregistered targets a
    sender sees its own."""
    return [shown_destination(caller, view) for view in views if _may_see(caller, view["name"])]


def check_destination(caller: mpa.Caller, name: str) -> None:
    """Raise NotFound for a destination that the caller may not see."""
    if not _may_see(caller, name):
        raise mp.NotFound(f"there is no destination {name!r}")


def _may_see(caller: mpa.Caller, name: str) -> bool:
    """Is this neither the lane of another sender nor a pause of a URL, which are the business of
    those who see all?"""
    only = seen_sender(caller)
    if only is None:
        return True
    if "@" in name:
        return name == sender_lane(only, name.rpartition("@")[2])
    return paused_at(name) is None


class SenderLimits:
    """How often each sender may send, in this process. One that is not named in the settings has
    the usual rate, or none."""

    def __init__(
        self, settings: NotificationsSettings, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._ticks = ticks
        self._usual = _rate(settings.sender_rate, "sender_rate")
        self._own = {
            name: _rate(one.rate, f"senders.{name}.rate") for name, one in settings.senders.items()
        }
        self._rates = mpa.Rates()

    def check(self, sender: str) -> None:
        """Take one message of this sender; MessageRefused with 429 if it sends too often."""
        rate = self._own.get(sender, self._usual)
        wait_s = 0.0 if rate is None else self._rates.take(sender, rate, self._ticks())
        if wait_s:
            seconds = math.ceil(wait_s)
            text = f"Sender {sender!r} sends too often; try again in {seconds} s"
            raise MessageRefused(
                "RATE_LIMITED", text, status=429, sender=sender, retry_after=seconds
            )


def sender_views(figures: Figures, only: str | None = None) -> list[dict[str, Any]]:
    """The figures of senders, by name. Times are in seconds: half of the messages, and 95 %, had
    their first try within them."""
    return [
        {
            "sender": name,
            **{count: getattr(one, count) for count in SENDER_COUNTS},
            "first_try_p50_s": one.histogram.within(0.5) if one.starts else None,
            "first_try_p95_s": one.histogram.within(0.95) if one.starts else None,
        }
        for name, one in sorted(figures.senders.items())
        if only is None or name == only
    ]


def _speaks_for_none(caller: mpa.Caller) -> str:
    return f"Key {caller.name!r} speaks for no sender; make one with --attribute {ATTRIBUTE}=NAME"


def _rate(text: str | float | None, place: str) -> mpa.CallRate | None:
    return None if text is None else mpa.CallRate.of(text, f"[notifications] {place}")
