"""The small working application that `milepost init --application NAME` writes."""

from __future__ import annotations

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

SETTINGS = """ledger = "sqlite:///milepost.db"
applications = ["FILE.py"]

[NAME]
longest = 100
"""


def application_files(name: str) -> dict[str, str]:
    """The files of a new application, by their paths."""
    file = name.replace("-", "_")
    texts = {f"{file}.py": APPLICATION, f"templates/{name}.html": TEMPLATE, "milepost.toml": SETTINGS}
    title = name.replace("-", " ").capitalize()
    return {path: text.replace("NAME", name).replace("FILE", file).replace("TITLE", title) for path, text in texts.items()}
