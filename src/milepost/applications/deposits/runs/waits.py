"""Waits for partners: which stages handlers have paused and why, how many DOIs wait there, and the end of a pause for a rate limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.controls.ledger import PAUSED_BY, moment_s, own_pauses
from milepost.applications.deposits.controls.rate_limits import SLOW_DOWN
from milepost.applications.deposits.stages import PARTNERS, SUBMIT

SHORT_S = 120.0
"""A pause of at most so many seconds is waited for within a round; with a longer one the round ends its tries for this partner."""
MOST_WAITING_S = 3600.0
"""Most seconds that a round waits for partners, all pauses together."""
BEHIND_S = 2.0
"""The wait of a DOI is recorded after the pause that it caused, and ends so much later than that at most."""


class PartnerWait(msgspec.Struct, frozen=True):
    """A partner that asks for fewer requests, or refuses the login or the queue, and the DOIs that wait for it."""

    stage: str
    partner: str
    dois: int
    until: str | None
    """When the partner is asked again; None: when a person has put right what `reason` names."""
    reason: str

    @property
    def name(self) -> str:
        """Identifies it among all waits: the stage, and whether it needs people."""
        return f"{self.stage}/held" if self.needs_people else self.stage

    @property
    def needs_people(self) -> bool:
        """Does it last until a person puts something right?"""
        return self.until is None or SLOW_DOWN not in self.reason

    @property
    def text(self) -> str:
        """For people."""
        dois = "1 DOI waits" if self.dois == 1 else f"{self.dois:,} DOIs wait"
        if self.until is not None:
            dois += f" until {self.until[:16].replace('T', ' ')} UTC at least"
        said = f"{self.reason}." if self.needs_people else f"{self.partner} {SLOW_DOWN};"
        return f"{said[:1].upper()}{said[1:]} {dois}, and no try is counted"


def partner_waits(app: DepositsApp) -> list[PartnerWait]:
    """The partners whose stages are paused now, by their rate limits or because a login or a queue was refused."""
    held = _partner_pauses(app)
    stages = app.status()["routes"].get(app.settings.route, {}).get("stages", {}) if held else {}
    now = app.time()
    return [
        PartnerWait(stage, PARTNERS[stage], _waiting(app, stage, stages.get(stage, {})), pause.until, pause.reason)
        for stage, pause in held.items()
        if pause.until is None or moment_s(pause.until) > now
    ]


def end_waits(app: DepositsApp) -> None:
    """End the pauses whose time has come. A resender does so too; a round must not miss it."""
    now = app.time()
    for stage, until in _pauses_with_end(app).items():
        if until <= now:
            reason = f"{PARTNERS[stage]} may be asked again"
            app.resume(app.settings.route, stage, by=PAUSED_BY, reason=reason, own=True)


def work_within_limits(app: DepositsApp, work: Callable[[], None], sleep: Callable[[float], None]) -> None:
    """Work until nothing is left to try. A partner that asks for a short pause gets it, and the work continues after it."""
    patience = MOST_WAITING_S
    while True:
        work()
        first = min(_pauses_with_end(app).values(), default=None)
        if first is None:
            return
        left = max(0.0, first - app.time())
        if left > min(SHORT_S, patience):
            return
        sleep(left + BEHIND_S)
        patience -= left + BEHIND_S
        end_waits(app)


def _partner_pauses(app: DepositsApp) -> dict[str, mp.PauseView]:
    """The pauses that handlers have made, by stage."""
    return {stage: pause for stage, pause in own_pauses(app).items() if stage in PARTNERS}


def _pauses_with_end(app: DepositsApp) -> dict[str, float]:
    """Stages that are paused for a while, each with the end of the pause in seconds since 1970."""
    return {stage: moment_s(pause.until) for stage, pause in _partner_pauses(app).items() if pause.until is not None}


def _waiting(app: DepositsApp, stage: str, statuses: dict[str, Any]) -> int:
    """DOIs at a stage that wait for its partner. Those that the submission service has are not among them."""
    with_service = stage == SUBMIT and app.settings.submit.dss is not None
    waiting = (mp.Status.PENDING, mp.Status.QUEUED) if with_service else (mp.Status.PENDING, mp.Status.QUEUED, mp.Status.WAITING)
    return sum(statuses.get(status.value, 0) for status in waiting)
