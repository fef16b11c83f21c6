"""Views of evidence for other programs. A view is a pure function of the records, so whoever has these can check it byte by byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from milepost.core.events import events_of
from milepost.core.history import decode_line
from milepost.core.item import canonical_json
from milepost.core.values.durations import iso
from milepost.evidence.premis import premis
from milepost.evidence.record import SCHEMA, rounds

Record = dict[str, Any]
Records = Callable[[], Iterable[Record]]
"""The records, from the beginning, as often as they are asked for: none of a view is held in memory."""

CSV_COLUMNS = (
    "route", "key", "correlation_id", "input_digest", "line", "at", "reason", "event_id", "stage", "to", "status", "round",
    "by", "why", "error_category", "error_message", "output_digest", "output",
)  # fmt: skip


def csv_rows(records: Records, about: Mapping[str, Any] | None = None) -> Iterator[str]:
    """One row for each event that was told; a line that nobody is told of has a row without an event."""
    yield _row(CSV_COLUMNS)
    for record in records():
        if record["schema"] != SCHEMA:
            yield _row(_sealed(record))
            continue
        outputs = {entry["line"]: entry["output"] for entry in record["stages"] if "output" in entry}
        lines = [decode_line(text.encode()) for text in record["chain"]["lines"]]
        for line, current in zip(lines, rounds(lines), strict=True):
            told = [event.id for event in events_of(line, record["route"], record["key"], record["correlation_id"])] or [""]
            output = canonical_json(outputs[line.version]).decode() if line.version in outputs else ""
            for event in told:
                yield _row(
                    (
                        record["route"], record["key"], record["correlation_id"], record["input_digest"], line.version,
                        iso(line.at), line.reason.value, event, line.stage, line.to, line.status.value, current,
                        line.by, line.why, line.attempt and line.attempt.category, line.attempt and line.attempt.message,
                        line.output, output,
                    )
                )  # fmt: skip


def _sealed(record: Record) -> tuple[Any, ...]:
    values = {**record, "at": record["ended_at"], "reason": "sealed"}
    return tuple(values.get(column) for column in CSV_COLUMNS)


def _row(values: Iterable[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(["" if value is None else value for value in values])
    return out.getvalue()


VIEWS: dict[str, Callable[[Records, Mapping[str, Any]], Iterator[str]]] = {"csv": csv_rows, "premis": premis}
