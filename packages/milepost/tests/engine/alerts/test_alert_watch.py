"""Alerts on a ledger: what several processes report, once, through any subscriber."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.standins import REGION
from tests.subscribers.mail_server import MailServer

import milepost as mp
import milepost.application as mpa
from milepost.application.installation import alert_watches
from milepost.core.events import Envelope
from milepost.engine.alerts import record as rules
from milepost.engine.alerts.record import Trouble
from milepost.engine.alerts.watch import AlertWatch, stored_alerts
from milepost.engine.health.checks import run_checks
from milepost.engine.health.findings import DOCTOR, CheckRun
from milepost.subscribers import CallSubscriber
from milepost_testing import VirtualClock, drain

LEDGERS = ["memory", "sqlite", "aws"]


class Scene:
    """Parcels in lanes, whose carriers fail as a test says, and watches of several processes that
    tell `told`."""

    def __init__(self, url: str, processes: int = 1, **rule: Any) -> None:
        self.clock = VirtualClock()
        self.errors: dict[str, str] = {}
        self.told: list[dict[str, Any]] = []
        self.post = mp.open(url, routes=[self._route()], clock=self.clock)
        self.rule = mpa.AlertRule(
            **{"name": "post", "to": ["log"], "route": "parcels", "items": "parcels"} | rule
        )
        self.watches = [self.watch() for _ in range(processes)]
        self.number = 0

    def watch(self, tell: Any = None) -> AlertWatch:
        receiver = CallSubscriber(tell or self.told.append, name="told")
        return AlertWatch(self.post.context, self.rule, [receiver], "w")

    def _route(self) -> mp.Route:
        parcels = mp.Route("parcels", key="id")

        @parcels.stage(
            "send",
            lane=lambda content: content["carrier"],
            retry=mp.Backoff(attempts=2, base="1s"),
            breaker=mp.Breaker(failures=4, within="1h", cooldown="10m"),
        )
        def send(item: mp.Item) -> mp.Outcome:
            error = self.errors.get(item.lane)
            if error is None:
                return mp.Done()
            if error.startswith("no "):
                return mp.Reject(error, category="REFUSED")
            return mp.Retry(error, category="DOWN")

        return parcels

    def send(self, carrier: str, count: int = 1) -> list[str]:
        keys = [f"{carrier}-{self.number + n}" for n in range(count)]
        self.number += count
        self.post.submit("parcels", *({"id": key, "carrier": carrier} for key in keys))
        drain(self.post, self.clock)
        return keys

    def turn(self) -> None:
        for watch in self.watches:
            watch.run_once()

    def titles(self) -> list[str]:
        found = [told["data"]["title"] for told in self.told]
        self.told.clear()
        return found


@pytest.fixture(params=LEDGERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "aws":
        endpoint, prefix = request.getfixturevalue("endpoint"), request.getfixturevalue("prefix")
        return f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/post.db"


def test_one_alert_for_each_cause_and_lane_and_one_when_it_is_over(url: str) -> None:
    scene = Scene(url, processes=3, breakers=False)
    with scene.post:
        scene.errors = {"van": "no street 1", "bike": "no street 2"}
        scene.send("van", 20)
        scene.send("bike", 20)
        scene.send("foot", 20)
        scene.turn()
        assert sorted(scene.titles()) == [
            "parcels: parcels at 'send' for bike fail: REFUSED",
            "parcels: parcels at 'send' for van fail: REFUSED",
        ]
        scene.errors["van"] = "no wheels"
        scene.send("van", 5)
        scene.turn()
        assert scene.titles() == ["parcels: parcels at 'send' for van fail: REFUSED"], (
            "another cause"
        )
        [record] = [
            one
            for one, _ in stored_alerts(scene.post.context).values()
            if one.trouble.lane == "bike"
        ]
        assert record.count == 20
        assert {(one["lane"], one["count"]) for one in scene.post.alerts()} == {
            ("van", 20),
            ("bike", 20),
            ("van", 5),
        }
        scene.clock.advance("16m")
        scene.turn()
        assert len(scene.titles()) == 3
        assert scene.post.alerts() == []
        scene.turn()
        assert scene.titles() == []
        scene.send("van", 3)
        scene.turn()
        assert scene.titles() == ["parcels: parcels at 'send' for van fail: REFUSED"], (
            "it begins again"
        )


def test_it_is_over_when_no_failed_item_is_left(url: str) -> None:
    scene = Scene(url, breakers=False)
    with scene.post:
        scene.errors = {"van": "no street"}
        keys = scene.send("van", 3)
        scene.turn()
        scene.titles()
        scene.errors.clear()
        scene.post.act("retry", "parcels", keys=keys[:2], by="ops", reason="mended")
        drain(scene.post, scene.clock)
        scene.turn()
        assert scene.titles() == [], "one is left"
        scene.post.act("retry", "parcels", keys=keys[2:], by="ops", reason="mended")
        drain(scene.post, scene.clock)
        scene.turn()
        assert scene.titles() == [
            "Over: parcels: parcels at 'send' for van no longer fail: REFUSED"
        ]


def test_retries_are_no_alert_and_exhausted_items_are(url: str) -> None:
    scene = Scene(url, breakers=False)
    with scene.post:
        scene.errors = {"van": "flat tyre"}
        scene.send("van")
        scene.turn()
        assert scene.titles() == ["parcels: parcels at 'send' for van fail: DOWN"]


def test_an_open_breaker_is_one_alert_until_it_has_been_closed_for_a_while(url: str) -> None:
    scene = Scene(url, processes=2, failures=False)
    with scene.post:
        scene.errors = {"van": "flat tyre"}
        scene.post.submit("parcels", *({"id": str(n), "carrier": "van"} for n in range(8)))
        with pytest.raises(AssertionError):
            drain(scene.post, scene.clock, at_most="30s")
        scene.turn()
        [told] = scene.told
        assert (told["type"], told["data"]["title"]) == (
            "milepost.alert.raised",
            "The breaker of parcels/send/van is open",
        )
        assert "flat tyre" in told["data"]["text"]
        scene.told.clear()
        scene.errors.clear()
        drain(scene.post, scene.clock)
        scene.turn()
        scene.clock.advance("2m")
        scene.turn()
        assert scene.titles() == ["Over: the breaker of parcels/send/van has closed"]


def test_a_pause_by_a_program_is_an_alert_and_one_by_a_person_is_not(url: str) -> None:
    scene = Scene(url, pauses_by=["robot"])
    with scene.post:
        scene.post.pause("parcels", "send", "van", by="robot", reason="the van answered 410 Gone")
        scene.post.pause("parcels", "send", "bike", by="ann", reason="holiday")
        scene.turn()
        [told] = scene.told
        assert told["data"]["title"] == "parcels/send/van is paused"
        assert "410 Gone" in told["data"]["text"]
        scene.told.clear()
        scene.post.resume("parcels", "send", "van", by="ann", reason="mended")
        scene.clock.advance("2m")
        scene.turn()
        assert scene.titles() == ["Over: the pause of parcels/send/van was resumed"]


def test_what_failed_before_the_first_watch_raises_nothing(url: str) -> None:
    scene = Scene(url, processes=0)
    with scene.post:
        scene.errors = {"van": "no street"}
        scene.send("van")
        scene.watches = [scene.watch()]
        scene.turn()
        assert scene.titles() == []
        scene.send("van")
        scene.turn()
        assert len(scene.titles()) == 1


def test_processes_that_look_at_the_same_time_alert_once(tmp_path: Path) -> None:
    scene = Scene(f"sqlite:///{tmp_path}/post.db", processes=0, breakers=False)
    told: list[str] = []
    together = threading.Barrier(4)
    with scene.post:
        scene.watches = [
            scene.watch(lambda envelope: told.append(envelope["id"])) for _ in range(4)
        ]
        scene.errors = dict.fromkeys(("van", "bike", "foot"), "no street")
        for carrier in scene.errors:
            scene.send(carrier, 5)

        def run(watch: AlertWatch) -> None:
            together.wait(60)
            for _ in range(5):
                watch.run_once()

        threads = [threading.Thread(target=run, args=(watch,)) for watch in scene.watches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        scene.turn()
    assert len(told) == len(set(told)) == 3


def test_a_receiver_that_is_down_gets_the_alert_later_and_doctor_says_so(url: str) -> None:
    scene = Scene(url, processes=0, breakers=False)
    down = True

    def tell(envelope: dict[str, Any]) -> None:
        if down:
            raise mp.MilepostError("no connection; token=abc")
        scene.told.append(envelope)

    with scene.post:
        scene.watches = [scene.watch(tell)]
        scene.errors = {"van": "no street"}
        scene.send("van")
        scene.turn()
        [finding] = [
            one.finding
            for one in run_checks(CheckRun(scene.post.context), DOCTOR)
            if one.finding.about == "alert"
        ]
        assert "told has not got the alert" in finding.what
        assert "abc" not in finding.what
        assert scene.post.alerts()[0]["undelivered"] == ["told"]
        down = False
        scene.turn()
        assert scene.titles() == [], "not at once"
        scene.clock.advance("1m")
        scene.turn()
        assert len(scene.titles()) == 1
        assert not [
            one
            for one in run_checks(CheckRun(scene.post.context), DOCTOR)
            if one.finding.about == "alert"
        ]


def test_an_alert_that_is_refused_for_good_is_logged_and_dropped(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(url, processes=0, breakers=False)

    def tell(envelope: dict[str, Any]) -> None:
        raise mp.EventRefused("no such address")

    with scene.post:
        scene.watches = [scene.watch(tell)]
        scene.errors = {"van": "no street"}
        scene.send("van")
        scene.turn()
        assert "refused for good by told" in caplog.text
        assert scene.post.alerts()[0]["undelivered"] == []


def test_very_many_causes_become_one_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.engine.alerts.record.MOST", 3)
    scene = Scene("memory:", breakers=False)
    with scene.post:
        for n in range(8):
            scene.errors[f"van{n}"] = "no street"
            scene.send(f"van{n}")
        scene.turn()
        titles = scene.titles()
        assert len(titles) == 4
        assert titles.count("parcels: parcels fail by many causes") == 1


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def test_an_alert_and_its_end_are_mails_of_one_conversation(server: MailServer) -> None:
    scene = Scene("memory:", processes=0, breakers=False)
    address = f"email:smtp://127.0.0.1:{server.port}?from=m@example.org&to=ops@example.org"
    with scene.post:
        scene.watches = alert_watches(
            scene.post.context, [mpa.AlertRule(name="post", to=[address], route="parcels")]
        )
        scene.errors = {"van": "no street"}
        scene.send("van", 4)
        scene.turn()
        scene.clock.advance("20m")
        scene.turn()
    raised, over = (mail.message for mail in server.mails)
    assert str(raised["Subject"]) == "parcels: items at 'send' for van fail: REFUSED"
    assert str(over["Subject"]).startswith("Over: ")
    assert str(over["In-Reply-To"]) == str(raised["Message-ID"])
    body = raised.get_body(("plain",))
    assert body is not None
    assert "milepost list parcels --status failed --lane van" in body.get_content()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"to": ["fax:1"]}, "fax:1"),
        ({"to": ["email:smtp://127.0.0.1"]}, "from="),
        ({"to": ["http://"]}, "http://"),
    ],
)
def test_a_receiver_that_cannot_be_is_said_at_the_start(
    rule: dict[str, Sequence[str]], said: str
) -> None:
    scene = Scene("memory:", processes=0)
    with scene.post, pytest.raises(mp.ConfigMistake, match=said):
        alert_watches(scene.post.context, [mpa.AlertRule(name="post", **rule)])  # type: ignore[arg-type]


def test_a_rule_that_cannot_be_is_refused() -> None:
    for fields in ({"name": "a b"}, {"to": "log"}, {"pauses_by": "ops"}, {"quiet": "soon"}):
        with pytest.raises(mp.UsageError):
            mpa.AlertRule(**{"name": "post", "to": ["log"]} | fields)  # type: ignore[arg-type]


def test_an_alert_is_a_cloud_event() -> None:
    scene = Scene("memory:", breakers=False)
    with scene.post:
        scene.errors = {"van": "no street"}
        [key] = scene.send("van")
        scene.turn()
    [told] = scene.told
    assert isinstance(told, Envelope)
    assert (told["specversion"], told["source"], told["type"], told["subject"]) == (
        "1.0",
        "/milepost/alerts/post",
        "milepost.alert.raised",
        "parcels/send/van",
    )
    assert told["data"]["example"] == key
    assert told["data"]["cause"] == "REFUSED"


def test_milepost_up_alerts_the_receivers_of_milepost_toml(tmp_path: Path) -> None:
    (tmp_path / "post.py").write_text(
        "import milepost as mp\n\nparcels = mp.Route('parcels', key='id')\n\n\n"
        "@parcels.stage('send')\ndef send(item):\n    return mp.Reject('no street', category='REFUSED')\n"
    )
    (tmp_path / "milepost.toml").write_text('routes = ["post.py"]\nalerts = ["log"]\n')
    (tmp_path / "list.jsonl").write_text('{"id": "P-1"}\n{"id": "P-2"}\n')
    run = partial(
        subprocess.run,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TZ": "UTC"},
    )
    run([sys.executable, "-m", "milepost", "submit", "parcels", "list.jsonl"])
    up = [sys.executable, "-m", "milepost", "up", "--until-idle", "0"]
    told = [json.loads(line) for line in run(up).stdout.splitlines()]
    assert [one["data"]["title"] for one in told] == ["parcels: items at 'send' fail: REFUSED"]
    assert run(up).stdout == "", "a second start says nothing new"


def test_a_change_by_another_process_between_two_deliveries_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("memory:")
    told: list[str] = []
    receivers = [
        CallSubscriber(lambda one, name=name: told.append(name), name=name)
        for name in ("first", "second")
    ]
    watch, other = (
        AlertWatch(scene.post.context, scene.rule, receivers, "w"),
        AlertWatch(scene.post.context, scene.rule, receivers, "o"),
    )
    scene.errors["crm"] = "no such parcel"
    scene.send("crm")
    change, done = watch._change, list[str]()

    def changed(trouble: Trouble, how: Any, **options: Any) -> Any:
        after = change(trouble, how, **options)
        if len(told) == 1 and not done:
            done.append("counted")
            other._record([replace(trouble, at=trouble.at + 1)])
        return after

    monkeypatch.setattr(watch, "_change", changed)
    watch.run_once()
    assert (told, done) == (["first", "second"], ["counted"])
    [(stored, _)] = stored_alerts(scene.post.context).values()
    assert stored.count == 2


def test_records_of_alerts_that_are_over_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_ENDED", 5)
    scene = Scene("memory:")
    for number in range(12):
        scene.errors[f"c{number}"] = "no such parcel"
        scene.send(f"c{number}")
        scene.turn()
        scene.clock.advance("16m")
        scene.turn()
    scene.turn()
    assert len(scene.titles()) == 24
    kept = [record.trouble.lane for record, _ in stored_alerts(scene.post.context).values()]
    assert sorted(kept) == ["c10", "c11", "c7", "c8", "c9"]


def _no_pointer(subject: mpa.AlertSubject) -> mpa.AlertPointer:
    raise KeyError(subject.lane)


@pytest.mark.parametrize(
    "pointer",
    [_no_pointer, lambda subject: "milepost doctor", lambda subject: mpa.AlertPointer("x", None)],
)  # type: ignore[arg-type]
def test_a_pointer_that_fails_stops_no_alert(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pointer: Any
) -> None:
    scene = Scene(f"sqlite:///{tmp_path}/post.db", pointer=pointer)
    scene.errors = {"north": "no such street"}
    scene.send("north")
    scene.turn()
    [told] = scene.told
    assert "milepost list parcels --status failed --lane north" in json.dumps(told)
    assert "pointer failed" in caplog.text
    assert [one["lane"] for one in scene.post.alerts()] == ["north"]
    scene.post.close()
