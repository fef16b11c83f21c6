"""`milepost_net` and `milepost_client` without Milepost: every module of them is imported where
nothing else is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import milepost_client
import milepost_net

SOURCES = {
    package.__name__: str(Path(package.__file__).parent.parent)
    for package in (milepost_net, milepost_client)
}

IMPORT_ALL = """
import importlib, json, pkgutil, sys

folders, packages = json.loads(sys.argv[1])
sys.path += folders
imported = []
for package in map(importlib.import_module, packages):
    imported.append(package.__name__)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
        imported.append(module.name)
    for name in package.__all__:
        getattr(package, name)
others = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__", *packages}
print(json.dumps([imported, sorted(others)]))
"""


@pytest.mark.parametrize("packages", [["milepost_net"], ["milepost_net", "milepost_client"]])
def test_every_module_is_imported_without_milepost(packages: list[str], tmp_path: Path) -> None:
    given = json.dumps([[SOURCES[name] for name in packages], packages])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALL, given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    imported, others = json.loads(ran.stdout)
    assert {name.partition(".")[0] for name in imported} == set(packages)
    modules = {
        path.stem for name in packages for path in Path(SOURCES[name], name).glob("*.py")
    } - {"__init__"}
    assert {name.partition(".")[2] for name in imported} - {""} == modules
    # uvloop and others of this environment are out of reach.
    assert others == []
