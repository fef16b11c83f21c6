"""Client of the notifications service, for programs that hand over messages: typed, for threads and
event loops.

from milepost_client import MessageClient

with MessageClient("http://message-sender", sender="shop") as client:
    client.send("https://crm.example/hooks", {"paid": True})

It needs no package besides the standard library, and nothing of the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost_client.message import INLINE_BODY, KEY, Message, MessageRefused, check_message

if TYPE_CHECKING:
    from milepost_client.clients import AsyncMessageClient, MessageClient
    from milepost_client.exchange import (
        ClientUsageError,
        MessageNotAccepted,
        MessageReceipt,
        MessageState,
        MessageUnknown,
        RetryPolicy,
    )

__all__ = [
    "INLINE_BODY",
    "KEY",
    "AsyncMessageClient",
    "ClientUsageError",
    "Message",
    "MessageClient",
    "MessageNotAccepted",
    "MessageReceipt",
    "MessageRefused",
    "MessageState",
    "MessageUnknown",
    "RetryPolicy",
    "check_message",
]

_HOMES = {
    "clients": ("AsyncMessageClient", "MessageClient"),
    "exchange": (
        "ClientUsageError",
        "MessageNotAccepted",
        "MessageReceipt",
        "MessageState",
        "MessageUnknown",
        "RetryPolicy",
    ),
}
"""Names that are imported at their first use: the service itself needs the rules of messages, and
no client."""
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
