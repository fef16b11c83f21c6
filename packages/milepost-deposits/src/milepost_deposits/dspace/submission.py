"""Submission to a DSpace server itself: judges the items that it has already, then makes item,
bundle and bitstream, and checks them."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NamedTuple

import milepost as mp
import milepost.application as mpa
from milepost_deposits.controls import LedgerControls
from milepost_deposits.dspace.api import (
    DSpace,
    DSpaceBitstream,
    DSpaceItem,
    Metadata,
    findable,
    open_dspace,
)
from milepost_deposits.dspace.errors import ChecksumMismatch, ClaimLost, DSpaceError, failed
from milepost_deposits.dspace.login import LoginHold
from milepost_deposits.dspace.record import SubmissionRecord, SubmissionRecords, next_step
from milepost_deposits.dspace.search import ItemSearch
from milepost_deposits.files import Deposit, FileStore, StoredFile, StoreFault
from milepost_deposits.metadata_form import in_form
from milepost_deposits.settings import DepositsSettings, check_settings

LEAST_S = 2.0
"""Seconds of its lease that a worker must have left when it begins to change DSpace."""
LOST_S = 120.0
"""Seconds until a DOI is looked at again whose claim was lost."""
ADDED_BY_DSPACE = frozenset(
    {"dc.date.accessioned", "dc.date.available", "dc.description.provenance", "dc.identifier.uri"}
)

log = logging.getLogger(__name__)


class Present(NamedTuple):
    """An item that DSpace has before its DOI is fetched: the output of the submit stage, and its
    title."""

    output: dict[str, Any]
    title: str


# Items that DSpace has already --------------------------------------------------------------------
def judge(dspace: DSpace, deposit: Deposit, items: Sequence[DSpaceItem]) -> mp.Outcome | None:
    """The outcome for the items that have the deposit's DOI. None: there are none, or all of them
    are hidden from searches."""
    public = [one for one in items if one.discoverable and not one.withdrawn]
    for item in public:
        files = dspace.files(item.uuid)
        if files:
            others = [one.name for one in public if one is not item]
            same = any(same_file(file, deposit.content) for file in files)
            return mp.Done(
                {**deposited(item, files), "found": True, "same_file": same, "others": others}
            )
    if public:
        return mp.Reject(
            f"DSpace has the item {public[0].name} of this DOI without a file; add the PDF there, then mark the DOI as deposited",
            category="INCOMPLETE_ITEM",
            details={"handle": public[0].handle, "uuid": public[0].uuid},
        )
    withdrawn = next((one for one in items if one.withdrawn), None)
    if withdrawn is not None:
        return mp.Reject(
            f"DSpace has withdrawn the item {withdrawn.name} of this DOI; reinstate it there and mark the DOI as deposited, or abandon it",
            category="WITHDRAWN",
            details={"handle": withdrawn.handle, "uuid": withdrawn.uuid},
        )
    return None


def present_item(dspace: DSpace, doi: str) -> Present | None:
    """The item that readers find in DSpace with a file; None: there is none, or the index does not
    show it. No PDF is compared."""
    public = [item for item in dspace.find(doi) if item.discoverable and not item.withdrawn]
    for item in public:
        files = dspace.files(item.uuid)
        if files:
            others = [other.name for other in public if other is not item]
            output = {**deposited(item, files), "found": True, "same_file": None, "others": others}
            return Present(output, next(iter(item.values("dc.title")), ""))
    return None


def hidden(item: DSpaceItem) -> mp.Reject:
    """The outcome for an item that is hidden from searches and that is not ours to change."""
    return mp.Reject(
        f"DSpace has the item {item.name} of this DOI, which is hidden from searches; publish it there and mark the DOI as deposited, or"
        " delete it and requeue the DOI",
        category="HIDDEN_ITEM",
        details={"handle": item.handle, "uuid": item.uuid},
    )


def is_half_made(
    item: DSpaceItem, files: Sequence[DSpaceBitstream], metadata: Metadata, name: str
) -> bool:
    """Is this hidden item one that an earlier try of ours left behind? It has just the metadata
    that we send, and no file but ours (`name`). An item that a librarian hides on purpose has more,
    or other values."""
    if item.discoverable or item.withdrawn or any(file.name != name for file in files):
        return False
    sent = {
        field: sorted(str(entry["value"]) for entry in entries)
        for field, entries in metadata.items()
    }
    found = {
        field: _values(entries)
        for field, entries in item.metadata.items()
        if field in sent or field not in ADDED_BY_DSPACE
    }
    for field in ADDED_BY_DSPACE & sent.keys():
        found[field] = [value for value in found.get(field, ()) if value in sent[field]]
    return found == sent


def _values(entries: Any) -> list[str]:
    return (
        sorted(str(entry.get("value")) for entry in entries if isinstance(entry, dict))
        if isinstance(entries, list)
        else []
    )


def deposited(item: DSpaceItem, files: list[DSpaceBitstream]) -> dict[str, Any]:
    """The output of the submit stage for an item in DSpace."""
    stored = [
        {"name": one.name, "uuid": one.uuid, "checksum": one.checksum, "algorithm": one.algorithm}
        for one in files
    ]
    return {
        "handle": item.handle,
        "uuid": item.uuid,
        "last_modified": item.last_modified,
        "files": stored,
        "via": "dspace",
    }


def same_file(stored: DSpaceBitstream, sent: StoredFile) -> bool:
    """Has DSpace stored the bytes that were sent? Its checksum is MD5; where it gives none, the
    size must do."""
    if stored.checksum is not None and (stored.algorithm or "MD5").upper() == "MD5":
        return stored.checksum.lower() == sent.md5
    return stored.size == sent.size


# The submission -----------------------------------------------------------------------------------
class BlobBody:
    """A stored file as the body of a request, read while it is sent."""

    content_type = None

    def __init__(self, files: FileStore, file: StoredFile) -> None:
        self._files, self._file = files, file

    @property
    def length(self) -> int:
        """How many bytes the file has."""
        return self._file.size

    def pieces(self) -> Iterator[bytes]:
        yield from self._files.read(self._file)


class DSpaceSubmission:
    """Deposits through DSpace's REST API.

    An item is made hidden from searches, gets its PDF, and is published when DSpace's checksum is
    that of the file. If a step fails, the half-made item is deleted; if that fails too, the next
    try finds it by its DOI and completes it.
    """

    def __init__(
        self,
        settings: DepositsSettings,
        files: FileStore,
        controls: LedgerControls | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
        timeout: float | None = None,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._settings, self._files = settings, files
        self._controls = controls or LedgerControls(settings)
        self._sleep = sleep
        self._environment = os.environ if environment is None else environment
        self._now = now
        self._apart_s = mpa.span_ms(settings.submit.apart, "[deposits.submit] apart") / 1000
        self._timeout = timeout
        self._records = SubmissionRecords(files)

    @cached_property
    def dspace(self) -> DSpace:
        """The client, made at the first use."""
        guard = LoginHold(self._settings, self._controls)
        url = self._settings.submit.dspace or ""
        return open_dspace(
            self._settings,
            self._environment,
            url,
            now=self._now,
            timeout=self._timeout,
            guard=guard,
        )

    @cached_property
    def _search(self) -> ItemSearch:
        return ItemSearch(
            self.dspace, self._settings, self._controls, apart_s=self._apart_s, now=self._now
        )

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting or a secret is missing."""
        check_settings(self._settings, self._environment)

    def present(self, doi: str) -> Present | None:
        """The item that DSpace has of a DOI, before anything is fetched."""
        return present_item(self.dspace, doi)

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        """Deposit once, unless DSpace has the item. After an error that leaves it open whether
        DSpace has made the item, the first of the two searches follows at once."""
        with self._claimed(item):
            outcome = attempted(lambda: self._found(deposit) or self._make(deposit, item))
            if isinstance(outcome, mp.Retry) and outcome.unknown:
                return self._first_search(deposit, item) or outcome
            return outcome

    def _first_search(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | None:
        """Done if DSpace shows the item already. None: it does not, which is on record then, or it
        does not answer."""
        try:
            found = self._found(deposit)
            if found is None:
                check_claim(self._controls, item)
                self._records.put(deposit.doi, SubmissionRecord(absent_since=self._now()))
        except (DSpaceError, ClaimLost, OSError) as error:
            log.warning(
                "%s: DSpace could not be searched after the failed try, and the next one does: %s",
                deposit.doi,
                error,
            )
            return None
        return found if isinstance(found, mp.Done) else None

    def verify(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | None:
        """Done with the item that DSpace has; None when it is certain that DSpace has none."""
        with self._claimed(item):
            found = self._found(deposit)
        if found is not None:
            self._records.remove(deposit.doi)
            return found
        step = next_step(self._records.get(deposit.doi), self._now(), apart_s=self._apart_s)
        if step.step == "again":
            self._records.remove(deposit.doi)
            return None
        # It is the record of the last submission: another worker may have made one since.
        check_claim(self._controls, item)
        self._records.put(deposit.doi, step.record)
        return mp.NotYet(after=step.after_s, unknown=True, note=step.why)

    def _claimed(self, item: mp.Item) -> AbstractContextManager[None]:
        """Let this thread change DSpace only while the claim of the item holds."""
        return self.dspace.session.guarded(lambda: check_claim(self._controls, item))

    def _found(self, deposit: Deposit) -> mp.Outcome | None:
        """The outcome for an item that DSpace has already; our own half-made one is completed
        first."""
        items = self._search.items(deposit.doi)
        outcome = judge(self.dspace, deposit, items)
        if outcome is not None or not items:
            return outcome
        metadata = self._metadata(deposit)
        ours = next(
            (
                one
                for one in items
                if is_half_made(
                    one, self.dspace.files(one.uuid), metadata, deposit.content.bitstream
                )
            ),
            None,
        )
        return hidden(items[0]) if ours is None else self._complete(deposit, ours)

    def _metadata(self, deposit: Deposit) -> Metadata:
        return findable(
            in_form(self._files.read_json(deposit.metadata), "dspace8"),
            deposit.doi,
            self._settings.submit.doi_fields,
        )

    def _make(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        collection, metadata = (
            self.dspace.collection(self._settings.submit.collection),
            self._metadata(deposit),
        )
        # A file that cannot be read is no reason to make an item and to delete it again.
        self._files.check_readable(deposit.content)
        # A search that found nothing before this submission says nothing about it.
        self._records.remove(deposit.doi)
        made = self.dspace.create(
            collection, deposit.title or deposit.doi, metadata, discoverable=False
        )
        try:
            outcome = self._complete(deposit, made, new=True)
            if item.losses and isinstance(outcome, mp.Done):
                self._remove_twins(deposit, made, metadata)
            return outcome
        except ClaimLost:
            self._step_back(deposit, item, made)
            raise

    def _remove_twins(self, deposit: Deposit, made: DSpaceItem, metadata: Metadata) -> None:
        """Delete half-made items of workers that were lost with this DOI, and that woke up in the
        meantime."""
        for twin in self.dspace.find(deposit.doi):
            if twin.uuid != made.uuid and is_half_made(
                twin, self.dspace.files(twin.uuid), metadata, deposit.content.bitstream
            ):
                self.dspace.delete(twin.uuid)

    def _step_back(self, deposit: Deposit, item: mp.Item, made: DSpaceItem) -> None:
        """Delete the item that this worker has made after its claim was lost, if another worker has
        made one too. Without a twin it stays: the other worker has completed it, or finds it with
        its next search."""
        with self.dspace.session.guarded(lambda: None):
            result = self._controls.result(item)
            if result is None:
                # The other worker may have made its item a moment ago: the index shows it by then.
                self._sleep(self._apart_s)
                result = self._controls.result(item)
            if result is not None and made.uuid == result.get("uuid"):
                return
            if result is not None or any(
                one.uuid != made.uuid for one in self.dspace.find(deposit.doi)
            ):
                self.dspace.delete(made.uuid)
                log.warning(
                    "%s: this worker was stopped for longer than its lease; the item %s that it made is deleted",
                    item.key,
                    made.uuid,
                )

    def _complete(self, deposit: Deposit, item: DSpaceItem, *, new: bool = False) -> mp.Outcome:
        """Give a hidden item its PDF, check it, and publish it. An item that cannot be completed is
        deleted. `new`: it has no file."""
        try:
            wanted = deposit.content
            bundle = self.dspace.new_bundle(item.uuid) if new else self.dspace.bundle(item.uuid)
            files = [] if new else self.dspace.bitstreams(bundle)
            stored = next((one for one in files if one.name == wanted.bitstream), None)
            if stored is None:
                stored = self.dspace.upload(bundle, wanted.bitstream, BlobBody(self._files, wanted))
            if not same_file(stored, wanted):
                sizes = f"DSpace has stored {stored.size} bytes with checksum {stored.checksum}"
                raise ChecksumMismatch(
                    f"{sizes}; the PDF has {wanted.size} bytes and MD5 {wanted.md5}"
                )
        except (DSpaceError, OSError) as error:
            return self._undo(item, error)
        try:
            published = self.dspace.publish(item.uuid)
        except DSpaceError as error:
            # It is whole, and may be public by now: the next try finds it and publishes it if need
            # be.
            return failed(
                f"the item could not be published: {error}",
                error,
                {"uuid": item.uuid, "handle": item.handle},
                left=True,
            )
        return mp.Done(deposited(published, [stored]))

    def _undo(self, item: DSpaceItem, error: DSpaceError | OSError) -> mp.Outcome:
        """Delete a half-made item. Where that fails its UUID is kept with the error, and the next
        try begins with a search."""
        details: dict[str, Any] = {"uuid": item.uuid, "handle": item.handle}
        try:
            self.dspace.delete(item.uuid)
        except DSpaceError as fault:
            details["left_behind"] = str(fault)
        return failed(
            f"the item could not be completed: {error}",
            error,
            details,
            left="left_behind" in details,
        )


def check_claim(controls: LedgerControls, item: mp.Item) -> None:
    """Raise ClaimLost unless the claim of the item holds for long enough to begin a request."""
    left = controls.claim_left(item)
    if left < LEAST_S:
        raise ClaimLost(
            f"the claim of {item.key} was lost before its next step: this process was stopped for longer than its lease"
        )


def attempted(act: Callable[[], mp.Outcome]) -> mp.Outcome:
    """The outcome of an act, or of the error that it raises. A StoreFault is raised: it says
    nothing about the deposit."""
    try:
        return act()
    except StoreFault:
        raise
    except ClaimLost as lost:
        # Where the claim is another worker's, the ledger refuses this outcome, and notes it in the
        # history.
        return mp.NotYet(after=LOST_S, unknown=True, note=str(lost))
    except DSpaceError as error:
        return failed(str(error), error, left=error.unknown)
    except OSError as error:
        return failed(f"a file of the deposit cannot be read: {error}", error, left=False)
    except Exception as error:
        # Not foreseen: it is not known how far the act got.
        said = f"{type(error).__name__}: {error}"
        return mp.Retry(
            said,
            category="EXCEPTION",
            unknown=True,
            traceback="".join(traceback.format_exception(error)),
        )
