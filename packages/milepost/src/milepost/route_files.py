"""Load routes and applications from Python files, modules and installed packages; errors name the
line in the user's file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from milepost.application import is_name
from milepost.application.declaration import Application
from milepost.core.errors import ConfigMistake, MilepostError
from milepost.core.routes.route import Route
from milepost.engine.events.follow_ups import follow_up_routes
from milepost.net_errors import milepost_error
from milepost.ports.extensions import APPLICATIONS, extension, missing_package, names_of


def load_routes(specs: Sequence[str], given: Sequence[Route] = ()) -> list[Route]:
    """The routes of all named files and modules and the given ones, with the targets of their
    follow-ups; a route named twice is loaded once."""
    found = {route.name: route for route in given}
    for spec in specs:
        for route in _load(spec):
            if found.setdefault(route.name, route) is not route:
                raise ConfigMistake(
                    f"two routes have the name {route.name!r}, one of them in {spec}; rename one"
                )
    return [*found.values(), *follow_up_routes(list(found.values()))]


def load_application(spec: str) -> Application[Any]:
    """Load the application of a name, `file.py`, `file.py:NAME` or `module:NAME`. A name is the
    entry point of an installed package."""
    if is_name(spec):
        return _named(spec)
    place, _, name = spec.partition(":")
    module = (
        load_file(Path(place), "application file") if place.endswith(".py") else load_module(place)
    )
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Application) and name in ("", key)
    }
    if len({id(value) for value in found.values()}) != 1:
        there = ", ".join(
            key for key, value in vars(module).items() if isinstance(value, Application)
        )
        wanted = (
            f"no application {name!r}; it has {there or 'none'}"
            if name
            else f"{'several: ' + there if there else 'no application'}"
        )
        raise ConfigMistake(
            f"{place} has {wanted}; write  application = milepost.application.Application('NAME', Settings)"
        )
    return next(iter(found.values()))


def _named(name: str) -> Application[Any]:
    try:
        application = extension(APPLICATIONS, name)
    except Exception as error:
        raise _config_mistake(error, f"the application {name}", None) from None
    if application is None:
        missing = missing_package(APPLICATIONS, name)
        if missing is not None:
            raise ConfigMistake(
                f"the application {name!r} needs a package that is not installed; {missing}"
            )
        installed = ", ".join(names_of(APPLICATIONS)) or "none"
        raise ConfigMistake(
            f"there is no application {name!r}; write the name of one that is installed ({installed}), a file such as {name}.py,"
            f" or module:NAME ('milepost init --application {name}' writes a small one)"
        )
    if not isinstance(application, Application):
        raise ConfigMistake(
            f"the application {name!r} is {type(application).__name__}; its entry point must name a milepost.application.Application"
        )
    return application


def _load(spec: str) -> list[Route]:
    place, _, name = spec.partition(":")
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    module = load_file(Path(place)) if is_file else load_module(place)
    if name:
        route = getattr(module, name, None)
        if isinstance(route, Route):
            return [route]
        there = [key for key, value in vars(module).items() if isinstance(value, Route)]
        raise ConfigMistake(f"{place} has no route {name!r}; it has {', '.join(there) or 'none'}")
    routes = list(
        {id(value): value for value in vars(module).values() if isinstance(value, Route)}.values()
    )
    if not routes:
        raise ConfigMistake(
            f"{place} has no route; write one as  parcels = milepost.Route('parcels', key='id')"
        )
    return routes


def load_file(path: Path, kind: str = "route file") -> ModuleType:
    """Load a file as a module; it can import modules in its folder. `kind` is what an error calls
    it."""
    if not path.is_file():
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        example = "; 'milepost init' writes an example" if kind == "route file" else ""
        raise ConfigMistake(
            f"there is no {kind} {path}{where}: correct its name in milepost.toml or on the command line{example}"
        )
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None:
        name = f"{name}_routes"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ConfigMistake(f"{path} cannot be loaded; it must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        # Compile here, because Python's cache does not notice a file that was written twice within
        # a second.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        raise _config_mistake(error, path.name, str(path)) from None
    return module


def load_module(name: str) -> ModuleType:
    """An installed module, or one in the current folder."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigMistake(
                f"there is no module {name!r}; is it installed, and is this the right folder?"
            ) from None
        raise _config_mistake(error, name, None) from None
    except Exception as error:
        raise _config_mistake(error, name, None) from None


def _config_mistake(error: BaseException, shown: str, path: str | None) -> BaseException:
    """The error of a route file, with the line of the user's file."""
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, SyntaxError):
        return ConfigMistake(f"{shown}, line {error.lineno}: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    at = [frame.lineno for frame in frames if path is None or frame.filename == path]
    where = f"{shown}, line {at[-1]}" if at and path is not None else shown
    is_own = isinstance(error, MilepostError) or milepost_error(error) is not None
    message = str(error) if is_own else f"{type(error).__name__}: {error}"
    return ConfigMistake(f"{where}: {message}")
