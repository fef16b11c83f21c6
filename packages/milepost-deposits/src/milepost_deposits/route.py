"""The route of a DOI: metadata, content, submit; and the follow-up that removes its files."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Protocol

import milepost as mp
from milepost_deposits.controls import LedgerControls, LimitedStage, StageLimit
from milepost_deposits.doi import FIELD, doi_column, normalise_all, parse_input
from milepost_deposits.dspace.errors import ClaimLost, DSpaceError, failed
from milepost_deposits.dspace.submission import DSpaceSubmission, Present
from milepost_deposits.dss.submission import DssSubmission
from milepost_deposits.fetch.content import ContentStage
from milepost_deposits.fetch.metadata import MetadataStage
from milepost_deposits.files import (
    LATER,
    Deposit,
    FileStore,
    StoreFault,
    accepts_deposit,
    accepts_file,
    deposit_of,
)
from milepost_deposits.settings import CROSSREF, DepositsSettings
from milepost_deposits.status_names import CLEAN, CONTENT, METADATA, PRESENT, SUBMIT, result_in

UNTIL_NEXT_ROUND = "3650d"
"""Delay after a failure where rounds bring it forward: nothing falls due between two rounds."""
CROSSREF_RATE = "10/s"
SILENCE_S = 60.0
"""Seconds for which a DSpace that did not answer is not asked before fetches."""

log = logging.getLogger(__name__)


class Submission(Protocol):
    """A way to submit deposits: to DSpace itself, or to the DSpace Submission Service."""

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting or a secret is missing."""

    def present(self, doi: str) -> Present | None:
        """The item that DSpace has of a DOI already, with a file; None: none is known."""

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        """Submit once. `item.work_id` is the same for every try of this deposit."""

    def verify(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | bool | None:
        """Is it in DSpace already? Done(…) or True: yes. False or None: no, submit it. An
        exception: not known, try later."""


def open_submission(
    settings: DepositsSettings, files: FileStore, controls: LedgerControls | None = None
) -> Submission:
    """The submission that [deposits.submit] asks for. It connects to nothing before the first
    item."""
    kind = DSpaceSubmission if settings.submit.dss is None else DssSubmission
    return kind(settings, files, controls=controls)


def deposits_route(
    settings: DepositsSettings,
    submission: Submission | None = None,
    controls: LedgerControls | None = None,
) -> mp.Route:
    """The route of DOIs with these settings. The handlers connect to nothing before the first item.
    `controls` are those of the ledger, once it is open."""
    files, controls = FileStore(settings.files), controls or LedgerControls(settings)

    def column(lines: list[str]) -> mp.KeyColumn | None:
        return doi_column(lines, settings.doi_column)

    route = mp.Route(
        settings.route, key=FIELD, parse=parse_input, parse_keys=normalise_all, key_column=column
    )
    submission = submission or open_submission(settings, files, controls)
    metadata = LimitedStage(MetadataStage(settings, files), StageLimit(controls, METADATA))
    content = LimitedStage(ContentStage(settings, files), StageLimit(controls, CONTENT))
    _stage(route, METADATA, settings, accepts=accepts_file)(
        FirstSearch(metadata, submission, controls)
    )
    _stage(route, CONTENT, settings, accepts=accepts_file)(UnlessPresent(content))
    add_submit(route, settings, submission, controls)
    if settings.clean != "never":
        route.then(clean_route(settings, files), clean_input)
    return route


def add_submit(
    route: mp.Route,
    settings: DepositsSettings,
    submission: Submission,
    controls: LedgerControls | None = None,
) -> None:
    """Add the submit stage: it submits, asks DSpace before a repeat whose predecessor's result is
    unknown, and takes results."""
    dss = settings.submit.dss
    submit = SubmitStage(submission, StageLimit(controls or LedgerControls(settings), SUBMIT))
    checks = mp.Checks(every="15m", up_to="6h", overdue=None if dss is None else dss.answer_within)
    # Rounds are far apart. In between a partner that is down for an hour would use up the tries of
    # every DOI.
    breaker = (
        mp.Breaker(failures=10, within="10m", cooldown="10m")
        if settings.mode == "continuous"
        else None
    )
    _stage(
        route,
        SUBMIT,
        settings,
        verify=submit.verify,
        accepts=accepts_deposit,
        checks=checks,
        breaker=breaker,
    )(submit)


class FirstSearch:
    """Handler of the metadata stage that asks DSpace before Crossref: nothing is fetched for a DOI
    that readers find there. Where DSpace does not answer, the fetch goes on: it is asked again
    before a deposit."""

    def __init__(
        self, fetch: LimitedStage, submission: Submission, controls: LedgerControls
    ) -> None:
        self._fetch, self._submission, self._controls = fetch, submission, controls
        self._silent_until = 0.0

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or a secret is
        missing."""
        self._fetch.ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        present = self._present(item.key)
        return (
            self._fetch(item)
            if present is None
            else mp.Done({PRESENT: present.output, "title": present.title})
        )

    def _present(self, doi: str) -> Present | None:
        if self._controls.now() < self._silent_until:
            return None
        try:
            return self._submission.present(doi)
        except (DSpaceError, OSError, mp.ConfigMistake) as error:
            log.warning("DSpace was not asked for %s before it is fetched: %s", doi, error)
            self._silent_until = self._controls.now() + SILENCE_S
            return None


class UnlessPresent:
    """Handler of the content stage that fetches nothing for a DOI that DSpace has."""

    def __init__(self, fetch: LimitedStage) -> None:
        self._fetch = fetch

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting is missing."""
        self._fetch.ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self._fetch(item) if present_in(item) is None else mp.Done({PRESENT: True})


def present_in(item: mp.Item) -> dict[str, Any] | None:
    """The item that DSpace had before the DOI was fetched, as the output of the submit stage; None:
    it had none."""
    present = result_in({"results": item.results}, METADATA).get(PRESENT)
    return present if isinstance(present, dict) else None


class SubmitStage:
    """Handler of the submit stage. It gives the `Submission` a `Deposit`: the DOI, and name, place,
    size and checksums of the metadata file and of the PDF."""

    def __init__(self, submission: Submission, limit: StageLimit) -> None:
        self._submission, self._limit = submission, limit

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or a secret is
        missing."""
        self._submission.ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        present = present_in(item)
        if present is not None:
            return mp.Done(present)
        deposit = deposit_of(item)
        if deposit is None:
            said = "it has no stored metadata or no PDF: a stage before was skipped, or confirmed without a file; deposit it by hand"
            return mp.Reject(said, category="NO_FILES")
        try:
            return self._limit.judged(self._submission.submit(deposit, item))
        except StoreFault as fault:
            # A file could not be read, or its record not be written, so nothing was sent.
            return mp.NotYet(after=LATER, unknown=item.unknown, note=str(fault))

    def verify(self, item: mp.Item) -> mp.Outcome | bool | None:
        """Is the deposit in DSpace already? Runs before a repeat of a try whose result is unknown.
        An error leaves it unknown."""
        deposit = deposit_of(item)
        if deposit is None:
            return None
        try:
            found = self._submission.verify(deposit, item)
        except (StoreFault, ClaimLost) as fault:
            # Neither the DOI nor DSpace is at fault: no try is counted.
            return mp.NotYet(after=LATER, unknown=True, note=str(fault))
        except DSpaceError as error:
            waits = self._limit.judged(failed(str(error), error, left=True))
            if isinstance(waits, mp.Retry):
                raise
            return waits
        return self._limit.judged(found) if isinstance(found, mp.Retry) else found


def clean_route(settings: DepositsSettings, files: FileStore) -> mp.Route:
    """The route that removes the files of deposited DOIs. Its rows leave at once."""
    route = mp.Route(settings.clean_route, key="doi", keep="0s", remember="1d")

    @route.stage(
        CLEAN,
        retry=mp.Backoff(attempts=10, base="1m", cap="1d"),
        checks=mp.Checks(every="15m", up_to="6h", overdue="1d"),
    )
    def clean(item: mp.Item) -> mp.Outcome:
        names = [item.input[CONTENT], *([item.input[METADATA]] if settings.clean == "all" else [])]
        try:
            for name in names:
                if name is not None:  # a DOI that was deposited by hand may have no PDF here
                    files.remove(name)
        except StoreFault as fault:
            return mp.NotYet(note=str(fault))
        return mp.Done()

    return route


def clean_input(item: mp.Item, _at: datetime) -> dict[str, Any] | None:
    """The names of a deposited DOI's files; None if it has none, since it was deposited by hand."""
    view = {"results": item.results}
    names = {
        stage: result_in(view, stage).get("file", {}).get("name") for stage in (METADATA, CONTENT)
    }
    return {"doi": item.key, **names} if any(names.values()) else None


def backoff(settings: DepositsSettings, stage: str) -> mp.Backoff:
    """Threshold and delays of a stage's failed tries."""
    attempts = getattr(settings.attempts, stage)
    if settings.mode == "rounds":
        return mp.Backoff(attempts=attempts, base=UNTIL_NEXT_ROUND, cap=UNTIL_NEXT_ROUND, jitter=0)
    return mp.Backoff(attempts=attempts, base="5m", factor=4, cap="1d")


def _stage(route: mp.Route, name: str, settings: DepositsSettings, **more: Any) -> Any:
    rate = getattr(settings.rates, name)
    if rate is None and name == METADATA and settings.crossref == CROSSREF:
        rate = CROSSREF_RATE
    together = getattr(settings.concurrency, name)
    return route.stage(
        name, retry=backoff(settings, name), concurrency=together, rate=rate, pauses=True, **more
    )
