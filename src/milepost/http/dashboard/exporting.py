"""What a page shows, as a file: everything that matches, row by row, so that a million takes no more memory than one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from milepost.engine.choosing import choose
from milepost.engine.observe import each, row_view
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.desk import Desk
from milepost.http.finding import Wanted
from milepost.http.problems import trouble

ENDPOINTS = Endpoints(pages=True)
COLUMNS = ("key", "stage", "status", "attempts", "lane", "due_at", "created_at", "entered_at", "updated_at", "ended_at", "correlation_id")
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@ENDPOINTS.add("GET", "/export/{route}.{form}", scope="read", query=Wanted, summary="The items of a page as CSV or JSON")
def export(desk: Desk, call: Call) -> Answer:
    """All that match, not only the page that is shown."""
    plan, wanted, form = desk.plan(call), call.query, call.path["form"]
    if form not in TYPES:
        raise trouble("unknown-path", f"there is no form {form!r}", field="form", expected="csv or json")
    choice = choose(
        desk.ctx,
        plan.name,
        statuses=[status for status in wanted.status if status],
        stages=[stage for stage in wanted.stage if stage],
        lane=wanted.lane or None,
        group=wanted.group or None,
        list_=wanted.list_ or None,
        older_than=wanted.older_than or None,
        prefix=wanted.prefix or None,
    )
    rows = (row_view(item) for item in each(desk.ctx, choice.query, lists=choice.lists))
    headers = {"Content-Disposition": f'attachment; filename="{plan.name}.{form}"'}
    return Answer(StreamingResponse(_csv(rows) if form == "csv" else _json(rows), media_type=TYPES[form], headers=headers))


def _csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*COLUMNS, "error"])
    for row in rows:
        error = row["error"]
        writer.writerow([_cell(row[name]) for name in COLUMNS] + [_cell(f"{error['category']}: {error['message']}" if error else "")])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is kept a text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def _json(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    start = b"["
    for row in rows:
        yield start + msgspec.json.encode(row)
        start = b",\n"
    yield b"]" if start != b"[" else b"[]"
