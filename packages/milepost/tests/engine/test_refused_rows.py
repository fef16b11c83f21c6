"""A row that the storage refuses: a counted failure of that item, or set aside; the station
continues."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

import pytest

import milepost as mp
from milepost import station as stations
from milepost.composition import open_context
from milepost.core.errors import LedgerFull
from milepost.core.item import Item
from milepost.core.status import Status
from milepost.engine.act_log import ActReport, select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.foreign_rows import quarantine_view, replay
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor
from milepost.engine.intake import submit
from milepost.engine.resend import Resender
from milepost.engine.views.items import each, show
from milepost.engine.views.story import story
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.items import Query
from milepost.station import Station

CONTENT = "UPDATE content SET body = x'7b' WHERE item = 1"
REST = "UPDATE item SET rest = x'7b' WHERE id = 1"
PLACE = "UPDATE item SET place = 99 WHERE id = 1"
SIGNED = {"by": "ops", "reason": "test"}
ITEMS = 20


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stations, "BUSY_S", 0.01)


def route(answer: mp.Outcome | None = None, *, attempts: int = 2) -> mp.Route:
    parcels = mp.Route("parcels", key="id")

    @parcels.stage("weigh", retry=mp.Backoff(attempts=attempts, base=0.01, jitter=0))
    def weigh(item: mp.Item) -> mp.Outcome:
        return answer if answer is not None and item.key == "k0" else mp.Done({"of": item.key})

    return parcels


def filled(ctx: Context) -> Context:
    submit(ctx, "parcels", [{"id": f"k{number}"} for number in range(ITEMS)])
    return ctx


def change_file(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def completed(ctx: Context) -> int:
    return sum(
        count.n for count in ctx.ledger.counts("parcels") if count.status is Status.COMPLETED
    )


@pytest.mark.parametrize("damage", [CONTENT, REST])
def test_one_damaged_row_does_not_stop_its_stage(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, damage)
    Station(ctx).run(until_idle_s=0)
    assert completed(ctx) == ITEMS - 1
    told = story(ctx, "parcels", "k0")
    assert told is not None
    assert "cannot be read" in told.warnings[0]
    assert "Nothing automatically" in told.next[0]
    assert [command.split()[1] for command in told.can] == ([] if damage == CONTENT else ["cancel"])
    view = show(ctx, "parcels", "k0")
    assert view is not None
    assert "is damaged" in view["damaged"]
    assert ctx.ledger.find(Query(route="parcels", with_content=True)).refused


@pytest.mark.parametrize(
    "wrong",
    [
        "created_at = '2026-01-01'", "updated_at = 1.5", "entered_at = 'yesterday'", "version = x'31'", "head = 'text'", "losses = 'many'",
        "attempts = -1", "looks = 0.5", "round = 9e18", "claimed_at = 'soon'", "overdue_at = ''", "lease = x'05'", "status = -5", "flags = 'none'",
    ],
)  # fmt: skip
def test_a_wrong_value_in_one_row_does_not_stop_its_stage(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, f"UPDATE item SET {wrong} WHERE id = 1")
    Station(ctx).run(until_idle_s=0)
    assert len(list(each(ctx, Query(route="parcels")))) == completed(ctx) == ITEMS - 1
    view = show(ctx, "parcels", "k0")
    assert view is not None
    assert f"its row is damaged: {wrong.split()[0]}: " in view["damaged"]


def test_what_is_left_out_of_a_list_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, REST)
    assert len(list(each(ctx, Query(route="parcels")))) == ITEMS - 1
    assert "parcels/k0 skipped, its row cannot be read" in caplog.text


def test_a_row_whose_place_is_unknown_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, PLACE)
    Station(ctx).run(until_idle_s=0)
    assert completed(ctx) == ITEMS - 1
    assert [
        receipt.answer for receipt in submit(ctx, "parcels", [{"id": "k0"}, {"id": "new"}])
    ] == ["known", "new"]
    view = show(ctx, "parcels", "k0")
    assert view is not None
    assert (view["stage"], view["status"], "KeyError" in view["damaged"]) == (
        "weigh",
        "QUEUED",
        True,
    )
    assert story(ctx, "parcels", "k0") is not None


def test_an_item_whose_content_is_damaged_ends_as_a_failure_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, CONTENT)
    Station(ctx).run(until_idle_s=0)
    [failed] = ctx.ledger.find(Query(route="parcels", statuses=frozenset({Status.REJECTED}))).items
    assert failed.row.error is not None
    assert (failed.key, failed.row.error.category) == ("k0", "CANNOT_BE_READ")
    report: ActReport = act(ctx, select(ctx, "parcels", keys=["k0"]), RetryVerb(), **SIGNED)
    assert [key for key, why in report.refused if "cannot be read" in why] == ["k0"]
    change_file(path, """UPDATE content SET body = '{"id":"k0"}' WHERE item = 1""")
    assert act(ctx, select(ctx, "parcels", keys=["k0"]), RetryVerb(), **SIGNED).done == 1
    Station(ctx).run(until_idle_s=0)
    assert completed(ctx) == ITEMS


def test_a_row_that_is_set_aside_is_listed_and_can_be_released_once_it_is_mended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, REST)
    Station(ctx).run(until_idle_s=0)
    [aside] = quarantine_view(ctx, 10).set_aside
    assert (
        aside.kind,
        aside.content["route"],
        aside.content["key"],
        aside.content["row"]["rest"],
    ) == ("row", "parcels", "k0", "{")
    assert [
        finding.next for finding in doctor(ctx).findings if "in quarantine" in finding.what
    ] == ["milepost quarantine list"]
    [refused] = replay(ctx, [aside.id], **SIGNED)
    assert not refused.done
    assert "is damaged" in refused.why
    change_file(path, "UPDATE item SET rest = NULL WHERE id = 1")
    [released] = replay(ctx, [aside.id], **SIGNED)
    assert released.done
    Station(ctx).run(until_idle_s=0)
    assert completed(ctx) == ITEMS
    assert quarantine_view(ctx, 10).set_aside == []


def test_a_row_that_is_set_aside_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    ctx = filled(open_context(f"sqlite:///{path}", [route()]))
    change_file(path, REST)
    Station(ctx).run(until_idle_s=0)
    assert act(ctx, select(ctx, "parcels", keys=["k0"]), CancelVerb(), **SIGNED).done == 1
    [item] = ctx.ledger.get([("parcels", "k0")])
    assert isinstance(item, Item)
    assert item.status is Status.CANCELLED
    assert quarantine_view(ctx, 10).set_aside == []


def test_what_is_damaged_at_an_external_stage_does_not_stop_the_resender(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    parcels = mp.Route("parcels", key="id")
    parcels.external("sent", resend_after=0.001)
    ctx = filled(open_context(f"sqlite:///{path}", [parcels]))
    change_file(path, REST)
    before = ctx.ledger.last_seq()
    while ctx.ledger.last_seq() == before:
        Resender(ctx).run_once()
    assert ctx.ledger.last_seq() == before + ITEMS - 1


def test_an_outcome_that_the_storage_refuses_is_a_counted_try_that_ends_by_the_threshold() -> None:
    ctx = filled(open_context("memory:", [route(mp.Done("x" * 60_000))]))
    assert isinstance(ctx.ledger, MemoryLedger)
    ctx.ledger.refuse_above(50_000)
    Station(ctx).run(until_idle_s=0.1)
    assert completed(ctx) == ITEMS - 1
    [item] = ctx.ledger.get([("parcels", "k0")])
    assert isinstance(item, Item)
    assert (item.status, item.row.attempts) == (Status.MAX_RETRIES_EXCEEDED, 2)
    assert item.row.error is not None
    assert item.row.error.category == "CANNOT_BE_STORED"
    assert "60," in item.row.error.message


def test_what_cannot_even_be_failed_is_set_aside() -> None:
    ctx = filled(open_context("memory:", [route(mp.Done("x" * 60_000))]))
    assert isinstance(ctx.ledger, MemoryLedger)
    inner = ctx.ledger._state.refuses
    ctx.ledger._state.refuses = lambda change, content=None: (  # type: ignore[method-assign]
        inner(change, content) if change.after.key != "k0" or change.line is None else mp_refused()
    )
    Station(ctx).run(until_idle_s=0)
    assert completed(ctx) == ITEMS - 1
    [aside] = quarantine_view(ctx, 10).set_aside
    assert "neither the change nor its failure can be stored: no room" in aside.reason
    assert aside.content["key"] == "k0"


def mp_refused() -> object:
    from milepost.ports.items import Refused

    return Refused("no room")


# A full disk --------------------------------------------------------------------------------------
def fill_up(ledger: SqliteLedger) -> None:
    """From now on the file may not grow: SQLite's own limit gives the very error that a full disk
    does."""
    writer = ledger._store._writer
    writer.execute(f"PRAGMA max_page_count = {writer.execute('PRAGMA page_count').fetchone()[0]}")


def make_room(ledger: SqliteLedger) -> None:
    ledger._store._writer.execute("PRAGMA max_page_count = 1000000")


def test_workers_wait_while_the_disk_is_full_and_go_on_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = filled(open_context(f"sqlite:///{tmp_path / 'm.db'}", [route(mp.Done("x" * 100_000))]))
    ledger = ctx.ledger
    assert isinstance(ledger, SqliteLedger)
    fill_up(ledger)
    station = Station(ctx)

    def tick() -> None:
        if "the disk is full" in caplog.text:
            make_room(ledger)

    station.run(until_idle_s=0.1, on_tick=tick, tick_s=0.01)
    assert "worker is waiting for the ledger" in caplog.text
    assert "worker continues: the ledger is available again" in caplog.text
    assert completed(ctx) == ITEMS
    [item] = ctx.ledger.get([("parcels", "k0")])
    assert isinstance(item, Item)
    assert item.row.total_attempts == 0, "a full disk is nobody's failed try"


def test_a_station_that_starts_on_a_full_disk_waits_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ctx = filled(open_context(f"sqlite:///{tmp_path / 'm.db'}", [route()]))
    ledger, failures = ctx.ledger, 3
    assert isinstance(ledger, SqliteLedger)
    write = ledger._store.write

    def full(run: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise LedgerFull("the disk is full")
        return write(run)  # type: ignore[arg-type]

    ledger._store.write = full  # type: ignore[assignment, method-assign]
    Station(ctx).run(until_idle_s=0.1)
    assert completed(ctx) == ITEMS


def test_who_hands_over_hears_how_much_was_taken_in_before_the_disk_was_full(
    tmp_path: Path,
) -> None:
    with mp.Milepost(f"sqlite:///{tmp_path / 'm.db'}", [route()]) as post:
        ledger = post.context.ledger
        assert isinstance(ledger, SqliteLedger)
        post.submit("parcels", {"id": "first"})
        pages = ledger._store._writer.execute("PRAGMA page_count").fetchone()[0]
        ledger._store._writer.execute(f"PRAGMA max_page_count = {pages + 150}")
        inputs = [{"id": f"k{number}"} for number in range(20_000)]
        with pytest.raises(
            mp.LedgerError, match=r"the disk is full.*The first \d,000 inputs are recorded"
        ):
            post.submit("parcels", *inputs)
        there = sum(count.n for count in ledger.counts("parcels")) - 1
        listed = tmp_path / "list.txt"
        listed.write_text("".join(f"n{number}\n" for number in range(20_000)))
        ledger._store._writer.execute(f"PRAGMA max_page_count = {pages + 300}")
        with pytest.raises(mp.LedgerError, match=r"\d+,000 new items of this list are recorded"):
            post.submit_list("parcels", str(listed))
        assert there % 1_000 == 0


def test_a_list_whose_keys_find_no_room_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("a\nb\n")
    with mp.Milepost(f"sqlite:///{tmp_path / 'm.db'}", [route()]) as post:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(post.context.blobs, "write", full)
            with pytest.raises(LedgerFull, match="the disk is full; its items are recorded"):
                post.submit_list("parcels", str(listed))
        assert post.submit_list("parcels", str(listed)).counts["in_progress"] == 2


def test_the_doctor_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = filled(open_context(f"sqlite:///{tmp_path / 'm.db'}", [route()]))
    free = {"bytes": 10**12}
    monkeypatch.setattr("milepost.ledgers.sqlite.ledger.free_bytes", lambda path: free["bytes"])
    assert [finding for finding in doctor(ctx).findings if finding.about == "disk"] == []
    for left, level, what in (
        (50_000_000, "warn", "only 50 MB are free"),
        (4_096, "bad", "the disk is full"),
    ):
        free["bytes"] = left
        [finding] = [finding for finding in doctor(ctx).findings if finding.about == "disk"]
        assert (finding.level, what in finding.what) == (level, True)
