"""AWS list prices by region, without free tiers, discounts or tax, copied by hand on the date below; check AWS's pages before you
rely on them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.routes.route import Route
from milepost.ledgers.aws.cost.model import Need
from milepost.ledgers.aws.cost.steps import MEMORY_GB

AS_OF = "2025-07-01"
NOTE = f"List prices as of {AS_OF}, without free tiers, discounts or tax; check them at aws.amazon.com/pricing before you rely on them."

MILLION = 1_000_000


class Price(Struct, frozen=True):
    """Dollars for a number of units."""

    dollars: float
    unit: str
    per: int = 1

    def of(self, quantity: float) -> float:
        return quantity * self.dollars / self.per


class Prices(Struct, frozen=True, kw_only=True):
    """One region's prices."""

    writes: Price
    """On-demand, up to 1 KB each; an index's share is charged like the table's."""
    reads: Price
    """On-demand, up to 4 KB each, read consistently."""
    stream_reads: Price
    """GetRecords by our own processes; Lambda's are free."""
    stored: Price
    recovery: Price
    """Point-in-time recovery, per stored GB."""
    queue_requests: Price
    """Standard queues; each 64 KB of a request counts as one."""
    publishes: Price
    """Standard topics; each 64 KB of a request counts as one."""
    deliveries: Price
    """From a topic to a queue."""
    api_requests: Price
    """HTTP APIs of API Gateway, the first 300 million a month; each 512 KB of a request counts as one."""
    data_out: Price
    """From AWS to the internet, the first 10 TB a month."""
    calls: Price
    """Lambda's requests."""
    compute: Price
    """Lambda on arm64."""
    blob_puts: Price
    blob_gets: Price
    blob_stored: Price
    metrics: Price
    alarms: Price
    logs: Price


def _prices(
    *,
    writes: float,
    reads: float,
    streams: float,
    stored: float,
    recovery: float,
    api: float,
    put: float,
    get: float,
    blobs: float,
    logs: float,
) -> Prices:
    """Prices of a region; arguments are those that differ between regions."""
    return Prices(
        writes=Price(writes, "write request unit", MILLION),
        reads=Price(reads, "read request unit", MILLION),
        stream_reads=Price(streams, "stream read request unit", 100_000),
        stored=Price(stored, "GB-month"),
        recovery=Price(recovery, "GB-month"),
        queue_requests=Price(0.40, "request", MILLION),
        publishes=Price(0.50, "request", MILLION),
        deliveries=Price(0.0, "delivery", MILLION),
        api_requests=Price(api, "request", MILLION),
        data_out=Price(0.09, "GB"),
        calls=Price(0.20, "call", MILLION),
        compute=Price(0.0000133334, "GB-second"),
        blob_puts=Price(put, "request", 1000),
        blob_gets=Price(get, "request", 1000),
        blob_stored=Price(blobs, "GB-month"),
        metrics=Price(0.30, "metric a month"),
        alarms=Price(0.10, "alarm a month"),
        logs=Price(logs, "GB"),
    )


REGIONS: dict[str, Prices] = {
    "us-east-1": _prices(
        writes=0.625, reads=0.125, streams=0.02, stored=0.25, recovery=0.20, api=1.00, put=0.005, get=0.0004, blobs=0.023, logs=0.50
    ),
    "eu-west-2": _prices(
        writes=0.7423,
        reads=0.1485,
        streams=0.0238,
        stored=0.29715,
        recovery=0.23772,
        api=1.16,
        put=0.0053,
        get=0.00042,
        blobs=0.024,
        logs=0.5985,
    ),
}


def prices_in(region: str) -> Prices:
    """The prices of a region; UsageError if it is not in the table."""
    found = REGIONS.get(region)
    if found is None:
        raise UsageError(f"no prices for region {region!r}; there are prices for {', '.join(REGIONS)}")
    return found


def dollars(need: Need, prices: Prices, *, lambdas: bool = True) -> dict[str, float]:
    """Cost of one item by service; storage is one month of what it leaves. Lambda reads streams free of charge."""
    kept_gb, blob_gb = need.kept_bytes / 1e9, need.blob_bytes / 1e9
    puts, gets = need.calls.get(("s3", "put_object"), 0), need.calls.get(("s3", "get_object"), 0)
    return {
        "DynamoDB writes": prices.writes.of(need.total("write")),
        "DynamoDB reads": prices.reads.of(need.total("read")),
        "DynamoDB streams": 0.0 if lambdas else prices.stream_reads.of(need.stream_reads),
        "SQS": prices.queue_requests.of(need.queue_requests),
        "SNS": prices.publishes.of(need.publishes) + prices.deliveries.of(need.events),
        "Lambda": prices.calls.of(need.invocations) + prices.compute.of(need.gb_seconds),
        "API Gateway": prices.api_requests.of(need.api_requests),
        "data out": prices.data_out.of(need.bytes_out / 1e9),
        "S3": prices.blob_puts.of(puts) + prices.blob_gets.of(gets),
        "CloudWatch logs": prices.logs.of(need.log_bytes / 1e9),
        "a month's storage": prices.stored.of(kept_gb) + prices.recovery.of(kept_gb) + prices.blob_stored.of(blob_gb),
    }


def standing(routes: Sequence[Route], prices: Prices) -> float:
    """Dollars a month without any items: alarms, metrics, the resender's runs, and empty polls."""
    stages = sum(len(route.stages) for route in routes)
    workers = sum(stage.ours for route in routes for stage in route.stages)
    # Alarms: one per stage (oldest item), per worker one for its queue and two for its function, four or two per table, ten others.
    alarms = stages + 3 * workers + 4 * len(routes) + 6 + 10
    minutes = 30 * 24 * 60
    # Lambda polls an empty queue with five pollers, 20 seconds each.
    polls = workers * minutes * 15
    resender = prices.calls.of(minutes) + prices.compute.of(minutes * MEMORY_GB)
    return prices.alarms.of(alarms) + prices.metrics.of(2 * stages + 5) + resender + prices.queue_requests.of(polls)
