"""Connections of one event loop: a bounded pool per destination, kept alive. Each new one goes to
an address that the guard let through."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from milepost_net.connection import HttpConnection, Timeouts
from milepost_net.errors import LOOKUP_WAITS, AddressRefused, ConnectFailed
from milepost_net.guard import AddressGuard, IpAddress, vetted
from milepost_net.resolver import LookupsBusy, Resolver, SlowName, SystemResolver
from milepost_net.tls import Tls, context_of
from milepost_net.url import HttpUrl

NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Codes of the system for "too many open files": in this process, and in the whole system."""
LIFE = 300.0
"""Seconds after which a connection is replaced, so that a name that has moved is followed."""
MARGIN = 1.0
"""Seconds before the partner's own limit at which an idle connection is closed."""


@dataclass(frozen=True)
class PoolLimits:
    """`connections` to one destination at most; `idle` connections kept altogether; each closed
    after `idle_s` seconds unused."""

    connections: int = 64
    idle: int = 512
    idle_s: float = 30.0


class _HandshakeRefused(ConnectionError):
    """The partner has closed the connection while TLS was being agreed on."""


class HostConnections:
    """The connections to one origin with one set of certificates."""

    def __init__(self, connections: int) -> None:
        self.slots = asyncio.Semaphore(connections)
        self.idle: list[HttpConnection] = []
        self.users = 0


class ConnectionPool:
    """The connections that calls on one event loop use."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        guard: AddressGuard,
        resolver: Resolver,
        limits: PoolLimits,
    ) -> None:
        self.calls: set[asyncio.Task[object]] = set()
        self.stopped: set[asyncio.Task[object]] = set()
        """Calls that `close` has cancelled."""
        self.closed = False
        self.loop = loop
        self._guard = guard
        self._resolver = resolver
        self._limits = limits
        self._destinations: dict[tuple[tuple[str, str, int], Tls], HostConnections] = {}
        self._idle: dict[HttpConnection, HostConnections] = {}
        """All idle connections, the one that has been idle longest first."""
        self._sweep: asyncio.TimerHandle | None = None

    # One call's use of a destination --------------------------------------------------------------
    async def enter(self, url: HttpUrl, tls: Tls, ends_at: float, total: float) -> HostConnections:
        """Wait for a slot at the destination; every `enter` is followed by one `leave`."""
        key = (url.origin, tls)
        destination = self._destinations.get(key)
        if destination is None:
            destination = self._destinations[key] = HostConnections(self._limits.connections)
        destination.users += 1
        try:
            if not destination.slots.locked():
                await destination.slots.acquire()
                return destination
            async with asyncio.timeout_at(ends_at):
                await destination.slots.acquire()
        except TimeoutError:
            self._departed(key, destination)
            said = f"{url.host_header}: all {self._limits.connections} connections were in use for {total:g} s"
            raise ConnectFailed(said, kind="no-connection-free") from None
        except BaseException:
            self._departed(key, destination)
            raise
        return destination

    def leave(self, url: HttpUrl, tls: Tls, destination: HostConnections) -> None:
        destination.slots.release()
        self._departed((url.origin, tls), destination)

    def _departed(
        self, key: tuple[tuple[str, str, int], Tls], destination: HostConnections
    ) -> None:
        destination.users -= 1
        if (
            not destination.users
            and not destination.idle
            and self._destinations.get(key) is destination
        ):
            del self._destinations[key]

    # Idle connections -----------------------------------------------------------------------------
    def take(self, destination: HostConnections, *, look: bool = True) -> HttpConnection | None:
        """The idle connection that was used last. With `look`, the system is asked whether the
        partner has closed it, which the event loop may not have noticed yet."""
        now = self.loop.time()
        while destination.idle:
            connection = destination.idle.pop()
            self._idle.pop(connection, None)
            if (
                not connection.lost
                and now < connection.idle_until
                and (not look or connection.is_silent())
            ):
                return connection
            connection.abort()
        return None

    def keep(
        self, destination: HostConnections, connection: HttpConnection, said: float | None
    ) -> None:
        """Keep a connection for the next call; `said`: for how long the partner keeps it."""
        now = self.loop.time()
        seconds = self._limits.idle_s if said is None else min(self._limits.idle_s, said - MARGIN)
        connection.idle_until = min(now + seconds, connection.retire_at)
        if self.closed or connection.idle_until <= now:
            connection.abort()
            return
        if len(self._idle) >= self._limits.idle:
            oldest = next(iter(self._idle))
            self._idle.pop(oldest).idle.remove(oldest)
            oldest.abort()
        destination.idle.append(connection)
        self._idle[connection] = destination
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._limits.idle_s, self._close_unused)

    def drop_idle(self, destination: HostConnections) -> None:
        """Close what is kept for a destination: one connection was found closed, and the others are
        as old."""
        while (connection := self.take(destination, look=False)) is not None:
            connection.abort()

    def _close_unused(self) -> None:
        self._sweep = None
        now = self.loop.time()
        for connection, destination in list(self._idle.items()):
            if connection.lost or now >= connection.idle_until:
                self._forget(connection, destination)
                connection.abort()
        for key, destination in list(self._destinations.items()):
            if not destination.users and not destination.idle:
                del self._destinations[key]
        if self._idle:
            soonest = min(connection.idle_until for connection in self._idle)
            self._sweep = self.loop.call_at(max(soonest, now + 0.05), self._close_unused)

    def _forget(self, connection: HttpConnection, destination: HostConnections) -> None:
        self._idle.pop(connection, None)
        if connection in destination.idle:
            destination.idle.remove(connection)

    def _lost(self, connection: HttpConnection) -> None:
        destination = self._idle.get(connection)
        if destination is not None:
            self._forget(connection, destination)

    # New connections ------------------------------------------------------------------------------
    async def connect(
        self, url: HttpUrl, tls: Tls, timeouts: Timeouts, ends_at: float, share: str = ""
    ) -> HttpConnection:
        """Resolve, vet, and connect to exactly what was vetted; raises AddressRefused or
        ConnectFailed. `share`: whose lookup it is."""
        host = url.host_header
        limit = min(self.loop.time() + timeouts.connect, ends_at)
        addresses = await self._addresses(url, timeouts, limit, ends_at, share)
        try:
            async with asyncio.timeout_at(limit):
                context = context_of(tls) if url.scheme == "https" else None
                return await self._first(url, addresses, context, limit)
        except TimeoutError:
            if limit >= ends_at:
                raise _out_of_time(url, timeouts) from None
            raise ConnectFailed(
                f"{host}: no connection within {timeouts.connect:g} s", kind="connect-timeout"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise ConnectFailed(
                f"{host}: its certificate is not trusted ({error.verify_message})",
                kind="certificate-refused",
            ) from None
        except ssl.SSLError as error:
            said = (error.reason or "TLS failed").replace("_", " ").lower()
            raise ConnectFailed(f"{host}: no TLS connection ({said})", kind="tls-failed") from None
        except _HandshakeRefused:
            said = "the partner closed the connection during the TLS handshake; it may offer no TLS version that is allowed here"
            raise ConnectFailed(f"{host}: no TLS connection ({said})", kind="tls-failed") from None
        except ConnectionRefusedError:
            raise ConnectFailed(f"{host}: connection refused", kind="connection-refused") from None
        except OSError as error:
            said = f"{host}: no connection ({error.strerror or type(error).__name__})"
            # A shortage of this process is not the host's failure: its cause tells (see
            # `core.errors.is_shortage`).
            raise ConnectFailed(said, kind="unreachable") from (
                error if error.errno in NO_DESCRIPTOR else None
            )

    async def _addresses(
        self, url: HttpUrl, timeouts: Timeouts, limit: float, ends_at: float, share: str
    ) -> Sequence[IpAddress]:
        """The addresses that the guard lets through."""
        found = (
            [str(url.address)]
            if url.address is not None
            else await self._resolved(url, timeouts, limit, ends_at, share)
        )
        allowed, reasons = vetted(self._guard, found)
        if not allowed:
            said = f"{url.host_header}: requests to its address are refused ({', '.join(reasons)}); to allow them, add its network to allow_cidrs"
            raise AddressRefused(said, kind="address-refused")
        return allowed

    async def _resolved(
        self, url: HttpUrl, timeouts: Timeouts, limit: float, ends_at: float, share: str
    ) -> Sequence[str]:
        """The addresses of a name. A name that takes too long is the partner's own fault; a wait
        for a slot is not."""
        host, resolver, found = url.host_header, self._resolver, list[str]()
        try:
            async with asyncio.timeout_at(limit):
                found += await (
                    resolver(url.host, share)
                    if isinstance(resolver, SystemResolver)
                    else resolver(url.host)
                )
        except TimeoutError:
            if isinstance(resolver, SystemResolver):
                resolver.too_slow(url.host)
            if limit >= ends_at:
                raise _out_of_time(url, timeouts) from None
            raise ConnectFailed(
                f"{host}: its name was not resolved within {timeouts.connect:g} s",
                kind="name-not-resolved",
            ) from None
        except LookupsBusy:
            said = f"{host}: its name was not looked up, since too many other names are being looked up"
            raise ConnectFailed(said, kind=LOOKUP_WAITS) from None
        except SlowName:
            raise ConnectFailed(
                f"{host}: its name was not resolved in time a moment ago", kind="name-not-resolved"
            ) from None
        except OSError:
            pass
        if not found:
            raise ConnectFailed(f"{host}: its name cannot be resolved", kind="name-not-resolved")
        return found

    async def _first(
        self,
        url: HttpUrl,
        addresses: Sequence[IpAddress],
        context: ssl.SSLContext | None,
        limit: float,
    ) -> HttpConnection:
        """Try the addresses one after the other, each with its share of the time; the first that
        takes the connection."""
        failure: OSError = OSError("no address")
        for number, address in enumerate(addresses):
            share = (limit - self.loop.time()) / (len(addresses) - number)
            try:
                async with asyncio.timeout(share):
                    return await self._open(url, address, context)
            except OSError as error:
                failure = error
        raise failure

    async def _open(
        self, url: HttpUrl, address: IpAddress, context: ssl.SSLContext | None
    ) -> HttpConnection:
        sock = socket.socket(
            socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET,
            socket.SOCK_STREAM,
        )
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self.loop.sock_connect(sock, (str(address), url.port))
            # The socket is connected: no name is looked up again. The name is for SNI and for the
            # certificate.
            name = url.host if context is not None else None
            connection = await self._made(sock, context, name)
        except BaseException:
            sock.close()
            raise
        connection.sock, connection.retire_at = sock, self.loop.time() + LIFE
        return connection

    async def _made(
        self, sock: socket.socket, context: ssl.SSLContext | None, name: str | None
    ) -> HttpConnection:
        """The connection over a connected socket, with TLS if there is a context."""
        try:
            _, connection = await self.loop.create_connection(
                lambda: HttpConnection(self._lost), sock=sock, ssl=context, server_hostname=name
            )
        except OSError as error:
            if context is None or isinstance(error, ssl.SSLError):
                raise
            await asyncio.sleep(0)  # the transport closes its socket then
            raise _HandshakeRefused from error
        return connection

    # The end --------------------------------------------------------------------------------------
    async def close(self) -> None:
        """Stop running calls, close every connection; returns when the calls have ended."""
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        calls = self.calls - {asyncio.current_task()}
        self.stopped |= calls
        for call in calls:
            call.cancel()
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()
        self._destinations.clear()
        while self.calls & calls:
            # At once, but for a sink that is at work: a call ends when its sink has.
            await asyncio.sleep(0.001)
        # The transports' own callbacks run once more.
        await asyncio.sleep(0)


def _out_of_time(url: HttpUrl, timeouts: Timeouts) -> ConnectFailed:
    return ConnectFailed(
        f"{url.host_header}: no whole answer within {timeouts.total:g} s", kind="timeout"
    )
