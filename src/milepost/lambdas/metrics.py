"""Metrics, in the form that CloudWatch reads from a function's log: how many items are at each stage, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from milepost.core.routes.plan import Plan
from milepost.core.status import LIVE
from milepost.ports.ledger import Count

NAMESPACE = "Milepost"
HOUR_MS = 3_600_000


def standing(plan: Plan, counts: list[Count], now: int) -> dict[str, tuple[int, int]]:
    """By stage: how many items are there, and the age of the oldest in seconds, at the least: counters know the hour alone, so an
    alarm may come an hour late, but never for nothing."""
    here: dict[str, tuple[int, int]] = {}
    for stage in plan.stages:
        live = [count for count in counts if count.stage == stage.name and count.status in LIVE and count.n > 0]
        ages = [now - min(now, (count.hour + 1) * HOUR_MS) for count in live]
        here[stage.name] = sum(count.n for count in live), max(ages, default=0) // 1000
    return here


def tell_standing(prefix: str, plan: Plan, counts: list[Count], missing: Mapping[str, int], now: int) -> None:
    """By stage: its items, the age of the oldest, and how many wait for a message that their queue does not hold (`missing`)."""
    for stage, (items, age_s) in standing(plan, counts, now).items():
        metrics = EphemeralMetrics(namespace=NAMESPACE)
        for name, value in (("Prefix", prefix), ("Route", plan.name), ("Stage", stage)):
            metrics.add_dimension(name, value)
        metrics.add_metric("Items", MetricUnit.Count, items)
        metrics.add_metric("OldestAge", MetricUnit.Seconds, age_s)
        if not plan.by_name[stage].external:
            metrics.add_metric("MissingCalls", MetricUnit.Count, missing.get(stage, 0))
        metrics.flush_metrics()


def tell_run(prefix: str) -> None:
    """A whole run of the resender has come to its end."""
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension("Prefix", prefix)
    metrics.add_metric("ResenderRun", MetricUnit.Count, 1)
    metrics.flush_metrics()
