"""Origins: where a call comes from, by its headers and its connection. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, urlsplit

from milepost_net.guard import is_loopback

_PASSED_ON = frozenset(("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"))

Place = tuple[str, int] | None
"""One end of a connection: its address and port."""


def not_local(server: Place, client: Place, headers: Mapping[str, str]) -> str | None:
    """Why a call cannot be treated as local to this machine; None: it can.

    The connection alone is not enough: a proxy on this machine forwards calls from elsewhere, and
    with DNS rebinding a page of another site calls this server from a browser here. The Host header
    reveals the latter.
    """
    if not (server and client and is_loopback(server[0]) and is_loopback(client[0])):
        return "the call comes from another machine"
    if not _PASSED_ON.isdisjoint(headers):
        return f"a proxy has forwarded the call (it has the header {min(_PASSED_ON.intersection(headers))!r})"
    host = headers.get("host", "")
    return None if _names_loopback(host) else f"the call is for the host {host!r}"


def from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that a page of another site made this call. Clients that are no
    browsers send neither header."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return True
    # A browser that does not reveal its origin sends "null".
    place = None if origin is None else origin.partition("://")[2].lower()
    return place is not None and (place == "" or place != headers.get("host", "").lower())


def address_of(client: Place) -> str:
    """The name under which an address is counted: in IPv6 a client has a whole /64."""
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
    """The query that is appended to the URL of the log-in page, so that it leads back to this page;
    empty for the first page. `path` is decoded, `query` is as sent."""
    wanted = quote(path, safe="/") + (f"?{query}" if query else "")
    return "" if wanted == "/" else f"?then={quote(wanted, safe='/')}"


def local_path(text: str) -> str | None:
    """The text, if it is a path on this server; None: it might lead to another server.

    Browsers read "//host" and "/\\host" as another server, and remove tabs and line ends first.
    """
    ours = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if ours and text.isascii() and text.isprintable() else None


@lru_cache(64)
def _names_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, names this machine."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.username is None and parts.port != 0 and is_loopback(parts.hostname)
    except ValueError:
        return False
