"""`milepost init`: a small working route to start from."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.core.errors import MilepostError

ROUTE = '''"""A small route: each parcel is weighed, then stamped. Change it into yours."""

from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", retry=mp.Backoff(attempts=3, base=1, factor=2, cap=60), timeout=10)
async def weigh(item: mp.Item) -> mp.Outcome:
    """Return Done, NotYet, HandedOver, Retry or Reject. A raised exception is a Retry."""
    if "grams" not in item.input:
        return mp.Reject("nobody said how heavy it is: give 'grams'")
    return mp.Done({"grams": int(item.input["grams"])})


@parcels.stage("stamp")
def stamp(item: mp.Item) -> mp.Outcome:
    """A plain function runs in a thread. item.work_id is the same on every try: give it to your partner."""
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
def init(folder: Path) -> None:
    """Write a small working route, and say how to run it.

    Makes parcels.py, milepost.toml and a list of three parcels in FOLDER (default: here). Nothing is overwritten.
    """
    files = {"parcels.py": ROUTE, "milepost.toml": SETTINGS, "parcels.jsonl": SAMPLE}
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise MilepostError(f"{', '.join(there)} is there already in {folder.resolve()}, and is not overwritten; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MilepostError(f"{folder} cannot be written: {error.strerror}") from None
    first = [] if folder == Path() else [f"cd {folder}"]
    steps = (
        "milepost submit parcels parcels.jsonl",
        "milepost work --until-idle",
        "milepost status",
        "milepost show parcels P-3            # the one that has no weight",
    )
    click.echo("Wrote parcels.py (a route), milepost.toml and parcels.jsonl (a list). Try:\n")
    for step in (*first, *steps):
        click.echo(f"  {step}")
