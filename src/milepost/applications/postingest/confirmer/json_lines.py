"""JSON log: one object per line, with the values of `extra` beside the message."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TextIO

_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class ConfirmerLogFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to(stream: TextIO, own: logging.Logger) -> None:
    """Write all log records of this process to the stream: of other loggers, warnings and errors."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ConfirmerLogFormat())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    own.setLevel(logging.INFO)
