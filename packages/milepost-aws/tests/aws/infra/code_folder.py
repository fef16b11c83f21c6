"""A stack with the real functions, for a stand-in that runs them: our sources and their dependencies."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from tests.aws.infra.conftest import BIN, ROOT
from tests.aws.infra.templates import EMAIL, Template

import milepost

NEEDED = ("msgspec", "aws_lambda_powertools", "aws_xray_sdk", "wrapt", "jmespath", "typing_extensions")


def fill(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "cli", "testing", "*.egg-info")
    shutil.copytree(Path(milepost.__file__).parent, folder / "milepost", ignore=ignored)
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None, f"{name} is not installed; run make test"
        place = Path(found.origin)
        if place.name == "__init__.py":
            shutil.copytree(place.parent, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, folder / place.name)


def synthesise(folder: Path, file: str, source: str | None, option: str = "--routes") -> Template:
    """The stack of one route file, or of one application; without a source, of the application that has this name."""
    fill(folder / "code")
    (folder / "code" / "routes").mkdir()
    for place in (folder, folder / "code" / "routes") if source is not None else ():
        (place / file).write_text(source)
    asked = [option, file if source is None else folder / file, "--prefix", "test", "--alarm-email", EMAIL]
    made = subprocess.run(
        [BIN / "python", "-m", "infra", *asked, "--code", folder / "code", "--out", folder / "out"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return Template(folder / "out")
