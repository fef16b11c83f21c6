"""Log formats of a process: text for people, or one line of JSON per record, with the correlation
id and without secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from milepost.core.item import Item
from milepost.core.values.durations import iso
from milepost.core.values.redaction import redacted, redacted_text
from milepost.ports.observer import ABOUT

FORMS = ("text", "json")
NOISY = ("botocore", "boto3", "urllib3", "uvicorn", "asyncio")
"""Third-party loggers whose routine lines are not about the work."""
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def about() -> dict[str, str]:
    """The log context of this thread or task."""
    now = ABOUT.get()
    if isinstance(now, Item):
        return {
            "route": now.route,
            "stage": now.stage,
            "key": now.key,
            "correlation_id": now.correlation_id,
        }
    return {} if now is None else {"correlation_id": now}


class JsonLogFormat(logging.Formatter):
    """One JSON object per line, with the caller's `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        more = {name: value for name, value in vars(record).items() if name not in _USUAL}
        line: dict[str, Any] = {
            "at": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted_text(record.getMessage()),
            **about(),
            **redacted(more),
        }
        if record.exc_info:
            line["error"] = redacted_text(self.formatException(record.exc_info))
        return _encode(line).decode(errors="replace")


class TextLines(logging.Formatter):
    """Time, level, message, and log context."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = redacted_text(super().format(record)).split("\n")
        found = about()
        place = "/".join(found[name] for name in ("route", "key") if name in found)
        named = " ".join(part for part in (place, found.get("correlation_id", "")) if part)
        return "\n".join([f"{first} [{named}]" if named else first, *rest])


class _StandardError(logging.Handler):
    """Writes to the present standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


@contextmanager
def logs(form: str) -> Iterator[None]:
    """Write all logs of this process to standard error in this format: as text only warnings and
    important lines, as JSON also routine ones."""
    root = logging.getLogger()
    handler = _StandardError()
    handler.setFormatter(JsonLogFormat() if form == "json" else TextLines())
    before = {name: logging.getLogger(name).level for name in NOISY}
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO if form == "json" else logging.WARNING)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for name, was in before.items():
            logging.getLogger(name).setLevel(was)
