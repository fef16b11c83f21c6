"""Postingest as an application: its settings, its route and the health checks of its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

import milepost as mp
import milepost.application as mpa
from milepost_postingest.dialects import INGESTED
from milepost_postingest.route import open_worker, postingest, queues_of


class PostingestSettings(mpa.AppSettings, frozen=True):
    """The table [postingest] of milepost.toml; see docs/guides/postingest.md."""

    route: str = "postingest"
    queues: str | list[dict[str, Any]] | None = None
    dialect: Literal["seed", "today"] = "seed"
    ingested_text: str = INGESTED
    wait_for_batches: bool = False
    recheck: str | None = None


application = mpa.Application(
    "postingest",
    PostingestSettings,
    summary="Assets after their ingest: on disk, then on tape.",
    commands="milepost_postingest.commands",
)


@application.routes
def routes(settings: PostingestSettings) -> list[mp.Route]:
    return [
        postingest(
            settings.queues,
            name=settings.route,
            dialect=settings.dialect,
            ingested_text=settings.ingested_text,
            wait_for_batches=settings.wait_for_batches,
            recheck=settings.recheck,
        )
    ]


@application.check("workers")
def workers(app: mpa.AppContext[PostingestSettings]) -> Iterator[mpa.Finding]:
    """Whether the repository and ScoutAM can be reached from here. A process that only reads the
    ledger does not need them."""
    for queue in queues_of(app.settings.queues, app.settings.dialect):
        if queue.worker != "external":
            yield _worker(queue.queue_alias, queue.worker)


def _worker(stage: str, kind: str) -> mpa.Finding:
    from milepost_postingest.custodial_copy import ROOT
    from milepost_postingest.tape import NEEDED

    variables = (ROOT,) if kind == "ocfl" else NEEDED
    if not any(os.environ.get(name) for name in variables):
        what = f"the worker of {stage} is not set up in this environment; 'milepost up' and 'milepost work' need {', '.join(variables)}"
        return mpa.Finding("ok", "postingest", what)
    try:
        with open_worker(kind, os.environ) as worker:
            fault = worker.fault()
    except mp.ConfigMistake as mistake:
        fault = str(mistake)
    if fault is None:
        return mpa.Finding("ok", "postingest", f"the worker of {stage} reaches its storage")
    return mpa.Finding(
        "bad",
        "postingest",
        f"assets wait at {stage}: {fault}",
        "correct this; the assets are then checked again automatically",
    )
