"""Partners of the demo's notifications: ten HTTP servers in one, of which one hangs, one fails, one
refuses and one is limited."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
HANGS, FAILS, REFUSES, LIMITED = "warehouse", "ads", "shop", "bank"
PARTNERS = (
    FAILS,
    LIMITED,
    "billing",
    "catalogue",
    "crm",
    "fleet",
    "mailer",
    "press",
    REFUSES,
    HANGS,
)
SENDERS = ("orders", "accounts")
OUTAGE_S, EVERY_S = 6.0, 45.0
"""Length of an outage, and the time from one to the next."""
REFUSED_EVERY = 30
"""Of so many messages to the shop, it refuses one."""

SETTINGS = """
[notifications]
allow_cidrs = ["127.0.0.0/8"]
retry = { attempts = 6, base = "500ms", cap = "2s" }
timeouts = { connect = "1s", read = "1s", total = "1s" }
breaker = { failures = 3, within = "1m", cooldown = "2s" }
"""


def settings(port: int) -> str:
    """The table [notifications] of the demo's milepost.toml, for partners at this port."""
    limits = {LIMITED: 'rate = "20/s"\n'}
    tables = (
        f'\n[notifications.destinations.{name}]\nurl = "http://{HOST}:{port}/{name}"\n{limits.get(name, "")}'
        for name in PARTNERS
    )
    return SETTINGS + "".join(tables)


def notification(number: int, port: int) -> dict[str, Any]:
    """The message with that number, as POST /message takes it."""
    partner = PARTNERS[number % len(PARTNERS)]
    return {
        "messageId": f"n-{number:04d}",
        "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}.000Z",
        "senderId": SENDERS[number % len(SENDERS)],
        "targetUrl": f"http://{HOST}:{port}/{partner}/events",
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": f'{{"event":"order.shipped","order":{number}}}',
    }


class DemoPartner(BaseHTTPRequestHandler):
    """Answers as the partner in the path does."""

    protocol_version = "HTTP/1.1"
    server: PartnerServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        partner = self.path.split("/")[1]
        if partner == HANGS and self.server.outage():
            self.server.ended.wait(OUTAGE_S)
            self.close_connection = True
            return
        if partner == FAILS and self.server.outage():
            self._answer(503, b'{"error": "maintenance"}')
        elif (
            partner == REFUSES
            and int(body.rpartition(b":")[2].strip(b" }") or 0) // len(PARTNERS) % REFUSED_EVERY
            == 0
        ):
            self._answer(422, b'{"error": "unknown order"}')
        else:
            self._answer(200, b'{"received": true}')

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no access log: the demo shows its own view."""


class PartnerServer(ThreadingHTTPServer):
    """Serves all partners; an outage begins with the demo, and again every `EVERY_S` seconds."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__((HOST, 0), DemoPartner)
        self.ended = threading.Event()
        self._began = time.monotonic()

    def outage(self) -> bool:
        """Do the partners with outages have one now?"""
        return (time.monotonic() - self._began) % EVERY_S < OUTAGE_S

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up before the answer is what the demo shows, not an error of its
        own."""


@contextmanager
def partners() -> Iterator[int]:
    """Serve the partners meanwhile; the port."""
    server = PartnerServer()
    thread = threading.Thread(
        target=server.serve_forever,
        kwargs={"poll_interval": 0.05},
        name="demo-partners",
        daemon=True,
    )
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
