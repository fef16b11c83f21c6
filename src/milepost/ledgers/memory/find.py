"""Filter of a query: which rows match it."""

from __future__ import annotations

from milepost.core.item import Row
from milepost.ports.items import Query


def matches(row: Row, query: Query) -> bool:
    """Whether all given conditions hold. The due time is inclusive; all other times are exclusive."""
    return (
        row.route == query.route
        and (query.prefix is None or row.key.startswith(query.prefix))
        and all(row.key.split("#")[part.position : part.position + 1] == [part.text] for part in query.parts)
        and (query.statuses is None or row.status in query.statuses)
        and (query.stages is None or row.stage in query.stages)
        and (query.lane is None or row.lane == query.lane)
        and (not query.handed_over or row.handed_over)
        and (query.group is None or (row.error is not None and row.error.group == query.group))
        and (query.lists is None or row.list_id in query.lists)
        and (query.entered_before is None or row.entered_at < query.entered_before)
        and (query.changed_before is None or row.updated_at < query.changed_before)
        and (query.due_before is None or (row.due_at is not None and row.due_at <= query.due_before))
        and (query.overdue_before is None or (row.overdue_at is not None and row.overdue_at <= query.overdue_before))
    )
