"""A stand-in for Crossref's REST API: records by DOI, the polite pool, rate limits, and a 404 in plain text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from milepost.testing.http_standin import HttpStandIn, StandInAnswer, StandInRequest

WORKS = "/works/"


class CrossrefStandIn(HttpStandIn):
    """`with CrossrefStandIn() as crossref:` answers at `crossref.url`. It knows the records that were `put`, and with `everything` one
    for each DOI. Each answer states `limit` requests a second; with `enforced` more are answered with 429 within a second of `clock`."""

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
        self.polite.append("@" in request.query.get("mailto", "") and "mailto:" in request.headers.get("User-Agent", ""))
        if self.enforced and self._too_fast():
            return StandInAnswer(429, b"<html>Too many requests</html>", (("Retry-After", "1"),), "text/html")
        doi = unquote(request.path.removeprefix(WORKS)).lower()
        record = self.records.get(doi) or (usual_record(doi) if self.everything else None)
        if record is None:
            return self._plain(404)
        body = {"status": "ok", "message-type": "work", "message-version": "1.0.0", "message": record}
        return StandInAnswer(200, body, self._limits)

    @property
    def _limits(self) -> tuple[tuple[str, str], ...]:
        return (("x-rate-limit-limit", str(self.limit)), ("x-rate-limit-interval", "1s"), ("x-api-pool", "polite-single"))

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
        "author": [{"given": "Ada", "family": "Okafor", "sequence": "first", "affiliation": []}, {"given": "Per", "family": "Lind"}],
        "container-title": ["Journal of Examples"],
        "language": "en",
        "issued": {"date-parts": [[2020, 9, 30]]},
        "short-title": [],
        "subtitle": [],
        "ISSN": ["1234-5678", "8765-4321"],
        "URL": f"http://dx.doi.org/{doi.lower()}",
    }
