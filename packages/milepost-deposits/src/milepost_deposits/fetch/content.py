"""The content stage: the PDF of a DOI, streamed from the publisher to the file store and checked on
the way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from os import SEEK_END
from tempfile import TemporaryFile
from typing import IO
from urllib.parse import quote

import msgspec

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_deposits.files import FileStore, waits_for_store
from milepost_deposits.settings import DepositsSettings, check_settings

TIMEOUTS = net.Timeouts(connect=10, read=60, total=900)
CHUNK = 1 << 18
MAGIC = b"%PDF-"
HEAD = 1024
"""Bytes at the beginning of a file within which readers of PDF look for its mark."""
END = b"%%EOF"
TAIL = 2048
"""Bytes at the end of a file within which its last mark must be. Readers of PDF look at 1,024; some
servers add a few bytes of their own."""


class ContentStage:
    """Handler of the content stage. Every failure of the publisher is a counted try: it may provide
    the PDF later."""

    @mpa.translated_net_errors()
    def __init__(
        self,
        settings: DepositsSettings,
        files: FileStore,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._settings, self._files = settings, files
        self._environment = os.environ if environment is None else environment
        self._redirects = net.Redirects(settings.content_redirects)

    @cached_property
    @mpa.translated_net_errors()
    def _client(self) -> net.Client:
        return net.Client(
            allow_cidrs=self._settings.allow_cidrs,
            timeouts=TIMEOUTS,
            largest=self._settings.content_largest,
        )

    def ready(self) -> None:
        """Raises mp.ConfigMistake before any item is claimed, if a setting or the value of a header
        is missing."""
        check_settings(self._settings)
        self._own_headers()

    def _own_headers(self) -> dict[str, str]:
        """The headers that the settings name, with their secret values."""
        headers: dict[str, str] = {}
        for header, variable in self._settings.content_headers.items():
            value = self._environment.get(variable)
            if not value:
                raise mp.ConfigMistake(
                    f"the environment variable {variable} is not set: it holds the header {header} for the publisher"
                )
            headers[header] = value
        return headers

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return waits_for_store(self._files, lambda: self._fetched(item))

    def _fetched(self, item: mp.Item) -> mp.Outcome:
        headers = {
            "Accept": "application/pdf",
            "User-Agent": self._settings.user_agent,
            **self._own_headers(),
        }
        with TemporaryFile(prefix="milepost-") as file:
            try:
                url = content_url(self._settings.content, item.key)
                response = self._client.request(
                    "GET", url, headers=headers, sink=file.write, redirects=self._redirects
                )
            except net.NetError as error:
                return _failed(
                    str(error),
                    error.kind.upper().replace("-", "_"),
                    error.http_status,
                    error.retry_after,
                )
            file.seek(0)
            fault = content_fault(
                response.status, response.headers.get("Content-Type"), file.read(HEAD)
            )
            if fault is None and self._settings.content_end:
                fault = end_fault(_tail(file))
            if fault is not None:
                return _failed(fault, "NO_PDF", response.status, response.retry_after)
            stored = self._files.write(item.key, ".pdf", _chunks(file))
        return mp.Done({"file": msgspec.to_builtins(stored), "from": response.url})


def content_url(template: str, doi: str) -> str:
    """The PDF's address: {doi} is the DOI in a path, {doi_encoded} the DOI with its slashes encoded
    too."""
    return template.replace("{doi_encoded}", quote(doi, safe="")).replace(
        "{doi}", quote(doi, safe="/")
    )


def content_fault(status: int, content_type: str | None, head: bytes) -> str | None:
    """Why an answer holds no PDF; None: it does."""
    if status != 200:
        return f"the publisher answered {status}"
    if content_type is None:
        return "the publisher's answer has no Content-Type"
    if content_type.partition(";")[0].strip().lower() != "application/pdf":
        return f"the publisher sent {content_type[:100]}, not application/pdf"
    if not head:
        return "the publisher's answer is empty"
    if MAGIC not in head:
        return "the publisher's answer is no PDF: it lacks the mark %PDF-"
    return None


def end_fault(tail: bytes) -> str | None:
    """Why a PDF with these last bytes is not whole; None: it has its end. Without Content-Length, a
    connection that was cut looks like the end of the file."""
    if END in tail:
        return None
    return "the PDF has no end: the mark %%EOF is missing; if this publisher's files lack it, set [deposits] content_end = false"


def _failed(why: str, category: str, status: int | None, after: float | None) -> mp.Retry:
    return mp.Retry(
        f"a PDF could not be retrieved: {why}", category=category, http_status=status, after=after
    )


def _tail(file: IO[bytes]) -> bytes:
    file.seek(max(0, file.seek(0, SEEK_END) - TAIL))
    return file.read(TAIL)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk
