"""Composition root: build a ledger, its blob store and the engine's context from a URL and
routes."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterable
from pathlib import Path

from milepost.blobs.addresses import NoBlobs
from milepost.blobs.folder import FolderBlobs
from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import ConfigMistake, LedgerMissing
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.heads.route import heads_for
from milepost.engine.views.queries import attach_all
from milepost.ports.blobs import Blobs
from milepost.ports.extensions import (
    LEDGERS,
    LedgerScheme,
    extension,
    extension_points,
    loaded,
    missing_package,
)
from milepost.ports.ledger import MISSING_CAPABILITIES, Ledger
from milepost.ports.runner import Chance, Clock
from milepost.ports.upkeep import Progress, RestoreReport
from milepost.runners.clock import SystemChance, SystemClock

DEFAULT_LEDGER = "sqlite:///milepost.db"
BUILT_IN_FORMS = ("sqlite:///FILE (relative)", "sqlite:////FOLDER/FILE (absolute)")


def open_ledger(url: str, *, make: bool = True, mode: int | None = None) -> tuple[Ledger, Blobs]:
    """The ledger of a URL and its blob store; modules are imported only when needed. Without
    `make`, a missing ledger of several machines raises LedgerMissing. (A SQLite file is created by
    opening it.) `mode`: permissions of new files, if not those of an existing ledger."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from milepost.ledgers.sqlite import SqliteLedger
        from milepost.ledgers.sqlite.file.store import blobs_folder

        path = rest[3:]
        if path == ":memory:":
            raise ConfigMistake(
                "SQLite keeps such a database for one connection alone; write memory: for a ledger in this process"
            )
        ledger = SqliteLedger.open(path, mode)
        return ledger, FolderBlobs(blobs_folder(path), ledger.file_mode)
    if scheme == "memory":
        from milepost.ledgers.memory import MemoryLedger

        return MemoryLedger(), MemoryBlobs()
    return ledger_scheme(url).open(url, make=make)


def ledger_scheme(url: str) -> LedgerScheme:
    """The kind of ledger that an installed package adds for the scheme of this URL."""
    scheme = url.partition(":")[0]
    known: LedgerScheme | None = extension(LEDGERS, scheme)
    if known is None:
        missing = missing_package(LEDGERS, scheme)
        if missing is not None:
            raise ConfigMistake(
                f"the ledger {url!r} needs a package that is not installed; {missing}"
            )
        forms = ", ".join(
            [*BUILT_IN_FORMS, *(loaded(point).form for point in extension_points(LEDGERS))]
        )
        raise ConfigMistake(f"unknown ledger {url!r}; write {forms}")
    return known


def restore_ledger(
    file: Path,
    url: str,
    *,
    overwrite: bool,
    force: bool,
    on_progress: Progress,
    mode: int | None = None,
) -> RestoreReport:
    """Replace the SQLite ledger of the URL by a backup."""
    scheme, _, rest = url.partition(":")
    if scheme != "sqlite" or not rest.startswith("///") or len(rest) < 4:
        raise ConfigMistake(
            f"a backup can only be restored to a SQLite ledger, sqlite:///FILE, not to {url!r}; {MISSING_CAPABILITIES['backup']}"
        )
    from milepost.ledgers.sqlite.file.backup import restore

    return restore(
        file, rest[3:], overwrite=overwrite, force=force, on_progress=on_progress, mode=mode
    )


def open_context(
    url: str = DEFAULT_LEDGER,
    routes: Iterable[Route] = (),
    *,
    clock: Clock | None = None,
    chance: Chance | None = None,
    check: bool = True,
    make: bool = True,
    mode: int | None = None,
) -> Context:
    """The engine's context. With `check`, routes are registered, and a route that differs from the
    ledger's raises RouteChanged. `make` and `mode`: see `open_ledger`."""
    plans_wanted = list(routes)
    names = [route.name for route in plans_wanted]
    if len(set(names)) < len(names):
        raise ConfigMistake(
            f"two routes have the name {', '.join(sorted(name for name in set(names) if names.count(name) > 1))}"
        )
    ledger, blobs = open_ledger(url, make=make, mode=mode)
    try:
        plans_wanted += heads_for(
            plans_wanted, blobs.advice if isinstance(blobs, NoBlobs) else None
        )
        clock = clock or _clock_for(ledger)
        timing = ledger.timing
        plans = [
            Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
            for route in plans_wanted
        ]
        for at, plan in enumerate(plans):
            try:
                plans[at] = ledger.prepare(plan)
            except LedgerMissing:
                # Reading does not need the queue of a stage that is yet to be deployed.
                if check:
                    raise
        if check:
            from milepost.engine.routes.versions import register
            from milepost.engine.transfer.lock import refuse_moved

            refuse_moved(ledger, plans)
            plans = [register(ledger, plan, clock.now(), who()) for plan in plans]
    except BaseException:
        ledger.close()
        raise
    ctx = Context(
        ledger, {plan.name: plan for plan in plans}, clock, chance or SystemChance(), blobs
    )
    attach_all(ctx)
    return ctx


def _clock_for(ledger: Ledger) -> Clock:
    """The ledger's own clock, or that of this machine. No new line is dated before the newest one,
    if that is at most minutes ahead; a line further ahead was dated by a wrong clock, and is not
    followed."""
    own = ledger.clock()
    if own is not None:
        return own
    clock = SystemClock()
    newest = ledger.feed(ledger.last_seq() - 1, 1)
    if newest:
        clock.follow(newest[0].line.at)
    return clock


def who() -> str:
    """A unique name for this process. Short, because it is in every history line; the process
    document has the details."""
    return f"{platform.node().split('.')[0][:12]}-{secrets.token_hex(4)}"
