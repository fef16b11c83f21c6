"""Rounds: a run from cron that takes in lists and tries each unfinished DOI at most once per stage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.digest.collect import collect_digests, digests_route_name, undelivered
from milepost.applications.deposits.intake import BY, IntakeReport, take_in_lists
from milepost.applications.deposits.runs import note_run, run_record
from milepost.applications.deposits.stuck.late import find_late_deposits
from milepost.applications.deposits.words import FAILED, counts_by_word

log = logging.getLogger(__name__)

REASON = "the next round tries it again"


class RoundReport(msgspec.Struct, frozen=True):
    """Results of a round, and the DOIs that need a person."""

    intake: IntakeReport
    tried_again: int
    """DOIs that had failed in an earlier round."""
    counts: dict[str, int]
    """All DOIs of the route by word, after the round."""
    digests: int = 0
    """Mails to people about this round."""
    unmailed: int = 0
    """Mails, of earlier rounds too, that could not be sent yet. They are kept, and the next round tries again."""

    @property
    def needs_people(self) -> bool:
        """Does a DOI need a manual deposit, or a file in the inbox or the mail server attention?"""
        return bool(self.counts[FAILED] or self.intake.refused or self.intake.unread or self.unmailed)


def run_round(app: DepositsApp, work: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> RoundReport:
    """Take in lists, apply results of earlier rounds, bring failures forward with their attempts kept, and work until nothing is left to
    try. A DOI that fails waits for the next round: its delay is longer than any pause between rounds."""
    begun, before = app.now(), word_counts(app)
    intake = take_in_lists(app, app.settings)
    if intake.growing:
        # The sender of a file that was just written has most likely finished: wait for the proof once.
        sleep(mp.span_ms(app.settings.inbox_quiet, "inbox_quiet") / 1000)
        intake = intake.followed_by(take_in_lists(app, app.settings))
    apply_results(app)
    tried_again = bring_forward(app)
    work()
    digests = collect_digests(app)
    if digests:
        work()
    counts = word_counts(app)
    note_run(app, run_record(begun, app.now(), intake, tried_again, before, counts, digests))
    return RoundReport(intake, tried_again, counts, len(digests), len(undelivered(app)))


def apply_results(app: DepositsApp) -> None:
    """Apply results of the submission service, and find failed DOIs that DSpace has. A partner that does not answer stops no round."""
    from milepost.applications.deposits.dss.service import ResultListener

    try:
        if app.settings.submit.dss is not None:
            ResultListener(app).turn()
        find_late_deposits(app)
    except mp.LedgerError:
        raise
    except Exception:
        log.exception("results of earlier rounds could not be looked for; the next round does")


def bring_forward(app: DepositsApp) -> int:
    """Make every failed DOI that will be retried due now, and every mail that could not be sent. No attempt is counted or forgotten. How
    many DOIs."""
    if app.settings.mail is not None:
        app.act("resend", digests_route_name(app.settings.route), statuses=[mp.Status.RETRY_SCHEDULED], by=BY, reason=REASON)
    return app.act("resend", app.settings.route, statuses=[mp.Status.RETRY_SCHEDULED], by=BY, reason=REASON).done


def word_counts(app: DepositsApp) -> dict[str, int]:
    """How many DOIs of the route have each status, in the words of librarians."""
    return counts_by_word(app.status()["routes"].get(app.settings.route, {}).get("statuses", {}))
