"""`python -m milepost_deposits.standins`: all partners of deposits on this machine, for a first
try.

Crossref answers at port 9101, the publisher at 9102, DSpace at 9103. They know every DOI, except
those that end in "no-record" (Crossref) and "no-pdf" (the publisher). A mail server at port 2525
keeps each mail as a file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from milepost_deposits.standins.dspace import COLLECTION, PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn
from milepost_testing.http_standin import handle_signals


@contextmanager
def partners(
    crossref: int, publisher: int, dspace: int
) -> Iterator[tuple[CrossrefStandIn, PublisherStandIn, DSpaceStandIn]]:
    """The three stand-ins at these ports, with the DOIs that fail."""
    with (
        CrossrefStandIn(port=crossref, everything=True) as records,
        PublisherStandIn(port=publisher, everything=True) as pdfs,
        DSpaceStandIn(port=dspace) as repository,
    ):
        records.fail("status", 404, where="GET /works/*no-record", body=b"Resource not found.")
        pdfs.fail("html", where="GET /pdf/*no-pdf")
        yield records, pdfs, repository


def _report(file: Path, subject: str) -> None:
    print(f"a mail came: {subject} ({file})", file=sys.stderr, flush=True)


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m milepost_deposits.standins", description=__doc__
    )
    for name, port in (("crossref", 9101), ("publisher", 9102), ("dspace", 9103), ("smtp", 2525)):
        parser.add_argument(
            f"--{name}",
            type=int,
            default=port,
            metavar="PORT",
            help=f"default {port}; 0 takes a free one",
        )
    parser.add_argument(
        "--mails",
        type=Path,
        default=Path("mails"),
        metavar="FOLDER",
        help="for mails; default mails",
    )
    given = parser.parse_args(args)
    until_signal = handle_signals()
    with (
        partners(given.crossref, given.publisher, given.dspace) as (crossref, publisher, dspace),
        MailboxStandIn(given.mails, port=given.smtp, seen=_report) as mailbox,
    ):
        lines = (
            ("crossref", crossref.url),
            ("content", publisher.template),
            ("dspace", dspace.url),
            ("smtp", mailbox.url),
        )
        print("\n".join(f'{name} = "{address}"' for name, address in lines), flush=True)
        print(
            f"collection {COLLECTION}; DSPACE_USER={USER} DSPACE_PASSWORD={PASSWORD}; Ctrl-C ends it",
            file=sys.stderr,
            flush=True,
        )
        until_signal()
    return 0


if __name__ == "__main__":
    sys.exit(main())
