"""The ledger on AWS, counted: requests and units of one run on a stand-in, and our own CPU beside a
bare boto3 loop.

What is counted is the same on AWS. How fast a stand-in is says nothing about AWS, so no throughput
is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench import aws_cpu, aws_list
from bench.assets import ROUTE, Assets, asset, confirmation, listed, make_route, travel
from bench.aws_deposits import DEPOSIT_CASES, count_deposits
from bench.aws_messages import MESSAGE_CASES, count_messages
from bench.counted import Figure
from bench.standin import account, running
from milepost.engine.heads.daily import publish
from milepost_aws.ledger.cost.model import Need, Usage, predicted
from milepost_aws.ledger.names import ResourceNames


class Case(NamedTuple):
    """How assets come in and how long they wait. `size`: bytes of a submitted input, 0 for that of
    a real asset; `most`: the bar for write units of the row and its index."""

    title: str
    adopted: bool = False
    waits: bool = False
    size: int = 0
    most: int = 13


CASES = [
    Case("submitted, confirmed at once"),
    Case("submitted, waits a day at each stage", waits=True),
    Case("submitted with 280 bytes of input", size=280),
    Case("submitted with 500 bytes of input", size=500, most=18),
    Case("put by others, confirmed at once", adopted=True),
    Case("put by others, waits a day at each stage", adopted=True, waits=True),
]
DAY = 86_400_000
ROUNDS = 3


def run(folder: Path, *, quick: bool, say: Callable[[str], None]) -> list[Figure]:
    """Everything, one after the other, each in an empty account of its own."""
    figures: list[Figure] = []
    with running(folder) as endpoint:
        for number, batch in enumerate((10, 100)):
            for nth, case in enumerate(CASES):
                say(f"aws: 100 assets, {case.title}, batches of {batch}")
                figures += count_assets(
                    endpoint, f"{600_000_000_000 + 10 * number + nth}", 100, batch, case
                )
            say(f"aws: 100 assets, evidence, batches of {batch}")
            figures += count_evidence(endpoint, f"{620_000_000_000 + number}", 100, batch)
            for message in MESSAGE_CASES:
                say(f"aws: 100 messages, {message.title}, batches of {batch}")
                figures += count_messages(100, batch, message)
            for deposit in DEPOSIT_CASES:
                say(f"aws: 100 DOIs, {deposit.title}, batches of {batch}")
                with TemporaryDirectory(dir=folder) as files:
                    figures += count_deposits(Path(files), 100, batch, deposit)
        known, new = (2_000, 50) if quick else (20_000, 50)
        say(f"aws: a list of {known:,} known and {new} new keys")
        figures += count_list(endpoint, folder, known, new)
        items = 100 if quick else 300
        say(f"aws: CPU of worker and relay, {items} items, {ROUNDS} rounds")
        figures += compare_cpu(endpoint, items)
    return figures


# One asset ----------------------------------------------------------------------------------------


def count_assets(endpoint: str, number: str, n: int, batch: int, case: Case) -> list[Figure]:
    """What one of n assets takes from beginning to end."""
    with account(number):
        assets = Assets(endpoint, "bench", batch)
        try:
            travel(assets, n, adopted=case.adopted, waits=case.waits, size=case.size)
            assets.check(n)
        finally:
            assets.close()
    meter = assets.meter
    need = predicted(make_route(), _usage(batch, case), assets.names)
    if meter.refused:
        raise RuntimeError(f"{meter.refused} requests were refused")
    return list(_of_asset(f"an asset {case.title}, batches of {batch}", assets, n, need, case.most))


def _usage(batch: int, case: Case) -> Usage:
    asset_id, batch_id, content = asset(0)
    return Usage(
        checks=1,
        wait_ms=DAY if case.waits else 0,
        payload=len(str(content)) - 2 if case.adopted else len(listed(0, case.size)),
        result=len(confirmation(asset_id)),
        key=len(asset_id) + len(batch_id) + 14,
        batch=batch,
        adopted=case.adopted,
        lambdas=False,
        offers=False,
    )


def _of_asset(case: str, assets: Assets, n: int, need: Need, most: int) -> Iterator[Figure]:
    meter, names = assets.meter, assets.names
    rows = names.rows(ROUTE)
    state = need.units[rows, "write"] + need.units[f"{rows}/due", "write"]
    yield Figure(case, "state: write units", meter.total("rows", "due") / n, state, most)
    yield Figure(
        case,
        "state: writing calls",
        meter.made("rows") / n,
        sum(need.steps[step] for step in need.steps if step != "gone"),
        8,
    )
    kept = need.units[names.history, "write"] + need.units[names.seen, "write"]
    yield Figure(case, "history and seal: write units", meter.total("history", "seen") / n, kept)
    yield Figure(
        case,
        "history, seal and journal: write units",
        meter.total("history", "seen", "journal") / n,
        None,
        6,
    )
    others = meter.total("counters", "checkpoints", "cursors", "control") / n
    yield Figure(case, "counters, checkpoints, cursors: write units", others)
    control = (meter.total("journal") / n) + others
    yield Figure(
        case, "the control table in all: write units", control, need.units[names.control, "write"]
    )
    ours, theirs = _queue(assets, "ours") / n, _queue(assets, "outside") / n
    queue = sum(calls for (service, _), calls in need.calls.items() if service == "sqs")
    yield Figure(case, "SQS calls, ours", ours)
    yield Figure(case, "SQS calls, the confirmers' own", theirs)
    yield Figure(case, "SQS calls in all", ours + theirs, queue, 1.2)
    yield Figure(case, "SNS calls", meter.by("topic") / n, need.calls["sns", "publish_batch"], 0.4)


def _queue(assets: Assets, who: str) -> int:
    wanted = {
        "send_message",
        "send_message_batch",
        "receive_message",
        "delete_message_batch",
        "change_message_visibility_batch",
    }
    return assets.meter.made("", who=who, operations=wanted)


# Evidence -----------------------------------------------------------------------------------------


def count_evidence(endpoint: str, number: str, n: int, batch: int) -> Iterator[Figure]:
    """What keeping evidence adds to an asset's end, and what the daily head then reads of it."""
    with account(number):
        runs = [
            Assets(endpoint, f"bench{int(evidence)}", batch, evidence=evidence)
            for evidence in (False, True)
        ]
        try:
            for assets in runs:
                travel(assets, n)
                assets.check(n)
            without, kept = (assets.meter for assets in runs)
            case = f"evidence of an asset, batches of {batch}"
            need = predicted(
                make_route(evidence=True), _usage(batch, CASES[0]), ResourceNames("bench")
            )
            queries, keys = {"query"}, ("ours", "rows")
            more = (
                kept.made("history", operations=queries)
                - without.made("history", operations=queries)
            ) / n
            # In all, each line is read twice more: to be told, and for the daily head.
            expected = need.units[ResourceNames("bench").history, "read"] - 2 * need.lines
            yield Figure(
                case,
                "blobs written",
                runs[1].blobs.writes["evidence"] / n,
                need.calls["s3", "put_object"],
                1,
            )
            yield Figure(case, "queries of history", more, None, 1)
            units = (kept.total("history", kind="read") - without.total("history", kind="read")) / n
            yield Figure(case, "read units of these queries", units, expected, 1)
            yield Figure(case, "rows read", (kept.keys[keys] - without.keys[keys]) / n, None, 0)
            state = "rows", "due", "history", "seen"
            yield Figure(
                case,
                "write units of state, history and seal",
                (kept.total(*state) - without.total(*state)) / n,
                0,
                0,
            )
            before = kept.keys["ours", "history"]
            runs[1].clock.advance("1d")
            head = publish(runs[1].ctx, None, "2000-01-01", runs[1].clock.now())
            assert head is not None
            yield Figure(
                case,
                "lines read for the daily head",
                (kept.keys["ours", "history"] - before) / n,
                need.lines,
                head["count"] / n,
            )
            yield Figure(
                case,
                "bytes kept",
                sum(
                    len(data)
                    for name, data in runs[1].blobs.held.items()
                    if not name.startswith("lists/")
                )
                / n,
                need.blob_bytes,
            )
        finally:
            for assets in runs:
                assets.close()


# A list, and CPU ----------------------------------------------------------------------------------


def count_list(endpoint: str, folder: Path, known: int, new: int) -> Iterator[Figure]:
    with account("610000000000"):
        meter = aws_list.run(endpoint, folder, known, new)
    case = f"a list of {known:,} known and {new} new keys"
    reads = {"batch_get_item", "get_item", "query"}
    yield Figure(
        case,
        "batch reads of rows",
        meter.made("rows", operations=reads),
        None,
        -(-(known + new) // 100),
    )
    yield Figure(case, "seals read", meter.keys["ours", "seen"], None, new)
    yield Figure(case, "batch reads of seals", meter.made("seen", operations=reads), None, new)
    yield Figure(case, "rows written", meter.made("rows"), None, new)
    yield Figure(
        case,
        "scans",
        meter.made("rows", "seen", "history", "control", operations={"scan"}),
        None,
        0,
    )


def compare_cpu(endpoint: str, n: int) -> Iterator[Figure]:
    rounds = [aws_cpu.ratios(endpoint, number, n) for number in range(ROUNDS)]
    case = f"CPU for an item of one handler stage, {n} items, medians of {ROUNDS}"
    for span in aws_cpu.SPANS:
        yield Figure(case, f"{span}: ours, µs", median(one[span][0] for one in rounds))
        yield Figure(
            case,
            f"{span}: a bare boto3 loop with the same calls, µs",
            median(one[span][1] for one in rounds),
        )
        yield Figure(
            case, f"{span}: ours / bare", median(one[span][0] / one[span][1] for one in rounds)
        )


# Text ---------------------------------------------------------------------------------------------


def text(figures: list[Figure]) -> str:
    lines = [
        "",
        "The ledger on AWS, counted on a stand-in or a model of it, for one item (no throughput is claimed)",
    ]
    last = ""
    for figure in figures:
        if figure.case != last:
            last = figure.case
            lines += ["", f"{figure.case:66}{'counted':>9}{'predicted':>11}{'bar':>9}"]
        bar = "" if figure.most is None else f"<= {figure.most:g}"
        met = "" if figure.most is None else "PASS" if figure.good else "short"
        expected = "" if figure.predicted is None else _number(figure.predicted)
        lines.append(
            f"  {figure.name:64}{_number(figure.counted):>9}{expected:>11}{bar:>9}  {met}".rstrip()
        )
    short = sum(not figure.good for figure in figures)
    return "\n".join([*lines, "", "all bars are met" if not short else f"{short} short"])


def as_json(figures: list[Figure]) -> list[dict[str, Any]]:
    return [{**figure._asdict(), "good": figure.good} for figure in figures]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
