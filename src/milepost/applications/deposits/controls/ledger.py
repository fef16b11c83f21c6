"""Controls of the open ledger, as handlers need them: its clock, pauses of a stage, and the claim under which an item is worked on."""

from __future__ import annotations

import logging
import math
import time
from datetime import datetime
from typing import Any

import milepost as mp
from milepost.applications.deposits.settings import DepositsSettings

PAUSED_BY = "deposits"
"""The operator's name of pauses that handlers make. One with an end is for a partner that asks for fewer requests; one without an end is a
hold, until a person has put something right."""
TRUSTED = "5s"
"""A claim that is younger than this holds without a question to the ledger: no lease is that short."""

log = logging.getLogger(__name__)


def moment_s(text: str) -> float:
    """A time in ISO 8601 as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def own_pauses(app: mp.AppContext[DepositsSettings]) -> dict[str, mp.PauseView]:
    """The pauses that handlers have made, by stage. One whose time has come may be among them."""
    route = app.settings.route
    return {one.scope.removeprefix(f"{route}/"): one for one in app.pauses(route) if one.by == PAUSED_BY and one.scope != route}


class LedgerControls:
    """The controls of one process. Without an open ledger nothing is paused, and every claim holds."""

    def __init__(self, settings: DepositsSettings) -> None:
        self._route = settings.route
        self._app: mp.AppContext[DepositsSettings] | None = None

    def open(self, app: mp.AppContext[DepositsSettings]) -> None:
        """Use this ledger's clock and controls."""
        self._app = app

    def now(self) -> float:
        """Seconds since 1970, by the ledger's clock."""
        return time.time() if self._app is None else self._app.time()

    def pause(self, stage: str, seconds: float | None, reason: str) -> None:
        """Pause a stage for so long; None: until a person resumes it. A pause by a person stays as it is, and so does a longer one of
        another process."""
        app = self._app
        if app is None:
            return
        try:
            scopes = (self._route, f"{self._route}/{stage}")
            held = [one for one in app.pauses(self._route) if one.scope in scopes]
            ends_at = math.inf if seconds is None else self.now() + seconds
            if any(one.by != PAUSED_BY or one.until is None or moment_s(one.until) >= ends_at for one in held):
                return
            until = None if seconds is None else f"{math.ceil(seconds)}s"
            app.pause(self._route, stage, by=PAUSED_BY, reason=reason, until=until, own=True)
        except mp.MilepostError:
            log.exception("the stage %s could not be paused; the next answer of this kind tries again", stage)

    def hold_reason(self, stage: str) -> str:
        """Why a handler holds this stage until a person resumes it; empty: it does not, or the ledger does not say so now."""
        try:
            held = None if self._app is None else own_pauses(self._app).get(stage)
        except mp.MilepostError:
            log.exception("whether the stage %s is held could not be read", stage)
            return ""
        return held.reason if held is not None and held.until is None else ""

    def claim_left(self, item: mp.Item) -> float:
        """Seconds for which the claim of an item still holds, by the ledger; 0: another worker may have done the work meanwhile."""
        return math.inf if self._app is None else self._app.claim_left(item, trust=TRUSTED)

    def result(self, item: mp.Item) -> dict[str, Any] | None:
        """The result of the item's stage as the ledger has it now; None: it has none."""
        found = None if self._app is None else self._app.show(item.route, item.key)
        result = None if found is None else found["results"].get(item.stage)
        return result if isinstance(result, dict) else None
