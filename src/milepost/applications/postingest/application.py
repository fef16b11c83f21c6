"""Postingest as an application: its settings, its route, the confirmer's command and the health checks of its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal

import click

import milepost as mp
from milepost.applications.postingest.dialects import INGESTED, TEXTS
from milepost.applications.postingest.queues import read_queues
from milepost.applications.postingest.route import postingest, usual_queues


class PostingestSettings(mp.AppSettings, frozen=True):
    """The table [postingest] of milepost.toml; see docs/guides/postingest.md."""

    route: str = "postingest"
    queues: str | list[dict[str, Any]] | None = None
    dialect: Literal["seed", "today"] = "seed"
    ingested_text: str = INGESTED
    wait_for_batches: bool = False
    recheck: str | None = None


application = mp.Application("postingest", PostingestSettings, summary="Assets after their ingest: on disk, then on tape.")


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


@application.command(ledger="none")
@click.option("--once", is_flag=True, help="One turn, then end: with 1 if anything failed.")
@click.option("--every", metavar="SPAN", default="60s", show_default=True, help="The pause between two turns, such as 60s or 5m.")
def confirmer(app: mp.AppContext[PostingestSettings], once: bool, every: str) -> int:
    """Confirm assets on the rows of a table, without a ledger.

    Takes messages from a queue, checks, and writes the confirmation on the asset's row. It is set up by its environment alone;
    docs/guides/postingest-on-aws.md has the variables.
    """
    from milepost.applications.postingest.confirmer.service import run_confirmer

    return run_confirmer(os.environ, once, every)


@application.check("workers")
def workers(app: mp.AppContext[PostingestSettings]) -> Iterator[mp.Finding]:
    """Can the repository and ScoutAM be reached from here? A process that only looks need not be able to."""
    settings = app.settings
    given = usual_queues(settings.dialect) if settings.queues is None else settings.queues
    for queue in read_queues(given, TEXTS[settings.dialect]):
        if queue.worker != "external":
            yield _worker(queue.queue_alias, queue.worker)


def _worker(stage: str, kind: str) -> mp.Finding:
    from milepost.applications.postingest.confirmer.settings import VARIABLES, open_worker

    variables = VARIABLES[kind]
    if not any(os.environ.get(name) for name in variables):
        what = f"the worker of {stage} is not set up in this environment; 'milepost up' and 'milepost work' need {', '.join(variables)}"
        return mp.Finding("ok", "postingest", what)
    try:
        with open_worker(kind, os.environ) as worker:
            fault = worker.fault()
    except mp.ConfigMistake as mistake:
        fault = str(mistake)
    if fault is None:
        return mp.Finding("ok", "postingest", f"the worker of {stage} reaches what it asks")
    return mp.Finding("bad", "postingest", f"assets wait at {stage}: {fault}", "put that right; they are looked at again by themselves")
