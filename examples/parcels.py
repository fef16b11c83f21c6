"""Parcels: weighed one by one, labelled in batches, sent by a carrier that answers later.

    milepost --routes examples/parcels.py submit parcels examples/parcels.csv
    milepost --routes examples/parcels.py work --until-idle
    milepost --routes examples/parcels.py confirm parcels P-1 --stage send --output '{"tracking": "T-1"}' --by carrier --reason "their mail"

The carrier is a stand-in, so that the example runs by itself; everything else is as it would be in
earnest.
"""

from __future__ import annotations

import milepost as mp

parcels = mp.Route("parcels", key="id")


class Carrier:
    """A partner that knows a repeat by its work_id, and does not take anything over 30 kg."""

    def __init__(self) -> None:
        self.orders: dict[str, str] = {}

    def order(self, work_id: str, label: str, grams: int) -> None:
        if grams > 30_000:
            raise TooHeavy(f"{label}: {grams / 1000:g} kg is too heavy for us")
        self.orders.setdefault(work_id, label)


class TooHeavy(Exception):
    """An exception that says that trying again would not help."""

    permanent = True
    http_status = 422


carrier = Carrier()


@parcels.stage(
    "weigh", retry=mp.Backoff(attempts=3, base="1s", factor=2, cap="1m"), timeout="10s", rate="50/s"
)
async def weigh(item: mp.Item) -> mp.Outcome:
    """A list from a spreadsheet holds text: turn it into a number, or say for good that it is
    none."""
    try:
        grams = int(item.input["grams"])
    except (KeyError, ValueError):
        return mp.Reject("give the weight as a number of grams", category="NO_WEIGHT")
    return mp.Done({"grams": grams})


@parcels.stage("label", batch=100)
def label(items: list[mp.Item]) -> list[mp.Outcome]:
    """One call for up to a hundred labels: that is how the printer likes it."""
    return [mp.Done({"label": f"{item.input['town'].upper()}-{item.key}"}) for item in items]


def is_ordered(item: mp.Item) -> bool:
    """Asked before an order is repeated whose fate is unknown: a worker was lost, or the carrier
    stayed silent."""
    return item.work_id in carrier.orders


@parcels.stage(
    "send",
    verify=is_ordered,
    lane=lambda content: content["town"],
    lanes={"York": mp.Limits(concurrency=2)},
)
def send(item: mp.Item) -> mp.Outcome:
    """The carrier takes the order and tells the tracking number later: a day is normal, two are too
    many."""
    carrier.order(item.work_id, item.payload["label"], item.results["weigh"]["grams"])
    return mp.HandedOver(within="2d", note="ordered; the tracking number comes by mail")
