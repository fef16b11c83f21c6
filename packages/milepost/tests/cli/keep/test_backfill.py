"""An added stage for finished items, at a pace, from the command line; and what operators ask of a
route."""

from __future__ import annotations

from tests.cli.commands import STAMPED, WEIGHED

LATE = """
parcels.external("delivered", resend_after="14d", overdue="1ms")
"""
FILED = """
@parcels.stage("filed")
def filed(item: mp.Item) -> mp.Outcome:
    return mp.Done()

"""


def test_finished_items_are_sent_on_at_a_pace(shell) -> None:
    shell.write("parcels.py", WEIGHED + STAMPED)
    shell.submit(*({"id": f"P-{number}"} for number in range(4)))
    shell.ok("work", "--until-idle", "0.2")
    shell.signed("prune", "parcels", "--older-than", "0s")
    shell.submit(*({"id": f"Q-{number}"} for number in range(3)))
    shell.ok("work", "--until-idle", "0.2")
    shell.write("parcels.py", WEIGHED + STAMPED + FILED)
    assert (
        "--pace needs --back-fill STAGE"
        in shell("routes", "apply", "--pace", "2/h", "--dry-run").flat
    )
    said = shell.ok("routes", "apply", "--back-fill", "filed", "--pace", "2/h", "--dry-run").flat
    seen = shell.ok(
        "routes", "apply", "--back-fill", "filed", "--pace", "2/h", "--dry-run", "--json"
    ).json["back_fill"]
    rows, gone = seen["items"], seen["sealed"]
    assert (rows, gone) == (3, 4)
    assert "3 finished items would be sent to filed at 2/h, in about 90 min." in said
    assert "Each is in progress until it completes filed" in said
    assert f"{gone} finished keys cannot be sent: their rows have been removed" in said
    begun = shell.signed("routes", "apply", "--back-fill", "filed", "--pace", "2/h")
    assert "The resender ('milepost up') sends them" in begun.flat
    shell.ok("resend")
    [view] = shell.ok("routes", "--json").json["routes"]
    state = view["back_fill"]
    assert (state["stage"], state["state"], state["done"], state["left"]) == (
        "filed",
        "under way",
        1,
        rows - 1,
    )
    assert f"1 finished item sent to filed, {rows - 1} left, 2/h, about" in shell.ok("routes").flat
    assert "back-fill" in shell("doctor").out
    assert shell("routes", "back-fill", "parcels", "--stop").code == 2, "somebody must sign"
    assert "stopped by ops: a test" in shell.signed("routes", "back-fill", "parcels", "--stop").flat
    gone_on = shell.signed("routes", "back-fill", "parcels", "--pace", "1000/s", "--json").json[
        "back_fill"
    ]
    assert (gone_on["state"], gone_on["pace_per_s"]) == ("under way", 1000.0)
    shell.ok("up", "--until-idle", "0.2")
    assert (
        f"{rows} finished items sent to filed; finished"
        in shell.ok("routes", "back-fill", "parcels").flat
    )
    stages = shell.ok("status", "--json").json["routes"]["parcels"]["stages"]
    assert stages["filed"] == {"COMPLETED": rows}
    assert shell.signed("routes", "back-fill", "parcels", "--stop").code == 2


def test_ages_what_is_late_and_what_comes_next(shell) -> None:
    shell.write("parcels.py", WEIGHED + STAMPED + LATE)
    shell.submit({"id": "A"}, {"id": "B", "later": True})
    shell.ok("work", "--until-idle", "0.2")
    ages = shell.ok("status", "parcels", "--ages", "--json").json["routes"]["parcels"]["ages"]
    assert (ages["weigh"]["items"], ages["stamp"]) == (
        1,
        {"items": 0, "p50_s": None, "p95_s": None, "oldest_s": None},
    )
    assert 0 < ages["delivered"]["p50_s"] == ages["delivered"]["oldest_s"]
    assert "p50" in shell.ok("status", "--ages").out
    late = shell.ok("list", "parcels", "--overdue", "--json").json
    assert [(item["key"], item["why"]) for item in late["items"]] == [
        ("A", "offered; not confirmed yet")
    ]
    assert late["items"][0]["overdue_for_s"] > 0
    assert "overdue by" in shell.ok("list", "parcels", "--overdue").out
    coming = shell.ok("list", "parcels", "--next").out
    assert coming.index("A ") < coming.index("B ")
    assert "not brought yet" in coming
    assert "… and more" in shell.ok("list", "parcels", "--next", "--limit", "1").out
    assert (
        shell.ok("list", "parcels", "--overdue", "--stage", "weigh").out == "No item is overdue.\n"
    )
    assert shell("list", "parcels", "--overdue", "--next").code == 2
    shell.write("parcels.py", WEIGHED + STAMPED)
    assert "1 item at delivered, a stage that the route does not have" in shell.ok("status").flat
