"""Installation of applications on an open ledger: adds their checks and metrics, and runs their
services."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import convert, to_builtins

from milepost.application.context import AppContext
from milepost.application.declaration import CheckPart, ConfiguredApplication, ServicePart
from milepost.core.errors import ConfigMistake, LedgerUnavailable, UsageError
from milepost.engine.alerts.rule import AlertRule
from milepost.engine.alerts.watch import AlertWatch
from milepost.engine.context import Context
from milepost.engine.health.findings import (
    BAD,
    DOCTOR,
    OK,
    OVERVIEW,
    READY,
    WARN,
    Check,
    CheckResult,
    CheckRun,
    Finding,
)
from milepost.engine.metrics import Family, exposition
from milepost.engine.views.lanes import PauseView
from milepost.ports.service import Service
from milepost.ports.subscriber import Subscriber
from milepost.subscribers.addresses import FORMS, open_subscriber

log = logging.getLogger(__name__)

KEEP_S = 60.0
"""How long a quick view, such as the overview, reuses the result of a check."""
METRIC_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
AFRESH_S, QUICK_S = 10.0, 0.5
"""How long `doctor`, and a quick view, wait for a check."""


def install(
    ctx: Context, applications: Iterable[ConfiguredApplication[Any]]
) -> list[AppContext[Any]]:
    """Add the applications' checks, and their functions for resumed pauses, to the ledger's
    context, and call their functions for an opened ledger. Returns their contexts."""
    found = list(applications)
    ctx.checks = tuple(
        Check(
            f"{one.name} {part.name}",
            AppCheck(one.on(ctx), part),
            (DOCTOR, OVERVIEW, READY) if part.ready else (DOCTOR, OVERVIEW),
        )
        for one in found
        for part in one.application.checks
    )
    ctx.before_resume = tuple(
        partial(_before_resume, one, ctx) for one in found if one.application.before_resume
    )
    for one in found:
        for opened in one.application.openers:
            opened(one.on(ctx))
    return [one.on(ctx) for one in found]


def _before_resume(
    one: ConfiguredApplication[Any], ctx: Context, pause: PauseView, by: str
) -> None:
    """Call the application's functions if the pause is in one of its routes."""
    if pause.scope.partition("/")[0] in {route.name for route in one.routes}:
        for function in one.application.before_resume:
            function(one.on(ctx), pause, by)


def services(
    ctx: Context, applications: Iterable[ConfiguredApplication[Any]], *, per_process: bool = True
) -> list[AppService | AlertWatch]:
    """The services of all applications, and the watches for their alerts, for a station. Without
    `per_process`, those that a schedule calls."""
    found: list[AppService | AlertWatch] = []
    for one in applications:
        known = {watch.name for watch in found}
        for rule in one.alert_rules:
            if rule.watch_name in known:
                raise ConfigMistake(
                    f"two alert rules are called {rule.name!r}: they would share a record, and each miss failures; rename one"
                )
            known.add(rule.watch_name)
        found += [
            AppService(one.on(ctx), part)
            for part in one.application.services
            if per_process or not part.per_process
        ]
        found += alert_watches(ctx, one.alert_rules, getattr(one.settings, "allow_cidrs", ()))
    return found


def alert_watches(
    ctx: Context, rules: Iterable[AlertRule], allow_cidrs: Sequence[str] = ()
) -> list[AlertWatch]:
    """The watches for these rules. Raises ConfigMistake for an unknown address."""
    return [
        AlertWatch(
            ctx,
            rule,
            [_receiver(rule, address, allow_cidrs) for address in rule.to],
            f"{rule.name}-{ctx.chance.token()}",
        )
        for rule in rules
    ]


def _receiver(rule: AlertRule, address: str, allow_cidrs: Sequence[str]) -> Subscriber:
    try:
        receiver = open_subscriber(address, allow_cidrs=allow_cidrs)
    except UsageError as error:
        raise ConfigMistake(f"the alerts {rule.name}: {error}") from None
    if receiver is None:
        raise ConfigMistake(
            f"the alerts {rule.name}: unknown subscriber {address!r}; write {FORMS}"
        )
    return receiver


def families(ctx: Context, applications: Iterable[ConfiguredApplication[Any]]) -> list[Family]:
    """The metrics of all applications. Metrics that cannot be read or written are logged, and left
    out."""
    found: list[Family] = []
    for one in applications:
        prefix = f"milepost_{one.name.replace('-', '_')}_"
        for make in one.application.metric_makers:
            try:
                made = [
                    Family(prefix + each.name, each.kind, each.help, each.labels, each.samples)
                    for each in make(one.on(ctx))
                ]
                for name, n in Counter(each.name for each in [*found, *made]).items():
                    if n > 1:
                        raise ValueError(f"two metrics are called {name}")
                for name in [name for each in made for name in (each.name, *each.labels)]:
                    if METRIC_NAME.fullmatch(name) is None:
                        raise ValueError(
                            f"{name!r} cannot be the name of a metric or a label; use letters, digits and '_'"
                        )
                exposition(made)  # it raises if one cannot be written
                found += made
            except Exception:
                log.exception("the metrics of application %r could not be read", one.name)
    return found


class AppCheck:
    """Runs one health check of an application in a thread of its own, one run at a time. It is
    another author's code and may call partners: its errors are findings, and while it hangs, a view
    shows the last result, or says that there is none."""

    def __init__(self, app: AppContext[Any], part: CheckPart) -> None:
        self.app, self.part = app, part
        self._lock = threading.Lock()
        self._run: threading.Thread | None = None
        self._ended_at: float | None = None
        self._found: list[Finding] = []

    def __call__(self, run: CheckRun) -> Iterator[CheckResult]:
        # A finding of an application belongs to no single route: only viewers who see all routes
        # get it.
        if not run.everything:
            return
        part = self.part
        for finding in self.findings(afresh=run.thorough):
            sentence = (
                "" if finding.level == OK else f"{finding.what[:1].upper()}{finding.what[1:]}."
            )
            unready = (
                f"the check {part.name!r} fails; 'milepost doctor' says more"
                if part.ready and finding.level == BAD
                else ""
            )
            yield CheckResult(finding, headline=sentence, part=self.app.name, unready=unready)

    def findings(self, *, afresh: bool) -> list[Finding]:
        """The findings: new ones if `afresh`, otherwise at most `KEEP_S` old if the check
        answers."""
        with self._lock:
            if self._run is None or not self._run.is_alive():
                known = self._ended_at is not None and time.monotonic() - self._ended_at < KEEP_S
                self._run = (
                    None
                    if known and not afresh
                    else threading.Thread(target=self._look, name="health-check", daemon=True)
                )
                if self._run is not None:
                    self._run.start()
            run = self._run
        if run is None:
            return self._found
        wait_s = AFRESH_S if afresh else QUICK_S
        run.join(wait_s)
        if not run.is_alive() or (self._ended_at is not None and not afresh):
            return self._found
        what = f"the check {self.part.name!r} has not answered within {wait_s:g} s"
        return [
            Finding(
                WARN, self.app.name, what, "check whether the systems that it calls can be reached"
            )
        ]

    def _look(self) -> None:
        try:
            found = convert(to_builtins(list(self.part.function(self.app))), list[Finding])
        except Exception as error:
            log.exception(
                "the health check %r of application %r failed", self.part.name, self.app.name
            )
            what = f"the check {self.part.name!r} failed: {type(error).__name__}: {error}"
            found = [Finding(WARN, self.app.name, what, "see the log")]
        self._found, self._ended_at = found, time.monotonic()


class AppService(Service):
    """Calls one service of an application. Its errors are logged and affect nothing else."""

    follows_others = True

    def __init__(self, app: AppContext[Any], part: ServicePart) -> None:
        self.name = f"{app.name}-{part.name}"
        self._app, self._part = app, part
        self._has_run = False

    @property
    def quiet(self) -> bool:
        """Whether it has run once."""
        return self._has_run

    def turn(self) -> float:
        try:
            self._part.function(self._app)
            self.failed = False
        except LedgerUnavailable:
            raise
        except Exception:
            self.failed = True
            log.exception(
                "the service %r of application %r failed; the next call comes as usual",
                self._part.name,
                self._app.name,
            )
        self._has_run = True
        return self._part.every_ms / 1000
