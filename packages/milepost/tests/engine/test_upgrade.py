"""Upgrade of the tables' format: refused while a process of an earlier version runs, recorded,
repeatable; and what doctor says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger, open_synchronous_ledger
from tests.engine.world import ROUTE, World, parcels
from tests.standins import REGION

from milepost.core.admission.controls import Hold
from milepost.core.errors import UsageError
from milepost.engine.act_log import all_acts
from milepost.engine.acts.controls import pause, resume
from milepost.engine.health.doctor import doctor
from milepost.engine.presence import Heartbeat
from milepost.engine.upgrade import Upgraded, upgrade
from milepost.ports.documents import HOLD, PROCESS, Process
from milepost.ports.ledger import Ledger
from milepost_aws.ledger.tables.documents import FORMAT, KNOWN_FORMAT, TABLES
from milepost_testing.clock import VirtualClock


@pytest.fixture
def tables(endpoint: str, prefix: str) -> Iterator[SynchronousLedger]:
    with closing(open_synchronous_ledger(endpoint, prefix, REGION)) as opened:
        yield opened


@pytest.fixture
def deployed(tables: SynchronousLedger, clock: VirtualClock) -> World:
    """A deployment as the version before the formats left it, with a pause."""
    tables.prepare(World(tables, clock, parcels()).plan)  # type: ignore[arg-type]
    tables.write(FORMAT, TABLES, None)
    tables.store.control._format_read_at = None
    made = World(tables, clock, parcels()).registered()  # type: ignore[arg-type]
    pause(made.ctx, ROUTE, "weigh", by="ops", reason="repairs")
    return made


def old_process(world: World, holder: str = "old") -> None:
    """A process of the version before the formats: its heartbeat says nothing of them."""
    heartbeat = {
        "holder": holder,
        "host": "h",
        "pid": 1,
        "started_at": world.clock.now(),
        "seen_at": world.clock.now(),
    }
    world.ledger.write(PROCESS, holder, heartbeat)


def about_tables(world: World) -> list[tuple[str, str, str]]:
    return [
        (finding.level, finding.what, finding.next)
        for finding in doctor(world.ctx).findings
        if finding.about == "tables"
    ]


def test_a_new_ledger_has_the_newest_format(tables: SynchronousLedger, clock: VirtualClock) -> None:
    world = World(tables, clock, parcels())  # type: ignore[arg-type]
    tables.prepare(world.plan)
    world.registered()
    assert about_tables(world) == [("ok", f"the tables have format {KNOWN_FORMAT}", "")]


def test_it_is_refused_while_a_process_of_an_earlier_version_runs(deployed: World) -> None:
    old_process(deployed)
    Heartbeat(deployed.ctx, "new", dict).beat()
    with pytest.raises(
        UsageError,
        match="1 running process of an earlier version would not see new pauses: old; replace them first",
    ):
        upgrade(deployed.ctx, by="ops", reason="new version")
    preview = upgrade(deployed.ctx, by="", reason="", dry_run=True)
    assert (preview.before, preview.after, preview.older_processes, preview.dry_run) == (
        1,
        KNOWN_FORMAT,
        ["old"],
        True,
    )
    [(level, what, cure)] = about_tables(deployed)
    assert level == "warn"
    assert what.startswith("the tables have format 1; with format 2 ")
    assert cure.startswith(
        "replace these processes of an earlier version: old; then: milepost upgrade "
    )


def test_it_raises_the_number_and_keeps_the_pauses(deployed: World) -> None:
    deployed.add("a")
    report = upgrade(deployed.ctx, by="ops", reason="new version")
    assert (report.before, report.after, report.documents >= 1) == (1, KNOWN_FORMAT, True)
    assert [(act.verb, act.by, act.done) for act in all_acts(deployed.ctx, verb="upgrade")] == [
        ("upgrade", "ops", report.documents)
    ]
    assert list(deployed.ledger.read(HOLD)) == [f"{ROUTE}/weigh"]
    assert deployed.claim("weigh") == []
    assert resume(deployed.ctx, ROUTE, "weigh", by="ops", reason="done")
    assert [item.key for item in deployed.claim("weigh")] == ["a"]


def test_a_repeat_does_nothing_and_records_nothing(deployed: World) -> None:
    upgrade(deployed.ctx, by="ops", reason="new version")
    assert upgrade(deployed.ctx, by="ops", reason="new version") == Upgraded(
        KNOWN_FORMAT, KNOWN_FORMAT
    )
    assert len(all_acts(deployed.ctx, verb="upgrade")) == 1


def test_forced_it_names_the_processes_and_doctor_calls_them_bad(deployed: World) -> None:
    old_process(deployed)
    report = upgrade(deployed.ctx, by="ops", reason="they are stuck", force=True)
    assert report.older_processes == ["old"]
    assert next((level, what.rpartition(": ")[2]) for level, what, _ in about_tables(deployed)) == (
        "bad",
        "old",
    )


def test_a_process_that_stopped_or_is_silent_does_not_count(deployed: World) -> None:
    old_process(deployed)
    deployed.clock.advance("1h")
    assert upgrade(deployed.ctx, by="ops", reason="new version").after == KNOWN_FORMAT


@pytest.mark.parametrize("own", [True, False])
def test_a_pause_of_a_program_is_on_record_under_its_route(deployed: World, own: bool) -> None:
    upgrade(deployed.ctx, by="ops", reason="new version")
    pause(deployed.ctx, ROUTE, "stamp", by="program", reason="410", own=own)
    [act] = [act for act in all_acts(deployed.ctx, verb="pause") if act.by == "program"]
    assert act.id.startswith(f"{ROUTE}:") == own


def test_a_ledger_that_migrates_when_it_is_opened_has_nothing_to_raise(
    ledger: Ledger, clock: VirtualClock
) -> None:
    world = World(ledger, clock, parcels()).registered()
    assert upgrade(world.ctx, by="ops", reason="new version") == Upgraded(None, None)
    assert about_tables(world) == []
    assert Process("p", "h", 1, 0, 0).known_format == 1
    assert Hold(0, "ops", "test").until is None
