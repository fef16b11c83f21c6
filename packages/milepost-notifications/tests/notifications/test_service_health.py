"""GET /health of notifications: the parts that are not well, within a time limit, and no
secrets."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.notifications.partners import service

from milepost.core.errors import LedgerBusy
from milepost_notifications import api


def test_a_service_that_works_is_healthy(tmp_path: Path) -> None:
    with service(f"sqlite:///{tmp_path / 'milepost.db'}") as at:
        at.milepost.start()
        try:
            for _ in range(600):
                answer = at.call("GET", "/health")
                if answer.status == 200:
                    break
                threading.Event().wait(0.1)
        finally:
            at.milepost.stop()
        assert (
            answer.status,
            answer.body["status"],
            answer.body["service"],
            answer.body["parts"],
        ) == (200, "healthy", "notifications", [])


def test_s33_a_ledger_that_is_down_is_named_and_the_server_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with service() as at:

        def down(*args: object, **options: object) -> bool:
            raise LedgerBusy("the file /srv/secret/milepost.db is locked")

        monkeypatch.setattr(at.ctx.ledger, "write", down)
        answer = at.call("GET", "/health")
        assert (answer.status, answer.body["status"], answer.body["parts"][0]["part"]) == (
            503,
            "unhealthy",
            "ledger",
        )
        assert "/srv/secret" not in str(answer.body)
        assert at.call("GET", "/healthz").status == 200, "alive, though not ready"


def test_s33_it_answers_within_its_limit_though_the_ledger_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "HEALTH_S", 0.05)
    release = threading.Event()
    with service() as at:

        def hang(*args: object, **options: object) -> bool:
            release.wait(60)
            return True

        monkeypatch.setattr(at.ctx.ledger, "write", hang)
        try:
            answer = at.call("GET", "/health")
            assert (answer.status, answer.body["parts"][0]["part"]) == (503, "ledger")
            assert "has not answered within" in answer.body["parts"][0]["why"]
        finally:
            release.set()


def test_a_ledger_that_hangs_occupies_one_thread_however_many_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "HEALTH_S", 0.05)
    release, hanging = threading.Event(), list[str]()
    with service() as at:

        def hang(kind: str, *args: object, **options: object) -> bool:
            hanging.append(kind)
            release.wait(60)
            return True

        monkeypatch.setattr(at.ctx.ledger, "write", hang)
        try:
            assert [at.call("GET", "/health").status for _ in range(20)] == [503] * 20
            assert len(hanging) == 1
        finally:
            release.set()
