"""Evidence of an item outlives its row, if the route asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene, assets

from milepost.blobs.memory import MemoryBlobs
from milepost.composition import open_context
from milepost.core.errors import ConfigMistake, LedgerDamaged, LedgerError, RouteMistake
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.engine.context import Context
from milepost.engine.evidence import all_evidence, keeper
from milepost.engine.retention import prune
from milepost.evidence.record import SEAL_SCHEMA, blob_name, differences, kept
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, Leaving, PruneCriteria


class FullDisk(MemoryBlobs):
    """Takes so many blobs and no more."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.takes = takes

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        if self.takes == 0:
            raise OSError("no space left")
        self.takes -= 1
        super().write(name, chunks)


def test_the_record_of_a_row_that_has_left_is_the_one_it_had(scene: Scene) -> None:
    scene.through("a1", "a2")
    scene.bring("bad", damaged=True)
    before = [scene.record(key) for key in ("a1", "a2", "bad")]
    assert scene.prune().items == 3
    assert scene.ledger.get([(ROUTE, "a1")]) == [None]
    assert scene.ledger.history(ROUTE, "a1") == []
    assert [scene.record(key) for key in ("a1", "a2", "bad")] == before
    assert all(differences(record) == [] for record in before)
    assert before[0]["stages"][1]["output"]


def test_all_evidence_has_rows_and_those_that_have_left_each_once(scene: Scene) -> None:
    scene.through("a1")
    scene.bring("bad", damaged=True)
    scene.prune()
    scene.through("b1")
    query = Query(route=ROUTE, with_content=True)
    keys = sorted(found.record["key"] for found in all_evidence(scene.ctx, query))
    assert [key for key in keys if "newest" not in key] == ["a1", "b1", "bad"]
    assert len(keys) == len(set(keys))
    failed = Query(route=ROUTE, statuses=frozenset({Status.REJECTED}), with_content=True)
    assert [found.record["key"] for found in all_evidence(scene.ctx, failed)] == ["bad"]
    begun = Query(route=ROUTE, prefix="ba", with_content=True)
    assert [found.record["key"] for found in all_evidence(scene.ctx, begun)] == ["bad"]
    for other in (
        Query(route=ROUTE, lane="x"),
        Query(route=ROUTE, lists=frozenset({"x"})),
        Query(route=ROUTE, group="x"),
    ):
        assert list(all_evidence(scene.ctx, other)) == []


def test_it_is_written_before_the_row_goes_and_again_the_same_if_that_was_cut_off(
    scene: Scene,
) -> None:
    scene.through("a1", "a2", "a3")
    records = [scene.record(key) for key in ("a1", "a2", "a3")]
    scene.clock.advance("1h")
    scene.bring("newest")
    disk = FullDisk(2)
    full = Context(scene.ledger, scene.ctx.plans, scene.clock, scene.ctx.chance, disk)
    with pytest.raises(LedgerError, match="cannot be stored, so its row stays: no space left"):
        prune(full, ROUTE, 0, **SIGNED)
    assert all(scene.ledger.get([(ROUTE, key) for key in ("a1", "a2", "a3")])), "nothing has left"
    first = dict(disk.held)
    assert len(first) == 2
    disk.takes = 10
    assert prune(full, ROUTE, 0, **SIGNED).items == 3
    assert first.items() <= disk.held.items(), "what was written again is the same to the byte"
    assert len(disk.held) == 3
    again = Context(scene.ledger, scene.ctx.plans, scene.clock, scene.ctx.chance, disk)
    found = {
        one.record["key"]: one.record
        for one in all_evidence(again, Query(route=ROUTE, with_content=True))
    }
    assert [found[key] for key in ("a1", "a2", "a3")] == records


def test_a_row_that_is_changed_while_it_is_being_kept_stays(scene: Scene) -> None:
    """Its evidence would not be that of the row that goes."""
    scene.bring("bad", damaged=True)
    scene.clock.advance("1h")
    scene.bring("newest")

    def keep(leaving: Sequence[Leaving]) -> None:
        keeper(scene.ctx.blobs)(leaving)
        assert [one.item.key for one in leaving] == ["bad"]
        if scene.ledger.url.startswith("sqlite"):
            act(scene.ctx, select(scene.ctx, ROUTE, keys=["newest"]), CancelVerb(), **SIGNED)
            act(scene.ctx, select(scene.ctx, ROUTE, keys=["bad"]), RetryVerb(), **SIGNED)
            act(scene.ctx, select(scene.ctx, ROUTE, keys=["bad"]), CancelVerb(), **SIGNED)

    gone = scene.ledger.prune(
        PruneCriteria(
            ROUTE,
            TERMINAL,
            scene.clock.now() + 1,
            None,
            DeliveredLines(scene.ledger.last_seq() + 100),
            10,
            keep,
        )
    )
    [known] = scene.ledger.peek(ROUTE, ["bad"])
    assert known is not None
    if scene.ledger.url.startswith("sqlite"):
        assert (gone.items, known.sealed, known.status) == (0, False, Status.CANCELLED)
    assert scene.record("bad")["status"] == known.status.value


def test_what_was_altered_where_it_is_kept_does_not_fit_the_seal(archive: Scene) -> None:
    archive.through("a1", "a2")
    archive.prune()
    blobs = archive.ctx.blobs
    [a1, a2] = [blob_name(ROUTE, key) for key in ("a1", "a2")]
    blobs.write(a1, [b"".join(blobs.read(a1)).replace(b"tape library", b"nobody at all")])
    assert any("chain.head" in fault for fault in archive.found("a1").faults)
    assert archive.found("a2").faults == []
    for damaged in (b"{", b'{"record": {"route": "\xff"}, "place": 1}'):
        blobs.write(a2, [damaged])
        found = archive.found("a2")
        assert "is damaged" in found.faults[0]
        assert found.record["schema"] == SEAL_SCHEMA


def test_a_kept_input_that_was_altered_is_a_fault(archive: Scene) -> None:
    archive.through("a1")
    archive.prune()
    name = blob_name(ROUTE, "a1")
    archive.ctx.blobs.write(
        name,
        [
            b"".join(archive.ctx.blobs.read(name)).replace(
                b'"input":{"id":"a1"}', b'"input":{"id":"a2"}'
            )
        ],
    )
    assert archive.found("a1").faults == [f"its kept input is not the submitted one ({name})"]


def test_another_items_evidence_under_its_name_does_not_fit_the_seal(archive: Scene) -> None:
    archive.through("a1", "a2")
    archive.prune()
    archive.ctx.blobs.write(blob_name(ROUTE, "a1"), archive.ctx.blobs.read(blob_name(ROUTE, "a2")))
    assert archive.found("a1").faults != []


def test_a_route_that_keeps_none_leaves_a_seal_and_nothing_else() -> None:
    scene = Scene(evidence=False)
    scene.through("a1")
    scene.prune()
    record = scene.record("a1")
    assert (record["schema"], record["status"]) == (SEAL_SCHEMA, "COMPLETED")
    assert differences(record) == []
    assert list(scene.ctx.plans) == [ROUTE]


def test_the_same_item_always_gives_the_same_bytes(archive: Scene) -> None:
    archive.through("a1")
    [item] = archive.ledger.get([(ROUTE, "a1")])
    assert item is not None
    bodies = [written.body for written in archive.ledger.history(ROUTE, "a1")]
    backwards = {
        stage: dict(reversed(result.items())) for stage, result in reversed(item.results.items())
    }
    first = kept(item, bodies, 3)
    item.content.results = backwards
    assert kept(item, bodies, 3) == first


def test_evidence_and_forgetting_do_not_go_together() -> None:
    with pytest.raises(RouteMistake, match="leave out remember"):
        Route("assets", evidence=True, remember="30d")


def test_a_route_may_not_be_called_as_that_of_the_heads() -> None:
    route = Route("heads")
    route.external("x")
    with pytest.raises(ConfigMistake, match="choose another"):
        open_context("memory:", [assets(), route])


def test_a_key_that_was_never_seen_has_no_evidence(archive: Scene, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        archive.found("never")


def test_a_head_without_its_tree_is_said_to_be_damaged(archive: Scene) -> None:
    from milepost.engine.heads.daily import DAY_MS, HeadKeeper, all_heads, prover

    archive.through("a1")
    archive.clock.advance(DAY_MS / 1000)
    HeadKeeper(archive.ctx, None).turn()
    [head] = all_heads(archive.ctx)
    archive.ctx.blobs.remove(head["tree"])
    with pytest.raises(LedgerDamaged, match="restore it from a backup"):
        prover(archive.ctx).proof(1, b"")
