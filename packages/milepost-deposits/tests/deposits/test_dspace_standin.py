"""The stand-in DSpace as a program of its own, for demonstrations and the docs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import milepost_net as net


def test_it_prints_its_address_answers_and_ends() -> None:
    command = [
        sys.executable,
        "-m",
        "milepost_deposits.standins.dspace",
        "--collection",
        "1721.1/7",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with net.Client(allow_cidrs=["127.0.0.0/8"]) as client:
                answer = client.request("GET", f"{url}/api/authn/status")
                found = client.request("GET", f"{url}/api/pid/find?id=1721.1/7")
            assert json.loads(answer.body) == {"authenticated": False, "okay": True}
            assert found.status == 302
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
