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
    per: int = 1

    def of(self, quantity: float) -> float:
        return quantity * self.dollars / self.per


class Prices(Struct, frozen=True, kw_only=True):
    """One region's prices; those with a default are the same in all of these regions."""

    writes: Price
    """Write request units: on-demand, up to 1 KB each; an index's share is charged like the table's."""
    reads: Price
    """Read request units: on-demand, up to 4 KB each, read consistently."""
    stream_reads: Price
    """GetRecords by our own processes; Lambda's are free."""
    stored: Price
    """GB-months."""
    recovery: Price
    """Point-in-time recovery, GB-months."""
    queue_requests: Price = Price(0.40, MILLION)
    """Standard queues; each 64 KB of a request counts as one."""
    publishes: Price = Price(0.50, MILLION)
    """Standard topics; each 64 KB of a request counts as one."""
    deliveries: Price = Price(0.0, MILLION)
    """From a topic to a queue."""
    api_requests: Price
    """HTTP APIs of API Gateway, the first 300 million a month; each 512 KB of a request counts as one."""
    data_out: Price = Price(0.09)
    """GB from AWS to the internet, the first 10 TB a month."""
    calls: Price = Price(0.20, MILLION)
    """Lambda's requests."""
    compute: Price = Price(0.0000133334)
    """GB-seconds of Lambda on arm64."""
    blob_puts: Price
    blob_gets: Price
    blob_stored: Price
    """GB-months."""
    metrics: Price = Price(0.30)
    """A month, as for alarms."""
    alarms: Price = Price(0.10)
    logs: Price
    """GB."""


REGIONS: dict[str, Prices] = {
    "us-east-1": Prices(
        writes=Price(0.625, MILLION),
        reads=Price(0.125, MILLION),
        stream_reads=Price(0.02, 100_000),
        stored=Price(0.25),
        recovery=Price(0.20),
        api_requests=Price(1.00, MILLION),
        blob_puts=Price(0.005, 1000),
        blob_gets=Price(0.0004, 1000),
        blob_stored=Price(0.023),
        logs=Price(0.50),
    ),
    "eu-west-2": Prices(
        writes=Price(0.7423, MILLION),
        reads=Price(0.1485, MILLION),
        stream_reads=Price(0.0238, 100_000),
        stored=Price(0.29715),
        recovery=Price(0.23772),
        api_requests=Price(1.16, MILLION),
        blob_puts=Price(0.0053, 1000),
        blob_gets=Price(0.00042, 1000),
        blob_stored=Price(0.024),
        logs=Price(0.5985),
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
