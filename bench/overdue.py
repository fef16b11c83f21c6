"""What one run of the resender costs while items are queued and none needs it: `python -m
bench.overdue LEDGER N LIST`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from statistics import median

from bench.measure import Span, peak_mb
from bench.ours import intake
from bench.route import make_route
from milepost.composition import open_context
from milepost.engine.resend import Resender

RUNS = 15


def measure(words: Sequence[str]) -> dict[str, float]:
    """CPU of one run in ms (median), with n items queued at the first stage."""
    ledger, n, path = words[0], int(words[1]), words[2]
    intake(ledger, path, n, "plain", "new")
    ctx = open_context(f"sqlite:///{ledger}", [make_route()])
    resender = Resender(ctx)
    resender.run_once()
    spans = []
    for _ in range(RUNS):
        with Span() as span:
            summary = resender.run_once()
        if summary.looked:
            raise SystemExit(f"the resender looked at {summary.looked} items that need nothing")
        spans.append(span)
    ctx.ledger.close()
    return {"cpu_ms": median(span.cpu for span in spans) * 1000, "mb": peak_mb()}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])), flush=True)
