"""The routes of the golden history: their items do what their own input says."""

from __future__ import annotations

from typing import Any

import milepost as mp


def _outcome(said: Any) -> mp.Outcome:
    match said:
        case "reject":
            return mp.Reject("it is torn", category="TORN", details={"side": "left"})
        case "retry":
            return mp.Retry("scale 7 is busy", category="BUSY", http_status=503)
        case "not-yet":
            return mp.NotYet(after="1h", note="not brought yet")
        case "handed-over":
            return mp.HandedOver(within="2d", note="asked the depot")
        case "raise":
            raise RuntimeError("no paper is left")
    return mp.Done({"grams": 340, "said": said})


def _depot(content: Any) -> str:
    return str(content.get("depot", ""))


parcels = mp.Route("parcels", key="id", evidence=True, not_before="from")


@parcels.stage(
    "weigh",
    retry=mp.Backoff(attempts=2, base="10m", factor=2, jitter=0),
    checks=mp.Checks(every="10m", up_to="6h", overdue="3d", jitter=0),
    timeout="30s",
    rate="1000/s",
    lane=_depot,
    lanes={"north": mp.Limits(rate="500/s", concurrency=4)},
)
def weigh(item: mp.Item) -> mp.Outcome:
    return _outcome(item.input.get("weigh"))


parcels.stage("wrap", remote=True, retry=mp.Backoff(attempts=2, base="1h", jitter=0))
parcels.external(
    "deliver",
    resend_after="14d",
    overdue="30d",
    announce="The parcel is delivered.",
    medium="doorstep",
    lane=_depot,
)


def _form(envelope: dict[str, Any]) -> dict[str, Any] | None:
    """Completed letters are told in a form of their own."""
    if envelope["type"] != "milepost.item.completed":
        return None
    return {"letter": envelope["subject"], "read": envelope["time"]}


letters = mp.Route("letters", key=("batch", "number"), remember="30d", form=_form)


@letters.stage("read", batch=5, retry=mp.Backoff(attempts=1))
async def read(items: list[mp.Item]) -> list[mp.Outcome]:
    return [_outcome(item.input.get("read")) for item in items]
