"""Responses, and the parser that makes one from the bytes of a connection.

The parser does no I/O. It is strict: what RFC 9112 forbids is an error, so that no two programs can
read one answer in two ways. Where RFC 9112 lets a reader be tolerant (lines of the head that end
with LF alone, folded lines, empty lines before the first one), it is, since the partner has acted
all the same; such a connection is not used again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from typing import Any

from milepost_net.headers import LARGEST_HEAD, HeaderList

LARGEST_CHUNK_LINE = 4_096
LONGEST_RETRY_AFTER_S = 86_400.0
NOT_NOW = frozenset({408, 425, 429})
"""Statuses below 500 that say nothing about the request: the same one may succeed later."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?\Z")
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z"
)
_HEAD_END = re.compile(rb"\n\r?\n")
"""The empty line after a head whose lines may end with LF alone."""
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_DIGITS = re.compile(r"[0-9]{1,18}\Z")
_FRAMING = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})


@dataclass(frozen=True)
class Response:
    """A partner's answer, whatever its status. `body` is empty where it was written to a sink;
    `size` counts its bytes in either case."""

    status: int
    headers: HeaderList
    body: bytes = b""
    size: int = 0
    url: str = ""
    """Where the answer came from: another URL than the one asked where redirects were followed."""

    def json(self) -> Any:
        """The body as JSON; raises ValueError if it is none."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None

    @property
    def ok(self) -> bool:
        """Is the status 2xx?"""
        return 200 <= self.status < 300

    @property
    def not_now(self) -> bool:
        """May the same request succeed later? The status is 408, 425, 429 or 5xx."""
        return self.status >= 500 or self.status in NOT_NOW

    @property
    def retry_after(self) -> float | None:
        """The seconds of the Retry-After header, at most `LONGEST_RETRY_AFTER_S`: no partner parks
        a request for years. A date counts from the answer's own Date, so that our clock does not
        matter."""
        said = (self.headers.get("Retry-After") or "").strip()
        if said.isascii() and said.isdigit():
            return min(float(said[:9]), LONGEST_RETRY_AFTER_S)
        try:
            seconds = (
                parsedate_to_datetime(said) - parsedate_to_datetime(self.headers.get("Date") or "")
            ).total_seconds()
            return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S)
        except (TypeError, ValueError, OverflowError):
            return None


class MalformedResponse(ValueError):
    """The bytes are no HTTP/1.1 response."""


class _State(Enum):
    HEAD = auto()
    FIXED = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class ResponseParser:
    """Reads one response. Feed it bytes until `done`; the head is in `status` and `headers` as soon
    as it is there."""

    def __init__(self, method: str) -> None:
        self.status = 0
        self.headers = HeaderList()
        self.length: int | None = None
        """Content-Length, where the answer has one."""
        self.reusable = False
        """May the connection carry another request, once this answer is done?"""
        self.keep_alive: float | None = None
        """For how many seconds the partner says that it keeps the connection (`Keep-Alive:
        timeout=5`)."""
        self.begun = False
        """Has a byte of an answer come?"""
        self._tolerated = False
        """Is the head one that not every reader reads?"""
        self._method = method
        self._state = _State.HEAD
        self._buffer = bytearray()
        self._seen = 0
        self._left = 0

    @property
    def done(self) -> bool:
        return self._state is _State.DONE

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body in these bytes; raises MalformedResponse."""
        pieces: list[bytes] = []
        self.begun = True
        if self._state is _State.FIXED and not self._buffer and len(data) <= self._left:
            # The common case of a large body: no copy.
            self._left -= len(data)
            if not self._left:
                self._state = _State.DONE
            return [data]
        self._buffer += data
        if self._state is _State.HEAD:
            self._seen += len(data)
        while self._step(pieces):
            pass
        return pieces

    def feed_eof(self) -> bool:
        """The connection has ended: is the answer whole?"""
        if self._state is _State.UNTIL_CLOSE:
            self._state = _State.DONE
        return self.done

    def _step(self, pieces: list[bytes]) -> bool:
        """Take the next part off the buffer; False: more bytes are needed, or nothing is left to
        read."""
        state = self._state
        if state is _State.HEAD:
            return self._read_head()
        if state in (_State.FIXED, _State.CHUNK_DATA):
            return self._read_data(pieces)
        if state is _State.CHUNK_SIZE:
            return self._read_chunk_size()
        if state is _State.CHUNK_END:
            return self._read_chunk_end()
        if state is _State.TRAILERS:
            return self._read_trailer()
        if state is _State.UNTIL_CLOSE:
            if self._buffer:
                pieces.append(bytes(self._buffer))
                self._buffer.clear()
            return False
        if self._buffer:
            # Bytes after the end belong to no request of ours.
            self.reusable = False
        return False

    @property
    def what_came(self) -> str:
        """What has come of an answer that is not whole, in words."""
        if self.status:
            return f"its head, with the status {self.status}"
        first, complete, _ = bytes(self._buffer).partition(b"\n")
        line = first.removesuffix(b"\r")
        if complete and _STATUS.match(line):
            return f"its first line, {line[:80].decode('latin-1')!r}"
        return f"{len(self._buffer)} bytes"

    def _read_head(self) -> bool:
        if self._buffer.startswith((b"\r", b"\n")):
            self._tolerated = True
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
            self.begun = bool(self._buffer)  # empty lines are no part of an answer
        end, size = self._head_end()
        if end < 0:
            if self._seen > LARGEST_HEAD:
                raise MalformedResponse("its head is too large")
            if len(self._buffer) >= 5 and not self._buffer.startswith(b"HTTP/"):
                raise MalformedResponse("it does not begin like HTTP")
            return False
        if end > LARGEST_HEAD or self._seen > 16 * LARGEST_HEAD:
            raise MalformedResponse("its head is too large")
        lines = self._head_lines(bytes(self._buffer[:end]))
        del self._buffer[: end + size]
        found = _STATUS.match(lines[0])
        if found is None:
            raise MalformedResponse("its first line is no status line")
        status = int(found[2])
        fields = [self._field(line) for line in lines[1:]]
        if 100 <= status < 200:
            if status == 101:
                raise MalformedResponse("it changes the protocol")
            return True
        self.status, self.headers = status, HeaderList(fields)
        self._frame(found[1] == b"1", fields)
        return True

    def _head_end(self) -> tuple[int, int]:
        """Where the lines of the head end, and how many bytes separate them from the body; -1: more
        bytes are needed."""
        end = self._buffer.find(b"\r\n\r\n")
        first = self._buffer.find(b"\n")
        if (
            end >= 0
            and self._buffer.find(b"\n\n", first, end) < 0
            and self._buffer.find(b"\n\r\n", first, end) < 0
        ):
            return end, 4
        found = _HEAD_END.search(self._buffer)
        if found is None:
            return -1, 0
        self._tolerated = True
        start = found.start() - (self._buffer[found.start() - 1 : found.start()] == b"\r")
        return start, found.end() - start

    def _head_lines(self, head: bytes) -> list[bytes]:
        """The lines of the head, each folded one as one line."""
        lines = head.split(b"\r\n")
        if head.count(b"\n") >= len(lines):
            self._tolerated = True
            lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
        if b"\n " not in head and b"\n\t" not in head:
            return lines
        self._tolerated = True
        unfolded = lines[:1]
        for line in lines[1:]:
            if line[:1] in (b" ", b"\t") and len(unfolded) > 1:
                unfolded[-1] += b" " + line.strip(b" \t")
            else:
                unfolded.append(line)
        return unfolded

    @staticmethod
    def _field(line: bytes) -> tuple[str, str]:
        found = _FIELD.match(line)
        if found is None:
            raise MalformedResponse("a line of its head is no header")
        return found[1].decode("latin-1"), found[2].decode("latin-1")

    def _frame(self, current: bool, fields: list[tuple[str, str]]) -> None:
        """Decide how the body ends, and whether the connection may be used again."""
        found: dict[str, list[str]] = {}
        for name, value in fields:
            lower = name.lower()
            if lower in _FRAMING:
                found.setdefault(lower, []).extend(
                    word.strip().lower() for word in value.split(",")
                )
        keep = found.get("connection", ())
        self.reusable = (
            "close" not in keep and (current or "keep-alive" in keep) and not self._tolerated
        )
        if "content-length" in found:
            lengths = set(found["content-length"])
            if len(lengths) > 1 or not _DIGITS.match(length := lengths.pop()):
                raise MalformedResponse("its Content-Length is no number")
            self.length = int(length)
        for word in found.get("keep-alive", ()):
            name, _, value = word.partition("=")
            if name == "timeout" and _DIGITS.match(value):
                self.keep_alive = float(value)
        if self._method == "HEAD" or self.status in (204, 304):
            self._state = _State.DONE
        elif "transfer-encoding" in found:
            if found["transfer-encoding"] != ["chunked"] or not current:
                raise MalformedResponse("its Transfer-Encoding is not 'chunked'")
            # With both headers two readers could disagree on where the answer ends.
            self.reusable = self.reusable and self.length is None
            self.length = None
            self._state = _State.CHUNK_SIZE
        elif self.length is not None:
            self._left = self.length
            self._state = _State.FIXED if self._left else _State.DONE
        else:
            self.reusable = False
            self._state = _State.UNTIL_CLOSE

    def _read_data(self, pieces: list[bytes]) -> bool:
        if not self._buffer:
            return False
        piece = bytes(self._buffer[: self._left])
        del self._buffer[: len(piece)]
        pieces.append(piece)
        self._left -= len(piece)
        if self._left:
            return False
        self._state = _State.DONE if self._state is _State.FIXED else _State.CHUNK_END
        return True

    def _line(self, largest: int) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0 and len(self._buffer) <= largest:
            return None
        if end < 0 or end > largest:
            raise MalformedResponse("a line between its chunks is too long")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _read_chunk_size(self) -> bool:
        line = self._line(LARGEST_CHUNK_LINE)
        if line is None:
            return False
        found = _CHUNK.match(line)
        if found is None:
            raise MalformedResponse("the size of a chunk is no number")
        self._left = int(found[1], 16)
        self._state = _State.CHUNK_DATA if self._left else _State.TRAILERS
        self._seen = 0
        return True

    def _read_chunk_end(self) -> bool:
        if len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise MalformedResponse("a chunk is longer than its size")
        del self._buffer[:2]
        self._state = _State.CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        line = self._line(LARGEST_HEAD)
        if line is None:
            return False
        if line:
            self._seen += len(line)
            if self._seen > LARGEST_HEAD:
                raise MalformedResponse("its trailers are too large")
            self._field(line)
        else:
            self._state = _State.DONE
        return True
