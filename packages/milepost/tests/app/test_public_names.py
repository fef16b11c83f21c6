"""The public names of `milepost`, `milepost.application` and `milepost.ports`: all there, each from
where type checkers find it, and none imported before its use."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import pytest

import milepost
from milepost import application, ports
from milepost.moved_modules import moved_name

SURFACES = (milepost, application, ports)
surfaces = pytest.mark.parametrize("package", SURFACES, ids=lambda package: package.__name__)


def declared(package: ModuleType) -> dict[str, str]:
    """The names that type checkers see, with the module of each."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        name.name: str(node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


@surfaces
def test_every_public_name_is_the_one_that_type_checkers_see(package: ModuleType) -> None:
    assert sorted(declared(package)) == sorted(package.__all__)
    for name, module in declared(package).items():
        assert getattr(package, name) is getattr(import_module(module), name)


@surfaces
def test_type_checkers_do_not_see_the_hook_that_imports_names(package: ModuleType) -> None:
    """They would take any name for a public one."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    hooks = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.Assign)]
    assert "__getattr__" not in [ast.unparse(node).partition(" =")[0] for node in hooks]
    assert callable(vars(package)["__getattr__"])


def test_those_who_write_routes_have_few_names() -> None:
    assert len(milepost.__all__) < 40
    assert not set(milepost.__all__) & set(application.__all__)


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


def test_the_package_alone_imports_nothing_of_the_engine() -> None:
    shown = "import sys, milepost; dir(milepost); print([name for name in sys.modules if name.startswith('milepost.')])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == "['milepost.lazy_names', 'milepost.moved_modules']\n"


BLOCKED = """
import importlib, sys

for name in ("starlette", "jinja2", "uvicorn", "uvloop", "httptools", "markupsafe"):
    sys.modules[name] = None  # an import of it raises ModuleNotFoundError
package = importlib.import_module(sys.argv[1])
print(all(hasattr(package, name) for name in package.__all__))
"""


@surfaces
def test_every_name_is_there_without_the_extra_http(package: ModuleType) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKED, package.__name__],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_name_of_applications_is_found_at_its_old_place_with_a_warning() -> None:
    """The sentence names the new place, and the line that is warned about is the user's."""
    for name in application.__all__:
        sentence = f"milepost.{name} is milepost.application.{name} now"
        with pytest.warns(DeprecationWarning, match=sentence) as caught:
            assert getattr(milepost, name) is getattr(application, name)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.raises(KeyError):
        moved_name("Route")


def test_type_checkers_see_no_name_of_applications_at_its_old_place() -> None:
    assert not set(declared(milepost)) & set(application.__all__)


FILES_OF_SQLITE = {
    "NO_DESCRIPTOR",
    "PRIVATE",
    "READ_AND_WRITE",
    "READ_BY_ALL",
    "RESTORE",
    "folder_mode",
    "mode_text",
}
"""What the SQLite ledger takes from the core for its files alone."""


def test_the_ports_have_all_that_a_ledger_needs() -> None:
    """The ledgers in memory and on SQLite could be another author's: what they import of the rules
    is public."""
    folder = Path(str(milepost.__file__)).parent / "ledgers"
    needed = {
        name.name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith(("milepost.core", "milepost.ports"))
        for name in node.names
    }
    assert needed - FILES_OF_SQLITE <= set(ports.__all__)
    assert needed >= FILES_OF_SQLITE


def test_a_route_file_needs_only_the_rules() -> None:
    script = "import sys, milepost as mp; mp.Route('parcels', key='id'); print('asyncio' in sys.modules, 'milepost.engine' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False False\n"


def test_the_version_is_that_of_the_installed_package() -> None:
    assert milepost.__version__ == metadata.version("milepost")
