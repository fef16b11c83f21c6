"""Bodies of requests that are not held in memory: a file, and a form with files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from milepost_net.errors import NetUsageError

PIECE = 262_144


class RequestBody(Protocol):
    """A body that is sent piece by piece. It can be read more than once, since a request may be
    sent again."""

    @property
    def length(self) -> int:
        """How many bytes it has."""

    @property
    def content_type(self) -> str | None:
        """Its Content-Type, unless the request's headers say it."""

    def pieces(self) -> Iterator[bytes]:
        """Its bytes from the beginning."""


class FileBody:
    """A file as the body of a request. It is read while it is sent, and must not change
    meanwhile."""

    def __init__(self, path: str | os.PathLike[str], *, content_type: str | None = None) -> None:
        self.path = Path(path)
        self._content_type = content_type
        self._length = self.path.stat().st_size

    @property
    def length(self) -> int:
        """How many bytes the file has."""
        return self._length

    @property
    def content_type(self) -> str | None:
        """Its Content-Type, where one was given."""
        return self._content_type

    def pieces(self) -> Iterator[bytes]:
        left = self._length
        with self.path.open("rb") as file:
            while left and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
        if left:
            raise OSError(f"{self.path.name} has become shorter while it was sent")


@dataclass(frozen=True)
class FormPart:
    """One field of a multipart form: a text as bytes, or a body that is sent piece by piece, such
    as a file, with the name that the receiver sees."""

    name: str
    content: bytes | RequestBody
    filename: str | None = None
    content_type: str | None = None


class MultipartForm:
    """A form with files (multipart/form-data) as the body of a request."""

    def __init__(self, parts: Sequence[FormPart]) -> None:
        self._boundary = f"milepost-{secrets.token_hex(16)}"
        self._parts = [(self._head(part), part.content) for part in parts]
        self._end = f"--{self._boundary}--\r\n".encode()

    @property
    def length(self) -> int:
        """How many bytes the form has, its files included."""
        inside = sum(
            len(head) + (len(content) if isinstance(content, bytes) else content.length) + 2
            for head, content in self._parts
        )
        return inside + len(self._end)

    @property
    def content_type(self) -> str:
        """multipart/form-data, with the boundary between the parts."""
        return f"multipart/form-data; boundary={self._boundary}"

    def pieces(self) -> Iterator[bytes]:
        for head, content in self._parts:
            yield head
            if isinstance(content, bytes):
                yield content
            else:
                yield from content.pieces()
            yield b"\r\n"
        yield self._end

    def _head(self, part: FormPart) -> bytes:
        said = f'form-data; name="{_quoted(part.name)}"'
        if part.filename is not None:
            said += f'; filename="{_quoted(part.filename)}"'
        kind = part.content_type or (
            "application/octet-stream" if part.filename is not None else None
        )
        if kind is not None and not (kind.isascii() and kind.isprintable()):
            raise NetUsageError("FormPart(content_type=…) is not one line of ASCII text")
        line = f"Content-Type: {kind}\r\n" if kind is not None else ""
        return f"--{self._boundary}\r\nContent-Disposition: {said}\r\n{line}\r\n".encode()


def _quoted(text: str) -> str:
    """A name within quotes, as HTML forms send it."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
