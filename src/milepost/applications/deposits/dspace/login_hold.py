"""Hold of the stage `submit` after a refused login: no DOI makes a login of its own, and none counts a try.

A wrong password is no fault of a DOI, and a login for each of them would lock the account. The first login that DSpace refuses pauses the
stage in the ledger, for all processes, until a person resumes it or a probe finds that DSpace accepts the login again (see login_probe).
"""

from __future__ import annotations

import logging

from milepost.applications.deposits.controls import LedgerControls
from milepost.applications.deposits.dspace.errors import DSpaceLoginRefused
from milepost.applications.deposits.dspace.session import LoginGuard
from milepost.applications.deposits.settings import DepositsSettings
from milepost.applications.deposits.stages import SUBMIT

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
