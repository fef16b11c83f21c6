"""`milepost cost`: predicted cost of items on AWS at list prices. Needs only the routes, no ledger
and no boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import console, print_json, print_table, safe
from milepost.core.errors import ConfigMistake, UsageError

if TYPE_CHECKING:
    from milepost.core.routes.route import Route
    from milepost_aws.ledger.cost.model import Need, Usage
    from milepost_aws.ledger.cost.prices import Prices

MILLION = 1_000_000
SHOWN = (
    "steps",
    "messages",
    "queue_requests",
    "events",
    "publishes",
    "api_requests",
    "bytes_out",
    "invocations",
    "gb_seconds",
)
"""Figures of an item that are shown by their names."""


@click.command()
@click.option(
    "--items",
    type=click.FloatRange(1),
    default=1e6,
    metavar="N",
    help="Number of items.  [default: 1e6]",
)
@click.option(
    "--route", "names", multiple=True, metavar="NAME", help="Only this route; may be repeated."
)
@click.option(
    "--region",
    metavar="NAME",
    default="us-east-1",
    show_default=True,
    help="us-east-1 or eu-west-2.",
)
@click.option(
    "--retries",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Share of attempts that fail.",
)
@click.option(
    "--rejects",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of attempts that are rejected for good.",
)
@click.option(
    "--checks",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Checks of each waiting item.",
)
@click.option(
    "--wait",
    metavar="SPAN",
    default="1d",
    show_default=True,
    help="Time of an item at each external stage.",
)
@click.option(
    "--payload",
    type=click.IntRange(0),
    default=500,
    show_default=True,
    metavar="BYTES",
    help="Size of an input.",
)
@click.option(
    "--result",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Size of an external stage's answer.",
)
@click.option(
    "--output",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="BYTES",
    help="Size of a handler's output or error.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="Average batch size, of messages and of stream records.",
)
@click.option(
    "--takes", metavar="SPAN", default="100ms", show_default=True, help="Time of a handler call."
)
@click.option(
    "--sends",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="BYTES",
    help="Bytes a handler sends out of AWS.",
)
@click.option(
    "--endpoint", is_flag=True, help="Each item comes by a request of its own, through API Gateway."
)
@click.option(
    "--adopted", is_flag=True, help="Other programs write the rows; the relay adopts them."
)
@click.option(
    "--no-lambda", "own", is_flag=True, help="Relay and workers run as your own processes."
)
@shared_options
def cost(
    given: CliSettings,
    items: float,
    names: tuple[str, ...],
    region: str,
    wait: str,
    takes: str,
    own: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predicted cost of items on AWS.

    Requests, units and dollars for each route by service, per million items and for --items.
    Calculated from the requests of each step of an item, at list prices that Milepost records with
    their date.
    """
    from milepost.core.values.durations import span_ms
    from milepost_aws.ledger.cost.model import Usage, predicted
    from milepost_aws.ledger.cost.prices import AS_OF, NOTE, prices_in, standing

    if options["retries"] + options["rejects"] > 1:
        raise UsageError(
            "--retries and --rejects are shares of all attempts; together they are more than 1"
        )
    prices = prices_in(region)
    usage = Usage(
        wait_ms=span_ms(wait, "--wait"),
        takes_ms=span_ms(takes, "--takes"),
        lambdas=not own,
        **options,
    )
    routes = _chosen(given.routes(), names)
    found = [(route, predicted(route, usage)) for route in routes]
    month = standing(routes, prices)
    if as_json:
        views = [_view(route, need, usage, prices, items) for route, need in found]
        print_json(
            {
                "region": region,
                "prices_as_of": AS_OF,
                "note": NOTE,
                "items": items,
                "assumed": usage,
                "routes": views,
                "standing_dollars_a_month": month,
            }
        )
        return
    to = console()
    for route, need in found:
        stages = " → ".join(
            f"[{stage.name}]" if stage.external else stage.name for stage in route.stages
        )
        to.print(f"[bold]{safe(route.name)}[/]  {safe(stages)}", soft_wrap=True)
        _show(need, usage, prices, items)
        to.print()
    to.print(
        f"Plus about ${month:,.2f} a month in {region} when idle: alarms, metrics, pollers, the resender."
    )
    to.print(NOTE, soft_wrap=True)


def _chosen(routes: list[Route], names: tuple[str, ...]) -> list[Route]:
    if not routes:
        raise ConfigMistake(
            'no route is configured: give --routes file.py, or set routes = ["file.py"] in milepost.toml'
        )
    known = {route.name: route for route in routes}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no route {name!r}; routes are: {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] or routes
    for route in chosen:
        if not route.stages:
            raise ConfigMistake(
                f"route {route.name!r} has no stages; there is no cost to calculate"
            )
    return chosen


def _show(need: Need, usage: Usage, prices: Prices, items: float) -> None:
    from milepost_aws.ledger.cost.prices import dollars

    costs = dollars(need, prices, lambdas=usage.lambdas)
    blobs = sum(need.calls.get(("s3", name), 0) for name in ("put_object", "get_object"))
    quantities = {
        "DynamoDB writes": f"{need.total('write'):.1f} units",
        "DynamoDB reads": f"{need.total('read'):.1f} units",
        "DynamoDB streams": f"{need.stream_reads:.2f} reads",
        "SQS": f"{need.queue_requests:.2f} requests, {need.messages:.1f} messages",
        "SNS": f"{need.publishes:.2f} publishes, {need.events:.1f} events",
        "Lambda": f"{need.invocations:.2f} calls, {need.gb_seconds:.3f} GB-s",
        "API Gateway": f"{need.api_requests:.1f} requests",
        "data out": f"{need.bytes_out:,.0f} bytes",
        "S3": f"{blobs:.1f} requests",
        "CloudWatch logs": f"{need.log_bytes:,.0f} bytes",
        "a month's storage": f"{need.kept_bytes + need.blob_bytes:,.0f} bytes",
    }
    last = f"$ for {items:,.0f}"
    lines = [(service, quantities[service], dollar) for service, dollar in costs.items() if dollar]
    lines.append(("total", f"{sum(need.calls.values()):.1f} requests", sum(costs.values())))
    rows = [
        (name, quantity, f"{dollar * MILLION:,.2f}", f"{dollar * items:,.2f}")
        for name, quantity, dollar in lines
    ]
    print_table(
        ("service", "per item", "$ per million", last),
        rows,
        right=["per item", "$ per million", last],
    )


def _view(route: Route, need: Need, usage: Usage, prices: Prices, items: float) -> dict[str, Any]:
    from milepost_aws.ledger.cost.prices import dollars

    costs = dollars(need, prices, lambdas=usage.lambdas)
    whole = sum(costs.values())
    return {
        "route": route.name,
        "stages": [
            [stage.name, "external" if stage.external else "handler"] for stage in route.stages
        ],
        "for_an_item": {
            "requests": sum(need.calls.values()),
            "calls": {
                f"{service} {operation}": n for (service, operation), n in need.calls.items() if n
            },
            "write_units": need.total("write"),
            "read_units": need.total("read"),
            "units": {f"{table} {kind}": n for (table, kind), n in need.units.items()},
            **{name: getattr(need, name) for name in SHOWN},
            "stream_records": need.records,
            "stream_reads": need.stream_reads,
            "history_lines": need.lines,
            "row_bytes": need.row_bytes,
            "kept_bytes": need.kept_bytes,
        },
        "dollars_a_million": {
            **{service: each * MILLION for service, each in costs.items()},
            "in all": whole * MILLION,
        },
        "dollars_for_items": {
            **{service: each * items for service, each in costs.items()},
            "in all": whole * items,
        },
    }
