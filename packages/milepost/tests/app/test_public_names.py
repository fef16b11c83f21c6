"""The public names: all there, each from where type checkers find it, and none imported before its
use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import milepost


def declared() -> dict[str, str]:
    """The names that type checkers see, with the module of each."""
    tree = ast.parse(Path(milepost.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        name.name: str(node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def test_every_public_name_is_the_one_that_type_checkers_see() -> None:
    assert sorted(declared()) == sorted(milepost.__all__)
    for name, module in declared().items():
        assert getattr(milepost, name) is getattr(import_module(module), name)


def test_type_checkers_do_not_see_the_hook_that_imports_names() -> None:
    """They would take any name for a public one."""
    tree = ast.parse(Path(milepost.__file__).read_text(encoding="utf-8"))
    assert "__getattr__" not in [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef)
    ]
    assert callable(vars(milepost)["__getattr__"])


def test_all_ways_to_a_name_lead_to_it() -> None:
    from milepost import Route

    everything: dict[str, object] = {}
    exec("from milepost import *", everything)
    assert everything["Route"] is Route is milepost.Route
    assert set(milepost.__all__) <= set(everything)
    assert set(milepost.__all__) <= set(dir(milepost))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'milepost' has no attribute 'Rout'"):
        milepost.Rout  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Rout'"):
        exec("from milepost import Rout")


def test_the_package_alone_imports_only_the_old_names_of_modules() -> None:
    shown = "import sys, milepost; dir(milepost); print([name for name in sys.modules if name.startswith('milepost.')])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == "['milepost.moved_modules']\n"


def test_a_route_file_needs_only_the_rules() -> None:
    script = "import sys, milepost as mp; mp.Route('parcels', key='id'); print('asyncio' in sys.modules, 'milepost.engine' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert milepost.__version__ == metadata.version("milepost")
