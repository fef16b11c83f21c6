"""Faults of an HTTP server, which tests can make the stand-in produce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["status", "garbage", "html", "huge", "hang", "drip", "cut", "reset"]
ALWAYS = 1 << 62

BODIES = {
    "garbage": (b'{"archdone": tru', "application/json"),
    "html": (b"<html><body>Welcome to the proxy</body></html>", "text/html"),
    "huge": (b'{"archdone": false, "pad": "' + b"x" * (1 << 20) + b'"}', "application/json"),
}
"""Answers that are not as specified, with their media types."""


@dataclass
class Fault:
    """A fault for the next `times` requests of `where`: a path, "login", or None for any path."""

    kind: Kind
    status: int = 200
    where: str | None = None
    times: int = ALWAYS
    headers: Mapping[str, str] = field(default_factory=dict)
