"""`milepost init`: write a small working route, or an application, to start from."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.core.errors import MilepostError

FILES = Path(__file__).parent / "files"
"""The files that are written. In those of an application NAME, FILE and TITLE stand for its name,
its Python file and its title."""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option(
    "--application",
    metavar="NAME",
    help="Write an application of this name: a route, an endpoint, a page, a command, a check.",
)
def init(folder: Path, application: str | None) -> None:
    """Write a small working route, and show how to run it.

    Writes parcels.py, milepost.toml and a list of three parcels to FOLDER (default: the current
    folder), or, with --application, NAME.py, its page's template and milepost.toml. Overwrites
    nothing.
    """
    if application is None:
        files = {
            "parcels.py": _text("parcels.py.txt"),
            "milepost.toml": _text("parcels.toml"),
            "parcels.jsonl": _text("parcels.jsonl"),
        }
        summary = "parcels.py (a route), milepost.toml and parcels.jsonl (a list)"
        steps = (
            "milepost submit parcels parcels.jsonl",
            "milepost work --until-idle",
            "milepost status",
            "milepost show parcels P-3            # the one that has no weight",
        )
    else:
        files, summary = (
            _application(application),
            f"the application {application}, its page's template and milepost.toml",
        )
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
    parts = {
        f"{file}.py": "application.py.txt",
        f"templates/{name}.html": "application.html",
        "milepost.toml": "application.toml",
    }
    title = name.replace("-", " ").capitalize()
    return {
        path: _text(part).replace("NAME", name).replace("FILE", file).replace("TITLE", title)
        for path, part in parts.items()
    }


def _text(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def _write(folder: Path, files: dict[str, str]) -> None:
    there = [name for name in files if (folder / name).exists()]
    if there:
        exist, are = ("exists", "is") if len(there) == 1 else ("exist", "are")
        raise MilepostError(
            f"{', '.join(there)} already {exist} in {folder.resolve()} and {are} not overwritten; choose another folder"
        )
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MilepostError(f"{folder} cannot be written: {error.strerror}") from None
