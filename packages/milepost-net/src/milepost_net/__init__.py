"""One HTTP client for everything that calls out: deadlines, size limits, an address guard,
signatures.

import milepost_net as net

with net.Client() as client:
    answer = client.request("POST", "https://office.example/events", body=b"{}", headers={"Content-Type": "application/json"})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost_net.body import FileBody, FormPart, MultipartForm, RequestBody
    from milepost_net.client import Client
    from milepost_net.connection import Timeouts
    from milepost_net.errors import (
        AddressRefused,
        AnswerTooLarge,
        CallStopped,
        ConnectFailed,
        InvalidAnswer,
        InvalidRequest,
        NetError,
        NetUsageError,
        NoAnswer,
        RedirectRefused,
        SendState,
        SignatureRefused,
    )
    from milepost_net.guard import ANYWHERE, AddressGuard
    from milepost_net.headers import HeaderList, checked_headers, merged_headers
    from milepost_net.redirects import Redirects
    from milepost_net.response import Response
    from milepost_net.signatures import new_secret, verify, webhook_headers
    from milepost_net.tls import Tls
    from milepost_net.url import HttpUrl, parse_url

__all__ = [
    "ANYWHERE",
    "AddressGuard",
    "AddressRefused",
    "AnswerTooLarge",
    "CallStopped",
    "Client",
    "ConnectFailed",
    "FileBody",
    "FormPart",
    "HeaderList",
    "HttpUrl",
    "InvalidAnswer",
    "InvalidRequest",
    "MultipartForm",
    "NetError",
    "NetUsageError",
    "NoAnswer",
    "RedirectRefused",
    "Redirects",
    "RequestBody",
    "Response",
    "SendState",
    "SignatureRefused",
    "Timeouts",
    "Tls",
    "checked_headers",
    "merged_headers",
    "new_secret",
    "parse_url",
    "verify",
    "webhook_headers",
]

_HOMES = {
    "body": ("FileBody", "FormPart", "MultipartForm", "RequestBody"),
    "client": ("Client",),
    "connection": ("Timeouts",),
    "errors": (
        "AddressRefused",
        "AnswerTooLarge",
        "CallStopped",
        "ConnectFailed",
        "InvalidAnswer",
        "InvalidRequest",
        "NetError",
        "NetUsageError",
        "NoAnswer",
        "RedirectRefused",
        "SendState",
        "SignatureRefused",
    ),
    "guard": ("ANYWHERE", "AddressGuard"),
    "headers": ("HeaderList", "checked_headers", "merged_headers"),
    "redirects": ("Redirects",),
    "response": ("Response",),
    "signatures": ("new_secret", "verify", "webhook_headers"),
    "tls": ("Tls",),
    "url": ("HttpUrl", "parse_url"),
}
"""The public names by the module that defines them. Each is imported when it is first used, so that
a command which only checks `allow_cidrs` does not load asyncio and TLS. Type checkers read the
imports above; a test compares the two."""
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
