"""Export of the items that match a page's filter, as a file: written row by row, so memory use does not grow with their number."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any
from unicodedata import normalize

import msgspec
from starlette.responses import StreamingResponse

from milepost.engine.context import Context
from milepost.engine.views.items import each, row_view
from milepost.engine.views.late_items import LOOK, each_overdue, late_item_view, nearest
from milepost.http.api.find import ItemsQuery, afford
from milepost.http.dashboard.pages.items import filled
from milepost.http.protocol.endpoint import Answer, Call, attachment, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState
from milepost.ports.items import Query

COLUMNS = ("key", "stage", "status", "attempts", "lane", "due_at", "created_at", "entered_at", "updated_at", "ended_at", "correlation_id")
FORMULA, BLANK = ("=", "+", "-", "@"), ("\t", "\r", "\n")
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@endpoint("GET", "/export/{route}.{form}", scope="read", page=True, query=ItemsQuery, summary="The items of a page as CSV or JSON")
def export(state: ServerState, call: Call) -> Answer:
    """All items that match, not only those of the page; with `nearest`, the first ten thousand."""
    plan, wanted, form = state.plan(call), filled(call.query), call.path["form"]
    if form not in TYPES:
        raise problem_error("unknown-path", f"there is no form {form!r}", field="form", expected="csv or json")
    query = wanted.choice(state.ctx, plan.name)
    afford(state.ctx, query, wanted.scan)
    rows = _rows(state.ctx, query, wanted)
    content = _csv(rows) if form == "csv" else _json(rows)
    return Answer(StreamingResponse(content, media_type=TYPES[form], headers=attachment(f"{plan.name}.{form}")))


def _rows(ctx: Context, query: Query, wanted: ItemsQuery) -> Iterator[dict[str, Any]]:
    """In the order of the page; overdue items stage by stage, because there may be too many to sort."""
    now = ctx.clock.now()
    if wanted.overdue:
        yield from (late_item_view(asked, now) for asked in each_overdue(ctx, query))
    elif wanted.nearest:
        yield from (late_item_view(asked, now) for asked in nearest(ctx, query, LOOK)[0])
    else:
        yield from (row_view(item) for item in each(ctx, query))


def _csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*COLUMNS, "error", "why"])
    for row in rows:
        error = row["error"]
        said = (f"{error['category']}: {error['message']}" if error else "", row.get("why", ""))
        writer.writerow([cell(value) for value in (*(row[name] for name in COLUMNS), *said)])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def cell(value: Any) -> Any:
    """Keeps text that a spreadsheet would read as a formula as text. Spreadsheets ignore blanks before a formula, and some
    treat full-width characters of East Asian scripts like ASCII."""
    if not isinstance(value, str):
        return value
    begins = normalize("NFKC", value.lstrip()[:1])
    return f"'{value}" if value[:1] in BLANK or begins[:1] in FORMULA else value


def _json(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    start = b"["
    for row in rows:
        yield start + msgspec.json.encode(row)
        start = b",\n"
    yield b"]" if start != b"[" else b"[]"
