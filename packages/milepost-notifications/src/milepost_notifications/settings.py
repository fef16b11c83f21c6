"""Settings of the notifications application: the table [notifications] of milepost.toml and its
tables of destinations."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import milepost as mp
import milepost.application as mpa
from milepost_client import INLINE_BODY

_STATUS = re.compile(r"[1-5]xx\Z")


SCHEDULES: dict[str, mp.Backoff] = {
    "day": mp.Backoff(
        attempts=12, delays=("1s", "5s", "30s", "2m", "10m", "30m", "1h", "2h", "4h", "8h", "8h")
    ),
    "seed": mp.Backoff(attempts=3, base="1s", factor=2.0, cap="60s"),
}
"""Named schedules of tries: over about a day; and that of the original design, over about four
seconds."""


class RetrySettings(mpa.AppSettings, frozen=True):
    """How failed tries are repeated: by a named `schedule`; or `base * factor**n` within `cap`, or
    the listed `delays`, spread by ± `jitter`; at most `attempts` tries. What is given replaces that
    part of the schedule, which is "day" if nothing is given, else "seed"."""

    schedule: Literal["day", "seed"] | None = None
    attempts: int | None = None
    base: str | float | None = None
    factor: float | None = None
    cap: str | float | None = None
    jitter: float | None = None
    delays: tuple[str | float, ...] | None = None

    def backoff(self) -> mp.Backoff:
        parts = ("attempts", "base", "factor", "cap", "jitter", "delays")
        given = {name: getattr(self, name) for name in parts if getattr(self, name) is not None}
        # Settings of versions that had no schedules keep their meaning.
        usual = SCHEDULES[self.schedule or ("seed" if given else "day")]
        return mp.Backoff(**{name: getattr(usual, name) for name in parts} | given)


class TimeoutSettings(mpa.AppSettings, frozen=True):
    """Time limits of one try: to connect, for the partner's silence, and for the whole try."""

    connect: str | float = "5s"
    read: str | float = "10s"
    total: str | float = "10s"


class BreakerSettings(mpa.AppSettings, frozen=True):
    """Circuit breaker: opens after this many failures in a row `within` the span, probes again
    after `cooldown`."""

    failures: int = 5
    within: str | float = "1m"
    cooldown: str | float = "30s"
    probes: int = 1

    def breaker(self) -> mp.Breaker:
        return mp.Breaker(
            failures=self.failures, within=self.within, cooldown=self.cooldown, probes=self.probes
        )


class TlsSettings(mpa.AppSettings, frozen=True):
    """Files (PEM) of the authorities to trust, and of the client certificate for mutual TLS."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


class RedirectSettings(mpa.AppSettings, frozen=True):
    """Redirects of GET and HEAD that are followed: to these hosts, and to the host that was
    asked."""

    hosts: tuple[str, ...] = ()
    most: int = 5


class HeadersAuth(mpa.AppSettings, frozen=True, tag_field="kind", tag="headers"):
    """Headers whose values are secrets: each names a variable of the environment, or a file."""

    env: dict[str, str] = {}
    file: dict[str, str] = {}


class BearerAuth(mpa.AppSettings, frozen=True, tag_field="kind", tag="bearer"):
    """Authorization: Bearer, with a token from the environment or a file."""

    token_env: str | None = None
    token_file: str | None = None


class BasicAuth(mpa.AppSettings, frozen=True, tag_field="kind", tag="basic"):
    """Authorization: Basic, with a password from the environment or a file."""

    username: str
    password_env: str | None = None
    password_file: str | None = None


class OAuth2Auth(mpa.AppSettings, frozen=True, tag_field="kind", tag="oauth2"):
    """OAuth 2.0 client credentials: a token is fetched from `token_url` and kept until shortly
    before it expires."""

    token_url: str
    client_id: str
    client_secret_env: str | None = None
    client_secret_file: str | None = None
    scope: str | None = None
    audience: str | None = None


AuthSettings = HeadersAuth | BearerAuth | BasicAuth | OAuth2Auth


class DestinationSettings(mpa.AppSettings, frozen=True):
    """A destination: target URLs that begin with `url`, and how they are called. What is not given
    here is as in [notifications]."""

    url: str
    headers: dict[str, str] = {}
    auth: AuthSettings | None = None
    timeouts: TimeoutSettings | None = None
    retry: RetrySettings | None = None
    retry_statuses: tuple[int | str, ...] | None = None
    success_statuses: tuple[int | str, ...] | None = None
    retry_after_cap: str | float | None = None
    gone: Literal["pause", "reject"] | None = None
    rate: str | float | None = None
    concurrency: int | None = None
    breaker: BreakerSettings | None = None
    signing_secret_env: str | None = None
    signing_secret_file: str | None = None
    previous_signing_secret_env: str | None = None
    previous_signing_secret_file: str | None = None
    tls: TlsSettings | None = None
    redirects: RedirectSettings | None = None
    response_bytes: int | None = None


class SenderSettings(mpa.AppSettings, frozen=True):
    """Limits of one sender. `rate`: messages that one process accepts from it, such as "50/s"."""

    rate: str | float | None = None


class AlertSettings(mpa.AppSettings, frozen=True):
    """Recipients of alerts, which are sent when messages end as dead letters, a breaker opens, or a
    destination is paused because it answered 410; and when the trouble is over."""

    to: tuple[str, ...] = ()
    """Addresses of subscribers: "log", a URL, "email:…"."""
    quiet: str | float = "15m"
    """Dead letters by one cause are over when none has come for so long."""
    settled: str | float = "1m"
    """A breaker or a pause is over when it has been gone for so long."""
    dashboard: str = ""
    """The URL at which people open the dashboard; alerts then link to its pages."""


class NotificationsSettings(mpa.AppSettings, frozen=True):
    """The table [notifications] of milepost.toml; see docs/guides/notifications.md."""

    route: str = "notifications"
    allow_cidrs: tuple[str, ...] = ()
    destinations: dict[str, DestinationSettings] = {}
    unregistered: Literal["allow", "refuse"] = "allow"
    alerts: AlertSettings = AlertSettings()
    senders: dict[str, SenderSettings] = {}
    sender_rate: str | float | None = None
    """The rate of senders that `senders` does not name; None: as many as they like."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may call POST /message."""
    retention: str | float = "30d"
    remember: str | float | None = None
    largest_body: int = INLINE_BODY
    concurrency: int = 128
    """Tries that one process makes at the same time, for all destinations together."""
    user_agent: str = "milepost"
    secret_headers: tuple[str, ...] = ()
    """Further headers whose values are secrets, beside those whose names say so."""
    # What follows holds for unregistered targets, and for destinations that say nothing else.
    timeouts: TimeoutSettings = TimeoutSettings()
    retry: RetrySettings = RetrySettings()
    retry_statuses: tuple[int | str, ...] = (408, 425, 429, "5xx")
    success_statuses: tuple[int | str, ...] = ("2xx",)
    retry_after_cap: str | float = "1h"
    gone: Literal["pause", "reject"] = "pause"
    rate: str | float | None = None
    destination_concurrency: int = 16
    breaker: BreakerSettings | None = BreakerSettings()
    response_bytes: int = 4_096


App = mpa.AppContext[NotificationsSettings]


def statuses(given: tuple[int | str, ...], place: str) -> frozenset[int]:
    """The HTTP statuses that numbers and classes ("5xx") name; `place` names the setting in a
    mistake."""
    found: set[int] = set()
    for one in given:
        if isinstance(one, str) and _STATUS.match(one):
            first = int(one[0]) * 100
            found.update(range(first, first + 100))
        elif isinstance(one, int) and 100 <= one <= 599:
            found.add(one)
        else:
            raise mp.ConfigMistake(
                f"{place}: {one!r} is no status; write a number such as 503, or a class such as '5xx'"
            )
    return frozenset(found)


def read_secret(
    env: str | None, file: str | None, place: str, environment: Mapping[str, str] | None = None
) -> str | None:
    """A secret from a variable of the environment or from a file, read anew each time; None:
    neither is named. Raises ConfigMistake that names the variable or the file, and never its
    content."""
    if env is not None:
        value = (os.environ if environment is None else environment).get(env, "").strip()
        if not value:
            raise mp.ConfigMistake(
                f"{place}_env: the variable {env} is not set here; 'milepost up' needs it in its environment"
            )
        return value
    if file is not None:
        try:
            value = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise mp.ConfigMistake(
                f"{place}_file: {file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
            ) from None
        if not value:
            raise mp.ConfigMistake(f"{place}_file: {file} is empty")
        return value
    return None
