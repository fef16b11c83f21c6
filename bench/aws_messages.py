"""Requests, units and dollars of a notification on AWS: accepted by POST /message and delivered,
retried or rejected.

Counted on the model of AWS. The application is the real one, and its partner is an HTTP server on
loopback; only time is the benchmark's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection
from typing import Any, NamedTuple

import milepost as mp
from bench.counted import COUNTED, PRICED_IN, REGION, CountedRun, Figure, item_figures, on_model
from bench.notifications import HERE, ROUTE, message
from milepost.core.status import Status
from milepost.http.server.assembly import HttpServer
from milepost.runners.clock import SystemClock
from milepost_aws.ledger.cost.model import Need, Usage, predicted
from milepost_aws.ledger.cost.prices import AS_OF, MILLION, dollars, prices_in
from milepost_notifications.application import application
from milepost_testing.clock import VirtualClock
from milepost_testing.http_standin import HttpFault, HttpStandIn, StandInAnswer, StandInRequest

OUTPUT = 300
"""Bytes of the recorded answer of a partner that says only "ok"."""
SENT = 1_200
"""Bytes of a delivery: the body of 1 KB with the URL and all headers."""


class MessageCase(NamedTuple):
    """What the partner answers, try by try. `rejects`: None where `milepost cost`, which knows
    shares only, has no such case."""

    title: str
    answers: tuple[int, ...]
    status: Status
    rejects: float | None


MESSAGE_CASES = [
    MessageCase("delivered at the first try", (200,), Status.COMPLETED, 0.0),
    MessageCase("delivered at the second try", (500, 200), Status.COMPLETED, None),
    MessageCase("rejected at the first try", (404,), Status.REJECTED, 1.0),
]


class Inbox(HttpStandIn):
    """A partner that takes messages; `received` are the bytes of all requests."""

    received = 0

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        with self.lock:
            self.received += size_of(request.headers.items(), request.body) + len(
                f"{request.line} HTTP/1.1\r\n"
            )
        return super().handle(request)

    def answer(self, request: StandInRequest) -> StandInAnswer:
        return StandInAnswer(200, b"ok", (), "text/plain")


def count_messages(n: int, batch: int, case: MessageCase) -> list[Figure]:
    """What one of n messages of 1 KB takes, each accepted by a call of its own."""
    clock = VirtualClock(SystemClock().now())
    with on_model(clock) as endpoint, Inbox() as partner:
        # All of them fail together: no breaker may open, and none may wait for a free place.
        crm = {"url": partner.url, "concurrency": 2 * n, "breaker": {"failures": 10 * n}}
        configured = application.configured(
            {"allow_cidrs": list(HERE), "destinations": {"crm": crm}}, environment={}
        )
        with mp.open(
            f"dynamodb://{REGION}/bench?endpoint={endpoint}", applications=[configured], clock=clock
        ) as ledger:
            server = HttpServer(ledger.context, "127.0.0.1", 0, applications=[configured])
            server.open()
            try:
                run = CountedRun(ledger.context, clock, endpoint, ROUTE, batch)
                answered = _post(
                    server.server.port,
                    [message(number, f"{partner.url}/inbox") for number in range(n)],
                )
            finally:
                server.close()
            run.relay()
            for answer in case.answers:
                if answer != 200:
                    partner.fail("status", answer, times=n)
                run.work(n)
                run.relay()
                clock.advance("1m")  # beyond the delay of the next try
            run.check_ended(n, case.status)
        need = None
        if case.rejects is not None:
            need = predicted(configured.state.route, _usage(batch, case.rejects), run.names)
    title = f"a message of 1 KB, {case.title}, batches of {batch}"
    figures = list(item_figures(title, run, n, need))
    return (
        figures
        if need is None
        else [*figures, *_outside(title, (answered + partner.received) / n, need)]
    )


def _outside(case: str, bytes_out: float, need: Need) -> Iterator[Figure]:
    """Dollars of what DynamoDB, SQS and SNS do not count, by service: each message is one request
    to API Gateway; the times of functions are assumed."""
    prices = prices_in(PRICED_IN)
    yield Figure(case, "bytes sent out of AWS: answer and delivery", bytes_out, need.bytes_out)
    for service, price in dollars(need, prices).items():
        if service not in COUNTED and price:
            counted = prices.data_out * bytes_out / 1e9 if service == "data out" else price
            yield Figure(
                case,
                f"$ a million in {PRICED_IN}: {service} (list price of {AS_OF})",
                MILLION * counted,
                MILLION * price,
            )


def _usage(batch: int, rejects: float) -> Usage:
    target = "http://127.0.0.1:40000/inbox"
    sent = message(10, target)
    key = sum(len(sent[name]) for name in ("messageId", "senderId", "timestamp", "targetUrl"))
    # Each is accepted by a call of its own, but the relay and the workers have full batches.
    return Usage(
        payload=len(json.dumps(sent, separators=(",", ":"))),
        key=key + 6,
        batch=batch,
        output=OUTPUT,
        rejects=rejects,
        offers=False,
        sends=SENT,
        endpoint=True,
    )


def size_of(headers: Iterable[tuple[str, str]], body: bytes) -> int:
    """Bytes of a request or an answer, without its first line."""
    return sum(len(name) + len(value) + 4 for name, value in headers) + 2 + len(body)


def _post(port: int, messages: list[dict[str, Any]]) -> int:
    """Hand over the messages, each by a call of its own; the bytes of all answers."""
    answered = 0
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for one in messages:
        connection.request(
            "POST", "/message", json.dumps(one), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {text.decode()}")
        answered += len("HTTP/1.1 200 OK\r\n") + size_of(answer.getheaders(), text)
    connection.close()
    return answered
