"""Submission of a deposit: the interface of the submit stage, and the one that the settings choose."""

from __future__ import annotations

from typing import Protocol

import milepost as mp
from milepost.applications.deposits.controls import LedgerControls
from milepost.applications.deposits.deposit import Deposit
from milepost.applications.deposits.files import FileStore
from milepost.applications.deposits.settings import DepositsSettings


class Submission(Protocol):
    """A way to submit deposits: to DSpace itself, or to the DSpace Submission Service."""

    def ready(self) -> None:
        """Raises mp.ConfigMistake if a setting or a secret is missing."""

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        """Submit once. `item.work_id` is the same for every try of this deposit."""

    def verify(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | bool | None:
        """Is it in DSpace already? Done(…) or True: yes. False or None: no, submit it. An exception: not known, try later."""


def open_submission(settings: DepositsSettings, files: FileStore, controls: LedgerControls | None = None) -> Submission:
    """The submission that [deposits.submit] asks for. It connects to nothing before the first item."""
    if settings.submit.dss is not None:
        from milepost.applications.deposits.dss.submission import DssSubmission

        return DssSubmission(settings, files, controls=controls)
    from milepost.applications.deposits.dspace.submission import DSpaceSubmission

    return DSpaceSubmission(settings, files, controls=controls)
