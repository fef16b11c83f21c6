"""A stack with the real functions, for a stand-in that runs them: our sources and their
dependencies."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

from tests.aws.infra.conftest import BIN, ROOT
from tests.aws.infra.templates import EMAIL, Template

OURS = (
    "milepost_net",
    "milepost",
    "milepost_aws",
    "milepost_client",
    "milepost_deposits",
    "milepost_notifications",
    "milepost_postingest",
)
"""Packages of this project, with what they add to Milepost."""
NEEDED = (
    "msgspec",
    "aws_lambda_powertools",
    "aws_xray_sdk",
    "wrapt",
    "jmespath",
    "typing_extensions",
)


def fill(folder: Path) -> None:
    for name in (*OURS, *NEEDED):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None, f"{name} is not installed; run make test"
        place = Path(found.origin)
        if name in OURS:
            package = name.replace("_", "-")
            metadata = distribution(package)
            (folder / f"{name}-{metadata.version}.dist-info").mkdir(parents=True)
            for file in ("METADATA", "entry_points.txt"):
                (folder / f"{name}-{metadata.version}.dist-info" / file).write_text(
                    metadata.read_text(file) or ""
                )
        if place.name == "__init__.py":
            shutil.copytree(
                place.parent,
                folder / name,
                ignore=shutil.ignore_patterns("__pycache__", "cli", "infra", "aws_model"),
            )
        else:
            shutil.copy2(place, folder / place.name)


def synthesise(folder: Path, file: str, source: str | None, option: str = "--routes") -> Template:
    """The stack of one route file, or of one application; without a source, of the application that
    has this name."""
    fill(folder / "code")
    (folder / "code" / "routes").mkdir()
    for place in (folder, folder / "code" / "routes") if source is not None else ():
        (place / file).write_text(source)
    asked = [
        option,
        file if source is None else folder / file,
        "--prefix",
        "test",
        "--alarm-email",
        EMAIL,
    ]
    made = subprocess.run(
        [
            BIN / "python",
            "-m",
            "milepost_aws.infra",
            *asked,
            "--code",
            folder / "code",
            "--out",
            folder / "out",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return Template(folder / "out")
