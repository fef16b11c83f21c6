"""API of deposits: the worklist of manual deposits, page by page, and the record of runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

import milepost as mp
from milepost.applications.deposits.application import application
from milepost.applications.deposits.people.worklist import PAGE, WorklistPage, worklist_page
from milepost.applications.deposits.runs import RunRecord, runs
from milepost.applications.deposits.settings import DepositsApp

BASE = "/api/v1/deposits"


class WorklistCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of the worklist: DOIs that hold `search`, at most `limit` of them, after or before a place that another page has given."""

    search: Annotated[str, Meta(max_length=4000)] = ""
    after: Annotated[str, Meta(max_length=4000)] = ""
    before: Annotated[str, Meta(max_length=4000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = PAGE


@application.endpoint(
    "GET", f"{BASE}/worklist", scope="read", query=WorklistCall, answers={200: WorklistPage},
    summary="The DOIs that need a manual deposit, the latest failure first",
)  # fmt: skip
def read_worklist(app: DepositsApp, call: mp.Call) -> mp.Answer:
    query: WorklistCall = call.query
    return mp.Answer(worklist_page(app, search=query.search, after=query.after, before=query.before, most=query.limit))


class RunList(Struct, frozen=True):
    """The latest runs, the last one first."""

    runs: list[RunRecord]


@application.endpoint(
    "GET", f"{BASE}/runs", scope="read", answers={200: RunList}, summary="The latest runs: running, finished, failed or interrupted"
)
def read_runs(app: DepositsApp, call: mp.Call) -> mp.Answer:
    return mp.Answer(RunList(runs(app)))
