"""The demo's generated past: the same in every run, and stored as if it had happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from milepost.cli.start.demo import SETTINGS
from milepost.composition import open_context
from milepost.core.counters import HOUR
from milepost.core.status import FAILED, Status
from milepost.demo.archive import UNKNOWN, Catalogue, archive
from milepost.demo.past import DISK, STEPS, TAPE, Past, PastChance, PastClock, pace
from milepost.engine.act_log import all_acts
from milepost.engine.context import Context
from milepost.engine.heads.daily import all_heads
from milepost.engine.health.doctor import doctor
from milepost.engine.health.findings import BAD
from milepost.engine.views.items import lists as records
from milepost.engine.views.late_items import overdue
from milepost.ports.documents import HOLD, PARKED, Parked, read_all
from milepost.ports.items import Query
from milepost.runners.clock import SystemClock
from milepost_testing import audit
from milepost_testing.audit import every_item

ASSETS = 450


def made(folder: Path, assets: int, end: int) -> Context:
    clock = PastClock(end)
    ctx = open_context(
        f"sqlite:///{folder}/milepost.db", [archive], clock=clock, chance=PastChance()
    )
    Past(ctx, clock, assets, Catalogue(folder / "catalogue.jsonl")).make()
    return ctx


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("past")


@pytest.fixture(scope="module")
def past(folder: Path) -> Iterator[Context]:
    ctx = made(folder, ASSETS, SystemClock().now())
    yield ctx
    ctx.ledger.close()


def counted(ctx: Context) -> dict[tuple[str, Status], int]:
    sums: dict[tuple[str, Status], int] = {}
    for count in ctx.ledger.counts("archive"):
        if count.n:
            sums[count.stage, count.status] = sums.get((count.stage, count.status), 0) + count.n
    return sums


def where_each_is(ctx: Context) -> dict[str, tuple[str, Status]]:
    return {item.key: (item.stage, item.status) for item in every_item(ctx.ledger, "archive")}


def test_the_past_agrees_with_itself_and_the_doctor_finds_nothing_bad(past: Context) -> None:
    assert audit(past.ledger, "archive", past.plan("archive")) == ASSETS
    assert [finding for finding in doctor(past).findings if finding.level == BAD] == []
    assert len(all_heads(past)) == 2


def test_the_evidence_of_the_past_is_verified(past: Context, folder: Path) -> None:
    shell = Shell(folder)
    shell.write("milepost.toml", SETTINGS)
    shell.ok("export", "archive", "--evidence", "-o", "evidence.jsonl")
    verdict = shell.ok("verify", "evidence.jsonl", "--json").json
    assert (verdict["holds"], verdict["records"]) == (True, ASSETS)


def test_there_is_something_of_everything_to_look_at(past: Context) -> None:
    found = counted(past)
    assert (
        min(found[DISK, Status.QUEUED], found[TAPE, Status.QUEUED], found[TAPE, Status.WAITING]) > 0
    )
    assert found[TAPE, Status.COMPLETED] > ASSETS * 0.7
    causes = {group.category for group in past.ledger.groups("archive") if group.now}
    assert causes >= {"CHECKSUM", "EMPTY", "NAME"}
    late, _ = overdue(past, Query(route="archive"), 100)
    assert {asked.item.stage for asked in late} == {DISK, TAPE}
    assert list(past.ledger.read(HOLD)) == ["archive/on-tape/north"]
    assert [(act.verb, act.done) for act in all_acts(past)] == [("pause", 1), ("retry", 3)]
    assert [parked.key for parked in read_all(past.ledger, PARKED, Parked).values()] == [UNKNOWN]
    lists = records(past, "archive")
    assert (len(lists), sum(record.counts["new"] for record in lists)) == (8, ASSETS)
    assert (lists[4].counts["repeated"], lists[4].counts["malformed"]) == (3, 2)


def test_it_goes_back_two_days_with_quiet_nights(past: Context) -> None:
    now = past.clock.now()
    ended = [
        count
        for count in past.ledger.counts("archive")
        if count.status in {Status.COMPLETED, *FAILED} and count.n
    ]
    assert {now // HOUR - count.hour for count in ended} <= set(range(49))
    assert len({count.hour for count in ended}) > 36
    assert min(record.at for record in records(past, "archive")) == now - 48 * HOUR
    assert sum(pace(step, 14) for step in range(STEPS)) == pytest.approx(STEPS)
    # Three in the afternoon, and three at night.
    assert pace(8, 14) > 4 * pace(32, 14)


def test_the_catalogue_was_told_of_all_that_are_through_but_the_one_it_does_not_know(
    past: Context, folder: Path
) -> None:
    told = (folder / "catalogue.jsonl").read_text().splitlines()
    assert sum('"archive"' in line for line in told) == counted(past)[TAPE, Status.COMPLETED] - 1
    assert not any(UNKNOWN in line for line in told)


def test_every_demo_has_the_same_past(past: Context, tmp_path: Path) -> None:
    other = made(tmp_path, ASSETS, past.clock.now() - 7 * HOUR)
    try:
        assert counted(other) == counted(past)
        assert where_each_is(other) == where_each_is(past)
    finally:
        other.ledger.close()
