"""Declaration of an application: a name, typed settings, and its routes, commands, health checks,
services, endpoints and pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import Struct

from milepost.application.settings import AppSettings, S, read_settings
from milepost.core.errors import UsageError
from milepost.core.routes.route import Route
from milepost.core.values.durations import Span, span_ms
from milepost.core.values.histogram import Histogram
from milepost.net_errors import translated_net_errors

if TYPE_CHECKING:
    from milepost.application.context import AppContext, SharedSubmits
    from milepost.engine.alerts.rule import AlertRule
    from milepost.engine.context import Context
    from milepost.engine.health.findings import Finding
    from milepost.engine.views.lanes import PauseView
    from milepost.http.protocol.endpoint import Answer
    from milepost.http.protocol.problems import Problem

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
LedgerUse = Literal["none", "read", "write"]
F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")


class CommandPart(Struct, frozen=True):
    """A command of an application: `milepost APPLICATION NAME`."""

    name: str
    function: Callable[..., Any]
    ledger: LedgerUse


class CheckPart(Struct, frozen=True):
    """A health check of an application."""

    name: str
    function: Callable[[AppContext[Any]], Iterable[Finding]]
    ready: bool


class ServicePart(Struct, frozen=True):
    """A function that a process calls at intervals."""

    name: str
    function: Callable[[AppContext[Any]], None]
    every_ms: int
    per_process: bool = False


class EndpointPart(Struct, frozen=True):
    """An endpoint of the HTTP API, or, with `page`, a page of the dashboard."""

    method: str
    path: str
    function: Callable[..., Any]
    scope: str | None
    query: type[Struct] | None = None
    body: Any = None
    answers: Mapping[int, Any] = {}
    summary: str = ""
    largest: int | Callable[[Any], int] | None = None
    origins: Callable[[Any], Iterable[str]] | None = None
    on_problem: Callable[..., Any] | None = None
    page: bool = False
    title: str = ""
    """Title in the menu; empty: the menu does not list the page."""


class Metric(Struct, frozen=True):
    """Figures of one name for `/metrics`, where it is called milepost_APPLICATION_NAME. `samples`
    has a number for each tuple of label values, or a `Histogram` if that is the `kind`."""

    name: str
    help: str
    samples: Mapping[tuple[str, ...], float | Histogram]
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram"] = "gauge"


class AwsAccess(Struct, frozen=True):
    """AWS resources outside the ledger that an application uses. The stack (infra/) allows them to
    its workers and services. A queue is given by its name, in the stack's own account and region,
    or by its URL; objects are places, s3://BUCKET/PREFIX."""

    sends_to: tuple[str, ...] = ()
    receives_from: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    """Objects that are listed, read, written and deleted."""
    sends_mail: bool = False
    """Sends mail by Amazon SES."""
    publishes_to: tuple[str, ...] = ()
    """SNS topics, by their ARNs."""
    secrets: tuple[str, ...] = ()
    """Variables of the environment that hold secrets. The stack takes their values from Secrets
    Manager."""


class Page(Struct, frozen=True):
    """Result of a page's function: the name of a template in the application's folder, and the
    values that it shows."""

    template: str
    values: Mapping[str, Any] = {}
    status: int = 200


class Redirect(Struct, frozen=True):
    """Result of a page's function that redirects the browser to another page of this server, for
    example after a form."""

    path: str


class Download(Struct, frozen=True):
    """Result of a page's function that is a file: the browser saves it under this name."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


class Application(Generic[S]):
    """An application: declare its parts with the decorators below. `name` is its table in
    milepost.toml and its group of commands; `settings` is a subclass of `AppSettings`, read from
    that table and from the environment; `summary` is the help of its commands; `templates` is the
    folder of its pages' Jinja templates, which extend "base.html"; `commands` is the name of a
    module that declares commands, and that only the command line imports; `state` makes an object
    from the settings, which its parts share in this process: it is `app.state`, and the second
    argument of a `routes` function that takes two; `bound_by` is the attribute of keys that binds a
    key to some of the items, which the application's own endpoints check: with such a key, or one
    that submits and has no such attribute, and without the scope `operate`, the general API and
    pages do not show its routes, and they accept items from keys with the value `*` and from an
    `admin` without it alone."""

    def __init__(
        self,
        name: str,
        settings: type[S],
        *,
        summary: str = "",
        templates: str | Path | None = None,
        commands: str | None = None,
        state: Callable[[S], Any] | None = None,
        bound_by: str | None = None,
    ) -> None:
        if NAME.fullmatch(name) is None:
            raise UsageError(
                f"an application cannot be called {name!r}; use small letters, digits and '-', and a letter first"
            )
        if not (isinstance(settings, type) and issubclass(settings, AppSettings)):
            raise UsageError(
                f"the settings of application {name!r} are {settings!r}; write a subclass of milepost.application.AppSettings"
            )
        self.name, self.settings, self.summary = name, settings, summary
        self.templates = None if templates is None else Path(templates)
        self.command_module = commands
        self.make_state = state
        self.bound_by = bound_by
        self.route_makers: list[Callable[..., Iterable[Route]]] = []
        self.openers: list[Callable[[AppContext[S]], None]] = []
        self.before_resume: list[Callable[[AppContext[S], PauseView, str], None]] = []
        self.commands: list[CommandPart] = []
        self.checks: list[CheckPart] = []
        self.services: list[ServicePart] = []
        self.endpoints: list[EndpointPart] = []
        self.metric_makers: list[Callable[[AppContext[S]], Iterable[Metric]]] = []
        self.aws_makers: list[Callable[[S], AwsAccess]] = []
        self.alert_makers: list[Callable[[S], Iterable[AlertRule]]] = []
        self.translate: Callable[[str, Any, Callable[[int], int]], Any] = (
            lambda name, value, place: value
        )

    def routes(self, function: F) -> F:
        """Declare the routes: a function of the settings, or of the settings and the application's
        state."""
        self.route_makers.append(function)
        return function

    def opened(self, function: Callable[[AppContext[S]], None]) -> Callable[[AppContext[S]], None]:
        """Declare a function of the `AppContext` that is called whenever a ledger was opened with
        the application, before any of its handlers runs: there its state may remember the context.
        It must not write, since a command that only reads calls it too."""
        self.openers.append(function)
        return function

    def resuming(
        self, function: Callable[[AppContext[S], PauseView, str], None]
    ) -> Callable[[AppContext[S], PauseView, str], None]:
        """Declare a function that is called before an operator ends a pause in one of its routes,
        by whichever command, endpoint or page. It gets the `AppContext`, the `PauseView` and the
        operator's name. An exception leaves the pause in force. A program that ends its own pause
        (`own=True`) does not call it."""
        self.before_resume.append(function)
        return function

    def moved(
        self, function: Callable[[str, Any, Callable[[int], int]], Any]
    ) -> Callable[[str, Any, Callable[[int], int]], Any]:
        """Declare how a document changes when `milepost move` brings it to another ledger: a
        function of its name, its value and `place`, which gives for a place in the feed here the
        one there. Without it, documents are moved as they are."""
        self.translate = function
        return function

    def aws(self, function: Callable[[S], AwsAccess]) -> Callable[[S], AwsAccess]:
        """Declare the AWS resources outside the ledger that its stages and services use: a function
        of the settings."""
        self.aws_makers.append(function)
        return function

    def command(self, name: str | None = None, *, ledger: LedgerUse = "read") -> Callable[[F], F]:
        """Declare a command, `milepost APPLICATION NAME`. The function gets the `AppContext` and
        the values of its `click` options and arguments; its docstring is the help, and a number
        that it returns is the exit code. `ledger`: "read" opens the existing ledger, "write"
        creates it if there is none and requires that the routes agree with it, "none" opens
        none."""

        return _declared(
            self.commands,
            lambda function: CommandPart(
                name or function.__name__.replace("_", "-"), function, ledger
            ),
        )

    def check(self, name: str, *, ready: bool = False) -> Callable[[F], F]:
        """Declare a health check: a function of the `AppContext` that yields a `Finding` for each
        thing that it checked. `milepost doctor` shows them all, the overview those that are not ok,
        at most a minute old. With `ready`, a bad finding makes `/readyz` answer 503. An exception
        is a finding too."""

        return _declared(self.checks, lambda function: CheckPart(name, function, ready))

    def service(self, name: str, *, every: Span, per_process: bool = False) -> Callable[[F], F]:
        """Declare a function of the `AppContext` that `milepost up` calls at once and then at the
        interval `every`, in each process: it must be safe to run in two processes at the same time.
        An exception is logged, and the next call comes as usual. On AWS a schedule calls it in a
        function, at most every minute, unless it is `per_process`: it does something for its own
        process alone, such as filling a cache."""

        every_ms = span_ms(every, f"{self.name}: every of the service {name!r}")
        return _declared(
            self.services, lambda function: ServicePart(name, function, every_ms, per_process)
        )

    def alerts(
        self, function: Callable[[S], Iterable[AlertRule]]
    ) -> Callable[[S], Iterable[AlertRule]]:
        """Declare alerts: a function of the settings that gives the `AlertRule`s. `milepost up`
        watches for them, in each process; an alert is raised, and over, once. A rule whose `to` is
        empty is not watched."""
        self.alert_makers.append(function)
        return function

    def endpoint(
        self,
        method: str,
        path: str,
        *,
        scope: str | None,
        summary: str,
        query: type[Struct] | None = None,
        body: Any = None,
        answers: Mapping[int, Any] | None = None,
        largest: int | Callable[[S], int] | None = None,
        origins: Callable[[S], Iterable[str]] | None = None,
        on_problem: Callable[[Problem], Answer] | Callable[[Problem, S], Answer] | None = None,
    ) -> Callable[[F], F]:
        """Declare an endpoint of the HTTP API. The function gets the `AppContext` and the `Call`,
        and returns an `Answer`; it may be async. `scope` is the scope that the caller's key needs
        (None: no key is needed). `query` and `body` are the types that the call is parsed as; a
        `body` of `bytes` is passed unchanged. `answers`: the type of the answer's body by status,
        for the API reference. `largest`: maximum size of a body in bytes, a number or a function of
        the settings. `origins`: from the settings, the origins whose pages may call it from a
        browser. `on_problem` formats the answer of an error, also of a call with a method that its
        path does not have, for an error format of your own; it is a function of the `Problem`, or
        of the `Problem` and the settings. A key that is limited to routes may call it if it sees
        all routes of the application."""

        return _declared(
            self.endpoints,
            lambda function: EndpointPart(
                method,
                path,
                function,
                scope,
                query,
                body,
                answers or {},
                summary,
                largest,
                origins,
                on_problem,
            ),
        )

    def page(
        self,
        path: str,
        *,
        title: str = "",
        scope: str = "read",
        query: type[Struct] | None = None,
        form: type[Struct] | None = None,
    ) -> Callable[[F], F]:
        """Declare a page of the dashboard. The function gets the `AppContext` and the `Call`, and
        returns a `Page`, a `Redirect` or a `Download`. The menu lists a page that has a `title`.
        With `form` it receives the form that another page sends there (POST), as `call.body`; the
        form must have the field csrf_token, with the value `csrf`."""

        method = "GET" if form is None else "POST"
        return _declared(
            self.endpoints,
            lambda function: EndpointPart(
                method,
                path,
                function,
                scope,
                query,
                form,
                summary=title or path,
                page=True,
                title=title,
            ),
        )

    def metrics(
        self, function: Callable[[AppContext[S]], Iterable[Metric]]
    ) -> Callable[[AppContext[S]], Iterable[Metric]]:
        """Declare figures for `/metrics`: a function of the `AppContext` that is called for every
        scrape."""
        self.metric_makers.append(function)
        return function

    def with_settings(self, settings: S) -> ConfiguredApplication[S]:
        """This application with settings given by a program."""
        return ConfiguredApplication(self, settings)

    def configured(
        self,
        table: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        place: str = "milepost.toml",
        allow_cidrs: Sequence[str] = (),
    ) -> ConfiguredApplication[S]:
        """This application with the settings of a table; environment variables take precedence
        (MILEPOST_NAME_FIELD is a field's text, or JSON). `allow_cidrs` are the networks for all
        applications, to which its own settings add. Raises ConfigMistake that names the field and
        says what would be right."""
        settings = read_settings(
            self.settings, self.name, table or {}, environment, place, allow_cidrs
        )
        return ConfiguredApplication(self, settings)


def _declared(parts: list[P], part: Callable[[Callable[..., Any]], P]) -> Callable[[F], F]:
    """The decorator that adds a function's part to these, and leaves the function as it is."""

    def declare(function: F) -> F:
        parts.append(part(function))
        return function

    return declare


class ConfiguredApplication(Generic[S]):
    """An application with its settings; it is installed on a ledger when one is opened."""

    def __init__(self, application: Application[S], settings: S) -> None:
        self.application, self.settings = application, settings
        self.name = application.name

    @cached_property
    @translated_net_errors()
    def routes(self) -> list[Route]:
        """Its routes, made once."""
        return [route for make in self.application.route_makers for route in self._made(make)]

    def _made(self, make: Callable[..., Iterable[Route]]) -> Iterable[Route]:
        return (
            make(self.settings, self.state)
            if len(inspect.signature(make).parameters) > 1
            else make(self.settings)
        )

    @cached_property
    @translated_net_errors()
    def state(self) -> Any:
        """The state that its parts share, made once; None if it has none."""
        return (
            None
            if self.application.make_state is None
            else self.application.make_state(self.settings)
        )

    @cached_property
    def alert_rules(self) -> list[AlertRule]:
        """Its alert rules that name a receiver."""
        return [
            rule
            for make in self.application.alert_makers
            for rule in make(self.settings)
            if rule.to
        ]

    @property
    def aws(self) -> list[AwsAccess]:
        """The AWS resources outside the ledger that it uses, those of the receivers of its alerts
        included."""
        receivers = [address for rule in self.alert_rules for address in rule.to]
        topics = tuple(
            address.removeprefix("sns:") for address in receivers if address.startswith("sns:")
        )
        mails = any(address.startswith("email:ses:") for address in receivers)
        alerts = [AwsAccess(sends_mail=mails, publishes_to=topics)] if topics or mails else []
        return [*(make(self.settings) for make in self.application.aws_makers), *alerts]

    @property
    def accepting(self) -> list[EndpointPart]:
        """Its endpoints through which callers submit items: those with the scope "submit"."""
        return [
            part for part in self.application.endpoints if part.scope == "submit" and not part.page
        ]

    def on(
        self,
        context: Context | None,
        submits: SharedSubmits | None = None,
        work: Callable[[float], None] | None = None,
    ) -> AppContext[S]:
        """The context of its parts; without a ledger's context it has settings and state only.
        `work` runs the ledger's work until idle."""
        from milepost.application.context import AppContext

        return AppContext(self.name, self.settings, context, self.state, submits, work)
