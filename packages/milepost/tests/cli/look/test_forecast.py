"""`milepost forecast` on the command line."""

from __future__ import annotations


def test_the_forecast_names_what_waits_and_why_there_is_none(shell) -> None:
    shell.write("march.txt", "A\nB\nC\n")
    shell.ok("submit", "parcels", "march.txt")
    shell.signed("pause", "parcels", "--stage", "weigh")
    said = shell.ok("forecast", "parcels").out
    assert "3 wait at weigh, which is paused. Nothing else is in progress." in said
    view = shell.ok("forecast", "parcels", "--json").json
    assert (view["moving"], view["waiting"], view["completed_at"]) == (0, 3, None)
    shell.signed("resume", "parcels", "--stage", "weigh")
    said = shell.ok("forecast", "parcels").out
    assert "There is no forecast: the pace of weigh has not been measured yet." in said
    listed = shell.ok("forecast", "parcels", "--list", "march.txt").out
    assert "3 items with rows: none ended; 3 in progress." in listed
    assert (
        shell.ok("forecast", "parcels", "--list", "march.txt", "--json").json["list"]["in_progress"]
        == 3
    )
    wrong = shell("forecast", "parcels", "--lane", "north")
    assert (wrong.code, "name the stage of the lane too" in wrong.err) == (2, True)
