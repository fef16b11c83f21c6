"""A server on an AWS ledger with an item in every status, brought there by HTTP calls."""

from __future__ import annotations

from typing import Any

from tests.http.live_server import HttpAnswer, LiveServer
from tests.http.remote_workers import lease_of

import milepost as mp
from milepost.core.status import Status
from milepost.station import Station
from milepost.subscribers import CallSubscriber

ROUTE = "/api/v1/routes/parcels"
ITEMS, ACTS, CLAIMS = f"{ROUTE}/items", f"{ROUTE}/acts", f"{ROUTE}/stages/wrap/claims"
WHY = {"reason": "a test"}
LIST = b'{"id": "listed"}\n{"id": "offered"}\n{"id": 7,\n'
STATES = {
    "listed": Status.QUEUED,
    "held": Status.PROCESSING,
    "waiting": Status.WAITING,
    "retrying": Status.RETRY_SCHEDULED,
    "offered": Status.QUEUED,
    "through": Status.COMPLETED,
    "away": Status.MAX_RETRIES_EXCEEDED,
    "heavy": Status.REJECTED,
    "gone": Status.CANCELLED,
}


def parcels() -> mp.Route:
    route = mp.Route("parcels", key="id", evidence=True)

    @route.stage("weigh", retry=mp.Backoff(attempts=1))
    def weigh(item: mp.Item) -> mp.Outcome:
        says = {"heavy": mp.Reject("too heavy"), "away": mp.Retry("the scale is away")}
        return says.get(item.key, mp.Done({"grams": 340}))

    route.stage("wrap", remote=True, retry=mp.Backoff(attempts=2, base="1h"))
    route.external("deliver", overdue="2d")
    return route


class Scene:
    """A door with a subscriber behind it, and the answers to the calls by which its items came to
    where they are."""

    def __init__(self, live_server: LiveServer) -> None:
        self.live_server, self.call = live_server, live_server.call
        queues = live_server.ctx.ledger.store.queues  # type: ignore[attr-defined]
        queues.set_aside(
            "message",
            {"url": queues.url("parcels", "weigh"), "body": "what is this?"},
            "nobody can read it",
        )
        keys = [key for key in STATES if key != "listed"]
        self.taken = self.call("POST", ITEMS, [{"id": key} for key in keys])
        self.listed = self.call(
            "POST",
            f"{ITEMS}?name=monday&full=true",
            LIST,
            headers={"Content-Type": "application/x-ndjson"},
        )
        self.cancelled = self.call(
            "POST", ACTS, {"verb": "cancel", "keys": ["gone"], "id": "cancel-one", **WHY}
        )
        self.work()
        works: dict[str, dict[str, Any]] = {}
        while len(works) < 6:
            works |= {
                work["key"]: work
                for work in self.call("POST", CLAIMS, {"worker": "w1", "want": 6, "wait": 10}).body[
                    "items"
                ]
            }
        self.works = works
        done = {"type": "done", "output": {"paper": "brown"}}
        said = {
            "through": done,
            "offered": done,
            "waiting": {"type": "not-yet", "after": 3600},
            "retrying": {"type": "retry", "error": "no paper is left"},
        }
        outcomes = [
            {"key": key, "lease": works[key]["lease"], "outcome": outcome}
            for key, outcome in said.items()
        ]
        self.settled = self.call("POST", f"{CLAIMS}/settle", {"outcomes": outcomes})
        self.extended = self.call(
            "POST", f"{CLAIMS}/extend", {"leases": [lease_of(works["held"])], "lease": "10m"}
        )
        self.given_back = self.call(
            "POST", f"{CLAIMS}/give-back", {"leases": [lease_of(works["listed"])]}
        )
        self.early = self.confirm("listed")
        self.confirmed = self.confirm("through")
        self.work()

    def work(self) -> None:
        Station(
            self.live_server.ctx, subscribers=[CallSubscriber(lambda event: None, name="office")]
        ).run(until_idle_s=0)

    def confirm(self, key: str, value: Any = "on the step") -> HttpAnswer:
        return self.call(
            "POST", f"{ROUTE}/confirmations", {"key": key, "stage": "deliver", "value": value}
        )

    def row(self, key: str) -> dict[str, Any]:
        return dict(self.call("GET", f"{ITEMS}/{key}").body)
