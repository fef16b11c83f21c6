"""`milepost init`: write a small working route to start from."""

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
    from milepost.application.declaration import Application
    from milepost.application.settings import AppSettings
    from milepost.cli.config import check_application_name
    from milepost.cli.start.application_files import application_files

    check_application_name(Application(name, AppSettings).name)
    return application_files(name)


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
