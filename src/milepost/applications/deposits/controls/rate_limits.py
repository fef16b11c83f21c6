"""Partners' rate limits: a partner that asks for fewer requests pauses its stage, and its answer counts as no try.

A 429, or a 503 with Retry-After, says nothing about the DOI that it answered; neither does an error that people have to put right in the
configuration. The stage is paused until the partner may be asked again, in the ledger, so that all processes stop; the DOIs wait with
their tries kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import milepost as mp
from milepost.applications.deposits.controls.ledger import LedgerControls
from milepost.applications.deposits.stages import PARTNERS

FIRST_S = 15.0
LONGEST_S = 6 * 3600.0
"""Most seconds of a pause, whatever the partner asks for: then one request finds out."""

SLOW_DOWN = "asks us to slow down"
CONFIGURATION = "CONFIGURATION"
"""Category of a failed try whose error people have to put right for all DOIs."""
FIRST_CONFIGURATION_S = 900.0

log = logging.getLogger(__name__)


def asks_to_slow_down(outcome: mp.Outcome) -> bool:
    """Is this failed try a partner's wish for fewer requests? Its status is 429, or 503 with Retry-After."""
    if not isinstance(outcome, mp.Retry):
        return False
    return outcome.http_status == 429 or (outcome.http_status == 503 and outcome.after is not None)


def pause_s(asked: float | None, before: int, first: float = FIRST_S) -> float:
    """Seconds until the next request: at least as many as the partner asked for, and twice as many as after the wish before. `before`: how
    many wishes in a row came before this one."""
    return min(LONGEST_S, max(asked or 0.0, first * 2.0 ** min(before, 20)))


class StageLimit:
    """The rate limit of one stage's partner, shared by the threads of a process."""

    def __init__(self, controls: LedgerControls, stage: str) -> None:
        self._controls, self._stage = controls, stage
        self._lock = threading.Lock()
        self._wishes = 0
        """How often in a row the partner has asked for fewer requests."""
        self._until = 0.0

    def judged(self, outcome: mp.Outcome) -> mp.Outcome:
        """The outcome of a try; where the partner asks for fewer requests, or the configuration is wrong, a wait that is not counted, and its
        stage is paused."""
        wrong = isinstance(outcome, mp.Retry) and outcome.category == CONFIGURATION
        if not (wrong or asks_to_slow_down(outcome)):
            if not isinstance(outcome, mp.Retry) or outcome.http_status is not None:
                self._wishes = 0
            return outcome
        assert isinstance(outcome, mp.Retry)
        with self._lock:
            now = self._controls.now()
            # Requests that ran at the same time get the same answer: it counts once.
            new = now >= self._until
            if new:
                asked = None if outcome.after is None else mp.span_ms(outcome.after, "after") / 1000
                self._until = now + pause_s(asked, self._wishes, FIRST_CONFIGURATION_S if wrong else FIRST_S)
                self._wishes += 1
            left = self._until - now
        # The same words each time: a wait that says nothing new adds no line to the history.
        said = outcome.error if wrong else f"{PARTNERS[self._stage]} {SLOW_DOWN} (status {outcome.http_status})"
        if new:
            log.warning("%s; the stage %s is paused for %.0f s, and no try is counted", said, self._stage, left)
            self._controls.pause(self._stage, left, said)
        return mp.NotYet(after=left, unknown=outcome.unknown, note=said)


class LimitedStage:
    """A handler within the rate limit of its partner."""

    def __init__(self, handler: Callable[[mp.Item], mp.Outcome], limit: StageLimit) -> None:
        self._handler, self._limit = handler, limit

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or a secret is missing."""
        self._handler.ready()  # type: ignore[attr-defined]

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self._limit.judged(self._handler(item))
