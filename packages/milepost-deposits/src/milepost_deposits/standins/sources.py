"""Stand-ins for the sources of a deposit: Crossref, with its rate limits, and a publisher, with
every way in which a PDF can fail to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from milepost_testing.http_standin import HttpStandIn, StandInAnswer, StandInRequest

WORKS, PDFS = "/works/", "/pdf/"


class CrossrefStandIn(HttpStandIn):
    """`with CrossrefStandIn() as crossref:` answers at `crossref.url`. It knows the records that
    were `put`, and with `everything` one for each DOI. Each answer states `limit` requests a
    second; with `enforced` more are answered with 429 within a second of `clock`."""

    def __init__(
        self,
        *,
        port: int = 0,
        everything: bool = False,
        limit: int = 50,
        enforced: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(port=port)
        self.everything, self.limit, self.enforced = everything, limit, enforced
        self.records: dict[str, dict[str, Any]] = {}
        self.polite: list[bool] = []
        """For each request: did it ask for the polite pool, by parameter and by User-Agent?"""
        self._clock = clock
        self._starts: list[float] = []

    def put(self, doi: str, **record: Any) -> None:
        """The record of a DOI; without fields, a usual one."""
        self.records[doi.lower()] = record or usual_record(doi)

    def answer(self, request: StandInRequest) -> StandInAnswer:
        if request.method != "GET" or not request.path.startswith(WORKS):
            return self._plain(404)
        self.polite.append(
            "@" in request.query.get("mailto", "")
            and "mailto:" in request.headers.get("User-Agent", "")
        )
        if self.enforced and self._too_fast():
            return StandInAnswer(
                429, b"<html>Too many requests</html>", (("Retry-After", "1"),), "text/html"
            )
        doi = unquote(request.path.removeprefix(WORKS)).lower()
        record = self.records.get(doi) or (usual_record(doi) if self.everything else None)
        if record is None:
            return self._plain(404)
        body = {
            "status": "ok",
            "message-type": "work",
            "message-version": "1.0.0",
            "message": record,
        }
        return StandInAnswer(200, body, self._limits)

    @property
    def _limits(self) -> tuple[tuple[str, str], ...]:
        return (
            ("x-rate-limit-limit", str(self.limit)),
            ("x-rate-limit-interval", "1s"),
            ("x-api-pool", "polite-single"),
        )

    def _plain(self, status: int) -> StandInAnswer:
        return StandInAnswer(status, b"Resource not found.", self._limits, "text/plain")

    def _too_fast(self) -> bool:
        now = self._clock()
        self._starts = [start for start in self._starts if now - start < 1.0]
        if len(self._starts) >= self.limit:
            return True
        self._starts.append(now)
        return False


def usual_record(doi: str) -> dict[str, Any]:
    """A record with every field that is mapped, and some that are not."""
    return {
        "indexed": {"date-parts": [[2026, 3, 1]]},
        "publisher": "Example Press",
        "issue": "4",
        "DOI": doi.lower(),
        "type": "journal-article",
        "title": [f"On {doi.rpartition('/')[2]}"],
        "volume": "12",
        "author": [
            {"given": "Ada", "family": "Okafor", "sequence": "first", "affiliation": []},
            {"given": "Per", "family": "Lind"},
        ],
        "container-title": ["Journal of Examples"],
        "language": "en",
        "issued": {"date-parts": [[2020, 9, 30]]},
        "short-title": [],
        "subtitle": [],
        "ISSN": ["1234-5678", "8765-4321"],
        "URL": f"http://dx.doi.org/{doi.lower()}",
    }


class PublisherStandIn(HttpStandIn):
    """`with PublisherStandIn() as publisher:` serves PDFs below `publisher.url`. It has the PDFs
    that were `put`, and with `everything` one for each DOI. A client that does not call itself a
    browser is refused, as by real publishers."""

    def __init__(self, *, port: int = 0, everything: bool = False) -> None:
        super().__init__(port=port)
        self.everything = everything
        self.answers: dict[str, StandInAnswer] = {}

    @property
    def template(self) -> str:
        """The address of a PDF, as [deposits] content has it."""
        return f"{self.origin}{PDFS}{{doi}}"

    def put(
        self,
        doi: str,
        content: bytes | None = None,
        *,
        status: int = 200,
        content_type: str = "application/pdf",
    ) -> None:
        """The answer for a DOI; without `content`, a small PDF. An empty `content_type`: the header
        is missing."""
        body = small_pdf(doi) if content is None else content
        self.answers[doi.lower()] = StandInAnswer(status, body, (), content_type)

    def redirect(self, doi: str, to: str) -> None:
        """Answer a DOI with a redirect."""
        self.answers[doi.lower()] = StandInAnswer(302, b"", (("Location", to),), "text/html")

    def answer(self, request: StandInRequest) -> StandInAnswer:
        if "Mozilla" not in request.headers.get("User-Agent", ""):
            return StandInAnswer(403, b"<html>Are you a robot?</html>", (), "text/html")
        doi = unquote(request.path.removeprefix(PDFS)).lower()
        found = self.answers.get(doi)
        if found is None and self.everything:
            found = StandInAnswer(200, small_pdf(doi), (), "application/pdf")
        return found or StandInAnswer(404, b"<html>No such article</html>", (), "text/html")


def small_pdf(text: str) -> bytes:
    """A PDF of one page with a line of text."""
    line = (
        text.encode("latin-1", errors="replace")
        .replace(b"\\", b"\\\\")
        .replace(b"(", b"\\(")
        .replace(b")", b"\\)")
    )
    stream = b"BT /F1 24 Tf 72 720 Td (" + line + b") Tj ET"
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    whole, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, start=1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return (
        whole
        + b"xref\n0 6\n0000000000 65535 f \n%strailer\n<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
        % (table, len(whole))
    )
