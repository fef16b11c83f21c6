"""A scene for tests of deposits: an inbox and a file store in a folder, a ledger, and a submission
that notes what it was given."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import milepost as mp
import milepost.application as mpa
from milepost_deposits.digest.collect import digests_route
from milepost_deposits.dspace.submission import Present
from milepost_deposits.files import Deposit
from milepost_deposits.intake import IntakeReport, take_in_lists
from milepost_deposits.rounds import RoundReport, run_round
from milepost_deposits.route import deposits_route
from milepost_deposits.settings import DepositsSettings, SubmitSettings
from milepost_deposits.status_names import word_of

SUBMIT = SubmitSettings(dspace="http://127.0.0.1:9/server", collection="123456789/2")


@dataclass
class NotedSubmission:
    """A submission that succeeds at once, and notes each deposit."""

    seen: list[Deposit] = field(default_factory=list)
    had: dict[str, Present] = field(default_factory=dict)
    """Items that DSpace has already, by DOI."""

    def ready(self) -> None:
        pass

    def present(self, doi: str) -> Present | None:
        return self.had.get(doi)

    def submit(self, deposit: Deposit, item: mp.Item) -> mp.Outcome:
        self.seen.append(deposit)
        return mp.Done({"handle": f"123456789/{len(self.seen)}"})

    def verify(self, deposit: Deposit, item: mp.Item) -> mp.Outcome | None:
        return None


def item_of(doi: str) -> mp.Item:
    """An item for a handler that is called without a ledger."""
    route = mp.Route("deposits", key="doi")
    route.external("metadata")
    with mp.open("memory:", routes=[route]) as ledger:
        ledger.submit("deposits", {"doi": doi})
        return ledger.context.ledger.get([("deposits", doi)])[0]  # type: ignore[return-value]


class DepositsScene:
    """`scene.deliver(...)`, `scene.take_in()`, `scene.ledger.run(...)`, and then look."""

    def __init__(self, folder: Path, ledger: str = "memory:", **settings: Any) -> None:
        self.inbox, self.files = folder / "inbox", folder / "files"
        self.inbox.mkdir(exist_ok=True)
        given: dict[str, Any] = {
            "content": "http://127.0.0.1:9/pdf/{doi}",
            "mailto": "library@example.org",
            "submit": SUBMIT,
        }
        given |= {
            "inbox": str(self.inbox),
            "files": str(self.files),
            "inbox_quiet": "0s",
            "allow_cidrs": ("127.0.0.0/8",),
        }
        self.settings = DepositsSettings(**(given | settings))
        self.submission = NotedSubmission()
        mails = [] if self.settings.mail is None else [digests_route(self.settings)]
        self.ledger = mp.open(
            ledger, routes=[deposits_route(self.settings, self.submission), *mails]
        )

    def __enter__(self) -> DepositsScene:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    def deliver(self, name: str, content: str | bytes, age_s: float = 60) -> Path:
        """A file that was written to the inbox so long ago."""
        path = self.inbox / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        facts = path.stat()
        os.utime(path, (facts.st_atime, facts.st_mtime - age_s))
        return path

    def take_in(self) -> IntakeReport:
        return take_in_lists(self.ledger, self.settings)

    def round(self) -> RoundReport:
        """One round, as `milepost deposits run` does it."""
        return run_round(self.app, lambda: self.ledger.run(until_idle=0))

    @property
    def app(self) -> mpa.AppContext[DepositsSettings]:
        return mpa.AppContext("deposits", self.settings, self.ledger.context)

    def row(self, doi: str) -> dict[str, Any]:
        found = self.ledger.show("deposits", doi)
        assert found is not None
        return found

    def word(self, doi: str) -> str:
        """The status of a DOI as librarians read it."""
        return word_of(self.row(doi)["status"])

    def keys(self) -> list[str]:
        return sorted(row["key"] for row in self.ledger.items("deposits", limit=100_000))

    def archived(self) -> list[str]:
        """The names of archived lists, without their reports."""
        return sorted(
            path.name
            for path in (self.inbox / "archived").rglob("*")
            if path.suffix != ".json" and path.is_file()
        )
