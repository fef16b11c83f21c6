"""The route of a DOI: metadata, content, submit; and the follow-up that removes its files."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import milepost as mp
from milepost.applications.deposits.deposit import accepts_deposit, deposit_of
from milepost.applications.deposits.doi_list import FIELD, doi_column, parse_input, parse_inputs
from milepost.applications.deposits.fetch.content import ContentStage
from milepost.applications.deposits.fetch.crossref import MetadataStage
from milepost.applications.deposits.files import FileStore
from milepost.applications.deposits.settings import CROSSREF, DepositsSettings
from milepost.applications.deposits.submission import Submission, open_submission

METADATA, CONTENT, SUBMIT = "metadata", "content", "submit"
UNTIL_NEXT_ROUND = "3650d"
"""Delay after a failure where rounds bring it forward: nothing falls due between two rounds."""
CROSSREF_RATE = "10/s"


def deposits_route(settings: DepositsSettings, submission: Submission | None = None) -> mp.Route:
    """The route of DOIs with these settings. The handlers connect to nothing before the first item."""
    files = FileStore(settings.files)
    route = mp.Route(settings.route, key=FIELD, parse=parse_input, parse_all=parse_inputs, key_column=doi_column)
    _stage(route, METADATA, settings)(MetadataStage(settings, files))
    _stage(route, CONTENT, settings)(ContentStage(settings, files))
    add_submit(route, settings, submission or open_submission(settings, files))
    if settings.clean != "never":
        route.then(clean_route(settings, files), clean_input)
    return route


def add_submit(route: mp.Route, settings: DepositsSettings, submission: Submission) -> None:
    """Add the submit stage: it submits, asks DSpace before a repeat whose predecessor's result is unknown, and takes results."""
    dss = settings.submit.dss
    submit = SubmitStage(submission)
    checks = mp.Checks(every="15m", up_to="6h", overdue=None if dss is None else dss.answer_within)
    # Rounds are far apart. In between a partner that is down for an hour would use up the tries of every DOI.
    breaker = mp.Breaker(failures=10, within="10m", cooldown="10m") if settings.mode == "continuous" else None
    _stage(route, SUBMIT, settings, verify=submit.verify, accepts=accepts_deposit, checks=checks, breaker=breaker)(submit)


class SubmitStage:
    """Handler of the submit stage. It gives the `Submission` a `Deposit`: the DOI, and name, place, size and checksums of the metadata
    file and of the PDF."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or a secret is missing."""
        self._submission.ready()

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self._submission.submit(deposit_of(item), item)

    def verify(self, item: mp.Item) -> mp.Outcome | bool | None:
        """Is the deposit in DSpace already? Runs before a repeat of a try whose result is unknown."""
        return self._submission.verify(deposit_of(item), item)


def clean_route(settings: DepositsSettings, files: FileStore) -> mp.Route:
    """The route that removes the files of deposited DOIs. Its rows leave at once."""
    route = mp.Route(f"{settings.route}-clean", key="doi", keep="0s", remember="1d")

    @route.stage("clean", retry=mp.Backoff(attempts=10, base="1m", cap="1d"))
    def clean(item: mp.Item) -> mp.Outcome:
        names = [item.input[CONTENT], *([item.input[METADATA]] if settings.clean == "all" else [])]
        for name in names:
            if name is not None:  # a DOI that was deposited by hand may have no PDF here
                files.remove(name)
        return mp.Done()

    return route


def clean_input(item: mp.Item, _at: datetime) -> dict[str, Any] | None:
    """The names of a deposited DOI's files; None if it has none, since it was deposited by hand."""
    names = {stage: item.results.get(stage, {}).get("file", {}).get("name") for stage in (METADATA, CONTENT)}
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
    return route.stage(name, retry=backoff(settings, name), concurrency=getattr(settings.concurrency, name), rate=rate, **more)
