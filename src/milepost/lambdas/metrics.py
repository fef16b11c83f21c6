"""CloudWatch metrics in a function's log: number of items at each stage, and age of the oldest."""

from __future__ import annotations

from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE
from milepost.ports.feed import Count

NAMESPACE = "Milepost"
HOUR_MS = 3_600_000


def report_stages(prefix: str, plan: Plan, counts: list[Count], missing: Mapping[str, int], now: int) -> None:
    """Report, by stage, its items, the least possible age of the oldest, and the number of items without a message in their queue
    (`missing`). Counters know only the hour, so an alarm on the age may be an hour late but is never false."""
    for stage in plan.stages:
        live = [count for count in counts if count.stage == stage.name and count.status in LIVE and count.n > 0]
        ages = [now - min(now, (count.hour + 1) * HOUR_MS) for count in live]
        metrics = EphemeralMetrics(namespace=NAMESPACE)
        for name, value in (("Prefix", prefix), ("Route", plan.name), ("Stage", stage.name)):
            metrics.add_dimension(name, value)
        metrics.add_metric("Items", MetricUnit.Count, sum(count.n for count in live))
        metrics.add_metric("OldestAge", MetricUnit.Seconds, max(ages, default=0) // 1000)
        if not stage.external:
            metrics.add_metric("MissingCalls", MetricUnit.Count, missing.get(stage.name, 0))
        metrics.flush_metrics()


def report_run(prefix: str) -> None:
    """Report a complete run of the resender."""
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension("Prefix", prefix)
    metrics.add_metric("ResenderRun", MetricUnit.Count, 1)
    metrics.flush_metrics()
