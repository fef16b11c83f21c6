"""A small application for tests: parcels that are weighed, a command, a check and a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from msgspec import Struct

import milepost as mp
import milepost.application as mpa


class Settings(mpa.AppSettings, frozen=True):
    heaviest: int = 1000
    fault: str = ""
    origins: list[str] = []


application = mpa.Application(
    "parcels-desk",
    Settings,
    summary="Parcels that are weighed.",
    templates=Path(__file__).parent / "templates",
)
calls: list[int] = []


@application.routes
def routes(settings: Settings) -> list[mp.Route]:
    route = mp.Route("weighed", key="id")

    @route.stage("weigh", retry=mp.Backoff(attempts=1))
    def weigh(item: mp.Item) -> mp.Outcome:
        if item.input.get("grams", 0) > settings.heaviest:
            return mp.Reject("too heavy")
        return mp.Done()

    return [route]


@application.command(ledger="write")
@click.argument("key")
@click.option("--grams", type=int, default=1)
def hand_in(app: mpa.AppContext[Settings], key: str, grams: int) -> None:
    """Hand in a parcel."""
    [receipt] = app.submit("weighed", {"id": key, "grams": grams})
    click.echo(f"{key}: {receipt.answer}, at most {app.settings.heaviest} g")


@application.command("count")
def counted(app: mpa.AppContext[Settings]) -> int:
    """How many parcels there are; the exit code is 3 if there are none."""
    total = app.status()["routes"].get("weighed", {}).get("total", 0)
    click.echo(f"{total} in all")
    return 0 if total else 3


@application.command(ledger="none")
def limits(app: mpa.AppContext[Settings]) -> None:
    click.echo(f"{app.settings.heaviest} g")


@application.check("scale", ready=True)
def scale(app: mpa.AppContext[Settings]) -> Iterator[mpa.Finding]:
    if app.settings.fault == "raises":
        raise ValueError("the cable is cut")
    if app.settings.fault:
        yield mpa.Finding("bad", "scale", f"the scale is {app.settings.fault}", "call the mechanic")
    else:
        yield mpa.Finding("ok", "scale", "the scale answers")


@application.service("poll", every="1h")
def poll(app: mpa.AppContext[Settings]) -> None:
    calls.append(app.settings.heaviest)
    if app.settings.fault == "raises":
        raise ValueError("the cable is cut")
    app.submit("weighed", {"id": "polled"})


class Parcel(Struct):
    id: str
    grams: int = 1


class SubmitAnswer(Struct):
    id: str
    answer: str


class Note(Struct):
    key: str
    grams: int


def own_shape(problem: mpa.Problem) -> mpa.Answer:
    return mpa.Answer(
        {"success": False, "message": problem.detail, "code": problem.code}, problem.status
    )


@application.endpoint(
    "POST",
    "/parcel",
    scope="submit",
    body=Parcel,
    answers={201: SubmitAnswer},
    summary="Hand in a parcel",
)
def hand_in_over_http(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Answer:
    """The parcel is on disk when this is answered."""
    [receipt] = app.submit(
        "weighed", {"id": call.body.id, "grams": call.body.grams}, by=call.caller.name
    )
    return mpa.Answer(SubmitAnswer(call.body.id, receipt.answer), 201)


@application.endpoint(
    "POST",
    "/parcel/raw",
    scope="submit",
    body=bytes,
    largest=20,
    summary="A shape of its own",
    origins=lambda settings: settings.origins,
    on_problem=own_shape,
)
async def raw(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Answer:
    if call.body == b"fails":
        raise mp.MalformedInput("there is no id", field="id")
    return mpa.Answer(
        {"success": True, "size": len(call.body), "kind": call.headers.get("content-type")}
    )


@application.page("/parcels-desk", title="Parcels")
def parcels_page(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Page:
    total = app.status()["routes"].get("weighed", {}).get("total", 0)
    return mpa.Page(
        "parcels.html", {"total": total, "heaviest": app.settings.heaviest, "note": "<b>heavy</b>"}
    )


@application.page("/parcels-desk/new", scope="submit", form=Note)
def new_parcel(app: mpa.AppContext[Settings], call: mpa.Call) -> mpa.Redirect:
    app.submit("weighed", {"id": call.body.key, "grams": call.body.grams}, by=call.caller.name)
    return mpa.Redirect("/parcels-desk")


@application.metrics
def figures(app: mpa.AppContext[Settings]) -> Iterator[mpa.Metric]:
    if app.settings.fault == "raises":
        raise ValueError("the cable is cut")
    yield mpa.Metric(
        "heaviest_grams",
        "The most that is taken.",
        {("scale-1",): app.settings.heaviest},
        ("scale",),
    )
