"""The postingest document's state-change handler, scenario by scenario: how an ended row leaves,
and when it must not. Numbers are those of the scenario list for this system."""

from __future__ import annotations

from typing import Any

import pytest
from tests.postingest.aws_scene import ASSET, BATCH, OTHER, PATHS, VOLUMES, Opener, assets, text
from tests.postingest.scenarios.state_change_scene import ended, in_cc, in_scout

from milepost.core.outcome import Reject
from milepost.core.routes.route import Route
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import CancelVerb, RetryVerb


def kept(keep: Any) -> Route:
    """The stages on a route of one's own, which says how long an ended row stays. (Postingest's
    leave at once.)"""
    route = Route("assets", key=("assetId", "batchId"), keep=keep)
    for alias in ("CC", "Scout"):
        route.external(alias, message=lambda offer: offer["payload"])
    return route


def test_an_event_that_could_not_be_told_is_told_after_its_row_has_left(open_at: Opener) -> None:
    """Scenario 15: nobody goes untold because a topic was out when the row was about to leave.
    Telling goes by the journal."""
    post = open_at(route=assets())
    in_scout(post)
    post.told.deaf = True
    before = post.clock.now()
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    row = post.row()
    assert row is not None
    assert post.at() == ("Scout", "COMPLETED")
    assert int(row["ttl"]["N"]) * 1000 >= before + 3_600_000 - 1_000
    assert "dueShard" not in row
    post.delete()
    post.follow()
    assert post.row() is None
    post.told.deaf = False
    post.clock.advance("1h")
    post.tell()
    assert post.events()[-1] == ("confirmed", "Scout", "COMPLETED")


def test_a_spoilt_row_keeps_no_other_from_leaving(open_at: Opener) -> None:
    """Scenarios 13 and 15."""
    post = open_at(route=assets())
    in_scout(post)
    in_scout(post, OTHER)
    post.told.deaf = True
    for asset in (ASSET, OTHER):
        post.confirm("Scout", text(VOLUMES), asset)
    post.follow()
    post.take_off("createdAt")
    post.told.deaf = False
    post.clock.advance("1h")
    post.follow()
    assert "ttl" in (post.row(OTHER) or {})
    assert [aside["content"]["keys"]["assetId"] for aside in post.aside()] == [ASSET]


@pytest.mark.parametrize(("keep", "hours"), [(0, 1), ("10m", 1), ("30d", 30 * 24)])
def test_an_ended_row_leaves_by_its_time_to_live_and_its_memory_stays(
    open_at: Opener, keep: Any, hours: int
) -> None:
    """Scenario 35: theirs deletes the row; here seal and history outlive it, and it leaves an hour
    after the seal at the earliest."""
    post = open_at(route=kept(keep))
    ended(post)
    row = post.row()
    assert row is not None
    leaves = int(row["ttl"]["N"]) * 1000
    assert hours * 3_600_000 - 30_000 <= leaves - post.clock.now() <= hours * 3_600_000 + 1_000
    assert "trail" not in row
    post.delete()
    post.follow()
    assert post.aside() == []
    assert post.lines() == ["accepted", "confirmed", "confirmed"]
    known = post.ledger.peek(post.route, [f"{ASSET}#{BATCH}"])[0]
    assert known is not None
    assert (known.sealed, known.status.value) == (True, "COMPLETED")


def test_a_row_whose_route_keeps_it_has_no_time_to_live(open_at: Opener) -> None:
    """Scenario 35, for those who want to see what was."""
    post = open_at(route=kept(None))
    ended(post)
    assert "ttl" not in (post.row() or {})


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_row_that_did_not_complete_has_no_time_to_live(open_at: Opener, end: str) -> None:
    post = open_at(route=assets())
    in_cc(post)
    key = f"{ASSET}#{BATCH}"
    if end == "failed":
        confirm_outside(post.ctx, post.route, key, "CC", Reject("the object is damaged"), "checker")
    else:
        act(
            post.ctx,
            select(post.ctx, post.route, keys=[key]),
            CancelVerb(),
            by="ops",
            reason="withdrawn",
        )
    post.follow()
    row = post.row()
    assert row is not None
    assert ("trail" in row, "ttl" in row) == (False, False)


def test_a_failed_row_leaves_where_keep_names_its_status(open_at: Opener) -> None:
    post = open_at(route=kept({"completed": "0s", "rejected": "30d"}))
    in_cc(post)
    confirm_outside(
        post.ctx, post.route, f"{ASSET}#{BATCH}", "CC", Reject("the object is damaged"), "checker"
    )
    post.follow()
    row = post.row()
    assert row is not None
    assert int(row["ttl"]["N"]) * 1000 - post.clock.now() > 29 * 86_400_000


def test_an_edge_out_of_an_end_takes_the_time_to_live_off(open_at: Opener) -> None:
    """Scenario 35: a cancelled asset that a person starts again must not vanish on its way."""
    post = open_at(route=kept({"cancelled": "0s"}))
    in_cc(post)
    key = f"{ASSET}#{BATCH}"
    act(
        post.ctx,
        select(post.ctx, post.route, keys=[key]),
        CancelVerb(),
        by="ops",
        reason="withdrawn",
    )
    post.follow()
    assert "ttl" in (post.row() or {})
    act(
        post.ctx,
        select(post.ctx, post.route, keys=[key]),
        RetryVerb(),
        by="ops",
        reason="wanted after all",
    )
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    row = post.row()
    assert row is not None
    assert "ttl" not in row
    assert row["dueShard"]["S"].startswith("CC#")
    assert len(post.received("CC")) == 1
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
