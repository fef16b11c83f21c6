"""URLs of requests: parsed strictly, so that every part of the client means the same host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import urljoin

from milepost_net.errors import InvalidRequest
from milepost_net.guard import IpAddress, literal

LONGEST_URL = 16_384
PORTS = {"http": 80, "https": 443}

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?:#.*)?\Z"
)
_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?\Z"
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")


@dataclass(frozen=True)
class HttpUrl:
    """A URL, taken apart. `address` is set where the host is an address and not a name."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as they stand in the request line."""
    address: IpAddress | None = None

    @cached_property
    def host_header(self) -> str:
        """The value of the Host header; also the name of the host in errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @cached_property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    @cached_property
    def text(self) -> str:
        """The whole URL, in its one spelling."""
        return f"{self.scheme}://{self.host_header}{self.target}"

    def joined(self, location: str) -> HttpUrl:
        """The URL that a Location header of an answer to this one names."""
        return parse_url(urljoin(self.text, location))


@lru_cache(2048)
def parse_url(url: str) -> HttpUrl:
    """Take a URL apart; raises InvalidRequest, without the path and query, which may be secrets."""
    if not isinstance(url, str) or len(url) > LONGEST_URL:
        raise _invalid(f"a URL is text of at most {LONGEST_URL:,} characters")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise _invalid(
            "a URL is printable ASCII without spaces and backslashes; write other characters as %XX, a host as xn--…"
        )
    parts = _URL.match(url)
    if parts is None or parts["scheme"].lower() not in PORTS:
        raise _invalid("a URL begins with https:// or http://, and names a host")
    scheme, authority = parts["scheme"].lower(), parts["authority"]
    if "@" in authority:
        raise _invalid("a URL has no user and password in it; use the Authorization header")
    found = _AUTHORITY.match(authority)
    if found is None:
        raise _invalid(
            "a URL must name a host, as in https://office.example/events; an IPv6 address stands in [ ]"
        )
    port = int(found["port"] or PORTS[scheme])
    if not 1 <= port <= 65_535:
        raise _invalid(f"port {port} does not exist")
    host, address = _host(found["v6"] or found["name"])
    path = parts["path"] or "/"
    target = path if parts["query"] is None else f"{path}?{parts['query']}"
    return HttpUrl(scheme, host, port, target, address)


def _host(text: str) -> tuple[str, IpAddress | None]:
    """The host in its one spelling: lower case, without the dot at its end."""
    try:
        address = literal(text)
    except ValueError as error:
        raise _invalid(
            f"the host {text} is {error}; write an address as 192.0.2.1 or [2001:db8::1]"
        ) from None
    if address is not None:
        return str(address), address
    host = text.lower().removesuffix(".")
    if len(host) > 253 or not all(_LABEL.match(label) for label in host.split(".")):
        raise _invalid(f"the host {text[:80]} is no host name")
    return host, None


def _invalid(said: str) -> InvalidRequest:
    return InvalidRequest(said, kind="invalid-url")
