"""The example programs under load: a stop ends them, and no item stays leased."""

from __future__ import annotations

import ast
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests import standins
from tests.project import ROOT

import milepost as mp
from milepost.ports.items import Query

pytestmark = pytest.mark.wire

EXAMPLES = ROOT / "examples"
TIMEOUT = 60
LOAD = 150


def begin(folder: Path, url: str, *command: str, **env: str) -> subprocess.Popen[str]:
    shutil.copytree(
        EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "postingest")
    )
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "MILEPOST_LEDGER": url, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str], name: str, url: str) -> tuple[str, dict[str, int]]:
    """Tell it to stop; what it said, and how many items it left in which status: none in its
    hands."""
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert "Traceback" not in out, out
    [told] = [line for line in out.splitlines() if line.startswith(f"{name}:")]
    counts: dict[str, int] = ast.literal_eval(told.removeprefix(f"{name}:").strip())
    if url.startswith("dynamodb"):
        # The counters that it printed follow the table's stream; the rows themselves are right at
        # once.
        with mp.open(url) as post:
            rows = post.context.ledger.find(Query(route=name)).items
            counts = Counter(item.status.value for item in rows)
    assert "PROCESSING" not in counts, out
    return out, counts


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"content-type": "application/json"},
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_the_fastapi_app_works_while_it_serves_and_drains_at_its_end(
    url: str, tmp_path: Path
) -> None:
    port = standins.free_port()
    process = begin(
        tmp_path,
        url,
        "-m",
        "uvicorn",
        "examples.fastapi_app:app",
        "--port",
        str(port),
        "--no-access-log",
    )
    try:
        assert process.stdout is not None
        while "running on" not in process.stdout.readline():
            assert process.poll() is None
        for number in range(LOAD):
            status, body = call(
                port, "POST", "/letters", {"id": f"L-{number}", "to": f"door {number}"}
            )
            assert (status, body["answer"]) == (202, "new")
        assert call(port, "POST", "/letters", {"to": "nowhere"})[0] == 422
        assert call(port, "GET", "/letters/none")[0] == 404
        while call(port, "GET", "/letters/L-0")[1]["status"] != "COMPLETED":
            assert process.poll() is None
        _, counts = end(process, "letters", url)
    finally:
        process.kill()
        process.communicate()
    assert (
        process.returncode == 0 or process.returncode == -signal.SIGTERM
    )  # uvicorn passes the signal on, once all is done
    assert sum(counts.values()) == LOAD
    assert counts["COMPLETED"] >= 1


def test_the_asyncio_program_drains_when_it_is_cancelled(url: str, tmp_path: Path) -> None:
    process = begin(tmp_path, url, "examples/asyncio_program.py", READINGS=str(10**6))
    try:
        assert process.stdout is not None
        while "100 weighed" not in process.stdout.readline():
            assert process.poll() is None
        out, counts = end(process, "readings", url)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out.splitlines()[-1]) == (0, "stopped")
    assert counts["COMPLETED"] >= 100
