"""Items with files on a storage volume, such as a tape: from stage results, or from kept evidence if the row has been removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from milepost.engine.context import Context
from milepost.engine.evidence.records import sealed_evidence
from milepost.engine.views.items import each
from milepost.evidence.record import SCHEMA
from milepost.evidence.reported_files import paths_on
from milepost.ports.items import Query


class OnVolume(Struct, frozen=True):
    """One item with files on the volume. `left`: its row has been removed, and this comes from its evidence."""

    key: str
    status: str
    files: list[str]
    left: bool = False


def on_volume(ctx: Context, route: str, volume: str, on_progress: Callable[[int], None] | None = None) -> Iterator[OnVolume]:
    """All items of the route with files on the volume. There is no index: the results of every item are read."""
    for number, (key, status, results, left) in enumerate(_all_results(ctx, route), 1):
        if on_progress is not None:
            on_progress(number)
        if files := files_on(results, volume):
            yield OnVolume(key, status, files, left)


def _all_results(ctx: Context, route: str) -> Iterator[tuple[str, str, Mapping[str, Any], bool]]:
    """Key, status and results of every item, and whether its row has left."""
    for item in each(ctx, all_items(route)):
        yield item.key, item.row.status.value, item.results, False
    for found in sealed_evidence(ctx, Query(route=route)):
        record = found.record
        stages = record["stages"] if record["schema"] == SCHEMA else ()
        yield record["key"], record["status"], {entry["stage"]: entry.get("output") for entry in stages}, True


def all_items(route: str) -> Query:
    """Query for every row of the route, with results."""
    return Query(route=route, with_content=True)


def files_on(results: Mapping[str, Any], volume: str) -> list[str]:
    """The files on the volume according to these results by stage, each once."""
    return list(dict.fromkeys(path for output in results.values() for path in paths_on(output, volume)))
