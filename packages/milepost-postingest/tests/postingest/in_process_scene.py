"""The postingest route on a ledger in one process, with a virtual clock and recorded notifications
and offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import milepost as mp
from milepost.subscribers import CallSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_postingest import postingest
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.drive import run_until_rest

ASSET, OTHER = "e2715719-c313-4e95-b5e6-f8759dcc6aed", "ca3bb9d5-c5bf-4da8-9ad7-a937f163b006"
BATCH = "TDR_0cae3480-2b84-42a7-b899-dcce25aee98b"
INPUT = {"preservationSystemId": "9a83532d-dd26-442d-b259-b1823f668649"}
PATHS = {"filePaths": ["abc/def/0a1/v1/content/one", "abc/def/0a1/v1/content/two"]}
VOLUMES = {"abc/def/0a1/v1/content/one": ["L03721"], "abc/def/0a1/v1/content/two": ["L03722"]}
LEDGERS = ("memory", "sqlite")
LAST = {"seed": "Scout", "today": "TC"}


class Offer(NamedTuple):
    """What a confirmer is asked."""

    key: str
    stage: str
    payload: Any
    work_id: str


def key_of(asset: str = ASSET, batch: str = BATCH) -> str:
    return f"{asset}#{batch}"


def url_of(ledger: str, folder: Path) -> str:
    return "memory:" if ledger == "memory" else f"sqlite:///{folder}/assets.db"


class InProcessScene:
    """`heard` are the notifications, `offers` what confirmers were asked. While it is `deaf` nobody
    takes anything."""

    def __init__(self, url: str = "memory:", start: int | None = None, **options: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self.offers: list[Offer] = []
        self.deaf = False
        self.clock = VirtualClock() if start is None else VirtualClock(start)
        self.route = postingest(**options)
        self.route.keep = {}  # tests look at rows long after their end
        self.subscribers = [
            Formed(CallSubscriber(self._hear, name="desk")),
            CallSubscriber(self._ask, name="confirmers"),
        ]
        self.milepost = mp.open(url, routes=[self.route], clock=self.clock, chance=SeededChance())
        self.ctx = self.milepost.context

    def _hear(self, envelope: dict[str, Any]) -> None:
        if self.deaf:
            raise ConnectionError("nobody listens")
        self.heard.append(dict(envelope))

    def _ask(self, envelope: dict[str, Any]) -> None:
        data = envelope.get("data", {})
        # Daily heads of the evidence are offered too, on a route of their own.
        if data.get("reason") == "offered" and data["route"] == self.route.name:
            self.offers.append(Offer(data["key"], data["stage"], data["payload"], data["work_id"]))

    def close(self) -> None:
        self.milepost.close()

    # What others do -------------------------------------------------------------------------------
    def put(self, asset: str = ASSET, content: Any = INPUT, batch: str = BATCH, **more: Any) -> str:
        """Hand an asset over; the answer."""
        row = {"assetId": asset, "batchId": batch, "input": content, **more}
        return self.milepost.submit(self.route.name, row)[0].answer

    def confirm(
        self, stage: str, value: Any = True, asset: str = ASSET, batch: str = BATCH
    ) -> None:
        self.milepost.confirm(self.route.name, key_of(asset, batch), stage, value, by="confirmer")

    # What follows ---------------------------------------------------------------------------------
    def run(self, until: int | None = None) -> None:
        """Everything that is due now, or up to a moment: workers, resender, relays; nobody
        waits."""
        run_until_rest(
            self.ctx, self.clock, self.subscribers, self.clock.now() if until is None else until
        )

    def asked(self) -> list[Offer]:
        """What confirmers were asked since this was last looked at."""
        self.run()
        offers, self.offers = self.offers, []
        return offers

    def statuses(self) -> list[str]:
        """The texts of all that was told."""
        self.run()
        bodies = [one.get("body", one) for one in self.heard]
        return [one["parameters"]["status"] for one in bodies]

    def shown(self, asset: str = ASSET, batch: str = BATCH) -> dict[str, Any]:
        found = self.milepost.show(self.route.name, key_of(asset, batch))
        assert found is not None
        return found

    def at(self, asset: str = ASSET, batch: str = BATCH) -> tuple[str, str]:
        shown = self.shown(asset, batch)
        return shown["stage"], shown["status"]
