"""Stand-in for ScoutAM that speaks real HTTP, for tests, demonstrations and the docs; tests can
make it fail.

    python -m milepost_postingest.standins.scoutam --port 0 --after 30s

prints its URL, knows every file below --root, and reports a file as archived a while after the
first request for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import milepost as mp
import milepost.application as mpa
from milepost_testing.http_standin import (
    FOR_EVER,
    HttpFault,
    HttpStandIn,
    StandInAnswer,
    StandInRequest,
    serve,
)

USER, PASSWORD = "milepost", "milepost"
FILES, LOGIN = "/*", "login"
"""Where the stand-in is set to fail: a pattern of the paths of files, or the login."""


class StandIn(HttpStandIn):
    """`with StandIn() as tape:` listens at `tape.url` until the end. Without `everything`, only
    files that were `put` are known.

    With `everything`, each path below `root` is a file that is archived `after` seconds after the
    first request for it. A token is valid for `token_uses` requests, or without limit.
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
        super().__init__(port=port)
        self.root, self.everything, self.after = root.rstrip("/"), everything, after
        self.user, self.password = user, password
        self.token_uses = token_uses
        self.files: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        """Number of requests of each path."""
        self.logins = 0
        self.most_at_once = 0
        self._clock = clock
        self._first: dict[str, float] = {}
        self._tokens: dict[str, int] = {}
        self._at_once = 0

    def put(
        self, path: str, *volumes: str, copy: str = "3", archdone: bool = True, **more: Any
    ) -> None:
        """Add a file below `root`, with these volumes for one of its copies. `more` goes into the
        answer unchanged."""
        others = [{"copy": name} for name in ("1", "2", "3") if name != copy]
        copies = [*others, {"copy": copy, "sections": [{"volume": volume} for volume in volumes]}]
        self.files[f"{self.root}/{path}"] = {
            "archdone": archdone,
            "copies": copies,
            "checksum": None,
            **more,
        }

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        """A request that is set to fail is carried out first: it uses up its token, and counts."""
        with self.lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            fault = self.take_fault(
                LOGIN if request.method == "POST" else request.query.get("path", "")
            )
        try:
            # Without the lock: several requests can be answered at a time, as by ScoutAM.
            return fault, self.answer(request)
        finally:
            # Count before sending: a client may send its next request as soon as it has the answer.
            with self.lock:
                self._at_once -= 1

    def answer(self, request: StandInRequest) -> StandInAnswer:
        if request.line == "POST /v1/security/login":
            return StandInAnswer(*self.log_in(request.body))
        if request.line == "GET /v1/file":
            return StandInAnswer(
                *self.look(
                    request.query.get("path", ""),
                    request.headers.get("Authorization", "").removeprefix("Bearer "),
                )
            )
        return StandInAnswer(404, {"error": "no such service"})

    def log_in(self, body: bytes) -> tuple[int, Any]:
        with self.lock:
            self.logins += 1
            try:
                said = json.loads(body)
                right = (said["acct"], said["pass"]) == (self.user, self.password)
            except (ValueError, TypeError, KeyError):
                return 400, {"error": "send acct and pass as JSON"}
            if not right:
                return 401, {"error": "wrong account or password"}
            token = f"token-{self.logins}"
            self._tokens[token] = self.token_uses if self.token_uses is not None else FOR_EVER
            return 200, {"response": token}

    def look(self, path: str, token: str) -> tuple[int, Any]:
        with self.lock:
            self.asked[path] += 1
            left = self._tokens.get(token, 0)
            if left <= 0:
                return 401, {"error": "log in"}
            self._tokens[token] = left - 1
            state = self.files.get(path)
            if state is None and self.everything and path.startswith(f"{self.root}/"):
                now = self._clock()
                state = derived(path, now - self._first.setdefault(path, now) >= self.after)
            if state is None and (
                path == (self.root or "/")
                or any(known.startswith(f"{path}/") for known in self.files)
            ):
                state = {"type": "directory", "archdone": False}
            return (404, {"error": "no such file"}) if state is None else (200, state)


def derived(path: str, archived: bool) -> dict[str, Any]:
    """A state with volumes derived from the path alone."""
    digest = sha256(path.encode()).hexdigest()
    copies: list[dict[str, Any]] = [{"copy": "1"}, {"copy": "2"}, {"copy": "3"}]
    if archived:
        copies[2]["sections"] = [{"volume": f"L{int(digest[:8], 16) % 100_000:05d}"}]
    return {"archdone": archived, "copies": copies, "checksum": digest if archived else None}


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scoutam_standin", description="A stand-in for ScoutAM that knows every file."
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--after",
        default="30s",
        help="a file is archived this long after the first request for it, such as 30s or 10m",
    )
    parser.add_argument(
        "--root", default="/archive", help="the mount root below which every file is known"
    )
    given = parser.parse_args(args)
    try:
        after = mpa.span_ms(given.after, "--after") / 1000
    except mp.UsageError:
        parser.error(f"--after is {given.after!r}; give a span such as 30s, 10m or 2h")
    standin = StandIn(root=given.root, everything=True, after=after, port=given.port)
    return serve(standin, f"user {USER}, password {PASSWORD}, every file below {given.root}")


if __name__ == "__main__":
    sys.exit(main())
