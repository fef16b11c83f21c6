"""A stand-in for a publisher's server: PDFs by DOI, redirects to other hosts, and every way in which a PDF can fail to come."""

from __future__ import annotations

from urllib.parse import unquote

from milepost.testing.http_standin import HttpStandIn, StandInAnswer, StandInRequest

PDFS = "/pdf/"


class PublisherStandIn(HttpStandIn):
    """`with PublisherStandIn() as publisher:` serves PDFs below `publisher.url`. It has the PDFs that were `put`, and with `everything`
    one for each DOI. A client that does not call itself a browser is refused, as by real publishers."""

    def __init__(self, *, port: int = 0, everything: bool = False) -> None:
        super().__init__(port=port)
        self.everything = everything
        self.answers: dict[str, StandInAnswer] = {}

    @property
    def template(self) -> str:
        """The address of a PDF, as [deposits] content has it."""
        return f"{self.origin}{PDFS}{{doi}}"

    def put(self, doi: str, content: bytes | None = None, *, status: int = 200, content_type: str = "application/pdf") -> None:
        """The answer for a DOI; without `content`, a small PDF. An empty `content_type`: the header is missing."""
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
    line = text.encode("latin-1", errors="replace").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
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
    return whole + b"xref\n0 6\n0000000000 65535 f \n%strailer\n<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (table, len(whole))
