"""Views of evidence for other programs. A view is a pure function of the records, so it can be
checked byte by byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from milepost.core.events import events_of
from milepost.core.history import decode_line
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.evidence.premis import premis
from milepost.evidence.record import FORGOTTEN_SCHEMA, SCHEMA, rounds

Record = dict[str, Any]
Records = Callable[[], Iterable[Record]]
"""Returns the records from the beginning at each call: no view is held in memory."""

CSV_COLUMNS = (
    "route", "key", "correlation_id", "input_digest", "line", "at", "reason", "event_id", "stage", "to", "status", "round",
    "by", "why", "error_category", "error_message", "output_digest", "output",
)  # fmt: skip


def csv_rows(records: Records, about: Mapping[str, Any] | None = None) -> Iterator[str]:
    """One row per delivered event; a line without an event has a row without one."""
    yield _row(CSV_COLUMNS)
    for record in records():
        if record["schema"] != SCHEMA:
            yield _row(_sealed(record))
            continue
        outputs = {
            entry["line"]: entry["output"] for entry in record["stages"] if "output" in entry
        }
        lines = [decode_line(text.encode()) for text in record["chain"]["lines"]]
        for line, current in zip(lines, rounds(lines), strict=True):
            ids = [
                event.id
                for event in events_of(
                    line, record["route"], record["key"], record["correlation_id"]
                )
            ] or [""]
            output = (
                canonical_json(outputs[line.version]).decode() if line.version in outputs else ""
            )
            for event in ids:
                yield _row(
                    (
                        record["route"], record["key"], record["correlation_id"], record["input_digest"], line.version,
                        iso(line.at), line.reason.value, event, line.stage, line.to, line.status.value, current,
                        line.by, line.why, line.attempt and line.attempt.category, line.attempt and line.attempt.message,
                        line.output, output,
                    )
                )  # fmt: skip


def _sealed(record: Record) -> tuple[Any, ...]:
    reason = "content-removed" if record["schema"] == FORGOTTEN_SCHEMA else "sealed"
    values = {**record, "at": record["ended_at"], "reason": reason}
    return tuple(values.get(column) for column in CSV_COLUMNS)


def _row(values: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(
        ["" if value is None else value for value in values]
    )
    return out.getvalue()


VIEWS: dict[str, Callable[[Records, Mapping[str, Any]], Iterator[str]]] = {
    "csv": csv_rows,
    "premis": premis,
}
