"""Probe of DSpace's login while the stage `submit` is held: one login after a growing delay, by one process; the hold ends if it is accepted."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import msgspec

from milepost.applications.deposits.controls import PAUSED_BY, moment_s, own_pauses
from milepost.applications.deposits.dspace.errors import DSpaceError
from milepost.applications.deposits.dspace.submission import open_dspace
from milepost.applications.deposits.settings import DepositsApp
from milepost.applications.deposits.stages import SUBMIT

PROBES = "login-probes"
"""Name of the document that says when the login was last probed."""
FIRST_S = 900.0
LONGEST_S = 12 * 3600.0
"""Most seconds between two probes: a daily round always makes one."""

log = logging.getLogger(__name__)


class LoginProbes(msgspec.Struct, frozen=True):
    """The probes of one hold: since when it is in force, how many there were, and when the last one was (seconds since 1970)."""

    since: str
    times: int
    at: float


def delay_s(times: int) -> float:
    """Seconds until the next probe: twice as many after each one, since a locked account is worse than a late one."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(times, 20))


def probe_login(app: DepositsApp, environment: Mapping[str, str] | None = None) -> bool:
    """If a refused login holds the stage and the time has come, try the login once; if DSpace accepts it, end the hold. True: it has ended."""
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
    dspace = open_dspace(settings, os.environ if environment is None else environment, url, now=app.time)
    try:
        dspace.session.log_in()
    except DSpaceError as error:
        log.warning("a probe of DSpace's login failed, and the stage %s stays held: %s", SUBMIT, error)
        return False
    finally:
        dspace.close()
    app.documents.remove(PROBES)
    return app.resume(settings.route, SUBMIT, by=PAUSED_BY, reason="DSpace accepts the login again", own=True)
