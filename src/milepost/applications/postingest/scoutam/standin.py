"""Stand-in for ScoutAM that speaks real HTTP, for tests, demonstrations and the docs; tests can make it fail.

    python -m milepost.applications.postingest.scoutam.standin --port 0 --after 30s

prints its URL, knows every file below --root, and reports a file as archived a while after the first request for it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import milepost as mp
from milepost.testing.http_standin import LoopbackServer, spoil

USER, PASSWORD = "milepost", "milepost"
LOGIN = "login"


Kind = Literal["status", "garbage", "html", "huge", "hang", "drip", "cut", "reset"]
ALWAYS = 1 << 62

BODIES = {
    "garbage": (b'{"archdone": tru', "application/json"),
    "html": (b"<html><body>Welcome to the proxy</body></html>", "text/html"),
    "huge": (b'{"archdone": false, "pad": "' + b"x" * (1 << 20) + b'"}', "application/json"),
}
"""Answers that are not as specified, with their media types."""


@dataclass
class Fault:
    """A fault for the next `times` requests of `where`: a path, "login", or None for any path."""

    kind: Kind
    status: int = 200
    where: str | None = None
    times: int = ALWAYS
    headers: Mapping[str, str] = field(default_factory=dict)


class StandIn:
    """`with StandIn() as tape:` listens at `tape.url` until the end. Without `everything`, only files that were `put` are known.

    With `everything`, each path below `root` is a file that is archived `after` seconds after the first request for it.
    A token is valid for `token_uses` requests, or without limit.
    """

    def __init__(
        self,
        *,
        root: str = "/archive",
        everything: bool = False,
        after: float = 0.0,
        user: str = USER,
        password: str = PASSWORD,
        token_uses: int | None = None,
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root, self.everything, self.after = root.rstrip("/"), everything, after
        self.user, self.password = user, password
        self.token_uses = token_uses
        self.files: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        """Number of requests of each path."""
        self.logins = 0
        self.most_at_once = 0
        self.faults: list[Fault] = []
        self.closing = threading.Event()
        self._clock = clock
        self._first: dict[str, float] = {}
        self._tokens: dict[str, int] = {}
        self._at_once = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="scoutam-stand-in")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def connections(self) -> int:
        """Number of connections made to it."""
        return self._server.accepted

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.cut()
        self._server.server_close()

    def put(self, path: str, *volumes: str, copy: str = "3", archdone: bool = True, **more: Any) -> None:
        """Add a file below `root`, with these volumes for one of its copies. `more` goes into the answer unchanged."""
        others = [{"copy": name} for name in ("1", "2", "3") if name != copy]
        copies = [*others, {"copy": copy, "sections": [{"volume": volume} for volume in volumes]}]
        self.files[f"{self.root}/{path}"] = {"archdone": archdone, "copies": copies, "checksum": None, **more}

    def fail(self, kind: Kind = "status", status: int = 200, *, where: str | None = None, times: int = ALWAYS, **headers: str) -> Fault:
        """Fail from now on, until `mend` or for so many times. In names of headers '_' stands for '-'."""
        fault = Fault(kind, status, where, times, {name.replace("_", "-"): value for name, value in headers.items()})
        self.faults.append(fault)
        return fault

    def mend(self) -> None:
        """Stop failing."""
        self.faults.clear()

    # What is answered -------------------------------------------------------------------------------------------------------
    def fault_for(self, where: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and (fault.where == where or (fault.where is None and where != LOGIN)):
                    fault.times -= 1
                    return fault
        return None

    def log_in(self, body: bytes) -> tuple[int, Any]:
        with self._lock:
            self.logins += 1
            try:
                said = json.loads(body)
                right = (said["acct"], said["pass"]) == (self.user, self.password)
            except (ValueError, TypeError, KeyError):
                return 400, {"error": "send acct and pass as JSON"}
            if not right:
                return 401, {"error": "wrong account or password"}
            token = f"token-{self.logins}"
            self._tokens[token] = self.token_uses if self.token_uses is not None else ALWAYS
            return 200, {"response": token}

    def look(self, path: str, token: str) -> tuple[int, Any]:
        with self._lock:
            left = self._tokens.get(token, 0)
            if left <= 0:
                return 401, {"error": "log in"}
            self._tokens[token] = left - 1
            state = self.files.get(path)
            if state is None and self.everything and path.startswith(f"{self.root}/"):
                now = self._clock()
                state = derived(path, now - self._first.setdefault(path, now) >= self.after)
            if state is None and (path == (self.root or "/") or any(known.startswith(f"{path}/") for known in self.files)):
                state = {"type": "directory", "archdone": False}
            return (404, {"error": "no such file"}) if state is None else (200, state)

    def begin(self, where: str) -> None:
        with self._lock:
            if where != LOGIN:
                self.asked[where] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def end(self) -> None:
        with self._lock:
            self._at_once -= 1


def derived(path: str, archived: bool) -> dict[str, Any]:
    """A state with volumes derived from the path alone."""
    digest = sha256(path.encode()).hexdigest()
    copies: list[dict[str, Any]] = [{"copy": "1"}, {"copy": "2"}, {"copy": "3"}]
    if archived:
        copies[2]["sections"] = [{"volume": f"L{int(digest[:8], 16) % 100_000:05d}"}]
    return {"archdone": archived, "copies": copies, "checksum": digest if archived else None}


class _Server(LoopbackServer):
    def __init__(self, address: tuple[str, int], standin: StandIn) -> None:
        self.standin = standin
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if urlsplit(self.path).path == "/v1/security/login":
            self._answer(LOGIN, lambda: self.server.standin.log_in(body))
        else:
            self._send(404, {"error": "no such service"})

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = parse_qs(parts.query).get("path", [""])[0]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if parts.path == "/v1/file":
            self._answer(path, lambda: self.server.standin.look(path, token))
        else:
            self._send(404, {"error": "no such service"})

    def _answer(self, where: str, right: Callable[[], tuple[int, Any]]) -> None:
        standin = self.server.standin
        standin.begin(where)
        try:
            fault = standin.fault_for(where)
            status, content = right()
        finally:
            # Count before sending: a client may send its next request as soon as it has the answer.
            standin.end()
        if fault is None:
            self._send(status, content)
        elif fault.kind == "status":
            self._send(fault.status, {"error": "a fault set by the test"}, headers=fault.headers)
        elif fault.kind in BODIES:
            self._send(fault.status, *BODIES[fault.kind])
        else:
            self.close_connection = True
            spoil(fault.kind, self.connection, json.dumps(content).encode(), standin.closing)

    def _send(self, status: int, content: Any, kind: str = "application/json", headers: Mapping[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: requests are counted instead."""


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scoutam_standin", description="A stand-in for ScoutAM that knows every file.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--after", default="30s", help="a file is archived this long after the first request for it, such as 30s or 10m")
    parser.add_argument("--root", default="/archive", help="the mount root below which every file is known")
    given = parser.parse_args(args)
    try:
        # The first delay of a backoff is its base, in any notation of a span.
        after = mp.Backoff(base=given.after, cap="36500d").exponential_ms(0) / 1000
    except mp.UsageError:
        parser.error(f"--after is {given.after!r}; give a span such as 30s, 10m or 2h")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with StandIn(root=given.root, everything=True, after=after, port=given.port) as standin:
        print(standin.url, flush=True)
        print(f"user {USER}, password {PASSWORD}, every file below {given.root}; Ctrl-C ends it", file=sys.stderr, flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
