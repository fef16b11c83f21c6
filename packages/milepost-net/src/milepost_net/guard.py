"""Address rules: which IP addresses a request may go to. Pure functions; no name is resolved here.

Every address that is not an ordinary public one is refused, unless a CIDR in `allow_cidrs` contains
it. An IPv6 address that carries an IPv4 address (mapped, compatible, NAT64, 6to4, Teredo) is
refused as well; where its CIDR is allowed, the IPv4 address within must pass too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    NetmaskValueError,
    ip_address,
    ip_network,
)

from milepost_net.errors import NetUsageError

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

ANYWHERE = ("0.0.0.0/0", "::/0")
"""`allow_cidrs` that opens every address: for hosts that the operator alone names."""

METADATA = {
    IPv4Address("169.254.169.254"): "cloud metadata",
    IPv4Address("169.254.170.2"): "cloud metadata",
    IPv4Address("168.63.129.16"): "cloud metadata",
    IPv4Address("100.100.100.200"): "cloud metadata",
    IPv4Address("192.0.0.192"): "cloud metadata",
    IPv6Address("fd00:ec2::254"): "cloud metadata",
}
"""Addresses at which clouds give credentials to the machine itself. (168.63.129.16 lies in a public
range.)"""

REFUSED_V4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(cidr), reason)
    for cidr, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
"""The special-purpose ranges of IPv4; the first one that contains an address names the reason."""

CARRIERS: tuple[tuple[IPv6Network, str, int], ...] = tuple(
    (IPv6Network(cidr), reason, shift)
    for cidr, reason, shift in (
        ("::ffff:0:0/96", "IPv4-mapped", 0),
        ("::/96", "IPv4-compatible", 0),
        ("::ffff:0:0:0/96", "IPv4-translated", 0),
        ("64:ff9b::/96", "NAT64", 0),
        ("64:ff9b:1::/48", "local NAT64", 0),
        ("2002::/16", "6to4", 80),
        ("2001::/32", "Teredo", 0),
    )
)
"""IPv6 ranges whose addresses carry an IPv4 address, and by how many bits it is shifted."""

REFUSED_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(cidr), reason)
    for cidr, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        *((str(network), reason) for network, reason, _ in CARRIERS),
        ("100::/64", "discard"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
"""The special-purpose ranges of IPv6; the first one that contains an address names the reason."""

PUBLIC_V6 = IPv6Network("2000::/3")
"""The only range from which public IPv6 addresses are given out; all else is reserved."""

_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)\Z")


@dataclass(frozen=True)
class AddressGuard:
    """Decides whether a request may go to an address."""

    allowed: tuple[IpNetwork, ...] = ()

    @classmethod
    def allowing(cls, cidrs: Iterable[str], field: str = "allow_cidrs") -> AddressGuard:
        """The guard that also lets these CIDRs through; raises NetUsageError that names the field
        and the wrong entry."""
        return cls(tuple(parse_cidrs(cidrs, field)))

    def refusal(self, address: IpAddress) -> str | None:
        """Why no request may go to this address ("loopback", "private", …); None: it may."""
        reason = special(address)
        if reason is None:
            return None
        if not any(address in network for network in self.allowed):
            return reason
        carried = carried_v4(address)
        return None if carried is None else self.refusal(carried)


def special(address: IpAddress) -> str | None:
    """Why an address is special; None: it is an ordinary public one."""
    if address in METADATA:
        return METADATA[address]
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in REFUSED_V4 if address in network), None)
    if address.scope_id is not None:
        return "an address with a zone"
    named = next((reason for network, reason in REFUSED_V6 if address in network), None)
    return named or (None if address in PUBLIC_V6 else "reserved")


def carried_v4(address: IpAddress) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address carries, if it is of such a kind."""
    if isinstance(address, IPv4Address) or address in (IPv6Address("::"), IPv6Address("::1")):
        return None
    for network, reason, shift in CARRIERS:
        if address in network:
            carried = (int(address) >> shift) & 0xFFFFFFFF
            # Teredo writes the client's address with each bit turned.
            return IPv4Address(carried ^ 0xFFFFFFFF if reason == "Teredo" else carried)
    return None


def literal(host: str) -> IpAddress | None:
    """The address that a URL's host is, in its one usual notation; None: it is a name.

    Other notations (2130706433, 0x7f.1, 127.1, 0177.0.0.1, a zone) raise ValueError: programs
    disagree on what they mean.
    """
    if ":" in host:
        address = IPv6Address(host)
        if address.scope_id is not None:
            raise ValueError("an address with a zone")
        return address
    labels = host.removesuffix(".").split(".")
    if not _NUMBER.match(labels[-1]):
        return None
    if host.endswith("."):
        raise ValueError("an IPv4 address with a dot at its end")
    try:
        return IPv4Address(host)
    except AddressValueError:
        raise ValueError("an unusual notation of an IPv4 address") from None


def parse_cidrs(cidrs: Iterable[str], field: str) -> Iterator[IpNetwork]:
    """The networks that texts name; raises NetUsageError that names the field and the wrong
    entry."""
    if isinstance(cidrs, str):
        raise NetUsageError(f'{field} is {cidrs!r}; it must be a list, such as ["{cidrs}"]')
    for number, cidr in enumerate(cidrs):
        yield _network(cidr, f"{field}[{number}]")


def _network(cidr: object, field: str) -> IpNetwork:
    example = 'give a network such as "10.1.0.0/16", "127.0.0.1/32" or "fd00::/8"'
    if not isinstance(cidr, str) or "/" not in cidr:
        raise NetUsageError(f"{field} is {cidr!r}; {example}")
    try:
        return ip_network(cidr)
    except (AddressValueError, NetmaskValueError):
        raise NetUsageError(f"{field} is {cidr!r}; {example}") from None
    except ValueError:
        return _with_host_bits(cidr, field, example)


def _with_host_bits(cidr: str, field: str, example: str) -> IpNetwork:
    """Name the network that was probably meant."""
    try:
        meant = ip_network(cidr, strict=False)
    except ValueError:
        raise NetUsageError(f"{field} is {cidr!r}; {example}") from None
    raise NetUsageError(
        f"{field} is {cidr!r}, which has bits set beyond its length; write {str(meant)!r}, or one address as /{meant.max_prefixlen}"
    )


def vetted(guard: AddressGuard, addresses: Iterable[str]) -> tuple[list[IpAddress], list[str]]:
    """The addresses that a request may go to, in their order, and the reasons why it may not go to
    the others."""
    allowed: list[IpAddress] = []
    reasons: list[str] = []
    for text in addresses:
        try:
            address = ip_address(text)
        except ValueError:
            reasons.append("not an address")
            continue
        reason = guard.refusal(address)
        if reason is None:
            allowed.append(address)
        elif reason not in reasons:
            reasons.append(reason)
    return allowed, reasons


@lru_cache(64)
def is_loopback(host: str | None) -> bool:
    """Whether this is a name or an address of this machine."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
