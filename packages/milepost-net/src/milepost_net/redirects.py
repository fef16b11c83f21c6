"""Redirects: which ones a call follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost_net.errors import InvalidRequest, NetUsageError, RedirectRefused, SendState
from milepost_net.response import Response
from milepost_net.url import HttpUrl

STATUSES = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True)
class Redirects:
    """Follow redirects of GET and HEAD to these hosts, and to the host that was asked.
    `"*.example.org"` stands for every host below example.org. Each hop passes the address guard;
    one from https to http is refused."""

    hosts: Sequence[str] = ()
    most: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", tuple(self.hosts))
        if any(
            not isinstance(host, str) or not host.removeprefix("*.") or "/" in host
            for host in self.hosts
        ):
            raise NetUsageError(
                'Redirects(hosts=…): give host names, such as ["files.example.org", "*.example.org"]'
            )
        if self.most < 1:
            raise NetUsageError(f"Redirects(most={self.most!r}): give a whole number from 1 up")

    def allows(self, host: str) -> bool:
        """May a redirect lead to this host?"""
        for allowed in self.hosts:
            name = allowed.lower().removesuffix(".")
            if host == name or (
                name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1
            ):
                return True
        return False


def next_url(url: HttpUrl, response: Response, redirects: Redirects, hops: int) -> HttpUrl | None:
    """Where an answer sends the call; None: it is the last answer. Raises RedirectRefused."""
    location = response.headers.get("Location")
    if response.status not in STATUSES or location is None:
        return None
    try:
        found = url.joined(location)
    except (InvalidRequest, ValueError) as error:
        raise _refused(url, f"its redirect cannot be followed ({error})", response) from None
    if found.host != url.host and not redirects.allows(found.host):
        raise _refused(
            url,
            f"it redirects to {found.host_header}, which is not in the list of allowed hosts",
            response,
        )
    if url.scheme == "https" and found.scheme == "http":
        raise _refused(url, f"it redirects from https to http at {found.host_header}", response)
    if hops >= redirects.most:
        raise _refused(url, f"more than {redirects.most} redirects", response)
    return found


def _refused(url: HttpUrl, said: str, response: Response) -> RedirectRefused:
    return RedirectRefused(
        f"{url.host_header}: {said}",
        kind="redirect-refused",
        sent=SendState.ANSWERED,
        response=response,
    )
