"""Keys with parts in a form of their own (`Route.key_forms`): items are found by the fields' own
texts too, and old ones keep their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.standins import REGION

import milepost as mp
from milepost.engine.act_log import all_acts
from milepost.engine.known_keys import known_keys

SECRET = "https://hooks.example/services/T0A1B2C3D/abcdef123456"
OTHER = "https://hooks.example/services/T0A1B2C3D/abcdef123457"
PLAIN = "https://crm.example/people"
Open = Callable[[bool], Any]


def calls(formed: bool) -> mp.Route:
    """A route with a URL in its key, as an earlier version and as this one has it."""
    route = mp.Route(
        "calls", key=("id", "at", "by", "url"), key_forms={"url": mp.url_in_key} if formed else None
    )

    @route.stage("call")
    def call(item: mp.Item) -> mp.Outcome:
        return mp.Done(item.input["url"])

    return route


def content(url: str, **fields: str) -> dict[str, str]:
    return {"id": "a", "at": "2026", "by": "shop", "url": url, **fields}


def own_key(url: str) -> str:
    return f"a#2026#shop#{url}"


@pytest.fixture(params=["memory", "sqlite", "aws"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one ledger, by an earlier version (False) or by this one (True)."""
    if request.param == "aws":
        endpoint, prefix = request.getfixturevalue("endpoint"), request.getfixturevalue("prefix")
        url = f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    else:
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    shared = mp.open("memory:", routes=[calls(False)]) if request.param == "memory" else None

    @contextmanager
    def open_ledger(formed: bool) -> Iterator[mp.Milepost]:
        if shared is None:
            with mp.open(url, routes=[calls(formed)]) as opened:
                yield opened
            return
        plan = shared.context.plan("calls")
        plan.route.key_forms = {"url": mp.url_in_key} if formed else {}
        yield shared

    return open_ledger


def test_a_key_with_nothing_hidden_is_the_fields_texts(opened: Open) -> None:
    with opened(True) as desk:
        [receipt] = desk.submit("calls", content(PLAIN))
        assert (receipt.answer, receipt.key) == ("new", own_key(PLAIN))


def test_an_item_is_known_and_found_by_both_forms_of_its_key(opened: Open) -> None:
    with opened(True) as desk:
        [receipt] = desk.submit("calls", content(SECRET))
        assert receipt.key == own_key(mp.url_in_key(SECRET))
        assert "abcdef123456" not in receipt.key
        assert [one.answer for one in desk.submit("calls", content(SECRET), content(OTHER))] == [
            "known",
            "new",
        ]
        for key in (receipt.key, own_key(SECRET)):
            shown = desk.show("calls", key)
            assert shown is not None
            assert (shown["key"], shown["input"]["url"]) == (receipt.key, SECRET)
        report = desk.act("cancel", "calls", keys=[own_key(SECRET)], by="ops", reason="a test")
        assert (report.done, desk.show("calls", receipt.key)["status"]) == (1, "CANCELLED")
        assert desk.show("calls", own_key(OTHER))["status"] != "CANCELLED"


def test_the_record_of_an_act_on_an_unknown_item_holds_no_secret_of_its_key(opened: Open) -> None:
    with opened(True) as desk:
        desk.submit("calls", content(OTHER))
        report = desk.act(
            "cancel", "calls", keys=[own_key(SECRET), own_key(OTHER)], by="ops", reason="a test"
        )
        assert (report.done, report.refused_count) == (1, 1)
        [act] = all_acts(desk.context, verb="cancel")
        assert "abcdef123456" not in str((act, report))


def test_an_item_of_an_earlier_version_keeps_its_key_and_is_accepted_once(opened: Open) -> None:
    with opened(False) as desk:
        assert desk.submit("calls", content(SECRET))[0].key == own_key(SECRET)
    with opened(True) as desk:
        [same, changed] = desk.submit("calls", content(SECRET), content(SECRET, more="x"))
        assert (same.answer, same.key, changed.answer) == ("known", own_key(SECRET), "changed")
        assert len(desk.items("calls")) == 1
        formed = own_key(mp.url_in_key(SECRET))
        assert known_keys(desk.context, "calls", [formed, own_key(SECRET), "unknown"]) == [
            own_key(SECRET),
            own_key(SECRET),
            "unknown",
        ]
        assert desk.show("calls", formed)["key"] == own_key(SECRET)
        assert desk.replace(
            "calls", content(SECRET, more="x"), by="ops", reason="a test"
        ).key == own_key(SECRET)
        desk.run(until_idle=0)
        assert desk.show("calls", formed)["status"] == "COMPLETED"
        assert desk.submit("calls", content(SECRET, more="x"))[0].answer == "known"


def test_an_item_of_an_earlier_version_is_known_when_its_row_has_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with mp.open(url, routes=[calls(False)]) as desk:
        desk.submit("calls", content(SECRET))
        desk.run(until_idle=0)
        desk.prune("calls", "0s", by="ops", reason="a test")
        assert desk.items("calls") == []
    with mp.open(url, routes=[calls(True)]) as desk:
        assert desk.submit("calls", content(SECRET))[0].answer == "known"
        assert desk.show("calls", own_key(SECRET))["sealed"] is True


def test_a_filter_by_a_part_of_the_key_takes_both_forms_and_records_none_of_the_secret(
    opened: Open,
) -> None:
    with opened(True) as desk:
        desk.submit("calls", content(SECRET), content(OTHER))
        for text in (SECRET, mp.url_in_key(SECRET)):
            assert [item["key"] for item in desk.items("calls", parts=[f"url={text}"])] == [
                own_key(mp.url_in_key(SECRET))
            ]
        report = desk.act("cancel", "calls", parts=[f"url={SECRET}"], by="ops", reason="a test")
        assert report.done == 1
        [act] = all_acts(desk.context, verb="cancel")
        assert "abcdef123456" not in str(act)


@pytest.mark.parametrize(
    "forms", [{"other": mp.url_in_key}, {"url": "hidden"}, {"url": lambda: "x"}]
)
def test_forms_that_cannot_be_used_are_a_mistake(forms: Any) -> None:
    with pytest.raises(mp.RouteMistake, match="key_forms"):
        mp.Route("calls", key=("id", "url"), key_forms=forms)
