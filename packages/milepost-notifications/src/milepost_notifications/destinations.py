"""Registry of destinations: finds the destination of a target URL, and the limits of each lane.
Pure; entries may be added at run time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from shlex import quote
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_notifications.settings import (
    AuthSettings,
    DestinationSettings,
    HeadersAuth,
    NotificationsSettings,
    OAuth2Auth,
    statuses,
)

STAGE = "deliver"
PAUSED_BY = "notifications"
"""The operator's name of pauses that the application makes: after a partner's 410, and for a
destination that is gone."""
SIGNED = "--by YOU --reason '…'"
"""Options of every act, as a message names them."""
HIDDEN = "…"
"""What stands for a hidden part of a URL."""
STALE_S = 10.0
"""Seconds after which the ledger's destinations are read again before one is used. (The service
that reads them does it sooner.)"""

MARGIN_S = 5.0
"""Seconds that a try may take beside its calls."""
MOST_CACHED = 4_096
"""Target URLs whose destinations are cached."""
LONGEST_LANE = 200
"""Characters of the longest name of a lane: Milepost cuts longer ones, which could then be those of
two senders."""
ASK_TO_WAIT = frozenset({408, 425, 429})
"""Statuses of a partner that is there and asks to wait: its breaker does not count them."""
_DOTS = re.compile(r"(?:/|%2f|%5c)(?:\.|%2e){1,2}(?:/|%2f|%5c|;|\Z)", re.IGNORECASE)
"""A component "." or "..", also if it is percent-encoded or has a parameter: many servers resolve
it all the same."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")


class Destination(Struct, frozen=True, kw_only=True):
    """How the targets of one lane are called: every setting resolved, and no secret."""

    name: str
    """Its name: the destination's own, or HOST:PORT of an unregistered target, whose lanes are
    SENDER@HOST:PORT."""
    prefix: net.HttpUrl | None
    """Beginning of the target URLs; None: unregistered."""
    headers: Mapping[str, str] = {}
    auth: AuthSettings | None = None
    timeouts: net.Timeouts
    retry: mp.Backoff
    retry_statuses: frozenset[int]
    success_statuses: frozenset[int]
    retry_after_cap_ms: int
    gone: Literal["pause", "reject"]
    rate: str | float | None = None
    concurrency: int
    breaker: mp.Breaker | None = None
    signing: tuple[tuple[str | None, str | None], ...] = ()
    """(variable, file) of each signing secret, the present one first."""
    tls: net.Tls | None = None
    redirects: net.Redirects | None = None
    response_bytes: int

    @property
    def registered(self) -> bool:
        return self.prefix is not None

    @property
    def has_credentials(self) -> bool:
        """Do requests to it prove who calls, by headers or a certificate?"""
        return self.auth is not None or self.tls is not None

    @property
    def try_s(self) -> float:
        """Seconds that a try may take: the call itself; with OAuth 2.0 one for a token before it,
        and the same again with a fresh token."""
        return self.timeouts.total * (4 if isinstance(self.auth, OAuth2Auth) else 1) + MARGIN_S

    @property
    def limits(self) -> mp.Limits:
        return mp.Limits(
            rate=self.rate, concurrency=self.concurrency, breaker=self.breaker, retry=self.retry
        )


class Destinations:
    """All destinations by name, in `all`. The longest prefix of a target URL wins; prefixes match
    whole components of the path."""

    def __init__(
        self, settings: NotificationsSettings, place: str = "milepost.toml: [notifications]"
    ) -> None:
        self._settings = settings
        self._place = place
        self._configured = {
            name: self.resolve(name, one) for name, one in settings.destinations.items()
        }
        _check_distinct(self._configured, place)
        self._added: dict[str, Destination] = {}
        self._added_settings: dict[str, DestinationSettings] = {}
        self.unregistered = self._resolved("", None, None)
        self.read_at: float | None = None
        """When those of the ledger were last read into this process (seconds of the monotonic
        clock); None: never."""
        self.reading = threading.Lock()
        self.invalid: dict[str, int] = {}
        """Versions of the ledger's documents that are no destinations."""
        self.released: frozenset[str] = frozenset()
        """Destinations that are gone, whose messages go where their URLs belong now."""
        self.paused_urls: dict[str, int] = {}
        """Pauses of single URLs of senders, by name (see `url_pause`), and since when (milliseconds
        since 1970), as they were last read."""
        self.pauses_read_at: float | None = None
        """When they were last read into this process (seconds of the monotonic clock); None:
        never."""
        self._refusals: dict[str, str | None] = {}
        self._guard = net.AddressGuard.allowing(settings.allow_cidrs)
        self._others = self.unregistered.limits
        self._index()

    def put(self, name: str, settings: DestinationSettings) -> Destination:
        """Add a destination of the ledger, or replace the one of this name; raises ConfigMistake if
        it cannot be used at all. One that is wrong in another way, as earlier versions accepted it,
        is better than none: its messages would go out without its credentials."""
        found = self._added[name] = self.resolve(name, settings, strict=False)
        self._added_settings[name] = settings
        self._index()
        return found

    def remove(self, name: str) -> bool:
        """Remove a destination that was added at run time; one of the configuration holds again.
        False: there was none."""
        self._added_settings.pop(name, None)
        there = self._added.pop(name, None) is not None
        self._index()
        return there

    @property
    def stale(self) -> bool:
        """Must those of the ledger be read again?"""
        return self.read_at is None or time.monotonic() - self.read_at > STALE_S

    @property
    def pauses_stale(self) -> bool:
        """Must the pauses of URLs be read again before a message is sent?"""
        return self.pauses_read_at is None or time.monotonic() - self.pauses_read_at > STALE_S

    @property
    def added(self) -> dict[str, DestinationSettings]:
        """The settings of destinations that were added at run time."""
        return self._added_settings

    def settings_of(self, name: str) -> DestinationSettings:
        """The settings of a registered destination, as they were given."""
        return self._added_settings.get(name) or self._settings.destinations[name]

    def of(self, target: str) -> Destination | None:
        """The destination of a target URL; None: it is unregistered, and such targets are refused.
        Raises net.InvalidRequest if the URL is none."""
        cached = self._of_target
        if target in cached:
            return cached[target]
        if len(cached) >= MOST_CACHED:
            cached.clear()
        found = cached[target] = self._find(net.parse_url(target))
        return found

    def refusal(self, target: str) -> str | None:
        """Why no request may go to this URL, if its host is an address; None: it may, or its name
        must be looked up first. Raises net.InvalidRequest if the URL is none."""
        cached = self._refusals
        if target not in cached:
            if len(cached) >= MOST_CACHED:
                cached.clear()
            address = net.parse_url(target).address
            cached[target] = None if address is None else self._guard.refusal(address)
        return cached[target]

    def _find(self, url: net.HttpUrl) -> Destination | None:
        for found in self._by_origin.get(url.origin, ()):
            if found.prefix is not None and _within(url, found.prefix):
                return found
        if self._settings.unregistered == "refuse":
            return None
        return replace(self.unregistered, name=origin_lane(url))

    def orphaned(self, lane: str, destination: Destination | None) -> bool:
        """Was a message of this lane accepted for a destination, and are only the defaults, or
        nothing, left for it, since that destination is gone or has another URL? `destination` is
        the one that the message's target belongs to now."""
        return (
            lane not in self.released
            and is_registered_name(lane)
            and (destination is None or not destination.registered)
        )

    def gone(self, lane: str) -> bool:
        """Is this the lane of a destination that is gone, and whose messages are not released?"""
        return lane not in self.all and self.orphaned(lane, None)

    def lane_of(self, target: str, sender: str = "") -> str:
        """The lane of a sender's messages to this URL: the destination's name, or SENDER@HOST:PORT
        of an unregistered target. Of a message that does not say its sender it is HOST:PORT, as
        those of all senders were in earlier versions."""
        found = self.of(target)
        if found is not None and found.registered:
            return found.name
        return sender_lane(
            sender, origin_lane(net.parse_url(target)) if found is None else found.name
        )

    def lane_of_key(self, url: str, sender: str) -> str | None:
        """The lane of a sender's messages to the URL that is in their keys; None: it is hidden in
        the key where destinations differ."""
        if HIDDEN not in url:
            return self.lane_of(url, sender)
        target = net.parse_url(_masked(url.rpartition("~")[0]))
        for destination in self._by_origin.get(target.origin, ()):
            if destination.prefix is None:
                continue
            hidden = mpa.hidden_url(destination.prefix.text)
            if _within(target, net.parse_url(_masked(hidden))):
                return destination.name if HIDDEN not in hidden else None
        return sender_lane(sender, origin_lane(target))

    def limits_of(self, lane: str) -> mp.Limits:
        """The limits of a lane; one that is no destination has those of unregistered targets."""
        return self._limits.get(lane, self._others)

    def resolve(self, name: str, one: DestinationSettings, *, strict: bool = True) -> Destination:
        """A destination's settings, checked, with the defaults of the application where it has
        none. Raises ConfigMistake that names the setting; with `strict` also for one that cannot
        hold."""
        place = f"{self._place} destinations.{name}"
        if not _NAME.match(name):
            raise mp.ConfigMistake(
                f"{place}: a destination is named by 1 to 64 letters, digits, '-', '_' or '.', such as 'crm'"
            )
        try:
            prefix = net.parse_url(one.url)
        except net.InvalidRequest as error:
            raise mp.ConfigMistake(f"{place}.url: {error}") from None
        if "?" in prefix.target or "#" in one.url:
            raise mp.ConfigMistake(
                f"{place}.url: {one.url} has a query or a fragment; give the beginning of the target URLs alone"
            )
        return self._resolved(name, prefix, one, strict=strict)

    def _resolved(
        self,
        name: str,
        prefix: net.HttpUrl | None,
        one: DestinationSettings | None,
        *,
        strict: bool = True,
    ) -> Destination:
        usual = self._settings
        given = one or DestinationSettings(url="")
        place = f"{self._place} destinations.{name}" if one else self._place
        timeouts, breaker = given.timeouts or usual.timeouts, given.breaker or usual.breaker
        cap = usual.retry_after_cap if given.retry_after_cap is None else given.retry_after_cap
        try:
            found = Destination(
                name=name,
                prefix=prefix,
                headers=net.checked_headers(given.headers),
                auth=given.auth,
                timeouts=net.Timeouts(
                    *(
                        mpa.span_ms(getattr(timeouts, part), part) / 1000
                        for part in ("connect", "read", "total")
                    )
                ),
                retry=(given.retry or usual.retry).backoff(),
                retry_statuses=statuses(
                    usual.retry_statuses if given.retry_statuses is None else given.retry_statuses,
                    "retry_statuses",
                ),
                success_statuses=statuses(
                    usual.success_statuses
                    if given.success_statuses is None
                    else given.success_statuses,
                    "success_statuses",
                ),
                retry_after_cap_ms=mpa.span_ms(cap, "retry_after_cap"),
                gone=given.gone or usual.gone,
                rate=usual.rate if given.rate is None else given.rate,
                concurrency=given.concurrency or usual.destination_concurrency,
                breaker=None if breaker is None else breaker.breaker(),
                signing=tuple(
                    pair
                    for pair in (
                        (given.signing_secret_env, given.signing_secret_file),
                        (given.previous_signing_secret_env, given.previous_signing_secret_file),
                    )
                    if pair != (None, None)
                ),
                tls=None
                if given.tls is None
                else net.Tls(given.tls.ca_file, given.tls.certificate_file, given.tls.key_file),
                redirects=None
                if given.redirects is None
                else net.Redirects(given.redirects.hosts, given.redirects.most),
                response_bytes=usual.response_bytes
                if given.response_bytes is None
                else given.response_bytes,
            )
            _ = found.limits  # checks rate and concurrency
            if strict:
                _check(given, found)
            return found
        except (mp.MilepostError, net.NetUsageError) as error:
            raise mp.ConfigMistake(f"{place}: {error}") from None

    def _index(self) -> None:
        """Make what is looked up for every message. Each is replaced as a whole, since other
        threads read meanwhile."""
        self.all: dict[str, Destination] = {**self._configured, **self._added}
        self._limits = {name: found.limits for name, found in self.all.items()}
        by_origin: dict[tuple[str, str, int], list[Destination]] = {}
        for found in self.all.values():
            if found.prefix is not None:
                by_origin.setdefault(found.prefix.origin, []).append(found)
        for alike in by_origin.values():
            alike.sort(key=lambda one: len(_path(one)), reverse=True)
        self._by_origin = by_origin
        # After the index: a thread that still looks in the old one puts what it finds into the old
        # cache.
        self._of_target: dict[str, Destination | None] = {}


def _check(given: DestinationSettings, found: Destination) -> None:
    """Raise ConfigMistake for settings that cannot hold."""
    _ = mp.Limits(concurrency=given.concurrency)  # 0 too is a mistake
    _check_sources(given, "")
    _check_sources(given.auth, "auth.")
    if isinstance(found.auth, OAuth2Auth):
        net.parse_url(found.auth.token_url)
    if found.response_bytes < 0:
        raise mp.ConfigMistake(
            f"response_bytes is {found.response_bytes}; give a whole number from 0 up"
        )


def _check_sources(given: DestinationSettings | AuthSettings | None, where: str) -> None:
    """Raise ConfigMistake for a secret for which both a variable and a file are named: one of them
    would be ignored."""
    if isinstance(given, HeadersAuth):
        both = sorted(set(map(str.lower, given.env)) & set(map(str.lower, given.file)))
        if both:
            raise mp.ConfigMistake(
                f"{where}env and {where}file both name a secret for the header {both[0]}; give one of them"
            )
        return
    for name in (
        () if given is None else (one for one in given.__struct_fields__ if one.endswith("_env"))
    ):
        other = f"{name.removesuffix('_env')}_file"
        if getattr(given, name) is not None and getattr(given, other) is not None:
            raise mp.ConfigMistake(
                f"{where}{name} and {where}{other} name the same secret; give one of them"
            )


def _check_distinct(found: Mapping[str, Destination], place: str) -> None:
    """Raise ConfigMistake for two destinations with one URL: a message can belong to one of them
    alone."""
    names: dict[tuple[object, str], str] = {}
    for name, one in found.items():
        if one.prefix is not None:
            first = names.setdefault((one.prefix.origin, _path(one).rstrip("/")), name)
            if first != name:
                raise mp.ConfigMistake(
                    f"{place} destinations.{name}.url: the destination {first} has the same URL, and a message can belong to one of them alone;"
                    " change the URL of one, or remove it"
                )


class LaneLimits(Mapping[str, mp.Limits]):
    """The limits of every lane, as the registry has them now. Lanes of unregistered targets are not
    listed, but have limits too, each of its own: a lane HOST:PORT has none for the senders' lanes
    within it together."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    def __getitem__(self, lane: str) -> mp.Limits:
        return self._destinations.limits_of(lane)

    def __contains__(self, lane: object) -> bool:
        return lane in self._destinations.all

    def __iter__(self) -> Iterator[str]:
        return iter(self._destinations.all)

    def __len__(self) -> int:
        return len(self._destinations.all)


def removed_reason(lane: str) -> str:
    """Why the messages of a destination wait that is gone, and what to do."""
    put_back = f"put [notifications.destinations.{lane}] back into the configuration"
    return f"{_removed(lane)}: {put_back}, or run `{resume_command(lane)}` to send its messages where their URLs belong now"


def pauses_removed(pause: mp.PauseView, lane: str) -> bool:
    """Was this lane paused because its destination is gone?"""
    return pause.by == PAUSED_BY and pause.reason.startswith(_removed(lane))


def _removed(lane: str) -> str:
    return f"{lane} is no destination any more"


def url_pause(name: str, sender: str, url: str) -> str:
    """Name of the pause of one URL of one sender at a destination, or at the HOST:PORT of an
    unregistered target. The URL is that of a message, or the one in its key."""
    return f"{name}+{sha256(f'{sender} {mp.url_in_key(url)}'.encode(errors='replace')).hexdigest()[:10]}"


def paused_at(pause: str) -> str | None:
    """The destination, or the HOST:PORT, at which this pause of a URL is; None: it is no pause of a
    URL."""
    name, mark, _ = pause.rpartition("+")
    return name if mark and "@" not in pause else None


def gone_reason(pause: str, route: str, sender: str, url: str) -> str:
    """Why a URL of a sender is paused that has answered 410, and what to do."""
    shown = mp.url_in_key(url)
    target = quote(f"targetUrl={shown}")
    give_up = f"milepost cancel {quote(route)} --part {quote(f'senderId={sender}')} --part {target} --status live {SIGNED}"
    return (
        f"{shown} answered 410 Gone to {sender}, so it wants no more requests, and the messages of {sender} to it wait:"
        f" when that is mended, run `{resume_command(pause)}`; to give up the messages that wait, run `{give_up}`"
    )


def resume_command(lane: str) -> str:
    """The command that ends the pause of a destination."""
    return f"milepost notifications resume {quote(lane)} {SIGNED}"


def moved_reason(lane: str) -> str:
    """Why a message waits whose destination has another URL now."""
    return (
        f"the target no longer belongs to the destination {lane}, whose URL has changed; register a destination for it, change the URL back,"
        " or cancel the message"
    )


def is_registered_name(lane: str) -> bool:
    """Can this be the name of a registered destination, and not the lane of an unregistered target
    or a pause of a URL?"""
    return lane != "" and ":" not in lane and "+" not in lane


def sender_lane(sender: str, origin: str) -> str:
    """The lane of a sender's messages to unregistered targets at this HOST:PORT. It lies within the
    lane HOST:PORT: a pause of that one holds back all senders' messages. A name that would be too
    long is cut, with a digest of the whole."""
    if not sender:
        return origin
    lane = f"{sender.replace('%', '%25').replace('/', '%2F')}@{origin}"
    if len(lane) <= LONGEST_LANE:
        return lane
    return f"{lane[:60].replace('@', '.')}+{sha256(lane.encode(errors='replace')).hexdigest()[:16]}@{origin[-100:]}"


def origin_lane(url: net.HttpUrl) -> str:
    """HOST:PORT of an unregistered target, so that a destination's name is never one."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port}"


def _path(one: Destination) -> str:
    return "" if one.prefix is None else one.prefix.target


def _masked(url: str) -> str:
    """A URL with hidden parts as a URL that can be parsed."""
    return url.replace(HIDDEN, "~")


def _within(url: net.HttpUrl, prefix: net.HttpUrl) -> bool:
    """Does the URL's path begin with all components of the prefix's? /v1 is a prefix of /v1 and
    /v1/a, not of /v10; nor of /v1/../a, which a server may read as /a: a destination's credentials
    are for the paths below it alone."""
    path = url.target.partition("?")[0]
    start = prefix.target.rstrip("/")
    if start and _DOTS.search(path):
        return False
    return path == start or path.startswith(f"{start}/")
