"""A page as it reads."""

from __future__ import annotations

import html
import re

from tests.http.live_server import HttpAnswer


def text_of(answered: HttpAnswer) -> str:
    """What stands between the head and the foot of a page: without its tags, and with one space
    between words."""
    main = answered.raw.decode().partition("<main")[2].partition("</main>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", main)).split())
