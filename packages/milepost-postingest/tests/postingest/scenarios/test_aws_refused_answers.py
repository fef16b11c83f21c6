"""Answers on a row that do not confirm its stage, as a confirmer writes that counts one file on
tape for all of them: each is noted, leaves the row, and has the stage offered again after a short
pause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.postingest.aws_scene import (
    AHEAD,
    ASSET,
    BATCH,
    PATHS,
    VOLUMES,
    Opener,
    Postingest,
    assets,
    text,
)
from tests.postingest.scenarios.state_change_scene import in_cc, in_scout
from tests.postingest.scenarios.test_aws_late_confirmations import lose, repaired

from milepost.core.confirmations import was_refused
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import ConfirmVerb
from milepost_testing.clock import VirtualClock

FIRST, SECOND = PATHS["filePaths"]
PART = {FIRST: ["L03721"]}
WHY = "it covers 1 of 2 files; missing: two (in abc/def/0a1/v1/content)"
LAST = {"seed": "Scout", "today": "TC"}


@pytest.fixture(params=["seed", "today"])
def on_tape(request: pytest.FixtureRequest, open_at: Opener) -> tuple[Postingest, str]:
    """An asset whose last stage was offered, in either dialect, and that stage's name."""
    post, stage = (
        open_at(VirtualClock(AHEAD), route=assets(dialect=request.param)),
        LAST[request.param],
    )
    post.put()
    post.follow()
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == (stage, "QUEUED")
    assert [sent.labels["stage"] for sent in post.received(stage)] == [stage]
    return post, stage


def test_a_partial_map_confirms_nothing_leaves_the_row_and_is_asked_for_again_soon(
    on_tape: tuple[Postingest, str],
) -> None:
    post, stage = on_tape
    pauses = []
    for _ in range(4):
        post.confirm(stage, text(PART))
        post.follow()
        row = post.item().row
        assert post.at() == (stage, "WAITING")
        assert was_refused(row)
        assert row.note == f"its answer was refused: {WHY}"
        assert f"{post.prefix}{stage}" not in (post.row() or {})
        pauses.append(((row.look_at or 0) - post.clock.now()) // 1000)
        assert post.received(stage) == []
        post.clock.advance("1h")
        assert post.resend().resent == 1
        (again,) = post.received(stage)
        payload = again.body["payload"] if stage == "TC" else again.body
        assert payload == PATHS
    assert pauses == [60, 120, 240, 480]
    assert post.lines().count("not-yet") == 1, "however often the same is said"
    post.confirm(stage, text(VOLUMES))
    post.follow()
    assert post.at() == (stage, "COMPLETED")


@pytest.mark.parametrize(
    "value",
    [
        {"BOOL": True}, {"S": "pending"}, {"S": "error: no drive"}, {"N": "-1"}, text({"archdone": False}), text([]), {"S": "yes"},
        text({FIRST: {"archdone": False}, SECOND: {"archdone": True}}), text({FIRST: ["L1"], SECOND: []}), text({"filePaths": [FIRST]}),
    ],
)  # fmt: skip
def test_nothing_less_than_all_files_confirms_as_in_the_design_document(
    open_at: Opener, value: dict[str, Any]
) -> None:
    post = open_at(VirtualClock(AHEAD))
    in_scout(post)
    post.confirm("Scout", value)
    post.follow()
    assert post.at() == ("Scout", "WAITING")
    assert len(post.told.notifications) == 2


def test_a_first_stage_is_judged_by_what_it_was_given_though_its_confirmer_rewrites_the_input(
    open_at: Opener,
) -> None:
    post = open_at(VirtualClock(AHEAD))
    in_cc(post)
    post.confirm("CC", {"BOOL": True}, rewrite=json.dumps(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED"), "the files are the next stage's"
    files = open_at(VirtualClock(AHEAD), route=assets([{"queueAlias": "Scout", "queueOrder": 1}]))
    files.put(content=json.dumps(PATHS))
    files.follow()
    files.confirm("Scout", text(PART), rewrite='{"nobody":"is next"}')
    files.follow()
    assert files.at() == ("Scout", "WAITING")
    files.clock.advance("1h")
    files.resend()
    assert [sent.body for sent in files.received("Scout")][-1] == PATHS
    files.confirm("Scout", text(VOLUMES))
    files.follow()
    assert files.at() == ("Scout", "COMPLETED")


def test_a_partial_map_that_the_stream_lost_is_found_by_the_repair(
    on_tape: tuple[Postingest, str],
) -> None:
    post, stage = on_tape
    post.confirm(stage, text(PART))
    lose(post)
    assert repaired(post) == {"noted": 1}
    post.follow()
    assert post.at() == (stage, "WAITING")
    assert repaired(post) == {}


def test_an_operator_confirms_with_force(on_tape: tuple[Postingest, str]) -> None:
    post, stage = on_tape
    key = f"{ASSET}#{BATCH}"
    plain = act(
        post.ctx,
        select(post.ctx, post.route, keys=[key]),
        ConfirmVerb(stage),
        by="ops",
        reason="seen on the shelf",
    )
    assert "can confirm it with force" in plain.refused[0][1]
    forced = act(
        post.ctx,
        select(post.ctx, post.route, keys=[key]),
        ConfirmVerb(stage, force=True),
        by="ops",
        reason="seen on the shelf",
    )
    assert forced.done == 1
    post.follow()
    assert post.at() == (stage, "COMPLETED")
    line = post.ledger.history(post.route, key)[-1].line
    assert (line.reason.value, line.by, line.why) == ("confirmed", "ops", "seen on the shelf")
    assert "names none of the 2 files" in line.note["forced"]


def test_digests_and_sizes_are_kept_and_the_next_stage_is_given_the_paths(open_at: Opener) -> None:
    post = open_at(VirtualClock(AHEAD), route=assets(dialect="today"))
    post.put()
    post.follow()
    found = {
        **PATHS,
        "digests": {FIRST: "sha512:ab", SECOND: "sha512:cd"},
        "sizes": {FIRST: 1, SECOND: 2},
        "version": "v1",
    }
    post.confirm("CC", text(found))
    post.follow()
    (sent,) = post.received("TC")
    assert sent.body["payload"] == PATHS
    post.confirm("TC", text(VOLUMES))
    post.follow()
    assert post.item().results == {"CC": found, "TC": VOLUMES}
