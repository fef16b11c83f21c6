"""The evidence of one item over HTTP: the file that the command line writes, and one that proves
itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.http.live_server import LiveServer, running_server

import milepost as mp
from milepost.cli.commands import cli
from milepost.engine.auth import make_key
from milepost.engine.heads.daily import publish
from milepost.engine.retention import prune
from milepost.evidence.record import blob_name
from milepost.evidence.verify import verify
from milepost.http.api.evidence import LONGEST_NAME, file_name

EVIDENCE = "/api/v1/routes/assets/evidence"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveServer]:
    route = mp.Route("assets", key="id", evidence=True)
    route.external("disk")
    with running_server(tmp_path, route) as visitor:
        visitor.milepost.submit("assets", {"id": "a/b"}, {"id": "other"})
        visitor.call(
            "POST",
            "/api/v1/routes/assets/confirmations",
            {"key": "a/b", "stage": "disk", "value": {"volume": "disk-7"}},
        )
        yield visitor


def test_what_is_downloaded_holds_without_the_ledger(store: LiveServer, tmp_path: Path) -> None:
    answer = store.call("GET", f"{EVIDENCE}/a%2Fb")
    assert (
        answer.headers["content-disposition"] == 'attachment; filename="assets-a_b.evidence.jsonl"'
    )
    file = tmp_path / "evidence.jsonl"
    file.write_bytes(answer.raw)
    verdict = verify(file, None, None)
    assert (verdict.holds, verdict.records) == (True, 1)
    file.write_bytes(answer.raw.replace(b"disk-7", b"disk-8"))
    assert not verify(file, None, None).holds


def test_it_is_what_the_command_line_writes(store: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "assets.py").write_text(
        "import milepost as mp\nassets = mp.Route('assets', key='id', evidence=True)\nassets.external('disk')\n"
    )
    file = tmp_path / "exported.jsonl"
    settings = [
        "--ledger",
        f"sqlite:///{tmp_path}/ledger.db",
        "--routes",
        str(tmp_path / "assets.py"),
    ]
    done = CliRunner().invoke(
        cli, [*settings, "export", "assets", "a/b", "--evidence", "--out", str(file)]
    )
    assert done.exit_code == 0, done.output
    written, given = (
        file.read_bytes().splitlines(),
        store.call("GET", f"{EVIDENCE}/a%2Fb").raw.splitlines(),
    )
    assert given[1] == written[1], "the record"
    assert {**json.loads(given[0]), "made_at": ""} == {**json.loads(written[0]), "made_at": ""}


def test_evidence_outlives_the_row(store: LiveServer, tmp_path: Path) -> None:
    before = store.call("GET", f"{EVIDENCE}/a%2Fb").raw.splitlines()[1]
    publish(store.ctx, None, "2026-01-01", store.ctx.clock.now() + 1)
    store.milepost.submit("assets", {"id": "newer"})
    prune(store.ctx, "assets", 0, by="ops", reason="a test")
    assert store.call("GET", "/api/v1/routes/assets/items/a%2Fb").body["sealed"] is True
    after = json.loads(store.call("GET", f"{EVIDENCE}/a%2Fb").raw.splitlines()[1])
    assert after["record"] == json.loads(before)["record"]
    assert after["proof"], "a head covers it by now"


def test_who_may_not_read_gets_no_evidence(store: LiveServer) -> None:
    _, intake = make_key(store.ctx, "intake", ["submit"], by="ops", reason="a test")
    _, archive = make_key(store.ctx, "archive", ["read"], by="ops", reason="a test")
    assert store.call("GET", f"{EVIDENCE}/a%2Fb", key=intake).status == 403
    assert store.call("GET", f"{EVIDENCE}/a%2Fb", key=archive).status == 200
    assert store.call("GET", f"{EVIDENCE}/nothing", key=archive).body["code"] == "unknown-item"


@pytest.mark.parametrize(
    "key", ['"; filename="evil.exe', "../../etc/passwd", "ä\r\nSet-Cookie: a=b", "x" * 5_000]
)
def test_the_name_of_the_file_is_harmless_whatever_the_key(key: str) -> None:
    name = file_name("assets", key)
    assert (
        name.removesuffix(".evidence.jsonl")
        .replace("_", "")
        .replace("-", "")
        .replace(".", "")
        .isalnum()
    )
    assert name.isascii()
    assert "/" not in name
    assert len(name) <= LONGEST_NAME + len(".evidence.jsonl")


def test_lost_evidence_is_no_file(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "newest"})
    publish(store.ctx, None, "2033-01-01", store.ctx.clock.now() + 1)
    prune(store.ctx, "assets", 0, by="ops", reason="a test")
    assert store.call("GET", f"{EVIDENCE}/a%2Fb").status == 200
    store.ctx.blobs.remove(blob_name("assets", "a/b"))
    answer = store.call("GET", f"{EVIDENCE}/a%2Fb")
    assert (answer.status, answer.body["code"]) == (503, "unavailable")
    assert "is missing: it was lost" in answer.body["detail"]
