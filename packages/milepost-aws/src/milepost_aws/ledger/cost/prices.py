"""AWS list prices by region, without free tiers, discounts or tax, copied by hand on the date
below; check AWS's pages before you rely on them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.routes.route import Route
from milepost_aws.ledger.cost.model import Need
from milepost_aws.ledger.cost.steps import MEMORY_GB

AS_OF = "2025-07-01"
NOTE = f"List prices as of {AS_OF}, without free tiers, discounts or tax; check them at aws.amazon.com/pricing before you rely on them."

MILLION = 1_000_000


class Prices(Struct, frozen=True, kw_only=True):
    """One region's prices of one unit, in dollars; those with a default are the same in all of
    these regions."""

    writes: float
    """Write request units: on-demand, up to 1 KB each; an index's share is charged like the
    table's."""
    reads: float
    """Read request units: on-demand, up to 4 KB each, read consistently."""
    stream_reads: float
    """GetRecords by our own processes; Lambda's are free."""
    stored: float
    """GB-months."""
    recovery: float
    """Point-in-time recovery, GB-months."""
    queue_requests: float = 0.40 / MILLION
    """Standard queues; each 64 KB of a request counts as one."""
    publishes: float = 0.50 / MILLION
    """Standard topics; each 64 KB of a request counts as one."""
    deliveries: float = 0.0
    """From a topic to a queue."""
    api_requests: float
    """HTTP APIs of API Gateway, the first 300 million a month; each 512 KB of a request counts as
    one."""
    data_out: float = 0.09
    """GB from AWS to the internet, the first 10 TB a month."""
    calls: float = 0.20 / MILLION
    """Lambda's requests."""
    compute: float = 0.0000133334
    """GB-seconds of Lambda on arm64."""
    blob_puts: float
    blob_gets: float
    blob_stored: float
    """GB-months."""
    metrics: float = 0.30
    """A month, as for alarms."""
    alarms: float = 0.10
    logs: float
    """GB."""


REGIONS: dict[str, Prices] = {
    "us-east-1": Prices(
        writes=0.625 / MILLION,
        reads=0.125 / MILLION,
        stream_reads=0.02 / 100_000,
        stored=0.25,
        recovery=0.20,
        api_requests=1.00 / MILLION,
        blob_puts=0.005 / 1000,
        blob_gets=0.0004 / 1000,
        blob_stored=0.023,
        logs=0.50,
    ),
    "eu-west-2": Prices(
        writes=0.7423 / MILLION,
        reads=0.1485 / MILLION,
        stream_reads=0.0238 / 100_000,
        stored=0.29715,
        recovery=0.23772,
        api_requests=1.16 / MILLION,
        blob_puts=0.0053 / 1000,
        blob_gets=0.00042 / 1000,
        blob_stored=0.024,
        logs=0.5985,
    ),
}


def prices_in(region: str) -> Prices:
    """The prices of a region; UsageError if it is not in the table."""
    found = REGIONS.get(region)
    if found is None:
        raise UsageError(
            f"no prices for region {region!r}; there are prices for {', '.join(REGIONS)}"
        )
    return found


def dollars(need: Need, prices: Prices, *, lambdas: bool = True) -> dict[str, float]:
    """Cost of one item by service; storage is one month of what it leaves. Lambda reads streams
    free of charge."""
    kept_gb, blob_gb = need.kept_bytes / 1e9, need.blob_bytes / 1e9
    puts, gets = need.calls.get(("s3", "put_object"), 0), need.calls.get(("s3", "get_object"), 0)
    return {
        "DynamoDB writes": prices.writes * need.total("write"),
        "DynamoDB reads": prices.reads * need.total("read"),
        "DynamoDB streams": 0.0 if lambdas else prices.stream_reads * need.stream_reads,
        "SQS": prices.queue_requests * need.queue_requests,
        "SNS": prices.publishes * need.publishes + prices.deliveries * need.events,
        "Lambda": prices.calls * need.invocations + prices.compute * need.gb_seconds,
        "API Gateway": prices.api_requests * need.api_requests,
        "data out": prices.data_out * need.bytes_out / 1e9,
        "S3": prices.blob_puts * puts + prices.blob_gets * gets,
        "CloudWatch logs": prices.logs * need.log_bytes / 1e9,
        "a month's storage": prices.stored * kept_gb
        + prices.recovery * kept_gb
        + prices.blob_stored * blob_gb,
    }


def standing(routes: Sequence[Route], prices: Prices) -> float:
    """Dollars a month without any items: alarms, metrics, the resender's runs, and empty polls."""
    stages = sum(len(route.stages) for route in routes)
    workers = sum(stage.ours for route in routes for stage in route.stages)
    # Alarms: one per stage (oldest item), per worker two for its queue and two for its function,
    # four or two per table, two for each of the three other functions, six others.
    alarms = stages + 4 * workers + 4 * len(routes) + 6 + 6 + 6
    minutes = 30 * 24 * 60
    # Lambda polls an empty queue with five pollers, 20 seconds each.
    polls = workers * minutes * 15
    resender = prices.calls * minutes + prices.compute * minutes * MEMORY_GB
    # Metrics: two per stage, one per worker (items without a message), the lag of subscribers,
    # parked items, held rows, and the resender's runs.
    return (
        prices.alarms * alarms
        + prices.metrics * (2 * stages + workers + 4)
        + resender
        + prices.queue_requests * polls
    )
