"""What can go wrong with a server that speaks HTTP, for the stand-in to do when it is told to."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["status", "garbage", "html", "huge", "hang", "drip", "cut", "reset"]
ALWAYS = 1 << 62
DRIP_S = 0.02

BODIES = {
    "garbage": (b'{"archdone": tru', "application/json"),
    "html": (b"<html><body>Welcome to the proxy</body></html>", "text/html"),
    "huge": (b'{"archdone": false, "pad": "' + b"x" * (1 << 20) + b'"}', "application/json"),
}
"""Answers that are not what was promised, and what they call themselves."""


@dataclass
class Fault:
    """What goes wrong, the next `times` that `where` is asked for: a path, "login", or None for any path."""

    kind: Kind
    status: int = 200
    where: str | None = None
    times: int = ALWAYS
    headers: Mapping[str, str] = field(default_factory=dict)


def spoil(kind: Kind, connection: socket.socket, body: bytes, closing: threading.Event) -> None:
    """Answer in a way that no client can be content with; ends when `closing` is set, if not before."""
    whole = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    if kind == "hang":
        closing.wait()
    elif kind == "drip":
        # A header without an end: only a client that counts the time altogether gets out of it.
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not closing.wait(DRIP_S):
            connection.sendall(b".")
    elif kind == "cut":
        connection.sendall(whole[:-1])
    else:
        # Without lingering, closing is a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
