"""Messages that wait for a destination that is removed: they never go out by the defaults
unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shell
from tests.notifications.partners import Partner, Service, VirtualClock, answers, message, service

from milepost.station import Station
from milepost_notifications.operate import registry
from milepost_notifications.operate.registry import remove_destination, resume_returned

API = "/api/v1/notifications"


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner(answers(200)) as running:
        yield running


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'n.db'}"


def crm(partner: Partner) -> dict[str, Any]:
    return {"url": partner.url, "headers": {"X-Team": "sales"}}


def waiting(at: Service) -> dict[str, Any]:
    [found] = [
        one
        for one in at.call("GET", f"{API}/destinations").body["destinations"]
        if one["name"] == "crm"
    ]
    return dict(found)


def test_a_removal_with_a_backlog_is_refused_and_names_it(ledger: str, partner: Partner) -> None:
    with service(ledger) as at:
        at.call("PUT", f"{API}/destinations/crm", crm(partner))
        at.post(message(partner.url))
        at.post(message(partner.url, messageId="m-2"))
        refused = at.call("DELETE", f"{API}/destinations/crm")
        assert (refused.status, "2 messages have not ended" in refused.body["detail"]) == (
            409,
            True,
        )
        assert waiting(at)["registered"] == "ledger", "it is still there"
        at.work()
        assert [one.headers["x-team"] for one in partner.requests] == ["sales", "sales"]
        assert at.call("DELETE", f"{API}/destinations/crm").status == 204


def test_a_forced_removal_sends_them_by_what_their_urls_belong_to(
    ledger: str, partner: Partner
) -> None:
    with service(ledger) as at:
        at.call("PUT", f"{API}/destinations/crm", crm(partner))
        sent = message(partner.url)
        at.post(sent)
        assert at.call("DELETE", f"{API}/destinations/crm?force=true").status == 204
        at.work()
        assert at.item(sent)["status"] == "COMPLETED"
        assert "x-team" not in partner.requests[0].headers


def test_a_forced_removal_holds_though_the_service_looks_for_destinations_that_are_back_meanwhile(
    ledger: str, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets the release of a destination that is there: the removal must not be seen half
    done."""

    def release(app: Any, name: str) -> None:
        releases(app, name)
        resume_returned(app)

    releases = registry.release
    monkeypatch.setattr(registry, "release", release)
    with service(ledger) as at:
        at.call("PUT", f"{API}/destinations/crm", crm(partner))
        sent = message(partner.url)
        at.post(sent)
        remove_destination(at.app, "crm", force=True, by="ops")
        at.work()
        assert (at.item(sent)["status"], at.app.pauses("notifications")) == ("COMPLETED", [])


def test_a_destination_of_the_configuration_holds_again_whatever_waits(
    ledger: str, partner: Partner
) -> None:
    with service(
        ledger, destinations={"crm": {"url": partner.url, "headers": {"X-Team": "its own"}}}
    ) as at:
        at.call("PUT", f"{API}/destinations/crm", crm(partner))
        at.post(message(partner.url))
        remove_destination(at.app, "crm", by="ops")
        at.work()
        assert partner.requests[0].headers["x-team"] == "its own"


@pytest.mark.parametrize("unregistered", ["allow", "refuse"])
def test_messages_for_a_table_that_was_taken_out_wait_until_it_is_back(
    ledger: str, partner: Partner, unregistered: str
) -> None:
    sent = [message(partner.url, messageId=f"m-{number}") for number in range(3)]
    with service(ledger, destinations={"crm": crm(partner)}) as at:
        for one in sent:
            at.post(one)
    with service(ledger, unregistered=unregistered) as at:
        at.work()
        assert partner.requests == []
        assert {(at.item(one)["status"], at.item(one)["attempts"]) for one in sent} <= {
            ("QUEUED", 0),
            ("WAITING", 0),
        }
        found = waiting(at)
        assert (found["registered"], found["state"], found["waiting"]) == (None, "paused", 3)
        assert any(
            "3 messages wait for crm, which is no destination any more" in one.what
            for one in at.findings()
        )
    clock = VirtualClock()
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        clock.advance_to(max(at.next_look(one) or 0 for one in sent))
        at.work()
        resume_returned(at.app)
        at.work()
        assert {at.item(one)["status"] for one in sent} == {"COMPLETED"}
        assert [one.headers["x-team"] for one in partner.requests] == ["sales"] * 3
        assert at.app.pauses("notifications") == []


def test_an_operator_sends_them_on_by_a_resume(ledger: str, partner: Partner) -> None:
    sent, clock = message(partner.url), VirtualClock()
    with service(ledger, destinations={"crm": crm(partner)}) as at:
        at.post(sent)
    with service(ledger, clock) as at:
        clock.advance_to(at.next_look(sent) or 0)
        at.work()
        assert at.call("POST", f"{API}/destinations/nobody/resume", {"reason": "x"}).status == 404
        resumed = at.call(
            "POST", f"{API}/destinations/crm/resume", {"reason": "crm is gone; send them plainly"}
        )
        assert (resumed.status, resumed.body["paused"]) == (200, None)
        clock.advance("1m")
        at.work()
        assert (at.item(sent)["status"], "x-team" in partner.requests[0].headers) == (
            "COMPLETED",
            False,
        )
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        resume_returned(at.app)
        assert at.state.destinations.released == {"crm"}, "as it was read"
        assert at.app.documents.find("released/") == {}, "the next removal waits again"


def resume_by_the_library(at: Service) -> bool:
    return at.milepost.resume(
        "notifications", "deliver", "crm", by="ops", reason="send them plainly"
    )


def resume_by_the_general_api(at: Service) -> bool:
    answer = at.call(
        "DELETE", "/api/v1/routes/notifications/holds/deliver/crm?reason=send+them+plainly"
    )
    return bool(answer.body["resumed"])


@pytest.mark.parametrize("resume", [resume_by_the_library, resume_by_the_general_api])
def test_the_general_resume_of_its_lane_sends_them_on_too(
    ledger: str, partner: Partner, resume: Callable[[Service], bool]
) -> None:
    sent, clock = message(partner.url), VirtualClock()
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        at.post(sent)
    with service(ledger, clock) as at:
        at.work()
        assert [one.scope for one in at.app.pauses("notifications")] == [
            "notifications/deliver/crm"
        ]
        assert resume(at)
        clock.advance("1m")
        at.work()
        assert (at.item(sent)["status"], at.app.pauses("notifications")) == ("COMPLETED", [])
        assert "x-team" not in partner.requests[0].headers


def test_the_general_resume_of_an_operators_pause_does_not_release_messages_of_a_destination_that_is_gone(
    ledger: str, partner: Partner
) -> None:
    """That operator has not been told that it is gone: the next message says so."""
    sent, clock = message(partner.url), VirtualClock()
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        at.post(sent)
        at.milepost.pause("notifications", "deliver", "crm", by="ops", reason="they are moving")
    with service(ledger, clock) as at:
        assert resume_by_the_library(at)
        at.work()
        [pause] = at.app.pauses("notifications")
        assert (pause.by, partner.requests) == ("notifications", [])


def test_a_worker_that_has_just_read_the_destinations_obeys_a_resume_at_once(
    ledger: str, partner: Partner
) -> None:
    sent, clock = message(partner.url), VirtualClock()
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        at.post(sent)
    with service(ledger, clock) as worker, service(ledger, clock) as at:
        Station(worker.ctx, roles={"worker"}).run(until_idle_s=0)
        assert (worker.state.destinations.stale, worker.state.destinations.gone("crm")) == (
            False,
            True,
        )
        assert (
            at.call(
                "POST", f"{API}/destinations/crm/resume", {"reason": "send them plainly"}
            ).status
            == 200
        )
        clock.advance("1m")
        Station(worker.ctx, roles={"worker"}).run(until_idle_s=0)
        assert (worker.item(sent)["status"], worker.app.pauses("notifications")) == (
            "COMPLETED",
            [],
        )


def test_a_pause_that_a_worker_makes_while_an_operator_resumes_is_ended(
    ledger: str, partner: Partner
) -> None:
    with service(ledger, destinations={"crm": crm(partner)}) as at:
        at.post(message(partner.url))
    with service(ledger) as at:
        at.work()
        [pause] = at.app.pauses("notifications")
        assert resume_by_the_library(at)
        at.app.pause("notifications", "deliver", "crm", by=pause.by, reason=pause.reason, own=True)
        resume_returned(at.app)
        assert at.app.pauses("notifications") == []


def test_a_renamed_destination_takes_the_messages_over(ledger: str, partner: Partner) -> None:
    with service(ledger, destinations={"crm": crm(partner)}) as at:
        at.post(message(partner.url))
    with service(ledger, destinations={"people": crm(partner)}) as at:
        at.work()
        assert partner.requests[0].headers["x-team"] == "sales"


def test_a_destination_that_is_back_under_another_name_takes_waiting_messages_over(
    ledger: str, partner: Partner
) -> None:
    sent, clock = message(partner.url), VirtualClock()
    with service(ledger, clock, destinations={"crm": crm(partner)}) as at:
        at.post(sent)
    with service(ledger, clock) as at:
        clock.advance("1m")
        at.work()
        resume_returned(at.app)
        assert len(at.app.pauses("notifications")) == 1, "its messages wait"
    with service(ledger, clock, destinations={"people": crm(partner)}) as at:
        resume_returned(at.app)
        clock.advance("1m")
        at.work()
        assert (at.item(sent)["status"], partner.requests[0].headers["x-team"]) == (
            "COMPLETED",
            "sales",
        )
        assert at.app.pauses("notifications") == []


@pytest.mark.parametrize("unregistered", ["allow", "refuse"])
def test_messages_for_the_old_url_of_a_destination_wait_and_the_others_are_sent(
    ledger: str, partner: Partner, unregistered: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by the defaults, without its credentials, nor rejected: its lane is still a
    destination, but not of these targets."""
    base = partner.url.rstrip("/")
    clock, old, new = (
        VirtualClock(),
        message(f"{base}/v1/x"),
        message(f"{base}/v2/x", messageId="m-2"),
    )
    with service(ledger, clock, destinations={"crm": crm(partner) | {"url": f"{base}/v1"}}) as at:
        at.post(old)
    with service(
        ledger,
        clock,
        unregistered=unregistered,
        destinations={"crm": crm(partner) | {"url": f"{base}/v2"}},
    ) as at:
        at.post(new)
        clock.advance("5m")
        at.work()
        assert [one.target for one in partner.requests] == ["/v2/x"]
        assert (at.item(old)["status"], at.item(old)["attempts"], at.item(new)["status"]) == (
            "WAITING",
            0,
            "COMPLETED",
        )
        assert "no longer belongs to the destination crm" in at.item(old)["note"]
        assert caplog.text.count("no longer belongs to the destination crm") == 1
        assert waiting(at)["orphaned"] is False
        assert at.app.pauses("notifications") == []
    with service(ledger, clock, destinations={"crm": crm(partner) | {"url": f"{base}/v1"}}) as at:
        clock.advance("5m")
        at.work()
        assert (at.item(old)["status"], partner.requests[1].headers["x-team"]) == (
            "COMPLETED",
            "sales",
        )


def test_a_message_that_waits_for_its_destination_can_be_cancelled_as_its_note_says(
    ledger: str, partner: Partner
) -> None:
    base = partner.url.rstrip("/")
    clock, old = VirtualClock(), message(f"{base}/v1/x")
    with service(ledger, clock, destinations={"crm": crm(partner) | {"url": f"{base}/v1"}}) as at:
        at.post(old)
    with service(ledger, clock, destinations={"crm": crm(partner) | {"url": f"{base}/v2"}}) as at:
        clock.advance("5m")
        at.work()
        assert (at.item(old)["status"], at.item(old)["note"].endswith("or cancel the message")) == (
            "WAITING",
            True,
        )
        answer = at.call(
            "POST",
            f"{API}/cancel",
            {"key": at.item(old)["key"], "reason": "it is not wanted any more"},
        )
        assert (answer.status, answer.body["status"]) == (200, "CANCELLED")
    assert partner.requests == []


def test_adding_changing_and_removing_a_destination_are_acts_and_its_pause_is_explained(
    ledger: str, partner: Partner
) -> None:
    with service(ledger) as at:
        assert (
            at.call("PUT", f"{API}/destinations/crm?reason=a+new+partner", crm(partner)).status
            == 200
        )
        assert at.call("PUT", f"{API}/destinations/crm", crm(partner)).status == 200
        at.call("POST", f"{API}/destinations/crm/pause", {"reason": "not yet"})
        assert waiting(at)["left_pause"] is None
        assert at.call("DELETE", f"{API}/destinations/crm?reason=they+have+closed").status == 204
        acts = at.call("GET", "/api/v1/acts").body["acts"]
        assert sorted(
            (one["verb"], one["about"]["scope"], one["by"], one["reason"])
            for one in acts
            if "destination" in one["verb"]
        ) == [
            ("add-destination", "notifications/deliver/crm", "local", "a new partner"),
            ("change-destination", "notifications/deliver/crm", "local", "(no reason was given)"),
            ("remove-destination", "notifications/deliver/crm", "local", "they have closed"),
        ]
        left = waiting(at)
        assert (left["state"], left["registered"]) == ("paused", None)
        assert "crm is no destination any more, but its pause stays" in left["left_pause"]
        page = at.call("GET", "/notifications/destinations/crm").raw.decode()
        assert (
            "<code>milepost notifications resume crm --by YOU --reason &#39;…&#39;</code>" in page
        )
        at.call("POST", f"{API}/destinations/crm/resume", {"reason": "it is gone"})
        assert "crm" not in [
            one["name"] for one in at.call("GET", f"{API}/destinations").body["destinations"]
        ]


def test_the_command_records_who_removes_a_destination_and_why(
    tmp_path: Path, ledger: str, partner: Partner
) -> None:
    with service(ledger) as at:
        at.call("PUT", f"{API}/destinations/crm", crm(partner))
    shell = Shell(tmp_path)
    shell.write("milepost.toml", f'ledger = "{ledger}"\napplications = ["notifications"]\n')
    shell.signed("notifications", "pause", "crm")
    removed = shell.ok(
        "notifications", "remove", "crm", "--by", "ann", "--reason", "they have closed"
    ).out
    assert removed.startswith("crm is removed. crm is no destination any more, but its pause stays")
    assert "its pause stays" in shell.ok("notifications", "destinations").out
    assert (
        "remove-destination notifications/deliver/crm  by ann: they have closed"
        in shell.ok("acts").out
    )
    assert shell.signed("notifications", "resume", "crm").out == "crm is resumed.\n"
    assert "crm" not in shell.ok("notifications", "destinations").out
