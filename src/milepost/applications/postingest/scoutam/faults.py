"""What can go wrong with a server that speaks HTTP, for the stand-in to do when it is told to."""

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
"""Answers that are not what was promised, and what they call themselves."""


@dataclass
class Fault:
    """What goes wrong, the next `times` that `where` is asked for: a path, "login", or None for any path."""

    kind: Kind
    status: int = 200
    where: str | None = None
    times: int = ALWAYS
    headers: Mapping[str, str] = field(default_factory=dict)
