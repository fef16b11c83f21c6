"""Standard output whose failures are told apart from every other error of the system."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT = 1


class OutputError(OSError):
    """Standard output cannot be written."""

    def __str__(self) -> str:
        return (
            f"the output cannot be written: {self.strerror}. What was printed is incomplete; what the command did to the ledger stays done. "
            "Free space or send the output elsewhere, and see what is recorded before you repeat a command that changes something"
        )


class _Descriptor(io.FileIO):
    """The descriptor of standard output. A closed pipe stays a `BrokenPipeError`."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


def tell_output_errors_apart() -> None:
    """Let `sys.stdout` raise `OutputError` where it cannot be written, also where the program was
    started with it closed."""
    stream = sys.stdout
    if stream is None:
        # A descriptor that refuses writes takes the number, or the ledger's file would get it.
        os.dup2(os.open(os.devnull, os.O_RDONLY), STDOUT)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Descriptor(STDOUT, "w", closefd=False)), encoding="utf-8"
        )
        return
    if not isinstance(stream, io.TextIOWrapper):
        return
    raw = getattr(
        stream.buffer, "raw", stream.buffer
    )  # with PYTHONUNBUFFERED the buffer is the descriptor itself
    if isinstance(raw, io.FileIO):
        stream.flush()
        descriptor = _Descriptor(raw.fileno(), "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            descriptor if raw is stream.buffer else io.BufferedWriter(descriptor),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )


def discard_output() -> None:
    """Drop what is not written yet, so that Python does not fail when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
