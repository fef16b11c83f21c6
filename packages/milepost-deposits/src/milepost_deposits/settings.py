"""Settings of deposits: the table [deposits] of milepost.toml, and what is missing in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import milepost as mp
import milepost.application as mpa
from milepost_deposits.doi import doi_or_none

_FIELD = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){1,2}")
CROSSREF = "https://api.crossref.org"
MB = 1_000_000


class AttemptSettings(mpa.AppSettings, frozen=True):
    """Threshold of each stage: when so many tries have failed, the DOI needs a manual deposit."""

    metadata: int = 3
    content: int = 3
    submit: int = 3


class ConcurrencySettings(mpa.AppSettings, frozen=True):
    """Most calls of a stage at once, in each process. (Crossref's polite pool allows three. DSpace
    waits for its index at each write: more than a few at once make it slower.)"""

    metadata: int = 3
    content: int = 8
    submit: int = 3


class RateSettings(mpa.AppSettings, frozen=True):
    """Most calls of a stage in a time, over all processes, such as "10/s"."""

    metadata: str | None = None
    content: str | None = None
    submit: str | None = None


class DssSettings(mpa.AppSettings, frozen=True):
    """The DSpace Submission Service: `queue` takes submit messages, `results` brings result
    messages (each a name or a URL). `system` and `source` are SubmissionSystem and
    SubmissionSource. `metadata` is the form of the metadata file that the service reads: "dspace8"
    if it hands the file to DSpace as it is, as it has done since August 2026, "old" before.

    A deposit without a result after `answer_within` is reported as stuck, and DSpace is searched.
    `apart` is the time between the two searches that must not find it before it is sent again."""

    queue: str
    results: str
    system: str
    source: str
    metadata: Literal["old", "dspace8"] | None = None
    answer_within: str = "2d"
    apart: str = "15m"

    @property
    def form(self) -> Literal["old", "dspace8"]:
        """The form of the metadata file; where the setting is left out, that of today's service."""
        return self.metadata or "dspace8"


class SubmitSettings(mpa.AppSettings, frozen=True):
    """The table [deposits.submit]: either `dspace`, the address of a DSpace 7+ server, or `dss`.
    `search` is the address of the DSpace server that the `verify` probe searches; with `dspace` it
    is that one. Secrets are in the environment, in the variables named."""

    dspace: str | None = None
    dss: DssSettings | None = None
    search: str | None = None
    site: str = ""
    """Address of DSpace's own pages, such as https://dspace.example.org, to which the dashboard's
    pages link."""
    collection: str = ""
    apart: str = "2m"
    """Time between the two searches that must not find a DOI in DSpace before it is deposited there
    again, where the result of the last try is unknown: more than its index is ever behind. With
    `dss` it is `dss.apart`."""
    doi_fields: tuple[str, ...] = (
        "dc.identifier.doi",
        "dc.relation.isversionof",
        "dc.identifier.uri",
    )
    """Metadata fields of DSpace that may hold an article's DOI: a DOI in another field is not
    found, and gets a second item."""
    canary: str = ""
    """A DOI that DSpace has, and keeps. A search that does not find it says nothing about other
    DOIs. It is needed only where Milepost knows no item of DSpace: no deposit of its own, and no
    login of an administrator, who may list items."""
    user_env: str = "DSPACE_USER"
    password_env: str = "DSPACE_PASSWORD"


class MailSettings(mpa.AppSettings, frozen=True):
    """The table [deposits.mail]: where digests go. `smtp` is smtp://HOST:PORT; `ses` is a region of
    Amazon SES instead. The password of an SMTP user is in the environment variable `password_env`.
    `owners` are the addresses for DOIs that begin with a prefix, such as "10.1002"; all others go
    to `to`. In continuous mode a digest is sent `every` so often; in rounds, after each run. The
    `first` digest of a ledger begins so long ago: what happened earlier is not mailed. `dashboard`
    is the URL at which people open the dashboard: digests then link to the page of manual
    deposits."""

    smtp: str | None = None
    ses: str | None = None
    password_env: str | None = None
    sender: str = ""
    to: tuple[str, ...] = ()
    owners: dict[str, tuple[str, ...]] = {}
    every: str = "1d"
    first: str = "7d"
    dashboard: str = ""


class DepositsSettings(mpa.AppSettings, frozen=True):
    """The table [deposits] of milepost.toml; see docs/guides/deposits.md."""

    content: str = ""
    """URL of a PDF; {doi} stands for the DOI, {doi_encoded} for the DOI with its slashes as %2F."""
    mailto: str = ""
    """Your address, by which Crossref's polite pool knows you."""
    route: str = "deposits"
    mode: Literal["rounds", "continuous"] = "rounds"
    """"rounds": a failure waits for the next `milepost deposits run`. "continuous": `milepost up`
    tries again by itself, with backoff."""
    inbox: str = "inbox"
    """Folder, or s3://BUCKET/PREFIX, into which lists of DOIs are delivered."""
    inbox_quiet: str = "2s"
    """A file in a folder is taken in when it was last written to so long ago: its sender may not
    have finished."""
    doi_column: str = ""
    """Name of the column with the DOIs in the first line of lists; left out, it is found by its
    name and by its content."""
    full_lists: bool = True
    """Is each list the whole master list? Then DOIs that vanished from it are reported."""
    files: str = "files"
    """Folder, or s3://BUCKET/PREFIX, for metadata files and PDFs."""
    clean: Literal["never", "content", "all"] = "content"
    """Files to remove once the DOI is deposited: none, the PDF, or PDF and metadata."""
    crossref: str = CROSSREF
    content_redirects: tuple[str, ...] = ()
    """Hosts to which the publisher may redirect, such as "*.example.org"."""
    content_largest: int = 500 * MB
    """Largest PDF in bytes."""
    content_end: bool = True
    """Must a PDF end with the mark %%EOF? Without it a file may have been cut on the way. False:
    this publisher's files lack it."""
    content_headers: dict[str, str] = {}
    """Further headers for the publisher, each with the environment variable that holds its value,
    such as a token. They go to the publisher's own host alone, and their values are never shown."""
    user_agent: str = "Mozilla/5.0 (compatible; milepost)"
    """User-Agent for the publisher: some refuse clients that do not look like a browser."""
    markup: Literal["keep", "strip"] = "keep"
    """What becomes of markup in texts of Crossref, such as <i> or &amp;: "keep" hands it to DSpace
    as it is, "strip" leaves the text alone."""
    mapping: dict[str, str] = {}
    """Changes to the mapping: from a Crossref key to a DSpace field; an empty field leaves the key
    out."""
    attempts: AttemptSettings = AttemptSettings()
    concurrency: ConcurrencySettings = ConcurrencySettings()
    rates: RateSettings = RateSettings()
    allow_cidrs: tuple[str, ...] = ()
    submit: SubmitSettings = SubmitSettings()
    mail: MailSettings | None = None

    @property
    def clean_route(self) -> str:
        """The route that removes the files of deposited DOIs."""
        return f"{self.route}-clean"

    @property
    def digests_route(self) -> str:
        """The route of the mails."""
        return f"{self.route}-digests"

    @property
    def metadata_form(self) -> Literal["old", "dspace8"]:
        """Form of the metadata file: DSpace's own REST form, unless the submission service wants
        the old one."""
        return "dspace8" if self.submit.dss is None else self.submit.dss.form


DepositsApp = mpa.AppContext[DepositsSettings]


def missing_settings(settings: DepositsSettings) -> list[str]:
    """Fields of milepost.toml that must be set and are not, all at once."""
    submit = settings.submit
    wanted: dict[str, object] = {
        "[deposits] content": settings.content,
        "[deposits] mailto": settings.mailto,
        "[deposits.submit] dspace or dss": submit.dspace or submit.dss,
        "[deposits.submit] collection": submit.collection,
    }
    if submit.dss is not None:
        wanted["[deposits.submit] search"] = submit.search
    if settings.mail is not None:
        wanted["[deposits.mail] smtp or ses"] = settings.mail.smtp or settings.mail.ses
        wanted["[deposits.mail] sender"] = settings.mail.sender
        wanted["[deposits.mail] to"] = settings.mail.to
    return [field for field, value in wanted.items() if not value]


def check_settings(
    settings: DepositsSettings, environment: Mapping[str, str] | None = None
) -> None:
    """Raise one ConfigMistake that names everything that is missing or contradicts itself; without
    an environment, in milepost.toml."""
    wrong = [f"{field} is missing" for field in missing_settings(settings)]
    if settings.submit.dspace and environment is not None:
        named = (settings.submit.user_env, settings.submit.password_env)
        wrong += [
            f"the environment variable {name} is not set"
            for name in named
            if not environment.get(name)
        ]
    if settings.submit.dspace and settings.submit.dss:
        wrong.append("[deposits.submit] has both dspace and dss: leave one of them out")
    if not settings.submit.doi_fields or not all(map(_FIELD.fullmatch, settings.submit.doi_fields)):
        wrong.append(
            "[deposits.submit] doi_fields must name fields of DSpace, such as dc.identifier.doi"
        )
    if settings.submit.canary and doi_or_none(settings.submit.canary) is None:
        wrong.append(
            f"[deposits.submit] canary is {settings.submit.canary!r}: write a DOI that DSpace has, such as 10.1002/abcd.20417"
        )
    if environment is not None:
        missing = [
            f"{variable} (header {header})"
            for header, variable in settings.content_headers.items()
            if not environment.get(variable)
        ]
        wrong += [f"the environment variable {name} is not set" for name in missing]
    if settings.content and not re.search(r"\{doi(_encoded)?\}", settings.content):
        wrong.append(
            "[deposits] content has no {doi}: write the PDF's URL with {doi} where the DOI belongs"
        )
    if (
        settings.mail is not None
        and settings.mail.dashboard
        and not settings.mail.dashboard.startswith(("http://", "https://"))
    ):
        wrong.append(
            f"[deposits.mail] dashboard is {settings.mail.dashboard!r}: write the URL that people open, such as https://milepost.example.org"
        )
    if wrong:
        raise mp.ConfigMistake(f"milepost.toml: {'; '.join(wrong)}")
