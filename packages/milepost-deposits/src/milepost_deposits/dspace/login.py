"""Hold of the stage `submit` after a refused login, and the probe login that ends it. DOIs wait
meanwhile, and count no try.

A wrong password is no fault of a DOI, and a login for each of them would lock the account. The
first login that DSpace refuses pauses the stage in the ledger, for all processes, until a person
resumes it or a probe, one login after a growing delay by one process, is accepted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import msgspec

from milepost_deposits.controls import PAUSED_BY, LedgerControls, moment_s, own_pauses
from milepost_deposits.dspace.api import open_dspace
from milepost_deposits.dspace.errors import DSpaceError, DSpaceLoginRefused
from milepost_deposits.dspace.session import LoginGuard
from milepost_deposits.settings import DepositsApp, DepositsSettings
from milepost_deposits.status_names import SUBMIT

PROBES = "login-probes"
"""Name of the document that says when the login was last probed."""
FIRST_S = 900.0
LONGEST_S = 12 * 3600.0
"""Most seconds between two probes: a daily round always makes one."""

log = logging.getLogger(__name__)


class LoginHold(LoginGuard):
    """Allows logins while the stage is not held, and holds it when one is refused."""

    def __init__(self, settings: DepositsSettings, controls: LedgerControls) -> None:
        self._settings, self._controls = settings, controls

    def check(self) -> None:
        reason = self._controls.hold_reason(SUBMIT)
        if reason:
            raise DSpaceLoginRefused(reason)

    def refused(self, user: str, status: int) -> DSpaceLoginRefused:
        reason = (
            f"DSpace refused the login of {user} ({status}): put the right password into {self._settings.submit.password_env} for every"
            f" process of Milepost, then run '{resume_command(self._settings)}'"
        )
        log.error("%s. The stage %s is paused until then, and no try is counted", reason, SUBMIT)
        self._controls.pause(SUBMIT, None, reason)
        return DSpaceLoginRefused(reason, http_status=status)


def resume_command(settings: DepositsSettings) -> str:
    """The command that ends the hold."""
    return f"milepost resume {settings.route} {SUBMIT} --by YOU --reason corrected"


class LoginProbes(msgspec.Struct, frozen=True):
    """The probes of one hold: since when it is in force, how many there were, and when the last one
    was (seconds since 1970)."""

    since: str
    times: int
    at: float


def delay_s(times: int) -> float:
    """Seconds until the next probe: twice as many after each one, since a locked account is worse
    than a late one."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(times, 20))


def probe_login(app: DepositsApp, environment: Mapping[str, str] | None = None) -> bool:
    """If a refused login holds the stage and the time has come, try the login once; if DSpace
    accepts it, end the hold. True: it has ended."""
    settings, held = app.settings, own_pauses(app).get(SUBMIT)
    url = settings.submit.dspace or settings.submit.search
    if held is None or held.until is not None or held.since is None or url is None:
        return False
    document = app.documents.get(PROBES)
    before = None if document is None else msgspec.convert(document.value, LoginProbes)
    if before is None or before.since != held.since:
        before = LoginProbes(held.since, 0, moment_s(held.since))
    now = app.time()
    # A time in the future is that of a clock that was set back.
    if 0 <= now - before.at < delay_s(before.times):
        return False
    probed = msgspec.to_builtins(LoginProbes(held.since, before.times + 1, now))
    if not app.documents.put(PROBES, probed, expect=0 if document is None else document.version):
        return False  # another process makes this probe
    dspace = open_dspace(
        settings, os.environ if environment is None else environment, url, now=app.time
    )
    try:
        dspace.session.log_in()
    except DSpaceError as error:
        log.warning(
            "a probe of DSpace's login failed, and the stage %s stays held: %s", SUBMIT, error
        )
        return False
    finally:
        dspace.close()
    app.documents.remove(PROBES)
    return app.resume(
        settings.route, SUBMIT, by=PAUSED_BY, reason="DSpace accepts the login again", own=True
    )
