"""The golden history: a small ledger in a SQLite file, brought to where it is by Python, HTTP and
the command line alone.

It has an item in every status, and nearly every kind of history line, control document and event.
"""

from __future__ import annotations

import http.client
import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tests.golden import internals, routes
from tests.golden.fixed import FixedChance, fixed
from tests.golden.sinks import Topic, WebSink

import milepost as mp
import milepost.application as mpa
from milepost_testing import VirtualClock, drain

SIGNED = ("--by", "anna", "--reason", "a golden test")
LEDGER = "sqlite:///ledger.db"
WEB_SECRET = "whsec_YSBnb2xkZW4gc2VjcmV0IG9mIDMyIGJ5dGVzISEhISE="
ARN = "arn:aws:sns:eu-west-2:123456789012:golden-events.fifo"
LETTERS = "batch,number,read\nB7,1,\nB7,2,retry\nB7,1,\nB7,,\nB8,1,reject\n"
LATER = "batch,number,read\nB7,1,\nB8,1,done\nB8,2,raise\n"


class Answer:
    """What a command wrote, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def milepost(*args: str) -> Answer:
    """Run a command in this process."""
    [entry] = entry_points(group="console_scripts", name="milepost")
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    code: int | str | None = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            entry.load()(list(args))
        except SystemExit as left:
            code = left.code
    return Answer(int(code or 0), out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


class Served:
    """The HTTP API over an open ledger."""

    def __init__(self, port: int, key: str | None = None) -> None:
        self.port, self._key = port, key

    def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """The status, the headers and the body of an answer; the body is read where it is JSON,
        else it is text."""
        sent = {**self._headers(), **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text, found = (
                answer.read().decode(),
                {name.lower(): value for name, value in answer.getheaders()},
            )
        finally:
            connection.close()
        is_json = (
            found.get("content-type", "").endswith("json") and "ndjson" not in found["content-type"]
        )
        return answer.status, found, json.loads(text) if is_json and text else text

    def _headers(self) -> dict[str, str]:
        return {
            "X-Correlation-Id": "golden",
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
        }

    def first_of_stream(self, path: str, events: int) -> str:
        """The first events of a stream that does not end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                "GET", path, headers={**self._headers(), "Accept": "text/event-stream"}
            )
            answer = connection.getresponse()
            assert answer.status == 200
            lines = [f"content-type: {answer.getheader('Content-Type')}\n"]
            while lines.count("\n") < events:
                lines.append(answer.readline().decode())
        finally:
            connection.close()
        return "".join(lines)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, _, answer = self.call(method, path, body)
        assert 200 <= status < 300, (status, answer)
        return answer


class History:
    """Plays the history in an empty folder. What it was answered on the way is in `answers`, what
    subscribers got is in the sinks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, VirtualClock()
        self.log, self.web, self.topic = io.StringIO(), WebSink(), Topic()
        self.answers: dict[str, Any] = {}
        self.heard: list[dict[str, Any]] = []
        shutil.copy(routes.__file__, folder / "golden_routes.py")
        (folder / "milepost.toml").write_text(
            f'ledger = "{LEDGER}"\nroutes = ["golden_routes.py"]\n', encoding="utf-8"
        )
        (folder / "letters.csv").write_text(LETTERS, encoding="utf-8")
        (folder / "later.csv").write_text(LATER, encoding="utf-8")
        with fixed(folder, self.clock, "scene"), self.web:
            self._play()

    def _play(self) -> None:
        with self.opened(self._subscribers()) as ledger:
            self._submit(ledger)
            self._work("5m")
            with internals.served(ledger) as port:
                self._remote_work(Served(port))
            self._work("5m")
            self._operators(ledger)
            self._work("2h")
            self._days(ledger)
            with internals.served(ledger) as port:
                self._hold_one(Served(port))
                self._keys()
            self._work("1s")

    @contextmanager
    def opened(self, subscribers: list[Any] | None = None) -> Iterator[mp.Milepost]:
        """The ledger, with its routes and the history's clock."""
        with mp.open(
            LEDGER,
            routes=[routes.parcels, routes.letters],
            subscribers=subscribers or [],
            clock=self.clock,
            chance=FixedChance(),
        ) as ledger:
            self._ledger = ledger
            yield ledger

    def _subscribers(self) -> list[Any]:
        url = f"http://127.0.0.1:{self.web.port}/events?from=golden"
        return [
            internals.log_subscriber(self.log),
            internals.web_subscriber(
                url, "web", WEB_SECRET, {"Office": "7"}, lambda: self.clock.now() / 1000
            ),
            internals.topic_subscriber(ARN, self.topic),
            internals.call_subscriber(self._hear, "office"),
        ]

    def _hear(self, envelope: dict[str, Any]) -> None:
        """A subscriber that refuses the events of one item."""
        if envelope.get("subject") == "torn":
            raise mp.EventRefused("the office takes no torn parcels")
        self.heard.append(dict(envelope))

    def _work(self, span: str) -> None:
        """Let the workers do what is due within this span; other items stay where they are."""
        until = self.clock.now() + mpa.span_ms(span, "span")
        with suppress(AssertionError):
            drain(self._ledger, self.clock, at_most=span)
        self.clock.advance_to(until)

    def _submit(self, ledger: mp.Milepost) -> None:
        said = {key: key for key in ("not-yet", "handed-over", "retry", "reject", "raise")}
        names = {
            "reject": "torn",
            "raise": "raised",
            "retry": "busy",
            "not-yet": "waiting",
            "handed-over": "partner",
        }
        inputs: list[dict[str, Any]] = [{"id": names[key], "weigh": said[key]} for key in said]
        others = (
            "done",
            "early",
            "wrapped",
            "unwrapped",
            "dropped",
            "gone",
            "skipped",
            "replaced",
            "rerun",
            "held",
            "late",
        )
        inputs += [
            {"id": key, "depot": "north" if key in ("done", "held") else ""} for key in others
        ]
        receipts = ledger.submit("parcels", *inputs, by="golden", correlation_id="order-1")
        receipts += ledger.submit(
            "parcels",
            {"id": "done", "depot": "south"},
            {"id": "done", "depot": "north"},
            {"no": "key"},
            by="golden",
        )
        receipts += ledger.submit(
            "parcels", {"id": "embargo", "from": "2034-01-01T00:00:00Z"}, by="golden"
        )
        receipts += ledger.submit(
            "parcels",
            {"id": "größe/Ж#1", "text": "naïve ☃ \u2028 line"},
            by="golden",
            not_before="1s",
        )
        self.answers["receipts"] = [internals.plain(receipt) for receipt in receipts]
        self.answers["list"] = internals.plain(
            ledger.submit_list("letters", "letters.csv", full=True, by="golden")
        )

    def _remote_work(self, served: Served) -> None:
        """Workers elsewhere wrap parcels: each outcome once, one given back, one held on to."""
        claims = "/api/v1/routes/parcels/stages/wrap/claims"
        claimed = served.ok("POST", claims, {"worker": "w1", "want": 20, "lease": "10m"})
        # In which order items came to the stage does not matter.
        claimed["items"].sort(key=lambda work: str(work["key"]))
        works = {work["key"]: work for work in claimed["items"]}
        said: dict[str, dict[str, Any]] = {
            key: {"type": "done", "output": {"paper": "brown"}} for key in works
        }
        said["unwrapped"] = {
            "type": "retry",
            "error": "the paper tore",
            "category": "PAPER",
            "unknown": True,
        }
        said["wrapped"] = {
            "type": "done",
            "output": {"paper": "red"},
            "payload": {"label": "fragile"},
        }
        kept = {
            key: outcome for key, outcome in said.items() if key not in ("held", "dropped", "late")
        }
        outcomes = [
            {"key": key, "lease": works[key]["lease"], "outcome": outcome}
            for key, outcome in kept.items()
        ]
        one = {"key": "dropped", "lease": works["dropped"]["lease"]}
        self.answers["claims"] = claimed
        early = {"key": "early", "stage": "deliver", "value": {"step": "front"}}
        self.answers["confirm"] = served.ok("POST", "/api/v1/routes/parcels/confirmations", early)
        self.answers["extend"] = served.ok(
            "POST", f"{claims}/extend", {"leases": [one], "lease": "20m"}
        )
        self.answers["settle"] = served.ok("POST", f"{claims}/settle", {"outcomes": outcomes})
        self.answers["give-back"] = served.ok("POST", f"{claims}/give-back", {"leases": [one]})
        # Its lease runs out, so that its outcome comes too late.
        self.clock.advance("11m")
        again = served.ok("POST", claims, {"worker": "w2", "want": 20, "lease": "10m"})
        late = {"key": "late", "lease": works["late"]["lease"], "outcome": {"type": "done"}}
        self.answers["late"] = served.ok("POST", f"{claims}/settle", {"outcomes": [late]})
        self.answers["claims-again"] = sorted(work["key"] for work in again["items"])
        back = [{"key": work["key"], "lease": work["lease"]} for work in again["items"]]
        served.ok("POST", f"{claims}/give-back", {"leases": back})

    def _operators(self, ledger: mp.Milepost) -> None:
        for args in (
            ("pause", "parcels", "deliver", "--lane", "south"),
            ("limit", "parcels", "weigh", "--rate", "50/s", "--concurrency", "3"),
            ("cancel", "parcels", "gone"),
            ("skip", "parcels", "skipped"),
            ("confirm", "parcels", "rerun", "--stage", "deliver", "--output", '{"step": "back"}'),
            ("confirm", "parcels", "done", "--stage", "deliver"),
            ("resend", "parcels", "wrapped"),
            ("rerun", "parcels", "rerun", "--from", "deliver"),
            ("reschedule", "parcels", "embargo", "--at", "2034-02-01T08:00Z"),
            ("retry", "parcels", "--status", "failed"),
        ):
            self.clock.advance("1s")
            answer = milepost(*args, *SIGNED)
            assert answer.code == 0, (args, answer.out, answer.err)
        ledger.replace(
            "parcels", {"id": "replaced", "depot": "west"}, by="anna", reason="a golden test"
        )
        self.answers["row"] = internals.plain(
            ledger.confirm("parcels", "late", "deliver", {"step": "side"}, by="depot")
        )
        ledger.submit_list("letters", "later.csv", full=True, by="golden")

    def _days(self, ledger: mp.Milepost) -> None:
        """Two midnights with daily heads; an item that becomes overdue; rows that leave."""
        self._work("1d")
        answer = milepost("heads", "publish")
        assert answer.code == 0, (answer.out, answer.err)
        self._work("3d")
        report = ledger.prune(
            "letters", "1d", by="anna", reason="a golden test", statuses=["COMPLETED", "failed"]
        )
        self.answers["prune"] = internals.plain(report)
        self.clock.advance("1s")
        answer = milepost("prune", "parcels", "--older-than", "1d", *SIGNED)
        assert answer.code == 0, (answer.out, answer.err)

    def _hold_one(self, served: Served) -> None:
        """A worker has an item in hand now; another waits for its next try."""
        ledger = self._ledger
        ledger.submit(
            "parcels",
            {"id": "in-hand"},
            {"id": "tried", "weigh": "retry"},
            {"id": "looked", "weigh": "not-yet"},
            by="golden",
        )
        ledger.submit("letters", {"batch": "B9", "number": 1}, by="golden")
        ledger.confirm("parcels", "wrapped", "deliver", {"step": "front"}, by="depot")
        self._work("1s")
        claimed = served.ok(
            "POST",
            "/api/v1/routes/parcels/stages/wrap/claims",
            {"worker": "w3", "want": 1, "lease": "1h"},
        )
        self.answers["in-hand"] = [work["key"] for work in claimed["items"]]

    def _keys(self) -> None:
        """From here on calls over HTTP need a key."""
        for name, scope, more in (
            ("worker", "work", ("--route", "parcels", "--rate", "50/s", "--expires", "90d")),
            ("chief", "admin", ()),
        ):
            self.clock.advance("1s")
            answer = milepost("keys", "new", name, "--scope", scope, *more, *SIGNED, "--json")
            assert answer.code == 0, (answer.out, answer.err)
            self.answers[f"key-{name}"] = answer.json
        self.clock.advance("1s")
        assert milepost("keys", "revoke", "worker", *SIGNED).code == 0
