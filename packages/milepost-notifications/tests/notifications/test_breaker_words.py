"""What a page says about the breaker of a destination."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import milepost_notifications as notifications
from milepost.http.dashboard.render import _environment

FOLDER = Path(notifications.__file__).parent / "templates"
BREAKER = SimpleNamespace(
    state="open",
    since="2027-01-01T10:00:00.000Z",
    retry_at="2027-01-01T10:05:00.000Z",
    error="TIMEOUT",
)


def test_a_probe_is_not_promised_while_the_destination_is_paused() -> None:
    parts = _environment(FOLDER).get_template("notification_parts.html").module
    paused = " ".join(str(parts.breaker(BREAKER, True)).split())
    assert "no probe is sent before the pause ends" in paused
    assert "10:05" not in paused
    assert "; no probe before" in " ".join(str(parts.breaker(BREAKER)).split())
