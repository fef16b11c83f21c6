"""`milepost up`: serves at the printed address, asks for the keys that it needs, and stops on a
signal."""

from __future__ import annotations

import http.client
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from tests.http.live_server import running_server

from milepost.cli.work.listen import PORT, Where, address, listening, wanted
from milepost.core.errors import ConfigMistake

ROUTE = """
import milepost as mp

parcels = mp.Route("parcels", key="id")
parcels.external("deliver")
"""


@contextmanager
def up(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`milepost up` in a process of its own, and all that it says until it is at work."""
    (folder / "route.py").write_text(ROUTE)
    command = [sys.executable, "-m", "milepost", "--routes", "route.py", "up", *words]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:
            said += line
            if "until " in line:
                break
        yield process, said
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def port_of(said: str) -> int:
    found = re.search(r"listening at http://127\.0\.0\.1:(\d+)", said)
    assert found, said
    return int(found[1])


def test_up_listens_and_ends_cleanly_when_it_is_told_to_stop(tmp_path: Path) -> None:
    with up(tmp_path, "--listen", "127.0.0.1:0") as (process, said):
        connection = http.client.HTTPConnection("127.0.0.1", port_of(said), timeout=30)
        connection.request(
            "POST",
            "/api/v1/routes/parcels/items",
            '{"id": "a"}',
            {"Content-Type": "application/json"},
        )
        assert connection.getresponse().read().startswith(b'{"key":"a","answer":"new"')
        # The connection stays open: that must not hold up the end.
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(said)), timeout=5)


def test_up_says_what_its_addresses_begin_with_behind_a_proxy(tmp_path: Path) -> None:
    (tmp_path / "milepost.toml").write_text('base_path = "/from-the-file"\n')
    with up(tmp_path, "--until-idle", "0", "--listen", "127.0.0.1:0") as (_, said):
        assert re.search(r"listening at http://127\.0\.0\.1:\d+/from-the-file;", said), said
    with up(tmp_path, "--until-idle", "0", "--listen", "127.0.0.1:0", "--base-path", "/given") as (
        _,
        said,
    ):
        assert re.search(r"listening at http://127\.0\.0\.1:\d+/given;", said), said
    with up(tmp_path, "--until-idle", "0", "--listen", "127.0.0.1:0", "--base-path", "given") as (
        process,
        said,
    ):
        assert "base_path is 'given'; it must begin with '/'" in said
        assert process.wait(30) != 0


def test_the_next_port_is_taken_where_nobody_asked_for_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr("milepost.cli.work.listen.say", heard.append)
    with running_server(tmp_path) as visitor, socket.create_server(("127.0.0.1", 0)) as theirs:
        port = theirs.getsockname()[1]
        with listening(visitor.ctx, Where("127.0.0.1", port, asked=False)):
            said = "\n".join(heard)
    assert port_of(said) > port
    assert f"port {port} is in use; using {port_of(said)}" in said
    assert wanted(None, None, no_listen=False) == Where("127.0.0.1", PORT, asked=False)


def test_up_does_not_listen_until_idle_unless_it_is_asked_to(tmp_path: Path) -> None:
    with up(tmp_path, "--until-idle", "0") as (_, said):
        assert "listening" not in said
    with up(tmp_path, "--until-idle", "0", "--listen", "127.0.0.1:0") as (_, said):
        assert port_of(said)


def test_milepost_toml_says_where_to_listen_and_no_listen_overrides_it(tmp_path: Path) -> None:
    (tmp_path / "milepost.toml").write_text('listen = "127.0.0.1:0"\n')
    with up(tmp_path) as (_, said):
        assert port_of(said) != PORT
    with up(tmp_path, "--no-listen") as (_, said):
        assert "listening" not in said


def test_an_address_that_others_can_reach_needs_keys(tmp_path: Path) -> None:
    with running_server(tmp_path) as visitor:
        with (
            pytest.raises(ConfigMistake, match="there are no API keys"),
            listening(visitor.ctx, address("0.0.0.0:0")),
        ):
            pass


def test_without_what_it_needs_up_says_how_to_get_it_and_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(
        logging.WARNING, "milepost.cli.work.foreground"
    )  # as text: another test may have made a log of everything
    with running_server(tmp_path) as visitor:
        monkeypatch.delitem(sys.modules, "milepost.http.server.assembly")
        monkeypatch.setitem(sys.modules, "uvicorn", None)
        monkeypatch.delitem(sys.modules, "milepost.http.server.listener")
        with listening(visitor.ctx, Where("127.0.0.1", 0, asked=False)):
            assert (
                "pip install '/path/to/milepost/packages/milepost[http]'" in capsys.readouterr().err
            )
        with (
            pytest.raises(ConfigMistake, match="milepost"),
            listening(visitor.ctx, Where("127.0.0.1", 0, asked=True)),
        ):
            pass


def test_an_address_in_milepost_toml_without_the_server_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "route.py").write_text(ROUTE)
    (tmp_path / "milepost.toml").write_text('routes = ["route.py"]\nlisten = "127.0.0.1:0"\n')
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing" / "uvicorn.py").write_text(
        'raise ImportError("not installed", name="uvicorn")\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "milepost", "up"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "missing")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert (
        "the HTTP server needs a package that is not installed (uvicorn): pip install '/path/to/milepost/packages/milepost[http]'"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:8080", "::1", 8080),
        (":9000", "127.0.0.1", 9000),
        ("9000", "127.0.0.1", 9000),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert address(text) == Where(host, port, asked=True)


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "a:b", "::1:80", "host:99999"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigMistake, match="write HOST:PORT"):
        address(text)


def test_to_listen_and_not_to_listen_is_a_mistake() -> None:
    with pytest.raises(click.UsageError):
        wanted("127.0.0.1:0", None, no_listen=True)
