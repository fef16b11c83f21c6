"""Parts of an application in a program: routes, health checks in all three views, services."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from tests.application import parcels_application
from tests.application.parcels_application import Settings, application

import milepost as mp
import milepost.application as mpa
from milepost.application import installation
from milepost.engine.health.doctor import doctor, unready
from milepost.engine.health.findings import Finding
from milepost.engine.views.caches import TtlCache
from milepost.engine.views.snapshot import snapshots
from milepost.http.dashboard.pages.overview import health


@pytest.fixture(autouse=True)
def calls() -> list[int]:
    parcels_application.calls.clear()
    return parcels_application.calls


def opened(**settings: object) -> mp.Milepost:
    return mp.open("memory:", applications=[application.with_settings(Settings(**settings))])  # type: ignore[arg-type]


def found(desk: mp.Milepost) -> list[Finding]:
    return [
        finding
        for finding in doctor(desk.context).findings
        if finding.about in ("scale", "parcels-desk")
    ]


def notices(desk: mp.Milepost, *, all_seen: bool = True) -> list[str]:
    seen = snapshots(desk.context).values()
    return [
        one.headline
        for one in health(desk.context, seen, all_seen=all_seen, ttl_cache=TtlCache()).notices
        if "scale" in one.headline
    ]


def test_a_program_opens_an_application_with_its_settings_and_its_service_runs(
    calls: list[int],
) -> None:
    with opened(heaviest=5) as desk:
        desk.submit("weighed", {"id": "a", "grams": 6}, {"id": "b"})
        desk.run(until_idle=0)
        assert {key: desk.show("weighed", key)["status"] for key in ("a", "b", "polled")} == {  # type: ignore[index]
            "a": "REJECTED",
            "b": "COMPLETED",
            "polled": "COMPLETED",
        }
    assert calls == [5]


def test_without_settings_the_environment_and_the_defaults_hold(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    monkeypatch.setenv("MILEPOST_PARCELS_DESK_HEAVIEST", "7")
    with mp.open("memory:", applications=[application]) as desk:
        desk.run(until_idle=0)
    assert calls == [7]


def test_what_a_check_finds_is_shown_by_all_three_views() -> None:
    with opened() as desk:
        assert [(one.level, one.what) for one in found(desk)] == [("ok", "the scale answers")]
        assert notices(desk) == []
        assert [one.part for one in unready(desk.context)] == ["station", "resender"]
    with opened(fault="away") as desk:
        assert [(one.level, one.what, one.next) for one in found(desk)] == [
            ("bad", "the scale is away", "call the mechanic")
        ]
        assert notices(desk) == ["The scale is away."]
        assert notices(desk, all_seen=False) == []
        [part] = [one for one in unready(desk.context) if one.part == "parcels-desk"]
        assert part.why == "the check 'scale' fails; 'milepost doctor' says more"


def test_a_check_that_raises_is_a_finding_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(fault="raises") as desk:
        [one] = found(desk)
        assert (one.level, one.what) == (
            "warn",
            "the check 'scale' failed: ValueError: the cable is cut",
        )
        assert {"role", "chain"} <= {finding.about for finding in doctor(desk.context).findings}
    assert "the health check 'scale' of application 'parcels-desk' failed" in caplog.text


def test_two_alert_rules_of_one_name_are_a_mistake() -> None:
    """They would share a cursor: each failure would be seen by one of them alone."""
    found = []
    for name in ("letters", "parcels"):
        found.append(mpa.Application(name, mpa.AppSettings))
        found[-1].alerts(
            lambda settings, route=name: [mpa.AlertRule(name="failures", route=route, to=["log"])]
        )
    with (
        mp.open("memory:", applications=found) as desk,
        pytest.raises(mp.ConfigMistake, match="two alert rules are called 'failures'"),
    ):
        desk.run(until_idle=0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("the scale is away", "Expected `object`, got `str` - at `$[0]`"),
        (Finding("bad", "odd", None), "Expected `str`, got `null`"),
    ],
)
def test_a_check_that_yields_something_else_is_a_finding_too(given: Any, said: str) -> None:
    odd = mpa.Application("odd", mpa.AppSettings)

    @odd.check("scale")
    def scale(app: mpa.AppContext[mpa.AppSettings]) -> Any:
        yield given

    with mp.open("memory:", applications=[odd]) as desk:
        [one] = [finding for finding in doctor(desk.context).findings if finding.about == "odd"]
        assert one.level == "warn"
        assert one.what.startswith(f"the check 'scale' failed: ValidationError: {said}")


def test_a_check_that_hangs_holds_up_no_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "AFRESH_S", 0.01)
    monkeypatch.setattr(installation, "QUICK_S", 0.01)
    asked, answer = [], threading.Event()
    hangs = mpa.Application("hangs", mpa.AppSettings)

    @hangs.check("scale", ready=True)
    def scale(app: mpa.AppContext[mpa.AppSettings]) -> list[mpa.Finding]:
        asked.append(app.name)
        answer.wait(60)
        return [mpa.Finding("warn", "hangs", "the scale is slow")]

    with mp.open("memory:", applications=[hangs]) as desk:
        assert [one.what for one in doctor(desk.context).findings if one.about == "hangs"] == [
            "the check 'scale' has not answered within 0.01 s"
        ]
        assert notices(desk) == ["The check 'scale' has not answered within 0.01 s."]
        assert "hangs" not in [one.part for one in unready(desk.context)]
        assert asked == ["hangs"], "one run at a time"
        answer.set()
        monkeypatch.setattr(installation, "AFRESH_S", 60)
        assert [one.what for one in doctor(desk.context).findings if one.about == "hangs"] == [
            "the scale is slow"
        ]
        answer.clear()
        monkeypatch.setattr(installation, "KEEP_S", 0.0)
        assert notices(desk) == ["The scale is slow."], "the last result, while it hangs again"
        answer.set()


def test_a_service_that_raises_is_logged_and_has_had_no_good_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(fault="raises") as desk, caplog.at_level(logging.ERROR):
        desk.submit("weighed", {"id": "a"})
        desk.run(until_idle=0)
        assert desk.show("weighed", "a")["status"] == "COMPLETED"  # type: ignore[index]
        ran = {
            finding.what.split(":")[0]
            for finding in doctor(desk.context).findings
            if finding.about == "role" and finding.level == "ok"
        }
        assert "resender" in ran
        assert "parcels-desk-poll" not in ran
    assert "the service 'poll' of application 'parcels-desk' failed" in caplog.text


def test_only_a_command_that_writes_works_by_itself() -> None:
    worked: list[float] = []
    with mp.open("memory:", applications=[application]) as opened:
        configured = application.configured({}, {})
        configured.on(opened.context, work=worked.append).work(until_idle=3)
        with pytest.raises(mp.UsageError, match="ledger='write'"):
            configured.on(opened.context).work()
    assert worked == [3]


class NoSettings(mpa.AppSettings, frozen=True):
    pass


def test_an_application_is_called_before_an_operator_ends_a_pause_in_one_of_its_routes() -> None:
    told: list[tuple[str, str, str]] = []
    one, other, elsewhere = (
        mp.Route("one", key="id"),
        mp.Route("one-more", key="id"),
        mp.Route("elsewhere", key="id"),
    )
    for route in (one, other, elsewhere):
        route.stage("weigh")(lambda item: mp.Done())
    made = mpa.Application("desk", NoSettings)
    made.routes(lambda settings: [one, other])

    @made.resuming
    def resuming(app: mpa.AppContext[NoSettings], pause: mp.PauseView, by: str) -> None:
        told.append((pause.scope, pause.reason, by))
        if pause.scope == "one":
            raise mp.ActRefused("not this one")

    with mp.open(
        "memory:", routes=[elsewhere], applications=[made.with_settings(NoSettings())]
    ) as desk:
        for place in (("one",), ("one-more", "weigh", "a"), ("elsewhere",)):
            desk.pause(*place, by="ops", reason="they move")
        with pytest.raises(mp.ActRefused, match="not this one"):
            desk.resume("one", by="ann", reason="done")
        assert desk.resume("one-more", "weigh", "a", by="ann", reason="done")
        assert desk.resume("elsewhere", by="ann", reason="done")
        assert not desk.resume("one-more", by="ann", reason="there is none")
        assert told == [("one", "they move", "ann"), ("one-more/weigh/a", "they move", "ann")]
        assert [one.scope for one in desk.pauses("one")] == ["one"], "it stays in force"
        assert desk.resume("one", by="ops", reason="its own", own=True)
        assert len(told) == 2
