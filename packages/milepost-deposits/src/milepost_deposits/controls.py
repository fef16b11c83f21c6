"""Controls that handlers use: faults that operators correct, pauses of a stage for its partner, and
the check of a claim.

A partner that asks for fewer requests (429, or 503 with Retry-After) says nothing about the DOI
that it answered; neither does an error that people have to put right in the configuration. The
stage is paused in the ledger until the partner may be asked again, so that all processes stop; the
DOIs wait with their tries kept.
"""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_deposits.settings import DepositsApp, DepositsSettings
from milepost_deposits.status_names import PARTNERS, SUBMIT

log = logging.getLogger(__name__)

# Faults that operators correct --------------------------------------------------------------------
LONGEST = 300
_LOG_IN = "put valid AWS credentials into the environment of every process of Milepost"
_ALLOW = "allow it in the policy of the role or user that Milepost's processes have"
_NAME = (
    "correct its name in milepost.toml, or the region and account in the environment, or create it"
)
_CLOCK = "correct the clock of this machine"
_RIGHTS = "give the user of Milepost's processes the right to read and write there"

CURES: dict[str | int | None, str] = {
    **dict.fromkeys(
        ("AccessDenied", "AccessDeniedException", "AllAccessDisabled", "AuthorizationError"), _ALLOW
    ),
    **dict.fromkeys(("KMS.AccessDeniedException", "KMSAccessDenied", "OptInRequired"), _ALLOW),
    **dict.fromkeys(
        ("InvalidClientTokenId", "InvalidAccessKeyId", "UnrecognizedClientException"), _LOG_IN
    ),
    **dict.fromkeys(("SignatureDoesNotMatch", "InvalidSignatureException"), _LOG_IN),
    **dict.fromkeys(("IncompleteSignature", "IncompleteSignatureException"), _LOG_IN),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "InvalidToken"), _LOG_IN),
    **dict.fromkeys(("MissingAuthenticationToken", "MissingAuthenticationTokenException"), _LOG_IN),
    **dict.fromkeys(
        (
            "NoCredentialsError",
            "PartialCredentialsError",
            "CredentialRetrievalError",
            "ProfileNotFound",
        ),
        _LOG_IN,
    ),
    **dict.fromkeys(
        ("TokenRetrievalError", "SSOTokenLoadError", "UnauthorizedSSOTokenError"), _LOG_IN
    ),
    **dict.fromkeys(
        ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress"), _NAME
    ),
    **dict.fromkeys(
        ("NoSuchBucket", "InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed"),
        _NAME,
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), _CLOCK),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR), _RIGHTS),
}
"""The cure, by the error code of AWS, the name of boto3's own error, or the error number of the
operating system. The codes of the ledger on AWS are among them; a test compares the two."""


def operators_fault(error: BaseException) -> str | None:
    """The error and its cure, where people have to correct the configuration; None for any other
    error. The errors of a blob store have that of AWS as their cause."""
    cause = error.__cause__ or error
    answer = getattr(cause, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else type(cause).__name__
    cure = CURES.get(code) or CURES.get(getattr(cause, "errno", None))
    return None if cure is None else f"{reason_of(cause)}; {cure}"


def reason_of(error: BaseException) -> str:
    """The error in one line. Where AWS refuses a signature, further lines would hold headers of the
    request."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said).splitlines()[0][:LONGEST]


# The open ledger ----------------------------------------------------------------------------------
PAUSED_BY = "deposits"
"""The operator's name of pauses that handlers make. One with an end is for a partner that asks for
fewer requests; one without an end is a hold, until a person has put something right."""
MOST_READ = 500
"""Rows that are read to find some deposits."""
TRUSTED = "5s"
"""A claim that is younger than this holds without a question to the ledger: no lease is that
short."""


def moment_s(text: str) -> float:
    """A time in ISO 8601 as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def own_pauses(app: DepositsApp) -> dict[str, mp.PauseView]:
    """The pauses that handlers have made, by stage. One whose time has come may be among them."""
    route = app.settings.route
    found = {
        one.scope.removeprefix(f"{route}/"): one for one in app.pauses(route) if one.by == PAUSED_BY
    }
    return {stage: pause for stage, pause in found.items() if stage in PARTNERS}


class LedgerControls:
    """The controls of one process. Without an open ledger nothing is paused, and every claim
    holds."""

    def __init__(self, settings: DepositsSettings) -> None:
        self._route = settings.route
        self._app: DepositsApp | None = None

    def open(self, app: DepositsApp) -> None:
        """Use this ledger's clock and controls."""
        self._app = app

    def now(self) -> float:
        """Seconds since 1970, by the ledger's clock."""
        return time.time() if self._app is None else self._app.time()

    def pause(self, stage: str, seconds: float | None, reason: str) -> None:
        """Pause a stage for so long; None: until a person resumes it. A pause by a person stays as
        it is, and so does a longer one of another process."""
        app = self._app
        if app is None:
            return
        try:
            scopes = (self._route, f"{self._route}/{stage}")
            held = [one for one in app.pauses(self._route) if one.scope in scopes]
            ends_at = math.inf if seconds is None else self.now() + seconds
            if any(
                one.by != PAUSED_BY or one.until is None or moment_s(one.until) >= ends_at
                for one in held
            ):
                return
            until = None if seconds is None else f"{math.ceil(seconds)}s"
            app.pause(self._route, stage, by=PAUSED_BY, reason=reason, until=until, own=True)
        except mp.MilepostError:
            log.exception(
                "the stage %s could not be paused; the next answer of this kind tries again", stage
            )

    def hold_reason(self, stage: str) -> str:
        """Why a handler holds this stage until a person resumes it; empty: it does not, or the
        ledger does not say so now."""
        try:
            held = None if self._app is None else own_pauses(self._app).get(stage)
        except mp.MilepostError:
            log.exception("whether the stage %s is held could not be read", stage)
            return ""
        return held.reason if held is not None and held.until is None else ""

    def claim_left(self, item: mp.Item) -> float:
        """Seconds for which the claim of an item still holds, by the ledger; 0: another worker may
        have done the work meanwhile."""
        return math.inf if self._app is None else self._app.claim_left(item, trust=TRUSTED)

    def view(self, doi: str) -> dict[str, Any] | None:
        """A DOI as the ledger has it now; None: it has none."""
        return None if self._app is None else self._app.show(self._route, doi)

    def deposited_before(self, moment: float) -> list[str]:
        """Some DOIs that were deposited before this time, in seconds since 1970."""
        if self._app is None:
            return []
        rows = self._app.items(self._route, statuses=[mp.Status.COMPLETED], limit=MOST_READ)
        return [row["key"] for row in rows if moment_s(row["ended_at"]) <= moment]

    def result(self, item: mp.Item) -> dict[str, Any] | None:
        """The result of the item's stage as the ledger has it now; None: it has none."""
        view = self.view(item.key)
        result = None if view is None else view["results"].get(item.stage)
        return result if isinstance(result, dict) else None


# Rate limits of partners --------------------------------------------------------------------------
FIRST_S = 15.0
LONGEST_S = 6 * 3600.0
"""Most seconds of a pause, whatever the partner asks for: then one request finds out."""
SLOW_DOWN = "asks us to slow down"
CONFIGURATION = "CONFIGURATION"
"""Category of a failed try whose error people have to put right for all DOIs."""
NO_FAULT_OF_A_DOI = frozenset({CONFIGURATION, "DSPACE_INDEX", "DSPACE_FORBIDDEN", "NO_COLLECTION"})
"""Categories of failed tries that every DOI would have: the stage is paused, and no try is
counted."""
FIRST_CONFIGURATION_S = 900.0


def asks_to_slow_down(outcome: mp.Outcome) -> bool:
    """Is this failed try a partner's wish for fewer requests? Its status is 429, or 503 with
    Retry-After."""
    if not isinstance(outcome, mp.Retry):
        return False
    return outcome.http_status == 429 or (outcome.http_status == 503 and outcome.after is not None)


def pause_s(asked: float | None, before: int, first: float = FIRST_S) -> float:
    """Seconds until the next request: at least as many as the partner asked for, and twice as many
    as after the wish before. `before`: how many wishes in a row came before this one."""
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
        """The outcome of a try; where the partner asks for fewer requests, or every DOI would fail
        in the same way, a wait that is not counted, and its stage is paused."""
        wrong = isinstance(outcome, mp.Retry) and outcome.category in NO_FAULT_OF_A_DOI
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
                asked = (
                    None if outcome.after is None else mpa.span_ms(outcome.after, "after") / 1000
                )
                self._until = now + pause_s(
                    asked, self._wishes, FIRST_CONFIGURATION_S if wrong else FIRST_S
                )
                self._wishes += 1
            left = self._until - now
        # The same words each time: a wait that says nothing new adds no line to the history.
        said = (
            outcome.error
            if wrong
            else f"{PARTNERS[self._stage]} {SLOW_DOWN} (status {outcome.http_status})"
        )
        if new:
            log.warning(
                "%s; the stage %s is paused for %.0f s, and no try is counted",
                said,
                self._stage,
                left,
            )
            self._controls.pause(self._stage, left, said)
        return mp.NotYet(after=left, unknown=outcome.unknown, note=said)


class LimitedStage:
    """A handler within the rate limit of its partner."""

    def __init__(self, handler: Callable[[mp.Item], mp.Outcome], limit: StageLimit) -> None:
        self._handler, self._limit = handler, limit

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or a secret is
        missing."""
        self._handler.ready()  # type: ignore[attr-defined]

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self._limit.judged(self._handler(item))


# Waits for partners -------------------------------------------------------------------------------
SHORT_S = 120.0
"""A pause of at most so many seconds is waited for within a round; with a longer one the round ends
its tries for this partner."""
MOST_WAITING_S = 3600.0
"""Most seconds that a round waits for partners, all pauses together."""
BEHIND_S = 2.0
"""The wait of a DOI is recorded after the pause that it caused, and ends so much later than that at
most."""


class PartnerWait(msgspec.Struct, frozen=True):
    """A partner that asks for fewer requests, or refuses the login or the queue, and the DOIs that
    wait for it."""

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
        dois = "1 DOI waits" if self.dois == 1 else f"{self.dois:,} DOIs wait"
        if self.until is not None:
            dois += f" until {self.until[:16].replace('T', ' ')} UTC at least"
        said = f"{self.reason}." if self.needs_people else f"{self.partner} {SLOW_DOWN};"
        return f"{said[:1].upper()}{said[1:]} {dois}, and no try is counted"


def partner_waits(app: DepositsApp) -> list[PartnerWait]:
    """The partners whose stages are paused now, by their rate limits or because a login or a queue
    was refused."""
    held = own_pauses(app)
    stages = app.status()["routes"].get(app.settings.route, {}).get("stages", {}) if held else {}
    now = app.time()
    return [
        PartnerWait(
            stage,
            PARTNERS[stage],
            _waiting(app, stage, stages.get(stage, {})),
            pause.until,
            pause.reason,
        )
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


def work_within_limits(
    app: DepositsApp, work: Callable[[], None], sleep: Callable[[float], None]
) -> None:
    """Work until nothing is left to try. A partner that asks for a short pause gets it, and the
    work continues after it."""
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


def _pauses_with_end(app: DepositsApp) -> dict[str, float]:
    """Stages that are paused for a while, each with the end of the pause in seconds since 1970."""
    return {
        stage: moment_s(pause.until)
        for stage, pause in own_pauses(app).items()
        if pause.until is not None
    }


def _waiting(app: DepositsApp, stage: str, statuses: dict[str, Any]) -> int:
    """DOIs at a stage that wait for its partner. Those that the submission service has are not
    among them."""
    with_service = stage == SUBMIT and app.settings.submit.dss is not None
    waiting = (
        (mp.Status.PENDING, mp.Status.QUEUED)
        if with_service
        else (mp.Status.PENDING, mp.Status.QUEUED, mp.Status.WAITING)
    )
    return sum(statuses.get(status.value, 0) for status in waiting)
