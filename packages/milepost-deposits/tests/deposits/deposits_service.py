"""A service for tests of the pages of deposits: the application on a ledger, its HTTP server, and
stand-ins for all partners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.http.server.assembly import HttpServer
from milepost_deposits.application import application
from milepost_deposits.rounds import RoundReport, run_round
from milepost_deposits.settings import DepositsApp
from milepost_deposits.standins.__main__ import partners
from milepost_deposits.standins.dspace import COLLECTION, PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn

DEPOSITED, NO_PDF, NO_RECORD, UNKNOWN = (
    "10.1002/abc.1",
    "10.1002/x.no-pdf",
    "10.1002/y.no-record",
    "10.1002/abc.7",
)


@dataclass
class DepositsService:
    """`service.deliver(…)`, `service.round()`, and then look at `service.url`."""

    milepost: mp.Milepost
    app: DepositsApp
    url: str
    inbox: Path
    dspace: DSpaceStandIn
    mailbox: MailboxStandIn

    def deliver(self, *dois: str) -> None:
        (self.inbox / "list.csv").write_text("".join(f"{doi}\n" for doi in dois))

    def round(self) -> RoundReport:
        return run_round(self.app, lambda: self.milepost.run(until_idle=0))


@contextmanager
def deposits_service(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> Iterator[DepositsService]:
    """The service with its data in this folder; a DOI ending in no-pdf or no-record fails at its
    first try."""
    monkeypatch.setenv("DSPACE_USER", USER)
    monkeypatch.setenv("DSPACE_PASSWORD", PASSWORD)
    inbox = folder / "inbox"
    inbox.mkdir()
    with (
        partners(0, 0, 0) as (crossref, publisher, dspace),
        MailboxStandIn(folder / "mails") as mailbox,
    ):
        given: dict[str, Any] = {
            "inbox": str(inbox), "inbox_quiet": "0s", "files": str(folder / "files"), "full_lists": False,
            "crossref": crossref.url, "content": publisher.template, "allow_cidrs": ["127.0.0.0/8"], "mailto": "library@example.org",
            "attempts": {"metadata": 1, "content": 1, "submit": 1},
            "submit": {"dspace": dspace.url, "collection": COLLECTION, "site": "https://dspace.example.org"},
            "mail": {"smtp": mailbox.url, "sender": "deposits@example.org", "to": ["librarian@example.org"]},
        }  # fmt: skip
        configured = application.configured(given | settings, environment={})
        with mp.open(f"sqlite:///{folder}/milepost.db", applications=[configured]) as milepost:
            server = HttpServer(milepost.context, "127.0.0.1", 0, applications=[configured])
            server.open()
            try:
                yield DepositsService(
                    milepost, configured.on(milepost.context), server.url, inbox, dspace, mailbox
                )
            finally:
                server.close()


def with_manual_deposits(service: DepositsService) -> None:
    """One DOI deposited, and three that need a manual deposit: no PDF, no record, and a submission
    whose result is unknown."""
    service.deliver(DEPOSITED, NO_PDF, NO_RECORD)
    service.round()
    service.dspace.fail("status", 500, where="POST */core/items", times=1)
    service.deliver(UNKNOWN)
    service.round()
