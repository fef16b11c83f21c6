"""Rounds: a run from cron that takes in lists and tries each unfinished DOI at most once per
stage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_deposits.common_cause import CommonCause, common_cause
from milepost_deposits.controls import PartnerWait, end_waits, partner_waits, work_within_limits
from milepost_deposits.digest.collect import (
    collect_digests,
    place_cursor,
    refused_recipients,
    unmailed,
    unmailed_keys,
)
from milepost_deposits.digest.file_news import note_files
from milepost_deposits.dspace.login import probe_login
from milepost_deposits.dss.results import ResultListener
from milepost_deposits.feed_places import place_at
from milepost_deposits.files import STORE_FAULTS
from milepost_deposits.intake import BY, IntakeReport, RefusedList, take_in_lists
from milepost_deposits.runs import (
    TAKING_IN,
    RunJournal,
    RunRecord,
    close_interrupted,
    intake_facts,
    mark_reported,
)
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import CLEAN, CONTENT, FAILED, METADATA, SUBMIT, word_counts
from milepost_deposits.stuck import MOST_LISTED, find_late_deposits, too_early
from milepost_deposits.twins import find_twins, twins

log = logging.getLogger(__name__)

STORE_WAITS = 20
"""Most waiting DOIs of a stage that are looked at."""
LISTED = 1_000
STORE_CURE = "mend the store, or correct [deposits] files"
REASON = "the next round tries it again"


class RoundReport(msgspec.Struct, frozen=True):
    """Results of a round, and the DOIs that need a person."""

    intake: IntakeReport
    tried_again: int
    """DOIs that had failed in an earlier round."""
    counts: dict[str, int]
    """All DOIs of the route by status name, after the round."""
    digests: int = 0
    """Mails to people about this round."""
    unmailed: int = 0
    """Mails, of earlier rounds too, that could not be sent yet, the refused ones among them. All
    are kept, and the next round sends the others."""
    mails_refused: int = 0
    """Mails that were refused for good, and that no round sends by itself."""
    recipients_refused: list[str] = []
    """Recipients of this round's mails that the mail server refused, each with the reason; others
    have the mail."""
    mailed_late: int = 0
    """Mails of earlier rounds that this one has sent."""
    interrupted: list[RunRecord] = []
    """Earlier runs whose processes were gone before their end, and that no run has reported
    before."""
    waits: list[PartnerWait] = []
    """Partners that ask us to slow down, or refuse the login or the queue: the round has ended its
    tries with them."""
    twins: dict[str, list[str]] = {}
    """DOIs that have two items in DSpace, each with the items."""
    cause: CommonCause | None = None
    """The error that all DOIs had that were tried at a stage in this round."""
    store_fault: str = ""
    """Why files of DOIs could not be stored, read or removed; these DOIs wait, and no try is
    counted."""

    @property
    def needs_people(self) -> bool:
        """Do people have to act on a DOI, a file in the inbox, the mail server, the file store, a
        login or a queue?"""
        intake = self.intake
        files = (
            intake.refused
            or intake.unread
            or intake.ignored
            or intake.malformed
            or any(run.refused for run in self.interrupted)
        )
        return bool(
            self.counts[FAILED]
            or self.twins
            or self.recipients_refused
            or files
            or self.unmailed
            or self.store_fault
            or any(wait.needs_people for wait in self.waits)
        )


def run_round(
    app: DepositsApp, work: Callable[[], None], sleep: Callable[[float], None] = time.sleep
) -> RoundReport:
    """Take in lists, apply results of earlier rounds, bring failures forward with their attempts
    kept, and work until nothing is left to try. A DOI that fails waits for the next round: its
    delay is longer than any pause between rounds. A partner that asks for a long pause is asked
    nothing more in this round; its DOIs wait for the next one, and no try of theirs is counted."""
    late = unmailed_keys(app)
    interrupted = close_interrupted(app, word_counts(app))
    with RunJournal(app, lambda: word_counts(app)) as journal:
        if app.settings.mail is not None:
            place_cursor(app)
        intake = _take_in(app, journal, sleep)
        begun_at = place_at(app, app.now())
        journal.note(step="applying results", **intake_facts(intake))
        probe_login(app)
        apply_results(app)
        end_waits(app)
        tried_again = bring_forward(app)
        journal.note(step="working on DOIs", tried_again=tried_again)
        work_within_limits(app, work, sleep)
        journal.note(step="collecting digests")
        note_files(app, intake)
        digests = collect_digests(app)
        journal.note(step="mailing digests", digests=digests)
        if digests:
            work()
        mark_reported(app, [run.id for run in interrupted])
        cause = common_cause(app, begun_at)
    left = unmailed(app)
    mailed_late = len(late) - len(unmailed_keys(app) & late)
    return RoundReport(
        intake,
        tried_again,
        word_counts(app),
        len(digests),
        left.count,
        left.refused,
        [reason for key in digests for reason in refused_recipients(app, key)],
        mailed_late,
        interrupted,
        partner_waits(app),
        {doi: list(recorded.items) for doi, recorded in twins(app).items()},
        cause,
        store_fault(app),
    )


def _take_in(app: DepositsApp, journal: RunJournal, sleep: Callable[[float], None]) -> IntakeReport:
    """Take in lists. An inbox that cannot be listed is reported, and stops no round: there are
    results, retries and digests."""
    journal.note(step=TAKING_IN)
    intake = IntakeReport()
    try:
        intake = take_in_lists(app, app.settings)
        if intake.growing:
            # The sender of a file that was just written has most likely finished: wait for the
            # proof once.
            sleep(mpa.span_ms(app.settings.inbox_quiet, "inbox_quiet") / 1000)
            intake = intake.followed_by(take_in_lists(app, app.settings))
        return intake
    except (mp.LedgerError, mp.UsageError):
        raise
    except mp.MilepostError as error:
        return intake.followed_by(
            IntakeReport(unread=[RefusedList(app.settings.inbox, "", str(error))])
        )


def apply_results(app: DepositsApp) -> None:
    """Apply results of the submission service, and find failed DOIs that DSpace has. A partner that
    does not answer stops no round."""
    try:
        if app.settings.submit.dss is not None:
            ResultListener(app).turn()
        find_late_deposits(app)
        find_twins(app)
    except mp.LedgerError:
        raise
    except Exception:
        log.exception("results of earlier rounds could not be looked for; the next round does")


def bring_forward(app: DepositsApp) -> int:
    """Make every failed DOI that will be retried due now, every one that waits for the file store,
    and every mail that could not be sent. No attempt is counted or forgotten. How many DOIs had
    failed. One whose last submission may have been carried out waits until DSpace's index would
    show its item: a search before that proves nothing."""
    if store_fault(app):
        app.act(
            "resend",
            app.settings.route,
            statuses=[mp.Status.WAITING],
            stages=(METADATA, CONTENT),
            by=BY,
            reason=REASON,
        )
    if app.settings.mail is not None:
        app.act(
            "resend",
            app.settings.digests_route,
            statuses=[mp.Status.RETRY_SCHEDULED],
            by=BY,
            reason=REASON,
        )
    route, failed = app.settings.route, [mp.Status.RETRY_SCHEDULED]
    done = app.act(
        "resend", route, statuses=failed, stages=(METADATA, CONTENT), by=BY, reason=REASON
    ).done
    rows = app.items(route, statuses=failed, stages=(SUBMIT,), limit=MOST_LISTED)
    early = {row["key"] for row in rows if too_early(app, row)}
    if not early:
        return (
            done
            + app.act("resend", route, statuses=failed, stages=(SUBMIT,), by=BY, reason=REASON).done
        )
    keys = [row["key"] for row in rows if row["key"] not in early]
    return done + (app.act("resend", route, keys=keys, by=BY, reason=REASON).done if keys else 0)


def store_fault(app: DepositsApp) -> str:
    """Why the file store takes, gives or removes no files at present, as DOIs that wait for it say;
    empty: none does."""
    places = [(app.settings.route, stage) for stage in (METADATA, CONTENT, SUBMIT)]
    if app.settings.clean != "never":
        places.append((app.settings.clean_route, CLEAN))
    for route, stage in places:
        rows = app.items(route, statuses=[mp.Status.WAITING], stages=(stage,), limit=LISTED)
        # Those that the submission service has are due later than those that wait for the store.
        for row in sorted(rows, key=lambda row: str(row["due_at"]))[:STORE_WAITS]:
            note = (app.show(route, row["key"]) or {}).get("note")
            if isinstance(note, str) and any(fault in note for fault in STORE_FAULTS):
                return note
    return ""
