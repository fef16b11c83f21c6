"""Servers that stand in for AWS, each a process of its own on loopback: started, awaited, ended by
its process id."""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.project import ROOT

STANDINS = ROOT / ".standins"
REGION = "eu-central-1"
START_S = 30.0
STOP_S = 10.0


def new_account() -> str:
    """Twelve digits: as an access key id, an empty account of its own in ministack."""
    return str(10**11 + secrets.randbelow(9 * 10**11))


def environment(account: str) -> dict[str, str]:
    """What boto3 is to find in the environment: these keys, and nothing of whoever runs the
    tests."""
    return {
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "no_proxy": "127.0.0.1",
    }


def free_port() -> int:
    """Below the range that the kernel hands out for outgoing connections, so that it stays ours
    while a server is down; and of numbers that no other test process draws from."""
    place = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 6
    while True:
        port = 20_000 + place * 2_000 + secrets.randbelow(2_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Server:
    """One stand-in, reached at `url`, which stays the same through kill and restart."""

    def __init__(
        self,
        program: Path,
        port: int,
        health: str,
        log: Path,
        *,
        arguments: Sequence[str] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
        if not program.exists():
            pytest.fail(
                f"{program.name} is not installed in {STANDINS.name}; run make test", pytrace=False
            )
        self.program, self.port, self.health, self.log = program, port, health, log
        self.arguments, self.variables = arguments, variables or {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.program.name} is not running"
        return self.process.pid

    def start(self) -> None:
        """Returns once the server answers; shows its log when it does not."""
        assert self.process is None, f"{self.program.name} is running already"
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.program), *self.arguments],
                env=inherited | environment(new_account()) | self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while not self.answers():
            ended = self.process.poll()
            if ended is not None or time.monotonic() > until:
                self.kill()
                what = (
                    f"did not answer within {START_S:.0f} s"
                    if ended is None
                    else f"ended at once with {ended}"
                )
                pytest.fail(
                    f"{self.program.name} {what}; its log:\n{self.log.read_text(errors='replace')}",
                    pytrace=False,
                )
            time.sleep(0.02)

    def answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
        try:
            connection.request("GET", self.health)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Asked to end, with whatever it started itself."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ended in the middle of whatever it is doing, as by a loss of power."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        if self.process is not None:
            self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is None:
            # It leads a group of its own, which is there at least until the process has been waited
            # for.
            os.killpg(process.pid, how)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def ministack(folder: Path) -> Server:
    """DynamoDB with streams, SQS, SNS, Lambda; all in memory."""
    port = free_port()
    loopback = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "MINISTACK_HOST": "127.0.0.1"}
    variables = {"LAMBDA_EXECUTOR": "local", "LOG_LEVEL": "WARNING", "TMPDIR": str(folder)}
    # Not its own server, which takes twice the time for a request; idle connections are kept as
    # long as there.
    quiet = ("--no-access-log", "--log-level", "warning", "--no-server-header", "--no-date-header")
    kept = ("--timeout-keep-alive", "75", "--timeout-graceful-shutdown", "1")
    arguments = [
        "ministack.app:app",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--http",
        "httptools",
        "--loop",
        "asyncio",
        *quiet,
        *kept,
    ]
    program = STANDINS / "ministack" / "bin" / "uvicorn"
    log = folder / "ministack.log"
    return Server(
        program,
        port,
        "/_ministack/health",
        log,
        arguments=arguments,
        variables=loopback | variables,
    )


@contextmanager
def clients(url: str) -> Iterator[Callable[[str], Any]]:
    """clients("…")("dynamodb"): a boto3 client of whatever account the environment names; closed in
    the end."""
    import boto3  # not for those who need none: it takes a while

    made: list[Any] = []

    def make(service: str) -> Any:
        made.append(boto3.session.Session().client(service, endpoint_url=url))
        return made[-1]

    yield make
    for one in made:
        one.close()


def dynoxide(folder: Path, database: Path | None = None) -> Server:
    """DynamoDB with streams; with a `database` file it keeps what it was told through a kill. Knows
    no accounts: use names of your own."""
    port = free_port()
    kept = [] if database is None else ["--db-path", str(database)]
    return Server(
        STANDINS / "dynoxide",
        port,
        "/",
        folder / "dynoxide.log",
        arguments=["--port", str(port), *kept],
    )
