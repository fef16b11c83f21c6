"""A folder with the smallest configuration of deposits, in which commands run as people type
them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.command_processes import command_processes
from tests.cli.commands import Answer
from tests.deposits.test_deposits_settings import SAMPLE

from milepost_deposits.standins.dspace import PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn


class Folder:
    """`folder("run")` is `milepost deposits run` there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("MILEPOST")
        }
        self.env |= {"DSPACE_USER": USER, "DSPACE_PASSWORD": PASSWORD}

    def __call__(self, *words: str) -> Answer:
        return command_processes().run(["deposits", *words], self.path, self.env, None, timeout=120)


def sample_folder(
    path: Path,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    dspace: DSpaceStandIn,
    mailbox: MailboxStandIn,
) -> Folder:
    """The configuration of the guide, with the addresses of these partners, and an empty inbox."""
    text = f'applications = ["deposits"]\n{SAMPLE}'
    for port, origin in {
        "9101": crossref.origin,
        "9102": publisher.origin,
        "9103": dspace.origin,
    }.items():
        text = text.replace(f"http://127.0.0.1:{port}", origin)
    text = text.replace("smtp://127.0.0.1:2525", mailbox.url)
    (path / "milepost.toml").write_text(
        text.replace('inbox = "inbox"', 'inbox = "inbox"\ninbox_quiet = "0s"')
    )
    (path / "inbox").mkdir()
    return Folder(path)
