"""`milepost init`: write a small working route, or an application, to start from."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.core.errors import MilepostError

ROUTE = '''"""A small route: each parcel is weighed, then stamped. Change it as you need."""

from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", retry=mp.Backoff(attempts=3, base=1, factor=2, cap=60), timeout=10)
async def weigh(item: mp.Item) -> mp.Outcome:
    """Return Done, NotYet, HandedOver, Retry or Reject. A raised exception is a Retry."""
    if "grams" not in item.input:
        return mp.Reject("the weight is missing: give 'grams'")
    return mp.Done({"grams": int(item.input["grams"])})


@parcels.stage("stamp")
def stamp(item: mp.Item) -> mp.Outcome:
    """A plain function runs in a thread. item.work_id is the same on every attempt: give it to your partner."""
    grams = item.results["weigh"]["grams"]
    return mp.Done({"stamp": "large" if grams > 500 else "small"})
'''

SETTINGS = """ledger = "sqlite:///milepost.db"
routes = ["parcels.py"]
subscribers = []          # "log", or "module:callable"
"""

SAMPLE = """{"id": "P-1", "grams": 340}
{"id": "P-2", "grams": 1200}
{"id": "P-3"}
"""

APPLICATION = '''"""NAME: requests are read, then answered. Change it into yours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

import milepost as mp


class Settings(mp.AppSettings, frozen=True):
    """The table [NAME] of milepost.toml."""

    longest: int = 200
    """The most characters that a request may have."""


application = mp.Application("NAME", Settings, summary="Requests that are answered.", templates=Path(__file__).parent / "templates")


@application.routes
def routes(settings: Settings) -> list[mp.Route]:
    route = mp.Route("NAME", key="id")

    @route.stage("answer")
    def answer(item: mp.Item) -> mp.Outcome:
        if len(item.input["text"]) > settings.longest:
            return mp.Reject(f"the text has more than {settings.longest} characters")
        return mp.Done({"answer": item.input["text"].upper()})

    return [route]


class Request(Struct):
    id: str
    text: str


class Taken(Struct):
    id: str
    answer: str


@application.endpoint("POST", "/NAME", scope="submit", body=Request, answers={202: Taken}, summary="Hand in a request")
def hand_in(app: mp.AppContext[Settings], call: mp.Call) -> mp.Answer:
    """The request is on disk when this is answered."""
    [receipt] = app.submit("NAME", {"id": call.body.id, "text": call.body.text}, by=call.caller.name)
    return mp.Answer(Taken(call.body.id, receipt.answer), 202)


@application.page("/NAME", title="TITLE")
def overview(app: mp.AppContext[Settings], call: mp.Call) -> mp.Page:
    return mp.Page("NAME.html", {"total": _total(app), "longest": app.settings.longest})


@application.command(ledger="write")
@click.argument("id")
@click.argument("text")
def ask(app: mp.AppContext[Settings], id: str, text: str) -> None:
    """Hand in a request."""
    [receipt] = app.submit("NAME", {"id": id, "text": text})
    click.echo(f"{id}: {receipt.answer}")


@application.check("setup")
def setup(app: mp.AppContext[Settings]) -> Iterator[mp.Finding]:
    """`milepost doctor` shows this; the overview shows what is not ok."""
    if app.settings.longest < 1:
        yield mp.Finding("bad", "NAME", "no request can be answered: longest is below 1", "raise longest in milepost.toml")
    else:
        yield mp.Finding("ok", "NAME", f"requests may have {app.settings.longest} characters")


@application.metrics
def metrics(app: mp.AppContext[Settings]) -> Iterator[mp.Metric]:
    yield mp.Metric("requests", "Requests that were taken in.", {(): _total(app)})


def _total(app: mp.AppContext[Settings]) -> int:
    return int(app.status()["routes"].get("NAME", {}).get("total", 0))
'''

TEMPLATE = """{% extends "base.html" %}
{% block title %}TITLE · Milepost{% endblock %}
{% block main %}
<h1>TITLE</h1>
<section class="card">
  <p>{{ total|n }} requests so far; each may have {{ longest|n }} characters.
  <a href="{{ base }}/items/NAME">Show them</a>.</p>
</section>
{% endblock %}
"""

APPLICATION_SETTINGS = """ledger = "sqlite:///milepost.db"
applications = ["FILE.py"]

[NAME]
longest = 100
"""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--application", metavar="NAME", help="Write an application of this name: a route, an endpoint, a page, a command, a check.")
def init(folder: Path, application: str | None) -> None:
    """Write a small working route, and show how to run it.

    Writes parcels.py, milepost.toml and a list of three parcels to FOLDER (default: the current folder), or, with --application, NAME.py,
    its page's template and milepost.toml. Overwrites nothing.
    """
    if application is None:
        files = {"parcels.py": ROUTE, "milepost.toml": SETTINGS, "parcels.jsonl": SAMPLE}
        summary = "parcels.py (a route), milepost.toml and parcels.jsonl (a list)"
        steps = (
            "milepost submit parcels parcels.jsonl",
            "milepost work --until-idle",
            "milepost status",
            "milepost show parcels P-3            # the one that has no weight",
        )
    else:
        files, summary = _application(application), f"the application {application}, its page's template and milepost.toml"
        steps = (
            f"milepost {application} ask A-1 'is it working?'",
            "milepost work --until-idle",
            f"milepost show {application} A-1",
            f"milepost up                          # then open http://127.0.0.1:8321/{application}",
        )
    _write(folder, files)
    first = [] if folder == Path() else [f"cd {folder}"]
    click.echo(f"Wrote {summary}. Try:\n")
    for step in (*first, *steps):
        click.echo(f"  {step}")


def _application(name: str) -> dict[str, str]:
    """The files of a new application, by their paths."""
    from milepost.application.declaration import Application
    from milepost.application.settings import AppSettings
    from milepost.cli.config import check_application_name

    check_application_name(Application(name, AppSettings).name)
    file = name.replace("-", "_")
    texts = {f"{file}.py": APPLICATION, f"templates/{name}.html": TEMPLATE, "milepost.toml": APPLICATION_SETTINGS}
    title = name.replace("-", " ").capitalize()
    return {path: text.replace("NAME", name).replace("FILE", file).replace("TITLE", title) for path, text in texts.items()}


def _write(folder: Path, files: dict[str, str]) -> None:
    there = [name for name in files if (folder / name).exists()]
    if there:
        exist, are = ("exists", "is") if len(there) == 1 else ("exist", "are")
        raise MilepostError(f"{', '.join(there)} already {exist} in {folder.resolve()} and {are} not overwritten; choose another folder")
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MilepostError(f"{folder} cannot be written: {error.strerror}") from None
