"""Settings of a command: ledger, routes, subscribers and more, from options, then environment, then
milepost.toml."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from milepost.core.errors import ConfigMistake, LedgerError, LedgerMissing, UsageError
from milepost.core.values.file_modes import read_mode

if TYPE_CHECKING:
    from milepost.application.declaration import Application, ConfiguredApplication
    from milepost.core.routes.route import Route
    from milepost.engine.alerts.rule import AlertRule
    from milepost.engine.context import Context
    from milepost.evidence.signing import Signer
    from milepost.ports.subscriber import Subscriber

DEFAULT_LEDGER = "sqlite:///milepost.db"
FILE = "milepost.toml"
APPLICATIONS = "MILEPOST_APPLICATIONS"
FIELDS = {
    "ledger": "text",
    "routes": "a list of texts",
    "applications": "a list of texts",
    "subscribers": "a list of texts",
    "alerts": "a list of texts",
    "signing_key": "text",
    "listen": "text",
    "base_path": "text",
    "grace": "text",
    "allow_cidrs": "a list of texts",
    "mode": "text",
}


class CliSettings:
    """Settings from the command's options, completed from the environment and milepost.toml."""

    def __init__(self, ledger: str | None = None, routes: Sequence[str] = ()) -> None:
        self._ledger = ledger
        self._routes = tuple(routes)

    def overridden(self, ledger: str | None, routes: Sequence[str]) -> CliSettings:
        """A copy in which options after the command's name replace those before it."""
        return CliSettings(ledger or self._ledger, tuple(routes) or self._routes)

    @property
    def arguments(self) -> list[str]:
        """The options that give another process the same settings."""
        return [
            *(() if self._ledger is None else (f"--ledger={self._ledger}",)),
            *(f"--routes={one}" for one in self._routes),
        ]

    @cached_property
    def file(self) -> dict[str, Any]:
        return read_file(Path(FILE))

    @property
    def ledger(self) -> str:
        """The ledger's URL; a bare path is taken for a SQLite file."""
        url = (
            self._ledger
            or os.environ.get("MILEPOST_LEDGER")
            or str(self.file.get("ledger", DEFAULT_LEDGER))
        )
        return url if ":" in url else f"sqlite:///{url}"

    @property
    def mode(self) -> int | None:
        """The permissions of new files of a SQLite ledger, if milepost.toml sets them."""
        return read_mode(self.file["mode"], f"{FILE}: mode") if "mode" in self.file else None

    @property
    def application_specs(self) -> list[str]:
        """The applications that were named: in MILEPOST_APPLICATIONS, with commas between them,
        else in milepost.toml."""
        named = os.environ.get(APPLICATIONS)
        if named is not None:
            return [spec for spec in (part.strip() for part in named.split(",")) if spec]
        return list(self.file.get("applications", []))

    @cached_property
    def applications(self) -> list[ConfiguredApplication[Any]]:
        """The applications that were named, with their settings. A table of milepost.toml that
        belongs to none of them is a mistake."""
        tables = {name: value for name, value in self.file.items() if isinstance(value, dict)}
        specs = self.application_specs
        if not specs and not tables:
            return []
        from milepost.route_files import load_application

        found: dict[str, Application[Any]] = {}
        for application in map(load_application, specs):
            check_application_name(application.name, found)
            found[application.name] = application
        for name in tables:
            # Where the environment names other applications, the file still has the tables of its
            # own.
            if name not in found and APPLICATIONS not in os.environ:
                there = (
                    f"applications names {', '.join(found)}"
                    if found
                    else 'name it: applications = ["NAME"]'
                )
                raise ConfigMistake(f"{FILE}: [{name}] is the table of no application; {there}")
        return [
            one.configured(tables.get(one.name), allow_cidrs=self.allow_cidrs)
            for one in found.values()
        ]

    def routes(self) -> list[Route]:
        """The routes that options or milepost.toml name, and those of the applications; may be
        empty."""
        named = self._routes or self.file.get("routes", [])
        given = [route for one in self.applications for route in one.routes]
        if not named and not given:
            return []
        from milepost.route_files import load_routes

        return load_routes(named, given)

    def signer(self, given: str | None = None) -> Signer | None:
        """The signer with the key of the given file, else of the file that milepost.toml names;
        None if there is neither."""
        path = given or self.file.get("signing_key")
        if path is None:
            return None
        from milepost.evidence.signing import read_signer

        return read_signer(Path(path))

    def grace_ms(self, given: str | None = None) -> int | None:
        """Time that running handlers get after a stop: --grace, else milepost.toml; None for the
        default."""
        from milepost.core.values.durations import span_ms

        if given is not None:
            return span_ms(given, "--grace")
        if "grace" in self.file:
            return span_ms(self.file["grace"], f"{FILE}: grace")
        return None

    @property
    def allow_cidrs(self) -> tuple[str, ...]:
        """Networks beside the public ones to which requests may go."""
        return tuple(self.file.get("allow_cidrs", ()))

    def subscribers(self) -> list[Subscriber]:
        """The subscribers of milepost.toml: "log", "sns:ARN", a URL, "email:…", or
        "module:callable" (a function of an event, or a subscriber). Names must be unique, because
        two subscribers with one name would share a cursor and each miss events."""
        found: dict[str, Subscriber] = {}
        for spec in self.file.get("subscribers", []):
            subscriber = _subscriber(
                spec, self.allow_cidrs, offers=not _has_stage_queues(self.ledger)
            )
            if subscriber.name in found:
                raise ConfigMistake(
                    f"two subscribers are called {subscriber.name!r}, one of them {spec}; "
                    "give one of them another name, in a Python file: Topic(arn, name='…') or def other_name(event): ..."
                )
            found[subscriber.name] = subscriber
        return list(found.values())

    def alerts(self) -> list[AlertRule]:
        """The rule for all routes, if milepost.toml names receivers of alerts."""
        from milepost.engine.alerts.rule import AlertRule

        receivers = self.file.get("alerts", [])
        return [AlertRule(name="milepost", to=receivers)] if receivers else []

    @contextmanager
    def context(
        self, *, act: bool = False, create: bool = False, dry_run: bool = False
    ) -> Iterator[Context]:
        """Open the ledger with the routes. With `act` the routes must agree with the ledger's; with
        `create` a missing ledger is created. With `dry_run` nothing is created or registered: a
        missing ledger counts as empty."""
        from milepost.composition import open_context

        routes, url = self.routes(), self.ledger
        if act and not routes:
            raise ConfigMistake(
                "no route is configured: give --routes file.py, or set routes = [\"file.py\"] in milepost.toml; 'milepost init' writes an example"
            )
        if not create:
            check_there(url)
        elif dry_run and not is_there(url):
            url = "memory:"
        ctx = open_context(
            url, routes, check=act and not dry_run, make=create and not dry_run, mode=self.mode
        )
        with closing(ctx.ledger):
            if self.applications:
                from milepost.application.installation import install

                install(ctx, self.applications)
            if act and dry_run:
                _check_routes(ctx)
            yield ctx


def check_application_name(name: str, others: Container[str] = ()) -> None:
    """An application's name is a table of milepost.toml and a command: it must be neither
    already."""
    from milepost.cli.sections import MODULES

    if name in others or name in FIELDS or name in MODULES:
        taken = (
            "another application"
            if name in others
            else "a setting"
            if name in FIELDS
            else "a command"
        )
        raise ConfigMistake(
            f"an application cannot be called {name!r}: that is the name of {taken} already"
        )


def _check_routes(ctx: Context) -> None:
    """Raise if a route differs from the ledger's version, without registering a new one."""
    from milepost.engine.routes.versions import register
    from milepost.engine.transfer.lock import refuse_moved
    from milepost.ports.documents import ROUTE

    refuse_moved(ctx.ledger, list(ctx.plans.values()))
    known = ctx.ledger.read(ROUTE)
    for plan in list(ctx.plans.values()):
        if plan.name in known:
            ctx.take(register(ctx.ledger, plan, ctx.clock.now(), "preview"))


def is_there(url: str) -> bool:
    """Does this ledger exist?"""
    scheme, _, path = url.partition(":///")
    if _is_built_in(url):
        return scheme != "sqlite" or Path(path).exists()
    from milepost.composition import open_ledger

    try:
        open_ledger(url, make=False)[0].close()
    except LedgerMissing:
        return False
    return True


def check_there(url: str) -> None:
    """Raise if the ledger does not exist: creating an empty one would hide a mistyped name. (A
    ledger of several machines raises when it is opened.)"""
    if _is_built_in(url) and not is_there(url):
        path = url.partition(":///")[2]
        raise LedgerError(
            f"there is no ledger at {path}; 'milepost submit' and 'milepost up' create one, --ledger selects another"
        )


def _is_built_in(url: str) -> bool:
    """Is this a ledger that Milepost has itself, whatever packages are installed?"""
    return url.startswith(("sqlite:", "memory:"))


def _has_stage_queues(url: str) -> bool:
    """Has each external stage a queue of its own on this ledger, so that offers need not go to
    subscribers too?"""
    if _is_built_in(url):
        return False
    from milepost.composition import ledger_scheme

    return ledger_scheme(url).stage_queues


def read_file(path: Path) -> dict[str, Any]:
    """Read and check milepost.toml; empty if the file does not exist."""
    try:
        text = path.read_text(
            encoding="utf-8-sig"
        )  # editors on Windows begin a file with a byte order mark
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigMistake(
            f"{path} is not UTF-8: byte 0x{error.object[error.start]:02x} in line {line}; save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigMistake(f"{path} cannot be read: {error.strerror}") from None
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigMistake(f"{path}: {error}") from None
    for name, value in found.items():
        if name not in FIELDS and isinstance(value, dict):
            continue  # the settings of an application: checked when applications are loaded
        if name not in FIELDS:
            raise ConfigMistake(
                f"{path}: {name!r} is not a setting; settings are {', '.join(FIELDS)}, and [NAME] for an application"
            )
        right = (
            isinstance(value, str)
            if FIELDS[name] == "text"
            else isinstance(value, list) and all(isinstance(v, str) for v in value)
        )
        if not right:
            raise ConfigMistake(f"{path}: {name} is {value!r}; it must be {FIELDS[name]}")
    if "mode" in found:
        read_mode(found["mode"], f"{path}: mode")
    if "allow_cidrs" in found:
        from milepost_net.errors import NetUsageError
        from milepost_net.guard import AddressGuard

        try:
            AddressGuard.allowing(found["allow_cidrs"])
        except NetUsageError as error:
            raise ConfigMistake(f"{path}: {error}") from None
    return found


def _subscriber(spec: str, allow_cidrs: Sequence[str], *, offers: bool) -> Subscriber:
    from milepost.subscribers.addresses import FORMS, open_subscriber
    from milepost.subscribers.route_formats import PREFIX, Formed

    try:
        known = open_subscriber(spec, allow_cidrs=allow_cidrs, offers=offers)
    except UsageError as error:
        raise ConfigMistake(str(error)) from None
    if known is not None:
        return known
    if spec.startswith(PREFIX):
        return Formed(_subscriber(spec.removeprefix(PREFIX), allow_cidrs, offers=offers))
    place, _, name = spec.partition(":")
    if not name:
        raise ConfigMistake(
            f"unknown subscriber {spec!r}; write {FORMS}, or module:name or file.py:name"
        )
    from milepost.route_files import load_file, load_module

    module = (
        load_file(Path(place), "subscriber file") if place.endswith(".py") else load_module(place)
    )
    found: Any = getattr(module, name, None)
    if hasattr(found, "tell"):
        return cast("Subscriber", found)
    if not callable(found):
        raise ConfigMistake(
            f"{place} has no function {name!r} that could receive events; write  def {name}(event): ..."
        )
    from milepost.subscribers import CallSubscriber

    return CallSubscriber(found, name=name)
