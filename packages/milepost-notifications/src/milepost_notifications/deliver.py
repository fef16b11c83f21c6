"""Delivery: one try to send a message to its destination over HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

import milepost as mp
import milepost_net as net
from milepost_client import KEY, MessageRefused, check_message
from milepost_client.message import METHODS, RESERVED
from milepost_notifications.credentials import Credentials, TokenRefused
from milepost_notifications.destinations import (
    PAUSED_BY,
    STAGE,
    Destination,
    Destinations,
    gone_reason,
    moved_reason,
    removed_reason,
    resume_command,
    url_pause,
)
from milepost_notifications.operate.registry import keep_fresh, read_url_pauses
from milepost_notifications.outcomes import (
    INVALID_MESSAGE,
    INVALID_TARGET,
    of_error,
    of_response,
    secret_values,
    url_secrets,
)
from milepost_notifications.settings import App, NotificationsSettings

READ_BYTES = 65_536
"""Bytes of an answer that are read, more than are recorded, so that the connection can be kept."""
UNCONFIGURED_S = 30
"""Pause before the next look at a message whose destination lacks a secret."""
UNREAD_S = 5
"""Pause before the next look while the ledger's destinations cannot be read."""
LONGEST_LOOK_S = 300
"""The longest pause before the next look at a message whose URL is paused."""
PAUSES_FRESH_S = 1.0
"""Pauses of URLs that were read so lately are not read again."""
MOST_PAUSED_URLS = 1_000
"""Pauses of URLs, of all senders together: every process reads them every few seconds."""

log = logging.getLogger(__name__)


class Deliverer:
    """The handler of the stage: called for each message that is due, on one event loop."""

    def __init__(self, settings: NotificationsSettings, destinations: Destinations) -> None:
        self._settings, self._destinations = settings, destinations
        self._usual = {"User-Agent": settings.user_agent}
        self._moved: set[str] = set()
        """Lanes of which the log says that messages for an old URL wait."""
        self._paused: dict[str, str | None] = {}
        """Since when lanes are paused of which the log says so."""
        self.use(
            net.Client(
                allow_cidrs=settings.allow_cidrs,
                largest=READ_BYTES,
                connections=settings.concurrency,
            )
        )
        self.clock: Callable[[], float] = time.time
        """Seconds since 1970, for signatures and records; the ledger's clock once a ledger is
        open."""
        self._app: App | None = None
        """On the open ledger; None: none is open yet."""

    def open(self, app: App) -> None:
        """Use this ledger's clock, destinations and controls."""
        self._app, self.clock = app, app.time

    def keep_fresh(self) -> None:
        """Read the destinations of the open ledger again if that was long ago."""
        if self._app is not None and self._destinations.stale:
            keep_fresh(self._app)

    def _read_ledger(self, app: App) -> None:
        """Read the destinations and the pauses of URLs again, each if that was long ago."""
        keep_fresh(app)
        if self._destinations.pauses_stale:
            read_url_pauses(app)

    def use(self, client: net.Client) -> None:
        """Make the tries with this client, such as one with a resolver of its own."""
        self._client, self._credentials = client, Credentials(client, time.monotonic)

    def ready(self) -> None:
        """Called before a worker takes messages: say in the log which destinations wait for a
        secret."""
        for destination in self._destinations.all.values():
            fault = self.fault(destination)
            if fault is not None:
                log.warning(
                    "messages to %s wait, others are delivered: %s", destination.name, fault
                )

    async def __call__(self, item: mp.Item) -> mp.Outcome:
        if self._app is not None and (self._destinations.stale or self._destinations.pauses_stale):
            try:
                await asyncio.to_thread(self._read_ledger, self._app)
            except mp.MilepostError as error:
                # Without them a message could go out with neither its signature nor its
                # credentials.
                return mp.NotYet(
                    after=UNREAD_S,
                    note=f"the destinations could not be read: {error}",
                    unknown=item.unknown,
                    asked=False,
                )
        try:
            message = stored_message(item, self._settings.largest_body)
            destination = self._destinations.of(message["targetUrl"])
        except (MessageRefused, net.InvalidRequest) as refused:
            return mp.Reject(str(refused), category=INVALID_MESSAGE)
        if self._destinations.orphaned(item.lane, destination):
            if self._destinations.gone(item.lane) and self._app is not None:
                # It may be back, or an operator may have released its messages, since they were
                # read.
                await asyncio.to_thread(keep_fresh, self._app, afresh=True)
                destination = self._destinations.of(message["targetUrl"])
            if self._destinations.orphaned(item.lane, destination):
                # Not by the defaults, which have neither the credentials nor the signature that its
                # destination had.
                return mp.NotYet(
                    after=UNCONFIGURED_S,
                    note=await self._orphaned(item.lane),
                    unknown=item.unknown,
                    asked=False,
                )
        if destination is not None and self._destinations.paused_urls:
            pause = url_pause(destination.name, message["senderId"], message["targetUrl"])
            since = await self._paused_since(pause)
            if since is not None:
                note = (
                    f"{resume_command(pause)} ends the pause of this URL, which answered 410 Gone"
                )
                return mp.NotYet(
                    after=paused_look_s(since, self.clock()),
                    note=note,
                    unknown=item.unknown,
                    asked=False,
                )
        if destination is None:
            return mp.Reject(
                "the target belongs to no destination, and unregistered targets are refused",
                category=INVALID_TARGET,
            )
        began = time.monotonic()
        try:
            secret = (
                await self._credentials.headers(destination) if destination.has_credentials else {}
            )
            response = await self._request(item, message, destination, secret)
            if response.status == 401 and self._credentials.forget(destination):
                # The token may have been revoked before its time: the partner has refused the
                # request, so that it may be sent again.
                response = await self._request(
                    item, message, destination, await self._credentials.headers(destination)
                )
            verdict = of_response(
                response,
                destination,
                _since(began),
                self.clock(),
                self._secrets(destination, message),
            )
        except mp.ConfigMistake as mistake:
            # Not a failure of the message or of the partner: it waits, uncounted, until the
            # configuration is mended.
            return mp.NotYet(
                after=UNCONFIGURED_S, note=str(mistake), unknown=item.unknown, asked=False
            )
        except TokenRefused as error:
            details = {"message": str(error), "responseTime": _since(began)}
            return mp.Retry(
                str(error), category="TOKEN_REFUSED", details=details, unknown=item.unknown
            )
        except net.NetError as error:
            secrets = self._secrets(destination, message)
            verdict = of_error(
                error, destination, _since(began), self.clock(), secrets, doubtful=item.unknown
            )
        if verdict.gone:
            await self._pause_url(destination.name, message["senderId"], message["targetUrl"])
        return verdict.outcome

    def _secrets(self, destination: Destination, message: Mapping[str, Any]) -> list[str]:
        """Texts that are not recorded if the partner repeats them: secrets of the destination, of
        the sender's headers, and of the URL."""
        return [
            *self._credentials.known(destination),
            *secret_values(message["headers"]),
            *url_secrets(message["targetUrl"]),
        ]

    def _request(
        self,
        item: mp.Item,
        message: Mapping[str, Any],
        destination: Destination,
        secret: Mapping[str, str],
    ) -> Awaitable[net.Response]:
        """The request of a message, with these headers of its destination's credentials."""
        body = None if message["body"] is None else message["body"].encode("utf-8", "surrogatepass")
        own = identity_headers(item, message)
        if secret:
            own |= secret
        if destination.signing:
            own |= self._credentials.signature(
                destination, own["webhook-id"], body or b"", self.clock()
            )
        return self._client.request_async(
            message["method"],
            message["targetUrl"],
            headers=net.merged_headers(self._usual, destination.headers, message["headers"], own),
            body=body,
            timeouts=destination.timeouts,
            largest=max(READ_BYTES, destination.response_bytes),
            redirects=destination.redirects,
            tls=destination.tls,
            repeatable=False,  # a repeat is a try of its own, which says so
            share=message["senderId"],
        )

    async def _orphaned(self, lane: str) -> str:
        """Why messages of this lane wait; if its destination is gone, the lane is paused. One with
        another URL has other messages to send."""
        if self._destinations.gone(lane):
            await self._pause(lane, removed_reason(lane))
            return removed_reason(lane)
        if lane not in self._moved:
            self._moved.add(lane)
            log.warning("messages wait: %s", moved_reason(lane))
        return moved_reason(lane)

    async def _paused_since(self, pause: str) -> int | None:
        """Since when a URL is paused; None: it is not. That is read again before a message waits,
        so that a resume has effect at once."""
        if pause in self._destinations.paused_urls and self._app is not None:
            try:
                await asyncio.to_thread(read_url_pauses, self._app, PAUSES_FRESH_S)
            except mp.MilepostError:
                log.exception(
                    "the pauses of URLs could not be read again; those of the last time are used"
                )
        return self._destinations.paused_urls.get(pause)

    async def _pause_url(self, name: str, sender: str, url: str) -> None:
        """Pause this URL of this sender: no other URL, and no other sender."""
        pause = url_pause(name, sender, url)
        if len(self._destinations.paused_urls) >= MOST_PAUSED_URLS:
            log.error(
                "%s answered 410 Gone; it is not paused, since %d URLs are paused already",
                mp.url_in_key(url),
                MOST_PAUSED_URLS,
            )
            return
        await self._pause(pause, gone_reason(pause, self._settings.route, sender, url))
        self._destinations.paused_urls.setdefault(pause, round(self.clock() * 1000))

    async def _pause(self, lane: str, why: str) -> None:
        if self._app is None:
            return
        try:
            held = await asyncio.to_thread(
                self._app.pause,
                self._settings.route,
                STAGE,
                lane,
                by=PAUSED_BY,
                reason=why,
                own=True,
            )
            if held.reason == why and self._paused.get(lane) != held.since:
                self._paused[lane] = held.since
                log.warning("messages to %s wait, since it is paused: %s", lane, why)
        except mp.MilepostError:
            log.exception(
                "the destination %s could not be paused; the next message to it tries again", lane
            )

    def fault(self, destination: Destination) -> str | None:
        """Why messages to this destination cannot be sent from this process: a secret that is
        missing or wrong; None: they can."""
        try:
            self._credentials.check(destination)
        except mp.ConfigMistake as mistake:
            return str(mistake)
        return None

    async def close(self) -> None:
        """Close the connections of this event loop, when its worker ends."""
        await self._client.close_async()


def paused_look_s(since_ms: int, now_s: float) -> float:
    """Pause before the next look at a message whose URL is paused since then: the longer it lasts,
    the rarer."""
    return min(LONGEST_LOOK_S, max(UNCONFIGURED_S, (now_s - since_ms / 1000) / 10))


def _since(began: float) -> int:
    return max(0, round((time.monotonic() - began) * 1000))


def webhook_id(item: mp.Item) -> str:
    """The id by which a receiver recognises a repeat: the same on every try of this message, and of
    no other."""
    return f"msg_{item.work_id}"


def stored_message(item: mp.Item, largest_body: int) -> Mapping[str, Any]:
    """The message of an item. One that did not come by POST /message (a list, a row that another
    program put) is checked and normalised here; raises MessageRefused if it is none."""
    given = item.input
    if isinstance(given, dict) and _is_normalised(given):
        return given
    named = dict(zip(KEY, item.key_parts, strict=False))
    return check_message(
        {**named, **given} if isinstance(given, dict) else {**named, "body": given}, largest_body
    ).content


class StoredForm(Struct):
    """The form in which POST /message stores a message."""

    messageId: str
    senderId: str
    timestamp: str
    targetUrl: str
    method: str
    headers: dict[str, str]
    body: str | None


def _is_normalised(given: Mapping[str, Any]) -> bool:
    """Has it the form in which POST /message stores a message? Its URL and the values of its
    headers are checked when they are used."""
    try:
        form = msgspec.convert(given, StoredForm)
    except msgspec.ValidationError:
        return False
    return form.method in METHODS and (
        not form.headers or RESERVED.isdisjoint(map(str.lower, form.headers))
    )


def identity_headers(item: mp.Item, message: Mapping[str, Any]) -> dict[str, str]:
    """The headers that say which message this is and which try; a sender's headers never replace
    them."""
    found = {
        "X-Message-ID": _header_text(message["messageId"]),
        "X-Sender-ID": _header_text(message["senderId"]),
        "X-Correlation-ID": _header_text(item.correlation_id),
        "X-Delivery-Attempt": str(item.attempt + item.losses),
        "webhook-id": webhook_id(item),
    }
    if item.unknown:
        found["X-Previous-Outcome"] = "unknown"
    return found


def _header_text(text: str) -> str:
    """Text as a header's value: as it is if it is printable ASCII, else percent-encoded UTF-8."""
    return text if text.isascii() and text.isprintable() else quote(text, safe="")
