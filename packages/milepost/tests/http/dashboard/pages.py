"""Pages as the server makes them, for tests that need no browser."""

from __future__ import annotations

import html
import re

from tests.http.live_server import LiveServer

MARKUP = '<img src=x onerror="alert(1)">'


def shown(visitor: LiveServer, path: str, *, status: int = 200, key: str | None = None) -> str:
    answer = visitor.call("GET", path, key=key)
    assert answer.status == status
    return answer.raw.decode()


def seen(page: str) -> str:
    """What a reader sees of it: no tags, one space between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.partition("<main")[2])).split())
