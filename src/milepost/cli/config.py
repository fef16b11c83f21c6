"""Where the ledger is and which routes there are: from the command line, the environment and milepost.toml, in that order."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from milepost.core.errors import ConfigMistake, LedgerError, MilepostError, UsageError

if TYPE_CHECKING:
    from milepost.core.route import Route
    from milepost.engine.context import Context
    from milepost.ports.publisher import Subscriber

DEFAULT_LEDGER = "sqlite:///milepost.db"
FILE = "milepost.toml"
FIELDS = {"ledger": "text", "routes": "a list of texts", "subscribers": "a list of texts"}


class Settings:
    """What a command was told, and what the environment and milepost.toml add to it."""

    def __init__(self, ledger: str | None = None, routes: Sequence[str] = ()) -> None:
        self._ledger = ledger
        self._routes = tuple(routes)
        self._file: dict[str, Any] | None = None

    def overridden(self, ledger: str | None, routes: Sequence[str]) -> Settings:
        """The same, but for what was said again after the command's name."""
        return Settings(ledger or self._ledger, tuple(routes) or self._routes)

    @property
    def file(self) -> dict[str, Any]:
        if self._file is None:
            self._file = read_file(Path(FILE))
        return self._file

    @property
    def ledger(self) -> str:
        """The ledger's URL; a bare path is taken for a SQLite file."""
        url = self._ledger or os.environ.get("MILEPOST_LEDGER") or str(self.file.get("ledger", DEFAULT_LEDGER))
        return url if ":" in url else f"sqlite:///{url}"

    def routes(self) -> list[Route]:
        """The routes that were named; none is no mistake here."""
        return load_routes(self._routes or self.file.get("routes", []))

    def subscribers(self) -> list[Subscriber]:
        """Who is told: "log", "sns:" and a topic's ARN, or any "module:callable" that takes an event, or that is a subscriber
        already. Two of one name would share a cursor, and each be told only a part."""
        found: dict[str, Subscriber] = {}
        for spec in self.file.get("subscribers", []):
            subscriber = _subscriber(spec)
            if subscriber.name in found:
                raise ConfigMistake(
                    f"two subscribers are called {subscriber.name!r}, one of them {spec}; "
                    "name one of them otherwise, in a Python file: Topic(arn, name='…') or def other_name(event): ..."
                )
            found[subscriber.name] = subscriber
        return list(found.values())

    @contextmanager
    def context(self, *, act: bool = False, create: bool = False, dry_run: bool = False) -> Iterator[Context]:
        """The open ledger with the routes. `act` if items are to be changed (the routes must then agree with the ledger's);
        `create` if a ledger that is not there yet is to be made. With `dry_run` neither happens: a ledger that is not there
        is taken for an empty one."""
        from milepost.wiring import open_context

        routes, url = self.routes(), self.ledger
        if act and not routes:
            raise ConfigMistake(
                "no route is known: give --routes file.py, or name it in milepost.toml (routes = [\"file.py\"]); 'milepost init' writes both"
            )
        if not create:
            check_there(url)
        elif dry_run and not is_there(url):
            url = "memory:"
        ctx = open_context(url, routes, check=act and not dry_run)
        try:
            if act and dry_run:
                _check_routes(ctx)
            yield ctx
        finally:
            ctx.ledger.close()


def _check_routes(ctx: Context) -> None:
    """Refuse routes that differ from the ledger's, as registering them would; a route it does not know stays unknown."""
    from milepost.engine.routes import register
    from milepost.ports.documents import ROUTE

    known = ctx.ledger.read(ROUTE)
    for plan in ctx.plans.values():
        if plan.name in known:
            register(ctx.ledger, plan, ctx.clock.now(), "preview")


def is_there(url: str) -> bool:
    scheme, _, place = url.partition(":///")
    return scheme != "sqlite" or Path(place).exists()


def check_there(url: str) -> None:
    """A ledger that nobody has made yet cannot be looked at; making an empty one instead would hide a mistyped name."""
    if not is_there(url):
        place = url.partition(":///")[2]
        raise LedgerError(f"there is no ledger at {place}; 'milepost submit' and 'milepost up' make one, --ledger names another")


def read_file(path: Path) -> dict[str, Any]:
    """milepost.toml, checked; empty if there is none."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigMistake(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigMistake(f"{path} cannot be read: {error.strerror}") from None
    for name, value in found.items():
        if name not in FIELDS:
            raise ConfigMistake(f"{path}: {name!r} is not known here; there are {', '.join(FIELDS)}")
        right = isinstance(value, str) if FIELDS[name] == "text" else isinstance(value, list) and all(isinstance(v, str) for v in value)
        if not right:
            raise ConfigMistake(f"{path}: {name} is {value!r}; it must be {FIELDS[name]}")
    return found


def load_routes(specs: Sequence[str]) -> list[Route]:
    """The routes of all files and modules named; the same route named twice is taken once."""
    found: dict[str, Route] = {}
    for spec in specs:
        for route in _load(spec):
            if found.setdefault(route.name, route) is not route:
                raise ConfigMistake(f"two routes are called {route.name!r}, one of them in {spec}; give one another name")
    return list(found.values())


def _load(spec: str) -> list[Route]:
    from milepost.core.route import Route

    place, _, name = spec.partition(":")
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    module = _load_file(Path(place)) if is_file else _load_module(place)
    if name:
        route = getattr(module, name, None)
        if isinstance(route, Route):
            return [route]
        there = [key for key, value in vars(module).items() if isinstance(value, Route)]
        raise ConfigMistake(f"{place} has no route {name!r}; it has {', '.join(there) or 'none'}")
    routes = list({id(value): value for value in vars(module).values() if isinstance(value, Route)}.values())
    if not routes:
        raise ConfigMistake(f"{place} holds no route; write one as  parcels = milepost.Route('parcels', key='id')")
    return routes


def _subscriber(spec: str) -> Subscriber:
    from milepost.subscribers import CallSubscriber, LogSubscriber

    if spec == "log":
        return LogSubscriber()
    place, _, name = spec.partition(":")
    if not name:
        raise ConfigMistake(f'the subscriber {spec!r} is not known; write "log", sns:ARN, or module:name or file.py:name')
    if place == "sns":
        return _topic(name)
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    found: Any = getattr(module, name, None)
    if hasattr(found, "tell"):
        return cast("Subscriber", found)
    if not callable(found):
        raise ConfigMistake(f"{place} has no function {name!r} to be told; write  def {name}(event): ...")
    return CallSubscriber(found, name=name)


def _topic(arn: str) -> Subscriber:
    from milepost.subscribers.topic import Topic

    try:
        topic = Topic(arn)
    except UsageError as error:
        raise ConfigMistake(f"the subscriber 'sns:{arn}': {error}") from None
    if len(topic.name) > 64:
        raise ConfigMistake(
            f"the topic {topic.name} has too long a name for a subscriber (64 characters at most); "
            "write  events = Topic(arn, name='…')  in a Python file, and name that here: file.py:events"
        )
    return topic


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigMistake(f"there is no route file {path}; 'milepost init' writes a small one to start from")
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None:
        name = f"{name}_routes"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigMistake(f"{path} cannot be loaded; it must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _told(error, path.name, str(path)) from None
    return module


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigMistake(f"there is no module {name!r}; is it installed, and is this the right folder?") from None
        raise _told(error, name, None) from None
    except Exception as error:
        raise _told(error, name, None) from None


def _told(error: BaseException, shown: str, path: str | None) -> BaseException:
    """A mistake in a route file, with the line of the user's file where it came up."""
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, SyntaxError):
        return ConfigMistake(f"{shown}, line {error.lineno}: {error.msg}")
    frames = traceback.extract_tb(error.__traceback__)
    at = [frame.lineno for frame in frames if path is None or frame.filename == path]
    where = f"{shown}, line {at[-1]}" if at and path is not None else shown
    told = str(error) if isinstance(error, MilepostError) else f"{type(error).__name__}: {error}"
    return ConfigMistake(f"{where}: {told}")
