"""Origins: where a call comes from, as far as its headers and its connection say. Pure: nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, urlsplit

_PASSED_ON = frozenset(("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"))

Place = tuple[str, int] | None
"""One end of a connection: its address and port."""


def not_local(server: Place, client: Place, headers: Mapping[str, str]) -> str | None:
    """Why a call cannot be taken for one from this machine; None: it can.

    The connection alone does not say it: a proxy on this machine passes on what comes from elsewhere, and a name that somebody else
    points at 127.0.0.1 makes their page in a browser here one that calls us (DNS rebinding). The Host header tells the latter.
    """
    if not (server and client and is_loopback(server[0]) and is_loopback(client[0])):
        return "it comes from another machine"
    if not _PASSED_ON.isdisjoint(headers):
        return f"a proxy has passed it on (it has the header {min(_PASSED_ON.intersection(headers))!r})"
    host = headers.get("host", "")
    return None if _names_loopback(host) else f"it is for the host {host!r}"


@lru_cache(64)
def is_loopback(host: str | None) -> bool:
    """Is this a name or an address of the machine itself?"""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Does a browser say that another site's page made this call? What is no browser says neither of the two."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return True
    # A browser that will not say where it is says "null".
    place = None if origin is None else origin.partition("://")[2].lower()
    return place is not None and (place == "" or place != headers.get("host", "").lower())


def address_of(client: Place) -> str:
    """Under which name an address is counted: in IPv6 everybody has a whole /64."""
    if client is None:
        return ""
    try:
        address = ip_address(client[0])
    except ValueError:
        return client[0]
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Address(int(address) >> 64 << 64))
    return str(getattr(address, "ipv4_mapped", None) or address)


def led_back(path: str, query: str) -> str:
    """From a path as it reads, and a query as it is sent: what is added to the address of the log-in so that it leads to this page afterwards; nothing for the first page."""
    wanted = quote(path, safe="/") + (f"?{query}" if query else "")
    return "" if wanted == "/" else f"?then={quote(wanted, safe='/')}"


def local_path(text: str) -> str | None:
    """The text, if it is an address on this server and nowhere else; None: it might lead to another.

    Browsers read "//host" and "/\\host" as another server, and leave out tabs and line ends before they look.
    """
    ours = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if ours and text.isascii() and text.isprintable() else None


@lru_cache(64)
def _names_loopback(host: str) -> bool:
    """Does a Host header, with or without a port, name this machine?"""
    try:
        parts = urlsplit(f"//{host}")
        return parts.username is None and parts.port != 0 and is_loopback(parts.hostname)
    except ValueError:
        return False
