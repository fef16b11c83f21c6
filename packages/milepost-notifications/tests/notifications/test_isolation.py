"""Isolation of destinations: breakers, rates and partners that hang use up no attempts and slow
down no other destination."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

from tests.net.partner import Line, hang
from tests.notifications.partners import (
    ROUTE,
    Partner,
    VirtualClock,
    answers,
    message,
    service,
    wait_for,
)
from tests.polling import wait_until

import milepost as mp
from milepost_notifications import application

PATIENCE = 60.0
"""Seconds within which something must have happened: far more than a busy machine needs."""


def test_s26_a_breaker_postpones_without_attempts_probes_once_and_drains(tmp_path: Path) -> None:
    clock, ledger = VirtualClock(), f"sqlite:///{tmp_path / 'n.db'}"
    with Partner(answers(500)) as partner:
        own = {
            "url": partner.url,
            "concurrency": 1,
            "retry": {"attempts": 9, "base": "1h", "cap": "1h"},
            "breaker": {"failures": 3, "within": "10m", "cooldown": "30s"},
        }
        sent = [message(partner.url, messageId=str(number)) for number in range(8)]
        with service(ledger, clock, destinations={"crm": own}) as at:
            for one in sent:
                at.post(one)
            at.work()
            assert len(partner.requests) == 3
            assert sorted(at.item(one)["attempts"] for one in sent) == [0] * 5 + [1] * 3
            [lane] = at.milepost.lanes(ROUTE, "deliver", ["crm"])
            assert lane.breaker is not None
            clock.advance("29s")
            at.work()
            assert len(partner.requests) == 3
        # After a restart, two processes: one probe, which fails, and the breaker stays open for
        # another cooldown.
        clock.advance("2s")
        with service(ledger, clock, destinations={"crm": own}) as at:
            configured = application.configured(
                {"allow_cidrs": ["127.0.0.0/8"], "destinations": {"crm": own}}, environment={}
            )
            with mp.open(ledger, applications=[configured], clock=clock) as other:
                threads = [
                    threading.Thread(target=one.run, kwargs={"until_idle": 0})
                    for one in (at.milepost, other)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert len(partner.requests) == 4
            assert sorted(at.item(one)["attempts"] for one in sent) == [0] * 4 + [1] * 4
            # The next probe succeeds: the breaker closes and the rest is sent.
            partner.script = answers(200)
            clock.advance("31s")
            at.work()
            assert sum(at.item(one)["status"] == "COMPLETED" for one in sent) == 4
            clock.advance("2h")
            at.work()
            assert {at.item(one)["status"] for one in sent} == {"COMPLETED"}
            assert len(partner.requests) == 12


def test_s27_a_partner_that_hangs_slows_no_other(tmp_path: Path) -> None:
    count, release, came = 60, threading.Event(), threading.Semaphore(0)

    def hang(line: Line) -> None:
        while line.read() is not None:
            came.release()
            release.wait()
            line.answer()

    with Partner(hang) as hanging, Partner(answers(200)) as healthy:
        own = {"a": {"url": hanging.url, "concurrency": 4}, "b": {"url": healthy.url}}
        timeouts = {"connect": 60, "read": 120, "total": 120}
        with service(
            f"sqlite:///{tmp_path / 'n.db'}", destinations=own, concurrency=8, timeouts=timeouts
        ) as at:
            for number in range(count):
                at.post(message(hanging.url, messageId=str(number)))
            at.milepost.start()
            for _ in range(4):
                assert came.acquire(timeout=PATIENCE)
            # All of the hanging partner's slots are taken; the other's messages come after all of
            # its backlog.
            for number in range(count):
                at.post(message(healthy.url, messageId=str(number)))
            wait_until(lambda: len(healthy.requests) == count)
            assert len(hanging.requests) == 4
            waiting = at.milepost.items(ROUTE, lane="a", limit=count)
            assert {one["attempts"] for one in waiting} == {0}
            release.set()
            wait_until(lambda: len(hanging.requests) == count)
            at.milepost.stop()


def test_s27_a_rate_is_kept_and_uses_up_no_attempts(tmp_path: Path) -> None:
    clock, came = VirtualClock(), []

    def script(line: Line) -> None:
        while line.read() is not None:
            came.append(clock.now())
            line.answer()

    with Partner(script) as partner:
        destinations = {"crm": {"url": partner.url, "rate": "10/s"}}
        with service(f"sqlite:///{tmp_path / 'n.db'}", clock, destinations=destinations) as at:
            sent = [message(partner.url, messageId=str(number)) for number in range(25)]
            for one in sent:
                at.post(one)
            at.milepost.start()
            # One call is saved up; each 100 ms bring another. The clock moves on only when that one
            # has come.
            wait_until(lambda: len(came) == 1)
            assert {one["attempts"] for one in at.milepost.items(ROUTE)} == {0}
            for number in range(2, 26):
                clock.advance("100ms")
                wait_until(lambda wanted=number: len(came) >= wanted)
            at.milepost.stop()
            assert len(came) == 25
            assert max(sum(first <= other < first + 1000 for other in came) for first in came) <= 11
            assert {(at.item(one)["status"], at.item(one)["attempts"]) for one in sent} == {
                ("COMPLETED", 0)
            }


def test_twelve_partners_that_hang_do_not_delay_one_that_answers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        hanging = [stack.enter_context(Partner(hang)) for _ in range(12)]
        healthy = stack.enter_context(Partner(answers(204)))
        at = stack.enter_context(
            service(
                f"sqlite:///{tmp_path}/n.db", timeouts={"connect": 5, "read": 900, "total": 900}
            )
        )
        for number in range(40):
            for partner in hanging:
                at.post(message(partner.url, messageId=f"h-{partner.port}-{number}"))
        at.milepost.start()
        wait_for(lambda: all(partner.requests for partner in hanging))
        sent = [message(healthy.url, messageId=f"ok-{number}") for number in range(20)]
        for one in sent:
            assert at.post(one).status == 200
        wait_for(lambda: {at.item(one)["status"] for one in sent} == {"COMPLETED"})
        for partner in hanging:
            partner.closing.set()
        at.milepost.stop()
